"""Records as rows, and the rows and indexed facts that a catalogue is built from.

Spec: docs/spec/review.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select

from pipeline.store.engine import snapshot
from pipeline.store.tables import RECORD_FACTS, RECORD_FACTS_DONE, RECORDS

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


__all__ = ["PLACED", "Part", "Placed", "bodies_of", "is_behind", "newest", "part_after", "rows_after"]
