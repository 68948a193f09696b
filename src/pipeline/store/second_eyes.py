"""A second person's agreement to content being shown, where a store asks for it [E6]. Spec: audit.md [AUD-80] ff.

All of it is records of the log: who asks, who grants it and until when, since when two people are needed. Nothing else
is kept, so nothing here can say more than what the log proves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, exists, select

from cmf.codec import loads
from cmf.identity import Clock
from cmf.security import SubjectExtension
from pipeline.approval_state import stored_subject
from pipeline.authority import name_of
from pipeline.errors import AuditError
from pipeline.moments import MICROSECOND, instant_of, micros
from pipeline.store.acts import (
    LONGEST,
    PREFIX,
    USUAL,
    ContentRules,
    act_row,
    check_time,
    moment_in,
    said_by,
    two_needed,
)
from pipeline.store.engine import snapshot
from pipeline.store.records import newest_of
from pipeline.store.tables import CONTENTS, RECORDS
from pipeline.store.writer import Writer, waited

ASK: Final = "ask"
GRANT: Final = "grant"
RULE: Final = "rule"
BROKEN: Final = "break-glass"
CLOSED: Final = "close"
NEED_TWO: Final = "need-two"
NEED_ONE: Final = "need-one"
OPEN_FOR: Final = timedelta(days=7)  # that what was asked for may be granted
_WHOSE: Final = select(CONTENTS.c.subject, CONTENTS.c.session)
_log: Final = logging.getLogger("pipeline.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Somebody wants to see what a record is about. `at`: microseconds since the epoch."""

    id: str
    record: str
    actor: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealGrant:
    """That `actor` may see what `record` is about before `expires_at`, as far as `second` is concerned.

    In an emergency it is not one record, but all of a subject, of a session, or of both.
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
        """Whether it is about that record, which is of that subject (as rows name it) and session."""
        if self.record is not None:
            return self.record == record
        whose = self.subject is None or stored_subject(self.subject) == subject
        return whose and (self.session is None or self.session == session)


class SecondEyes:
    """Who asks to see content, and who agrees. Safe to use from any thread.

    Args:
        engine: what to read with. writer: what to write with.
        clock: the time of records; a grant never outlives what is on record, even where the clock is put back.
        rules: who may do what.
    """

    def __init__(self, engine: Engine, writer: Writer, *, clock: Clock, rules: ContentRules) -> None:
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._rules = rules

    @property
    def needed(self) -> bool:
        """Whether it takes two people to show content, to take it along, and to release a hold."""
        if self._rules.four_eyes:
            return True
        with snapshot(self._engine) as connection:
            return any(said["action"] == NEED_TWO for _, said in _said(connection, RULE, limit=1))

    def need_two(
        self, needed: bool, *, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None = None
    ) -> None:
        """Have the store ask for two people from now on, whoever opens it; or not any more, which takes two itself.

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`. StoreError: the database failed.
        """
        said = said_by(self._rules.two, actor, reason, seconder, second=not needed and self.needed)
        self._put(RULE, NEED_TWO if needed else NEED_ONE, said)

    def ask(self, record: str, *, actor: SubjectExtension, reason: str) -> Ask:
        """What was asked for, once it is on record; for `OPEN_FOR` somebody else may grant it.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`, `content.none`. StoreError: the database failed.
        """
        said = said_by(self._rules.reveal, actor, reason, None, second=False)
        if not is_kept(self._engine, record):
            raise none_kept()
        row = self._put(ASK, ASK, said | {"contents": [record]})
        return Ask(id=row["id"], record=record, actor=said["actor"], reason=reason, at=row["at"])

    def asks(self) -> tuple[Ask, ...]:
        """What was asked for and not granted yet, the oldest first."""
        with snapshot(self._engine) as connection:
            return _open(connection, self._moment(connection))

    def grant(self, ask: str, *, actor: SubjectExtension, reason: str, expires_in: timedelta = USUAL) -> RevealGrant:
        """The grant that now is on record: until it expires, whoever asked may see what they asked for.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `audit.too-long`: for more than `LONGEST`, or for no
                time; `ask.unknown`: nothing of that id is open; `audit.four-eyes`: it is one's own. StoreError: the
                database failed.
        """
        said = said_by(self._rules.reveal, actor, reason, None, second=False)
        check_time(expires_in)
        with snapshot(self._engine) as connection:
            now = self._moment(connection)
            asked = next((one for one in _open(connection, now) if one.id == ask), None)
        if asked is None:
            raise AuditError("nobody asks for that", code="ask.unknown", hint="`cmf audit asks` lists what is asked")
        if asked.actor == said["actor"]:
            raise two_needed()
        until = now + expires_in // MICROSECOND
        granted = {"ask": ask, "for": asked.actor, "contents": [asked.record], "expires_at": until}
        row = self._put(GRANT, GRANT, said | granted)
        return _grant(row["id"], said | granted)

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
        """The grant that now is on record: until it ends, the actor may see what a scope is about.

        It is a subject, a session, or both; for an emergency, in which nobody can ask record by record, and
        always takes two. Each look is on record all the same, with the grant's id.

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`, `audit.too-long`;
                `audit.too-wide` without a subject or session. StoreError: the database failed.
        """
        said = said_by(self._rules.break_glass, actor, reason, seconder, second=True)
        check_time(expires_in)
        if subject is None and session is None:
            raise AuditError("this would open everything", code="audit.too-wide", hint="say whose, or which session")
        with snapshot(self._engine) as connection:
            until = self._moment(connection) + expires_in // MICROSECOND
        scope = {"for": said["actor"], "subject": subject, "session": session, "expires_at": until}
        row = self._put(GRANT, BROKEN, said | scope)
        _log.warning("glass broken: grant %s", row["id"])
        return _grant(row["id"], said | scope)

    def close(self, grant: str, *, actor: SubjectExtension, reason: str) -> None:
        """End a grant before it expires; whoever may see content may do that.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `grant.unknown`: none of that id holds. StoreError.
        """
        said = said_by(self._rules.reveal, actor, reason, None, second=False)
        if all(one.id != grant for one in self.grants()):
            raise AuditError("no such grant holds", code="grant.unknown", hint="`cmf audit grants` lists them")
        self._put(GRANT, CLOSED, said | {"grant": grant})

    def grants(self) -> tuple[RevealGrant, ...]:
        """Those that hold, the newest first."""
        with snapshot(self._engine) as connection:
            return _holding(connection, self._moment(connection))

    def granted(self, record: str, actor: SubjectExtension) -> RevealGrant | None:
        """The newest grant that lets the actor see what that record is about; None where none does."""
        with snapshot(self._engine) as connection:
            of = connection.execute(_WHOSE.where(CONTENTS.c.record == record)).first()
            grants = _holding(connection, self._moment(connection))
        own = (one for one in grants if one.actor == name_of(actor))
        return next((one for one in own if of is not None and one.covers(record, *of)), None)

    def _moment(self, connection: Connection) -> int:
        return moment_in(connection, self._clock)

    def _put(self, kind: str, action: str, said: Mapping[str, Any]) -> dict[str, Any]:
        with snapshot(self._engine) as connection:
            # What ends a grant is looked for among what came since: its time may not be before that of the grant.
            now = instant_of(self._moment(connection))
        row = act_row(kind, action, said, now)
        waited(self._writer.insert(RECORDS, row))
        return row


def is_kept(engine: Engine, record: str) -> bool:
    """Whether there is content to that record. Nothing of it is read."""
    with snapshot(engine) as connection:
        return bool(connection.execute(select(exists().where(CONTENTS.c.record == record))).scalar())


def none_kept() -> AuditError:
    """The error where there is none."""
    return AuditError("there is no content to this record", code="content.none", hint="none was kept, or it was erased")


def _open(connection: Connection, now: int) -> tuple[Ask, ...]:
    since = now - OPEN_FOR // MICROSECOND
    answered = {said.get("ask") for _, said in _said(connection, GRANT, since=since)}
    asks = [_ask(made, said) for made, said in _said(connection, ASK, since=since) if made not in answered]
    return tuple(reversed(asks))


def _ask(made: str, said: Mapping[str, Any]) -> Ask:
    at = micros(datetime.fromisoformat(said["timestamp"]))
    return Ask(id=made, record=said["contents"][0], actor=said["actor"], reason=said["reason"], at=at)


def _grant(made: str, said: Mapping[str, Any]) -> RevealGrant:
    who = {"id": made, "actor": said["for"], "expires_at": said["expires_at"]}
    if "ask" in said:
        (record,) = said["contents"]
        return RevealGrant(**who, second=said["actor"], ask=said["ask"], record=record)
    return RevealGrant(**who, second=said["second"], subject=said["subject"], session=said["session"])


def _holding(connection: Connection, now: int) -> tuple[RevealGrant, ...]:
    every = list(_said(connection, GRANT, since=now - LONGEST // MICROSECOND))
    closed = {said["grant"] for _, said in every if said["action"] == CLOSED}
    made = (_grant(name, said) for name, said in every if said["action"] != CLOSED and name not in closed)
    return tuple(one for one in made if now < one.expires_at)


def _said(
    connection: Connection, kind: str, *, since: int = 0, limit: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ids and bodies of records of that kind, the newest first."""
    for stored in newest_of(connection, kind, PREFIX[kind], since=since, limit=limit):
        if stored.body is not None:
            yield stored.id, loads(stored.body)


__all__ = ["OPEN_FOR", "Ask", "RevealGrant", "SecondEyes", "is_kept", "none_kept"]
