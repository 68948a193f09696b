"""The proxy over real pipes in this process: what its ends do, and what becomes of what does not end as it should."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.mcp_servers import Said, json_reply, polite, sse_reply
from tests.pipeline.gateway.servers import until
from tests.pipeline.mcp.pairs import call, notice
from tests.pipeline.mcp.pipe_ends import LineClient, pipe_ends

from cmf.json.codec import dumps
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ConfigError
from pipeline.guard import Guard
from pipeline.mcp import stdio
from pipeline.mcp.frames import MAX_MESSAGE_BYTES, Frame, FrameError, frame_of
from pipeline.mcp.http_server import Address, HttpServer, connections
from pipeline.mcp.link import Link
from pipeline.mcp.pins import Pins
from pipeline.mcp.stdio import (
    ClientDisconnected,
    FromServer,
    Pipes,
    Process,
    ServerDisconnected,
    StdioProxy,
    UrlServer,
)
from pipeline.run.assembly import Config

HOSTILE = Path(__file__).parent / "hostile.py"
WORDS = {"words": 'deny contains {"code": "no.bomb", "reason": "No."} if contains(input.content, "bomb")'}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
FINE = {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    home = write_rules(tmp_path_factory.mktemp("policy"), WORDS)
    with Guard(home, config=Config(timeout_seconds=20)) as guard:
        yield guard


class Parrot:
    """A server in this process: it keeps what it is told, and says what it is given to say; None is its end."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.told: list[dict[str, Any]] = []
        self.says: asyncio.Queue[FromServer | Exception | None] = asyncio.Queue()
        self.ended = 0
        self._hears = asyncio.Condition()

    async def hears(self, count: int) -> None:
        """Wait until it was told so many messages."""
        async with self._hears:
            await asyncio.wait_for(self._hears.wait_for(lambda: len(self.told) >= count), 30)

    async def send(self, body: Mapping[str, Any]) -> None:
        async with self._hears:
            self.told.append(dict(body))
            self._hears.notify_all()
        if self.answers and "id" in body:
            answer = frame_of({"jsonrpc": "2.0", "id": body["id"], "result": {}})
            assert isinstance(answer, Frame)
            self.says.put_nowait(answer)

    async def received(self) -> AsyncIterator[FromServer]:
        while (said := await self.says.get()) is not None:
            if isinstance(said, Exception):
                raise said
            yield said

    async def end(self) -> None:
        self.ended += 1


@asynccontextmanager
async def proxied(
    guard: Guard, server: Process | UrlServer | None = None, *, url: str | None = None,
    message_bytes: int = MAX_MESSAGE_BYTES, answer_seconds: float = 30.0,
) -> AsyncIterator[tuple[LineClient, asyncio.Future[bool], asyncio.Event]]:  # fmt: skip
    """A client of a proxy, what the proxy's run gives, and what stops it."""
    link = Link(
        guard, Context(session="s"), server="x", pins=Pins(), clock=time.monotonic, answer_seconds=answer_seconds
    )
    stop = asyncio.Event()
    async with connections() as http, pipe_ends(message_bytes) as (pipes, client):
        if url is not None:
            server = UrlServer(HttpServer(http, Address(url=url, headers={})), link)
        assert server is not None
        running = asyncio.ensure_future(StdioProxy(link, pipes, server).run(stop))
        try:
            yield client, running, stop
        finally:
            stop.set()
            with contextlib.suppress(ValueError):
                await asyncio.wait_for(running, 30)


async def begun(how: str, *more: str) -> Process:
    return await Process.begin([sys.executable, "-I", "-S", str(HOSTILE), how, *more], None, MAX_MESSAGE_BYTES)


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-19", "MCPX-52")
@pytest.mark.parametrize("error", [None, ServerDisconnected(), FrameError(-32700, "mcp.unreadable", "No.")])
async def test_where_the_server_is_gone_calls_end_in_errors_and_the_run_says_so(
    guard: Guard, error: Exception | None
) -> None:
    parrot = Parrot(answers=False)
    async with proxied(guard, parrot) as (client, running, _):
        await client.tell(call("ping"))
        await parrot.hears(1)
        parrot.says.put_nowait(error)
        body = await client.hear()

        assert body["error"]["data"]["code"] == "mcp.server-disconnected"
        assert await running is False
        assert parrot.ended == 1


