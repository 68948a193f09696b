"""Judging recorded inputs again, with their recorded facts, under other policies; and work on all cores.

Spec: replay.md, batch.md.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from pipeline.decisions.approval import Approval
from pipeline.decisions.context import Context
from pipeline.decisions.decision import ENGINE_RULE, SESSION_RULE, Decision
from pipeline.decisions.engine import Engine
from pipeline.decisions.errors import ReplayError
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.timestamps import LAST
from pipeline.provenance.claims import HistoryTrust
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, Policies, build_engine, load_policies
from pipeline.run.outcome import Outcome
from pipeline.run.pipeline import Pipeline
from pipeline.run.recorded_input import Entry, summary_of
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes

TIMEOUT_SECONDS: Final = 10.0  # generous: nobody waits for a replay, and one that times out is useless
_UNDEFINED: Final = "engine.undefined"  # a result of the policies, not a failure of the engine


class Replay:
    """Judges entries under one policy set, always enforcing. Not to be shared between threads.

    Entries do not contain profiles. The timeout is per engine query; an engine has these policies.

    Raises:
        PolicyError: the policies cannot be used.
    """

    def __init__(
        self,
        policies: Policies = None,
        *,
        profiles: Profiles | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        engine: Engine | None = None,
    ) -> None:
        self.policies = load_policies(policies)
        self._engine = engine or build_engine(self.policies, "embedded", Config())
        self._profiles = profiles
        self._timeout_seconds = timeout_seconds
        self._session = _RecordedSession(self.revision)
        self._pipelines: dict[HistoryTrust, Pipeline] = {}

    @property
    def revision(self) -> str:
        """The revision of the policies and data."""
        return self.policies.revision

    def judged(self, entry: Entry) -> Decision:
        """The decision about `entry`. Raises: as `outcome`."""
        return self.outcome(entry).decision

    def outcome(self, entry: Entry) -> Outcome:
        """The decision about `entry`, and the output.

        Raises:
            ReplayError: it cannot be replayed: stages affected it (`replay.stages`), it was not judged completely
                (`replay.incomplete`), or evaluating these policies failed (`replay.failed`).
        """
        if entry.decision.get("stages"):
            hint = "only decisions of policy alone can be replayed"
            raise ReplayError("stages affected this decision", code="replay.stages", hint=hint)
        if entry.decision.get("complete") is not True:
            hint = "leave this entry out"
            raise ReplayError("the input was not judged completely", code="replay.incomplete", hint=hint)
        self._session.entry = entry
        pipeline = self._pipeline(entry.history)
        outcome = pipeline.run(entry.traffic, entry.context)
        # Settled turns of one entry must not affect the next.
        remembered = pipeline.conversations
        remembered.erase(remembered.due(LAST, 2))
        hits = outcome.decision.hits
        if any(hit.rule == SESSION_RULE or (hit.rule == ENGINE_RULE and hit.code != _UNDEFINED) for hit in hits):
            hint = "check that the engine is available, and try again"
            raise ReplayError("evaluating the policies failed", code="replay.failed", hint=hint)
        return outcome

    def _pipeline(self, history: HistoryTrust) -> Pipeline:
        if history not in self._pipelines:
            self._pipelines[history] = Pipeline(
                policies=self.policies,
                engine=self._engine,
                config=Config(timeout_seconds=self._timeout_seconds, history=history),
                sessions=self._session,
                profiles=self._profiles,
            )
        return self._pipelines[history]


def agrees(entry: Entry, decision: Decision) -> bool:
    """Whether `decision` equals the recorded one; only then does the replay reproduce what happened."""
    found = summary_of(decision)
    return all(found[part] == entry.decision[part] for part in ("verdict", "views"))


class _RecordedSession(MemorySessions):
    """A session store that returns the entry's recorded session. Changes by a run are discarded."""

    def __init__(self, revision: str) -> None:
        super().__init__()
        self.revision = revision
        self.entry: Entry | None = None

    def read(self, context: Context) -> SessionFacts:  # noqa: ARG002 - it holds a single session
        if self.entry is None:
            return SessionFacts()
        facts = self.entry.session
        bound = self._bound(facts.asked)
        return replace(facts, asked=bound, approvals=tuple(one.shown() for one in bound if one.usable(facts.moment)))

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:  # noqa: ARG002 - as above
        return () if self.entry is None else self._bound(self.entry.session.standing)

    def _bound(self, approvals: Sequence[Approval]) -> tuple[Approval, ...]:
        # Approvals do not depend on the policy set: they count as if given under these policies.
        return tuple(replace(one, asked=replace(one.asked, revision=self.revision)) for one in approvals)

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - as above
        return frozenset() if self.entry is None else self.entry.seen & frozenset(marks)

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:  # noqa: ARG002 - it keeps nothing
        return True


# -- on all cores ------------------------------------------------------------------------------------------------------

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

    Lines are read no further than what is being worked on. The recipe makes the work once in each process, so it must
    pickle; and here first, to report its errors once. A few lines, of about `expected`, are not worth other processes;
    there are `jobs` of them, by default one per available core.

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
