"""One database as a process uses it: an engine to read with, a writer to write with. Spec: docs/spec/recorder.md."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sqlalchemy.engine import URL

from cmf.identity import Clock
from pipeline.audit.exporting import EVERY_SECONDS, Exporter, HeadSink
from pipeline.audit.heads import Signer
from pipeline.authority import Authorise
from pipeline.errors import ConfigError
from pipeline.record import Record
from pipeline.sessions import wall_clock
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
    """The log of one process: its durable records, those that no exported head vouches for, exports that failed."""

    records: int
    unprotected: int
    export_failures: int


class Store:
    """An open database, migrated. Close it once; what waits is finished first.

    Args:
        url: see `open_engine`; or `Store.at(path)` for a SQLite file, `Store.named(place)` for what a user names.
        busy_seconds: how long one transaction waits for another process' (SQLite).
        max_waiting: writes that may wait before StoreBusy.
        key: the file of the Ed25519 key that signs the heads of the log of records; by default beside the database,
            made when the first record is kept. Better on a disk that who writes the database cannot read.
        heads: where the heads are exported to; without it nobody finds that the newest records were cut off.
        heads_seconds: how often they are, at most.
        keyless: it is opened to read and to index; putting something on record would fail.
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
        offer = _nobody if self.exporter is None else self.exporter.offer
        log = self._log = Log(self.signer, clock=clock, offer=offer)
        self.writer = Writer(self.engine, log, max_waiting=max_waiting)

    @classmethod
    def at(cls, file: str | Path, *, key: Path | None = None, heads: HeadSink | None = None) -> Store:
        """The store in a SQLite file, which is made if it is missing."""
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
        """The store at a path or URL, see `address_of`; a server needs a key."""
        return cls(address_of(place), key=key, keyless=keyless, heads=heads, heads_seconds=heads_seconds)

    def sessions(self, *, clock: Clock = wall_clock, timeout_seconds: float = TIMEOUT_SECONDS) -> SqlSessions:
        """The sessions in it; they live as long as the store."""
        return SqlSessions(self.engine, self.writer, clock=clock, timeout_seconds=timeout_seconds)

    def ledger(self) -> Ledger:
        """The conversations in it; they live as long as the store."""
        return Ledger(self.engine, self.writer)

    def put_on_record(self, record: Record) -> None:
        """Return when the record is durable; StoreError if it may not be."""
        waited(self.writer.insert(RECORDS, row_of(record)))

    @property
    def audit_state(self) -> AuditState:
        """How the log of this process does."""
        exporter = self.exporter
        exported = 0 if exporter is None else exporter.exported.get(self._log.id, 0)
        failures = 0 if exporter is None else exporter.failures
        return AuditState(self._log.size, self._log.size - min(exported, self._log.size), failures)

    @property
    def key_id(self) -> str:
        """The id of the key that signs here; it is made if it is missing.

        Raises:
            ConfigError: it cannot be read or made.
        """
        return self.signer().public_key.id

    def signer(self) -> Signer:
        """The key that signs here; it is made if it is missing.

        Raises:
            ConfigError: it cannot be read or made, or none was named for a server.
        """
        if self._key is None:
            raise _no_key()
        return Signer.at(self._key)

    def contents(self, *, rules: ContentRules | None = None, clock: Clock = wall_clock) -> Contents:
        """What was judged, as far as it is kept; it lives as long as the store."""
        return Contents(self.engine, self.writer, clock=clock, rules=rules)

    def overrides(self, *, may: Authorise = MAY, clock: Clock = wall_clock) -> StoreOverrides:
        """What two people let go on although policy denies it; it lives as long as the store."""
        return StoreOverrides(self.engine, self.writer, clock=clock, may=may)

    def close(self) -> None:
        """Finish what waits, and let go of all connections."""
        self.writer.close()
        if self.exporter is not None:
            self.exporter.close()
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def key_beside(file: str | Path) -> Path:
    """Where the key of a SQLite file is if nobody named another place."""
    return Path(f"{file}.key")


def _no_key() -> ConfigError:
    return ConfigError("a server has no place beside it for a key", path="key", hint="name the file of the key")


def _nobody(_: object) -> None:
    """Heads that are exported nowhere."""
