"""The content of runs, stored separately from their records: revealing it, erasing it, putting it under a hold.

Each of these acts is itself recorded, in the same transaction. Spec: docs/spec/audit.md [AUD-70] ff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, exists, false, func, insert, or_, select, update

from cmf.json.codec import loads
from cmf.message.ids import Clock
from cmf.message.security import SubjectExtension
from pipeline.audit.evidence import Kept, committed_in
from pipeline.decisions.context import stored_subject
from pipeline.decisions.errors import AuditError
from pipeline.decisions.timestamps import micros, new_ulid
from pipeline.store.engine import scrub, snapshot
from pipeline.store.four_eyes import PREFIX, ContentRules, FourEyes, act_row, attribution, is_kept, no_content
from pipeline.store.records import newest_of
from pipeline.store.tables import CONTENTS, HOLDS, RECORDS
from pipeline.store.writer import Recorded, Writer, waited

MAX_ERASED: Final = 1_000  # contents listed in one record of an erasure
_PAGE_SIZE: Final = 200  # contents fetched per query


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A hold: the content may not be erased, by request or by age. None means all subjects, or all sessions."""

    id: str
    subject: str | None
    session: str | None
    actor: str
    reason: str
    at: int
    released_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """The result of an erasure: how many contents were erased, and how many were kept by a hold."""

    erased: int
    held: int


class Contents:
    """The contents of a store. Safe to use from any thread."""

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        *,
        clock: Clock,
        rules: ContentRules | None = None,
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._rules = rules or ContentRules()
        self.four_eyes: Final = FourEyes(engine, writer, clock=clock, rules=self._rules)

    def has(self, record: str) -> bool:
        """Whether the record has content. It is not read."""
        return is_kept(self._engine, record)

    def reveal(
        self, record: str, *, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None = None
    ) -> bytes:
        """The replay file line that was judged, after recording who asked for it and why.

        If two people are required, the second one is named here, both authenticated by the host, or has granted it
        beforehand (`four_eyes`).

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`: nothing is read;
                `content.none`: there is none, or it was erased; `content.changed`: it does not match the record's
                commitment. StoreError: the database failed, and nothing is shown.
        """
        needed = self.four_eyes.needed
        granted = self.four_eyes.granted(record, actor) if needed and seconder is None else None
        details = attribution(self._rules.reveal, actor, reason, seconder, second=needed and granted is None)
        if granted is not None:
            details |= {"second": granted.second, "grant": granted.id}
        if not self.has(record):
            raise no_content()
        asked = self._row("reveal", "reveal", details | {"contents": [record]})
        waited(self._writer.insert(RECORDS, asked))
        with snapshot(self._engine) as connection:
            row = connection.execute(_WITH_RECORD.where(CONTENTS.c.record == record)).first()
        if row is None:
            raise no_content()
        return _checked(row)

    def lines(self, *, actor: SubjectExtension, reason: str) -> Callable[[], Iterator[bytes]]:
        """A function that yields every line in the order of the records, for programs; their number is recorded first.

        Raises:
            AuditError, StoreError: as `reveal`; `content.changed` at the first line that does not match its record.
        """
        details = attribution(self._rules.reveal, actor, reason, None, second=False)

        def job(connection: Connection) -> Recorded[None]:
            count = connection.execute(select(func.count()).select_from(CONTENTS)).scalar_one()
            return Recorded(None, [self._row("reveal", "read-all", details | {"count": count})])

        waited(self._writer.recorded(job))
        return lambda: (_checked(row) for row in self._pages())

    def taken(
        self, query: str | None, *, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None = None
    ) -> None:
        """Record that the results of `query` (None: everything) are exported with their content, and return.

        Raises:
            AuditError, StoreError: as `reveal`; nothing may be exported.
        """
        details = attribution(self._rules.reveal, actor, reason, seconder, second=self.four_eyes.needed)
        asked = self._row("reveal", "export", details | {"asked": query})
        waited(self._writer.insert(RECORDS, asked))

    def erase(
        self,
        *,
        actor: SubjectExtension,
        reason: str,
        subject: str | None = None,
        session: str | None = None,
        before: datetime | None = None,
    ) -> Erased:
        """Erase the bytes and salts of contents that match all conditions: subject, session, older than `before`.

        Content under a hold stays, and is counted. Records stay as they are; without the salt, their commitments
        reveal nothing.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `audit.too-wide` without a subject, session or time.
            StoreError: the database failed; what is already recorded as erased is gone.
        """
        wanted = [RECORDS.c.id == CONTENTS.c.record]  # never more than is recorded
        if subject is not None:
            wanted.append(CONTENTS.c.subject == stored_subject(subject))
        if session is not None:
            wanted.append(CONTENTS.c.session == session)
        if before is not None:
            wanted.append(CONTENTS.c.at < micros(before))
        if len(wanted) == 1:
            raise AuditError(
                "this would erase everything", code="audit.too-wide", hint="name a subject, a session or a time"
            )
        asked = {"subject": subject, "session": session, "before": None if before is None else before.isoformat()}
        details = attribution(self._rules.erase, actor, reason, None, second=False) | {"asked": asked}
        total = 0
        while True:
            job = self._erasing(and_(*wanted), details)
            done = waited(self._writer.recorded(job))
            total += done.erased
            if done.erased < MAX_ERASED:
                scrub(self._engine)
                return Erased(erased=total, held=done.held)

    def _erasing(
        self, wanted: ColumnElement[bool], details: Mapping[str, Any]
    ) -> Callable[[Connection], Recorded[Erased]]:
        def job(connection: Connection) -> Recorded[Erased]:
            of_them = select(CONTENTS.c.record).join(RECORDS, RECORDS.c.id == CONTENTS.c.record).where(wanted)
            free = of_them.where(~is_held()).order_by(CONTENTS.c.at, CONTENTS.c.record).limit(MAX_ERASED)
            ids = list(connection.execute(free).scalars())
            held = connection.execute(
                select(func.count()).select_from(of_them.where(is_held()).subquery())
            ).scalar_one()
            erased_count = connection.execute(delete(CONTENTS).where(CONTENTS.c.record.in_(ids))).rowcount if ids else 0
            record = self._row("erasure", "erase", {**details, "records": [], "contents": ids, "held": held})
            return Recorded(Erased(erased=erased_count, held=held), [record])

        return job

    def hold(
        self, *, actor: SubjectExtension, reason: str, subject: str | None = None, session: str | None = None
    ) -> Hold:
        """A new hold on the content, past and future, of a subject or session: neither age nor request erases it.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`. StoreError: the database failed.
        """
        details = attribution(self._rules.hold, actor, reason, None, second=False)
        held = Hold(
            id=f"hold_{new_ulid()}",
            subject=None if subject is None else stored_subject(subject),
            session=session,
            actor=details["actor"],
            reason=reason,
            at=micros(self._clock()),
        )
        row = {name: getattr(held, name) for name in Hold.__slots__}

        def job(connection: Connection) -> Recorded[Hold]:
            connection.execute(insert(HOLDS), [row])
            record = self._row("hold", "hold", details | {"hold": held.id, "subject": subject, "session": session})
            return Recorded(held, [record])

        return waited(self._writer.recorded(job))

    def release(
        self, hold: str, *, actor: SubjectExtension, reason: str, seconder: SubjectExtension | None = None
    ) -> None:
        """Release the hold: what is due is erased by the next sweep.

        Raises:
            AuditError: as `hold`, `audit.four-eyes`; `hold.unknown`: no hold of that id is in force.
        """
        details = attribution(self._rules.hold, actor, reason, seconder, second=self.four_eyes.needed)
        now = micros(self._clock())

        def job(connection: Connection) -> Recorded[None]:
            live = and_(HOLDS.c.id == hold, HOLDS.c.released_at.is_(None))
            if not connection.execute(update(HOLDS).where(live).values(released_at=now)).rowcount:
                raise AuditError("no such hold in force", code="hold.unknown", hint="`cmf audit holds` lists them")
            return Recorded(None, [self._row("hold", "release", details | {"hold": hold})])

        waited(self._writer.recorded(job))

    def holds(self) -> tuple[Hold, ...]:
        """The holds in force, oldest first."""
        with snapshot(self._engine) as connection:
            live = select(HOLDS).where(HOLDS.c.released_at.is_(None)).order_by(HOLDS.c.at, HOLDS.c.id)
            return tuple(Hold(**row) for row in connection.execute(live).mappings())

    def due(self, now: int, limit: int) -> Sequence[str]:
        """The ids of at most `limit` records whose content has expired and is not under a hold."""
        old = and_(CONTENTS.c.expires_at <= now, ~is_held())
        with snapshot(self._engine) as connection:
            found = select(CONTENTS.c.record).where(old).order_by(CONTENTS.c.expires_at).limit(limit)
            return list(connection.execute(found).scalars())

    def erase_due(self, items: Sequence[str]) -> None:
        """Erase the content of those records unless it is under a hold, and record whose it was."""
        details = {"actor": None, "reason": "retention"}
        wanted = CONTENTS.c.record.in_(items)
        waited(self._writer.recorded(self._erasing(wanted, details)))
        scrub(self._engine)

    def _row(self, kind: str, action: str, details: Mapping[str, Any]) -> dict[str, Any]:
        return act_row(kind, action, details, self._clock())

    def _pages(self) -> Iterator[Any]:
        after = 0
        while True:
            page = _WITH_RECORD.where(RECORDS.c.seq > after).order_by(RECORDS.c.seq).limit(_PAGE_SIZE)
            with snapshot(self._engine) as connection:
                rows = connection.execute(page).all()
            yield from rows
            if len(rows) < _PAGE_SIZE:
                return
            after = rows[-1].seq


