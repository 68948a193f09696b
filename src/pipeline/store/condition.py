"""How a database does, told by somebody who only looks: its schema, room and journal, and the newest of its records.

Spec: docs/spec/cli.md [CLI-78].
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from pipeline.audit.heads import Head
from pipeline.store.engine import SCHEMA, file_of, looked_into, snapshot
from pipeline.store.tables import HEADS, RECORDS


class Room(NamedTuple):
    """What a SQLite file takes of its disk, in bytes: itself, what was written ahead, and what is left for others."""

    file: int
    journal: int
    free: int


class Condition(NamedTuple):
    """What was found.

    Attributes:
        schema: that of its tables. is_current: whether it is the one that this code knows; nothing else is read if not.
        newest: the moment of the newest record; None where there is none.
        head: the newest head of the log of that record.
    """

    schema: str
    is_current: bool
    newest: int | None = None
    head: Head | None = None


def condition_of(place: str | Path) -> Condition:
    """How the store at a path or URL does. Nothing is made or changed.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such store, or it cannot be read.
    """
    engine, schema = looked_into(place)
    try:
        if schema != SCHEMA:
            return Condition(schema, is_current=False)
        with snapshot(engine) as connection:
            newest = select(RECORDS.c.at, RECORDS.c.log).order_by(RECORDS.c.seq.desc()).limit(1)
            row = connection.execute(newest).first()
            if row is None:
                return Condition(schema, is_current=True)
            return Condition(schema, is_current=True, newest=row.at, head=_newest_head(connection, row.log))
    finally:
        engine.dispose()


def _newest_head(connection: Connection, log: str | None) -> Head | None:
    known = [column for column in HEADS.c if column.name != "leaves"]
    newest = select(*known).where(HEADS.c.log == log).order_by(HEADS.c.size.desc()).limit(1)
    found = connection.execute(newest).first()
    return None if found is None else Head(**found._asdict())


def room_of(place: str | Path) -> Room | None:
    """The room of a SQLite file, which need not be there yet; None for a server."""
    file = file_of(place)
    if file is None:
        return None
    ahead = file.with_name(f"{file.name}-wal")
    sizes = [one.stat().st_size if one.exists() else 0 for one in (file, ahead)]
    return Room(sizes[0], sizes[1], shutil.disk_usage(file.parent).free)


__all__ = ["Condition", "Room", "condition_of", "room_of"]
