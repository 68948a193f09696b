"""The one writer of a process: a thread with a connection that commits all waiting jobs together [E2].

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

from pipeline.errors import StoreBusy, StoreError
from pipeline.store.engine import insert_rows, unavailable, writing
from pipeline.store.log import Log
from pipeline.store.tables import RECORDS

MAX_WAITING: Final = 4_096  # jobs in the queue; at 64 in flight this is many seconds of work, and more is an overload
MAX_BATCH: Final = 256  # jobs in one transaction: bounds how long the first of them waits for the last
TIMEOUT_SECONDS: Final = 5.0
GATHER_SECONDS: Final = 0.002  # for each job that shared the commit before; a commit takes the CPU of twenty records
MAX_GATHER_SECONDS: Final = 0.01
MAX_TOLD_SECONDS: Final = 0.005  # where it is known how many may come, and those let go on soon have their turn
LATE_SHARE: Final = 2.0  # of what those let go on wait for their turn: who went on sooner would wait there instead
MAX_LATE_SECONDS: Final = 0.04

_T = TypeVar("_T")


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded(Generic[_T]):
    """What a job returns to be put on record: its result, and rows of `RECORDS` for the same transaction."""

    result: _T
    records: Sequence[Row]


class Told(Protocol):
    """The part of a `Future` that the writer uses to tell how a job ended."""

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the job is still wanted. Called when it begins."""
        ...

    def set_result(self, result: None, /) -> None:
        """Told when the job is durable."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Told when the job is not durable, and why."""
        ...


class _Rows:
    """A job that inserts rows, all or none. Those of a batch are inserted together, with one statement per table."""

    __slots__ = ("future", "rows", "wake")

    def __init__(self, future: Told, rows: Sequence[tuple[Table, Row]], wake: Callable[[], None] | None = None) -> None:
        self.future = future
        self.rows = rows
        self.wake = wake


