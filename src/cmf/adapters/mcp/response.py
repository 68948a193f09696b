"""What comes back over an MCP connection, both ways. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cmf.adapters.mcp.calls import RpcContent
from cmf.adapters.mcp.message import (
    CUT_SHORT,
    RpcMessage,
    as_extra,
    batch_in,
    batched,
    entries_of,
    extras_of,
    read,
    write,
    write_batch,
)
from cmf.adapters.mcp.parts_in import FORMAT
from cmf.adapters.mcp.results import UNKNOWN_CALL, AnsweredCall, answered_call, name_in
from cmf.adapters.wire.fields import as_text, extra_of, object_in
from cmf.adapters.wire.layout import respell_one, spelled_one
from cmf.adapters.wire.loss import drop_foreign_extras
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, Role
from cmf.json.frozen import freeze
from cmf.json.value import replace, trusted
from cmf.message.message import Message
from cmf.message.request import Choice, Request, Response


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


def _decode(raw: Any, calls: _AnsweredCalls) -> Response:
    if not isinstance(raw, list):
        answer = read(raw, "$", calls.of(raw, 0), answering=True)
        return _answered([answer], answer.extra)
    partial = bool(raw) and raw[-1] == CUT_SHORT
    bodies = raw[:-1] if partial else raw
    answers = [read(body, f"$[{at}]", calls.of(body, at)) for at, body in enumerate(bodies)]
    if not partial:
        return _answered(answers, {"batch": extras_of(answers)}, mark=True)
    response = _answered(answers, {"batch": extras_of(answers), "partial": True}, mark=True)
    unfinished = [
        replace(choice, message=replace(choice.message, status=MessageStatus.PARTIAL)) for choice in response.choices
    ] or [trusted(Choice, message=trusted(Message, role=Role.ASSISTANT, content=(), status=MessageStatus.PARTIAL))]
    return replace(response, choices=tuple(unfinished))


def _answered(answers: Sequence[RpcMessage], extra: dict[str, Any], *, mark: bool = False) -> Response:
    content = batched(answers) if mark else answers[0].content
    stop, raw_stop = answers[0].stop if answers else (None, None)
    stopped = [trusted(Choice, message=message) for message in content.messages]
    if raw_stop is not None and stopped:
        stopped[0] = replace(stopped[0], stop_reason=stop, raw_stop_reason=raw_stop)
    return trusted(
        Response,
        choices=tuple(stopped),
        tools=tuple(content.tools),
        model=answers[0].model if answers and not mark else None,
        error=next((answer.error for answer in answers if answer.error is not None), None),
        extra=as_extra(extra),
    )


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
    batch = batch_in(context)
    if batch is None:
        return _AnsweredCalls(answered_call(context))
    by_id: dict[tuple[str, str], AnsweredCall] = {}
    for own, messages in zip(batch, entries_of(context.messages, len(batch)), strict=True):
        envelope = object_in(own, "envelope")
        by_id[_id_key(envelope.get("id"))] = AnsweredCall(
            method=as_text(envelope.get("method")), name=name_in(messages)
        )
    return _AnsweredCalls(by_id=by_id)


def _id_key(raw: Any) -> tuple[str, str]:
    return type(raw).__name__, str(raw)  # 1 and "1" are two ids


def _calls_as_read(response: Response) -> _AnsweredCalls:
    """The calls that the decoder knew when it read this response: it kept the method, and the parts hold the name."""
    messages = [choice.message for choice in response.choices]
    batch = batch_in(response)
    if batch is None:
        return _AnsweredCalls(
            AnsweredCall(method=as_text(extra_of(response, FORMAT).get("answers")), name=name_in(messages))
        )
    entries = zip(batch, entries_of(messages, len(batch)), strict=True)
    return _AnsweredCalls(
        listed=[AnsweredCall(method=as_text(own.get("answers")), name=name_in(content)) for own, content in entries]
    )


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
    batch = batch_in(response)
    messages = [choice.message for choice in response.choices]
    if batch is not None:
        return write_batch(batch, [message for message in messages if message.content or message.extra], response.tools)
    content = RpcContent(messages=messages, tools=list(response.tools))
    return write(content, extra_of(response, FORMAT), response=response)
