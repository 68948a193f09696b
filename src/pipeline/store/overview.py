"""Records as rows; and what a catalogue of them is made of: rows and facts, in order, as far as facts are indexed.

Spec: docs/spec/review.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select

from pipeline.store.engine import snapshot
from pipeline.store.tables import RECORD_FACTS, RECORD_FACTS_DONE, RECORDS

_AT_ONCE: Final = 500  # numbers in one statement


@dataclass(frozen=True, slots=True)
class Placed:
    """A record's row without its bytes: all that its leaf is over, and where it is. `at`: microseconds, UTC."""

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
    """Some records that follow one another: their rows, the facts of each, the bytes of those that were asked for."""

    rows: Sequence[Placed]
    facts: Sequence[tuple[int, str, str]]
    bodies: dict[int, bytes | None]


def newest(engine: Engine, *, limit: int) -> list[Placed]:
    """The newest records, at most `limit`, the newest last. Nothing is written, and nobody is waited for who writes.

    Raises:
        StoreError: the database failed.
    """
    with snapshot(engine) as connection:
        found = connection.execute(PLACED.order_by(RECORDS.c.seq.desc()).limit(limit)).all()
    return [Placed(*row) for row in reversed(found)]


def rows_after(engine: Engine, after: int, *, limit: int) -> list[Placed]:
    """The records beyond the number `after`, in order, at most `limit`; as `newest`."""
    some = PLACED.where(RECORDS.c.seq > after).order_by(RECORDS.c.seq).limit(limit)
    with snapshot(engine) as connection:
        return [Placed(*row) for row in connection.execute(some)]


def is_behind(engine: Engine) -> bool:
    """Whether there are records whose facts are not indexed."""
    with snapshot(engine) as connection:
        newest = connection.execute(select(func.max(RECORDS.c.seq))).scalar() or 0
        return newest > (connection.execute(select(RECORD_FACTS_DONE.c.upto)).scalar() or 0)


def part_after(engine: Engine, after: int, *, kinds: Collection[str], limit: int = 5_000) -> Part:
    """The indexed records beyond the number `after`, at most `limit`; with the bytes of those of these kinds.

    Raises:
        StoreError: the database failed.
    """
    with snapshot(engine) as connection:
        upto = connection.execute(select(RECORD_FACTS_DONE.c.upto)).scalar() or 0
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
    """The bytes of the records with these numbers; None where they were erased."""
    with snapshot(engine) as connection:
        return _bodies(connection, numbers)


def _bodies(connection: Connection, numbers: Sequence[int]) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        some = select(RECORDS.c.seq, RECORDS.c.body).where(RECORDS.c.seq.in_(numbers[start : start + _AT_ONCE]))
        found |= {row.seq: row.body for row in connection.execute(some)}
    return found


__all__ = ["PLACED", "Part", "Placed", "bodies_of", "is_behind", "newest", "part_after", "rows_after"]
