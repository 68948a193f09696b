"""Servers of MCP over HTTP for the tests: the SDK's own, in a process; and one that sends what it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

EVERYTHING = Path(__file__).parents[1] / "mcp" / "everything.py"


@contextmanager
def everything() -> Iterator[str]:
    """The URL of a server with a bit of everything."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, str(EVERYTHING), str(port)], stderr=subprocess.DEVNULL, env=dict(os.environ)
    ) as process:
        end = time.monotonic() + 60
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Said:
    """What a told server is asked: the method, headers by lower-case name, and the JSON body if there is one."""

    method: str
    headers: Mapping[str, str]
    body: Any


@dataclass(slots=True)
class Told:
    """A server that answers as `answers` says: status, headers, and pieces to send; a piece may be a time to wait."""

    answers: Callable[[Said], tuple[int, dict[str, str], list[bytes | float]]]
    heard: list[Said] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its URL, until the end of the block."""
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(64)
            config = uvicorn.Config(
                self._app, log_config=None, interface="asgi3", lifespan="off", ws="none", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            while not server.started and thread.is_alive():
                thread.join(0.005)
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            finally:
                server.should_exit = True
                thread.join(30)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        raw = b""
        while True:
            event = await receive()
            raw += event.get("body", b"")
            if not event.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        said = Said(scope["method"], headers, json.loads(raw) if raw else None)
        self.heard.append(said)
        status, own, pieces = self.answers(said)
        names = [(name.encode(), value.encode()) for name, value in own.items()]
        await send({"type": "http.response.start", "status": status, "headers": names})
        gone = asyncio.ensure_future(receive())
        for piece in pieces:
            if isinstance(piece, bytes):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                continue
            await asyncio.wait({gone}, timeout=piece)
            if gone.done():
                self.left.set()
                return
        gone.cancel()
        await send({"type": "http.response.body", "body": b""})


def json_reply(body: Any, status: int = 200, **headers: str) -> tuple[int, dict[str, str], list[bytes | float]]:
    """One JSON value."""
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"content-type": "application/json", **own}, [json.dumps(body).encode()]


def sse_reply(*bodies: Any, **headers: str) -> tuple[int, dict[str, str], list[bytes | float]]:
    """A stream: each body is a message, bytes as they are, or a time to wait."""
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    pieces: list[bytes | float] = [
        body if isinstance(body, bytes | float) else b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies
    ]
    return 200, {"content-type": "text/event-stream", **own}, pieces


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "told", "version": "1"}}


def polite(answers: Callable[[Said], tuple[int, dict[str, str], list[bytes | float]] | None]) -> Told:
    """A server that begins sessions, takes notifications and ends as it should; the rest is `answers`'."""

    def all_of(said: Said) -> tuple[int, dict[str, str], list[bytes | float]]:
        if (own := answers(said)) is not None:
            return own
        if said.method == "DELETE":
            return 200, {}, []
        if said.method == "GET":
            return 405, {}, []
        if said.body.get("method") == "initialize":
            return json_reply({"jsonrpc": "2.0", "id": said.body["id"], "result": HELLO}, mcp_session_id="theirs")
        if "id" not in said.body or "method" not in said.body:
            return 202, {}, []
        return json_reply({"jsonrpc": "2.0", "id": said.body["id"], "result": {}})

    return Told(all_of)
