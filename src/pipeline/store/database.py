"""An open database: an engine for reading, and the process's one writer. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Condition
from typing import Final, NamedTuple, cast

from sqlalchemy import Engine, select
from sqlalchemy.engine import URL

from cmf.message.ids import Clock
from pipeline.audit.exporting import EVERY_SECONDS, Exporter, HeadSink
from pipeline.audit.heads import Head, Signer
from pipeline.audit.record import Record
from pipeline.decisions.authority import Authorise
from pipeline.decisions.errors import ConfigError, StoreError
from pipeline.sessions.base import wall_clock
from pipeline.store.contents import Contents
from pipeline.store.conversations import Ledger
from pipeline.store.engine import (
    BUSY_SECONDS,
    SCHEMA,
    address_of,
    file_of,
    identity_of,
    open_any_schema,
    open_engine,
    resolved,
    snapshot,
)
from pipeline.store.four_eyes import ContentRules
from pipeline.store.log import Log
from pipeline.store.overrides import MAY, StoreOverrides
from pipeline.store.records import row_of
from pipeline.store.sessions import SqlSessions
from pipeline.store.tables import HEADS, RECORDS
from pipeline.store.writer import MAX_WAITING, TIMEOUT_SECONDS, Writer, waited


class DiskSpace(NamedTuple):
    """The disk space around a SQLite file, in bytes: the file, its write-ahead log, and what is free."""

    file: int
    journal: int
    free: int


class StoreCondition(NamedTuple):
    """The state of a store; if its schema is not this code's (`is_current`), nothing else is read.

    `newest` is the moment of the newest record, None if there is none, and `head` the newest head of its log.
    """

    schema: str
    is_current: bool
    newest: int | None = None
    head: Head | None = None


def condition_of(place: str | Path) -> StoreCondition:
    """The state of the store at a path or URL. Nothing is created or changed.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such store, or it cannot be read.
    """
    engine, schema = open_any_schema(place)
    try:
        if schema != SCHEMA:
            return StoreCondition(schema, is_current=False)
        with snapshot(engine) as connection:
            newest = select(RECORDS.c.at, RECORDS.c.log).order_by(RECORDS.c.seq.desc()).limit(1)
            row = connection.execute(newest).first()
            if row is None:
                return StoreCondition(schema, is_current=True)
            heads = select(*(column for column in HEADS.c if column.name != "leaves")).where(HEADS.c.log == row.log)
            stored = connection.execute(heads.order_by(HEADS.c.size.desc()).limit(1)).first()
            head = None if stored is None else Head(**stored._asdict())
            return StoreCondition(schema, is_current=True, newest=row.at, head=head)
    finally:
        engine.dispose()


def disk_space_of(place: str | Path) -> DiskSpace | None:
    """The disk space around a SQLite file, which need not exist yet; None for a server."""
    file = file_of(place)
    if file is None:
        return None
    ahead = file.with_name(f"{file.name}-wal")
    sizes = [one.stat().st_size if one.exists() else 0 for one in (file, ahead)]
    return DiskSpace(sizes[0], sizes[1], shutil.disk_usage(file.parent).free)


class AuditState(NamedTuple):
    """The log of one process: its durable records, those not yet covered by an exported head, and failed exports."""

    records: int
    unprotected: int
    export_failures: int


class _Shared:
    """What all stores of one database file in this process share. A server is not shared: its locks are its own."""

    def __init__(self, engine: Engine, key: Path | None, *, keyless: bool, clock: Clock, max_waiting: int) -> None:
        is_file = engine.dialect.name == "sqlite"
        self.engine = engine
        self.file = identity_of(str(engine.url.database)) if is_file else None
        self.key = key_beside(str(engine.url.database)) if key is None and is_file else key
        if self.key is None and not keyless:
            engine.dispose()
            raise _no_key()
        self.heads: HeadSink | None = None
        self.exporter: Exporter | None = None
        self.log = Log(self.signer, clock=clock, offer=self._offer)
        self.writer = Writer(engine, self.log, max_waiting=max_waiting)
        self.stores = 0
        self.closing = False

    def join(self, key: Path | None, heads: HeadSink | None, heads_seconds: float) -> None:
        """Count one more store, which wants this key and these heads."""
        if self.stores and key is not None and key.resolve() != cast("Path", self.key).resolve():
            raise _open_otherwise("key")
        if heads is not None and self.heads not in (None, heads):
            raise _open_otherwise("heads")
        if heads is not None and self.exporter is None:
            self.heads, self.exporter = heads, Exporter(heads, every_seconds=heads_seconds)
        self.stores += 1

    def signer(self) -> Signer:
        """The key that signs here; created if it is missing."""
        if self.key is None:
            raise _no_key()
        return Signer.at(self.key)

    def _offer(self, head: Head) -> None:
        if self.exporter is not None:
            self.exporter.offer(head)

    def finish(self) -> None:
        """Have all queued writes done, and heads exported; nothing is closed."""
        with suppress(StoreError):  # each write was told why it failed
            self.writer.call(lambda _: None).result()
        if self.exporter is not None:
            self.exporter.flush()

    def close(self) -> None:
        """Finish queued writes and close all connections."""
        self.writer.close()
        if self.exporter is not None:
            self.exporter.close()
        self.engine.dispose()


class Store:
    """An open, migrated database. Close it once; queued writes are finished first.

    Stores of one SQLite file in a process share one engine, writer and log, until the last of them is closed [REC-25].

    Args:
        url: see `open_engine`; `Store.at(path)` takes a SQLite file, `Store.named(place)` what a user typed.
        busy_seconds: how long a transaction waits for another process (SQLite).
        max_waiting: writes that may be queued before StoreBusy.
        key: the file of the Ed25519 key that signs the log's heads; by default beside the database, created with the
            first record. It is safer where those who can write the database cannot read it.
        heads: where heads are exported to; without it, cutting off the newest records goes unnoticed.
        keyless: opened for reading and indexing only; recording anything would fail.

    Raises:
        ConfigError: a URL of another kind, or this process has the file open with another key, or other exported heads.
        StoreError: see `open_engine`.
    """

    def __init__(
        self,
        url: str | URL,
        *,
        busy_seconds: float = BUSY_SECONDS,
        max_waiting: int = MAX_WAITING,
        key: Path | None = None,
        keyless: bool = False,
        heads: HeadSink | None = None,
        heads_seconds: float = EVERY_SECONDS,
        clock: Clock = wall_clock,
    ) -> None:
        target = resolved(url)
        with _gate:
            while (shared := _open_at(target)) is not None and shared.closing:
                _gate.wait()
            if shared is None:
                engine = open_engine(target, busy_seconds=busy_seconds)
                shared = _Shared(engine, key, keyless=keyless, clock=clock, max_waiting=max_waiting)
                _opened.append(shared)
            shared.join(key, heads, heads_seconds)
        self._shared: Final = shared
        self._keyless = keyless
        self._closed = False
        self.engine: Final = shared.engine
        self.writer: Final = shared.writer

    @classmethod
    def at(cls, file: str | Path, *, key: Path | None = None, heads: HeadSink | None = None) -> Store:
        """The store in a SQLite file, created if it is missing."""
        return cls(address_of(Path(file)), key=key, heads=heads)

    @classmethod
    def named(
        cls,
        place: str | Path,
        *,
        key: Path | None = None,
        keyless: bool = False,
        heads: HeadSink | None = None,
        heads_seconds: float = EVERY_SECONDS,
    ) -> Store:
        """The store at a path or URL (see `address_of`); a server needs a key."""
        return cls(address_of(place), key=key, keyless=keyless, heads=heads, heads_seconds=heads_seconds)

    def sessions(self, *, clock: Clock = wall_clock, timeout_seconds: float = TIMEOUT_SECONDS) -> SqlSessions:
        """The session store; usable while this store is open."""
        return SqlSessions(
            self.engine, self.writer, clock=clock, timeout_seconds=timeout_seconds, keeps_records=not self._keyless
        )

    def ledger(self) -> Ledger:
        """The ledger of conversations; usable while this store is open."""
        return Ledger(self.engine, self.writer)

    def put_on_record(self, record: Record) -> None:
        """Keep the record and return once it is durable; StoreError if it may not be."""
        waited(self.writer.insert(RECORDS, row_of(record)))

    @property
    def exporter(self) -> Exporter | None:
        """What exports heads, if anything does."""
        return self._shared.exporter

    @property
    def audit_state(self) -> AuditState:
        """The state of this process's log."""
        exporter, log = self._shared.exporter, self._shared.log
        exported = 0 if exporter is None else exporter.exported.get(log.id, 0)
        failures = 0 if exporter is None else exporter.failures
        return AuditState(log.size, log.size - min(exported, log.size), failures)

    @property
    def key_id(self) -> str:
        """The id of the key that signs here; created if it is missing.

        Raises:
            ConfigError: it cannot be read or created.
        """
        return self.signer().public_key.id

    def signer(self) -> Signer:
        """The key that signs here; created if it is missing.

        Raises:
            ConfigError: it cannot be read or created, or none was given for a server.
        """
        return self._shared.signer()

    def contents(self, *, rules: ContentRules | None = None, clock: Clock = wall_clock) -> Contents:
        """The stored content of runs; usable while this store is open."""
        return Contents(self.engine, self.writer, clock=clock, rules=rules)

    def overrides(self, *, may: Authorise = MAY, clock: Clock = wall_clock) -> StoreOverrides:
        """The overrides, by which two people lift a denial; usable while this store is open."""
        return StoreOverrides(self.engine, self.writer, clock=clock, may=may)

    def close(self) -> None:
        """Finish queued writes; the last store of a file closes all connections."""
        shared = self._shared
        with _gate:
            if self._closed or shared not in _opened:
                return
            self._closed = True
            shared.stores -= 1
            shared.closing = not shared.stores
        if not shared.closing:
            shared.finish()
            return
        try:
            shared.close()
        finally:
            with _gate:
                _opened.remove(shared)
                _gate.notify_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_gate = Condition()  # of what follows
_opened: Final[list[_Shared]] = []


def _open_at(target: URL) -> _Shared | None:
    """What this process has open at the SQLite file, by whatever name."""
    file = identity_of(str(target.database)) if target.get_backend_name() == "sqlite" else None
    return None if file is None else next((shared for shared in _opened if shared.file == file), None)


def _disown_all() -> None:
    """Keep this process, a fork of the one that opened the stores, off their logs and connections."""
    global _gate  # another thread may have held it
    _gate = Condition()
    for shared in _opened:
        shared.writer.disown()
        if shared.file is None:
            shared.engine.dispose(close=False)
    _opened.clear()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_disown_all)


def key_beside(file: str | Path) -> Path:
    """The default key file of a SQLite file."""
    return Path(f"{file}.key")


def _no_key() -> ConfigError:
    return ConfigError("a database server needs a key file", path="key", hint="name the file of the key")


def _open_otherwise(name: str) -> ConfigError:
    problem = f"this process has the store open with another value of `{name}`"
    return ConfigError(problem, code="config.store", hint="give both the same, or close the other one first")
