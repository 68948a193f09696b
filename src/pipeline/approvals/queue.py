"""What people do with what they are asked: list, look, approve, deny [C10]. Spec: docs/spec/approvals.md.

approvals = Approvals(store)
for waiting in approvals.pending():
    approvals.approve(waiting.asked.id, approver)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable

from cmf.message.ids import Clock
from cmf.message.security import SubjectExtension
from pipeline.approvals.sealing import ABOUT, Sealer
from pipeline.audit.record import Record, act_of
from pipeline.decisions.approval import Approval, ApprovalScope, PersonsAnswer
from pipeline.decisions.authority import APPROVE, Authorise, as_recorded, holding, name_of
from pipeline.decisions.errors import ApprovalError
from pipeline.decisions.events import ApprovalDecided, Events
from pipeline.decisions.timestamps import MICROSECOND, micros
from pipeline.sessions.base import SessionStore, unknown_approval, wall_clock

USUAL: Final = {ApprovalScope.SESSION: timedelta(hours=12), ApprovalScope.VALUE: timedelta(days=30)}
LONGEST: Final = timedelta(days=90)  # that an approval may stand


@runtime_checkable
class OnRecord(Protocol):
    """A store of sessions that can put what people decide on record, in the same transaction."""

    @property
    def keeps_records(self) -> bool:
        """Whether it does."""
        ...

    def answer_on_record(self, approval_id: str, answer: PersonsAnswer, *, by: Mapping[str, Any]) -> Approval:
        """As `answer_approval`; `by` is the person, with an id, as the record names them."""
        ...


class Approvals:
    """The approvals of a store; safe to share between threads.

    Args:
        store: where the runs keep their sessions.
        authorise: who may decide; by default whoever has the permission `cmf:approve`.
        events: told of every decision, in this process.
        seal_key: the key of the pipelines that ask, to see what an approval is about.
        record: puts a decision on record before it counts (`Recorder.record`, say). A store that keeps records does so
            itself, whatever is given here.
        clock: the time of those records.

    Raises:
        ConfigError: a seal key that is not 32 bytes.
    """

    def __init__(
        self,
        store: SessionStore,
        authorise: Authorise | None = None,
        *,
        events: Events | None = None,
        seal_key: bytes | None = None,
        record: Callable[[Record], None] | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._store = store
        self._authorise = authorise or holding(APPROVE)
        self._events = events or Events()
        self._sealer = Sealer(seal_key)
        self._record = record
        self._clock = clock

    def pending(self) -> tuple[Approval, ...]:
        """What waits for a person and is not too old, the oldest first. StoreError where the store cannot be asked."""
        return self._store.pending_approvals()

    def get(self, approval_id: str) -> Approval:
        """The approval with this id, in whatever status; ApprovalError (`approval.unknown`) where there is none."""
        found = self._store.approval(approval_id)
        if found is None:
            raise unknown_approval()
        return found

    def shown(self, approval_id: str) -> dict[str, Any] | None:
        """What the approval is about, to be shown to the person who decides: the call with its arguments, say.

        None once it was used or denied, or is too old.

        Raises:
            ApprovalError: no such approval, or it was sealed under another key (`approval.unreadable`).
        """
        approval = self.get(approval_id)
        sealed = self._store.sealed(approval_id)
        if sealed is None:
            return None
        about: dict[str, Any] = self._sealer.open(approval_id, approval.key, sealed)[ABOUT]
        return about

    def approve(
        self,
        approval_id: str,
        approver: SubjectExtension,
        *,
        scope: ApprovalScope = ApprovalScope.ONCE,
        expires_in: timedelta | None = None,
    ) -> Approval:
        """The approval, now approved: good for one run of exactly what was asked, until it expires.

        With a scope it also stands for what is asked later of the same tool and values [APR-11], for `expires_in` (by
        default 12 hours in its session, 30 days for a value). The approver was authenticated by the host, and is never
        the one who asked [SES-9].

        Raises:
            ApprovalError: `approval.not-authorised`, `approval.unknown`, `approval.own-request`, `approval.decided`,
                `approval.expired`, `approval.scope`, `approval.too-long`. StoreError: the store failed, or cannot put
                it on record: nothing is decided then.
        """
        if scope is ApprovalScope.ONCE:
            return self._answer(approval_id, approver, PersonsAnswer.of(approve=True))
        lasts = USUAL[scope] if expires_in is None else expires_in
        if not timedelta(0) < lasts <= LONGEST:
            hint = f"ask for more than nothing and at most {LONGEST.days} days"
            raise ApprovalError("not a time for which it may stand", code="approval.too-long", hint=hint)
        return self._answer(
            approval_id, approver, PersonsAnswer(action="approve", scope=scope, lasts=lasts // MICROSECOND)
        )

    def deny(self, approval_id: str, approver: SubjectExtension) -> Approval:
        """The approval, now denied: the same is refused until it expires. Raises as `approve` does."""
        return self._answer(approval_id, approver, PersonsAnswer.of(approve=False))

    def standing(self) -> tuple[Approval, ...]:
        """What was approved for more than once and still stands, the oldest first."""
        return self._store.standing_approvals()

    def revoke(self, approval_id: str, approver: SubjectExtension) -> Approval:
        """The approval, which stands for nothing from now on.

        Raises as `approve` does, and ApprovalError (`approval.not-standing`) where it stands for nothing already.
        """
        return self._answer(approval_id, approver, PersonsAnswer(action="revoke"))

    def _answer(self, approval_id: str, approver: SubjectExtension, answer: PersonsAnswer) -> Approval:
        if not self._authorise(approver):
            hint = "it takes somebody who has the permission for it"
            raise ApprovalError("this subject may not approve", code="approval.not-authorised", hint=hint)
        by = name_of(approver)
        if isinstance(self._store, OnRecord) and self._store.keeps_records:
            decided = self._store.answer_on_record(approval_id, answer, by=as_recorded(approver))
        else:
            if self._record is not None:
                now = self._clock()
                made = self.get(approval_id).decided(by, answer, micros(now))
                # On record first: what is done was never undocumented. Only a race loses what is on record by then.
                details = {"by": as_recorded(approver), **made.recorded()}
                self._record(act_of("review", "review", answer.action, details, now, subject=by))
            decided = self._store.answer_approval(approval_id, answer, by=by)
        self._events.publish(ApprovalDecided(id=approval_id, approver=by, approved=answer.action == "approve"))
        return decided
