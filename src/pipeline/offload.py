"""Calls to a session store from a coroutine: on a thread where the store can block, at once where it cannot."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

_T = TypeVar("_T")
LARGE_BYTES: Final = 64 * 1024  # of a body: what is done with more is done on a thread
MAX_THREADS: Final = 64  # so that as many commits can wait for one disk at a time, which makes them one [E2]


class Offload:
    """`await offload(call, *args)` is `call(*args)`; on a thread, so that the event loop runs on, if it `waits`.

    The threads are started by the first call that needs them, also by the first one after `close`.
    """

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._forget_threads()
        _all.add(self)

    def _forget_threads(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    async def __call__(self, call: Callable[..., _T], *args: Any) -> _T:
        """What the call returns, or raises."""
        if not self._waits:
            return call(*args)
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="pipeline-store")
            running = asyncio.get_running_loop().run_in_executor(
                self._threads, partial(copy_context().run, call, *args)
            )
        return await running

    def close(self) -> None:
        """Let go of the threads, without waiting for the calls that they are in: those run to their end."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


_all: Final[WeakSet[Offload]] = WeakSet()


def _forget_all_threads() -> None:
    for one in tuple(_all):
        one._forget_threads()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_forget_all_threads)  # they are the parent's: no call on one would ever end

__all__ = ["LARGE_BYTES", "Offload"]
