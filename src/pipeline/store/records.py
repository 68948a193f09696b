"""Records in the database: written by the recorder, read by whoever audits. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Engine, select

from pipeline.errors import StoreError
from pipeline.record import Record
from pipeline.store.engine import snapshot
from pipeline.store.tables import RECORDS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE: Final = 1_000  # rows fetched together


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it lies there: `seq` is its place in the log, `body` its bytes."""

    seq: int
    decision_id: str
    body: bytes


def row_of(record: Record) -> dict[str, Any]:
    """The record's row. Subjects as sessions name them: `id:<subject id>` or `anonymous`."""
    return {
        "decision_id": record.decision_id,
        "at": (record.timestamp - _EPOCH) // _EPOCH.resolution,
        "subject": "anonymous" if record.subject is None else f"id:{record.subject}",
        "session": record.session,
        "verdict": record.verdict,
        "action": record.action,
        "revision": record.revision,
        "body": record.body,
        "digest": record.digest,
    }


def stored_record(engine: Engine, decision_id: str) -> Stored | None:
    """The record of that decision.

    Raises:
        StoreError: its bytes are not those that were written (`record.damaged`).
    """
    with snapshot(engine) as connection:
        row = connection.execute(_COLUMNS.where(RECORDS.c.decision_id == decision_id)).first()
    return None if row is None else _whole(row)


def stored_records(engine: Engine, *, after: int = 0) -> Iterator[Stored]:
    """The records whose place is beyond `after`, in order; StoreError as in `stored_record`."""
    more = True
    while more:
        with snapshot(engine) as connection:
            page = _COLUMNS.where(RECORDS.c.seq > after).order_by(RECORDS.c.seq).limit(_AT_ONCE)
            rows = connection.execute(page).all()
        for row in rows:
            yield _whole(row)
            after = row.seq
        more = len(rows) == _AT_ONCE


_COLUMNS: Final = select(RECORDS.c.seq, RECORDS.c.decision_id, RECORDS.c.body, RECORDS.c.digest)


def _whole(row: Any) -> Stored:
    if hashlib.sha256(row.body).hexdigest() != row.digest:
        raise StoreError(
            "a record is damaged", path=f"records[{row.seq}]", code="record.damaged", hint="see the backup"
        )
    return Stored(row.seq, row.decision_id, row.body)
