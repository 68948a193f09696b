"""Every cell of the conformance matrix for MCP, asked over HTTP and over standard input and output."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import yaml
from tests.pipeline.gateway import matrix_mcp_bodies as bodies
from tests.pipeline.gateway.matrix import (
    AT_ONCE,
    EFFECTS,
    asked,
    checked,
    marker_of,
    policies_of,
    shown,
    table_of,
    withheld,
)
from tests.pipeline.gateway.matrix_mcp_bodies import ROWS, McpRow
from tests.pipeline.gateway.mcp_servers import Said, Told, json_reply, sse_reply
from tests.pipeline.mcp.pipe_ends import LineClient, pipe_ends

from cmf.adapters.mcp.message import VERSION_KEY
from cmf.json.codec import dumps
from pipeline.decisions.context import Context
from pipeline.gateway.config import config_file
from pipeline.gateway.service import built
from pipeline.guard import Guard
from pipeline.mcp.frames import APPROVAL, REFUSED
from pipeline.mcp.http_server import Address, HttpServer, connections
from pipeline.mcp.link import Link
from pipeline.mcp.pins import Pins
from pipeline.mcp.stdio import Process, StdioProxy, UrlServer
from pipeline.run.assembly import Config

MODES: Final = ("json", "stream", "alone", "stdio", "url", "check")
"""Over HTTP in JSON, in streams, and in revision 2026-07-28 without a session; at pipes to a process, and to a URL; and
what `/v1/check` says of the same messages."""
PATH: Final = "/mcp/zoo"
REVISION: Final = "2026-07-28"
AFTER: Final = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "after"}}
_ACCEPT: Final = [(b"accept", b"application/json, text/event-stream")]


@dataclass(frozen=True, slots=True)
class McpCell:
    """One question: does this content of MCP, over this transport, under this effect, get what it gets everywhere?"""

    row: McpRow
    mode: str
    effect: str

    @property
    def marker(self) -> str:
        """What is looked for; of media, all of it."""
        return marker_of(self.row.kind, self.effect)


def modes_of(row: McpRow) -> tuple[str, ...]:
    """The modes in which a row's messages can be: in JSON a server only answers, alone nothing is begun or noticed."""
    left = () if row.way in ("call", "result") else ("json",)
    if row.way == "notice" or row.method == "initialize":
        left = (*left, "alone")
    return tuple(mode for mode in MODES if mode not in left)


CELLS: Final = tuple(McpCell(row, mode, effect) for row in ROWS for mode in modes_of(row) for effect in EFFECTS)


