"""A request that a gateway which shuts down ends wherever it waits: it gets one answer, or the beginning of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import script
from tests.pipeline.gateway.test_cut_anywhere import Cut
from tests.pipeline.new_store import migrated

from pipeline.gateway import mcp
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.service import built

DENY = 'deny contains {"code": "no.word", "reason": "No."} if contains(input.content, "forbidden")'
CHAT = "/v1/chat/completions"
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "look", "arguments": {}}}
ALONE = "2026-07-28"


class Server:
    """An MCP server that waits before, within and after its answer."""

    version: str | None = None

    def __init__(self, *_: Any) -> None: ...

    async def post(self, body: dict[str, Any]) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "at work"}}
        await asyncio.sleep(0)
        yield {"jsonrpc": "2.0", "id": body["id"], "result": {"content": [{"type": "text", "text": "fine"}]}}
        await asyncio.sleep(0)

    async def end(self) -> None: ...


class Client:
    """The client of one request, as an ASGI server shows it: a body in pieces, and events that have to fit."""

    def __init__(self, body: Any) -> None:
        raw = json.dumps(body).encode()
        self._body = [raw[:9], raw[9:]]
        self.events: list[MutableMapping[str, Any]] = []

    async def receive(self) -> MutableMapping[str, Any]:
        await (asyncio.sleep(0) if self._body else asyncio.Event().wait())
        return {"type": "http.request", "body": self._body.pop(0), "more_body": bool(self._body)}

    async def send(self, event: MutableMapping[str, Any]) -> None:
        await asyncio.sleep(0)  # it may take its time
        last = self.events[-1] if self.events else {"type": "none", "more_body": True}
        assert (event["type"] == "http.response.start") == (not self.events), "one head, and first of all"
        assert last.get("more_body", True), "nothing after the end"
        self.events.append(event)

    @property
    def status(self) -> int:
        return self.events[0]["status"] if self.events else 0

    @property
    def raw(self) -> bytes:
        return b"".join(event["body"] for event in self.events[1:])

    @property
    def is_whole(self) -> bool:
        return len(self.events) > 1 and not self.events[-1].get("more_body", False)


def _scope(path: str, **headers: str) -> dict[str, Any]:
    raw = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    own = [(name.encode(), text.encode()) for name, text in raw.items()]
    return {"type": "http", "method": "POST", "path": path, "headers": own, "query_string": b"", "client": None}


def _chat(stream: bool) -> dict[str, Any]:
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}


ASKED: dict[str, tuple[str, Any, dict[str, str]]] = {
    "whole": (CHAT, _chat(False), {}),
    "buffer": (CHAT, _chat(True), {}),
    "window": (CHAT, _chat(True) | {"model": "w"}, {}),
    "failover": (CHAT, _chat(True) | {"model": "f"}, {}),
    "refused": (CHAT, _chat(False) | {"messages": [{"role": "user", "content": "forbidden"}]}, {}),
    "mcp": (
        "/mcp/m",
        CALL | {"params": CALL["params"] | {"_meta": {"io.modelcontextprotocol/protocolVersion": ALONE}}},
        {"mcp-protocol-version": ALONE},
    ),
}


@pytest.mark.spec("GW-153")
@pytest.mark.parametrize("asked", ASKED)
async def test_a_request_that_is_ended_where_it_waits_gets_one_answer_or_the_beginning_of_one(
    tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "HttpServer", Server)
    path, body, headers = ASKED[asked]
    text = {"text": "and so on and on", "pieces": 3}
    settings = Settings.model_validate(
        {
            "store": str(migrated(tmp_path / "s.sqlite3")),
            "anonymous": True,
            "policies": [str(write_rules(tmp_path / "p", {"word": DENY}, mode="enforce\n#   stream: {max_match: 4}"))],
            "upstreams": {
                "up": script(tmp_path, text),
                "ill": script(tmp_path, {"error": {"status": 503, "message": "ill"}}, name="ill"),
            },
            "routes": [
                {"name": "w", "upstream": "up", "models": ["w"], "stream": {"window": 1}},
                {"name": "f", "targets": ["ill", "up"], "models": ["f"], "stream": {"window": 1}},
                {"name": "r", "upstream": "up"},
            ],
            "mcp": {"m": {"url": "http://127.0.0.1:1", "pins": str(tmp_path / "pins.json")}},
        }
    )
    with built(settings) as gateway:
        await gateway.open()
        at, is_cut, ended, told = 0, True, 0, 0
        while is_cut:
            client, scope = Client(body), _scope(path, **{"x-cmf-session-id": f"s{at}", **headers})

            is_cut = await _cut(gateway, scope, client, at)

            assert client.status != 0, "the server would answer by itself, with 500"
            if client.status == 503:
                ended += 1
                assert (client.is_whole, b"gateway.ending" in client.raw) == (True, True)
            told += client.status == 200 and client.is_whole and b"gateway.ending" in client.raw
            assert gateway._metrics.in_flight == 0
            at += 1
        await gateway.close()
    assert (told > 1) == (asked in ("window", "failover"))
    assert (ended > 4, client.status, client.is_whole) == (True, 403 if asked == "refused" else 200, True)


async def _cut(gateway: Any, scope: dict[str, Any], client: Client, at: int) -> bool:
    """Whether the request waited so often that it was cut. Nothing of it goes on afterwards."""
    before = asyncio.all_tasks()  # the gateway's own, as its heartbeat
    cutting: Cut[None] = Cut(gateway(scope, client.receive, client.send), at)

    async def run() -> None:
        await cutting

    with suppress(asyncio.CancelledError):
        await asyncio.ensure_future(run())
    left = asyncio.all_tasks() - before
    _, endless = await asyncio.wait(left, timeout=10) if left else ((), ())
    assert not endless
    return cutting.waits > at
