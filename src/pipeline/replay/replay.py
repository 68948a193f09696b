"""Judges what is on file again, by the facts that stand there: the same input under other policies. Spec: replay.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from pipeline.assembly import Config, Policies, build_engine, load_policies
from pipeline.claims import HistoryTrust
from pipeline.context import Context
from pipeline.decision import ENGINE_RULE, SESSION_RULE, Decision, Hit
from pipeline.engines.base import Engine
from pipeline.errors import ReplayError
from pipeline.moments import LAST
from pipeline.outcome import Outcome
from pipeline.pipeline import Pipeline
from pipeline.policy_input import SessionFacts
from pipeline.profiles import Profiles
from pipeline.replay.file import Entry, summary_of
from pipeline.session_state import Changes
from pipeline.sessions import MemorySessions

TIMEOUT_SECONDS: Final = 10.0  # nobody waits for a replay, and one that is cut off says nothing
_UNDEFINED: Final = "engine.undefined"  # an answer of the policies, unlike an engine that fails


class Replay:
    """Judges entries under one policy set, always enforcing. Not to be shared between threads.

    Args:
        policies: as for `Guard`.
        profiles: what is known of tools and resources: no file of entries holds that.
        timeout_seconds: for each question to the engine.
        engine: one with these policies in it; by default that of a guard.

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
        self._session = _OnFile(self.revision)
        self._pipelines: dict[HistoryTrust, Pipeline] = {}

    @property
    def revision(self) -> str:
        """The policies and data that judge."""
        return self.policies.revision

    def judged(self, entry: Entry) -> Decision:
        """The decision about `entry`. Raises: as `outcome`."""
        return self.outcome(entry).decision

    def outcome(self, entry: Entry) -> Outcome:
        """The decision about `entry`, and what would go on.

        Raises:
            ReplayError: nothing can be said of it: stages had a part in what was judged (`replay.stages`), it was not
                judged in full (`replay.incomplete`), or these policies could not be asked about it (`replay.failed`).
        """
        if entry.decision.get("stages"):
            raise ReplayError(
                "stages had a part in what was judged", code="replay.stages", hint="only policy is judged again"
            )
        if entry.decision.get("complete") is not True:
            raise ReplayError("it was not judged in full", code="replay.incomplete", hint="leave this entry out")
        self._session.entry = entry
        pipeline = self._pipeline(entry.history)
        outcome = pipeline.run(entry.traffic, entry.context)
        # What this process remembers of a conversation is no fact of the next entry.
        remembered = pipeline.conversations
        remembered.erase(remembered.due(LAST, 2))
        if any(map(_is_outage, outcome.decision.hits)):
            raise ReplayError(
                "policy could not be asked", code="replay.failed", hint="look whether the engine answers, and try again"
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
    """Whether `decision` says what is on file: only then is a replay of the entry one of what happened."""
    found = summary_of(decision)
    return all(found[part] == entry.decision[part] for part in ("verdict", "views"))


def _is_outage(hit: Hit) -> bool:
    return hit.rule == SESSION_RULE or (hit.rule == ENGINE_RULE and hit.code != _UNDEFINED)


class _OnFile(MemorySessions):
    """The session of an entry, where a store is asked for it. What a run changes in it, is gone."""

    def __init__(self, revision: str) -> None:
        super().__init__()
        self.revision = revision
        self.entry: Entry | None = None

    def read(self, context: Context) -> SessionFacts:  # noqa: ARG002 - there is one session at a time
        if self.entry is None:
            return SessionFacts()
        # What a person approved is no matter of the set: it counts as if given under these policies.
        facts = self.entry.session
        bound = tuple(replace(one, asked=replace(one.asked, revision=self.revision)) for one in facts.asked)
        return replace(facts, asked=bound, approvals=tuple(one.shown() for one in bound if one.usable(facts.moment)))

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset() if self.entry is None else self.entry.seen & frozenset(marks)

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:  # noqa: ARG002
        return True


__all__ = ["Replay", "agrees"]
