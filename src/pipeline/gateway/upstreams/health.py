"""Whether an upstream that failed is used again yet: a circuit breaker. Spec: docs/spec/gateway.md [GW-84]."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipeline.gateway.config.routing import HealthSettings


class Health:
    """The health of one upstream, by its latest replies. For use in one event loop.

    After a number of failures in a row the upstream is skipped for a cooldown. Then one request tries it, while others
    still skip it. If that fails, the cooldown doubles, up to a maximum; one reply resets everything.
    """

    def __init__(self, settings: HealthSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._failures = 0
        self._cooldown = settings.cooldown_seconds
        self._until = 0.0

    def admits(self) -> bool:
        """Whether a request may be sent now. During a cooldown's end, one request per cooldown is let through."""
        if not self._is_unwell:
            return True
        if self.wait_seconds > 0:
            return False
        self._until = self._clock() + self._cooldown
        return True

    @property
    def is_up(self) -> bool:
        """Whether it is in normal use: neither skipped nor on trial."""
        return not self._is_unwell

    @property
    def wait_seconds(self) -> float:
        """Seconds until the cooldown ends; 0 if there is none."""
        return max(0.0, self._until - self._clock()) if self._is_unwell else 0.0

    def failed(self) -> None:
        """Note a failure: no reply, or a server error."""
        again = self._is_unwell
        self._failures += 1
        if not self._is_unwell:
            return
        if again:
            self._cooldown = min(2 * self._cooldown, self._settings.max_cooldown_seconds)
        self._until = self._clock() + self._cooldown

    def answered(self) -> None:
        """Note a reply; a client error is one too."""
        self._failures = 0
        self._cooldown = min(self._settings.cooldown_seconds, self._settings.max_cooldown_seconds)

    @property
    def _is_unwell(self) -> bool:
        return self._failures >= self._settings.failures


__all__ = ["Health"]
