"""Compares many entries on all cores; each process compiles both policy sets once. Spec: docs/spec/replay.md."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from pipeline.errors import ReplayError
from pipeline.impact import Compared, Impact, compare
from pipeline.policy_set import PolicySet
from pipeline.profiles import Profiles
from pipeline.replay import Replay

CHUNK: Final = 50  # lines that a process is given at once
WORTH_A_PROCESS: Final = 500  # lines below which starting another one takes longer than it saves

_sides: list[tuple[Replay, Replay]] = []  # of a worker process


def impact_of(
    found: Iterable[bytes],
    base: PolicySet,
    head: PolicySet,
    *,
    expected: int,
    profiles: Path | None = None,
    jobs: int | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Impact:
    """What the change from `base` to `head` is to the entries in the lines.

    Args:
        found: lines of a file of entries.
        base: the policies as they are.
        head: the policies as they are to be.
        expected: how many there are, about: a few are not worth other processes.
        profiles: a file of them, for both sets.
        jobs: processes; by default as many as there are cores to run on.
        told: called with the number of lines done since it was last called.

    Raises:
        PolicyError, ConfigError: a set or the profiles cannot be used. ReplayError: the lines cannot be read, or a
            process was lost (`replay.worker-lost`).
    """
    wanted = jobs or len(os.sched_getaffinity(0))
    count = max(1, min(wanted, expected // WORTH_A_PROCESS))
    impact = Impact()
    judged = _alone(found, base, head, profiles) if count == 1 else _spread(found, base, head, profiles, count)
    with closing(judged):
        for compared in judged:
            for one in compared:
                impact.add(one)
            told(len(compared))
    return impact


def _sides_of(base: PolicySet, head: PolicySet, profiles: Path | None) -> tuple[Replay, Replay]:
    known = Profiles.load(profiles) if profiles is not None else None
    left = Replay(base, profiles=known)
    return left, left if base.revision == head.revision else Replay(head, profiles=known)


def _alone(
    found: Iterable[bytes], base: PolicySet, head: PolicySet, profiles: Path | None
) -> Generator[list[Compared], None, None]:
    sides = _sides_of(base, head, profiles)
    for chunk in _chunks(found):
        yield [compare(line, *sides) for line in chunk]


def _spread(
    found: Iterable[bytes], base: PolicySet, head: PolicySet, profiles: Path | None, count: int
) -> Generator[list[Compared], None, None]:
    """The same in `count` processes; whatever ends this one's work ends theirs."""
    # Both sets are compiled here first, so that what is wrong with one is said once, and by the process that was asked.
    _sides_of(base, head, profiles)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(base, head, profiles))
    waiting: deque[Future[list[Compared]]] = deque()
    try:
        for chunk in _chunks(found):
            with _interrupts_held():
                waiting.append(pool.submit(_compare, chunk))
            if len(waiting) >= 4 * count:  # no more than this is held in memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        hint = "look for what ended it: memory, say"
        raise ReplayError("a process that compared was lost", hint=hint, code="replay.worker-lost") from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Inside, Ctrl-C waits. A process that is started inside never hears of it, not even while it is being loaded."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _chunks(found: Iterable[bytes]) -> Iterator[list[bytes]]:
    lines = iter(found)
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def _begin(base: PolicySet, head: PolicySet, profiles: Path | None) -> None:
    _sides.append(_sides_of(base, head, profiles))


def _compare(chunk: list[bytes]) -> list[Compared]:
    return [compare(line, *_sides[0]) for line in chunk]


__all__ = ["impact_of"]
