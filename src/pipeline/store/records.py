"""Records in the database: written by the recorder, read by audits, indexed for the catalogue. Spec: recorder.md."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Table, func, select

from pipeline.audit.record import Content, Record
from pipeline.decisions.context import subject_key
from pipeline.decisions.errors import StoreError
from pipeline.decisions.timestamps import micros
from pipeline.store.engine import snapshot
from pipeline.store.tables import CONTENTS, RECORD_FACTS, RECORD_FACTS_DONE, RECORDS
from pipeline.store.writer import Recorded

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
