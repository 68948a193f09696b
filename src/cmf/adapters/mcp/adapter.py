"""The adapter of MCP's messages."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from cmf.adapters.mcp.blocks import FORMAT
from cmf.adapters.mcp.calls import ENTRY, RpcContent
from cmf.adapters.mcp.message import RpcMessage, read, write
from cmf.adapters.mcp.results import UNKNOWN_CALL, AnsweredCall, answered_call, name_in
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.driver import CUT, arriving
from cmf.adapters.wire.fields import PARTIAL, extra_of, object_in
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.layout import envelope_layout, respell_envelope, with_layout
from cmf.adapters.wire.loss import drop, drop_foreign_extras, locating_errors, respecting_critical
from cmf.adapters.wire.non_json_reply import error_text, is_unrecognized, unrecognized, write_unrecognized
from cmf.adapters.wire.stream import MessageComplete, StreamError, StreamEvent, TextDelta, ToolUseEnd
from cmf.enums import MessageStatus, Role
from cmf.errors import CmfError, ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import Message, TextPart, ToolCallPart
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition
from cmf.models.capabilities import ModelCapabilities

CUT_SHORT: Final = {PARTIAL: True}
"""The last item of the fold of a stream that ended before its answer."""

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""Where a call of revision 2026-07-28 names its revision, in its `_meta`."""
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method the parameter that names what is asked for."""
_HEADERS: Final = ("mcp-protocol-version", "mcp-session-id")


class McpAdapter(Adapter):
    """MCP over any transport: a body is one JSON-RPC message, or a batch of them."""

    name = FORMAT

    # -- requests: whatever is sent to the server's side of a connection ----------------------------------------------

    @reading_exact_names
    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request of a JSON-RPC message or batch.

        Raises:
            ShapeError: no object and no list of objects, or a list of tools or messages that is not one.
        """
        own = {name: text for key, text in (headers or {}).items() if (name := key.lower()) in _HEADERS}
        raw = freeze(body)
        request = _request(raw, model, own)
        layout = envelope_layout(_plain_request(request), raw, format_name=FORMAT)
        return request if layout is None else with_layout(request, layout)

    @respecting_critical
    def to_wire(self, request: Request) -> Any:
        """The JSON-RPC message or batch; a request of another format becomes a call, a read, or a completion.

        Raises:
            UnsupportedError: a response schema, provider-run tools, or content that no block can carry.
        """
        if request.response_schema is not None:
            raise UnsupportedError(
                "mcp cannot ask for structured output", path="response_schema", hint="route to a model's own API"
            )
        if request.reasoning_effort is not None:
            drop(FORMAT, "reasoning_effort", "no such parameter")
        drop_foreign_extras(FORMAT, request)
        own = object_in(extra_of(request, FORMAT), "headers")
        return respell_envelope(
            _plain_request(request),
            request,
            format_name=FORMAT,
            decode=lambda spelt: _request(freeze(spelt), request.model, own),
        )

    def to_http(self, request: Request) -> HttpCall:
        """The POST of the streamable HTTP transport; from revision 2026-07-28 on with its routing headers [MCP-9]."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        own = object_in(extra_of(request, FORMAT), "headers")
        headers |= {_HEADER_NAMES[name]: header_value(str(own[name])) for name in _HEADERS if name in own}
        body = self.to_wire(request)
        if isinstance(body, dict):
            headers |= _routing_headers(body)
        return HttpCall(path="/mcp", headers=headers)

    # -- responses: whatever comes back -------------------------------------------------------------------------------

    @reading_exact_names
    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response; `context` adds the names that an answer does not repeat.

        Raises:
            ShapeError: no object and no list of objects, or a list of tools or messages that is not one.
        """
        raw = freeze(body)
        if not isinstance(raw, dict | list) or (raw and not _has_messages(raw)):
            return unrecognized(raw, FORMAT)
        calls = _calls_of(context)
        response = _response(raw, calls)
        if isinstance(raw, list) and raw and raw[-1] == CUT_SHORT:
            raw = raw[:-1]
        layout = envelope_layout(_plain_response(response), raw, format_name=FORMAT)
        return response if layout is None else with_layout(response, layout)

    @locating_errors
    def to_wire_response(self, response: Response) -> Any:
        """The JSON-RPC message or batch; a response of another format becomes the result of a completion."""
        if is_unrecognized(response, FORMAT):
            return write_unrecognized(response, FORMAT)
        drop_foreign_extras(FORMAT, response)
        calls = _calls_as_read(response)
        partial = extra_of(response, FORMAT).get("partial") is True
        return respell_envelope(
            _plain_response(response),
            response,
            format_name=FORMAT,
            decode=lambda spelt: _response(freeze([*spelt, CUT_SHORT] if partial else spelt), calls),
        )

    # -- streams ------------------------------------------------------------------------------------------------------

    def fold_events(self, events: Iterable[WireEvent | Any]) -> Any:
        """The answer alone, or the batch of all messages of the stream; `CUT_SHORT` at its end if no answer came.

        Raises:
            ShapeError: an event is no JSON-RPC message.
        """
        found: list[Any] = []
        for event in events:
            data = event.get("data") if isinstance(event, dict) else event
            if isinstance(data, list):
                found += data
            elif isinstance(data, dict):
                found.append(data)
            elif data is not None and data != "":  # an empty event only sets an id to resume from
                raise ShapeError("an event that is no JSON-RPC message", path="$", hint="see the transport's framing")
        if not any(_is_answer(one) for one in found):
            return [*found, dict(CUT_SHORT)]
        return found[0] if len(found) == 1 else found

    @locating_errors
    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """One event per JSON-RPC message."""
        if is_unrecognized(response, FORMAT):
            error = {"code": -32603, "message": error_text(response)}
            return [{"event": "message", "data": {"jsonrpc": "2.0", "id": None, "error": error}}]
        body = self.to_wire_response(response)
        return [{"event": "message", "data": one} for one in (body if isinstance(body, list) else [body])]

    async def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The events of the complete answer: MCP streams whole messages, so text comes in one piece."""
        arrived = [event async for event in arriving(events)]
        try:
            response = self.from_wire_response(self.fold_events(arrived), context)
        except CmfError as error:
            yield StreamError(error=ErrorInfo(message=error.message, type=error.code))
            return
        for event in _ending(response):
            yield event

    # -- capabilities -------------------------------------------------------------------------------------------------

    def capabilities(self, model: str) -> ModelCapabilities:
        """Nothing is promised: which model the other side uses is not known here [F7]."""
        return ModelCapabilities()


ADAPTER: Final = McpAdapter()


def _ending(response: Response) -> list[StreamEvent]:
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


# -- one message or many -----------------------------------------------------------------------------------------------


def _request(raw: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    if isinstance(raw, list):
        ones = [read(one, f"$[{at}]", UNKNOWN_CALL) for at, one in enumerate(raw)]
        content, extra = _batched(ones), {"batch": _extras(ones)}
    else:
        one = read(raw, "$", UNKNOWN_CALL, alone=True)
        content, extra = one.content, one.extra
    if headers:
        extra = {**extra, "headers": freeze(dict(headers))}
    return trusted(
        Request,
        model=model,
        messages=tuple(content.messages),
        tools=tuple(content.tools),
        tool_choice=content.tool_choice,
        sampling=content.sampling,
        extra=_own(extra),
    )


def _response(raw: Any, calls: _AnsweredCalls) -> Response:
    if not isinstance(raw, list):
        one = read(raw, "$", calls.of(raw, 0), answering=True)
        return _answered([one], one.extra)
    partial = bool(raw) and raw[-1] == CUT_SHORT
    bodies = raw[:-1] if partial else raw
    ones = [read(body, f"$[{at}]", calls.of(body, at)) for at, body in enumerate(bodies)]
    if not partial:
        return _answered(ones, {"batch": _extras(ones)}, mark=True)
    response = _answered(ones, {"batch": _extras(ones), "partial": True}, mark=True)
    unfinished = [
        replace(choice, message=replace(choice.message, status=MessageStatus.PARTIAL)) for choice in response.choices
    ] or [trusted(Choice, message=trusted(Message, role=Role.ASSISTANT, content=(), status=MessageStatus.PARTIAL))]
    return replace(response, choices=tuple(unfinished))


def _answered(ones: Sequence[RpcMessage], extra: dict[str, Any], *, mark: bool = False) -> Response:
    content = _batched(ones) if mark else ones[0].content
    stop, raw_stop = ones[0].stop if ones else (None, None)
    stopped = [trusted(Choice, message=one) for one in content.messages]
    if raw_stop is not None and stopped:
        stopped[0] = replace(stopped[0], stop_reason=stop, raw_stop_reason=raw_stop)
    return trusted(
        Response,
        choices=tuple(stopped),
        tools=tuple(content.tools),
        model=ones[0].model if ones and not mark else None,
        error=next((one.error for one in ones if one.error is not None), None),
        extra=_own(extra),
    )


def _batched(ones: Sequence[RpcMessage]) -> RpcContent:
    """The content of a whole batch, each message and tool with the index of its entry."""
    content = RpcContent()
    for at, one in enumerate(ones):
        for message in one.content.messages:
            marked = {**extra_of(message, FORMAT), "entry": at}
            content.messages.append(replace(message, extra=_own(marked)))
        for tool in one.content.tools:
            content.tools.append(replace(tool, extra=_own({**extra_of(tool, FORMAT), ENTRY: at})))
    return content


def _extras(ones: Sequence[RpcMessage]) -> FrozenList:
    return FrozenList(one.extra for one in ones)


def _own(extra: dict[str, Any]) -> FrozenDict | None:
    return frozen_mapping({FORMAT: freeze(extra)}) if extra else None


class _AnsweredCalls:
    """The calls that a response answers: by id or by position in a batch, else a single one."""

    __slots__ = ("_by_id", "_listed", "_single")

    def __init__(
        self,
        single: AnsweredCall = UNKNOWN_CALL,
        by_id: dict[tuple[str, str], AnsweredCall] | None = None,
        listed: Sequence[AnsweredCall] | None = None,
    ) -> None:
        self._single = single
        self._by_id = by_id
        self._listed = listed

    def of(self, body: Any, at: int) -> AnsweredCall:
        """The call that `body` answers, the n-th of its batch."""
        if self._by_id is not None:
            return self._by_id.get(_id_key(body.get("id")), UNKNOWN_CALL) if isinstance(body, dict) else UNKNOWN_CALL
        if self._listed is not None:
            return self._listed[at] if at < len(self._listed) else UNKNOWN_CALL
        return self._single


def _calls_of(context: Request | None) -> _AnsweredCalls:
    if context is None:
        return _AnsweredCalls()
    batch = _batch(context)
    if batch is None:
        return _AnsweredCalls(answered_call(context))
    by_id: dict[tuple[str, str], AnsweredCall] = {}
    for own, messages in zip(batch, _entries(context.messages, len(batch)), strict=True):
        envelope = object_in(own, "envelope")
        by_id[_id_key(envelope.get("id"))] = AnsweredCall(method=_text(envelope.get("method")), name=name_in(messages))
    return _AnsweredCalls(by_id=by_id)


def _id_key(raw: Any) -> tuple[str, str]:
    return type(raw).__name__, str(raw)  # 1 and "1" are two ids


def _calls_as_read(response: Response) -> _AnsweredCalls:
    """The calls that the decoder knew when it read this response: it kept the method, and the parts hold the name."""
    messages = [choice.message for choice in response.choices]
    batch = _batch(response)
    if batch is None:
        return _AnsweredCalls(
            AnsweredCall(method=_text(extra_of(response, FORMAT).get("answers")), name=name_in(messages))
        )
    entries = zip(batch, _entries(messages, len(batch)), strict=True)
    return _AnsweredCalls(
        listed=[AnsweredCall(method=_text(own.get("answers")), name=name_in(content)) for own, content in entries]
    )


def _batch(holder: Request | Response) -> list[dict[str, Any]] | None:
    """The remaining wire fields of each entry, if the value is a batch."""
    batch = extra_of(holder, FORMAT).get("batch")
    return [own if isinstance(own, dict) else {} for own in batch] if isinstance(batch, list) else None


def _entries(messages: Sequence[Message], count: int) -> list[list[Message]]:
    """The messages of each entry of a batch."""
    entries: list[list[Message]] = [[] for _ in range(count)]
    for message in messages:
        at = extra_of(message, FORMAT).get("entry")
        if type(at) is int and 0 <= at < count:
            entries[at].append(message)
    return entries


def _has_messages(raw: Any) -> bool:
    """Whether a body can be a message, or a batch that contains one."""
    return isinstance(raw, dict) or any(isinstance(one, dict) for one in raw)


def _text(item: Any) -> str | None:
    return item if isinstance(item, str) else None


def _is_answer(body: Any) -> bool:
    return isinstance(body, dict) and "method" not in body and ("result" in body or "error" in body)


def _plain_request(request: Request) -> Any:
    batch = _batch(request)
    if batch is not None:
        return _plain_batch(batch, request.messages, request.tools)
    content = RpcContent(
        messages=list(request.messages),
        tools=list(request.tools),
        sampling=request.sampling,
        tool_choice=request.tool_choice,
    )
    return write(content, extra_of(request, FORMAT), asking=True)


def _plain_response(response: Response) -> Any:
    batch = _batch(response)
    messages = [choice.message for choice in response.choices]
    if batch is not None:
        return _plain_batch(batch, [one for one in messages if one.content or one.extra], response.tools)
    return write(
        RpcContent(messages=messages, tools=list(response.tools)), extra_of(response, FORMAT), response=response
    )


def _plain_batch(
    batch: Sequence[dict[str, Any]], messages: Sequence[Message], tools: Sequence[ToolDefinition]
) -> list[Any]:
    entries = [RpcContent(messages=content) for content in _entries(messages, len(batch))]
    placed = sum(len(entry.messages) for entry in entries)
    for tool in tools:
        at = extra_of(tool, FORMAT).get(ENTRY)
        if type(at) is int and 0 <= at < len(entries):
            entries[at].tools.append(tool)
            placed += 1
    if placed < len(tools) + len(messages):
        raise UnsupportedError("a batch with content of no entry", hint="send the entries one by one")
    return [write(content, own) for content, own in zip(entries, batch, strict=True)]


# -- HTTP --------------------------------------------------------------------------------------------------------------

_HEADER_NAMES: Final = {"mcp-protocol-version": "MCP-Protocol-Version", "mcp-session-id": "Mcp-Session-Id"}


def _routing_headers(body: Mapping[str, Any]) -> dict[str, str]:
    params, method = body.get("params"), body.get("method")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if not isinstance(version, str) or not isinstance(method, str):
        return {}
    headers = {"MCP-Protocol-Version": header_value(version), "Mcp-Method": header_value(method)}
    name = params.get(NAMED.get(method, "")) if isinstance(params, dict) else None
    return {**headers, "Mcp-Name": header_value(name)} if isinstance(name, str) else headers


def header_value(text: str) -> str:
    """The value of a header: as it is where a header can carry it, else in base64, as the transport prescribes."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="
