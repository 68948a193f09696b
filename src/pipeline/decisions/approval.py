"""What a person is asked, what became of it, and how a decision names it: the same for every store [C10].

Spec: docs/spec/approvals.md. Times are integers: microseconds since the epoch, UTC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from pipeline.decisions.authority import is_same_person
from pipeline.decisions.context import SessionKey, subject_key
from pipeline.decisions.errors import ApprovalError


class ApprovalScope(StrEnum):
    """How often an approval can be used: once; or again for the same, in its session, or for its owner in any one."""

    ONCE = "once"
    SESSION = "session"
    VALUE = "value"


SCOPES: Final = frozenset({ApprovalScope.SESSION, ApprovalScope.VALUE})
"""Those in which an approval stands for what comes later."""


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
    scope: ApprovalScope = ApprovalScope.ONCE

    def to_json(self) -> dict[str, Any]:
        """The approval's line in a decision; with its scope, if it stands for what was asked earlier."""
        known = {} if self.id is None else {"id": self.id}
        scope = {} if self.scope is ApprovalScope.ONCE else {"scope": self.scope.value}
        return {**known, "path": self.path, "status": self.status.value, **scope}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What a run asks a person to approve [C10]: one effect by digest, its target, and the rules that ask.

    Attributes:
        scopes: those in which it can be approved, besides once.
        repeat: the digest of what an approval with a scope stands for [APR-11].
        owner: for whom an approval of a value stands, as `owner_of` names them.
        arguments: the names of the call's arguments, as far as nobody can say anything in them.
        reasons: why it is asked: the rules' own sentences.
    """

    id: str
    digest: str
    target: str
    rules: tuple[str, ...]
    revision: str
    expires_at: int
    scopes: tuple[str, ...] = ()
    repeat: str = ""
    owner: str | None = None
    arguments: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


LISTS: Final = ("rules", "scopes", "arguments", "reasons")
"""The fields of a request that are lists of texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonsAnswer:
    """What a person says: approve, in a scope that `lasts` so many microseconds; deny; or revoke what stands."""

    action: Literal["approve", "deny", "revoke"]
    scope: ApprovalScope = ApprovalScope.ONCE
    lasts: int = 0

    @classmethod
    def of(cls, *, approve: bool) -> PersonsAnswer:
        """Yes, once; or no."""
        return cls(action="approve" if approve else "deny")


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
    scope: ApprovalScope = ApprovalScope.ONCE
    scope_until: int | None = None
    revoker: str | None = None

    def stands(self, now: int) -> bool:
        """Whether it stands for the same that is asked later, in its scope."""
        given = self.status in (ApprovalStatus.APPROVED, ApprovalStatus.USED) and self.revoker is None
        return given and self.scope is not ApprovalScope.ONCE and now < (self.scope_until or 0)

    def decided(self, approver: str, answer: PersonsAnswer, now: int) -> Approval:
        """The approval after a person's word on it.

        Raises:
            ApprovalError: it was decided before (`approval.decided`), is too old (`approval.expired`), may not be
                approved in this scope (`approval.scope`), stands for nothing that could be revoked
                (`approval.not-standing`), or the approver is the requester or nobody (`approval.own-request`).
        """
        if answer.action == "revoke":
            if not self.stands(now) or not approver:
                hint = "list those that stand"
                raise ApprovalError("this stands for nothing", code="approval.not-standing", hint=hint)
            return dataclasses.replace(self, revoker=approver)
        if self.status is not ApprovalStatus.PENDING:
            raise ApprovalError("this was decided before", code="approval.decided", hint="ask again for a new one")
        if now >= self.asked.expires_at:
            raise ApprovalError("this approval is too old", code="approval.expired", hint="ask again for a new one")
        if not approver or is_same_person(self.key.subject, subject_key(approver)):
            hint = "another person has to decide"
            raise ApprovalError("nobody approves a request of their own", code="approval.own-request", hint=hint)
        decided = dataclasses.replace(self, approver=approver, decided_at=now)
        if answer.action == "deny":
            return dataclasses.replace(decided, status=ApprovalStatus.DENIED)
        if answer.scope is not ApprovalScope.ONCE and answer.scope not in self.asked.scopes:
            hint = f"it can be approved {', '.join(('once', *self.asked.scopes))}"
            raise ApprovalError("this cannot be approved in this scope", code="approval.scope", hint=hint)
        until = None if answer.scope is ApprovalScope.ONCE else now + answer.lasts
        return dataclasses.replace(decided, status=ApprovalStatus.APPROVED, scope=answer.scope, scope_until=until)

    def recorded(self) -> dict[str, Any]:
        """What goes on record of an answer to it, besides whose it is."""
        scope = {} if self.scope is ApprovalScope.ONCE else {"scope": self.scope.value, "until": self.scope_until}
        repeat = {"target": self.asked.target, "repeat": self.asked.repeat, "owner": self.asked.owner} if scope else {}
        return {"approval": self.asked.id, "digest": self.asked.digest, **scope, **repeat}

    def used(self, use: ApprovalUse, now: int) -> Approval:
        """The approval, spent on exactly what was approved.

        Raises:
            ApprovalError: it is not approved or was spent (`approval.unusable`), too old (`approval.expired`), or
                given for something else (`approval.other-effect`).
        """
        if self.status is not ApprovalStatus.APPROVED or self.revoker is not None:
            raise ApprovalError("this approval cannot be used", code="approval.unusable", hint="ask again")
        if now >= self.asked.expires_at:
            raise ApprovalError("this approval is too old", code="approval.expired", hint="ask again for a new one")
        if (use.digest, use.target, use.revision) != (self.asked.digest, self.asked.target, self.asked.revision):
            hint = "changed arguments or policies need an approval of their own"
            raise ApprovalError("this was approved for something else", code="approval.other-effect", hint=hint)
        return dataclasses.replace(self, status=ApprovalStatus.USED, used_at=now)

    def usable(self, moment: int) -> bool:
        """Whether it waits or is approved, and is not too old at that moment: those are what policy sees."""
        is_open = self.status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED) and self.revoker is None
        return is_open and moment < self.asked.expires_at

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
        asked |= {name: list(asked[name]) for name in LISTS}
        scope = {"scope": self.scope.value, "scope_until": self.scope_until, "revoker": self.revoker}
        return {**asked, **own, "approver": self.approver, **times, **scope}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Approval:
        """The approval that `to_json` gave."""
        asked = {name: stored[name] for name in ApprovalRequest.__dataclass_fields__}
        asked |= {name: tuple(asked[name]) for name in LISTS}
        return cls(
            asked=ApprovalRequest(**asked),
            key=SessionKey(stored["subject"], stored["session"]),
            status=ApprovalStatus(stored["status"]),
            approver=stored["approver"],
            requested_at=stored["requested_at"],
            decided_at=stored["decided_at"],
            used_at=stored["used_at"],
            scope=ApprovalScope(stored["scope"]),
            scope_until=stored["scope_until"],
            revoker=stored["revoker"],
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
