"""The four-eyes principle: a second person agrees before content is shown [E6]. Spec: audit.md [AUD-80] ff.

Requests, grants and the requirement itself exist only as records of the log, so their state is always what the log
proves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, exists, func, select

from cmf.json.codec import loads
from cmf.message.ids import Clock
from cmf.message.security import SubjectExtension
from pipeline.audit.record import act_of
from pipeline.decisions.authority import MAX_REASON, Authorise, holding, is_legible, is_same_person, name_of
from pipeline.decisions.context import stored_subject
from pipeline.decisions.errors import AuditError
from pipeline.decisions.timestamps import MICROSECOND, instant_of, micros
from pipeline.store.engine import snapshot
from pipeline.store.records import newest_of, row_of
from pipeline.store.tables import CONTENTS, RECORDS
from pipeline.store.writer import Recorded, Writer, waited

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

    `two` may switch the store's requirement for two people on or off; `break_glass` may open more than one record's
    content at once, in an emergency. With `four_eyes`, a second person with the same permission has to agree to showing
    content and to releasing a hold [E6]; a store's own requirement (`FourEyes.need_two`) applies regardless.
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


ASK: Final = "ask"
GRANT: Final = "grant"
REQUIREMENT: Final = "rule"
EMERGENCY: Final = "break-glass"
CLOSED: Final = "close"
NEED_TWO: Final = "need-two"
NEED_ONE: Final = "need-one"
OPEN_FOR: Final = timedelta(days=7)  # how long a request can be granted
_WHOSE: Final = select(CONTENTS.c.subject, CONTENTS.c.session)
_log: Final = logging.getLogger("pipeline.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request to see the content of a record. `at`: microseconds since the epoch."""

    id: str
    record: str
    actor: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealGrant:
    """The agreement of `second` that `actor` may see the content of `record` until `expires_at`.

    In an emergency it covers all records of a subject, a session, or both, instead of a single one.
    """

    id: str
    actor: str
    second: str
    expires_at: int
    ask: str | None = None
    record: str | None = None
    subject: str | None = None
    session: str | None = None

    def covers(self, record: str, subject: str, session: str | None) -> bool:
        """Whether it covers that record, which belongs to that subject (as rows spell it) and session."""
        if self.record is not None:
            return self.record == record
        whose = self.subject is None or stored_subject(self.subject) == subject
        return whose and (self.session is None or self.session == session)


