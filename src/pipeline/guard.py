"""The library's front door: judge a message, a request or a response. Spec: docs/spec/guard.md.

guard = Guard()
outcome = guard.check(request, subject={"id": "ann", "roles": ["agent"]})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cmf.security import SubjectExtension
from pipeline.assembly import Config, EngineName, Policies
from pipeline.context import Context
from pipeline.decision import OUTAGE_RULES, Action, Decision
from pipeline.errors import ApprovalRequired, Denied, PolicyUnavailable
from pipeline.events import Events
from pipeline.pipeline import Pipeline
from pipeline.runner import Outcome
from pipeline.sessions import SessionStore
from pipeline.stage import Stage, Traffic

Subject = SubjectExtension | Mapping[str, Any]


class Guard:
    """Judges traffic under a policy set; safe to share between threads and tasks.

    Args:
        policies: a directory, several, a loaded set, or None for the shipped policies; see `load_policies`.
        engine: `embedded` (in this process) or `opa` (a server: `config.opa_url`).
        config: mode, deadline and the rest.
        stages: what runs before policy is asked; see `pipeline.stage`.
        sessions: where sessions are kept; by default in this process.

    Raises:
        PolicyError: the policies cannot be used: file, line, column and why.
    """

    def __init__(
        self,
        policies: Policies = None,
        *,
        engine: EngineName = "embedded",
        config: Config | None = None,
        stages: Sequence[Stage] = (),
        sessions: SessionStore | None = None,
    ) -> None:
        self._pipeline = Pipeline(stages, policies=policies, engine=engine, config=config, sessions=sessions)

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def events(self) -> Events:
        """Where to subscribe to what happens: `guard.events.subscribe(print)`."""
        return self._pipeline.events

    async def __aenter__(self) -> Guard:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pipeline.aclose()

    def close(self) -> None:
        """Let go of the engine's connections, if it has any; `with Guard(...) as guard:` does so at its end."""
        self._pipeline.close()

    def check(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """The outcome, with what may be sent on.

        Args:
            value: a message, request or response.
            subject: who asks, authenticated by the host; None is anonymous.
            session: the session's id, so that labels hold from call to call.
            context: further facts of the run; `subject` and `session` given here win over those in it.

        Raises:
            Denied: policy refused. ApprovalRequired: a person must approve first.
            PolicyUnavailable: policy could not be asked.
        """
        return _raised(self.run(value, subject=subject, session=session, context=context))

    async def acheck(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`check`, awaiting the engine."""
        return _raised(await self.arun(value, subject=subject, session=session, context=context))

    def decide(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Decision:
        """The decision; a refusal is a value here, never an exception."""
        return self.run(value, subject=subject, session=session, context=context).decision

    async def adecide(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Decision:
        """`decide`, awaiting the engine."""
        return (await self.arun(value, subject=subject, session=session, context=context)).decision

    def run(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """The outcome, whatever it is: for hosts that turn refusals into answers of their own."""
        return self._pipeline.run(value, _context(context, subject, session))

    async def arun(
        self,
        value: Traffic,
        *,
        subject: Subject | None = None,
        session: str | None = None,
        context: Context | None = None,
    ) -> Outcome:
        """`run`, awaiting the engine."""
        return await self._pipeline.arun(value, _context(context, subject, session))


def _context(context: Context | None, subject: Subject | None, session: str | None) -> Context:
    known = context or Context()
    given: dict[str, Any] = {}
    if subject is not None:
        given["subject"] = SubjectExtension.model_validate(dict(subject) if isinstance(subject, Mapping) else subject)
    if session is not None:
        given["session"] = session
    return known.model_copy(update=given)


def _raised(outcome: Outcome) -> Outcome:
    decision = outcome.decision
    if decision.action in (Action.FORWARD, Action.FORWARD_MODIFIED):
        return outcome
    if decision.action is Action.SUSPEND:
        raise ApprovalRequired(decision)
    raise PolicyUnavailable(decision) if is_outage(decision) else Denied(decision)


def is_outage(decision: Decision) -> bool:
    """Whether nothing but failures of engine or session store made it a refusal: then policy said nothing at all."""
    return bool(decision.reasons) and all(hit.rule in OUTAGE_RULES for hit in decision.reasons)


__all__ = ["Config", "Guard", "is_outage"]
