"""The processes around a gateway that is measured: an upstream that answers at once, and one that only passes on.

`python -m bench.gateway_parts upstream PORT [SECONDS]`, which it takes for a whole answer; `pass PORT UPSTREAM_PORT
[WORKERS]`, processes that share its socket.
Loopback only.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn

WORDS = "A reply of ordinary words, as models give them, goes on for a while. "
MARK = "n0000000"
"""Where a message has a number that no other has: what was judged once would not be judged again."""
TEXT = f"{MARK}: {WORDS * 15}"[:1024]
CHUNKS = 100
PACE_SECONDS = 0.002

_Event = MutableMapping[str, Any]
_numbers = itertools.count(1)


def numbered(said: bytes) -> bytes:
    """The same with a number that was in nothing before."""
    return said.replace(MARK.encode(), b"n%07d" % next(_numbers))


def whole() -> bytes:
    """A chat completion of about 1 KB."""
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 500, "completion_tokens": 250, "total_tokens": 750}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


def chunks() -> list[bytes]:
    """The same as a stream."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    size = -(-len(TEXT) // CHUNKS)
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None} for piece in pieces
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    made = [b"data: " + json.dumps({**head, "choices": [one]}).encode() + b"\n\n" for one in choices]
    return [*made, b"data: [DONE]\n\n"]


class Upstream(asyncio.Protocol):
    """HTTP as far as a well-meaning client needs it, so that little of what is measured is spent here."""

    _whole = whole()
    _chunks = chunks()
    seconds = 0.0  # until a whole answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is there."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            if b'"stream":true' in body.replace(b": ", b":"):
                self._streaming = asyncio.ensure_future(self._stream())
            else:
                whole = numbered(self._whole)
                self._answer(_head(b"application/json", b"content-length: %d" % len(whole)) + whole)

    def _answer(self, answer: bytes) -> None:
        if self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, self._transport.write, answer)
        else:
            self._transport.write(answer)

    async def _stream(self) -> None:
        self._transport.write(_head(b"text/event-stream", b"transfer-encoding: chunked"))
        for chunk in (numbered(self._chunks[0]), *self._chunks[1:]):
            self._transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await asyncio.sleep(PACE_SECONDS)
        self._transport.write(b"0\r\n\r\n")


def _head(kind: bytes, length: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n\r\n" % (kind, length)


class PassThrough:
    """The same server and client as the gateway's, with nothing in between."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(
        self,
        scope: _Event,
        receive: Callable[[], Awaitable[_Event]],
        send: Callable[[_Event], Awaitable[None]],
    ) -> None:
        """One request."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        url = self._upstream + scope["path"]
        headers = {"content-type": "application/json"}
        async with self._session.post(url, data=body, headers=headers) as reply:
            kind = reply.headers["content-type"].encode()
            await send({"type": "http.response.start", "status": reply.status, "headers": [(b"content-type", kind)]})
            async for piece in reply.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Serve until it is ended."""
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "upstream":
        Upstream.seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
        asyncio.run(_serve_upstream(port))
    else:
        _pass(port, f"http://127.0.0.1:{sys.argv[3]}", int(sys.argv[4]) if len(sys.argv) > 4 else 1)


def _pass(port: int, upstream: str, workers: int) -> None:
    # With the protocol's number: without it asyncio lets the end of each answer wait for the client's acknowledgement.
    shared = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.bind(("127.0.0.1", port))
    shared.listen(1024)
    own: dict[str, Any] = {"http": "h11", "loop": "asyncio", "lifespan": "off", "log_level": "warning"}
    server = uvicorn.Server(uvicorn.Config(PassThrough(upstream), **own))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the others end with this one
    begun = multiprocessing.get_context("fork")
    for _ in range(workers - 1):
        begun.Process(target=server.run, args=([shared],), daemon=True).start()
    server.run([shared])


async def _serve_upstream(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    main()