class FourEyes:
    """Requests to see content, and their grants. Safe to use from any thread.

    No grant outlives its recorded end, even if the clock is set back.
    """

    def __init__(self, engine: Engine, writer: Writer, *, clock: Clock, rules: ContentRules) -> None:
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._rules = rules
        self._turn = threading.Lock()

    @property
    def needed(self) -> bool:
        """Whether showing content, exporting it and releasing a hold take two people."""
        if self._rules.four_eyes:
            return True
        with snapshot(self._engine) as connection:
            return any(body["action"] == NEED_TWO for _, body in _bodies(connection, REQUIREMENT, limit=1))

    def need_two(
        self, needed: bool, *, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None = None
    ) -> None:
        """Require two people from now on, for every user of the store; or lift that, which itself takes two.

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`. StoreError: the database failed.
        """
        body = attribution(self._rules.two, actor, reason, seconder, second=not needed and self.needed)
        self._put(REQUIREMENT, NEED_TWO if needed else NEED_ONE, body)

    def ask(self, record: str, *, actor: SubjectExtension, reason: str) -> Ask:
        """A new request, on record; somebody else may grant it within `OPEN_FOR`.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`, `content.none`. StoreError: the database failed.
        """
        body = attribution(self._rules.reveal, actor, reason, None, second=False)
        if not is_kept(self._engine, record):
            raise no_content()
        row = self._put(ASK, ASK, body | {"contents": [record]})
        return Ask(id=row["id"], record=record, actor=body["actor"], reason=reason, at=row["at"])

    def asks(self) -> tuple[Ask, ...]:
        """The requests not granted yet, oldest first."""
        with snapshot(self._engine) as connection:
            return _open(connection, self._moment(connection))

    def grant(self, ask: str, *, actor: SubjectExtension, reason: str, expires_in: timedelta = USUAL) -> RevealGrant:
        """A new grant, on record: until it expires, the person who asked may see the content.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `audit.too-long`: longer than `LONGEST`, or not
                positive; `ask.unknown`: no open request has that id; `audit.four-eyes`: it is the approver's own
                request. StoreError: the database failed.
        """
        body = attribution(self._rules.reveal, actor, reason, None, second=False)
        check_time(expires_in)
        with self._turn:  # the writer may run several jobs before it inserts their records
            return waited(self._writer.recorded(lambda connection: self._granting(connection, ask, body, expires_in)))

    def _granting(
        self, connection: Connection, ask: str, body: dict[str, Any], expires_in: timedelta
    ) -> Recorded[RevealGrant]:
        """The grant, in the transaction that looked whether the request is open: no process grants it a second time."""
        now = self._moment(connection)
        asked = next((one for one in _open(connection, now) if one.id == ask), None)
        if asked is None:
            raise AuditError("no such open request", code="ask.unknown", hint="`cmf audit asks` lists them")
        if is_same_person(asked.actor, body["actor"]):
            raise second_person_needed()
        until = now + expires_in // MICROSECOND
        granted = {"ask": ask, "for": asked.actor, "contents": [asked.record], "expires_at": until}
        row = act_row(GRANT, GRANT, body | granted, instant_of(now))
        return Recorded(_grant(row["id"], body | granted), [row])

    def break_glass(
        self,
        *,
        actor: SubjectExtension,
        seconder: SubjectExtension,
        reason: str,
        subject: str | None = None,
        session: str | None = None,
        expires_in: timedelta = USUAL,
    ) -> RevealGrant:
        """A new emergency grant, on record: until it expires, the actor may see all content in a scope.

        The scope is a subject, a session, or both. This always takes two people. Each look is still recorded, with the
        grant's id.

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`, `audit.too-long`;
                `audit.too-wide` without a subject or session. StoreError: the database failed.
        """
        body = attribution(self._rules.break_glass, actor, reason, seconder, second=True)
        check_time(expires_in)
        if subject is None and session is None:
            raise AuditError("this would open everything", code="audit.too-wide", hint="name a subject or a session")
        with snapshot(self._engine) as connection:
            until = self._moment(connection) + expires_in // MICROSECOND
        scope = {"for": body["actor"], "subject": subject, "session": session, "expires_at": until}
        row = self._put(GRANT, EMERGENCY, body | scope)
        _log.warning("glass broken: grant %s", row["id"])
        return _grant(row["id"], body | scope)

    def close(self, grant: str, *, actor: SubjectExtension, reason: str) -> None:
        """End a grant before it expires. Anybody who may see content may do so.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `grant.unknown`: no such grant is in force.
            StoreError: the database failed.
        """
        body = attribution(self._rules.reveal, actor, reason, None, second=False)
        if all(one.id != grant for one in self.grants()):
            raise AuditError("no such grant in force", code="grant.unknown", hint="`cmf audit grants` lists them")
        self._put(GRANT, CLOSED, body | {"grant": grant})

    def grants(self) -> tuple[RevealGrant, ...]:
        """The grants in force, newest first."""
        with snapshot(self._engine) as connection:
            return _holding(connection, self._moment(connection))

    def granted(self, record: str, actor: SubjectExtension) -> RevealGrant | None:
        """The newest grant that lets the actor see the content of that record; None if there is none."""
        with snapshot(self._engine) as connection:
            of = connection.execute(_WHOSE.where(CONTENTS.c.record == record)).first()
            grants = _holding(connection, self._moment(connection))
        own = (one for one in grants if one.actor == name_of(actor))
        return next((one for one in own if of is not None and one.covers(record, *of)), None)

    def _moment(self, connection: Connection) -> int:
        return moment_in(connection, self._clock)

    def _put(self, kind: str, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with snapshot(self._engine) as connection:
            # The record that ends a grant is looked up among later ones, so its time may not be earlier.
            now = instant_of(self._moment(connection))
        row = act_row(kind, action, body, now)
        waited(self._writer.insert(RECORDS, row))
        return row


def is_kept(engine: Engine, record: str) -> bool:
    """Whether the record has content. It is not read."""
    with snapshot(engine) as connection:
        return bool(connection.execute(select(exists().where(CONTENTS.c.record == record))).scalar())


def no_content() -> AuditError:
    """The error for a record without content."""
    hint = "none was stored, or it was erased: `cmf audit show` says which"
    return AuditError("this record has no content", code="content.none", hint=hint)


def _open(connection: Connection, now: int) -> tuple[Ask, ...]:
    since = now - OPEN_FOR // MICROSECOND
    answered = {body.get("ask") for _, body in _bodies(connection, GRANT, since=since)}
    asks = []
    for name, body in _bodies(connection, ASK, since=since):
        if name not in answered:
            at = micros(datetime.fromisoformat(body["timestamp"]))
            asks.append(Ask(id=name, record=body["contents"][0], actor=body["actor"], reason=body["reason"], at=at))
    return tuple(reversed(asks))


def _grant(record_id: str, body: Mapping[str, Any]) -> RevealGrant:
    who = {"id": record_id, "actor": body["for"], "expires_at": body["expires_at"]}
    if "ask" in body:
        (record,) = body["contents"]
        return RevealGrant(**who, second=body["actor"], ask=body["ask"], record=record)
    return RevealGrant(**who, second=body["second"], subject=body["subject"], session=body["session"])


def _holding(connection: Connection, now: int) -> tuple[RevealGrant, ...]:
    every = list(_bodies(connection, GRANT, since=now - LONGEST // MICROSECOND))
    closed = {body["grant"] for _, body in every if body["action"] == CLOSED}
    record_id = (_grant(name, body) for name, body in every if body["action"] != CLOSED and name not in closed)
    return tuple(one for one in record_id if now < one.expires_at)


def _bodies(
    connection: Connection, kind: str, *, since: int = 0, limit: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ids and bodies of records of that kind, newest first."""
    for stored in newest_of(connection, kind, PREFIX[kind], since=since, limit=limit):
        if stored.body is not None:
            yield stored.id, loads(stored.body)
