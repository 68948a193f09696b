"""The one writer of a process: a thread with a connection that commits all queued jobs together [E2].

While one transaction is being made durable, the next jobs queue up, to share one commit and its fsync.
Spec: docs/spec/recorder.md.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event
from time import sleep
from typing import Any, Final, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DataError, SQLAlchemyError

from pipeline.decisions.errors import StoreBusy, StoreError
from pipeline.store.engine import (
    Identity,
    check_nothing_acts,
    forked,
    identity_of,
    insert_rows,
    keep_forever,
    schema_version,
    unavailable,
    writing,
)
from pipeline.store.log import Log
from pipeline.store.tables import CONTENTS, RECORDS

MAX_WAITING: Final = 4_096  # queued jobs; with 64 requests in flight, many seconds of work: more is overload
MAX_BATCH: Final = 256  # jobs in one transaction: bounds how long the first waits for the last
TIMEOUT_SECONDS: Final = 5.0
GATHER_SECONDS: Final = 0.002  # per job in the previous commit; a commit costs as much CPU as twenty records
MAX_GATHER_SECONDS: Final = 0.01
MAX_EXPECTED_SECONDS: Final = 0.005  # if the number of requests in flight is known and they are scheduled promptly
LATE_SHARE: Final = 2.0  # of the scheduling delay: a request released earlier would only wait there instead
MAX_LATE_SECONDS: Final = 0.04

_T = TypeVar("_T")


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded(Generic[_T]):
    """The return value of a job that records what it did: its result, and rows for its transaction.

    Attributes:
        records: rows of `RECORDS`.
        contents: rows of `CONTENTS`, for content stored apart from those records.
    """

    result: _T
    records: Sequence[Row]
    contents: Sequence[Row] = ()


class Completion(Protocol):
    """The part of a `Future` with which the writer reports how a job ended."""

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the job is still wanted. Called when it starts."""
        ...

    def set_result(self, result: None, /) -> None:
        """Called once the job is durable."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Called with the reason if the job is not durable."""
        ...


class _Insert:
    """A job that inserts rows, all or none. The rows of a batch are inserted with one statement per table."""

    __slots__ = ("future", "rows", "wake")

    def __init__(
        self, future: Completion, rows: Sequence[tuple[Table, Row]], wake: Callable[[], None] | None = None
    ) -> None:
        self.future = future
        self.rows = rows
        self.wake = wake


class _Call:
    """A job that reads before it writes. If it raises, only its own work is rolled back."""

    __slots__ = ("future", "job", "wake")

    def __init__(self, future: Future[Any], job: Callable[[Connection], Any]) -> None:
        self.future = future
        self.job = job
        self.wake = None


