"""Records in the database: written by the recorder, read by audits. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Table, select

from pipeline.audit.record import Content, Record
from pipeline.decisions.errors import StoreError
from pipeline.decisions.session_key import subject_key
from pipeline.decisions.timestamps import micros
from pipeline.store.engine import snapshot
from pipeline.store.tables import CONTENTS, RECORDS
from pipeline.store.writer import Recorded

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
