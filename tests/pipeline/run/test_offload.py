"""Large work leaves the event loop, wherever it came in."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cmf import Message, TextPart
from pipeline import Guard, Refuse
from pipeline.run.offload import LARGE_BYTES, apart, arrived, arrived_bytes, close_threads, has_large_work

SAYS = Message(role="user", content=[TextPart(text="hello")])


@pytest.mark.spec("GW-68")
@pytest.mark.parametrize(("size", "leaves"), [(LARGE_BYTES + 1, True), (LARGE_BYTES, False)])
async def test_what_is_large_is_judged_off_the_event_loop(size: int, leaves: bool) -> None:
    judged_on: list[threading.Thread] = []

    def refuse(*_: object) -> Refuse:
        judged_on.append(threading.current_thread())
        return Refuse("test.no", "No.")

    guard = Guard(stages=[refuse])
    arrived(size, anew=True)

    outcome = await guard.arun(SAYS)

    assert outcome.decision.verdict == "deny"
    assert (judged_on[0] is not threading.current_thread()) is leaves
    close_threads()


@pytest.mark.spec("GW-68")
async def test_the_most_that_arrived_for_a_task_decides_until_it_begins_anew() -> None:
    here = threading.current_thread()
    arrived(LARGE_BYTES + 1, anew=True)
    arrived(10)

    assert await apart(threading.current_thread) is not here
    assert await asyncio.create_task(apart(threading.current_thread)) is not here

    arrived(10, anew=True)

    assert arrived_bytes() == 10
    assert await apart(threading.current_thread) is here
    close_threads()


@pytest.mark.spec("GW-68")
async def test_large_work_is_known_of_until_it_is_done() -> None:
    begun, free = threading.Event(), threading.Event()
    arrived(LARGE_BYTES + 1, anew=True)
    work = asyncio.create_task(apart(lambda: (begun.set(), free.wait(10))))
    arrived(0, anew=True)

    await asyncio.to_thread(begun.wait, 10)
    assert has_large_work()

    free.set()
    await work
    assert not has_large_work()
    close_threads()