class Writer:
    """Makes changes durable, many with one commit. Safe to use from any thread.

    Args:
        log: what gives each record its place.
    """

    def __init__(self, engine: Engine, log: Log, *, max_waiting: int = MAX_WAITING, max_batch: int = MAX_BATCH) -> None:
        self._engine = engine
        self._log = log
        self._is_strict = engine.dialect.name == "postgresql"  # it cannot store NUL in text
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: queue.SimpleQueue[_Insert | _Call | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._in_work: Callable[[], int] | None = None
        self._wanted = sys.maxsize  # stop gathering once this many jobs are queued
        self._enough = Event()
        self._share = 1.0  # jobs per commit, as a moving average
        self._late = 0.0  # seconds
        self._closed = False
        self._is_forked = False
        self._connection: Connection | None = None
        file = str(engine.url.database)
        self._places = (file, f"{file}-wal") if engine.dialect.name == "sqlite" else ()
        self._file = identity_of(self._places[0]) if self._places else None
        self._journal: Identity | None = None  # as the connection found it
        self._lost = False
        self._schema: int | None = None  # its version when it was last checked
        self.failure: StoreError | None = None  # why the last commit failed; None if it did not
        self._thread = threading.Thread(target=self._run, name="cmf-store-writer", daemon=True)
        self._thread.start()

    def expect(self, in_work: Callable[[], int]) -> None:
        """Gather jobs by `in_work`, the number of requests that may write: a commit waits for two thirds of them."""
        self._in_work = in_work

    def late(self, seconds: float) -> None:
        """Report how long requests wait to be scheduled after a commit: a commit may wait that long at no cost."""
        self._late = seconds

    def insert(self, table: Table, values: Row) -> Future[None]:
        """A future that completes when the row is durable, and raises StoreError if it is not. As `insert_all`."""
        return self.insert_all([(table, values)])

    def insert_all(self, rows: Sequence[tuple[Table, Row]]) -> Future[None]:
        """A future that completes when all rows are durable, and raises StoreError if none is.

        Records get their place in the log. A row must come after those it refers to.

        Raises:
            StoreBusy: the queue is full. StoreError: the store is closed (`store.closed`).
        """
        future: Future[None] = Future()
        self.insert_for(future, rows)
        return future

    def insert_for(
        self, completion: Completion, rows: Sequence[tuple[Table, Row]], wake: Callable[[], None] | None = None
    ) -> None:
        """As `insert_all`, but reports to `completion`.

        `wake` is called after that, once per commit, however many jobs passed the same function.
        """
        if self._is_strict and any(type(item) is str and "\x00" in item for _, row in rows for item in row.values()):
            raise _unstorable()
        self._put(_Insert(completion, rows, wake))

    def call(self, job: Callable[[Connection], _T]) -> Future[_T]:
        """A future of the result of `job`, completed once its changes are durable. If it raises, they are undone.

        See `recorded` for a job that records what it did.

        Raises:
            StoreBusy: the queue is full. StoreError: the store is closed (`store.closed`).
        """
        future: Future[_T] = Future()
        self._put(_Call(future, job))
        return future

    def recorded(self, job: Callable[[Connection], Recorded[_T]]) -> Future[_T]:
        """As `call`; the job's records and its changes become durable together or not at all."""
        future: Future[_T] = Future()
        self._put(_Call(future, job))
        return future

    def close(self) -> None:
        """Finish queued jobs and stop."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
        self._waiting.put(None)
        self._enough.set()
        self._thread.join()

    def disown(self) -> None:
        """Refuse every write from now on, in a process that was forked from the writer's: its thread is not here."""
        self._gate = threading.Lock()  # another thread may have held it
        self._closed = self._is_forked = True
        keep_forever(self._connection)

    def _put(self, item: _Insert | _Call) -> None:
        with self._gate:
            if self._is_forked:
                raise forked()
            if self._closed:
                raise StoreError("the store is closed", code="store.closed", hint="open it again")
            if self._waiting.qsize() >= self._max_waiting:  # under the lock, nobody else adds to the queue
                raise StoreBusy("too many writes are waiting for the store", hint="try again shortly")
            self._waiting.put(item)
            if self._waiting.qsize() >= self._wanted:
                self._wanted = sys.maxsize  # signal once
                self._enough.set()

    def _run(self) -> None:
        more, before = True, 0
        while more:
            if self._in_work is not None:
                self._gather_most(self._in_work)
            elif before > 1 and self._waiting.qsize() < before:
                sleep(min((before - 1) * GATHER_SECONDS, MAX_GATHER_SECONDS))
            batch, more = self._batch()
            before = len(batch)
            self._share = (self._share + before) / 2
            live = [item for item in batch if item.future.set_running_or_notify_cancel()]
            if live:
                self._write(live)
                for wake in {item.wake for item in live if item.wake is not None}:
                    wake()
        self._disconnect()

    def _gather_most(self, in_work: Callable[[], int]) -> None:
        """Wait until two thirds of the requests in work have queued a job, as long as commits are shared at all.

        Waiting for all of them would leave nobody working. The number per commit is averaged over several commits,
        because requests do not return as evenly as a commit releases them. An empty queue is waited for too: waking for
        the first job and again for the last would interrupt the other threads twice.
        """
        most = max(MAX_EXPECTED_SECONDS, min(self._late * LATE_SHARE, MAX_LATE_SECONDS))
        seconds = min((self._share - 1) * GATHER_SECONDS, most)
        wanted = in_work() * 2 // 3
        if seconds <= 0 or self._waiting.qsize() >= wanted:
            return
        self._enough.clear()
        self._wanted = wanted
        if self._waiting.qsize() < wanted and not self._closed:  # a job queued in between may not have seen `_wanted`
            self._enough.wait(seconds)
        self._wanted = sys.maxsize

    def _batch(self) -> tuple[list[_Insert | _Call], bool]:
        """All queued jobs, waiting for at least one; and whether more may come."""
        items: list[_Insert | _Call] = []
        item = self._waiting.get()
        while item is not None:
            items.append(item)
            if len(items) == self._max_batch:
                return items, True
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return items, True
        return items, False

    def _write(self, batch: list[_Insert | _Call]) -> None:
        done: list[tuple[Any, Any]] = []
        refused: list[tuple[Future[Any], Exception]] = []
        try:
            self._check_kept()
            with self._connected().begin():
                if self._places and self._journal is None:
                    self._journal = identity_of(self._places[1])
                self._check_schema()
                rows: list[tuple[Table, Row]] = []
                for item in batch:
                    if isinstance(item, _Insert):
                        rows += item.rows
                        done.append((item.future, None))
                    else:
                        rows += self._execute(item, done, refused)
                self._insert_rows(rows)
                self._check_kept()
            self._check_kept()
        except Exception as error:  # noqa: BLE001 - every waiting request must hear of any failure
            self._disconnect()
            self.failure = _failed(error)
            for item in batch:
                item.future.set_exception(_failed(error))
            return
        # Only now is anything durable, and only now is anything reported.
        self.failure = None if done else self.failure
        if any(
            table is RECORDS for table, _ in rows
        ):  # otherwise the log's last transaction, which may have failed, is still open
            self._log.committed()
        for future, exception in refused:
            future.set_exception(exception)
        for future, result in done:
            future.set_result(result)

    def _insert_rows(self, rows: list[tuple[Table, Row]]) -> None:
        for table in {table.name: table for table, _ in rows}.values():
            values: Sequence[Row] = [row for home, row in rows if home is table]
            if table is RECORDS:
                values = self._log.append(self._connected(), values)
            insert_rows(self._connected(), table, values)

    def _execute(
        self, call: _Call, done: list[tuple[Any, Any]], refused: list[tuple[Future[Any], Exception]]
    ) -> list[tuple[Table, Row]]:
        """The record rows that the job returned."""
        try:
            with self._connected().begin_nested():
                result = call.job(self._connected())
        except DataError:  # a value that this database cannot store concerns only its caller
            refused.append((call.future, _unstorable()))
            return []
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - one job's error must not stop the others
            refused.append((call.future, error))
            return []
        if isinstance(result, Recorded):
            done.append((call.future, result.result))
            return [*((RECORDS, row) for row in result.records), *((CONTENTS, row) for row in result.contents)]
        done.append((call.future, result))
        return []

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = writing(self._engine.connect())
        return self._connection

    def _check_schema(self) -> None:
        """Check that nobody planted anything in the file since it was last written here; nobody else can just now."""
        version = schema_version(self._connected())
        if version != self._schema:
            check_nothing_acts(self._connected())
            self._schema = version

    def _check_kept(self) -> None:
        """Check that the database file, and the journal this connection writes to, are still where others find them.

        If somebody removed one, or put another in its place, what is committed here would end with this process.
        """
        if self._places:
            file, journal = map(identity_of, self._places)
            self._lost |= file != self._file or self._journal not in (None, journal)
            if self._lost:
                raise _removed()

    def _disconnect(self) -> None:
        # A transaction may still be open on it: discard the connection, never return it to the pool.
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = self._journal = None


def _failed(error: Exception) -> StoreError:
    if isinstance(error, StoreError):  # one of its own for each who waits
        return StoreError(error.message, path=error.path, code=error.code, hint=error.hint)
    return unavailable("the write to the store failed", error)


def _removed() -> StoreError:
    hint = "stop everything that has it open, find out what removed it or its `-wal` file, and start again"
    return StoreError("the database file was removed or replaced while it was open", code="store.removed", hint=hint)


def _unstorable() -> StoreError:
    return StoreError(
        "the database cannot store a value", code="store.unstorable", hint="remove NUL characters from names and text"
    )


def waited(future: Future[_T], timeout_seconds: float = TIMEOUT_SECONDS) -> _T:
    """The future's result.

    Raises:
        StoreError: it did not arrive in time (`store.timeout`): the write may or may not be durable.
    """
    try:
        return future.result(timeout_seconds)
    except TimeoutError:
        future.cancel()
        raise StoreError("the store did not answer in time", code="store.timeout", hint="try again") from None
