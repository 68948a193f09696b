"""Whether an upstream is asked at all, after it failed. Spec: docs/spec/gateway.md [GW-84]."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipeline.gateway.routing import HealthSettings


class Health:
    """What one upstream's last answers say of it. For one event loop.

    After so many failures in a row it is left alone for a while; then one request finds out, while others still pass
    it by. Each such failure doubles the while, up to a bound; one answer makes all well.
    """

    def __init__(self, settings: HealthSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._failures = 0
        self._cooldown = settings.cooldown_seconds
        self._until = 0.0

    def admits(self) -> bool:
        """Whether it may be asked now. Of several who ask this while it is unwell, one is told yes a while."""
        if not self._is_unwell:
            return True
        if self.wait_seconds > 0:
            return False
        self._until = self._clock() + self._cooldown
        return True

    @property
    def is_up(self) -> bool:
        """Whether it is asked as a matter of course: whoever is down is left alone, or asked as a trial."""
        return not self._is_unwell

    @property
    def wait_seconds(self) -> float:
        """How long it is still left alone; 0 where it is not."""
        return max(0.0, self._until - self._clock()) if self._is_unwell else 0.0

    def failed(self) -> None:
        """It gave no answer, or its own trouble."""
        again = self._is_unwell
        self._failures += 1
        if not self._is_unwell:
            return
        if again:
            self._cooldown = min(2 * self._cooldown, self._settings.max_cooldown_seconds)
        self._until = self._clock() + self._cooldown

    def answered(self) -> None:
        """It answered, be it that the request was wrong."""
        self._failures = 0
        self._cooldown = min(self._settings.cooldown_seconds, self._settings.max_cooldown_seconds)

    @property
    def _is_unwell(self) -> bool:
        return self._failures >= self._settings.failures


__all__ = ["Health"]