@pytest.mark.spec("MCPX-52")
async def test_a_server_that_ends_first_is_reported_without_open_calls_too(guard: Guard) -> None:
    parrot = Parrot()
    async with proxied(guard, parrot) as (client, running, _):
        assert (await client.ask(call("ping")))[-1] == FINE
        parrot.says.put_nowait(None)

        assert await running is False


@pytest.mark.spec("MCPX-51")
async def test_a_requested_stop_counts_as_a_normal_end(guard: Guard) -> None:
    parrot = Parrot(answers=False)
    async with proxied(guard, parrot) as (client, running, stop):
        await client.tell(call("ping"))
        await parrot.hears(1)
        stop.set()

        assert (await client.hear())["error"]["data"]["code"] == "mcp.server-disconnected"
        assert await running is True


@pytest.mark.spec("MCPX-51")
async def test_a_call_is_answered_after_its_client_closed_its_input(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    parrot, closed = Parrot(answers=False), asyncio.Event()
    wait_for_answers = StdioProxy._wait_for_answers

    async def waiting(self: StdioProxy, *tasks: asyncio.Future[Any]) -> None:
        closed.set()
        await wait_for_answers(self, *tasks)

    monkeypatch.setattr(StdioProxy, "_wait_for_answers", waiting)
    async with proxied(guard, parrot) as (client, running, _):
        await client.tell(call("ping"))
        client.leave()
        await parrot.hears(1)
        await asyncio.wait_for(closed.wait(), 30)
        assert not running.done()
        parrot.says.put_nowait(frame_of(FINE | {"id": parrot.told[0]["id"]}))

        assert await client.hear() == FINE
        assert await running is True


@pytest.mark.spec("MCPX-51")
async def test_an_unanswered_call_ends_after_the_client_left(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "ANSWER_SECONDS", 0.05)
    async with proxied(guard, Parrot(answers=False)) as (client, running, _):
        await client.tell(call("ping"))
        client.leave()

        assert (await client.hear())["error"]["data"]["code"] == "mcp.server-disconnected"
        assert await running is True


@pytest.mark.spec("MCPX-19")
async def test_a_server_that_ends_after_the_client_left_is_reported(guard: Guard) -> None:
    parrot = Parrot(answers=False)
    async with proxied(guard, parrot) as (client, running, _):
        await client.tell(call("ping"))
        client.leave()
        await parrot.hears(1)
        parrot.says.put_nowait(None)

        assert (await client.hear())["error"]["data"]["code"] == "mcp.server-disconnected"
        assert await running is False


async def test_an_unexpected_exception_is_raised_and_the_server_is_ended(guard: Guard) -> None:
    parrot = Parrot()
    async with proxied(guard, parrot) as (_, running, _):
        parrot.says.put_nowait(ValueError("a bug"))

        with pytest.raises(ValueError, match="a bug"):
            await running
        assert parrot.ended == 1


async def test_a_client_that_reads_no_more_is_gone(guard: Guard) -> None:
    parrot = Parrot(answers=False)
    theirs, writes = os.pipe()
    reads, ours = os.pipe()
    os.close(reads)
    link = Link(guard, Context(), server=None, pins=Pins(), clock=time.monotonic, answer_seconds=30)
    running = asyncio.ensure_future(StdioProxy(link, Pipes(theirs, ours, 1024), parrot).run(asyncio.Event()))
    os.write(writes, b"hello\n")  # to which there is an answer

    assert await asyncio.wait_for(running, 30) is False
    for one in (writes, theirs, ours):
        os.close(one)


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-1", "MCPX-2")
async def test_what_is_no_message_is_answered_and_what_is_too_long_ends_the_client(guard: Guard) -> None:
    parrot = Parrot()
    async with proxied(guard, parrot, message_bytes=200) as (client, running, _):
        client.say(b"hello\n")
        assert (await client.hear())["error"]["data"]["code"] == "mcp.unreadable"
        assert (await client.ask(call("ping")))[-1] == FINE
        client.say(b"x" * 201)

        assert (await client.hear())["error"]["data"]["code"] == "mcp.too-large"
        assert await running is False
        assert len(parrot.told) == 1


@pytest.mark.spec("MCPX-2")
async def test_a_last_line_without_its_end_is_read(guard: Guard) -> None:
    async with proxied(guard, Parrot()) as (client, running, _):
        client.say(dumps(call("ping")))
        client.leave()

        assert await client.hear() == FINE
        assert await running is True


@pytest.mark.spec("MCPX-18")
async def test_a_call_that_times_out_ends_and_the_server_gets_a_cancellation(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "TIMEOUT_CHECK_SECONDS", 0.01)
    parrot = Parrot(answers=False)
    async with proxied(guard, parrot, answer_seconds=0.05) as (client, _, _):
        [body] = await client.ask(call("ping"))
        await parrot.hears(2)

    assert body["error"]["data"]["code"] == "mcp.timeout"
    assert parrot.told[1]["params"] == {"requestId": parrot.told[0]["id"], "reason": "timeout"}


@pytest.mark.spec("MCPX-18")
async def test_a_server_s_call_that_times_out_ends_and_the_client_gets_a_cancellation(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "TIMEOUT_CHECK_SECONDS", 0.01)
    parrot = Parrot(answers=False)
    asked = frame_of(call("roots/list", id="q"))
    assert isinstance(asked, Frame)
    async with proxied(guard, parrot, answer_seconds=0.05) as (client, _, _):
        parrot.says.put_nowait(asked)
        question, cancelled = await client.hear(), await client.hear()
        await parrot.hears(1)

    assert cancelled["params"] == {"requestId": question["id"], "reason": "timeout"}
    assert (parrot.told[0]["id"], parrot.told[0]["error"]["data"]["code"]) == ("q", "mcp.timeout")


# -- pipes -------------------------------------------------------------------------------------------------------------


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("mcp-client-")}


