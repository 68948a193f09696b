"""The adapter of Ollama's `/api/chat`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from cmf.adapters.ollama.decode import (
    FORMAT,
    Calls,
    decode_envelope,
    decode_message,
    layout_of,
    opened,
    read_response,
)
from cmf.adapters.ollama.encode import encode_envelope, encode_message, plain_response
from cmf.adapters.ollama.stream import LiveDecoder, fold_events, wire_events
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.call_ids import call_names
from cmf.adapters.wire.driver import drive
from cmf.adapters.wire.fields import MARK, PARTIAL, extra_of, unmarked
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.layout import apply, shape_of, wire_content, with_layout
from cmf.adapters.wire.loss import locating_errors, respecting_critical
from cmf.adapters.wire.non_json_reply import error_text, is_unrecognized, unrecognized, write_unrecognized
from cmf.adapters.wire.single_text import in_one_text
from cmf.adapters.wire.stream import StreamEvent
from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.frozen import freeze
from cmf.json.value import replace
from cmf.message.message import Message, ToolResultPart
from cmf.message.request import Request, Response


class OllamaAdapter(Adapter):
    """Ollama's chat JSON, both ways, whole and streamed."""

    name = FORMAT

    @reading_exact_names
    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request; the body names its model."""
        raw = opened(body)
        listed = raw.get("messages")
        if listed is not None and not isinstance(listed, list):
            raise ShapeError("`messages` is not an array", path="$.messages", hint="see the provider's reference")
        calls = Calls()
        messages = tuple(_message(one, index, calls) for index, one in enumerate(listed or ()))
        envelope = {key: item for key, item in raw.items() if key != "messages" or not item}
        request = replace(decode_envelope(envelope, model), messages=messages)
        plain = encode_envelope(request)
        if listed:
            del plain["messages"]
        return with_layout(request, layout_of(plain, envelope, "$"))

    @respecting_critical
    def to_wire(self, request: Request) -> Any:
        """The request's body; UnsupportedError for media, tools or a tool choice that Ollama cannot take."""
        body = encode_envelope(request)
        if shape := shape_of(request, FORMAT):
            done = apply(body, shape)
            if wire_content(decode_envelope(freeze(done), None)) == wire_content(replace(request, messages=())):
                body = done
        names = call_names(request.messages)
        if request.messages:
            body["messages"] = [wire for message in request.messages for wire in _written(message, names)]
        return body

    def to_http(self, request: Request) -> HttpCall:
        """`POST /api/chat`, or `/api/generate` for a bare prompt; whether to stream is given in the body."""
        is_generate = not request.messages and "prompt" in extra_of(request, FORMAT)
        return HttpCall(
            path="/api/generate" if is_generate else "/api/chat", headers={"content-type": "application/json"}
        )

    @reading_exact_names
    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response; an error body is a response with `error`."""
        raw = freeze(body)
        if not isinstance(raw, dict):
            return unrecognized(raw, FORMAT)
        response = read_response(raw)
        if not response.choices and response.error is None and PARTIAL not in raw:
            return unrecognized(raw, FORMAT)
        return with_layout(response, layout_of(plain_response(response), unmarked(raw), "$"))

    def in_one_text(self, response: Response, *, streamed: bool = False) -> Response:
        """The response with its texts as one, and its thinking."""
        return in_one_text(response, FORMAT, is_own=lambda _: False)

    @locating_errors
    def to_wire_response(self, response: Response) -> Any:
        """The response's body; UnsupportedError for several choices."""
        if is_unrecognized(response, FORMAT):
            return write_unrecognized(response, FORMAT)
        plain, shape = plain_response(response), shape_of(response, FORMAT)
        if not shape:
            return plain
        done = apply(plain, shape)
        notes = {key: item for key, item in extra_of(response, FORMAT).items() if key.startswith(MARK)}
        return done if wire_content(read_response(freeze({**done, **notes}))) == wire_content(response) else plain

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The whole answer that the lines add up to; marked where the stream was cut."""
        return fold_events(events)

    @locating_errors
    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """Lines that fold to the body of `to_wire_response`."""
        if is_unrecognized(response, FORMAT):
            return [{"data": {"error": error_text(response)}}]
        return wire_events(self.to_wire_response(response))

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        return drive(self, events, context, LiveDecoder())


def _message(raw: Any, index: int, calls: Calls) -> Message:
    path = f"$.messages[{index}]"
    message = decode_message(raw, path)
    result = message.content[0] if message.role is Role.TOOL else None
    if isinstance(result, ToolResultPart):
        name = calls.name(result.tool_call_id, result.tool_name)
        if name != result.tool_name:
            message = replace(message, content=(replace(result, tool_name=name),))
    calls.note(message)
    return with_layout(message, layout_of(encode_message(message)[0], raw, path))


def _written(message: Message, names: Mapping[str, str]) -> list[Any]:
    plain, shape = encode_message(message, names), shape_of(message, FORMAT)
    if not shape or len(plain) != 1:
        return plain
    done = apply(plain[0], shape)
    name = next((part.tool_name for part in message.content if isinstance(part, ToolResultPart)), None)
    return [done] if wire_content(decode_message(freeze(done), "$", name)) == wire_content(message) else plain


ADAPTER = OllamaAdapter()
