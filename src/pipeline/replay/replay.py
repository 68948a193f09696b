"""Judging recorded inputs again, with their recorded facts, under other policies. Spec: replay.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from pipeline.decisions.approval import Approval
from pipeline.decisions.context import Context
from pipeline.decisions.decision import ENGINE_RULE, SESSION_RULE, Decision, Hit
from pipeline.decisions.engine import Engine
from pipeline.decisions.errors import ReplayError
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.timestamps import LAST
from pipeline.provenance.claims import HistoryTrust
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, Policies, build_engine, load_policies
from pipeline.run.outcome import Outcome
from pipeline.run.pipeline import Pipeline
from pipeline.run.recorded_input import Entry, summary_of
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes

TIMEOUT_SECONDS: Final = 10.0  # generous: nobody waits for a replay, and one that times out is useless
_UNDEFINED: Final = "engine.undefined"  # a result of the policies, not a failure of the engine


class Replay:
    """Judges entries under one policy set, always enforcing. Not to be shared between threads.

    Args:
        policies: as for `Guard`.
        profiles: the tool and resource profiles, which entries do not contain.
        timeout_seconds: per engine query.
        engine: an engine with these policies; by default as for a guard.

    Raises:
        PolicyError: the policies cannot be used.
    """

    def __init__(
        self,
        policies: Policies = None,
        *,
        profiles: Profiles | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        engine: Engine | None = None,
    ) -> None:
        self.policies = load_policies(policies)
        self._engine = engine or build_engine(self.policies, "embedded", Config())
        self._profiles = profiles
        self._timeout_seconds = timeout_seconds
        self._session = _RecordedSession(self.revision)
        self._pipelines: dict[HistoryTrust, Pipeline] = {}

    @property
    def revision(self) -> str:
        """The revision of the policies and data."""
        return self.policies.revision

    def judged(self, entry: Entry) -> Decision:
        """The decision about `entry`. Raises: as `outcome`."""
        return self.outcome(entry).decision

    def outcome(self, entry: Entry) -> Outcome:
        """The decision about `entry`, and the output.

        Raises:
            ReplayError: it cannot be replayed: stages affected it (`replay.stages`), it was not judged completely
                (`replay.incomplete`), or evaluating these policies failed (`replay.failed`).
        """
        if entry.decision.get("stages"):
            raise ReplayError(
                "stages affected this decision",
                code="replay.stages",
                hint="only decisions of policy alone can be replayed",
            )
        if entry.decision.get("complete") is not True:
            raise ReplayError(
                "the input was not judged completely", code="replay.incomplete", hint="leave this entry out"
            )
        self._session.entry = entry
        pipeline = self._pipeline(entry.history)
        outcome = pipeline.run(entry.traffic, entry.context)
        # Settled turns of one entry must not affect the next.
        remembered = pipeline.conversations
        remembered.erase(remembered.due(LAST, 2))
        if any(map(_is_outage, outcome.decision.hits)):
            raise ReplayError(
                "evaluating the policies failed",
                code="replay.failed",
                hint="check that the engine is available, and try again",
            )
        return outcome

    def _pipeline(self, history: HistoryTrust) -> Pipeline:
        if history not in self._pipelines:
            self._pipelines[history] = Pipeline(
                policies=self.policies,
                engine=self._engine,
                config=Config(timeout_seconds=self._timeout_seconds, history=history),
                sessions=self._session,
                profiles=self._profiles,
            )
        return self._pipelines[history]


def agrees(entry: Entry, decision: Decision) -> bool:
    """Whether `decision` equals the recorded one; only then does the replay reproduce what happened."""
    found = summary_of(decision)
    return all(found[part] == entry.decision[part] for part in ("verdict", "views"))


def _is_outage(hit: Hit) -> bool:
    return hit.rule == SESSION_RULE or (hit.rule == ENGINE_RULE and hit.code != _UNDEFINED)


class _RecordedSession(MemorySessions):
    """A session store that returns the entry's recorded session. Changes by a run are discarded."""

    def __init__(self, revision: str) -> None:
        super().__init__()
        self.revision = revision
        self.entry: Entry | None = None

    def read(self, context: Context) -> SessionFacts:  # noqa: ARG002 - it holds a single session
        if self.entry is None:
            return SessionFacts()
        facts = self.entry.session
        bound = self._bound(facts.asked)
        return replace(facts, asked=bound, approvals=tuple(one.shown() for one in bound if one.usable(facts.moment)))

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:  # noqa: ARG002 - as above
        return () if self.entry is None else self._bound(self.entry.session.standing)

    def _bound(self, approvals: Sequence[Approval]) -> tuple[Approval, ...]:
        # Approvals do not depend on the policy set: they count as if given under these policies.
        return tuple(replace(one, asked=replace(one.asked, revision=self.revision)) for one in approvals)

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - as above
        return frozenset() if self.entry is None else self.entry.seen & frozenset(marks)

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:  # noqa: ARG002 - it keeps nothing
        return True