async def test_a_client_that_cannot_be_read_has_ended() -> None:
    ours, writes = os.pipe()
    pipes = Pipes(writes, ours, 1024)  # the wrong ends: neither can be read, or written

    assert [line async for line in pipes.lines()] == []
    with pytest.raises(ClientDisconnected):
        await pipes.write(b"x")
    for one in (ours, writes):
        os.close(one)


async def test_a_line_whose_writer_timed_out_is_written_completely() -> None:
    theirs, writes = os.pipe()
    reads, ours = os.pipe()
    pipes, line = Pipes(theirs, ours, 1024), b"x" * (1 << 20)
    with pytest.raises(TimeoutError):  # nobody reads: the pipe is full
        await asyncio.wait_for(pipes.write(line), 0.05)
    after = asyncio.ensure_future(pipes.write(b"after"))
    got = b""
    while not got.endswith(b"after\n"):
        got += await asyncio.to_thread(os.read, reads, 1 << 20)
    await after

    assert got == line + b"\nafter\n"
    for one in (theirs, writes, reads, ours):
        os.close(one)


async def test_no_more_is_read_ahead_than_a_few_chunks() -> None:
    theirs, writes = os.pipe()
    reads, ours = os.pipe()
    pipes = Pipes(theirs, ours, 1024)
    for turn in range(4):
        os.write(writes, b"x")
        await asyncio.to_thread(until, lambda least=turn: pipes._chunks.qsize() > least)
    os.write(writes, b"y")
    await asyncio.to_thread(until, lambda: not select.select([theirs], [], [], 0)[0])  # the thread holds it
    os.write(writes, b"z\n")

    assert select.select([theirs], [], [], 0)[0]
    assert await anext(pipes.lines()) == b"xxxxyz"
    for one in (theirs, writes, reads, ours):
        os.close(one)


def test_threads_end_with_the_loop() -> None:
    theirs, writes = os.pipe()
    reads, ours = os.pipe()
    before = threads()

    async def begin() -> Pipes:
        return Pipes(theirs, ours, 1024)

    pipes = asyncio.run(begin())
    os.write(writes, b"late\n")
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        pipes._to_write.put((b"late\n", loop.create_future()))
        for thread in threads() - before:
            thread.join(10)

        assert threads() <= before
    for one in (theirs, writes, reads, ours):
        os.close(one)


# -- a process ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("MCPX-4")
async def test_stray_output_of_a_server_is_skipped(guard: Guard) -> None:
    async with proxied(guard, await begun("stray")) as (client, running, _):
        assert await client.ask(call("ping")) == [FINE]
        client.leave()

        assert await running is True


@pytest.mark.slow
@pytest.mark.spec("MCPX-51")
async def test_a_process_that_will_not_end_is_ended_with_all_it_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.1)
    deaf = await begun("deaf")
    await deaf.send(call("ping"))
    assert await anext(aiter(deaf.lines())) == b'{"jsonrpc": "2.0", "id": 1, "result": {}}'

    assert await deaf.end() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.killpg(deaf.pid, 0)
    with pytest.raises(ServerDisconnected):
        await deaf.send(call("ping"))


