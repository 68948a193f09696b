"""A server that is down is not asked by every run: after some faults in a row it is left alone. Spec: [POL-33]."""

from __future__ import annotations

from typing import Final

FAULTS: Final = 5  # in a row
FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0


class Breaker:
    """Closed, all may ask; open, nobody; half-open, one may, and what comes of it decides. For one thread.

    Args:
        faults: how many in a row open it.
        first_seconds: how long it is open then; each time that trying again fails, twice as long.
        longest_seconds: but no longer than this.
    """

    def __init__(
        self,
        *,
        faults: int = FAULTS,
        first_seconds: float = FIRST_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._limit = faults
        self._first = first_seconds
        self._longest = longest_seconds
        self._faults = 0
        self._pause = 0.0
        self._until = 0.0
        self._trying = False

    def allows(self, now: float) -> bool:
        """Whether to ask; who is told yes says afterwards what came of it, by `note`."""
        if self._pause == 0.0:
            return True
        if now < self._until or self._trying:
            return False
        self._trying = True
        return True

    def note(self, now: float, *, fault: bool) -> None:
        """What came of asking: a fault of the server, or an answer, whatever it said."""
        if not fault:
            self._faults, self._pause, self._trying = 0, 0.0, False
            return
        self._faults += 1
        if self._trying:
            self._open(now, min(self._pause * 2, self._longest))
        elif self._pause == 0.0 and self._faults >= self._limit:
            self._open(now, self._first)

    def give_up(self) -> None:
        """Whoever was told yes does not ask after all: somebody else may."""
        self._trying = False

    def _open(self, now: float, pause: float) -> None:
        self._pause, self._until, self._trying = pause, now + pause, False
