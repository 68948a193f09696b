"""Records of what people do with content: who, why, and with whose agreement. Spec: docs/spec/audit.md [AUD-73] ff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, func, select

from cmf.message.ids import Clock
from cmf.message.security import SubjectExtension
from pipeline.audit.record import act_of
from pipeline.decisions.authority import MAX_REASON, Authorise, holding, is_legible, is_same_person, name_of
from pipeline.decisions.errors import AuditError
from pipeline.decisions.timestamps import micros
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
_MAY_REQUIRE_TWO: Final = holding(TWO_PEOPLE)
_MAY_BREAK_GLASS: Final = holding(BREAK_GLASS)
LONGEST: Final = timedelta(days=1)  # lifetime of a grant or an override
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
"""The id prefix of each kind of record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRules:
    """Who may do what with content; by default whoever holds the permission for it: `cmf:reveal` and so on.

    Attributes:
        two: who may switch the store's requirement for two people on or off. break_glass: who may open more than one
            record's content at once, in an emergency.
        four_eyes: whether a second person with the same permission has to agree to showing content and to releasing a
            hold [E6]. A store's own requirement (`FourEyes.need_two`) applies regardless.
    """

    reveal: Authorise = _MAY_REVEAL
    erase: Authorise = _MAY_ERASE
    hold: Authorise = _MAY_HOLD
    two: Authorise = _MAY_REQUIRE_TWO
    break_glass: Authorise = _MAY_BREAK_GLASS
    four_eyes: bool = False


def attribution(
    may: Authorise, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None, *, second: bool
) -> dict[str, Any]:
    """The actor and reason to record; AuditError if the act is not allowed. `second`: whether it takes two people."""
    for one in [actor] if seconder is None else [actor, seconder]:
        if not name_of(one) or not may(one):
            hint = "ask somebody with the permission"
            raise AuditError("not authorised", code="audit.not-authorised", hint=hint)
    if (second and seconder is None) or (seconder is not None and is_same_person(name_of(seconder), name_of(actor))):
        raise second_person_needed()
    if not is_legible(reason) or len(reason) > MAX_REASON:
        raise AuditError("a reason is needed", code="audit.no-reason", hint=f"at most {MAX_REASON} characters")
    who = {"actor": name_of(actor), "reason": reason}
    return who if seconder is None else {**who, "second": name_of(seconder)}


def check_time(asked: timedelta) -> None:
    """Check a requested lifetime; AuditError (`audit.too-long`) if it is longer than `LONGEST`, or not positive."""
    if not timedelta(0) < asked <= LONGEST:
        raise AuditError("not a valid lifetime", code="audit.too-long", hint=f"longer than zero, at most {LONGEST}")


def act_row(kind: str, action: str, details: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The row of a record of such an act."""
    return row_of(act_of(kind, PREFIX[kind], action, details, now, subject=details["actor"]))


def second_person_needed() -> AuditError:
    """The error when a second person has to agree."""
    hint = "name a second person, or have somebody grant it: `cmf audit ask`, `cmf audit grant`"
    return AuditError("two people are needed", code="audit.four-eyes", hint=hint)


def moment_in(connection: Connection, clock: Clock) -> int:
    """Now, in microseconds since the epoch, and never before the newest record: clocks may be set back."""
    newest = connection.execute(select(func.max(RECORDS.c.at))).scalar() or 0
    return max(newest, micros(clock()))