_WITH_RECORD: Final = select(RECORDS.c.seq, RECORDS.c.body.label("record"), CONTENTS.c.salt, CONTENTS.c.body).join_from(
    CONTENTS, RECORDS, RECORDS.c.id == CONTENTS.c.record
)


def is_held() -> ColumnElement[bool]:
    """The condition that a row of `CONTENTS` is under a hold."""
    whose = or_(HOLDS.c.subject.is_(None), HOLDS.c.subject == CONTENTS.c.subject)
    which = or_(HOLDS.c.session.is_(None), func.coalesce(HOLDS.c.session == CONTENTS.c.session, false()))
    return exists().where(HOLDS.c.released_at.is_(None), whose, which)


def _checked(row: Any) -> bytes:
    content = Kept(row.salt, row.body)
    committed = committed_in(row.record)
    if committed is None or content.commitment != committed.commitment:
        raise AuditError(
            "the content does not match its record",
            path=f"records[{row.seq}]",
            code="content.changed",
            hint="compare it with a backup",
        )
    return content.body


def erasure_of(engine: Engine, record: str) -> Mapping[str, Any] | None:
    """The record of the erasure that took a record's content; empty if none is known; None if the content is there.

    Raises:
        StoreError: the database failed, or a record of an erasure is damaged.
    """
    if is_kept(engine, record):
        return None
    with snapshot(engine) as connection:
        erasures = newest_of(connection, "erasure", PREFIX["erasure"])
    bodies = ((one.id, loads(one.body)) for one in erasures if one.body is not None and record.encode() in one.body)
    return next(({**body, "id": act} for act, body in bodies if record in body.get("contents", ())), {})
