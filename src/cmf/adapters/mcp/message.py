"""The JSON-RPC messages of MCP: requests, answers, results without an envelope, batches and streams of them.

Spec: docs/spec/adapters/mcp.md [MCP-1], [MCP-9]. What has no canonical field is kept under `envelope`, `params`,
`result` and `error`; so wire keys and our own cannot meet.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.adapters.mcp.calls import (
    CALLS,
    ENTRY,
    STATUS,
    UNKNOWN_CALL,
    AnsweredCall,
    RpcContent,
    foreign_call,
    key_of,
    name_in,
    opaque,
    params_of,
    read_answer,
    read_status,
    stop_reason,
    stop_word,
    write_answer,
)
from cmf.adapters.mcp.parts import FORMAT
from cmf.adapters.wire.base import Adapter, HttpCall, WireEvent
from cmf.adapters.wire.fields import PARTIAL, Fields, as_text, extra_of, object_in
from cmf.adapters.wire.layout import respell_one, spelled_one
from cmf.adapters.wire.loss import drop, drop_foreign_extras
from cmf.adapters.wire.replies import unrecognized
from cmf.adapters.wire.stream import CUT, MessageComplete, StreamError, StreamEvent, TextDelta, ToolUseEnd
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping, thaw
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, OpaquePart, Part, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition
from cmf.message.transform import has_client_call

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
_HEADERS: Final = {"mcp-protocol-version": "MCP-Protocol-Version", "mcp-session-id": "Mcp-Session-Id"}
CUT_SHORT: Final = {PARTIAL: True}
"""The last item of the fold of a stream that ended before its answer."""
_NO_KEYS: Final = FrozenDict()
_NOT_IN_TASKS: Final = frozenset({"result", "taskId"})
"""Keys that no result of a tool has: with one of these, a result within a task is another task."""


@dataclass(slots=True)
class RpcMessage:
    """One JSON-RPC message after reading: its content, and in `extra` whatever no canonical field holds."""

    content: RpcContent
    extra: dict[str, Any]
    error: ErrorInfo | None = None
    stop: tuple[StopReason | None, str | None] = (None, None)
    model: str | None = None


# -- reading one -------------------------------------------------------------------------------------------------------


def _read(body: Any, path: str, call: AnsweredCall, *, alone: bool = False, answering: bool = False) -> RpcMessage:
    """Read one message.

    Args:
        body: the frozen JSON object.
        path: where it stands, for errors.
        call: the one that it answers, if it is an answer.
        alone: it is a whole request, which has fields for sampling options.
        answering: it is a whole response, which has fields for an error, a model and a stop reason.
    """
    fields = Fields(body, path)
    method = fields.peek("method")
    if isinstance(method, str):
        return _read_call(fields, body, method, alone=alone)
    answer = RpcMessage(RpcContent(), {})
    if "result" in fields or "error" in fields:
        _read_answer(fields, call, answer, answering=answering)
    elif answering and isinstance(body.get("message"), str) and type(body.get("code")) is int:
        answer.error = _read_error(fields)
        answer.extra = {"bare": "error", **(fields.rest("error") or {})}
        return answer
    else:  # a result without its envelope, as documents and tests show it
        _read_result(body, path, None, call, answer, answering=answering)
        answer.extra["bare"] = "result"
    if call.method is not None:
        answer.extra["answers"] = call.method
    return answer


def _read_call(fields: Fields, body: Any, method: str, *, alone: bool) -> RpcMessage:
    fields.drop("jsonrpc", "2.0")
    params = Fields(fields.take("params", FrozenDict) or _NO_KEYS, f"{fields.path}.params")
    content = RpcContent(call_id=_id_text(fields.peek("id")), alone=alone)
    row = CALLS.get(method)
    if method not in CALLS or (row is not None and not row[0](params, content)):
        whole = RpcContent()
        opaque(method, body, Role.USER, whole)
        return RpcMessage(whole, {})
    own = {**(fields.rest("envelope") or {}), **(params.rest("params") or {})}
    return RpcMessage(content, {"envelope": _NO_KEYS, **own})


def _read_answer(fields: Fields, call: AnsweredCall, answer: RpcMessage, *, answering: bool) -> None:
    fields.drop("jsonrpc", "2.0")
    raw = fields.take("result", FrozenDict)
    if raw is not None:
        _read_result(raw, f"{fields.path}.result", _id_text(fields.peek("id")), call, answer, answering=answering)
    if (error := fields.take("error", FrozenDict)) is not None:
        left = Fields(error, f"{fields.path}.error")
        answer.error = _read_error(left)
        # Only a lone answer's error is a field of the response: the rest of it stays here, and of others all of it.
        answer.extra |= (left.rest("error") or {}) if answering else {"error": error}
    elif raw is not None and "error" in fields:
        answer.extra.setdefault("result", _NO_KEYS)  # beside the null of an error that did not happen
    answer.extra = {"envelope": _NO_KEYS, **(fields.rest("envelope") or {}), **answer.extra}


def _read_result(
    raw: FrozenDict, path: str, answer_id: str | None, call: AnsweredCall, answer: RpcMessage, *, answering: bool
) -> None:
    result, own, task = Fields(raw, path), raw, None
    if (inner := result.take("result", FrozenDict)) is not None:  # a finished task, and what its call gave
        result, own, task = Fields(inner, f"{path}.result"), inner, result
    is_known = task is None or (call.method == "tools/call" and _NOT_IN_TASKS.isdisjoint(own))
    if not is_known or not read_answer(result, own, answer_id, call, answer.content):
        opaque(call.method or "result", raw, Role.TOOL, answer.content)
        return
    if task is not None:
        read_status(task, answer.content)
        answer.extra |= task.rest("task") or {"task": _NO_KEYS}
    messages = answer.content.messages
    if answering and any(key_of(message) == "message" for message in messages):
        if (word := result.take("stopReason", str)) is not None:
            calls = any(has_client_call(message.content) for message in messages)
            answer.stop = stop_reason(word, calls=calls), word
        answer.model = result.take("model", str)
    answer.extra |= result.rest("result") or {}


def _read_error(error: Fields) -> ErrorInfo:
    code = error.take("code", int)
    return trusted(ErrorInfo, message=error.take("message", str), code=None if code is None else str(code))


def _id_text(raw: Any) -> str | None:
    return raw if isinstance(raw, str) else str(raw) if type(raw) is int else None


# -- writing one -------------------------------------------------------------------------------------------------------


def _write(
    content: RpcContent, own: Mapping[str, Any], *, asking: bool = False, response: Response | None = None
) -> Any:
    """The JSON-RPC message for this content.

    Args:
        content: messages, tools and options.
        own: the wire fields that were kept; empty for content of another format.
        asking: content of another format is a request, not an answer.
        response: the whole response, where this is one.
    """
    whole = _whole(content.messages)
    envelope = own["envelope"] if isinstance(own.get("envelope"), dict) else None
    if envelope is None and whole is not None:
        return thaw(whole)
    if envelope is not None and isinstance(envelope.get("method"), str):
        return _write_call(content, envelope, object_in(own, "params"))
    if asking and envelope is None and "bare" not in own:
        return foreign_call(content)
    error = _write_error(own, None if response is None else response.error)
    if own.get("bare") == "error":
        return error
    body = present(error=error)
    if error is None or content.messages or content.tools or "result" in own:
        body["result"] = dict(whole) if whole is not None else _write_result(content, own, response)
    if own.get("bare") == "result":
        return body["result"]
    if envelope is None:
        results = (part for message in content.messages for part in message.content if isinstance(part, ToolResultPart))
        envelope = {"id": next((part.tool_call_id for part in results), None)}
    elif "result" not in own and body.get("result") == {} and ("result" in envelope or "error" in envelope):
        del body["result"]
    return {"jsonrpc": "2.0", **envelope, **body}


def _whole(messages: Sequence[Message]) -> Mapping[str, Any] | None:
    """The message or result that was judged as a whole, if there is one."""
    for message in messages:
        part: Part | None = message.content[0] if message.content and key_of(message) == "whole" else None
        if isinstance(part, OpaquePart) and part.provider == FORMAT:
            if len(messages) > 1 or len(message.content) > 1:
                raise UnsupportedError("what was judged as a whole goes alone", hint="send nothing beside it")
            return part.value
    return None


def _write_call(content: RpcContent, envelope: Mapping[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    method = envelope["method"]
    if method not in CALLS:
        raise UnsupportedError("a method that is not in the table has no params to write", hint="send it as it came")
    params = {**left, **params_of(method, content)}
    if isinstance(params.get("argument"), dict) and isinstance(left.get("argument"), dict):
        params["argument"] = {**left["argument"], **params["argument"]}
    return {"jsonrpc": "2.0", **envelope, **present(params=params or None)}


def _write_error(own: Mapping[str, Any], error: ErrorInfo | None) -> dict[str, Any] | None:
    left: dict[str, Any] | None = own["error"] if isinstance(own.get("error"), dict) else None
    if error is None:
        return left if left is None else dict(left)
    written: dict[str, Any] = {}
    if error.code is not None or "envelope" not in own:
        written["code"] = int(error.code) if error.code is not None and _is_code(error.code) else -32603
    if error.message is not None or "envelope" not in own:
        written["message"] = error.message or ""
    return {**(left or {}), **written}


def _is_code(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(text)) == text if len(digits) < 20 else False


def _write_result(content: RpcContent, own: Mapping[str, Any], response: Response | None) -> dict[str, Any]:
    result, task = write_answer(content), own.get("task")
    status = {STATUS: result.pop(STATUS)} if isinstance(task, dict) and STATUS in result else {}
    if response is not None and "role" in result:
        word = next((stop_word(choice) for choice in response.choices if choice.stop_reason is not None), None)
        result |= present(model=response.model, stopReason=word)
    result = {**object_in(own, "result"), **result}
    return {**task, **status, "result": result} if isinstance(task, dict) else result


# -- many: a batch -----------------------------------------------------------------------------------------------------


def _batched(entries: Sequence[RpcMessage]) -> tuple[RpcContent, dict[str, Any]]:
    """The content of a whole batch, each message and tool with the index of its entry; what no field holds of each."""
    content = RpcContent()
    for at, entry in enumerate(entries):
        for message in entry.content.messages:
            content.messages.append(replace(message, extra=_as_extra({**extra_of(message, FORMAT), "entry": at})))
        for tool in entry.content.tools:
            content.tools.append(replace(tool, extra=_as_extra({**extra_of(tool, FORMAT), ENTRY: at})))
    return content, {"batch": FrozenList(entry.extra for entry in entries)}


def _as_extra(extra: dict[str, Any]) -> FrozenDict | None:
    """The `extra` of this format with these fields."""
    return frozen_mapping({FORMAT: freeze(extra)}) if extra else None


def _batch_in(holder: Request | Response) -> list[dict[str, Any]] | None:
    """The remaining wire fields of each entry, if the value is a batch."""
    batch = extra_of(holder, FORMAT).get("batch")
    return [own if isinstance(own, dict) else {} for own in batch] if isinstance(batch, list) else None


def _entries_of(messages: Sequence[Message], count: int) -> list[list[Message]]:
    """The messages of each entry of a batch."""
    entries: list[list[Message]] = [[] for _ in range(count)]
    for message in messages:
        at = extra_of(message, FORMAT).get("entry")
        if type(at) is int and 0 <= at < count:
            entries[at].append(message)
    return entries


def _write_batch(
    batch: Sequence[dict[str, Any]], messages: Sequence[Message], tools: Sequence[ToolDefinition]
) -> list[Any]:
    """The entries with these messages and tools, each in the one that it came in."""
    entries = [RpcContent(messages=content) for content in _entries_of(messages, len(batch))]
    placed = sum(len(entry.messages) for entry in entries)
    for tool in tools:
        at = extra_of(tool, FORMAT).get(ENTRY)
        if type(at) is int and 0 <= at < len(entries):
            entries[at].tools.append(tool)
            placed += 1
    if placed < len(tools) + len(messages):
        raise UnsupportedError("a batch with content of no entry", hint="send the entries one by one")
    return [_write(content, own) for content, own in zip(entries, batch, strict=True)]


# -- requests: what is sent to the server's side, and the headers of HTTP [MCP-9] --------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request of a JSON-RPC message or batch."""
    own = {name: text for key, text in headers.items() if (name := key.lower()) in _HEADERS}
    raw = freeze(body)
    request = _decode_request(raw, model, own)
    return spelled_one(request, _encode_request(request), raw, format_name=FORMAT)


