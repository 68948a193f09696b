"""Reads and writes one JSON-RPC message of MCP: a call, an answer, or a result without its envelope.

Spec: docs/spec/adapters/mcp.md [MCP-1]. What has no canonical field is kept under `envelope`, `params`, `result` and
`error`; so wire keys and our own cannot meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.adapters.mcp.calls import CALLS, DEFAULT_MAX_TOKENS, ENTRY, RpcContent, drop_options, method_of, params_of
from cmf.adapters.mcp.parts_in import FORMAT
from cmf.adapters.mcp.parts_out import add
from cmf.adapters.mcp.results import (
    STATUS,
    AnsweredCall,
    key_of,
    opaque,
    read_answer,
    read_status,
    read_stop,
    write_answer,
    write_stop,
)
from cmf.adapters.wire.call_ids import with_ids
from cmf.adapters.wire.fields import PARTIAL, Fields, extra_of, object_in
from cmf.enums import Role, StopReason
from cmf.errors import UnsupportedError
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping, thaw
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, OpaquePart, Part, ToolCallPart, ToolResultPart
from cmf.message.request import ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition

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


def read(body: Any, path: str, call: AnsweredCall, *, alone: bool = False, answering: bool = False) -> RpcMessage:
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
    if "result" in fields or "error" in fields:
        return _read_answer(fields, call, answering=answering)
    return _read_without_envelope(body, path, call, answering=answering)


def _read_call(fields: Fields, body: Any, method: str, *, alone: bool) -> RpcMessage:
    fields.drop("jsonrpc", "2.0")
    params = Fields(fields.take("params", FrozenDict) or _NO_KEYS, f"{fields.path}.params")
    content = RpcContent(call_id=_id_text(fields.peek("id")), alone=alone)
    row = CALLS.get(method)
    if method not in CALLS or (row is not None and not row[0](params, content)):
        whole = RpcContent()
        opaque(method, body, Role.USER, whole)
        return RpcMessage(whole, {})
    return RpcMessage(
        content, {"envelope": _NO_KEYS, **(fields.rest("envelope") or {}), **(params.rest("params") or {})}
    )


def _read_answer(fields: Fields, call: AnsweredCall, *, answering: bool) -> RpcMessage:
    fields.drop("jsonrpc", "2.0")
    answer = RpcMessage(RpcContent(), {})
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
    if call.method is not None:
        answer.extra["answers"] = call.method
    return answer


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
    if answering and any(key_of(message) == "message" for message in answer.content.messages):
        answer.stop = read_stop(result, answer.content.messages)
        answer.model = result.take("model", str)
    answer.extra |= result.rest("result") or {}


def _read_without_envelope(body: FrozenDict, path: str, call: AnsweredCall, *, answering: bool) -> RpcMessage:
    """A result or an error without its envelope, as documents and tests show them."""
    fields = Fields(body, path)
    answer = RpcMessage(RpcContent(), {})
    if answering and isinstance(body.get("message"), str) and type(body.get("code")) is int:
        answer.error = _read_error(fields)
        answer.extra = {"bare": "error", **(fields.rest("error") or {})}
        return answer
    _read_result(body, path, None, call, answer, answering=answering)
    answer.extra["bare"] = "result"
    if call.method is not None:
        answer.extra["answers"] = call.method
    return answer


def _read_error(error: Fields) -> ErrorInfo:
    code = error.take("code", int)
    return trusted(ErrorInfo, message=error.take("message", str), code=None if code is None else str(code))


def _id_text(raw: Any) -> str | None:
    return raw if isinstance(raw, str) else str(raw) if type(raw) is int else None


# -- writing one -------------------------------------------------------------------------------------------------------


def write(
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
    envelope = object_in(own, "envelope") if isinstance(own.get("envelope"), dict) else None
    if envelope is None and whole is not None:
        return thaw(whole)
    if envelope is not None and isinstance(envelope.get("method"), str):
        return _write_call(content, envelope, object_in(own, "params"))
    if asking and envelope is None and "bare" not in own:
        return _write_foreign_call(content)
    error = _written_error(own, response)
    if own.get("bare") == "error":
        return error
    body = present(error=error)
    if error is None or content.messages or content.tools or "result" in own:
        body["result"] = _written_result(content, own, response, whole)
    if own.get("bare") == "result":
        return body["result"]
    if envelope is None:
        envelope = {"id": _answer_id(content.messages)}
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
    params = add(params_of(method, content), dict(left))
    if isinstance(params.get("argument"), dict) and isinstance(left.get("argument"), dict):
        params["argument"] = {**left["argument"], **params["argument"]}
    body = {"jsonrpc": "2.0", **envelope}
    if params:
        body["params"] = params
    return body


def _write_foreign_call(content: RpcContent) -> dict[str, Any]:
    method = method_of(content.messages)
    if method == "sampling/createMessage":
        content.messages = with_ids(content.messages)
    else:
        drop_options(content, method)
    params = params_of(method, content)
    if method == "sampling/createMessage":
        params.setdefault("maxTokens", DEFAULT_MAX_TOKENS)
    call = next(
        (part for message in content.messages for part in message.content if isinstance(part, ToolCallPart)), None
    )
    call_id = call.tool_call_id if method == "tools/call" and call is not None else None
    return {"jsonrpc": "2.0", "id": "call_0" if call_id is None else call_id, "method": method, "params": params}


def _written_error(own: Mapping[str, Any], response: Response | None) -> dict[str, Any] | None:
    left = own.get("error")
    if response is None:
        return dict(left) if isinstance(left, dict) else None
    if response.error is None:
        return dict(left) if isinstance(left, dict) else None
    error: dict[str, Any] = {}
    if (code := response.error.code) is not None or "envelope" not in own:
        error["code"] = int(code) if code is not None and _is_code(code) else -32603
    if (text := response.error.message) is not None or "envelope" not in own:
        error["message"] = text or ""
    return add(error, dict(left)) if isinstance(left, dict) else error


def _is_code(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(text)) == text if len(digits) < 20 else False


def _written_result(
    content: RpcContent, own: Mapping[str, Any], response: Response | None, whole: Mapping[str, Any] | None
) -> dict[str, Any]:
    if whole is not None:
        return dict(whole)
    result = write_answer(content.messages, content)
    task = own.get("task")
    status = {STATUS: result.pop(STATUS)} if isinstance(task, dict) and STATUS in result else {}
    if response is not None and "role" in result:
        word = next((write_stop(choice) for choice in response.choices if choice.stop_reason is not None), None)
        result |= present(model=response.model, stopReason=word)
    left = own.get("result")
    if isinstance(left, dict):
        result = add(result, dict(left))
    return {**task, **status, "result": result} if isinstance(task, dict) else result


def _answer_id(messages: Sequence[Message]) -> str | None:
    for message in messages:
        for part in message.content:
            if isinstance(part, ToolResultPart):
                return part.tool_call_id
    return None


# -- many: a batch -----------------------------------------------------------------------------------------------------


def batched(entries: Sequence[RpcMessage]) -> RpcContent:
    """The content of a whole batch, each message and tool with the index of its entry."""
    content = RpcContent()
    for at, entry in enumerate(entries):
        for message in entry.content.messages:
            marked = {**extra_of(message, FORMAT), "entry": at}
            content.messages.append(replace(message, extra=as_extra(marked)))
        for tool in entry.content.tools:
            content.tools.append(replace(tool, extra=as_extra({**extra_of(tool, FORMAT), ENTRY: at})))
    return content


def extras_of(messages: Sequence[RpcMessage]) -> FrozenList:
    """What no canonical field holds of each entry."""
    return FrozenList(message.extra for message in messages)


def as_extra(extra: dict[str, Any]) -> FrozenDict | None:
    """The `extra` of this format with these fields."""
    return frozen_mapping({FORMAT: freeze(extra)}) if extra else None


def batch_in(holder: Request | Response) -> list[dict[str, Any]] | None:
    """The remaining wire fields of each entry, if the value is a batch."""
    batch = extra_of(holder, FORMAT).get("batch")
    return [own if isinstance(own, dict) else {} for own in batch] if isinstance(batch, list) else None


def entries_of(messages: Sequence[Message], count: int) -> list[list[Message]]:
    """The messages of each entry of a batch."""
    entries: list[list[Message]] = [[] for _ in range(count)]
    for message in messages:
        at = extra_of(message, FORMAT).get("entry")
        if type(at) is int and 0 <= at < count:
            entries[at].append(message)
    return entries


def write_batch(
    batch: Sequence[dict[str, Any]], messages: Sequence[Message], tools: Sequence[ToolDefinition]
) -> list[Any]:
    """The entries with these messages and tools, each in the one that it came in."""
    entries = [RpcContent(messages=content) for content in entries_of(messages, len(batch))]
    placed = sum(len(entry.messages) for entry in entries)
    for tool in tools:
        at = extra_of(tool, FORMAT).get(ENTRY)
        if type(at) is int and 0 <= at < len(entries):
            entries[at].tools.append(tool)
            placed += 1
    if placed < len(tools) + len(messages):
        raise UnsupportedError("a batch with content of no entry", hint="send the entries one by one")
    return [write(content, own) for content, own in zip(entries, batch, strict=True)]
