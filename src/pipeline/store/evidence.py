"""A database as evidence: its logs, heads and records, as they lie there. Spec: docs/spec/audit.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Engine, Select, or_, select

from pipeline.audit.evidence import FIELDS, Leaf, LogRow, StoredHead
from pipeline.audit.heads import Head
from pipeline.store.engine import snapshot
from pipeline.store.tables import HEADS, LOGS, RECORDS

_AT_ONCE: Final = 2_000  # rows fetched together
_LEAF: Final = select(RECORDS.c.place, RECORDS.c.seq, *(RECORDS.c[name] for name in FIELDS), RECORDS.c.body)


class StoreEvidence:
    """What a database has of its logs. Each call sees one moment; a log only grows between two."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def logs(self) -> Iterator[LogRow]:
        """Every log."""
        for row in self._rows(select(LOGS).order_by(LOGS.c.opened_at, LOGS.c.id)):
            yield LogRow(**row)

    def heads(self, log: str) -> Iterator[StoredHead]:
        """The heads of a log, by size."""
        for row in self._rows(select(HEADS).where(HEADS.c.log == log).order_by(HEADS.c.size)):
            found = dict(row)
            leaves = found.pop("leaves")
            yield StoredHead(Head(**found), leaves)

    def leaves(self, log: str) -> Iterator[Leaf]:
        """The records of a log, by place."""
        return map(_leaf, self._rows(_LEAF.where(RECORDS.c.log == log).order_by(RECORDS.c.place)))

    def strays(self) -> Iterator[Leaf]:
        """The records of no log, or of one that is not among `logs`, by number."""
        known = select(LOGS.c.id)
        of_none = or_(RECORDS.c.log.is_(None), RECORDS.c.place.is_(None), RECORDS.c.log.not_in(known))
        return map(_leaf, self._rows(_LEAF.where(of_none).order_by(RECORDS.c.seq)))

    def _rows(self, query: Select[Any]) -> Iterator[Any]:
        with snapshot(self._engine) as connection:
            yield from connection.execute(query.execution_options(yield_per=_AT_ONCE)).mappings()


def _leaf(row: Any) -> Leaf:
    place, seq, *fields, body = row.values()
    return Leaf(place if type(place) is int else -1, seq, dict(zip(FIELDS, fields, strict=True)), body)


__all__ = ["StoreEvidence"]
