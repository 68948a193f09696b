"""The one way in: stages, then judgement, then an outcome. Spec: docs/spec/pipeline.md, docs/spec/stages.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from time import perf_counter_ns
from typing import Final

from cmf.content import ToolCallPart
from cmf.digests import content_digest
from cmf.message import Message
from cmf.uris import tool_uri
from pipeline.assembly import Config, EngineName, Policies, build_runner
from pipeline.context import Context
from pipeline.errors import ConfigError, StoreError
from pipeline.events import Events
from pipeline.history import Histories, History
from pipeline.policy_input import SessionFacts
from pipeline.profiles import Profiles
from pipeline.recording import UNRECORDED, Recording, Records
from pipeline.references import judged
from pipeline.retention import Holder
from pipeline.runner import Outcome
from pipeline.session_state import Changes, Count, Taint
from pipeline.sessions import MemorySessions, SessionStore
from pipeline.stage import Stage, Traffic

MAX_CONFLICTS: Final = 64  # how often a run is judged again because its session moved on; then it is refused


class Pipeline:
    """A list of stages before a policy set; safe to share between threads and tasks.

    Judgement is not a stage that can be left out: whatever the stages made is judged, and only then let out.

    Args:
        stages: in the order in which they run.
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
        sessions: where sessions are kept; by default in this process.
        engine: `embedded` (in this process) or `opa` (a server: `config.opa_url`).
        config: mode, deadline and the rest.
        profiles: what is known of tools and resources: how far their results are trusted, and what arguments are for.
        recorder: where every run is put on record before its outcome is given out; by default nowhere.

    Raises:
        PolicyError: the policies cannot be used: file, line, column and why. ConfigError: two stages of one name, or a
            stage that can change content and whose failure is to be allowed.
    """

    def __init__(
        self,
        stages: Sequence[Stage] = (),
        *,
        policies: Policies = None,
        engine: EngineName = "embedded",
        config: Config | None = None,
        sessions: SessionStore | None = None,
        profiles: Profiles | None = None,
        recorder: Records | None = None,
    ) -> None:
        settings = config or Config()
        self.events = Events()
        self._runner = build_runner(policies, engine, settings, stages=stages, events=self.events)
        self._sessions = sessions or MemorySessions()
        release = settings.on_record_failure == "release"
        self._recording = None if recorder is None else Recording(recorder, self.events, release=release)
        self._histories = Histories(profiles or Profiles(), self._sessions, trusted=settings.history == "trusted")

    def run(self, value: Traffic, context: Context | None = None) -> Outcome:
        """The outcome for a message, request or response; a refusal is a value here, never an exception."""
        known, begin = context or Context(), perf_counter_ns()
        outcome = self._judged(value, known)
        if self._recording is None or self._recording.keep(value, known, outcome, perf_counter_ns() - begin):
            return outcome
        return self._runner.closed(value, UNRECORDED)

    def _judged(self, value: Traffic, known: Context) -> Outcome:
        try:
            for _ in range(MAX_CONFLICTS):
                facts = self._sessions.read(known)
                history = self._histories.open(known, facts.moment)
                outcome = self._runner.run(value, known, facts, history)
                if self._commit(value, known, facts, outcome, history):
                    return outcome
        except (StoreError, ConfigError) as error:
            return self._runner.closed(value, error.code)
        return self._runner.closed(value, "session.conflict")

    async def arun(self, value: Traffic, context: Context | None = None) -> Outcome:
        """`run`, awaiting stages and engine; concurrent stages run together."""
        known, begin = context or Context(), perf_counter_ns()
        outcome = await self._ajudged(value, known)
        if self._recording is None or await self._recording.akeep(value, known, outcome, perf_counter_ns() - begin):
            return outcome
        return self._runner.closed(value, UNRECORDED)

    async def _ajudged(self, value: Traffic, known: Context) -> Outcome:
        try:
            for _ in range(MAX_CONFLICTS):
                facts = self._sessions.read(known)
                history = self._histories.open(known, facts.moment)
                outcome = await self._runner.arun(value, known, facts, history)
                if self._commit(value, known, facts, outcome, history):
                    return outcome
        except (StoreError, ConfigError) as error:
            return self._runner.closed(value, error.code)
        return self._runner.closed(value, "session.conflict")

    def _commit(
        self, value: Traffic, context: Context, facts: SessionFacts, outcome: Outcome, history: History
    ) -> bool:
        """Whether what the outcome means for the session is kept; False where another run was faster [C5]."""
        released = outcome.value
        if released is not None and context.session is not None:
            changes = self._changes(value, released, context, facts, outcome, history)
            # What was seen only grows, whatever happened meanwhile; the rest holds for the version that was judged.
            version = facts.version if changes.taints or changes.counts else None
            if changes.touch_session and not self._sessions.commit(context, version, changes):
                history.close(None)
                return False
        history.close(released)
        return True

    def _changes(
        self,
        value: Traffic,
        released: Traffic,
        context: Context,
        facts: SessionFacts,
        outcome: Outcome,
        history: History,
    ) -> Changes:
        source = outcome.decision.id
        data = {label for label, _ in outcome.events}  # these have events of their own
        taints = frozenset(Taint(label, source) for label in outcome.labels - facts.labels - data)
        taints |= {Taint(*one) for one in outcome.events if one[1] not in facts.label_sources.get(one[0], ())}
        counts = tuple(_calls(history.new_messages(released), context.call_id))
        seen = history.marks(released) | judged(value, released)
        return Changes(taints=taints, counts=counts, seen=seen)

    @property
    def conversations(self) -> Holder:
        """What this process holds of conversations, for `pipeline.retention.Sweep`."""
        return self._histories

    def close(self) -> None:
        """Let go of the engine's connections, if it has any."""
        self._runner.close()

    async def aclose(self) -> None:
        """The same, and end what fire-and-forget stages still do."""
        await self._runner.aclose()


def _calls(messages: Iterable[tuple[int | None, Message]], call_id: str | None) -> Iterator[Count]:
    """One count per tool call, marked by what was said and where, so that resent history counts nothing twice [C4]."""
    own = f"{call_id}:" if call_id is not None else ""
    for at, message in messages:
        calls = [(index, part) for index, part in enumerate(message.content) if isinstance(part, ToolCallPart)]
        said = content_digest(message) if calls else ""
        for index, part in calls:
            mark = None if at is None else f"{own}{said}:{at}:{index}"
            yield Count(name=f"calls:{tool_uri(part.name, part.namespace)}", amount=Decimal(1), mark=mark)
