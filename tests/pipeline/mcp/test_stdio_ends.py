"""A proxy that is told to end at any moment: each call that its server got has one answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from tests.pipeline.mcp.pairs import READ, call
from tests.pipeline.mcp.test_stdio_inside import Parrot

from pipeline.decisions.context import Context
from pipeline.guard import Guard
from pipeline.mcp import stdio
from pipeline.mcp.link import Link
from pipeline.mcp.pins import Pins
from pipeline.mcp.stdio import Pipes, StdioProxy

CALLS = 4


class Client:
    """A client that says all it has to say, and takes its time to read; not at all, if it is stuck."""

    def __init__(self, said: Sequence[dict[str, Any]], *, stuck: bool = False) -> None:
        self._said, self._stuck = said, stuck
        self.read: list[dict[str, Any]] = []

    async def lines(self) -> AsyncIterator[bytes]:
        for body in self._said:
            yield json.dumps(body).encode()
        await asyncio.Event().wait()

    async def write(self, line: bytes) -> None:
        await (asyncio.Event().wait() if self._stuck else asyncio.sleep(0))
        self.read.append(json.loads(line))


@pytest.fixture(scope="module")
def guard(lenient: Path) -> Iterator[Guard]:
    with Guard(lenient) as guard:
        yield guard


async def ended(guard: Guard, client: Client, after: int, turns: int = 0, *, answers: bool = True) -> Parrot:
    """The server of a proxy that is told to end so many turns of its loop after so many messages have arrived."""
    link = Link(guard, Context(), server="x", pins=Pins(), clock=time.monotonic, answer_seconds=10)
    server, stop = Parrot(answers=answers), asyncio.Event()
    running = asyncio.ensure_future(StdioProxy(link, cast("Pipes", client), server).run(stop))
    for _ in range(1_000_000):
        if len(server.told) + len(client.read) >= after:  # on both sides; threads judge calls meanwhile
            break
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 10)
    assert (link.waiting, server.ended) == (0, 1)
    return server


@pytest.mark.spec("MCPX-19")
async def test_a_proxy_that_is_stopped_at_any_moment_answers_each_call_once(guard: Guard) -> None:
    said = [call("tools/call", READ, number) for number in range(CALLS)]
    moments = [(after, turns, True) for after, turns in product(range(2 * CALLS + 1), range(6))]
    for after, turns, answers in (*moments, (CALLS, 0, False)):
        client = Client(said)
        server = await ended(guard, client, after, turns, answers=answers)
        told = [body["id"] for body in client.read if "id" in body]
        cut = [body["error"]["data"]["code"] for body in client.read if "error" in body]
        assert sorted(told) == list(range(len(server.told)))
        assert set(cut) <= {"mcp.server-disconnected"}
    assert (len(told), len(cut)) == (CALLS, CALLS)


@pytest.mark.spec("MCPX-19")
async def test_a_client_that_does_not_read_holds_no_end_up(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.01)

    server = await ended(guard, Client([call("tools/call", READ)], stuck=True), 1)

    assert len(server.told) == 1
