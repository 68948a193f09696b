"""A run that blocks its thread awaits nothing."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.run.offload import completed


@pytest.mark.spec("PIPE-5")
def test_a_blocking_run_that_awaits_fails_and_is_closed() -> None:
    ended: list[bool] = []

    async def run() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="has awaited something"):
        completed(run())
    assert ended == [True]
