"""Many runs of one session at once: all come to their end, none is counted twice, and nobody waits for itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from cmf import Message, TextPart, ToolCallPart
from pipeline import Context, Guard, as_stage
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.redis import RedisSessions
from pipeline.sessions.turns import SessionTurns
from pipeline.store.database import Store

AT_ONCE = 100
HERE = Context(subject={"id": "ann"}, session="s1")  # type: ignore[arg-type]


def call(number: int) -> Message:
    return Message(
        role="assistant",
        content=[ToolCallPart(tool_call_id=f"c{number}", name="ping", arguments={"n": number})],
    )


@pytest.fixture(params=["memory", "sqlite"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    if request.param == "memory":
        yield MemorySessions()
        return
    with Store.at(tmp_path / "cmf.db") as store:
        yield store.sessions()


def counted(sessions: SessionStore) -> dict[str, object]:
    return {name: count for name, count in sessions.read(HERE).counters.items() if "ping" in name}


@pytest.mark.spec("SES-40", "PIPE-10")
def test_threads_of_one_session_all_succeed_and_are_counted_once(sessions: SessionStore) -> None:
    with Guard(sessions=sessions) as guard, ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = list(threads.map(lambda number: guard.run(call(number), context=HERE), range(AT_ONCE)))

    assert Counter(outcome.decision.action.value for outcome in outcomes) == {"forward": AT_ONCE}
    assert {int(str(count)) for count in counted(sessions).values()} == {AT_ONCE}


@pytest.mark.spec("SES-40", "PIPE-10")
async def test_tasks_and_threads_of_one_session_stand_in_one_line(sessions: SessionStore) -> None:
    loop = asyncio.get_running_loop()
    with Guard(sessions=sessions) as guard, ThreadPoolExecutor(AT_ONCE // 2) as threads:
        blocking = [
            loop.run_in_executor(threads, lambda n=n: guard.run(call(n), context=HERE)) for n in range(0, AT_ONCE, 2)
        ]
        awaited = [guard.arun(call(n), context=HERE) for n in range(1, AT_ONCE, 2)]
        outcomes = await asyncio.gather(*blocking, *awaited)

    assert Counter(outcome.decision.action.value for outcome in outcomes) == {"forward": AT_ONCE}
    assert {int(str(count)) for count in counted(sessions).values()} == {AT_ONCE}


@pytest.mark.spec("SES-40")
async def test_guarded_tools_of_one_session_all_run(sessions: SessionStore) -> None:
    with Guard(sessions=sessions) as guard:

        @guard.tool
        async def ping(n: int) -> str:
            await asyncio.sleep(0)
            return f"pong {n}"

        with guard.session("s1", subject={"id": "ann"}):
            replies = await asyncio.gather(*[ping(n) for n in range(AT_ONCE)])

    assert replies == [f"pong {n}" for n in range(AT_ONCE)]
    assert {int(str(count)) for count in counted(sessions).values()} == {AT_ONCE}


@pytest.mark.spec("SES-40")
def test_the_work_grows_with_the_number_of_runs() -> None:
    """Each run is judged at most three times: when it came, overtaken by one that came with it, and in its turn."""

    async def judged(number: int) -> int:
        judgements = 0

        @as_stage("count")
        def count(value: Message, context: object) -> None:
            nonlocal judgements
            judgements += 1

        guard = Guard(stages=[count])
        outcomes = await asyncio.gather(*[guard.arun(call(n), context=HERE) for n in range(number)])
        assert all(outcome.value is not None for outcome in outcomes)
        return judgements

    for number in (10, 100, 300):
        assert asyncio.run(judged(number)) <= 3 * number


@pytest.mark.spec("SES-41")
async def test_a_stage_that_asks_about_its_own_session_does_not_wait_for_itself() -> None:
    inner = Guard(sessions=(sessions := MemorySessions()))

    @as_stage("asks")
    async def asks(value: Message, context: object) -> None:
        await inner.acheck(Message(role="user", content=[TextPart(text="hello")]), context=HERE)
        inner.check(Message(role="user", content=[TextPart(text="hello")]), context=HERE)

    outer = Guard(stages=[asks], sessions=sessions)
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*[outer.arun(call(n), context=HERE) for n in range(10)])

    assert [outcome.value is not None for outcome in outcomes] == [True] * 10


@pytest.mark.spec("SES-41")
async def test_a_blocking_call_in_a_loop_does_not_wait_for_a_task_of_that_loop() -> None:
    sessions = MemorySessions()
    place = sessions.turns.join(session := _key())

    outcome = Guard(sessions=sessions).run(call(1), context=HERE)

    sessions.turns.leave(session, place)

    assert outcome.value is not None


def _key() -> object:
    from pipeline.decisions.context import session_key

    return session_key(HERE)


@pytest.mark.spec("SES-41")
@pytest.mark.parametrize("awaits", [False, True])
def test_who_waits_too_long_is_told_so_and_leaves_the_line(awaits: bool) -> None:
    turns = SessionTurns()
    first = turns.join("s")

    def tried() -> bool:
        with turns.tries("s", seconds=0.05) as tries:
            return asyncio.run(tries.aagain()) if awaits else tries.again()

    assert not tried()
    turns.leave("s", first)
    assert not turns.is_waited_for("s")
    assert tried()


@pytest.mark.spec("SES-40")
async def test_a_run_that_is_cancelled_in_line_leaves_it_and_the_next_has_its_turn() -> None:
    turns = SessionTurns()
    order: list[str] = []

    async def run(name: str) -> None:
        with turns.tries("s") as tries:
            assert await tries.aagain()
            order.append(name)

    first = turns.join("s")
    cancelled, last = asyncio.create_task(run("cancelled")), asyncio.create_task(run("last"))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    await asyncio.sleep(0.01)
    turns.leave("s", first)
    await last

    assert order == ["last"]
    assert not turns.is_waited_for("s")


@pytest.mark.spec("SES-40")
def test_the_line_is_first_come_first_served() -> None:
    turns, order = SessionTurns(), []
    first = turns.join("s")
    threads = []
    for number in range(8):
        joined = threading.Event()

        def run(number: int = number, joined: threading.Event = joined) -> None:
            place = turns.join("s")
            joined.set()
            place.result()
            order.append(number)
            turns.leave("s", place)

        threads.append(thread := threading.Thread(target=run))
        thread.start()
        joined.wait()
    turns.leave("s", first)
    for thread in threads:
        thread.join()

    assert order == list(range(8))


OTHER = """
import sys, threading
from collections import Counter
from pathlib import Path
from tests.pipeline.sessions.test_turns import HERE, call, opened
from concurrent.futures import ThreadPoolExecutor
from pipeline import Guard, as_stage

