"""Gateways on real sockets, each in a thread of its own, and a bare upstream that says exactly what it is told to."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from tests.pipeline.new_store import migrated

from pipeline.gateway.auth.identity import hash_of
from pipeline.gateway.config import config_file
from pipeline.gateway.config.settings import Limits
from pipeline.gateway.http.server import server_of
from pipeline.gateway.service import built

KEY = "cmf_a-key-of-a-test"
ANN = {"name": "ann", "hash": hash_of(KEY), "subject": {"id": "ann", "roles": ["agent"]}}


@contextmanager
def running(gateway: Any, limits: Limits | None = None, on_stop: Callable[[], None] = lambda: None) -> Iterator[str]:
    """The address of a gateway, or another ASGI application, until the end of the block."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        server = server_of(gateway, limits)
        server.on_stop = on_stop
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(0.005)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@contextmanager
def serving(
    home: Path, body: Mapping[str, Any], environment: Mapping[str, str] | None = None, name: str = "cmf"
) -> Iterator[str]:
    """The address of a gateway with these settings; what they do not say is one route to a script, for all."""
    file = home / f"{name}.yaml"
    if "store" not in body:
        migrated(home / f"{name}.db")
    whole = {
        "anonymous": "keys" not in body,
        "store": f"{name}.db",
        "routes": [{"name": "all", "upstream": "up"}],
        **body,
    }
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    settings = config_file.load(file, environment or {}).settings
    with built(settings, environment or {}) as gateway, running(gateway, settings.limits) as url:
        yield url


def script(home: Path, *replies: Mapping[str, Any], name: str = "script") -> dict[str, Any]:
    """Settings of an upstream that plays these replies."""
    file = home / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"replies": list(replies)}), encoding="utf-8")
    return {"script": str(file)}


@dataclass(slots=True)
class Bare:
    """An upstream that sends bytes as they are given, and keeps what it was sent; it knows nothing of HTTP's rules."""

    reply: bytes
    hangs: bool = False
    heard: list[bytes] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address, until the end of the block."""
        loop = asyncio.new_event_loop()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        begun = threading.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._answer, sock=listening)
            begun.set()
            async with server:
                await server.start_serving()
                await stop.wait()

        stop = asyncio.Event()
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        begun.wait(10)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10)
            loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length:" in line), 0
            )
            self.heard.append(head + await reader.readexactly(length))
            writer.write(self.reply)
            await writer.drain()
            if self.hangs:
                await reader.read()
                self.left.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait until something is so; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def asking(
    url: str, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, takes: int = 0
) -> socket.socket:
    """A connection on which a request was sent, and nothing read; it `takes` so many bytes until then, about."""
    parts = urlsplit(url)
    client = socket.socket()
    if takes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, takes)
    client.connect((parts.hostname, parts.port))
    fields = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    client.sendall(f"{head}\r\n".encode() + body)
    return client


def http_reply(body: bytes, *, status: str = "200 OK", kind: str = "application/json", more: bytes = b"") -> bytes:
    """A whole HTTP reply."""
    return b"HTTP/1.1 %s\r\ncontent-type: %s\r\n%scontent-length: %d\r\nconnection: close\r\n\r\n%s" % (
        status.encode(), kind.encode(), more, len(body), body,
    )  # fmt: skip
