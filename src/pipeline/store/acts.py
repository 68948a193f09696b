"""What people do with content, as it goes on record: who, why, and with whom. Spec: docs/spec/audit.md [AUD-73] ff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, func, select

from cmf.identity import Clock
from cmf.security import SubjectExtension
from pipeline.authority import MAX_REASON, Authorise, holding, name_of
from pipeline.errors import AuditError
from pipeline.moments import micros
from pipeline.record import act_of
from pipeline.store.records import row_of
from pipeline.store.tables import RECORDS

REVEAL: Final = "cmf:reveal"
ERASE: Final = "cmf:erase"
HOLD: Final = "cmf:hold"
TWO_PEOPLE: Final = "cmf:two-people"
BREAK_GLASS: Final = "cmf:break-glass"
_MAY_REVEAL: Final = holding(REVEAL)
_MAY_ERASE: Final = holding(ERASE)
_MAY_HOLD: Final = holding(HOLD)
_MAY_SAY_TWO: Final = holding(TWO_PEOPLE)
_MAY_BREAK_GLASS: Final = holding(BREAK_GLASS)
LONGEST: Final = timedelta(days=1)  # that a grant or an override holds
USUAL: Final = timedelta(hours=1)
PREFIX: Final = {
    "reveal": "rev",
    "erasure": "erz",
    "hold": "hld",
    "ask": "ask",
    "grant": "rgr",
    "rule": "rul",
    "override": "ovr",
}
"""What the ids of records of each kind begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRules:
    """Who may do what with content; by default whoever has the permission for it: `cmf:reveal` and so on.

    Attributes:
        two: who may say whether the store asks for two people. break_glass: who may open more than one record's content
            at once, in an emergency.
        four_eyes: whether a second person, who may as well, has to agree to showing content and to releasing a hold
            [E6]. Where the store itself asks for it (`SecondEyes.need_two`), it is so whatever is said here.
    """

    reveal: Authorise = _MAY_REVEAL
    erase: Authorise = _MAY_ERASE
    hold: Authorise = _MAY_HOLD
    two: Authorise = _MAY_SAY_TWO
    break_glass: Authorise = _MAY_BREAK_GLASS
    four_eyes: bool = False


def said_by(
    may: Authorise, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None, *, second: bool
) -> dict[str, Any]:
    """Who does it and why, as it goes on record; AuditError where that may not be. `second`: whether it takes two."""
    for one in [actor] if seconder is None else [actor, seconder]:
        if not name_of(one) or not may(one):
            hint = "ask somebody with the permission"
            raise AuditError("this person may not do that", code="audit.not-authorised", hint=hint)
    if (second and seconder is None) or (seconder is not None and name_of(seconder) == name_of(actor)):
        raise two_needed()
    if not reason.strip() or len(reason) > MAX_REASON:
        raise AuditError("a reason is needed", code="audit.no-reason", hint=f"at most {MAX_REASON} characters")
    who = {"actor": name_of(actor), "reason": reason}
    return who if seconder is None else {**who, "second": name_of(seconder)}


def check_time(asked: timedelta) -> None:
    """Return where that may be granted; AuditError (`audit.too-long`) for more than `LONGEST`, or for no time."""
    if not timedelta(0) < asked <= LONGEST:
        raise AuditError("not a time that may be granted", code="audit.too-long", hint=f"at most {LONGEST}")


def act_row(kind: str, action: str, said: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The row of a record of that."""
    return row_of(act_of(kind, PREFIX[kind], action, said, now, subject=said["actor"]))


def two_needed() -> AuditError:
    """The error where somebody else has to agree."""
    hint = "name a second person, or have somebody grant it: `cmf audit ask`, `cmf audit grant`"
    return AuditError("two people are needed", code="audit.four-eyes", hint=hint)


def moment_in(connection: Connection, clock: Clock) -> int:
    """Now, in microseconds since the epoch, and never before the newest record: a clock may be put back."""
    newest = connection.execute(select(func.max(RECORDS.c.at))).scalar() or 0
    return max(newest, micros(clock()))


__all__ = [
    "BREAK_GLASS",
    "ERASE",
    "HOLD",
    "LONGEST",
    "PREFIX",
    "REVEAL",
    "TWO_PEOPLE",
    "USUAL",
    "ContentRules",
    "act_row",
    "check_time",
    "moment_in",
    "said_by",
    "two_needed",
]
