"""Records made durable before what they cover is released [E2]. Spec: docs/spec/recorder.md."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

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
        try:
            await asyncio.wait_for(asyncio.wrap_future(self.submit(record)), self._timeout_seconds)
        except TimeoutError:
            raise StoreError("the store did not answer in time", code="store.timeout", hint="try again") from None
