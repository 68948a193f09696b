"""What the outcome of a run changes in its session, and the events that tell of it. Spec: docs/spec/sessions.md."""

from __future__ import annotations

from dataclasses import replace

from pipeline.approvals.needs import ApprovalAnswer
from pipeline.approvals.sealed_replies import SealedReplies
from pipeline.conversation.history import History
from pipeline.conversation.references import judged
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Effect
from pipeline.decisions.events import ApprovalAsked, ApprovalUsed, Events, LabelAdded
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import FOREVER, Keep
from pipeline.decisions.stage import Traffic
from pipeline.provenance.registry import event_entity
from pipeline.run.outcome import Outcome
from pipeline.sessions.events import calls_in, events_of
from pipeline.sessions.state import Changes, Taint


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
