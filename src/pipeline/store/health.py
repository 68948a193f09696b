"""A read-only health check of a database: its schema, its disk space, and its newest record.

Spec: docs/spec/cli.md [CLI-78].
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from pipeline.audit.heads import Head
from pipeline.store.engine import SCHEMA, file_of, open_any_schema, snapshot
from pipeline.store.tables import HEADS, RECORDS


class DiskSpace(NamedTuple):
    """The disk space around a SQLite file, in bytes: the file, its write-ahead log, and what is free."""

    file: int
    journal: int
    free: int


class Condition(NamedTuple):
    """The state of a store.

    Attributes:
        schema: the schema version. is_current: whether it is this code's version; if not, nothing else is read.
        newest: the moment of the newest record; None if there is none.
        head: the newest head of that record's log.
    """

    schema: str
    is_current: bool
    newest: int | None = None
    head: Head | None = None


def condition_of(place: str | Path) -> Condition:
    """The state of the store at a path or URL. Nothing is created or changed.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such store, or it cannot be read.
    """
    engine, schema = open_any_schema(place)
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


def disk_space_of(place: str | Path) -> DiskSpace | None:
    """The disk space around a SQLite file, which need not exist yet; None for a server."""
    file = file_of(place)
    if file is None:
        return None
    ahead = file.with_name(f"{file.name}-wal")
    sizes = [one.stat().st_size if one.exists() else 0 for one in (file, ahead)]
    return DiskSpace(sizes[0], sizes[1], shutil.disk_usage(file.parent).free)
