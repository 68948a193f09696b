"""What ends a run before its end: the one deadline of a run, a cancellation from outside, the end of the process.

A run calls code of the host's own: stages, engines, stores, resolvers. Whatever that code raises is its failure, and
the run is refused. Only the end of the process and a cancellation from outside go on upward. Spec:
docs/spec/pipeline.md [PIPE-5], [PIPE-15], [PIPE-20].
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from pipeline.decisions.errors import DeadlinePassed

_T = TypeVar("_T")
# What `except BaseException` around the host's code lets through. Nothing else is let through: host code can raise
# what reads as a cancelled task, and the panic of a native module is no `Exception`.
PROCESS_EXITS: Final = (KeyboardInterrupt, SystemExit)


async def run_to_end(work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` returns or raises. If the caller is cancelled meanwhile, `work` still ends first."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def is_cancelled(error: BaseException) -> bool:
    """Whether the coroutine that caught `error` was cancelled or closed from outside, and may await nothing more.

    False for a `CancelledError` that the code it called raised by itself: that is a failure like any other.
    """
    if isinstance(error, Exception):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: the coroutine is being closed
        return True
    return task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling() > 0)


def runs_a_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_SHARE: Final = 0.1  # of the time of a run: what waited works next to nothing, even beside many others


class Deadline:
    """The time that a run has, without its stages: for reading the conversation, judging, editing and judging again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stopped = time.monotonic()
        self._end = self._stopped + seconds
        self._tries = 0
        self._worked = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left; 0 if it has passed."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise DeadlinePassed if it has passed."""
        if time.monotonic() > self._end:
            raise DeadlinePassed("the time of this run is over", hint="raise the setting policy_seconds")

    def begin_try(self) -> None:
        """Begin a try of the run, as its session may demand several; what is between two of them does not count."""
        self._tries += 1
        self.go_on()

    def stop(self) -> None:
        """What follows does not count, until `go_on`."""
        self._stopped = time.monotonic()

    def go_on(self) -> None:
        """What follows counts."""
        self._end += time.monotonic() - self._stopped

    def timed(self, call: Callable[..., _T], *args: Any) -> _T:
        """What the call returns, or raises; the CPU time that it takes on this thread is remembered."""
        begin = time.thread_time()
        try:
            return call(*args)
        finally:
            self._worked += time.thread_time() - begin

    def worked(self, seconds: float) -> None:
        """Add to the CPU time that is remembered."""
        self._worked += seconds

    @property
    def spent_working(self) -> bool:
        """Whether the run worked for a good part of its time; else it waited, for an engine or a processor.

        What was tried again did fit in the time once: it is others that it had to be tried again for.
        """
        return self._tries <= 1 and self._worked >= _SHARE * self._seconds
