"""The one deadline of a run, and whose fault it is if the run does not end in time. Spec: pipeline.md [PIPE-20]."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pipeline.decisions.errors import DeadlinePassed

_T = TypeVar("_T")
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