@dataclass(slots=True)
class Zoo:
    """The server: it says what belongs to the cell that a call names, and keeps what it was told."""

    heard: dict[int, Any] = field(default_factory=dict)
    told: dict[int, Any] = field(default_factory=dict)

    def says(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What comes of a message of the client's."""
        if "method" not in body:
            self.told[int(body["id"][1:])] = body
            return []
        if "id" not in body:
            return []
        number = body.get("params", {}).get("_meta", {}).get("cell")
        if body.get("params") == bodies.BEGIN:
            return [_answer(body, {"resultType": "task", **bodies.TASK})]
        if number is None:
            plain = McpRow("text", body["method"], "call")
            return [_answer(body, bodies.result(plain, "", 0))]
        self.heard[number] = body
        cell = CELLS[number]
        answer = _answer(body, bodies.result(cell.row, cell.marker, number))
        if cell.row.way in ("call", "result") or (cell.mode == "alone" and cell.row.way == "answer"):
            return [answer]
        said = bodies.said(cell.row, cell.marker, number)
        return [_answer(body, bodies.asking(said))] if cell.mode == "alone" else [said, answer]

    def over_http(self, said: Said) -> tuple[int, dict[str, str], list[bytes | float]]:
        """The same, as a server over HTTP."""
        if said.method != "POST":
            return 200 if said.method == "DELETE" else 405, {}, []
        number = said.body.get("params", {}).get("_meta", {}).get("cell")
        own = {"mcp_session_id": "theirs"} if said.body.get("method") == "initialize" else {}
        says = self.says(said.body)
        if not says:
            return 202, {}, []
        if number is not None and CELLS[number].mode in ("stream", "url"):
            return sse_reply(*says, **own)
        [one] = says
        return json_reply(one, **own)


class Client(Protocol):
    """The client's end, of whatever carries it."""

    async def ask(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """All that is heard until the call is answered; the answer is the last."""
        ...

    async def tell(self, body: dict[str, Any]) -> None:
        """Say what needs no answer."""
        ...


class HttpClient:
    """A session with the gateway."""

    def __init__(self, app: Any, session: str, *, alone: bool) -> None:
        self._app = app
        self._session = session
        self._alone = alone
        self._own = [(b"mcp-protocol-version", REVISION.encode())] if alone else []

    async def ask(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """See `Client`."""
        if self._alone:
            params = body.get("params", {})
            body = {**body, "params": {**params, "_meta": {**params.get("_meta", {}), VERSION_KEY: REVISION}}}
        status, headers, raw = await asked(self._app, PATH, dumps(body), self._session, [*_ACCEPT, *self._own])
        assert status == 200, raw
        if "mcp-session-id" in headers:
            self._own = [(b"mcp-session-id", headers["mcp-session-id"].encode())]
        if headers["content-type"] == "application/json":
            return [json.loads(raw)]
        return [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]

    async def tell(self, body: dict[str, Any]) -> None:
        """See `Client`."""
        status, _, raw = await asked(self._app, PATH, dumps(body), self._session, [*_ACCEPT, *self._own])
        assert status == 202, raw


class _Process(Process):
    """A process without one: its lines are what the zoo says."""

    def __init__(self, zoo: Zoo) -> None:
        self._zoo = zoo
        self._says: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, body: Mapping[str, Any]) -> None:
        for one in self._zoo.says(json.loads(dumps(body))):
            self._says.put_nowait(dumps(one))

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._says.get()

    async def end(self) -> int:
        return 0


@asynccontextmanager
async def at_pipes(guard: Guard, zoo: Zoo, session: str, url: str | None) -> AsyncIterator[LineClient]:
    """The client of a proxy at pipes."""
    link = Link(guard, Context(session=session), server="zoo", pins=Pins(), clock=time.monotonic, answer_seconds=60)
    async with connections() as http, pipe_ends() as (pipes, client):
        server: Process | UrlServer
        server = _Process(zoo) if url is None else UrlServer(HttpServer(http, Address(url=url, headers={})), link)
        running = asyncio.ensure_future(StdioProxy(link, pipes, server).run(asyncio.Event()))
        try:
            yield client
        finally:
            client.leave()
            assert await running


async def _outcome(client: Client, zoo: Zoo, number: int, cell: McpCell) -> str:
    """What became of it, in the words of the other dialects' matrix."""
    row, way = cell.row, cell.row.way
    alone = cell.mode == "alone"
    call = bodies.call(row, cell.marker, number)
    if alone and way == "answer":
        call["params"]["inputResponses"] = {"q": bodies.answer(row, cell.marker)}
    if alone:
        way = {"answer": "call", "question": "result"}.get(way, way)
    elif cell.mode in ("json", "stream") and row.method != "initialize":
        await client.ask({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": bodies.HELLO | _CLIENT})
    if row.method == "notifications/tasks":
        await client.ask({"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": bodies.BEGIN})
    *before, answer = await client.ask(call)
    far: Any = zoo.heard.get(number) if way == "call" else answer
    if way in ("notice", "question", "answer"):
        if not before:
            return ("withheld" if way == "notice" else _refused(zoo.told[number])) + _leak(cell, answer)
        [far] = before
    if way == "answer":
        await client.tell({"jsonrpc": "2.0", "id": far["id"], "result": bodies.answer(row, cell.marker)})
        await client.ask({"jsonrpc": "2.0", "id": "p", "method": "ping"})  # behind which the answer has arrived
        far = answer = zoo.told[number]
    if refused := _refused(answer):
        return refused + _leak(cell, far)
    became = shown(row.kind, cell.marker, json.dumps(far).encode())
    if became != "goes through":
        return became
    after = await client.ask({"jsonrpc": "2.0", "id": "a", "method": "completion/complete", "params": AFTER})
    return became + (", labelled" if "matrix.labelled" in _refused(after[-1]) else "")


async def _checked(app: Any, number: int, cell: McpCell) -> str:
    """What `/v1/check` says became of it, in the same words."""
    row, call = cell.row, bodies.call(cell.row, cell.marker, number)
    said = bodies.said(row, cell.marker, number) if row.way in ("question", "notice") else call
    asks: dict[str, Any] = {"kind": "request", "body": said}
    if row.way in ("result", "answer"):
        result = bodies.result(row, cell.marker, number) if row.way == "result" else bodies.answer(row, cell.marker)
        asked_for = call if row.way == "result" else bodies.said(row, "n", number)
        asks = {"kind": "response", "body": _answer(asked_for, result), "request": asked_for}
    told, raw = await checked(app, {"format": "mcp", "server": "zoo", **asks}, f"s{number}")
    if "body" not in told:
        refused = "withheld" if row.way == "notice" else withheld(told).replace("403", "refused")
        return refused + (", leaks" if cell.marker.encode() in raw else "")
    assert told["body"].get("id") == asks["body"].get("id")
    became = shown(row.kind, cell.marker, dumps(told["body"]))
    after = {"jsonrpc": "2.0", "id": "a", "method": "completion/complete", "params": AFTER}
    last, _ = await checked(app, {"format": "mcp", "kind": "request", "body": after}, f"s{number}")
    return became + (", labelled" if last.get("code") == "matrix.labelled" else "")


_CLIENT: Final = {"clientInfo": {"name": "c", "version": "1"}}


def _refused(body: Mapping[str, Any]) -> str:
    """What a message says of a refusal; nothing for what is none."""
    if "error" in body:
        number, told = body["error"]["code"], body["error"]["data"]
        code, waits = told["code"], "approval_ids" in told
        if number not in (REFUSED, APPROVAL) or (number == APPROVAL) != waits:
            return f"{number} {code}"
    elif body.get("result", {}).get("isError") and "cmf/code" in body["result"].get("_meta", {}):
        told = body["result"]["_meta"]
        code, waits = told["cmf/code"], "cmf/approval-ids" in told
    else:
        return ""
    return f"refused {code}" + (", names the approval" if waits else "")


def _leak(cell: McpCell, *where: Any) -> str:
    return ", leaks" if any(cell.marker in json.dumps(one) for one in where if one is not None) else ""


def _answer(body: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": body["id"], "result": result}


def outcomes(home: Path) -> dict[McpCell, str]:
    """What became of every cell."""
    zoo, policies = Zoo(), policies_of(home)
    settings = {"anonymous": True, "store": "mcp.db", "policies": [str(policies)], "watch": False}

    async def all_of(app: Any, guard: Guard, url: str) -> list[str]:
        await app.open()
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, cell: McpCell) -> str:
            async with room:
                if cell.mode == "check":
                    return await _checked(app, number, cell)
                if cell.mode not in ("stdio", "url"):
                    return await _outcome(HttpClient(app, f"s{number}", alone=cell.mode == "alone"), zoo, number, cell)
                async with at_pipes(guard, zoo, f"s{number}", url if cell.mode == "url" else None) as client:
                    return await _outcome(client, zoo, number, cell)

        try:
            return await asyncio.gather(*itertools.starmap(one, enumerate(CELLS)))
        finally:
            await app.close()

    with Told(zoo.over_http).running() as url, Guard(policies, config=Config(timeout_seconds=20)) as guard:
        file = home / "mcp.yaml"
        served = {"check": {}, "mcp": {"zoo": {"url": url, "subject_sessions": 1_024}}}
        file.write_text(yaml.safe_dump({**settings, **served}), encoding="utf-8")
        with built(config_file.load(file, {}).settings, {}) as gateway:
            return dict(zip(CELLS, asyncio.run(all_of(gateway, guard, url)), strict=True))


def expected(row: McpRow, effect: str) -> str:
    """What becomes of it, over every transport."""
    fits = {"rewrite": ("tool_call", "prompt_request"), "strip": ("tool_definition",)}
    no_text = ("media", "opaque", "tool_definition", "resource_ref")
    refused = {
        "deny": "matrix.deny",
        "approve": "matrix.approve, names the approval",
        **{one: "policy.bad-effect" for one, kinds in fits.items() if row.kind not in kinds},
        **({"redact": "effect.no-text"} if row.kind in no_text or row.method.endswith("/list") else {}),
    }
    if effect in refused:
        return "withheld" if row.way == "notice" else f"refused {refused[effect]}"
    return {"label": "goes through, labelled", "rewrite": "rewritten", "strip": "stripped", "redact": "masked"}[effect]


def table(found: Mapping[McpCell, str]) -> str:
    """The matrix for people."""
    rows = {str(row): {effect: [one for one in CELLS if (one.row, one.effect) == (row, effect)] for effect in EFFECTS}
            for row in ROWS}  # fmt: skip
    right = sum(found[cell] == expected(cell.row, cell.effect) for cell in CELLS)
    return "\n".join([*table_of(rows, found), "", f"{right} of {len(CELLS)} cells: mcp; {', '.join(MODES)}."])
