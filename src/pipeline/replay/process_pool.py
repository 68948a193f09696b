"""Work on many lines, on all cores of this machine. Spec: docs/spec/batch.md.

Each process makes what it works with once, from a recipe, a callable that pickles; the work takes some lines and gives
as many results.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from pipeline.decisions.errors import ReplayError

CHUNK: Final = 50  # lines that a process is given at once
WORTH_A_PROCESS: Final = 500  # lines below which starting another one takes longer than it saves

Result = TypeVar("Result")
Work: TypeAlias = Callable[[list[bytes]], list[Result]]
Recipe: TypeAlias = Callable[[], Work[Result]]

_work: list[Work[Any]] = []  # of a worker process


def spread(
    found: Iterable[bytes], recipe: Recipe[Result], *, expected: int, jobs: int | None = None
) -> Generator[list[Result], None, None]:
    """The results for `found`, in order, a chunk at a time; whatever ends this process's work ends that of the others.

    Args:
        found: the lines; read no further than what is being worked on.
        recipe: makes the work, once in each process, and here first: what is wrong with it is said once, and by the
            process that was asked.
        expected: how many lines there are, about: a few are not worth other processes.
        jobs: processes; by default as many as there are cores to run on.

    Raises:
        ReplayError: a process was lost (`replay.worker-lost`); and whatever recipe, work and lines raise.
    """
    count = max(1, min(jobs or len(os.sched_getaffinity(0)), expected // WORTH_A_PROCESS))
    here = recipe()
    if count == 1:
        for chunk in chunks(found, CHUNK):
            yield here(chunk)
    else:
        yield from _spread(found, recipe, count)


def _spread(found: Iterable[bytes], recipe: Recipe[Result], count: int) -> Generator[list[Result], None, None]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(recipe,))
    waiting: deque[Future[list[Result]]] = deque()
    try:
        for chunk in chunks(found, CHUNK):
            with _interrupts_held():
                waiting.append(pool.submit(_do, chunk))
            if len(waiting) >= 4 * count:  # no more than this is held in memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        hint = "look for what ended it: memory, say"
        raise ReplayError("a process that worked was lost", hint=hint, code="replay.worker-lost") from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Inside, Ctrl-C waits. A process that is started inside never gets it, not even while it is being loaded."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def chunks(found: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """`found` in lists of `size`, and what is left."""
    lines = iter(found)
    while chunk := list(islice(lines, size)):
        yield chunk


def _begin(recipe: Recipe[Any]) -> None:
    _work.append(recipe())


def _do(chunk: list[bytes]) -> list[Any]:
    return _work[0](chunk)
