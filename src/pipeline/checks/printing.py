"""What policies `print`: for who writes them, never for what serves them. Spec: docs/spec/policies.md [POL-62]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.codec import dumps
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policies.metadata import Module
from pipeline.policy_set import PolicySet

SECONDS: Final = 10.0  # one evaluation; no reader waits longer to be told

_SAID: Final = re.compile(r"(?P<path>.*):(?P<line>[0-9]+): (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Printed:
    """One line that a policy printed: where it says so, and what. It may hold content."""

    path: str
    line: int
    text: str


def prints(policies: PolicySet, tests: Iterable[Module] = ()) -> bool:
    """Whether the set, or one of its tests, prints anything."""
    return any("print" in test.text for test in tests) or policies.modules[: len(_own(policies))] != _own(policies)


def printed(
    policies: PolicySet,
    asked: Iterable[tuple[str, Mapping[str, Any]]],
    tests: Sequence[Module] = (),
    *,
    timeout_seconds: float = SECONDS,
) -> list[Printed]:
    """What the set prints when it is asked so: (entrypoint, input) each, each once, and each no longer than that.

    The interpreter evaluates it again, so it is for what was judged, or tested, already.

    Raises:
        PolicyError: the set, or its tests, do not compile. EngineError: an input is refused.
    """
    calls = dict.fromkeys((entrypoint, dumps(document)) for entrypoint, document in asked)
    if not calls:
        return []
    generated = policies.modules[len(_own(policies)) :]
    engine = EmbeddedEngine(
        [(module.path, module.text) for module in (*_own(policies), *generated, *tests)],
        policies.data,
        list(dict.fromkeys(entrypoint for entrypoint, _ in calls)),
        strict_builtin_errors=policies.builtin_errors == "strict",
        use_compiled=False,
        keeps_prints=True,
    )
    said = engine.printed([*calls], timeout_seconds=timeout_seconds)
    return [_read(line) for lines in said for line in lines]


def _own(policies: PolicySet) -> tuple[Module, ...]:
    """What the set's files say, as written."""
    return policies.sources.modules


def _read(said: str) -> Printed:
    match = _SAID.match(said)
    if match is None:
        return Printed("", 0, said)
    return Printed(match["path"], int(match["line"]), match["text"])
