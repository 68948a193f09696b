"""What the outcome of a run changes in its session, and the events that tell of it. Spec: docs/spec/sessions.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from cmf.message.digests import content_digest
from cmf.message.message import Message, ToolCallPart
from cmf.views.uris import tool_uri
from pipeline.approvals.needs import ApprovalAnswer
from pipeline.approvals.sealing import SealedReplies
from pipeline.conversation.history import History
from pipeline.conversation.references import judged
from pipeline.decisions.approval import ApprovalUse
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Effect
from pipeline.decisions.events import ApprovalAsked, ApprovalUsed, Events, LabelAdded
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import FOREVER, Keep
from pipeline.decisions.stage import Traffic
from pipeline.provenance.registry import event_entity
from pipeline.run.outcome import Outcome
from pipeline.sessions.state import Changes, Count, Taint


def changes_of(
    value: Traffic, context: Context, facts: SessionFacts, outcome: Outcome, history: History, sealed: SealedReplies
) -> Changes:
    """What to commit to the session: labels, counts, marks, used approvals; new approvals if nothing may go out.

    `value` is what was judged, as it came in; `facts` are the session as it was then.
    """
    answer = outcome.answer or ApprovalAnswer()
    released = outcome.value
    if released is None:
        return _new_approvals(value, context, answer, history.keep, sealed)
    source = outcome.decision.id
    data = {label for label, _ in outcome.events}  # these have events of their own
    taints = frozenset(Taint(label, source) for label in outcome.labels - facts.labels - data)
    taints |= {Taint(*one) for one in outcome.events if one[1] not in facts.label_sources.get(one[0], ())}
    counts = tuple(calls_in(history.new_messages(released), context.call_id))
    seen = frozenset() if context.claimed else history.marks(released) | judged(value, released)
    events = events_of(taints, (*answer.used, *answer.rests))
    return Changes(taints=taints, counts=counts, events=events, seen=seen, used=answer.used, rests=answer.rests)


def _new_approvals(
    value: Traffic, context: Context, answer: ApprovalAnswer, keep: Keep, sealed: SealedReplies
) -> Changes:
    """The approvals that are asked for, and, for as long as retention allows, what each is about [RET-4]."""
    asked = answer.asked
    if keep != FOREVER:  # nothing stands for longer than its data may be kept
        asked = tuple(replace(one, scopes=(), repeat="") for one in asked)
    if not keep.after_run:
        return Changes(asked=asked)
    asked = tuple(replace(one, expires_at=min(one.expires_at, keep.until)) for one in asked)
    return Changes(asked=asked, sealed=sealed.seal(value, context, answer))


def publish_approvals(events: Events, context: Context, changes: Changes) -> None:
    """Tell subscribers which approvals were asked for, and which were used."""
    for asked in changes.asked:
        events.publish(ApprovalAsked(id=asked.id, session=context.session, target=asked.target, rules=asked.rules))
    for use in (*changes.used, *changes.rests):
        events.publish(ApprovalUsed(id=use.id, session=context.session, target=use.target))


def publish_labels(events: Events, facts: SessionFacts, outcome: Outcome) -> None:
    """Tell subscribers which labels a rule or data added. Labels that a stage adds are reported when it does."""
    if outcome.value is None:
        return
    for view in outcome.decision.hit_views:
        for hit in view.hits:
            if hit.effect is Effect.LABEL:
                events.publish(LabelAdded(label=str(hit.fields["label"]), path=view.path, by=hit.rule))
    for label, source in sorted(outcome.events):
        entity = event_entity(source)
        if entity is not None and source not in facts.label_sources.get(label, ()):
            events.publish(LabelAdded(label=label, path="", by=entity))


MAX_NAME: Final = 256  # characters of a name in a session's event: well within what an event may hold


def calls_in(messages: Iterable[tuple[int | None, Message]], call_id: str | None) -> Iterator[Count]:
    """One count per tool call, marked by its content and place, so that resent history counts nothing twice [C4]."""
    own = f"{call_id}:" if call_id is not None else ""
    for at, message in messages:
        calls = [(index, part) for index, part in enumerate(message.content) if isinstance(part, ToolCallPart)]
        digest = content_digest(message) if calls else ""
        for index, part in calls:
            mark = None if at is None else f"{own}{digest}:{at}:{index}"
            uri = tool_uri(part.name, part.namespace)
            event = {"type": "tool_call", "uri": _named(uri)}
            yield Count(name=f"calls:{uri}", amount=Decimal(1), mark=mark, event=event)


def events_of(taints: Iterable[Taint], used: Iterable[ApprovalUse]) -> tuple[dict[str, Any], ...]:
    """What came to pass in the session besides calls: labels, and approvals that were used [SES-21]."""
    labels = sorted({taint.label for taint in taints})
    approved = ({"type": "approval_used", "target": _named(use.target)} for use in used)
    return (*({"type": "label", "label": _named(label)} for label in labels), *approved)


def _named(name: str) -> str:
    """The name as an event has it: the end of one that is too long for any event is cut off, and that shows."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"
