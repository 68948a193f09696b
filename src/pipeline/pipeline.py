"""The one way in: stages, then judgement, then an outcome. Spec: docs/spec/pipeline.md, docs/spec/stages.md."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.assembly import Config, EngineName, Policies, build_runner
from pipeline.context import Context
from pipeline.events import Events
from pipeline.runner import Outcome
from pipeline.sessions import MemorySessions
from pipeline.stage import Stage, Traffic


class Pipeline:
    """A list of stages before a policy set; safe to share between threads and tasks.

    Judgement is not a stage that can be left out: whatever the stages made is judged, and only then let out.

    Args:
        stages: in the order in which they run.
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
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
    ) -> None:
        self.events = Events()
        self._runner = build_runner(policies, engine, config or Config(), stages=stages, events=self.events)
        self._sessions = MemorySessions()

    def run(self, value: Traffic, context: Context | None = None) -> Outcome:
        """The outcome for a message, request or response; a refusal is a value here, never an exception."""
        known = context or Context()
        outcome = self._runner.run(value, known, self._sessions.read(known))
        self._sessions.add_labels(known, outcome.labels)
        return outcome

    async def arun(self, value: Traffic, context: Context | None = None) -> Outcome:
        """`run`, awaiting stages and engine; concurrent stages run together."""
        known = context or Context()
        outcome = await self._runner.arun(value, known, self._sessions.read(known))
        self._sessions.add_labels(known, outcome.labels)
        return outcome

    def close(self) -> None:
        """Let go of the engine's connections, if it has any."""
        self._runner.close()

    async def aclose(self) -> None:
        """The same, and end what fire-and-forget stages still do."""
        await self._runner.aclose()
