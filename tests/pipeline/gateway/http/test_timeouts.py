"""Many blocks, one timer: who takes too long is ended, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.gateway.http.incoming import SharedTimeout


async def too_long(in_time: SharedTimeout) -> None:
    with in_time.block():
        await asyncio.Event().wait()


async def soon(in_time: SharedTimeout) -> str:
    with in_time.block():
        await asyncio.sleep(0)
    return "there"


@pytest.mark.spec("GW-160")
async def test_who_takes_too_long_is_ended_and_who_is_in_time_is_not() -> None:
    timeout = SharedTimeout(0.01)

    found = await asyncio.gather(
        too_long(timeout), soon(timeout), too_long(timeout), soon(timeout), return_exceptions=True
    )

    assert [type(one) for one in found] == [TimeoutError, str, TimeoutError, str]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@pytest.mark.spec("GW-160")
async def test_one_timer_serves_all_and_goes_on_for_who_began_later(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), 0
    call_at = loop.call_at

    def counted(*given: Any, **more: Any) -> asyncio.TimerHandle:
        nonlocal timers
        timers += 1
        return call_at(*given, **more)

    timeout = SharedTimeout(0.02)
    monkeypatch.setattr(loop, "call_at", counted)
    first = asyncio.ensure_future(too_long(timeout))
    for _ in range(20):
        await soon(timeout)
    assert timers == 1

    await asyncio.wait([first, asyncio.ensure_future(asyncio.sleep(0.01))], return_when=asyncio.FIRST_COMPLETED)
    later = asyncio.ensure_future(too_long(timeout))
    found = await asyncio.gather(first, later, return_exceptions=True)

    assert [type(one) for one in found] == [TimeoutError, TimeoutError]


@pytest.mark.spec("GW-160")
async def test_a_cancellation_from_outside_is_kept_before_and_after_the_timeout() -> None:
    timeout = SharedTimeout(0.01)
    early = asyncio.ensure_future(too_long(timeout))
    await asyncio.sleep(0)
    early.cancel()
    with pytest.raises(asyncio.CancelledError):
        await early

    async def ended_twice() -> None:
        with timeout.block():
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()

    task = asyncio.ensure_future(ended_twice())
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.spec("GW-160")
async def test_what_goes_wrong_at_the_end_is_not_taken_for_lateness() -> None:
    async def failing() -> None:
        with SharedTimeout(0.01).block():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionResetError from None

    with pytest.raises(ConnectionResetError):
        await failing()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@pytest.mark.spec("GW-160")
def test_it_bounds_in_the_next_loop_too() -> None:
    timeout = SharedTimeout(0.01)
    asyncio.run(soon(timeout))

    with pytest.raises(TimeoutError):
        asyncio.run(too_long(timeout))
