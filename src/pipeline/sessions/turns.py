"""Runs of one session that wait for each other, first come, first served. Spec: docs/spec/sessions.md [SES-40].

A run judges by what it read of its session, and commits only if that still holds [C5]. Of many at once each commit
would send all the others back. So the first try of a run is free, and whoever has to try again stands in line; while
there is a line, newcomers join it. Other processes are not in it: a run at the head that loses to one tries again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from contextvars import ContextVar, Token
from time import monotonic, perf_counter_ns, sleep
from typing import Final

from pipeline.decisions.cancellation import runs_a_loop

MAX_TRIES: Final = 64  # at the head of the line, where only other processes can be faster
WAIT_SECONDS: Final = 60.0  # in line and at its head together

_AT_HEAD: Final[ContextVar[bool]] = ContextVar("pipeline.sessions.turns", default=False)


class SessionTurns:
    """The lines of all sessions of a store in this process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[Hashable, deque[Future[None]]] = {}

    def tries(self, key: Hashable | None, *, seconds: float = WAIT_SECONDS) -> Tries:
        """The tries of one run of the session `key` (None: of no session); a block to make them in."""
        return Tries(self, key, seconds)

    def is_waited_for(self, key: Hashable) -> bool:
        """Whether the session has a line."""
        return key in self._lines

    def join(self, key: Hashable) -> Future[None]:
        """A place at the end of the session's line; done once it is the first one."""
        place: Future[None] = Future()
        with self._lock:
            line = self._lines.setdefault(key, deque())
            line.append(place)
            if line[0] is place:
                place.set_result(None)
        return place

    def leave(self, key: Hashable, place: Future[None]) -> None:
        """Give the place up, and the turn to the next in line if it was the first one."""
        with self._lock:
            line = self._lines[key]
            line.remove(place)
            if not line:
                del self._lines[key]
            elif not line[0].done():
                line[0].set_result(None)


class Tries:
    """The tries of one run: `while tries.again(): …`, or `await tries.aagain()`. It is left with its block."""

    __slots__ = ("_begun", "_count", "_key", "_place", "_token", "_turns", "_until")

    def __init__(self, turns: SessionTurns, key: Hashable | None, seconds: float) -> None:
        self._turns = turns
        self._key = key
        self._count = 0
        self._place: Future[None] | None = None
        self._token: Token[bool] | None = None
        self._until = monotonic() + seconds
        self._begun = 0

    def __enter__(self) -> Tries:
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _AT_HEAD.reset(self._token)
        if self._place is not None and self._key is not None:
            self._turns.leave(self._key, self._place)

    def again(self) -> bool:
        """Whether there is one more try; waits in line for it. False after too many tries, or too long a wait."""
        place, pause = self._wait_for(blocks=True)
        if place is not None:
            try:
                place.result(max(0.0, self._until - monotonic()))
            except TimeoutError:
                return False
        elif pause:
            sleep(pause)
        return self._may_begin()

    async def aagain(self) -> bool:
        """`again` as a coroutine."""
        place, pause = self._wait_for(blocks=False)
        if place is not None:
            try:
                async with asyncio.timeout(max(0.0, self._until - monotonic())):
                    await asyncio.shield(asyncio.wrap_future(place))
            except TimeoutError:
                return False
        elif pause:
            await asyncio.sleep(pause)
        return self._may_begin()

    def _wait_for(self, *, blocks: bool) -> tuple[Future[None] | None, float]:
        """The place that the next try has to wait for, if it has just been taken, or else how many seconds it waits.

        These are up to the time of the last try, so that two processes do not keep in step. `blocks` says whether the
        run blocks its thread.
        """
        if self._place is None and self._key is not None:
            # A run within one at the head, as of a stage that asks the guard itself, would wait for its own end. So
            # would a blocking run in the thread of an event loop, in which the one at the head may have to go on.
            may_wait = not (_AT_HEAD.get() or (blocks and runs_a_loop()))
            if may_wait and (self._count or self._turns.is_waited_for(self._key)):
                self._place = self._turns.join(self._key)
                return self._place, 0.0
        spent = perf_counter_ns() - self._begun
        return None, 0.0 if self._count == 0 else spent * (spent % 1024 / 1024) / 1e9

    def _may_begin(self) -> bool:
        if self._place is not None and self._token is None:
            self._token = _AT_HEAD.set(True)
        self._count += 1
        self._begun = perf_counter_ns()
        return self._count <= MAX_TRIES and monotonic() < self._until