def _decode_request(raw: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    if isinstance(raw, list):
        content, extra = _batched([_read(entry, f"$[{at}]", UNKNOWN_CALL) for at, entry in enumerate(raw)])
    else:
        message = _read(raw, "$", UNKNOWN_CALL, alone=True)
        content, extra = message.content, message.extra
    if headers:
        extra = {**extra, "headers": freeze(dict(headers))}
    return trusted(
        Request,
        model=model,
        messages=tuple(content.messages),
        tools=tuple(content.tools),
        tool_choice=content.tool_choice,
        sampling=content.sampling,
        extra=_as_extra(extra),
    )


def write_request(request: Request) -> Any:
    """The JSON-RPC message or batch; a request of another format becomes a call, a read, or a completion."""
    if request.response_schema is not None:
        raise UnsupportedError(
            "mcp cannot ask for structured output", path="response_schema", hint="route to a model's own API"
        )
    if request.reasoning_effort is not None:
        drop(FORMAT, "reasoning_effort", "no such parameter")
    drop_foreign_extras(FORMAT, request)
    own = object_in(extra_of(request, FORMAT), "headers")

    def decode(spelt: Any) -> Request:
        return _decode_request(spelt, request.model, own)

    return respell_one(_encode_request(request), request, format_name=FORMAT, decode=decode)


def _encode_request(request: Request) -> Any:
    batch = _batch_in(request)
    if batch is not None:
        return _write_batch(batch, request.messages, request.tools)
    content = RpcContent(
        messages=list(request.messages),
        tools=list(request.tools),
        sampling=request.sampling,
        tool_choice=request.tool_choice,
    )
    return _write(content, extra_of(request, FORMAT), asking=True)


def http_call(request: Request) -> HttpCall:
    """The POST of the streamable HTTP transport; from revision 2026-07-28 on with its routing headers [MCP-9]."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    own = object_in(extra_of(request, FORMAT), "headers")
    headers |= {header: header_value(str(own[name])) for name, header in _HEADERS.items() if name in own}
    body = write_request(request)
    params, method = (body.get("params"), body.get("method")) if isinstance(body, dict) else (None, None)
    version = object_in(params, "_meta").get(VERSION_KEY)
    if isinstance(params, dict) and isinstance(version, str) and isinstance(method, str):
        headers |= {"MCP-Protocol-Version": header_value(version), "Mcp-Method": header_value(method)}
        if isinstance(name := params.get(NAMED.get(method, "")), str):
            headers["Mcp-Name"] = header_value(name)
    return HttpCall(path="/mcp", headers=headers)


def header_value(text: str) -> str:
    """The value of a header: as it is where a header can carry it, else in base64, as the transport prescribes."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


# -- responses: what comes back ----------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response; `context` adds the names that an answer does not repeat."""
    raw = freeze(body)
    has_messages = isinstance(raw, dict) or (isinstance(raw, list) and any(isinstance(entry, dict) for entry in raw))
    if raw != [] and not has_messages:
        return unrecognized(raw, FORMAT)
    response = _decode(raw, _calls_of(context))
    if isinstance(raw, list) and raw and raw[-1] == CUT_SHORT:
        raw = raw[:-1]
    return spelled_one(response, _encode(response), raw, format_name=FORMAT)


_Calls = Callable[[Any, int], AnsweredCall]
"""The call that a body answers, which is so manieth of its batch: by id or by position there, else a single one."""


def _decode(raw: Any, calls: _Calls) -> Response:
    if not isinstance(raw, list):
        answer = _read(raw, "$", calls(raw, 0), answering=True)
        return _answered([answer], answer.content, answer.extra, model=answer.model)
    partial = bool(raw) and raw[-1] == CUT_SHORT
    bodies = raw[:-1] if partial else raw
    answers = [_read(body, f"$[{at}]", calls(body, at)) for at, body in enumerate(bodies)]
    content, extra = _batched(answers)
    if not partial:
        return _answered(answers, content, extra)
    response = _answered(answers, content, {**extra, "partial": True})
    choices = response.choices or [trusted(Choice, message=trusted(Message, role=Role.ASSISTANT, content=()))]
    unfinished = [replace(each, message=replace(each.message, status=MessageStatus.PARTIAL)) for each in choices]
    return replace(response, choices=tuple(unfinished))


def _answered(
    answers: Sequence[RpcMessage], content: RpcContent, extra: dict[str, Any], *, model: str | None = None
) -> Response:
    stop, raw_stop = answers[0].stop if answers else (None, None)
    choices = [trusted(Choice, message=message) for message in content.messages]
    if raw_stop is not None and choices:
        choices[0] = replace(choices[0], stop_reason=stop, raw_stop_reason=raw_stop)
    return trusted(
        Response,
        choices=tuple(choices),
        tools=tuple(content.tools),
        model=model,
        error=next((answer.error for answer in answers if answer.error is not None), None),
        extra=_as_extra(extra),
    )


def _calls_of(context: Request | None) -> _Calls:
    batch = None if context is None else _batch_in(context)
    if context is None or batch is None:
        own = {} if context is None else object_in(extra_of(context, FORMAT), "envelope")
        name = None if context is None else name_in(context.messages)
        return lambda body, at: AnsweredCall(as_text(own.get("method")), name)

    def key(raw: Any) -> tuple[str, str]:
        return type(raw).__name__, str(raw)  # 1 and "1" are two ids

    by_id: dict[tuple[str, str], AnsweredCall] = {}
    for entry, messages in zip(batch, _entries_of(context.messages, len(batch)), strict=True):
        envelope = object_in(entry, "envelope")
        by_id[key(envelope.get("id"))] = AnsweredCall(as_text(envelope.get("method")), name_in(messages))
    return lambda body, at: by_id.get(key(body.get("id")), UNKNOWN_CALL) if isinstance(body, dict) else UNKNOWN_CALL


def _calls_as_read(response: Response) -> _Calls:
    """The calls that the decoder knew when it read this response: it kept the method, and the parts hold the name."""
    messages = [choice.message for choice in response.choices]
    batch = _batch_in(response)
    owns, entries = [extra_of(response, FORMAT)], [messages]
    if batch is not None:
        owns, entries = batch, _entries_of(messages, len(batch))
    calls = [AnsweredCall(as_text(own.get("answers")), name_in(each)) for own, each in zip(owns, entries, strict=True)]
    return lambda body, at: calls[at] if at < len(calls) else UNKNOWN_CALL


def write_response(response: Response) -> Any:
    """The JSON-RPC message or batch; a response of another format becomes the result of a completion."""
    drop_foreign_extras(FORMAT, response)
    calls = _calls_as_read(response)
    partial = extra_of(response, FORMAT).get("partial") is True
    return respell_one(
        _encode(response),
        response,
        format_name=FORMAT,
        decode=lambda spelt: _decode([*spelt, CUT_SHORT] if partial else spelt, calls),
    )


def _encode(response: Response) -> Any:
    batch = _batch_in(response)
    messages = [choice.message for choice in response.choices]
    if batch is not None:
        listed = [message for message in messages if message.content or message.extra]
        return _write_batch(batch, listed, response.tools)
    content = RpcContent(messages=messages, tools=list(response.tools))
    return _write(content, extra_of(response, FORMAT), response=response)


# -- streams: whole messages, of which one is the answer ---------------------------------------------------------------


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
    answers = (body for body in bodies if isinstance(body, dict) and "method" not in body)
    if not any("result" in body or "error" in body for body in answers):
        return [*bodies, dict(CUT_SHORT)]
    return bodies[0] if len(bodies) == 1 else bodies


def write_events(response: Response) -> list[WireEvent]:
    """One event per JSON-RPC message."""
    body = write_response(response)
    return [{"event": "message", "data": entry} for entry in (body if isinstance(body, list) else [body])]


def error_event(text: str, reply: Any) -> WireEvent:
    """The event for an error with this text."""
    return {"event": "message", "data": {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": text}}}


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


ADAPTER: Final = Adapter(
    name=FORMAT,
    read_request=read_request,
    write_request=write_request,
    to_http=http_call,
    read_response=read_response,
    write_response=write_response,
    fold=fold_events,
    write_events=write_events,
    error_event=error_event,
    live_decoder=lambda: lambda event: (),  # a message comes in one piece
    ending=ending,
)
