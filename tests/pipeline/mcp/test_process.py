"""What happens between a process's pipes and who is told to end meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.mcp.stdio import Process


class Pipe:
    """An input that takes what is written, once it is told to."""

    def __init__(self) -> None:
        self.drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_closing(self) -> bool:
        return False

    def write(self, line: bytes) -> None:
        assert line == b'{"id":1}\n'

    async def drain(self) -> None:
        await self.drained


@pytest.mark.spec("MCPX-51")
async def test_a_send_cancelled_just_when_it_finishes_is_cancelled() -> None:
    pipe = Pipe()
    process = Process(cast(Any, SimpleNamespace(stdin=pipe, stdout=None)), 1024)
    sending = asyncio.create_task(process.send({"id": 1}))
    await asyncio.sleep(0)

    pipe.drained.set_result(None)
    await asyncio.sleep(0)
    told = sending.cancel()
    await asyncio.wait([sending])

    assert sending.cancelled() is told  # nobody who was told to end goes on
