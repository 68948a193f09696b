"""How the work of a run grows with its input: function calls, which are exact, and CPU time, which covers native code.

A curve's exponent is 1 if twice the input takes twice the work, and 2 if it takes four times as much.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable
from typing import Any


def calls_of(work: Callable[[], object]) -> int:
    """How many functions `work` calls, those of the interpreter in C included."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def seconds_of(work: Callable[[], object], *, rounds: int = 3) -> float:
    """The least CPU time that `work` took, in all threads of this process."""
    best = math.inf
    for _ in range(rounds):
        gc.collect()
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def exponent(small: float, large: float, *, times: int) -> float:
    """The exponent of a curve that rises from `small` to `large` while the input becomes `times` as large."""
    return math.log(large / small, times)
