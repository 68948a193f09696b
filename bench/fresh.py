"""Operations on things that nobody has touched before, so that nothing kept from the last round helps.

Standard library only, as `bench.serve`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BATCH = 50  # things made at once, before the clock starts


class Fresh:
    """What is measured, without the making of what it is done to."""

    def __init__(self, make: Callable[[int], Any], use: Callable[[Any], object]) -> None:
        self.make, self.use = make, use

    def __call__(self) -> object:
        """The result for the first thing."""
        return self.use(self.make(0))

    def seconds(self, number: int, clock: Callable[[], float]) -> float:
        """What `number` uses take, each of its own thing."""
        spent, use = 0.0, self.use
        for start in range(0, number, BATCH):
            things = [self.make(index) for index in range(start, min(start + BATCH, number))]
            started = clock()
            for thing in things:
                use(thing)
            spent += clock() - started
        return spent
