"""Records made durable before what they cover is released [E2]. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeAlias

from pipeline.audit.record import Record
from pipeline.decisions.errors import StoreError
from pipeline.sessions.base import SessionStore
from pipeline.store.database import Store
from pipeline.store.records import rows_of
from pipeline.store.sessions import SqlSessions
from pipeline.store.writer import TIMEOUT_SECONDS, waited

_Landed: TypeAlias = "tuple[asyncio.Future[None], BaseException | None]"


class Recorder:
    """Writes records through the store's one writer, so that concurrent runs share its commits.

    A caller that gets StoreError has no durable record, and must not release what the record covers.
    """

    def __init__(self, store: Store, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._writer = store.writer
        self._timeout_seconds = timeout_seconds
        self._landing: _Landing | None = None

    def shares(self, sessions: SessionStore) -> bool:
        """Whether `sessions` are in the same store, and put the record of a run into the transaction of its changes."""
        return isinstance(sessions, SqlSessions) and sessions.writer is self._writer

    def kept(self, record: Record) -> None:
        """See `pipeline.run.recording.SharingRecords`; nothing is left to do."""

    def submit(self, record: Record) -> Future[None]:
        """Done when the record is durable; StoreError in it where it is not, StoreBusy at once when too much waits."""
        return self._writer.insert_all(rows_of(record))

    def record(self, record: Record) -> None:
        """Return when the record is durable; StoreError (`store.timeout` too) if it may not be."""
        waited(self.submit(record), self._timeout_seconds)

    async def arecord(self, record: Record) -> None:
        """`record`, awaiting the writer."""
        loop = asyncio.get_running_loop()
        landing = self._landing
        if landing is None or landing.loop is not loop:
            landing = self._landing = _Landing(loop, self._timeout_seconds, self._writer.late)
        waiting = landing.expected()
        try:
            self._writer.insert_for(_Ticket(landing.landed, waiting), rows_of(record), landing.wake)
        except BaseException:
            waiting.cancel()  # nobody waits for it
            raise
        await waiting


class _Ticket:
    """Stands in for a future at the writer, for a caller that waits in an event loop.

    It takes a third of the time of a `Future`: no thread waits for it, and `_Landing` wakes the loop.
    """

    __slots__ = ("_landed", "_waiting")

    def __init__(self, landed: deque[_Landed], waiting: asyncio.Future[None]) -> None:
        self._landed = landed
        self._waiting = waiting

    def set_running_or_notify_cancel(self) -> bool:
        return not self._waiting.done()  # else it was given up, or is late

    def set_result(self, _: None) -> None:
        self._landed.append((self._waiting, None))

    def set_exception(self, error: BaseException) -> None:
        self._landed.append((self._waiting, error))


class _Landing:
    """Lets coroutines of one loop wait for the writer's thread, and wakes the loop once a commit, not once a record.

    One timer serves all of them: the time limit is the same for each, so the first to wait is the first to be late.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_seconds: float, late: Callable[[float], None]) -> None:
        self.loop = loop
        self.landed: deque[_Landed] = deque()
        self.wake: Final = self._wake  # one object, so that the writer can tell that several tickets share it
        self._timeout_seconds = timeout_seconds
        self._late = late
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()  # until when, in the loop's seconds
        self._timer: asyncio.TimerHandle | None = None

    def expected(self) -> asyncio.Future[None]:
        """A future that is done when the record is durable, with StoreError if it failed or took too long."""
        waiting = self.loop.create_future()
        self._waiting.append((self.loop.time() + self._timeout_seconds, waiting))
        if self._timer is None:
            self._timer = self.loop.call_later(self._timeout_seconds, self._refuse_late)
        return waiting

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits
            self.loop.call_soon_threadsafe(self._look, self.loop.time())

    def _look(self, woken_at: float) -> None:
        self.loop.call_soon(self._go_on, woken_at)  # before all of them: then the first of them has its turn
        while self.landed:
            waiting, error = self.landed.popleft()
            if waiting.done():
                continue
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)
        self._let_go()

    def _go_on(self, woken_at: float) -> None:
        self._late(self.loop.time() - woken_at)

    def _let_go(self) -> None:
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()

    def _refuse_late(self) -> None:
        self._let_go()
        while self._waiting and self._waiting[0][0] <= self.loop.time():
            message = "the store did not answer in time"
            self._waiting[0][1].set_exception(StoreError(message, code="store.timeout", hint="try again"))
            self._let_go()
        self._timer = self.loop.call_at(self._waiting[0][0], self._refuse_late) if self._waiting else None
