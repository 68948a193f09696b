"""The one way in: stages, then judgement, then an outcome. Spec: docs/spec/pipeline.md, docs/spec/stages.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from cmf.content import ToolCallPart
from cmf.digests import content_digest
from cmf.uris import tool_uri
from pipeline.assembly import Config, EngineName, Policies, build_runner
from pipeline.context import Context
from pipeline.draft import messages_of
from pipeline.errors import StoreError
from pipeline.events import Events
from pipeline.policy_input import SessionFacts
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
    ) -> None:
        self.events = Events()
        self._runner = build_runner(policies, engine, config or Config(), stages=stages, events=self.events)
        self._sessions = sessions or MemorySessions()

    def run(self, value: Traffic, context: Context | None = None) -> Outcome:
        """The outcome for a message, request or response; a refusal is a value here, never an exception."""
        known = context or Context()
        try:
            for _ in range(MAX_CONFLICTS):
                facts = self._sessions.read(known)
                outcome = self._runner.run(value, known, facts)
                if self._commit(known, facts, outcome):
                    return outcome
        except StoreError as error:
            return self._runner.closed(value, error.code)
        return self._runner.closed(value, "session.conflict")

    async def arun(self, value: Traffic, context: Context | None = None) -> Outcome:
        """`run`, awaiting stages and engine; concurrent stages run together."""
        known = context or Context()
        try:
            for _ in range(MAX_CONFLICTS):
                facts = self._sessions.read(known)
                outcome = await self._runner.arun(value, known, facts)
                if self._commit(known, facts, outcome):
                    return outcome
        except StoreError as error:
            return self._runner.closed(value, error.code)
        return self._runner.closed(value, "session.conflict")

    def _commit(self, context: Context, facts: SessionFacts, outcome: Outcome) -> bool:
        """Whether what the outcome means for the session is kept; False where another run was faster [C5]."""
        if outcome.value is None or context.session is None:
            return True
        source = outcome.decision.id
        taints = frozenset(Taint(label, source) for label in outcome.labels - facts.labels)
        counts = tuple(_calls(outcome.value, context.call_id))
        if not taints and not counts:
            return True
        return self._sessions.commit(context, facts.version, Changes(taints=taints, counts=counts))

    def close(self) -> None:
        """Let go of the engine's connections, if it has any."""
        self._runner.close()

    async def aclose(self) -> None:
        """The same, and end what fire-and-forget stages still do."""
        await self._runner.aclose()


def _calls(value: Traffic, call_id: str | None) -> Iterator[Count]:
    """One count per tool call, marked by what was said and where, so that resent history counts nothing twice [C4]."""
    own = f"{call_id}:" if call_id is not None else ""
    for at, message in enumerate(messages_of(value)):
        calls = [(index, part) for index, part in enumerate(message.content) if isinstance(part, ToolCallPart)]
        said = content_digest(message) if calls else ""
        for index, part in calls:
            mark = f"{own}{said}:{at}:{index}"
            yield Count(name=f"calls:{tool_uri(part.name, part.namespace)}", amount=Decimal(1), mark=mark)
