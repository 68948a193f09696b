"""One session with a server over HTTP: what of its answers is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import get_ident
from typing import Any

import pytest
from tests.pipeline.gateway.mcp_servers import Said, Told, json_reply, sse_reply
from tests.pipeline.mcp.pairs import call, notice

from pipeline.mcp.frames import Refused
from pipeline.mcp.http_server import Address, HttpServer, ParamHeaders, connections


class NotedParams(ParamHeaders):
    """What a list tells of arguments in headers, and on which threads that was learned."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def learn(self, answer: Any) -> None:
        """Note the thread, and learn."""
        self.threads.append(get_ident())
        super().learn(answer)


FINE = {"jsonrpc": "2.0", "id": 1, "result": {}}
HELLO = call("initialize", {"protocolVersion": "2025-11-25"})


@asynccontextmanager
async def before(
    answers: Callable[[Said], Any], params: ParamHeaders | None = None, **more: Any
) -> AsyncIterator[tuple[HttpServer, Told]]:
    """A session with a server that answers like this."""
    told = Told(answers)
    with told.running() as url:
        async with connections() as http:
            yield HttpServer(http, Address(url=url, headers={}, **more), params), told


async def code_of(server: HttpServer, body: dict[str, Any]) -> str:
    with pytest.raises(Refused) as caught:
        _ = [value async for value in server.post(body)]
    return caught.value.code


@pytest.mark.spec("MCPX-18")
async def test_a_silent_server_is_not_waited_for() -> None:
    async with before(lambda said: sse_reply(5.0), silent_seconds=0.1) as (server, _):
        assert await code_of(server, call("ping")) == "mcp.timeout"


@pytest.mark.spec("GW-68")
@pytest.mark.parametrize(("tools", "is_beside"), [(2, False), (5_000, True)])
async def test_a_long_list_of_tools_is_read_beside_the_event_loop(tools: int, is_beside: bool) -> None:
    listed = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(tools)]
    params = NotedParams()

    async with before(lambda said: json_reply({**FINE, "result": {"tools": listed}}), params) as (server, _):
        (answer,) = [value async for value in server.post(call("tools/list"))]

    assert len(answer["result"]["tools"]) == tools
    assert [thread != get_ident() for thread in params.threads] == [is_beside]


@pytest.mark.spec("MCPX-19")
@pytest.mark.parametrize("given", ["a b", "x" * 257, ""])
async def test_a_session_s_id_that_is_none_is_not_taken(given: str) -> None:
    async with before(lambda said: json_reply(FINE, mcp_session_id=given)) as (server, _):
        assert await code_of(server, HELLO) == "mcp.unreadable"
        assert server.session is None


@pytest.mark.spec("MCPX-65")
async def test_a_session_is_begun_once_and_ended_there_if_it_was_begun() -> None:
    async with before(lambda said: json_reply(FINE, mcp_session_id="theirs")) as (server, told):
        await server.end()
        assert [value async for value in server.post(HELLO)] == [FINE]
        server.version = "2025-11-25"
        assert [value async for value in server.post(HELLO)] == [FINE]
        await server.end()

    assert [said.method for said in told.heard] == ["POST", "POST", "DELETE"]
    assert [said.headers.get("mcp-session-id") for said in told.heard] == [None, "theirs", "theirs"]
    assert [said.headers.get("mcp-protocol-version") for said in told.heard] == [None, None, "2025-11-25"]
    assert server.session is None


@pytest.mark.spec("MCPX-65")
async def test_whether_a_server_lets_go_of_a_session_is_its_own_affair() -> None:
    answers = iter([json_reply(FINE, mcp_session_id="theirs"), (405, {}, [])])
    async with before(lambda said: next(answers)) as (server, told):
        assert [value async for value in server.post(HELLO)] == [FINE]
        await asyncio.wait_for(server.end(), 10)

    assert told.heard[-1].method == "DELETE"


@pytest.mark.spec("MCPX-62")
@pytest.mark.parametrize("body", [notice("notifications/x"), {"jsonrpc": "2.0", "id": 1, "result": {}}])
@pytest.mark.parametrize("more", [(call("ping"), 30.0), (b": no event\n\n", 30.0)])
async def test_what_a_server_says_to_what_needs_no_answer_is_not_read(body: dict[str, Any], more: Any) -> None:
    async with before(lambda said: sse_reply(*more)) as (server, told):
        async with asyncio.timeout(10):
            assert [value async for value in server.post(body)] == []
        assert await asyncio.to_thread(told.left.wait, 10)
