"""Limits of one route: size, concurrency, rate. Spec: docs/spec/gateway.md [GW-146]."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pipeline.gateway.config.settings import RouteLimits
from pipeline.gateway.http.refusal import FINAL, Refusal, later

MAX_SUBJECTS: Final = 10_000  # with a bucket each


@dataclass(slots=True)
class _Bucket:
    """A token bucket: `left` requests at the time `at`."""

    left: float
    at: float


class Admission:
    """Enforces the limits of a route."""

    def __init__(self, limits: RouteLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._inside = 0
        self._buckets: dict[str, _Bucket] = {}
        self._burst = float(limits.burst or limits.per_minute or 0)
        self._per_second = (limits.per_minute or 0) / 60

    @contextmanager
    def entered(self, subject: str | None, size: Callable[[], int]) -> Iterator[None]:
        """A block for one request of `subject` (None: all unknown ones together), whose body has `size` bytes.

        Raises:
            Refusal: 413, 429 or 503, before the request is judged.
        """
        limits = self._limits
        if limits.body_bytes is not None and size() > limits.body_bytes:
            message = f"On this route a body has at most {limits.body_bytes} bytes."
            raise Refusal(413, "http.too-large", message, headers=FINAL)
        if limits.concurrent is not None and self._inside >= limits.concurrent:
            message = "Too many requests are in progress on this route: try again."
            raise Refusal(503, "route.busy", message, headers=later(1))
        if limits.per_minute is not None:
            self._take("" if subject is None else f"id:{subject}")
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _take(self, who: str) -> None:
        now = self._clock()
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= MAX_SUBJECTS:  # a new one would be full, too: these need not be kept
                left = {who: one for who, one in self._buckets.items() if self._left(one, now) < self._burst}
                self._buckets = left
            if len(self._buckets) >= MAX_SUBJECTS:
                raise _too_many(1)
            bucket = self._buckets[who] = _Bucket(self._burst, now)
        bucket.left = self._left(bucket, now)
        bucket.at = now
        if bucket.left < 1:
            raise _too_many((1 - bucket.left) / self._per_second)
        bucket.left -= 1

    def _left(self, bucket: _Bucket, now: float) -> float:
        return min(self._burst, bucket.left + (now - bucket.at) * self._per_second)


def _too_many(seconds: float) -> Refusal:
    wait = later(max(1, math.ceil(seconds)))
    return Refusal(429, "route.rate", "The rate limit of this route is reached: try again later.", headers=wait)
