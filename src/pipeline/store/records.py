"""Records in the database: written by the recorder, read by whoever audits. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, select

from pipeline.approval_state import subject_key
from pipeline.errors import StoreError
from pipeline.moments import micros
from pipeline.record import Content, Record
from pipeline.store.engine import snapshot
from pipeline.store.tables import CONTENTS, RECORDS

_AT_ONCE: Final = 1_000  # rows fetched together


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it lies there.

    Attributes:
        seq: its number in this database. log, place: where it is in a log; None of what was kept before there was one.
        body: its bytes; None where they were erased. digest: what they are to be the SHA-256 of, as hex.
    """

    seq: int
    id: str
    kind: str
    body: bytes | None
    digest: str
    log: str | None
    place: int | None


def rows_of(record: Record) -> list[tuple[Table, dict[str, Any]]]:
    """The rows that keep a record, with what is kept apart from it."""
    rows = [(RECORDS, row_of(record))]
    if record.content is not None:
        rows.append((CONTENTS, content_row_of(record, record.content)))
    return rows


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
    """The row of what is kept with the record, apart."""
    row = row_of(record)
    return {
        "record": record.id,
        **{name: row[name] for name in ("subject", "session", "at")},
        "expires_at": content.expires_at,
        "salt": content.salt,
        "body": content.body,
    }


def stored_record(engine: Engine, record_id: str) -> Stored | None:
    """The record of that decision, or of whatever else has that id.

    Raises:
        StoreError: its bytes are not those that were written (`record.damaged`).
    """
    with snapshot(engine) as connection:
        row = connection.execute(_COLUMNS.where(RECORDS.c.id == record_id)).first()
    return None if row is None else _whole(row)


def stored_records(engine: Engine, *, after: int = 0, kind: str | None = None) -> Iterator[Stored]:
    """The records beyond the number `after`, in order, of one `kind` or of all; StoreError as in `stored_record`."""
    more = True
    while more:
        page = _COLUMNS.where(RECORDS.c.seq > after).order_by(RECORDS.c.seq).limit(_AT_ONCE)
        with snapshot(engine) as connection:
            rows = connection.execute(page if kind is None else page.where(RECORDS.c.kind == kind)).all()
        for row in rows:
            yield _whole(row)
            after = row.seq
        more = len(rows) == _AT_ONCE


def newest_of(
    connection: Connection, kind: str, prefix: str, *, since: int = 0, limit: int | None = None
) -> list[Stored]:
    """The records of a kind whose ids are `<prefix>_<ULID>`, from `since` on, the newest first; at most `limit`.

    The index of ids finds them: such records are few among many. StoreError as in `stored_record`.
    """
    some = _COLUMNS.where(RECORDS.c.id >= f"{prefix}_0", RECORDS.c.id < f"{prefix}_z", RECORDS.c.kind == kind)
    some = some.where(RECORDS.c.at >= since).order_by(RECORDS.c.seq.desc())
    return [_whole(row) for row in connection.execute(some if limit is None else some.limit(limit))]


_COLUMNS: Final = select(*(RECORDS.c[name] for name in ("seq", "id", "kind", "body", "digest", "log", "place")))


def _whole(row: Any) -> Stored:
    if row.body is not None and hashlib.sha256(row.body).hexdigest() != row.digest:
        raise StoreError(
            "a record is damaged", path=f"records[{row.seq}]", code="record.damaged", hint="see the backup"
        )
    return Stored(**row._asdict())