class _Call:
    """A job that reads before it writes. If it raises, its own work alone is undone."""

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
        self._is_strict = engine.dialect.name == "postgresql"  # it has texts without NUL alone
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: queue.SimpleQueue[_Rows | _Call | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._in_work: Callable[[], int] | None = None
        self._wanted = sys.maxsize  # a commit waits no longer once this many jobs are in the queue
        self._enough = Event()
        self._share = 1.0  # jobs per commit, as a moving average
        self._late = 0.0  # seconds
        self._closed = False
        self._connection: Connection | None = None
        self.failure: StoreError | None = None  # why the last commit failed; None if it did not
        self._thread = threading.Thread(target=self._run, name="cmf-store-writer", daemon=True)
        self._thread.start()

    def expect(self, in_work: Callable[[], int]) -> None:
        """Use `in_work`, the number of requests that may write something: two thirds of them are to share a commit."""
        self._in_work = in_work

    def late(self, seconds: float) -> None:
        """Be told how long requests waited for their turn after a commit: a commit so much later costs them nothing."""
        self._late = seconds

    def insert(self, table: Table, values: Row) -> Future[None]:
        """Done when the row is durable; the future raises StoreError where it is not. As `insert_all`."""
        return self.insert_all([(table, values)])

    def insert_all(self, rows: Sequence[tuple[Table, Row]]) -> Future[None]:
        """Done when all the rows are durable; the future raises StoreError where none of them is.

        A record gets its place in the log. A row that refers to another comes after it.

        Raises:
            StoreBusy: too much waits already. StoreError: the store is closed (`store.closed`).
        """
        future: Future[None] = Future()
        self.insert_for(future, rows)
        return future

    def insert_for(self, told: Told, rows: Sequence[tuple[Table, Row]], wake: Callable[[], None] | None = None) -> None:
        """As `insert_all`, but `told` hears how it ended.

        `wake` is called after that; once a commit, however many jobs brought the same function.
        """
        if self._is_strict and any(type(item) is str and "\x00" in item for _, row in rows for item in row.values()):
            raise _unstorable()
        self._put(_Rows(told, rows, wake))

    def call(self, job: Callable[[Connection], _T]) -> Future[_T]:
        """A future of what `job` returns, done once its changes are durable. If it raises, they are undone.

        See `recorded` for a job that puts what it did on record.

        Raises:
            StoreBusy: too much waits already. StoreError: the store is closed (`store.closed`).
        """
        future: Future[_T] = Future()
        self._put(_Call(future, job))
        return future

    def recorded(self, job: Callable[[Connection], Recorded[_T]]) -> Future[_T]:
        """As `call`; the job's records become durable together with its changes, or neither does."""
        future: Future[_T] = Future()
        self._put(_Call(future, job))
        return future

    def close(self) -> None:
        """Finish what waits, and stop."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
        self._waiting.put(None)
        self._enough.set()
        self._thread.join()

    def _put(self, item: _Rows | _Call) -> None:
        with self._gate:
            if self._closed:
                raise StoreError("the store is closed", code="store.closed", hint="open it again")
            if self._waiting.qsize() >= self._max_waiting:  # nobody else puts anything there meanwhile
                raise StoreBusy("too much waits for the store", hint="try again shortly")
            self._waiting.put(item)
            if self._waiting.qsize() >= self._wanted:
                self._wanted = sys.maxsize  # said once
                self._enough.set()

    def _run(self) -> None:
        more, before = True, 0
        while more:
            self._gather(before)
            batch, more = self._batch()
            before = len(batch)
            self._share = (self._share + before) / 2
            live = [item for item in batch if item.future.set_running_or_notify_cancel()]
            if live:
                self._write(live)
                for wake in {item.wake for item in live if item.wake is not None}:
                    wake()
        self._disconnect()

    def _gather(self, before: int) -> None:
        """Wait for about as many jobs as shared the last commit (`before`). A job that was alone never waits."""
        if self._in_work is not None:
            self._gather_most(self._in_work)
        elif before > 1 and self._waiting.qsize() < before:
            sleep(min((before - 1) * GATHER_SECONDS, MAX_GATHER_SECONDS))

    def _gather_most(self, in_work: Callable[[], int]) -> None:
        """Wait until two thirds of the requests in work are in the queue, as long as commits are shared at all.

        If it waited for all of them, nobody would work meanwhile. The number that share is averaged over several
        commits, since requests do not come back as evenly as a commit released them. It also waits when the queue is
        empty: waking for the first job and again for the last would interrupt the other threads twice.
        """
        most = max(MAX_TOLD_SECONDS, min(self._late * LATE_SHARE, MAX_LATE_SECONDS))
        seconds = min((self._share - 1) * GATHER_SECONDS, most)
        wanted = in_work() * 2 // 3
        if seconds <= 0 or self._waiting.qsize() >= wanted:
            return
        self._enough.clear()
        self._wanted = wanted
        if self._waiting.qsize() < wanted and not self._closed:  # whoever came meanwhile may not have seen it
            self._enough.wait(seconds)
        self._wanted = sys.maxsize

    def _batch(self) -> tuple[list[_Rows | _Call], bool]:
        """All jobs that wait, at least one; and whether more may come."""
        items: list[_Rows | _Call] = []
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

    def _write(self, batch: list[_Rows | _Call]) -> None:
        done: list[tuple[Any, Any]] = []
        refused: list[tuple[Future[Any], Exception]] = []
        try:
            with self._connected().begin():
                rows: list[tuple[Table, Row]] = []
                for item in batch:
                    if isinstance(item, _Rows):
                        rows += item.rows
                        done.append((item.future, None))
                    else:
                        rows += self._carry_out(item, done, refused)
                self._insert_rows(rows)
        except Exception as error:  # noqa: BLE001 - whatever fails here, each waiting request hears that it failed
            self._disconnect()
            self.failure = unavailable("the store could not keep this", error)
            for item in batch:
                item.future.set_exception(unavailable("the store could not keep this", error))
            return
        # Only now is anything durable, and only now is anybody told.
        self.failure = None if done else self.failure
        if any(table is RECORDS for table, _ in rows):  # else nothing is known of the log's last, which may have failed
            self._log.settled()
        for future, exception in refused:
            future.set_exception(exception)
        for future, result in done:
            future.set_result(result)

    def _insert_rows(self, rows: list[tuple[Table, Row]]) -> None:
        for table in {table.name: table for table, _ in rows}.values():
            values: Sequence[Row] = [row for home, row in rows if home is table]
            if table is RECORDS:
                values = self._log.enter(self._connected(), values)
            insert_rows(self._connected(), table, values)

    def _carry_out(
        self, call: _Call, done: list[tuple[Any, Any]], refused: list[tuple[Future[Any], Exception]]
    ) -> list[tuple[Table, Row]]:
        """The records that the job gave."""
        try:
            with self._connected().begin_nested():
                result = call.job(self._connected())
        except DataError:  # a value that this database has no room for is its caller's alone
            refused.append((call.future, _unstorable()))
            return []
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - a job's refusal is its caller's, and must not stop the others
            refused.append((call.future, error))
            return []
        if isinstance(result, Recorded):
            done.append((call.future, result.result))
            return [(RECORDS, row) for row in result.records]
        done.append((call.future, result))
        return []

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = writing(self._engine.connect())
        return self._connection

    def _disconnect(self) -> None:
        # A transaction may be half open on it: the connection is thrown away, never given back to the pool.
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None


def _unstorable() -> StoreError:
    return StoreError("a value cannot be kept here", code="store.unstorable", hint="a name with NUL in it, say")


def waited(future: Future[_T], timeout_seconds: float = TIMEOUT_SECONDS) -> _T:
    """The future's result.

    Raises:
        StoreError: it did not come in time (`store.timeout`): what was asked may or may not be durable.
    """
    try:
        return future.result(timeout_seconds)
    except TimeoutError:
        future.cancel()
        raise StoreError("the store did not answer in time", code="store.timeout", hint="try again") from None
