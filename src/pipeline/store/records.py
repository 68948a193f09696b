"""Records in the database: written by the recorder, read by audits, indexed for the catalogue. Spec: recorder.md."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, delete, func, insert, not_, or_, select

from pipeline.audit.query import COLUMNS, Query, Term, Value, facts_of
from pipeline.audit.record import Content, Record
from pipeline.decisions.context import shown_subject, stored_subject, subject_key
from pipeline.decisions.errors import AuditError, StoreError
from pipeline.decisions.timestamps import micros
from pipeline.store.engine import snapshot
from pipeline.store.tables import CONTENTS, RECORD_FACTS, RECORD_FACTS_DONE, RECORDS
from pipeline.store.writer import Recorded, Writer, waited

_BATCH_SIZE: Final = 2_000  # records indexed in one transaction: bounds how long other writes wait
_LAST: Final = "\U0010ffff"


class Search:
    """Searches the records of a database. Safe to use from any thread."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer

    def catch_up(self) -> int:
        """Index the facts of records not indexed yet; returns how many. Raises StoreError: the database failed."""
        total = 0
        while done := waited(self._writer.call(_index_some)):
            total += done
        return total

    def page(self, query: Query, *, before: int | None = None, limit: int = 50) -> list[Placed]:
        """The newest `limit` records that match the query and have a number below `before`.

        Raises:
            StoreError: the database failed.
        """
        wanted = _wanted(PLACED, query).order_by(RECORDS.c.seq.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(RECORDS.c.seq < before)
        with snapshot(self._engine) as connection:
            return [Placed(*row) for row in connection.execute(wanted)]

    def count(self, query: Query) -> int:
        """How many records match the query."""
        with snapshot(self._engine) as connection:
            return int(connection.execute(_wanted(select(func.count()).select_from(RECORDS), query)).scalar_one())

    def values(self, query: Query, name: str, *, limit: int = 20) -> list[tuple[str, int]]:
        """The values of `name` among the matches, most frequent first, and how many records have each."""
        if name in COLUMNS:
            column: ColumnElement[Any] = RECORDS.c[name]
            counted = _wanted(select(column, func.count()).select_from(RECORDS), query).where(column.is_not(None))
        else:
            column = RECORD_FACTS.c.value
            joined = RECORDS.join(RECORD_FACTS, RECORD_FACTS.c.seq == RECORDS.c.seq)
            counted = _wanted(select(column, func.count()).select_from(joined), query).where(
                RECORD_FACTS.c.name == name
            )
        counted = counted.group_by(column).order_by(func.count().desc(), column).limit(limit)
        with snapshot(self._engine) as connection:
            rows = connection.execute(counted).all()
        return [(shown_subject(value) if name == "subject" else value, times) for value, times in rows]


def stored_value(subject: Value) -> Value:
    """A subject in a query, as rows spell it."""
    return Value(subject_key(subject.text) if subject.begins else stored_subject(subject.text), subject.begins)


def _wanted(statement: Select[Any], query: Query) -> Select[Any]:
    if query.of_reviews:
        raise AuditError(
            "reviews are not indexed in the database",
            path=query.text,
            code="audit.query",
            hint="search them with a catalogue",
        )
    for term in query.terms:
        condition = _condition(term)
        statement = statement.where(not_(condition) if term.negated else condition)
    if query.since is not None:
        statement = statement.where(RECORDS.c.at >= query.since)
    if query.until is not None:
        statement = statement.where(RECORDS.c.at < query.until)
    return statement


def _condition(term: Term) -> ColumnElement[bool]:
    if term.name in COLUMNS:
        stored = map(stored_value, term.values) if term.name == "subject" else term.values
        return func.coalesce(or_(*(_is(RECORDS.c[term.name], one) for one in stored)), False)
    values = or_(*(_is(RECORD_FACTS.c.value, one) for one in term.values))
    having = select(RECORD_FACTS.c.seq).where(and_(RECORD_FACTS.c.name == term.name, values))
    return RECORDS.c.seq.in_(having)


def _is(column: ColumnElement[Any], value: Value) -> ColumnElement[bool]:
    if not value.begins:
        return column == value.text
    return and_(column >= value.text, column < value.text + _LAST)


def misindexed(connection: Connection) -> Iterator[str | None]:
    """The ids of records whose index entries do not match them; None for an entry without a record."""
    upto = connection.execute(_UPTO).scalar() or 0
    after, of_none = 0, False
    while rows := _rows_after(connection, after, upto):
        last = rows[-1].seq
        reported: dict[int, set[tuple[str, str]]] = {row.seq: set() for row in rows}
        for seq, name, value in connection.execute(_FACTS.where(after < _SEQ, last >= _SEQ)):
            of_none |= seq not in reported
            reported.setdefault(seq, set()).add((name, value))
        for row in rows:
            if row.body is not None and reported[row.seq] != _indexed(row):
                yield row.id
        after = last
    beyond = connection.execute(select(_FACTS.where(or_(after < _SEQ, _SEQ < 1)).exists())).scalar()
    if of_none or beyond or after < upto:
        yield None


def damage_in(connection: Connection) -> Iterator[tuple[str | None, str]]:
    """What SQLite finds wrong in its file, at most a hundred findings, and the id of the record that each is about.

    Searches use the database's indexes and verification does not: a row taken out of an index alone is not found.
    """
    if connection.dialect.name != "sqlite":
        return
    for (reported,) in connection.exec_driver_sql("PRAGMA integrity_check").all():
        if reported == "ok":
            return
        row = None
        if (found := _MISSING_ROW.search(reported)) is not None:
            row = connection.exec_driver_sql(_RECORD_OF_ROW[found[2]], (int(found[1]),)).first()
        yield None if row is None else str(row[0]), reported


def _rows_after(connection: Connection, after: int, upto: int) -> Sequence[Any]:
    page = (
        select(RECORDS.c.seq, RECORDS.c.id, RECORDS.c.kind, RECORDS.c.body).order_by(RECORDS.c.seq).limit(_BATCH_SIZE)
    )
    return connection.execute(page.where(RECORDS.c.seq > after, RECORDS.c.seq <= upto)).all()


_SEQ: Final = RECORD_FACTS.c.seq
_UPTO: Final = select(func.max(RECORD_FACTS_DONE.c.upto))
_MISSING_ROW: Final = re.compile(r"row (\d+) missing from index (records|record_facts|contents)_")
_RECORD_OF_ROW: Final = {
    "records": "SELECT id FROM records WHERE seq = ?",
    "record_facts": "SELECT id FROM records WHERE seq = (SELECT seq FROM record_facts NOT INDEXED WHERE rowid = ?)",
    "contents": "SELECT record FROM contents NOT INDEXED WHERE rowid = ?",
}
"""The record of a row, by its number in a table and without the indexes that do not match it."""
_FACTS: Final = select(_SEQ, RECORD_FACTS.c.name, RECORD_FACTS.c.value)


def _indexed(row: Any) -> set[tuple[str, str]]:
    """The index entries that a record should have."""
    return {(name, value.replace("\x00", "\ufffd")) for name, value in facts_of(row.kind, row.body)}


def _index_some(connection: Connection) -> int:
    """Index the next records, at most `_BATCH_SIZE`; returns how many."""
    upto = connection.execute(_UPTO).scalar()
    page = select(RECORDS.c.seq, RECORDS.c.kind, RECORDS.c.body).order_by(RECORDS.c.seq).limit(_BATCH_SIZE)
    rows: Sequence[Any] = connection.execute(page.where(RECORDS.c.seq > (upto or 0))).all()
    if not rows:
        return 0
    facts = [{"seq": row.seq, "name": name, "value": value} for row in rows for name, value in sorted(_indexed(row))]
    if facts:
        connection.execute(insert(RECORD_FACTS), facts)
    connection.execute(delete(RECORD_FACTS_DONE))
    connection.execute(insert(RECORD_FACTS_DONE), {"upto": rows[-1].seq})
    return len(rows)


_CHUNK_SIZE: Final = 500  # ids in one statement


@dataclass(frozen=True, slots=True)
class Placed:
    """A record's row without its body: the fields that its leaf covers, and its place. `at`: microseconds, UTC."""

    seq: int
    id: str
    kind: str
    at: int
    subject: str
    session: str | None
    verdict: str
    action: str
    revision: str
    digest: str
    log: str | None
    place: int | None


PLACED: Final = select(*(RECORDS.c[field.name] for field in fields(Placed)))


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive records: their rows, the facts of each, and the bodies of the kinds that were asked for."""

    rows: Sequence[Placed]
    facts: Sequence[tuple[int, str, str]]
    bodies: dict[int, bytes | None]


def newest(engine: Engine, *, limit: int) -> list[Placed]:
    """The newest `limit` records, newest last. Nothing is written, and no writer is waited for.

    Raises:
        StoreError: the database failed.
    """
    with snapshot(engine) as connection:
        found = connection.execute(PLACED.order_by(RECORDS.c.seq.desc()).limit(limit)).all()
    return [Placed(*row) for row in reversed(found)]


def rows_after(engine: Engine, after: int, *, limit: int) -> list[Placed]:
    """At most `limit` records after the number `after`, in order; as `newest`."""
    some = PLACED.where(RECORDS.c.seq > after).order_by(RECORDS.c.seq).limit(limit)
    with snapshot(engine) as connection:
        return [Placed(*row) for row in connection.execute(some)]


def is_behind(engine: Engine) -> bool:
    """Whether there are records whose facts are not indexed."""
    with snapshot(engine) as connection:
        newest = connection.execute(select(func.max(RECORDS.c.seq))).scalar() or 0
        return newest > (connection.execute(select(func.max(RECORD_FACTS_DONE.c.upto))).scalar() or 0)


def part_after(engine: Engine, after: int, *, kinds: Collection[str], limit: int = 5_000) -> Part:
    """At most `limit` indexed records after the number `after`, with the bodies of those of these kinds.

    Raises:
        StoreError: the database failed.
    """
    with snapshot(engine) as connection:
        upto = connection.execute(select(func.max(RECORD_FACTS_DONE.c.upto))).scalar() or 0
        some = PLACED.where(RECORDS.c.seq > after, RECORDS.c.seq <= upto)
        rows = [Placed(*row) for row in connection.execute(some.order_by(RECORDS.c.seq).limit(limit))]
        if not rows:
            return Part((), (), {})
        last = rows[-1].seq
        facts: Any = select(RECORD_FACTS.c.seq, RECORD_FACTS.c.name, RECORD_FACTS.c.value).where(
            RECORD_FACTS.c.seq > after, RECORD_FACTS.c.seq <= last
        )
        found = [(row.seq, row.name, row.value) for row in connection.execute(facts)]
        bodies = _bodies(connection, [row.seq for row in rows if row.kind in kinds])
    return Part(rows, found, bodies)


def bodies_of(engine: Engine, numbers: Sequence[int]) -> dict[int, bytes | None]:
    """The bodies of the records with these numbers; None if erased."""
    with snapshot(engine) as connection:
        return _bodies(connection, numbers)


def _bodies(connection: Connection, numbers: Sequence[int]) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for start in range(0, len(numbers), _CHUNK_SIZE):
        some = select(RECORDS.c.seq, RECORDS.c.body).where(RECORDS.c.seq.in_(numbers[start : start + _CHUNK_SIZE]))
        found |= {row.seq: row.body for row in connection.execute(some)}
    return found


_T = TypeVar("_T")
_PAGE_SIZE: Final = 1_000  # rows fetched per query


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as stored.

    Attributes:
        seq: its number in this database. log, place: its place in a log; None for one that is in none.
        body: its bytes; None if they were erased. digest: their SHA-256 as hex.
    """

    seq: int
    id: str
    kind: str
    body: bytes | None
    digest: str
    log: str | None
    place: int | None


def rows_of(record: Record) -> list[tuple[Table, dict[str, Any]]]:
    """The rows of a record and of the content stored apart from it."""
    rows = [(RECORDS, row_of(record))]
    if record.content is not None:
        rows.append((CONTENTS, content_row_of(record, record.content)))
    return rows


def recorded(result: _T, record: Record | None) -> Recorded[_T]:
    """What a job of the writer returns that puts `record`, if there is one, on record with what it did."""
    if record is None:
        return Recorded(result, ())
    content = record.content
    return Recorded(result, [row_of(record)], () if content is None else [content_row_of(record, content)])


def row_of(record: Record) -> dict[str, Any]:
    """The record's row."""
    return {
        "id": record.id,
        "kind": record.kind,
        "at": micros(record.timestamp),
        "subject": subject_key(record.subject),
        "session": record.session,
        "verdict": record.verdict,
        "action": record.action,
        "revision": record.revision,
        "body": record.body,
        "digest": record.digest,
    }


def content_row_of(record: Record, content: Content) -> dict[str, Any]:
    """The row of the record's content."""
    row = row_of(record)
    return {
        "record": record.id,
        **{name: row[name] for name in ("subject", "session", "at")},
        "expires_at": content.expires_at,
        "salt": content.salt,
        "body": content.body,
    }


def stored_record(engine: Engine, record_id: str) -> Stored | None:
    """The record with that id: of a decision, or of any other kind.

    Raises:
        StoreError: its bytes do not match its digest (`record.damaged`).
    """
    with snapshot(engine) as connection:
        row = connection.execute(_COLUMNS.where(RECORDS.c.id == record_id)).first()
    return None if row is None else _whole(row)


def stored_records(engine: Engine, *, after: int = 0, kind: str | None = None) -> Iterator[Stored]:
    """The records after the number `after`, in order, of one `kind` or all; StoreError as in `stored_record`."""
    more = True
    while more:
        page = _COLUMNS.where(RECORDS.c.seq > after).order_by(RECORDS.c.seq).limit(_PAGE_SIZE)
        with snapshot(engine) as connection:
            rows = connection.execute(page if kind is None else page.where(RECORDS.c.kind == kind)).all()
        for row in rows:
            yield _whole(row)
            after = row.seq
        more = len(rows) == _PAGE_SIZE


def newest_of(
    connection: Connection, kind: str, prefix: str, *, since: int = 0, limit: int | None = None
) -> list[Stored]:
    """The records of a kind whose ids are `<prefix>_<ULID>`, from `since` on, newest first; at most `limit`.

    They are found by the index on ids, because such records are rare. StoreError as in `stored_record`.
    """
    some = _COLUMNS.where(RECORDS.c.id >= f"{prefix}_0", RECORDS.c.id < f"{prefix}_z", RECORDS.c.kind == kind)
    some = some.where(RECORDS.c.at >= since).order_by(RECORDS.c.seq.desc())
    return [_whole(row) for row in connection.execute(some if limit is None else some.limit(limit))]


_COLUMNS: Final = select(*(RECORDS.c[name] for name in ("seq", "id", "kind", "body", "digest", "log", "place")))


def _whole(row: Any) -> Stored:
    if row.body is not None and hashlib.sha256(row.body).hexdigest() != row.digest:
        raise StoreError(
            "a record is damaged", path=f"records[{row.seq}]", code="record.damaged", hint="compare it with a backup"
        )
    return Stored(**row._asdict())
