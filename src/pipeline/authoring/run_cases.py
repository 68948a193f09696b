"""Running test cases. Spec: docs/spec/cases.md."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, TypeAlias

from cmf.errors import CmfError
from cmf.json.codec import dumps
from pipeline.authoring.case import Case, Expectation, ViewExpectation, WireExpectation
from pipeline.decisions.decision import BAD_EFFECT, OUTAGE_RULES, Action, Decision, Hit, Verdict, ViewDecision
from pipeline.decisions.errors import PipelineError
from pipeline.engines.rego_tests import Printed
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, EngineChoice, Policies
from pipeline.run.emit import emit
from pipeline.run.outcome import Outcome
from pipeline.run.pipeline import Pipeline
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes, Count

Status: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of one case: `problems` are the failed expectations, one line each.

    `printed` is what policies printed, if it was collected.
    """

    case: Case
    status: Status
    problems: tuple[str, ...] = ()
    decision: Decision | None = None
    printed: tuple[Printed, ...] = ()

    @property
    def rules(self) -> frozenset[str]:
        """The rules that hit."""
        views = self.decision.views if self.decision is not None else ()
        return frozenset(hit.rule for view in views for hit in view.hits)


class CaseRunner:
    """Runs cases under one policy set; each case has its own session."""

    def __init__(self, policies: Policies, config: Config | None = None, *, engine: EngineChoice = "embedded") -> None:
        self._policies = policies
        self._engine = engine
        self._config = config or Config()
        self._pipelines: dict[tuple[Path | None, str], tuple[Pipeline, MemorySessions]] = {}
        self._numbers = itertools.count(1)

    def run(self, case: Case) -> CaseResult:
        """The result of the case. PolicyError, ConfigError: the policies or profiles cannot be used."""
        if case.skip is not None:
            return CaseResult(case=case, status="skipped")
        outcome = self.judge(case)
        problems = [*_problems(case.expected, outcome)]
        for target, wire in case.expected.wire.items():
            # An outcome can be emitted only once, so judge again for each format.
            problems += _wire_problems(target, wire, self.judge(case))
        status: Status = "failed" if problems else "passed"
        return CaseResult(case=case, status=status, problems=tuple(problems), decision=outcome.decision)

    def judge(self, case: Case) -> Outcome:
        """The pipeline's outcome for the case, in a fresh session; see `run` for errors."""
        key = (case.profiles, case.history)
        if key not in self._pipelines:
            config = dataclasses.replace(self._config, history=case.history)
            profiles = Profiles.load(case.profiles) if case.profiles is not None else None
            sessions = MemorySessions()
            pipeline = Pipeline(
                policies=self._policies, engine=self._engine, config=config, sessions=sessions, profiles=profiles
            )
            self._pipelines[key] = pipeline, sessions
        pipeline, sessions = self._pipelines[key]
        context = case.context.model_copy(update={"session": case.context.session or f"case-{next(self._numbers)}"})
        counts = tuple(Count(name=name, amount=Decimal(amount)) for name, amount in case.session.counters.items())
        if counts:
            sessions.commit(context, None, Changes(counts=counts))
        sessions.add_labels(context, frozenset(case.session.labels))
        return pipeline.run(case.traffic, context)

    def close(self) -> None:
        """Close the engines."""
        for pipeline, _ in self._pipelines.values():
            pipeline.close()


def _problems(expected: Expectation, outcome: Outcome) -> Iterator[str]:
    """The failed expectations, one line each."""
    decision = outcome.decision
    hits = [(view, hit) for view in decision.views for hit in view.hits]
    rules = {hit.rule for _, hit in hits}
    yield from _differs("verdict", expected.verdict, decision.verdict.value)
    yield from _differs("action", expected.action, decision.action.value)
    yield from _not_exactly("rules", expected.rules, rules)
    yield from _lacks("rules", expected.rules_include, rules)
    yield from _not_exactly("codes", expected.codes, {hit.code for _, hit in hits})
    yield from _failures(expected, hits)
    if outcome.value is None and (expected.labels_include or expected.labels_exclude):
        yield "labels: nothing was allowed, so the session got none"
    elif outcome.value is not None:
        yield from _lacks("labels", expected.labels_include, outcome.labels)
        if surplus := sorted(outcome.labels & set(expected.labels_exclude)):
            yield f"labels: {', '.join(surplus)} was added, which was not expected"
    for at, view in expected.views.items():
        named = [got for number, got in enumerate(decision.views) if at in (str(number), got.path)]
        if named:
            yield from _view_problems(f"views[{at}]", view, named[0])
        else:
            listed = ", ".join(f"{number} {got.path or got.kind}" for number, got in enumerate(decision.views))
            yield f"views[{at}]: there is no such view; there are {listed or 'none'}"


def _failures(expected: Expectation, hits: Iterable[tuple[ViewDecision, Hit]]) -> Iterator[str]:
    """Denials that no rule wrote: something failed, and the case does not name the code of it."""
    if expected.verdict is not Verdict.DENY:
        return  # the verdict is not what was expected
    for view, hit in hits:
        is_failure = hit.rule in OUTAGE_RULES or hit.code == BAD_EFFECT
        if is_failure and hit.code not in (expected.codes or ()):
            said = hit.problem or f"{hit.rule}: {hit.reason}"
            yield f"{view.path}: denied by a failure, {hit.code} ({said}); if it is expected, name it in `codes`"


def _differs(what: str, expected: str | None, got: str | None) -> Iterator[str]:
    if expected is not None and expected != got:
        yield f"{what}: expected {expected}, got {got}"


def _not_exactly(what: str, expected: Sequence[str] | None, got: Iterable[str]) -> Iterator[str]:
    if expected is None:
        return
    found = set(got)
    if missing := sorted(set(expected) - found):
        yield f"{what}: expected {', '.join(missing)}, which did not hit"
    if surplus := sorted(found - set(expected)):
        yield f"{what}: {', '.join(surplus)} hit, which was not expected"


def _lacks(what: str, expected: Sequence[str], got: Iterable[str]) -> Iterator[str]:
    if missing := sorted(set(expected) - set(got)):
        yield f"{what}: expected {', '.join(missing)} among {', '.join(sorted(got)) or 'none'}"


def _view_problems(at: str, expected: ViewExpectation, got: ViewDecision) -> Iterator[str]:
    rules = {hit.rule for hit in got.hits}
    yield from _differs(f"{at}.verdict", expected.verdict, got.verdict.value)
    yield from _differs(f"{at}.kind", expected.kind, got.kind)
    yield from _differs(f"{at}.uri", expected.uri, got.uri)
    yield from _not_exactly(f"{at}.rules", expected.rules, rules)
    yield from _lacks(f"{at}.rules", expected.rules_include, rules)


def _wire_problems(target: str, expected: WireExpectation, outcome: Outcome) -> Iterator[str]:
    if outcome.decision.action not in (Action.FORWARD, Action.FORWARD_MODIFIED):
        yield f"wire.{target}: there is no output"
        return
    try:
        text = dumps(emit(outcome, target)).decode()
    except (CmfError, PipelineError) as error:
        yield f"wire.{target}: {error}"
        return
    for wanted in expected.contains:
        if wanted not in text:
            yield f"wire.{target}: does not contain {wanted!r}"
    for unwanted in expected.not_contains:
        if unwanted in text:
            yield f"wire.{target}: contains {unwanted!r}"
