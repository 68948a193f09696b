"""Records made durable before what they cover is released [E2]. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import Future
from functools import partial

from pipeline.errors import StoreError
from pipeline.record import Record
from pipeline.store.database import Store
from pipeline.store.records import content_row_of, row_of
from pipeline.store.tables import CONTENTS, RECORDS
from pipeline.store.writer import TIMEOUT_SECONDS, waited


class Recorder:
    """Writes records through the store's one writer, so that concurrent runs share its commits.

    Whoever gets StoreError from here releases nothing: no record, no answer.
    """

    def __init__(self, store: Store, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._writer = store.writer
        self._timeout_seconds = timeout_seconds
        self._landing: _Landing | None = None

    def submit(self, record: Record) -> Future[None]:
        """Done when the record is durable; StoreError in it where it is not, StoreBusy at once when too much waits."""
        rows = [(RECORDS, row_of(record))]
        if record.content is not None:
            rows.append((CONTENTS, content_row_of(record, record.content)))
        return self._writer.insert_all(rows)

    def record(self, record: Record) -> None:
        """Return when the record is durable; StoreError (`store.timeout` too) if it may not be."""
        waited(self.submit(record), self._timeout_seconds)

    async def arecord(self, record: Record) -> None:
        """`record`, awaiting the writer."""
        loop = asyncio.get_running_loop()
        landing = self._landing
        if landing is None or landing.loop is not loop:
            landing = self._landing = _Landing(loop, self._timeout_seconds)
        await landing.wait(self.submit(record))


class _Landing:
    """Where what a thread finished is waited for in a loop: that is woken once for all that one commit made durable.

    One timer serves all who wait: they have as long as each other, so who came first is late first.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_seconds: float) -> None:
        self.loop = loop
        self._timeout_seconds = timeout_seconds
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()  # until when, in the loop's seconds
        self._timer: asyncio.TimerHandle | None = None
        self._landed: deque[tuple[asyncio.Future[None], Future[None]]] = deque()
        self._called = False

    async def wait(self, work: Future[None]) -> None:
        """Return when `work` is done; StoreError where it failed, or did not end in time."""
        waiting = self.loop.create_future()
        work.add_done_callback(partial(self._land, waiting))
        self._waiting.append((self.loop.time() + self._timeout_seconds, waiting))
        if self._timer is None:
            self._timer = self.loop.call_later(self._timeout_seconds, self._refuse_late)
        try:
            await waiting
        finally:
            work.cancel()  # what is done already stays as it is

    def _land(self, waiting: asyncio.Future[None], work: Future[None]) -> None:
        self._landed.append((waiting, work))
        if not self._called:
            self._called = True  # until it looks; whoever comes later than that calls anew
            with contextlib.suppress(RuntimeError):  # it is closed: nobody waits
                self.loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._called = False
        while self._landed:
            waiting, work = self._landed.popleft()
            if waiting.done():
                continue
            error = work.exception()  # it is not cancelled: only who waits does that
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)
        self._let_go()

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
