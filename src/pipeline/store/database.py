"""One database as a process uses it: an engine to read with, a writer to write with. Spec: docs/spec/recorder.md."""

from __future__ import annotations

from pathlib import Path

from cmf.identity import Clock
from pipeline.sessions import wall_clock
from pipeline.store.engine import BUSY_SECONDS, open_engine
from pipeline.store.sessions import SqlSessions
from pipeline.store.writer import MAX_BATCH, MAX_WAITING, TIMEOUT_SECONDS, Writer


class Store:
    """An open database, migrated. Close it once; what waits is finished first.

    Args:
        url: see `open_engine`; `Store.at(path)` for a SQLite file.
        busy_seconds: how long one transaction waits for another process' (SQLite).
        max_waiting: writes that may wait before StoreBusy. max_batch: writes that share one commit, at most.
    """

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = BUSY_SECONDS,
        max_waiting: int = MAX_WAITING,
        max_batch: int = MAX_BATCH,
    ) -> None:
        self.engine = open_engine(url, busy_seconds=busy_seconds)
        self.writer = Writer(self.engine, max_waiting=max_waiting, max_batch=max_batch)

    @classmethod
    def at(cls, file: Path) -> Store:
        """The store in a SQLite file, which is made if it is missing."""
        return cls(f"sqlite:///{file.absolute()}")

    def sessions(self, *, clock: Clock = wall_clock, timeout_seconds: float = TIMEOUT_SECONDS) -> SqlSessions:
        """The sessions in it; they live as long as the store."""
        return SqlSessions(self.engine, self.writer, clock=clock, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Finish what waits, and let go of all connections."""
        self.writer.close()
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
