"""Measuring how long decisions take on recorded inputs, and which rules take longest. Spec: docs/spec/replay.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final

from pipeline.decisions.engine import Engine, EngineResult, InlineEngine
from pipeline.decisions.errors import ReplayError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.replay.replay import Replay
from pipeline.run.assembly import embedded_engine
from pipeline.run.recorded_input import Entry

SAMPLED_VIEWS: Final = 200  # views of each kind on which the rules are timed individually
PERCENTILES: Final = (50, 95, 99)
_TIMEOUT_SECONDS: Final = 10.0
_MIN_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measurements: `decisions` were timed, on `entries`; those that are `skipped` cannot be replayed.

    `decision_us` has microseconds from canonical traffic to outcome by percentile, `evaluate_us` the engine's part of
    it, and `rules_us` each rule's average microseconds per view of its kinds, slowest first.
    """

    revision: str
    entries: int
    skipped: int
    decisions: int
    decision_us: Mapping[int, float]
    evaluate_us: Mapping[int, float]
    rules_us: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON, as `cmf bench --baseline` reads them."""
        return {
            "revision": self.revision,
            "entries": self.entries,
            "skipped": self.skipped,
            "decisions": self.decisions,
            "decision_us": {f"p{percent}": round(value, 1) for percent, value in self.decision_us.items()},
            "evaluate_us": {f"p{percent}": round(value, 1) for percent, value in self.evaluate_us.items()},
            "rules_us": {rule: round(value, 2) for rule, value in self.rules_us.items()},
        }


def measure(
    policies: PolicySet,
    entries: Iterable[Entry],
    *,
    rounds: int,
    profiles: Profiles | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Figures:
    """The figures of judging each entry `rounds` times on one core, after one warm-up.

    Raises:
        PolicyError: the set cannot be used.
    """
    seen = _SamplingEngine(embedded_engine(policies))  # no verdict cache: it would answer all but the first round
    replay = Replay(policies, profiles=profiles, engine=seen)
    decisions: list[int] = []
    evaluations: list[int] = []
    judged = skipped = 0
    for entry in entries:
        try:
            seen.listening = True
            replay.judged(entry)
            seen.listening = False
        except ReplayError:
            skipped += 1
            continue
        judged += 1
        for _ in range(rounds):
            begin = perf_counter_ns()
            seen.evaluate_ns = 0
            replay.judged(entry)
            decisions.append(perf_counter_ns() - begin)
            evaluations.append(seen.evaluate_ns)
        on_progress(1)
    return Figures(
        revision=policies.revision,
        entries=judged,
        skipped=skipped,
        decisions=len(decisions),
        decision_us=_percentiles(decisions),
        evaluate_us=_percentiles(evaluations),
        rules_us=_rules(policies, seen.calls, max(rounds, _MIN_ROUNDS)) if judged else {},
    )


def regressions(figures: Mapping[str, Any], baseline: Mapping[str, Any], allowed: float) -> list[str]:
    """The percentiles, p50 and p95 of decisions, that exceed `baseline` by more than `allowed` (0.1 is ten percent).

    Raises:
        KeyError, TypeError: the baseline is not the output of `Figures.to_json`.
    """
    found = []
    for name in ("p50", "p95"):
        before, after = float(baseline["decision_us"][name]), float(figures["decision_us"][name])
        if after > before * (1 + allowed):
            found.append(f"{name} {after:.1f} µs, was {before:.1f} µs (+{100 * (after / before - 1):.0f} %)")
    return found


class _SamplingEngine(InlineEngine):
    """Wraps an engine. Records its time, and a sample of its queries: (entrypoint, shared, view)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counted: Counter[str] = Counter()
        self.listening = False
        self.evaluate_ns = 0
        self.calls: list[tuple[str, bytes, bytes]] = []

    @property
    def revision(self) -> str:
        return self._engine.revision

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        for entrypoint, view in zip(entrypoints, views, strict=True):
            if self.listening and self._counted[entrypoint] < SAMPLED_VIEWS:
                self._counted[entrypoint] += 1
                self.calls.append((entrypoint, shared, view))
        begin = perf_counter_ns()
        results = self._engine.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)
        self.evaluate_ns += perf_counter_ns() - begin
        return results

    def close(self) -> None:
        self._engine.close()


def _percentiles(nanoseconds: Sequence[int]) -> dict[int, float]:
    ordered = sorted(nanoseconds)
    return {
        percent: ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1e3 if ordered else 0.0
        for percent in PERCENTILES
    }


def _rules(policies: PolicySet, calls: Sequence[tuple[str, bytes, bytes]], rounds: int) -> dict[str, float]:
    """Rule → microseconds per view: each rule is evaluated alone on the views of its kinds."""
    asked = {rule.id: [f"data.{rule.package}.{effect.value}" for effect in rule.effects] for rule in policies.rules}
    engine = EmbeddedEngine(policies.modules, policies.data, [name for names in asked.values() for name in names])
    views: dict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for entrypoint, shared, view in calls:
        views[entrypoint].append((shared, view))
    taken: dict[str, float] = {}
    for kind in {kind for rule in policies.rules for kind in rule.kinds}:
        for rule in policies.rules_for(kind):
            for shared, view in views.get(policies.entrypoint(kind), ()):
                taken[rule.id] = taken.get(rule.id, 0.0) + _fastest(engine, asked[rule.id], shared, view, rounds)
    counts = {
        rule.id: sum(len(views.get(policies.entrypoint(kind), ())) for kind in rule.kinds) for rule in policies.rules
    }
    each = {rule: spent / counts[rule] / 1e3 for rule, spent in taken.items()}
    return dict(sorted(each.items(), key=lambda one: -one[1]))


def _fastest(engine: EmbeddedEngine, names: Sequence[str], shared: bytes, view: bytes, rounds: int) -> int:
    """The minimum of several runs, because other load only adds time."""
    spent: list[int] = []
    for _ in range(rounds):
        begin = perf_counter_ns()
        for name in names:
            engine.evaluate([name], shared, [view], timeout_seconds=_TIMEOUT_SECONDS)
        spent.append(perf_counter_ns() - begin)
    return min(spent)
