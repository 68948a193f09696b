"""What came of a run: the decision, and what may be sent on. Spec: docs/spec/pipeline.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cmf.message import Message
from cmf.request import Request, Response
from pipeline.approvals.needs import ApprovalAnswer
from pipeline.certificate import Bound, Certificate
from pipeline.decision import OUTAGE_RULES, Action, Decision
from pipeline.errors import ApprovalRequired, Denied, PolicyUnavailable
from pipeline.policy_input import SessionFacts
from pipeline.retention import Keep
from pipeline.stage import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run: the decision, and the value that may be sent on.

    Attributes:
        decision: the verdict, the action, and a line for each view.
        value: what may be sent on, with all edits carried out; None where nothing may.
        certificate: lets `emit` send `value` once.
        labels: the labels in force in the session from now on; none where nothing may be sent.
        events: the labels that data and rules brought, each as `(label, source event)`.
        answer: where it stands with the approvals that rules and stages want; None where they want none.
        session: the id of the run's session; None for a run that stands alone.
        session_version: the version of the session that it was judged under [C5].
        timings: nanoseconds by phase.
    """

    decision: Decision
    value: Traffic | None
    certificate: Certificate | None = None
    labels: frozenset[str] = frozenset()
    events: frozenset[tuple[str, str]] = frozenset()
    answer: ApprovalAnswer | None = None
    session: str | None = None
    session_version: int | None = None
    timings: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def request(self) -> Request | None:
        """The value, if it is a request."""
        return self.value if isinstance(self.value, Request) else None

    @property
    def response(self) -> Response | None:
        """The value, if it is a response."""
        return self.value if isinstance(self.value, Response) else None

    @property
    def message(self) -> Message | None:
        """The value, if it is a message."""
        return self.value if isinstance(self.value, Message) else None


class Basis(NamedTuple):
    """What a run was judged by besides value and context: session, marks on record, how long data may be kept."""

    session: SessionFacts
    seen: frozenset[str]
    keep: Keep


class Ran(NamedTuple):
    """An outcome, with what the pipeline needs to finish the run.

    Attributes:
        staged: what the stages made, for those that run afterwards; None if no stage ran.
        basis: what the run was judged by; None if it was not judged.
        ends: an exception that ends the process, to be raised once the outcome is on record.
        overtaken: decisions of the same run that are on record, and of which nothing came [REC-23].
    """

    outcome: Outcome
    staged: Traffic | None = None
    basis: Basis | None = None
    ends: BaseException | None = None
    overtaken: tuple[str, ...] = ()


def bound(outcome: Outcome) -> Bound:
    """What a certificate of this outcome is bound to, besides its value [C6]."""
    decision = outcome.decision
    return Bound(
        run=decision.id,
        target=next((view.uri for view in decision.views if view.uri is not None), ""),
        revision=decision.revision,
        mode=decision.mode._value_,
        session=outcome.session or "",
        session_version=-1 if outcome.session_version is None else outcome.session_version,
    )


def raised(outcome: Outcome) -> Outcome:
    """The outcome itself, if it lets something through; else Denied, ApprovalRequired or PolicyUnavailable."""
    decision = outcome.decision
    if decision.action in (Action.FORWARD, Action.FORWARD_MODIFIED):
        return outcome
    if decision.action is Action.SUSPEND:
        raise ApprovalRequired(decision, decision.approval_ids)
    raise PolicyUnavailable(decision) if is_outage(decision) else Denied(decision)


def is_outage(decision: Decision) -> bool:
    """Whether the decision refuses only because engine or session store failed, so that policy said nothing."""
    return bool(decision.reasons) and all(hit.rule in OUTAGE_RULES for hit in decision.reasons)


__all__ = ["Basis", "Outcome", "Ran", "bound", "is_outage", "raised"]
