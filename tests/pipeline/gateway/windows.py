"""A gateway without sockets: an upstream whose answer comes in any pieces, and all that a client gets of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.gateway.test_crossing import asks, heard
from ulid import ULID

from cmf.adapters.wire.stream import StreamEvent, TextDelta, ThinkingDelta, ToolUseStart
from cmf.enums import MessageStatus, Role, StopReason
from cmf.message.message import Message, Part, TextPart, ThinkingPart
from cmf.message.request import Choice, Request, Response
from pipeline.engines.circuit_breaker import Breaker
from pipeline.gateway.config.routing import WindowMode
from pipeline.gateway.config.settings import Route
from pipeline.gateway.http import endpoints
from pipeline.gateway.http.client_response import Answer, Reply
from pipeline.gateway.http.incoming import SharedTimeout
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.proxy.proxy import Backend, IncomingRequest, RouteRuntime, exchange, read_request
from pipeline.gateway.upstreams.upstream import StreamObserver
from pipeline.guard import Guard

Piece = str | Part
"""Some text; or a whole part: thinking, a call."""


@dataclass
class Pieces:
    """An upstream that says these pieces; `then` is done after each, `ends` is the last answer instead."""

    pieces: Sequence[Piece]
    then: Callable[[int], None] = lambda _: None
    ends: Response | Exception | None = None
    target = "canonical"
    provider = "scripted"
    knows = staticmethod(bool)

    async def ask(self, _request: Request, _body: Any, live: StreamObserver | None, /) -> Response:
        parts: list[Part] = []
        for number, piece in enumerate(self.pieces):
            if isinstance(piece, str) and parts and isinstance(parts[-1], TextPart):
                parts[-1] = TextPart(text=parts[-1].text + piece)
            else:
                parts.append(TextPart(text=piece) if isinstance(piece, str) else piece)
            if live is not None:
                live.observe(_said(piece))
                await live.pause(lambda: answer(parts, MessageStatus.PARTIAL))
            self.then(number)
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends or answer(parts, MessageStatus.COMPLETE)

    async def open(self) -> None: ...

    async def close(self) -> None: ...


def answer(parts: Sequence[Part], status: MessageStatus) -> Response:
    message = Message(role=Role.ASSISTANT, content=tuple(parts), status=status)
    stop = StopReason.END if status is MessageStatus.COMPLETE else None
    return Response(choices=(Choice(message=message, stop_reason=stop),), model="m")


def _said(piece: Piece) -> StreamEvent:
    if isinstance(piece, str | TextPart):
        return TextDelta(text=piece if isinstance(piece, str) else piece.text)
    return ThinkingDelta(text=piece.text) if isinstance(piece, ThinkingPart) else ToolUseStart(index=0)


@dataclass
class Client:
    """What a client got: the bytes, piece by piece, and the status."""

    pieces: list[bytes] = field(default_factory=list)
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None

    async def take(self, event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {name.decode(): text.decode() for name, text in event["headers"]}
        elif event["body"]:
            self.pieces.append(event["body"])

    @property
    def raw(self) -> bytes:
        return b"".join(self.pieces)


def served(guard: Guard, upstream: Any, dialect: str = "openai_chat", *, window: int | None = 1, **more: Any) -> Client:
    """What a client of this dialect gets of a streamed answer; a refusal before its first byte is in it, not raised."""
    return asyncio.run(aserved(guard, upstream, dialect, window=window, **more))


async def aserved(
    guard: Guard,
    upstream: Any,
    dialect: str = "openai_chat",
    *,
    window: int | None = 1,
    client: Client | None = None,
    session: str | None = None,
    gone: asyncio.Event | None = None,
    headers: dict[str, str] | None = None,
) -> Client:
    client = client or Client()
    upstreams = upstream if isinstance(upstream, list) else [upstream]
    mode: Any = "buffer" if window is None else WindowMode(window=window)
    runtime = RouteRuntime(
        route=Route(name="r", upstream="u", stream=mode),
        guard=guard,
        backends=tuple(Backend(name="up", upstream=one, breaker=Breaker()) for one in upstreams),
    )
    path, body = asks(dialect, "m", "hi", stream=True)
    path, _, query = path.partition("?")
    endpoint = endpoints.endpoint_of(path, [tuple(query.split("="))] if query else [], {})  # type: ignore[list-item]
    assert endpoint is not None
    asked = IncomingRequest(
        endpoint=endpoint, body=body, headers=headers or {}, request_id=str(ULID()), session=session
    )

    async def receive() -> MutableMapping[str, Any]:
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    reply = Reply(client.take, {}, timeout=SharedTimeout(5))
    try:
        found = await exchange(runtime, asked, read_request(asked), receive, reply)
    except Refusal as refusal:
        client.refusal = refusal
        return client
    if isinstance(found, Answer):
        await reply.whole(found)
    return client


def texts(dialect: str, client: Client) -> list[str]:
    """The texts of the answer that the client got, which is whole."""
    response = heard(dialect, client.headers, client.raw)
    return [part.text for part in response.message.content if isinstance(part, TextPart)]


def events(client: Client) -> list[Any]:
    """The data of the events that a client of server-sent events or lines of JSON got."""
    return list(_data(client.raw.decode().splitlines()))


def _data(lines: Iterable[str]) -> Iterator[Any]:
    for line in lines:
        line = line.removeprefix("data: ")
        if line.startswith(("{", "[")) and line != "[DONE]":
            yield json.loads(line)


def spoken(dialect: str, client: Client) -> str:
    """The text that a client shows: all deltas, one after the other, whatever came of the answer."""
    return "".join(_DELTAS[dialect](data) or "" for data in events(client) if "error" not in data)


_DELTAS: dict[str, Callable[[Any], str | None]] = {
    "openai_chat": lambda data: data["choices"][0]["delta"].get("content"),
    "openai_responses": lambda data: data["delta"] if data["type"] == "response.output_text.delta" else "",
    "anthropic_messages": lambda data: data["delta"].get("text") if data["type"] == "content_block_delta" else "",
    "gemini": lambda data: "".join(part["text"] for part in data["candidates"][0]["content"]["parts"]),
    "ollama": lambda data: data["message"]["content"],
}
