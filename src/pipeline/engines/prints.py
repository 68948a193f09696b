"""The output of `print` in policies: for authors, never in service. Spec: docs/spec/policies.md [POL-62]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.metadata import Module
from pipeline.policy.policy_set import PolicySet

SECONDS: Final = 10.0  # per evaluation

_PRINTED: Final = re.compile(r"(?P<path>.*):(?P<line>[0-9]+): (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Printed:
    """One line that a policy printed, and the place of the `print`. It may hold content."""

    path: str
    line: int
    text: str


def prints(policies: PolicySet, tests: Iterable[Module] = ()) -> bool:
    """Whether the set or one of its tests calls `print`."""
    return any("print" in test.text for test in tests) or policies.modules[: len(_own(policies))] != _own(policies)


class Printing:
    """Shows what a set prints for given inputs, by evaluating them again in the interpreter.

    Args:
        policies: the set.
        tests: test modules to include.
        names: entrypoints to evaluate, besides those of the set.

    Raises:
        PolicyError: the set, or its tests, do not compile.
    """

    def __init__(self, policies: PolicySet, tests: Sequence[Module] = (), names: Iterable[str] = ()) -> None:
        own = _own(policies)
        self._engine = EmbeddedEngine(
            (*own, *policies.modules[len(own) :], *tests),
            policies.data,
            [*policies.entrypoints, *names],
            strict_builtin_errors=policies.builtin_errors == "strict",
            use_compiled=False,
            keeps_prints=True,
        )

    def lines(
        self, asked: Iterable[tuple[str, Mapping[str, Any]]], *, timeout_seconds: float = SECONDS
    ) -> list[Printed]:
        """The distinct lines printed for these (entrypoint, input) pairs, each within the timeout.

        Raises:
            EngineError: an input is refused.
        """
        calls = dict.fromkeys((entrypoint, dumps(document)) for entrypoint, document in asked)
        printed = self._engine.printed([*calls], timeout_seconds=timeout_seconds)
        return [_read(line) for lines in printed for line in lines]


def _own(policies: PolicySet) -> tuple[Module, ...]:
    """The set's modules as written."""
    return policies.sources.modules


def _read(line: str) -> Printed:
    match = _PRINTED.match(line)
    if match is None:
        return Printed("", 0, line)
    return Printed(match["path"], int(match["line"]), match["text"])
