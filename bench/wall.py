"""Time by the clock on the wall, where part of the work is another process's. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable

CALLS = 40


def wall_seconds(operation: Callable[[int], object], calls: int = CALLS) -> float:
    """Seconds of one call, over `calls` of them, each with a number of its own."""
    begin = time.perf_counter()
    for index in range(calls):
        operation(index)
    return (time.perf_counter() - begin) / calls
