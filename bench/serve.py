"""The process of one side: runs its operations when told to. Standard library only, so that any peer's venv can run it.

`python -m bench.serve bench.sides.<side> [argument…]`; one JSON command a line, one JSON answer a line.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.fresh import Fresh


def main() -> None:
    """Answer commands until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    side = importlib.import_module(sys.argv[1])
    operations = side.operations(*sys.argv[2:])
    print(json.dumps(sorted(operations)), file=out, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        operation = operations[command["operation"]]
        if "keep" in command:
            answer: Any = resident_bytes_each(operation, command["keep"])
        elif "call" in command:
            answer = operation()
        else:
            answer = seconds_each(operation, command["seconds"])
        print(json.dumps(answer), file=out, flush=True)


def seconds_each(operation: Callable[[], object], at_least: float) -> float:
    """CPU seconds of one call, over as many calls as fill `at_least` seconds."""
    number = _numbers.get(operation, 1)
    while True:
        if isinstance(operation, Fresh):
            spent = operation.seconds(number, time.process_time)
        else:
            started = time.process_time()
            for _ in range(number):
                operation()
            spent = time.process_time() - started
        if spent >= at_least / 2:
            _numbers[operation] = max(1, round(number * at_least / spent))
            return spent / number
        number *= 2


def resident_bytes_each(make: Callable[[int], object], count: int) -> float:
    """Bytes by which the process grows for each of `count` things made and kept."""
    make(0)
    gc.collect()
    before = _resident()
    kept = [make(index) for index in range(1, count + 1)]
    gc.collect()
    grown = _resident() - before
    del kept
    return grown / count


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_numbers: dict[Callable[[], object], int] = {}

if __name__ == "__main__":
    main()
