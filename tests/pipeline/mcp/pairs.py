"""A link with a client and a server at its ends, for tests."""

from __future__ import annotations

from typing import Any

from pipeline.decisions.context import Context
from pipeline.guard import Guard
from pipeline.mcp.frames import frame_of
from pipeline.mcp.link import Link, Side, Step
from pipeline.mcp.pins import Pins

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
READ = {"name": "read", "arguments": {}}


class Pair:
    """A link, and both of its ends."""

    def __init__(self, guard: Guard, **more: Any) -> None:
        self.now = 0.0
        known: dict[str, Any] = {"server": "files", "pins": Pins(), "enforce": True} | more
        context = Context(session="s")
        self.link = Link(guard, context, clock=lambda: self.now, answer_seconds=10, **known)

    async def client(self, body: Any) -> Step:
        return await self.link.receive(Side.CLIENT, frame_of(body))

    async def server(self, body: Any) -> Step:
        return await self.link.receive(Side.SERVER, frame_of(body))

    async def asked(self, method: str, params: Any = None, id: Any = 1) -> str:
        """The id under which a call of the client goes on."""
        step = await self.client(call(method, params, id))
        assert step.back == ()
        return str(step.onward[0]["id"])

    async def exchange(self, method: str, params: Any, result: Any, id: Any = 1) -> dict[str, Any]:
        """What the client gets for a call that the server answers with `result`."""
        minted = await self.asked(method, params, id)
        step = await self.server({"jsonrpc": "2.0", "id": minted, "result": result})
        assert step.back == ()
        assert len(step.onward) == 1
        return step.onward[0]

    async def begin(self, version: str = "2025-11-25") -> dict[str, Any]:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        said = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        return await self.exchange("initialize", hello, said)


def call(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})


def notice(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool(name: str, description: str = "Does.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}
