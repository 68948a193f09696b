"""Time limits for clients, with one timer for all blocks of the same limit. Spec: docs/spec/gateway.md [GW-160]."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from types import TracebackType
from typing import cast


class SharedTimeout:
    """Limits many blocks of coroutines to the same number of seconds, each as `asyncio.timeout` would.

    One timer serves them all, as whichever began first expires first. Nearly all end in time, most without waiting at
    all; a timer for each, made and cancelled, costs four times as much, as the loop keeps cancelled timers for a while.

    Args:
        seconds: how long a block may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[_Block, float] = {}  # in seconds of the loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def block(self) -> AbstractContextManager[None]:
        """A block that is cancelled, and raises TimeoutError, once it takes too long."""
        return _Block(self)

    def _add(self, block: _Block) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
        self._until[block] = until = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(until, self._expire, loop)

    def _remove(self, block: _Block) -> None:
        self._until.pop(block, None)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for block, until in list(self._until.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._expire, loop)
                return
            self._remove(block)
            block.expire()


class _Block(AbstractContextManager[None]):
    """One block. Cancellation from elsewhere is passed on as such, as by `asyncio.timeout`."""

    __slots__ = ("_cancelling", "_is_late", "_task", "_timeout")

    def __init__(self, timeout: SharedTimeout) -> None:
        self._timeout = timeout

    def __enter__(self) -> None:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._is_late = False
        self._timeout._add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timeout._remove(self)
        if self._is_late and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel its task: it took too long."""
        self._is_late = True
        self._task.cancel()
