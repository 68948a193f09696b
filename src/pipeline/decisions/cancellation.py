"""Which exceptions end more than the run in which they come up, and work that a cancelled caller still sees through.

A run calls code of the host's own: stages, engines, stores, resolvers. Whatever that code raises is its failure, and
the run is refused. Only the end of the process and a cancellation from outside go on upward. Spec:
docs/spec/pipeline.md [PIPE-5], [PIPE-15].
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
# What `except BaseException` around the host's code lets through. Nothing else is let through: host code can raise
# what reads as a cancelled task, and the panic of a native module is no `Exception`.
PROCESS_EXITS: Final = (KeyboardInterrupt, SystemExit)


async def run_to_end(work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` returns or raises. If the caller is cancelled meanwhile, `work` still ends first."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def is_cancelled(error: BaseException) -> bool:
    """Whether the coroutine that caught `error` was cancelled or closed from outside, and may await nothing more.

    False for a `CancelledError` that the code it called raised by itself: that is a failure like any other.
    """
    if isinstance(error, Exception):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: the coroutine is being closed
        return True
    return task is None or (isinstance(error, asyncio.CancelledError) and task.cancelling() > 0)


def runs_a_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
