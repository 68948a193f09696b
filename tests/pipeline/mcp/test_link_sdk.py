"""The SDK's client and server with a link between them: all that the protocol knows goes on as without it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import mcp_types
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import methods
from tests.cmf.adapters.sdk.typed_bodies import marked, variants
from tests.pipeline.mcp import rich
from tests.pipeline.mcp.pairs import Pair

from cmf.adapters import get
from cmf.views.iterate import iter_views
from pipeline.guard import Guard
from pipeline.mcp.frames import frame_of
from pipeline.mcp.link import Side


@pytest.fixture(scope="module")
def shipped() -> Iterator[Guard]:
    with Guard() as guard:
        yield guard


@pytest.fixture(scope="module")
def open_to_all(lenient: Path) -> Iterator[Guard]:
    with Guard([lenient]) as guard:
        yield guard


@asynccontextmanager
async def linked(pair: Pair, server: Any) -> AsyncIterator[Any]:
    """The client's end of a link before a server."""
    async with (
        InMemoryTransport(server) as (from_server, to_server),
        create_client_server_memory_streams() as (client, (from_client, to_client)),
        anyio.create_task_group() as group,
    ):

        async def pump(side: Side, source: Any, onward: Any, back: Any) -> None:
            async for item in source:
                body = json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True))
                step = await pair.link.receive(side, frame_of(body))
                for sink, bodies in ((onward, step.onward), (back, step.back)):
                    for one in bodies:
                        message = mcp_types.jsonrpc_message_adapter.validate_python(one, by_name=False)
                        await sink.send(SessionMessage(message))

        group.start_soon(pump, Side.CLIENT, from_client, to_server, to_client)
        group.start_soon(pump, Side.SERVER, from_server, to_client, to_server)
        yield client
        group.cancel_scope.cancel()


async def heard(transport: Any, mode: str) -> tuple[list[Any], list[Any]]:
    """What a client with such a transport gets to hear: answers, and what is said of its own accord."""
    told: list[Any] = []

    async def log(params: Any) -> None:
        told.append(params)

    async def other(message: Any) -> None:
        told.append(type(message).__name__)

    own = {"logging_callback": log, "message_handler": other, **rich.ANSWERS}
    async with Client(transport, mode=mode, **own) as client:
        found = await rich.session(client, told, legacy=mode == "legacy")
        await anyio.wait_all_tasks_blocked()
    return found, told


@pytest.mark.spec("MCPX-10", "MCPX-11", "MCPX-12", "MCPX-13", "MCPX-16", "MCPX-17")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_session_of_everything_is_under_the_shipped_policies_what_it_is_without(
    shipped: Guard, mode: str
) -> None:
    with anyio.fail_after(60):
        without = await heard(InMemoryTransport(rich.server()), mode)
        judged = await heard(linked(Pair(shipped), rich.server()), mode)

    assert judged == without
    assert len(judged[0]) > 11


# -- each message of the SDK's types -----------------------------------------------------------------------------------

REVISIONS: Final = ("2025-11-25", "2026-07-28")
SAYS: Final[dict[str, tuple[Any, Side]]] = {
    "calls of a client": (methods.CLIENT_REQUESTS, Side.CLIENT),
    "questions of a server": (methods.SERVER_REQUESTS, Side.SERVER),
    "notices of a client": (methods.CLIENT_NOTIFICATIONS, Side.CLIENT),
    "notices of a server": (methods.SERVER_NOTIFICATIONS, Side.SERVER),
    "results of a server": (methods.SERVER_RESULTS, Side.SERVER),
    "results of a client": (methods.CLIENT_RESULTS, Side.CLIENT),
}
ASKS: Final = {**methods.CLIENT_REQUESTS, **methods.SERVER_REQUESTS}
OWN: Final = ("notifications/cancelled", "notifications/progress")  # they go by ids and tokens: see `test_link`


def bodies(what: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None, list[str]]]:
    """Messages, each with the call that it answers, if it does, and with its texts; what revisions share comes once."""
    seen = set()
    for (method, revision), of in SAYS[what][0].items():
        if revision not in REVISIONS or method in OWN:
            continue
        asked = _call(method, next(variants(ASKS[method, revision], 1))) if what.startswith("results") else None
        for said in variants(of, 1):
            body = _call(method, said) if asked is None else {"jsonrpc": "2.0", "id": 1, "result": said}
            if what.startswith("notices"):
                del body["id"]
            if (key := json.dumps([method, body])) in seen:
                continue
            seen.add(key)
            message, marks = marked(body)
            if method == "initialize" and asked is not None:  # any other revision is refused
                marks.remove(message["result"]["protocolVersion"])
                message["result"]["protocolVersion"] = revision
            yield message, asked, marks


def _call(method: str, said: dict[str, Any]) -> dict[str, Any]:
    params = {} if said.get("params") is None else {"params": said["params"]}
    return {"jsonrpc": "2.0", "id": 1, "method": method, **params}


async def passed(guard: Guard, side: Side, body: dict[str, Any], asked: dict[str, Any] | None) -> dict[str, Any]:
    """What the other side gets to hear of a message, under the id that the message had."""
    pair = Pair(guard)
    if asked is not None:
        begun = await pair.link.receive(side.other, frame_of(asked))
        body = {**body, "id": begun.onward[0]["id"]}
    step = await pair.link.receive(side, frame_of(body))
    assert step.back == (), body
    (heard,) = step.onward
    return {**heard, "id": 1} if "id" in heard else heard


@pytest.mark.spec("MCP-1", "MCP-2", "MCP-4", "MCP-6", "MCP-7", "MCPX-13", "ADP-5")
@pytest.mark.parametrize("what", SAYS)
async def test_each_message_of_the_sdk_s_types_is_shown_and_goes_on_as_it_came(
    open_to_all: Guard, what: str, proof_scale: float
) -> None:
    adapter, every = get("mcp"), round(1 / proof_scale)
    for at, (body, asked, marks) in enumerate(bodies(what)):
        known = None if asked is None else adapter.from_wire_request(asked)
        read = adapter.from_wire_request(body) if asked is None else adapter.from_wire_response(body, known)
        shown = json.dumps([view.to_opa_input()["input"] for view in iter_views(read)])

        assert [mark for mark in marks if mark not in shown] == [], body
        if at % every == 0:
            arguments = {"arguments": {}} if body.get("method") == "tools/call" else {}  # none is an empty object
            sent = {**body, "params": {**arguments, **body["params"]}} if arguments else body
            assert await passed(open_to_all, SAYS[what][1], body, asked) == sent
