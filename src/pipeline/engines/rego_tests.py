"""For authors: what policies `print` [POL-62], and the tests in a policy set [POL-47], never in service.

Tests are rules in `*_test.rego` whose names begin with `test_`. Spec: docs/spec/policies.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.analysis import Survey
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


TEST_SECONDS: Final = 5.0  # per test, and per evaluation

_TEST: Final = re.compile(r"(?:todo_)?test_\w+")
_TODO: Final = "todo_"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one test: `problem` is empty if it passed, otherwise a code or a short reason.

    A `skipped` test was not run: its name begins with `todo_`, as in OPA. For a failed test, `printed` has what it and
    the policies printed.
    """

    name: str
    path: str
    line: int
    problem: str = ""
    skipped: bool = False
    printed: tuple[Printed, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it ran and passed."""
        return not self.problem and not self.skipped


def run_tests(policies: PolicySet, wanted: Callable[[Module], bool] = lambda _: True) -> Iterator[Checked]:
    """The result of each test of the set, run by the embedded engine's interpreter (tests use `with`).

    A test passes if its rule is true. Only tests in `wanted` modules are run.

    Raises:
        PolicyError: the tests do not compile.
    """
    tests = [module for module in policies.tests if wanted(module)]
    if not tests:
        return
    modules = (*policies.modules, *tests)
    places = {
        ".".join(rule.path): rule.definitions[0].place
        for rule in Survey(modules).rules
        if _TEST.fullmatch(rule.path[-1]) and not rule.is_function
    }
    engine = EmbeddedEngine(
        modules,
        policies.data,
        list(places),
        strict_builtin_errors=policies.builtin_errors == "strict",
        use_compiled=False,
    )
    printing: Printing | None = None
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        if name.rpartition(".")[2].startswith(_TODO):
            yield Checked(name.removeprefix("data."), place.module, place.line, skipped=True)
            continue
        (result,) = engine.evaluate([name], b"{}", [b"{}"], timeout_seconds=TEST_SECONDS)
        problem = _problem(result)
        if problem and printing is None and prints(policies, tests):
            printing = Printing(policies, tests, places)
        printed = printing.lines([(name, {})]) if problem and printing is not None else ()
        yield Checked(name.removeprefix("data."), place.module, place.line, problem, printed=tuple(printed))


def _problem(result: EngineResult) -> str:
    match result:
        case Decided(True):
            return ""
        case Decided():
            return "the result is not true"
        case Failed(code, detail):
            return f"{code} {detail}".strip()
        case TimedOut():
            return "engine.timeout"
        case _:
            return "the test is undefined or false"