place, key, first, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
judged = []

@as_stage("count")
def counting(value, context):
    judged.append(value)

with opened(place, key) as sessions, Guard(sessions=sessions, stages=[counting]) as guard:
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(count) as threads:
        outcomes = list(threads.map(lambda number: guard.run(call(number), context=HERE), range(first, first + count)))
print(sum(outcome.value is not None for outcome in outcomes), len(judged))
"""
PROCESSES, EACH = 2, 100
MOST_JUDGED = 6  # times on average: in one process at most 3, and a run at the head of its line can lose to the other


@contextmanager
def opened(place: str, key: Path) -> Iterator[SessionStore]:
    """The sessions at a URL."""
    if place.startswith("redis:"):
        redis = RedisSessions(place)
        yield redis
        redis.close()
        return
    with Store.named(place, key=key) as store:
        yield store.sessions()


@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.spec("SES-40", "SES-41", "PIPE-10")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "redis"])
def test_two_processes_with_a_hundred_runs_of_one_session_each_all_succeed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, proof_row: Callable[..., None]
) -> None:
    if kind == "sqlite":
        place = f"sqlite:///{tmp_path / 'cmf.db'}"
    else:
        place = request.getfixturevalue("redis_url") if kind == "redis" else request.getfixturevalue("postgres").new()
    with opened(place, tmp_path / "key") as sessions:
        sessions.add_labels(HERE, frozenset({"seen"}))
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", OTHER, place, str(tmp_path / "key"), str(at * EACH), str(EACH)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for at in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        begun = monotonic()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=120)[0].split() for process in processes]
        seconds = monotonic() - begun

        assert [int(went) for went, _ in said] == [EACH] * PROCESSES
        assert {int(str(count)) for count in counted(sessions).values()} == {PROCESSES * EACH}
    judged = sum(int(judgements) for _, judgements in said)
    assert judged <= MOST_JUDGED * PROCESSES * EACH
    runs = PROCESSES * EACH
    proof_row(f"two processes, one session ({kind})", runs=runs, refused=0, judged=judged, seconds=round(seconds, 1))
