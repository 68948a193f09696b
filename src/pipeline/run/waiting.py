"""How a run waits for what it calls: it blocks its thread, or it awaits. So the steps of a run are written once.

Spec: docs/spec/pipeline.md [PIPE-5].
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from pipeline.decisions.cancellation import is_cancelled, run_to_end
from pipeline.run.offload import Offload

_T = TypeVar("_T")


class Waiting:
    """What a run waits by. Each method returns what the call returns, and raises what it raises.

    Args:
        offload: what calls a store for a coroutine. None blocks: nothing suspends, and `completed` runs such a one.
    """

    def __init__(self, offload: Offload | None) -> None:
        self._offload = offload

    async def call(self, call: Callable[..., _T], *args: Any) -> _T:
        """A call that may read or write a store."""
        return call(*args) if self._offload is None else await self._offload(call, *args)

    async def either(self, call: Callable[[], _T], acall: Callable[[], Awaitable[_T]]) -> _T:
        """A call that has two forms: one that blocks, and one to await."""
        return call() if self._offload is None else await acall()

    async def to_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Work that is completed even if the caller gives up."""
        return await (work if self._offload is None else run_to_end(work))

    def is_cancelled(self, error: BaseException) -> bool:
        """Whether the run was cancelled from outside, and may await nothing more."""
        return self._offload is not None and is_cancelled(error)


def completed(run: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine that waits by `BLOCKING` returns, or raises."""
    try:
        run.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    run.close()
    raise RuntimeError("a run that blocks its thread has awaited something")


BLOCKING: Final = Waiting(None)
__all__ = ["BLOCKING", "Waiting", "completed"]
