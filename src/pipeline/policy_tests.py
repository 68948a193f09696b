"""The tests that a policy set brings: rules in `*_test.rego` whose names begin with `test_`. Spec: [POL-47]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.engines.base import Decided, EngineResult, Failed, TimedOut
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.survey import Survey
from pipeline.policy_set import PolicySet

TEST_SECONDS: Final = 5.0  # one test; no evaluation may take longer

_TEST: Final = re.compile(r"test_\w+")


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one test: `problem` is empty if it held, else why it did not, as a code or a few words."""

    name: str
    path: str
    line: int
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether it held."""
        return not self.problem


def run_tests(policies: PolicySet) -> Iterator[Checked]:
    """The outcome of each test of the set, as the embedded engine's interpreter judges it (tests say `with`).

    A test holds if its rule is true. Those whose names begin with `todo_` are left out, as OPA does.

    Raises:
        PolicyError: the tests do not compile.
    """
    if not policies.tests:
        return
    modules = [(module.path, module.text) for module in (*policies.modules, *policies.tests)]
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
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        (result,) = engine.evaluate([name], b"{}", [b"{}"], timeout_seconds=TEST_SECONDS)
        yield Checked(name.removeprefix("data."), place.module, place.line, _problem(result))


def _problem(result: EngineResult) -> str:
    match result:
        case Decided(True):
            return ""
        case Decided():
            return "it is not true"
        case Failed(code, detail):
            return f"{code} {detail}".strip()
        case TimedOut():
            return "engine.timeout"
        case _:
            return "it does not hold"
