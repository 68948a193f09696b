"""The outcome of a run: the decision, and the value that may be sent. Spec: docs/spec/pipeline.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline.approvals.needs import ApprovalAnswer
from pipeline.decisions.certificate import Bound, Certificate
from pipeline.decisions.decision import INPUT_RULE, OUTAGE_RULES, TOO_MUCH, Action, Decision
from pipeline.decisions.errors import ApprovalRequired, Denied, PolicyUnavailable, Unjudgeable
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import Keep
from pipeline.decisions.stage import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run: the decision, and the value that may be sent.

    Attributes:
        decision: the verdict, the action, and a line for each view.
        value: the value that may be sent, with all edits applied; None if nothing may be sent.
        certificate: lets `emit` send `value` once.
        labels: the labels of the session from now on; empty if nothing may be sent.
        events: the labels that data and rules added, each as `(label, source event)`.
        answer: the state of the approvals that rules and stages require; None if they require none.
        session: the id of the run's session; None for a run without one.
        session_version: the version of the session that the run read [C5].
        timings: nanoseconds per phase.
    """

    decision: Decision
    value: Traffic | None = dataclasses.field(repr=False)  # content, which has no place in a log
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
    """What a run was judged by besides value and context: the session, references on record, and retention."""

    session: SessionFacts
    seen: frozenset[str]
    keep: Keep


class Ran(NamedTuple):
    """An outcome, with what the pipeline needs to finish the run.

    Attributes:
        staged: the value after all stages, for stages that run afterwards; None if no stage ran.
        basis: what the run was judged by; None if it was not judged.
        ends: an exception that ends the process, to be raised after the outcome was recorded.
        overtaken: recorded decisions of the same run that had no consequences [REC-23].
    """

    outcome: Outcome
    staged: Traffic | None = None
    basis: Basis | None = None
    ends: BaseException | None = None
    overtaken: tuple[str, ...] = ()


def bound(outcome: Outcome) -> Bound:
    """The facts that a certificate of this outcome is bound to, besides its value [C6]."""
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
    """The outcome itself, if its value may be sent.

    Raises:
        Denied, ApprovalRequired, PolicyUnavailable: otherwise; of those Unjudgeable, where the input is too large.
    """
    decision = outcome.decision
    if decision.action in (Action.FORWARD, Action.FORWARD_MODIFIED):
        return outcome
    if decision.action is Action.SUSPEND:
        raise ApprovalRequired(decision, decision.approval_ids)
    if is_outage(decision):
        raise PolicyUnavailable(decision)
    raise Unjudgeable(decision) if _is_too_much(decision) else Denied(decision)


def is_outage(decision: Decision) -> bool:
    """Whether the decision refuses only because the engine or the session store failed, not because of a rule.

    A failure that comes of the size of the input alone is none [PIPE-21].
    """
    failed = all(hit.rule in OUTAGE_RULES for hit in decision.reasons)
    return bool(decision.reasons) and failed and not _is_too_much(decision)


def _is_too_much(decision: Decision) -> bool:
    """Whether the input was too large to be judged, and no rule refused it."""
    reasons = decision.reasons
    failed = all(hit.rule in (INPUT_RULE, *OUTAGE_RULES) for hit in reasons)
    return failed and any(hit.rule == INPUT_RULE or hit.code in TOO_MUCH for hit in reasons)
