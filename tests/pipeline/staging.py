"""Messages, slots and stages as the tests of stages need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cmf import (
    AgentExtension,
    DelegationExtension,
    DelegationHop,
    Extensions,
    HttpExtension,
    Message,
    SecurityExtension,
    SubjectExtension,
    TextPart,
)
from cmf.json.value import replace
from pipeline import Context, Pipeline, Stage, as_stage
from pipeline.decisions.decision import Action, StageRecord, Verdict
from pipeline.run.outcome import Outcome

HOP = DelegationHop(delegator="ann", delegate="bot")
EXTENSIONS = Extensions(
    agent=AgentExtension(session_id="s"),
    http=HttpExtension(headers={"Authorization": "Bearer x", "X-Trace": "t"}),
    security=SecurityExtension(labels={"pii"}, classification="internal"),
    delegation=DelegationExtension(chain=[HOP]),
    custom={"k": 1},
)
CONTEXT = Context(subject=SubjectExtension(id="ann", roles={"user"}))

Make = Callable[..., Pipeline]


def says(*texts: str, extensions: Extensions | None = EXTENSIONS) -> Message:
    return Message(role="user", content=[TextPart(text=text) for text in texts], extensions=extensions)


def calling(call: Callable[[Any, Context], Any], **declared: Any) -> Stage:
    return as_stage(declared.pop("name", "one"), **declared)(call)


def with_slot(message: Message, **slots: Any) -> Message:
    return replace(message, extensions=replace(message.extensions or Extensions(), **slots))


def with_security(message: Message, **fields: Any) -> Message:
    assert message.extensions is not None
    return with_slot(message, security=replace(message.extensions.security or SecurityExtension(), **fields))


def stopped(outcome: Outcome) -> StageRecord:
    assert (outcome.decision.verdict, outcome.decision.action, outcome.value) == (Verdict.DENY, Action.REFUSE, None)
    assert not outcome.decision.coverage.full
    return outcome.decision.stages[-1]


def text_of(outcome: Outcome) -> list[str]:
    assert outcome.message is not None
    return [part.text for part in outcome.message.content]
