"""Whether requests could be judged, and put on record, now. Spec: docs/spec/gateway.md [GW-60]."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from pipeline.decisions.context import Context
from pipeline.decisions.errors import StoreError
from pipeline.sessions.base import SessionStore
from pipeline.store.database import Store
from pipeline.store.engine import touch
from pipeline.store.writer import waited

AGAIN_SECONDS: Final = 1.0  # within this time the result of the last check is given again
TRY_SECONDS: Final = 1.0  # less than whoever asks several processes waits for each of them


class Readiness:
    """The readiness of a store, by the result of its last operation. Safe to use from any thread.

    Args:
        sessions: what has to be read for every judgement.
        store: where records go; None where nothing has to be kept before something goes out.
        clock: seconds that only grow.
    """

    def __init__(
        self, sessions: SessionStore, store: Store | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._clock = clock
        self._gate = threading.Lock()
        self._again = 0.0

    def check(self) -> None:
        """Nothing, if they could.

        While the last write failed another one is tried, which changes nothing and is no record: without requests
        nobody else would find that writing works again.

        Raises:
            StoreError: sessions cannot be read, or nothing can be kept. PipelineError: see `SessionStore.read`.
        """
        self._sessions.read(Context(session="readyz"))
        failure = None if self._store is None else self._store.writer.failure
        if self._store is None or failure is None:
            return
        if not self._is_due():
            raise StoreError(failure.message, hint=failure.hint, code=failure.code)
        waited(self._store.writer.call(touch), TRY_SECONDS)

    def _is_due(self) -> bool:
        with self._gate:
            now = self._clock()
            if now < self._again:
                return False
            self._again = now + AGAIN_SECONDS
            return True
