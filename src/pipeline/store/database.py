"""An open database: an engine for reading, and the process's one writer. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakSet

from sqlalchemy.engine import URL

from cmf.identity import Clock
from pipeline.audit.exporting import EVERY_SECONDS, Exporter, HeadSink
from pipeline.audit.heads import Signer
from pipeline.audit.record import Record
from pipeline.authority import Authorise
from pipeline.errors import ConfigError
from pipeline.sessions.base import wall_clock
from pipeline.store.contents import ContentRules, Contents
from pipeline.store.engine import BUSY_SECONDS, address_of, open_engine
from pipeline.store.ledger import Ledger
from pipeline.store.log import Log
from pipeline.store.overrides import MAY, StoreOverrides
from pipeline.store.records import row_of
from pipeline.store.sessions import SqlSessions
from pipeline.store.tables import RECORDS
from pipeline.store.writer import MAX_WAITING, TIMEOUT_SECONDS, Writer, waited


class AuditState(NamedTuple):
    """The log of one process: its durable records, those not yet covered by an exported head, and failed exports."""

    records: int
    unprotected: int
    export_failures: int


class Store:
    """An open, migrated database. Close it once; queued writes are finished first.

    Args:
        url: see `open_engine`; `Store.at(path)` takes a SQLite file, `Store.named(place)` what a user typed.
        busy_seconds: how long a transaction waits for another process (SQLite).
        max_waiting: writes that may be queued before StoreBusy.
        key: the file of the Ed25519 key that signs the log's heads; by default beside the database, created with the
            first record. It is safer where those who can write the database cannot read it.
        heads: where heads are exported to; without it, cutting off the newest records goes unnoticed.
        heads_seconds: the shortest time between two exports.
        keyless: opened for reading and indexing only; recording anything would fail.
        clock: the time of heads.
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
        self.engine = open_engine(url, busy_seconds=busy_seconds)
        is_file = self.engine.dialect.name == "sqlite"
        self._key = key_beside(str(self.engine.url.database)) if key is None and is_file else key
        if self._key is None and not keyless:
            self.engine.dispose()
            raise _no_key()
        self.exporter = None if heads is None else Exporter(heads, every_seconds=heads_seconds)
        offer = _discard if self.exporter is None else self.exporter.offer
        log = self._log = Log(self.signer, clock=clock, offer=offer)
        self.writer = Writer(self.engine, log, max_waiting=max_waiting)
        _opened.add(self)

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
        return SqlSessions(self.engine, self.writer, clock=clock, timeout_seconds=timeout_seconds)

    def ledger(self) -> Ledger:
        """The ledger of conversations; usable while this store is open."""
        return Ledger(self.engine, self.writer)

    def put_on_record(self, record: Record) -> None:
        """Keep the record and return once it is durable; StoreError if it may not be."""
        waited(self.writer.insert(RECORDS, row_of(record)))

    @property
    def audit_state(self) -> AuditState:
        """The state of this process's log."""
        exporter = self.exporter
        exported = 0 if exporter is None else exporter.exported.get(self._log.id, 0)
        failures = 0 if exporter is None else exporter.failures
        return AuditState(self._log.size, self._log.size - min(exported, self._log.size), failures)

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
        if self._key is None:
            raise _no_key()
        return Signer.at(self._key)

    def contents(self, *, rules: ContentRules | None = None, clock: Clock = wall_clock) -> Contents:
        """The stored content of runs; usable while this store is open."""
        return Contents(self.engine, self.writer, clock=clock, rules=rules)

    def overrides(self, *, may: Authorise = MAY, clock: Clock = wall_clock) -> StoreOverrides:
        """The overrides, by which two people lift a denial; usable while this store is open."""
        return StoreOverrides(self.engine, self.writer, clock=clock, may=may)

    def close(self) -> None:
        """Finish queued writes and close all connections."""
        self.writer.close()
        if self.exporter is not None:
            self.exporter.close()
        self.engine.dispose()

    def disown(self) -> None:
        """Keep this process, a fork of the one that opened the store, off its log and its connections."""
        self.engine.dispose(close=False)
        self.writer.disown()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_opened: Final[WeakSet[Store]] = WeakSet()


def _disown_all() -> None:
    for store in tuple(_opened):
        store.disown()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_disown_all)


def key_beside(file: str | Path) -> Path:
    """The default key file of a SQLite file."""
    return Path(f"{file}.key")


def _no_key() -> ConfigError:
    return ConfigError("a database server needs a key file", path="key", hint="name the file of the key")


def _discard(_: object) -> None:
    """A sink that exports heads nowhere."""
