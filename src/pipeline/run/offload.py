"""How a run waits: it blocks its thread, or awaits; and what would block the event loop is moved to threads.

The steps of a run are written once, as coroutines, for callers of both kinds. Spec: docs/spec/pipeline.md [PIPE-5].
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

from pipeline.decisions.cancellation import is_cancelled, run_to_end

_T = TypeVar("_T")
LARGE_BYTES: Final = 64 * 1024  # of what arrived: work on more leaves the event loop
MAX_THREADS: Final = 64  # so that as many commits can wait for one disk at a time, which makes them one [E2]


class Offload:
    """`await offload(call, *args)` is `call(*args)`; on a thread, so that the event loop runs on, if it `waits`.

    The threads are started by the first call that needs them, also by the first one after `close`.
    """

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self.calls = 0  # that are on threads now
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
        self.calls += 1
        try:
            return await running
        finally:
            self.calls -= 1

    def close(self) -> None:
        """Let go of the threads, without waiting for the calls that they are in: those run to their end."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


_all: Final[WeakSet[Offload]] = WeakSet()
_threads: Final = Offload(waits=True)
_working: Final = Offload(waits=True)
_arrived: Final[ContextVar[int]] = ContextVar("arrived_bytes", default=0)


def arrived(size: int, *, anew: bool = False) -> None:
    """Note that `size` bytes arrived for this task; the largest such size decides whether it works on a thread.

    `anew`: with what arrived before, it has done.
    """
    if anew or size > _arrived.get():
        _arrived.set(size)


def arrived_bytes() -> int:
    """The largest number of bytes that arrived at once for this task."""
    return _arrived.get()


def is_large() -> bool:
    """Whether this task's work takes long enough to leave the event loop."""
    return arrived_bytes() > LARGE_BYTES


def has_large_work() -> bool:
    """Whether any task works on something large now."""
    return _threads.calls > 0


def close_threads() -> None:
    """Let go of the threads for large and long work, as `Offload.close` does."""
    _threads.close()
    _working.close()


async def apart(call: Callable[..., _T], *args: Any) -> _T:
    """`call(*args)`, which works on what arrived for this task: on a thread, if that is large."""
    return await _threads(call, *args) if is_large() else call(*args)


def _forget_all_threads() -> None:
    for one in tuple(_all):
        one._forget_threads()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_forget_all_threads)  # they are the parent's: no call on one would ever end


class Waiting:
    """What a run waits by. Each method returns what the call returns, and raises what it raises.

    Args:
        offload: what calls a store for a coroutine. None blocks: nothing suspends, and `completed` runs such a one.
    """

    def __init__(self, offload: Offload | None) -> None:
        self._offload = offload
        self.awaits = offload is not None

    async def call(self, call: Callable[..., _T], *args: Any) -> _T:
        """A call that may read or write a store."""
        return call(*args) if self._offload is None else await self._offload(call, *args)

    async def work(self, call: Callable[..., _T], *args: Any) -> _T:
        """A call that may read a store or work for long, however little arrived."""
        return call(*args) if self._offload is None else await _working(call, *args)

    async def either(self, call: Callable[[], _T], acall: Callable[[], Awaitable[_T]]) -> _T:
        """A call that has two forms: one that blocks, and one to await."""
        return call() if self._offload is None else await acall()

    async def to_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Work that is completed even if the caller gives up."""
        return await (work if self._offload is None else run_to_end(work))

    def is_cancelled(self, error: BaseException) -> bool:
        """Whether the run was cancelled from outside, and may await nothing more."""
        return self._offload is not None and is_cancelled(error)


def completed(run: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine that waits by `BLOCKING` returns, or raises."""
    try:
        run.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    run.close()
    raise RuntimeError("a run that blocks its thread has awaited something")


BLOCKING: Final = Waiting(None)
