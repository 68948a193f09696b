"""Asking a store from a coroutine: on a thread where it can make its caller wait, directly where it cannot.

And what a host's own code raises: its failure, or the end of more than a run. Spec: docs/spec/pipeline.md [PIPE-5],
[PIPE-15].
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
MAX_THREADS: Final = 64  # as many commits can wait for one disk at once, which makes them one [E2]
# Whatever a host's code raises, it failed: also what would read as a cancelled task, or is no `Exception`, as the panic
# of a native module is none. Only these two are about the process.
OF_THE_PROCESS: Final = (KeyboardInterrupt, SystemExit)


class Aside:
    """`await aside(f, *args)` is `f(*args)`, without keeping the event loop waiting if `waits`.

    Threads are made when they are first needed. After `close` new ones are.
    """

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    async def __call__(self, call: Callable[..., _T], *args: Any) -> _T:
        """What the call gives back, or raises."""
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
        """Let go of the threads; what they do is done to its end."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


async def to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` gives back, or raises. Whoever is cancelled meanwhile is so once it has ended: it is not cut off."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def is_given_up(error: BaseException) -> bool:
    """Whether a coroutine that caught this is ended by whoever waits for it, and may await nothing more."""
    if isinstance(error, Exception):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: the coroutine is closed
        return True
    return task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling() > 0)


__all__ = ["OF_THE_PROCESS", "Aside", "is_given_up", "to_its_end"]
