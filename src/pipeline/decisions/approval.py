"""What a person is asked, what became of it, and how a decision names it: the same for every store [C10].

Spec: docs/spec/approvals.md. Times are integers: microseconds since the epoch, UTC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipeline.decisions.authority import is_same_person
from pipeline.decisions.context import SessionKey, subject_key
from pipeline.decisions.errors import ApprovalError


class ApprovalStatus(StrEnum):
    """The state of an approval [C10]."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRef:
    """An approval that a decision rests on or waits for; without an id where none can be kept [SES-12]."""

    id: str | None
    path: str
    status: ApprovalStatus

    def to_json(self) -> dict[str, Any]:
        """The approval's line in a decision."""
        known = {} if self.id is None else {"id": self.id}
        return {**known, "path": self.path, "status": self.status.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What a run asks a person to approve [C10]: one effect by digest, its target, and the rules that ask."""

    id: str
    digest: str
    target: str
    rules: tuple[str, ...]
    revision: str
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What was asked, by whom in which session, and what came of it. Times as elsewhere; None is not yet."""

    asked: ApprovalRequest
    key: SessionKey
    status: ApprovalStatus = ApprovalStatus.PENDING
    approver: str | None = None
    requested_at: int
    decided_at: int | None = None
    used_at: int | None = None

    def decided(self, approver: str, *, approve: bool, now: int) -> Approval:
        """The approval after a person's word on it.

        Raises:
            ApprovalError: it was decided before (`approval.decided`), is too old (`approval.expired`), or the approver
                is the requester or nobody (`approval.own-request`).
        """
        if self.status is not ApprovalStatus.PENDING:
            raise ApprovalError("this was decided before", code="approval.decided", hint="ask again for a new one")
        if now >= self.asked.expires_at:
            raise ApprovalError("this approval is too old", code="approval.expired", hint="ask again for a new one")
        if not approver or is_same_person(self.key.subject, subject_key(approver)):
            hint = "another person has to decide"
            raise ApprovalError("nobody approves a request of their own", code="approval.own-request", hint=hint)
        status = ApprovalStatus.APPROVED if approve else ApprovalStatus.DENIED
        return dataclasses.replace(self, status=status, approver=approver, decided_at=now)

    def used(self, use: ApprovalUse, now: int) -> Approval:
        """The approval, spent on exactly what was approved.

        Raises:
            ApprovalError: it is not approved or was spent (`approval.unusable`), too old (`approval.expired`), or
                given for something else (`approval.other-effect`).
        """
        if self.status is not ApprovalStatus.APPROVED:
            raise ApprovalError("this approval cannot be used", code="approval.unusable", hint="ask again")
        if now >= self.asked.expires_at:
            raise ApprovalError("this approval is too old", code="approval.expired", hint="ask again for a new one")
        if (use.digest, use.target, use.revision) != (self.asked.digest, self.asked.target, self.asked.revision):
            hint = "changed arguments or policies need an approval of their own"
            raise ApprovalError("this was approved for something else", code="approval.other-effect", hint=hint)
        return dataclasses.replace(self, status=ApprovalStatus.USED, used_at=now)

    def usable(self, moment: int) -> bool:
        """Whether it waits or is approved, and is not too old at that moment: those are what policy sees."""
        return self.status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED) and moment < self.asked.expires_at

    def shown(self) -> dict[str, Any]:
        """What policy sees of it."""
        asked = self.asked
        return {
            "id": asked.id,
            "status": self.status.value,
            "digest": asked.digest,
            "target": asked.target,
            "rules": list(asked.rules),
            "revision": asked.revision,
        }

    def to_json(self) -> dict[str, Any]:
        """The whole approval as flat JSON, for storage."""
        own = {"subject": self.key.subject, "session": self.key.session, "status": self.status.value}
        times = {"requested_at": self.requested_at, "decided_at": self.decided_at, "used_at": self.used_at}
        asked = {name: getattr(self.asked, name) for name in ApprovalRequest.__dataclass_fields__}
        return {**asked, "rules": list(self.asked.rules), **own, "approver": self.approver, **times}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Approval:
        """The approval that `to_json` gave."""
        asked = {name: stored[name] for name in ApprovalRequest.__dataclass_fields__}
        return cls(
            asked=ApprovalRequest(**{**asked, "rules": tuple(stored["rules"])}),
            key=SessionKey(stored["subject"], stored["session"]),
            status=ApprovalStatus(stored["status"]),
            approver=stored["approver"],
            requested_at=stored["requested_at"],
            decided_at=stored["decided_at"],
            used_at=stored["used_at"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalUse:
    """An approval that a run spends, with what it is about to do: only exactly what was approved goes through."""

    id: str
    digest: str
    target: str
    revision: str


def already_requested() -> ApprovalError:
    """The error for an approval's id that is taken, in whatever session."""
    return ApprovalError("this was asked before", code="approval.asked-before", hint="mint a new id")
