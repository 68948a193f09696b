"""Streams of MCP: whole messages, of which one is the answer. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cmf.adapters.mcp.message import CUT_SHORT
from cmf.adapters.mcp.parts_in import FORMAT
from cmf.adapters.mcp.response import write_response
from cmf.adapters.wire.base import EventDecoder, WireEvent
from cmf.adapters.wire.fields import extra_of
from cmf.adapters.wire.stream import CUT, MessageComplete, StreamError, StreamEvent, TextDelta, ToolUseEnd
from cmf.errors import ShapeError
from cmf.message.message import TextPart, ToolCallPart
from cmf.message.request import Response


def fold_events(events: Iterable[WireEvent | Any]) -> Any:
    """The answer alone, or the batch of all messages of the stream; `CUT_SHORT` at its end if no answer came."""
    bodies: list[Any] = []
    for event in events:
        data = event.get("data") if isinstance(event, dict) else event
        if isinstance(data, list):
            bodies += data
        elif isinstance(data, dict):
            bodies.append(data)
        elif data is not None and data != "":  # an empty event only sets an id to resume from
            raise ShapeError("an event that is no JSON-RPC message", path="$", hint="see the transport's framing")
    if not any(map(_is_answer, bodies)):
        return [*bodies, dict(CUT_SHORT)]
    return bodies[0] if len(bodies) == 1 else bodies


def _is_answer(body: Any) -> bool:
    return isinstance(body, dict) and "method" not in body and ("result" in body or "error" in body)


def write_events(response: Response) -> list[WireEvent]:
    """One event per JSON-RPC message."""
    body = write_response(response)
    return [{"event": "message", "data": entry} for entry in (body if isinstance(body, list) else [body])]


def error_event(text: str, reply: Any) -> WireEvent:
    """The event for an error with this text."""
    return {"event": "message", "data": {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": text}}}


def live_decoder() -> EventDecoder:
    """Nothing as it arrives: a message comes in one piece."""
    return lambda event: ()


def ending(response: Response) -> list[StreamEvent]:
    """All events of an answer that has arrived. An answer without choices (a list of tools, say) can be whole too."""
    if response.error is not None:
        return [StreamError(error=response.error, partial=response)]
    if extra_of(response, FORMAT).get("partial") is True:
        return [StreamError(error=CUT, partial=response)]
    events: list[StreamEvent] = []
    for at, choice in enumerate(response.choices):
        texts = (part.text for part in choice.message.content if isinstance(part, TextPart))
        calls = (part for part in choice.message.content if isinstance(part, ToolCallPart))
        events += [TextDelta(text=text, choice=at) for text in texts]
        events += [ToolUseEnd(index=index, call=call, choice=at) for index, call in enumerate(calls)]
    return [*events, MessageComplete(response=response)]
