"""A circuit breaker: after some faults in a row, requests to a server stop for a while. Spec: [POL-33], [GW-84]."""

from __future__ import annotations

from typing import Final

FAULTS: Final = 5  # in a row
FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0


class Breaker:
    """Closed: all requests pass. Open: none. Half-open: one a pause passes, until an outcome decides. Not thread-safe.

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

    @property
    def is_closed(self) -> bool:
        """Whether all requests pass."""
        return self._pause == 0.0

    def wait_seconds(self, now: float) -> float:
        """Seconds until a request may be sent; 0 if one may be now."""
        return 0.0 if self.is_closed else max(0.0, self._until - now)

    def allows(self, now: float) -> bool:
        """Whether a request may be sent. After True, the caller reports the outcome with `note`, if there is one."""
        if self.wait_seconds(now) > 0:
            return False
        self._trying, self._until = not self.is_closed, now + self._pause
        return True

    def note(self, now: float, *, fault: bool) -> None:
        """Report the outcome of a request: a fault of the server, or any answer."""
        if not fault:
            self._faults, self._pause, self._trying = 0, 0.0, False
            return
        self._faults += 1
        if self._trying:
            self._open(now, self._pause * 2)
        elif self.is_closed and self._faults >= self._limit:
            self._open(now, self._first)

    def give_up(self) -> None:
        """Report that an allowed request was not sent, so that another may be."""
        if self._trying:
            self._trying, self._until = False, 0.0

    def _open(self, now: float, pause: float) -> None:
        self._pause, self._trying = min(pause, self._longest), False
        self._until = now + self._pause