@pytest.mark.slow
@pytest.mark.spec("MCPX-51")
async def test_unread_output_of_a_server_does_not_block_its_end() -> None:
    loud = await Process.begin(["sh", "-c", "cat; head -c 100000 /dev/zero"], None, 1024)

    assert await loud.end() == 0


@pytest.mark.slow
async def test_a_process_that_takes_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.1)
    sleeper = await Process.begin(["sleep", "600"], None, 1024)
    with pytest.raises(ServerDisconnected):
        await sleeper.send(call("ping", {"x": "x" * (1 << 20)}))

    assert await sleeper.end() == -signal.SIGTERM


@pytest.mark.spec("MCPX-52")
@pytest.mark.parametrize("command", [["/no/such/command"], ["a\0b"]])
async def test_a_missing_command_is_a_config_error(command: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        await Process.begin(command, None, 1024)

    assert caught.value.code == "mcp.no-command"


@pytest.mark.spec("MCPX-51")
def test_the_system_is_asked_to_end_the_server_with_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Libc:
        @staticmethod
        def prctl(option: int, value: int) -> int:
            asked.append((option, value))
            return 0

    monkeypatch.setattr(stdio, "_LIBC", None)
    stdio._stop_with_parent()
    monkeypatch.setattr(stdio, "_LIBC", Libc)
    stdio._stop_with_parent()

    assert asked == [(1, signal.SIGTERM)]


# -- a server over HTTP ------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-19")
@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        ((500, {}, [b"oops"]), None),  # a Refused: the one call ends, the rest goes on
        (sse_reply(FINE | {"id": "another"}), None),
        (json_reply([1]), False),  # no message at all: nobody can say whose answer it was to be
    ],
)
async def test_an_answer_that_is_none_ends_in_an_error(guard: Guard, answer: Any, ends: bool | None) -> None:
    server = polite(lambda said: answer if said.body and said.body.get("method") == "ping" else None)
    with server.running() as url:
        async with proxied(guard, url=url) as (client, running, _):
            [body] = await client.ask(call("ping"))
            assert body["error"]["data"]["code"] == "mcp.server-disconnected"
            if ends is None:
                [fine] = await client.ask(call("tools/list", {}, 2))
                assert fine == FINE | {"id": 2}
            else:
                assert await running is ends


@pytest.mark.spec("MCPX-51")
async def test_what_a_server_has_not_answered_when_it_ends_is_not_waited_for(guard: Guard) -> None:
    server = polite(lambda said: sse_reply(30.0) if said.body and said.body.get("method") == "ping" else None)
    with server.running() as url:
        async with proxied(guard, url=url) as (client, running, stop):
            await client.tell(call("ping"))
            await asyncio.to_thread(until, lambda: len(server.heard) == 1)
            stop.set()

            assert (await client.hear())["error"]["data"]["code"] == "mcp.server-disconnected"
            assert await running is True
        assert await asyncio.to_thread(server.left.wait, 10)


@pytest.mark.spec("MCPX-19")
async def test_an_error_that_names_no_call_is_that_of_the_call_it_answers(guard: Guard) -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}
    server = polite(lambda said: json_reply(error, 400) if said.body and said.body.get("method") == "ping" else None)
    with server.running() as url:
        async with proxied(guard, url=url) as (client, _, _):
            assert await client.ask(call("ping")) == [{**error, "id": 1}]


@pytest.mark.spec("MCPX-60")
@pytest.mark.parametrize("first", [500, 200])
async def test_unsolicited_messages_of_a_server_arrive_and_the_stream_is_reopened(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(stdio, "RETRY_SECONDS", 0.01)
    said = notice("notifications/message", {"level": "info", "data": "hi"})
    bad = notice("notifications/message", {"level": "info", "data": "a bomb"})
    gets = iter([(first, {"content-type": "text/event-stream"}, []), sse_reply(bad, said), (405, {}, [])])

    def answers(asked: Said) -> Any:
        return next(gets) if asked.method == "GET" else None

    server = polite(answers)
    with server.running() as url:
        async with proxied(guard, url=url) as (client, running, _):
            await client.ask(call("initialize", HELLO, 0))
            await client.tell(notice("notifications/initialized"))
            assert await client.hear() == said
            await asyncio.to_thread(until, lambda: sum(one.method == "GET" for one in server.heard) == 3)
            assert await client.ask(call("ping")) == [FINE]
            client.leave()
            assert await running is True

    assert server.heard[-1].method == "DELETE"
    assert {one.headers.get("mcp-protocol-version") for one in server.heard[1:]} == {"2025-11-25"}
