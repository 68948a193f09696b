"""Responses of the Messages format, both directions. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cmf.adapters.anthropic_messages.parts_in import FORMAT, Names, decode_assistant, is_own, learn_calls
from cmf.adapters.anthropic_messages.parts_out import encode_content
from cmf.adapters.wire.call_ids import with_ids
from cmf.adapters.wire.fields import MARK, PARTIAL, Fields, merge, unmarked
from cmf.adapters.wire.layout import respell_one, spelled_one
from cmf.adapters.wire.loss import drop_foreign_extra, own_extra
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, trusted
from cmf.message.message import Message, TokenUsage, ToolCallPart, ToolResultPart
from cmf.message.pairing import has_client_call
from cmf.message.request import Choice, ErrorInfo, Request, Response

OTHER_EVENTS: Final = f"{MARK}events"  # what a stream had beside its message
_UNCALLED: Final = f"{FORMAT}.uncalled"  # marks the extra of a choice that stopped for a call and came without one
_BLANK: Final = {
    "id": "msg_0",  # the format wants an id; none is minted
    "type": "message",
    "role": "assistant",
    "model": "",
    "stop_sequence": None,
    "usage": {"input_tokens": 0, "output_tokens": 0},
}

_REASONS: Final = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.CALL,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.PAUSE,
    "compaction": StopReason.PAUSE,
}
_WORDS: Final = {
    StopReason.CALL: "tool_use",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.REFUSAL: "refusal",
    StopReason.CONTENT_FILTER: "refusal",
    StopReason.PAUSE: "pause_turn",
}
_COUNTS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cached_input_tokens",
    "cache_creation_input_tokens": "cache_creation_input_tokens",
}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The response of a whole body or of the fold of a stream; `context` names the tools that its results answer."""
    raw = freeze(body)
    response = _read(raw, _names_of(context.messages) if context is not None else {})
    if response is None:
        return unrecognized(raw, FORMAT)
    return spelled_one(response, _encode(response), unmarked(raw), format_name=FORMAT)


def _read(raw: Any, names: Names) -> Response | None:
    """The response without its layout; None if it is neither a message nor an error or a count of this format."""
    if not isinstance(raw, dict):
        return None
    if "content" in raw and (isinstance(raw["content"], list) or "role" in raw or raw.get("type") == "message"):
        return _decode_message(raw, names)
    return _decode_error(raw) if isinstance(raw.get("error"), dict) else _decode_count(raw)


def _decode_error(raw: Any) -> Response:
    fields = Fields(raw, "$")
    fields.drop("type", "error")
    return trusted(Response, error=_error_info(fields), extra=fields.rest(FORMAT))


def _error_info(fields: Fields) -> ErrorInfo:
    detail = Fields(fields.take("error", dict), "$.error")
    info = trusted(ErrorInfo, message=detail.take("message", str), type=detail.take("type", str))
    if (left := detail.rest(FORMAT)) is not None:
        fields.put_back("error", left[FORMAT])
    return info


def _decode_count(raw: Any) -> Response | None:
    fields = Fields(raw, "$")
    count = fields.take("input_tokens", int)
    if count is None or not 0 <= count <= SAFE_INTEGER:
        return None
    usage = trusted(TokenUsage, input_tokens=count, total_tokens=count)
    return trusted(Response, usage=usage, extra=fields.rest(FORMAT))


def _decode_message(raw: Any, names: Names) -> Response:
    fields = Fields(raw, "$")
    content = fields.need("content", list) if fields.peek("content") is not None else ()
    fields.drop("content", None)  # gateways write an empty answer so
    raw_role = fields.take("role", str)
    if raw_role not in (None, "assistant"):
        raise ShapeError("`role` is not `assistant`", path="$.role", hint="a reply is the assistant's")
    fields.drop("type", "message")
    message = trusted(
        Message,
        role=Role.ASSISTANT,
        content=tuple(decode_assistant(content, "$.content", names)),
        id=fields.take("id", str),
        status=MessageStatus.PARTIAL if fields.peek(PARTIAL) is True else MessageStatus.COMPLETE,
    )
    fields.drop(PARTIAL, True)
    choice = _decode_ending(fields, message)
    error = _error_info(fields) if isinstance(fields.peek("error"), dict) else None
    usage = _decode_usage(fields)
    model = fields.take("model", str)
    return trusted(Response, choices=(choice,), usage=usage, model=model, error=error, extra=fields.rest(FORMAT))


def _decode_ending(fields: Fields, message: Message) -> Choice:
    raw = fields.take("stop_reason", str)
    if raw is None and fields.peek("stop_reason") is not None:
        raise ShapeError("`stop_reason` is no string", path="$.stop_reason", hint="see the Messages API reference")
    fields.drop("stop_reason", None)
    left: dict[str, Any] = {}
    for key in ("stop_sequence", "stop_details"):
        if (item := fields.peek(key)) is not None:
            left[key] = item
            fields.take(key, type(item))
        fields.drop(key, None)
    reason = None if raw is None else _REASONS.get(raw, StopReason.OTHER)
    extra: dict[str, Any] = {}
    if left or reason is StopReason.OTHER:
        extra[FORMAT] = frozen_mapping(left)
    if reason is StopReason.CALL and not has_client_call(message.content):
        extra[_UNCALLED] = FrozenDict()
    kept = frozen_mapping(extra) if extra else None
    return trusted(Choice, message=message, stop_reason=reason, raw_stop_reason=raw, extra=kept)


def _decode_usage(fields: Fields) -> TokenUsage | None:
    usage = fields.take("usage", dict)
    if usage is None:
        return None
    left = dict(usage)
    counts = {
        field: left.pop(key)
        for key, field in _COUNTS.items()
        if type(left.get(key)) is int and 0 <= left[key] <= SAFE_INTEGER
    }
    if left:
        fields.put_back("usage", frozen_mapping(left))
    return trusted(TokenUsage, **counts, total_tokens=sum(counts.values()))


def _names_of(messages: Sequence[Message]) -> Names:
    """Tool names by call id, as the calls and results of some messages tell them."""
    names: Names = {}
    learn_calls(names, messages)
    results = (part for message in messages for part in message.content if isinstance(part, ToolResultPart))
    for result in results:
        if result.tool_call_id is not None and result.tool_name is not None:
            names.setdefault(result.tool_call_id, result.tool_name)
    return names


# -- writing -----------------------------------------------------------------------------------------------------------


def write_response(response: Response) -> Any:
    """The body of a response: a message, an error, or a count of tokens."""
    names = _known_before(response)

    def decode(spelt: Any) -> Response:
        return _read(spelt, dict(names)) or unrecognized(spelt, FORMAT)

    return respell_one(_encode(response), response, format_name=FORMAT, decode=decode)


def _known_before(response: Response) -> Names:
    """The tool names that reading began with: a response learns those of its own calls as they come."""
    first: dict[str | None, Any] = {}
    for choice in response.choices:
        for part in choice.message.content:
            if isinstance(part, ToolCallPart | ToolResultPart):
                first.setdefault(part.tool_call_id, part)
    return {
        id_: part.tool_name
        for id_, part in first.items()
        if id_ is not None and isinstance(part, ToolResultPart) and part.tool_name is not None
    }


def _encode(response: Response) -> dict[str, Any]:
    extra = unmarked(own_extra(FORMAT, response, "response"))
    if len(response.choices) > 1:
        raise UnsupportedError("the format has one choice per response", path="choices", hint="send one of them")
    body: dict[str, Any] = {}
    if _is_count(response):
        body = {"input_tokens": response.usage.input_tokens if response.usage is not None else 0}
    elif response.choices or response.error is None:
        said = _encode_message(response) if response.choices else {**_SILENT, "model": response.model or ""}
        body = {key: item for key, item in _BLANK.items() if key not in extra} | said
        if response.usage is not None:
            body["usage"] = _beside(_encode_usage(response.usage), extra.get("usage"))
    elif "type" not in extra:
        body["type"] = "error"
    if response.error is not None:
        wire_error = {"type": response.error.type or "api_error", "message": response.error.message or ""}
        body["error"] = _beside(wire_error, extra.get("error"))
    return merge(body, extra)


def _is_count(response: Response) -> bool:
    """Whether it is nothing but a count of the tokens of a request."""
    usage = response.usage
    if response.choices or response.error is not None or usage is None:
        return False
    return usage.total_tokens == usage.input_tokens


_SILENT: Final = {"content": [], "stop_reason": "end_turn"}  # an answer of another format that has no choice


def _encode_message(response: Response) -> dict[str, Any]:
    choice = response.choices[0]
    (message,) = with_ids((choice.message,))
    body = {"content": encode_content(message, answer=True), "stop_reason": _stop_reason(choice)}
    drop_foreign_extra(FORMAT, message, "message", message=message)
    body |= present(id=message.id, model=response.model)
    return body | own_extra(FORMAT, choice, "choice", message=message)


def _encode_usage(usage: TokenUsage) -> dict[str, Any]:
    return {key: getattr(usage, field) for key, field in _COUNTS.items()}


def _beside(written: dict[str, Any], odd: Any) -> dict[str, Any]:
    """What is written, except what the provider sent in a shape of its own, which was kept and stays as it is."""
    return {key: item for key, item in written.items() if not isinstance(odd, dict) or key not in odd}


def _stop_reason(choice: Choice) -> str | None:
    """The wire's word: the provider's own as long as it fits, else derived from the reason and the content."""
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    if reason is None:
        return None
    calls = has_client_call(choice.message.content)
    if raw is not None and _REASONS.get(raw, StopReason.OTHER) is reason and _may_repeat(choice, calls=calls):
        return raw
    if reason is StopReason.CALL or reason is StopReason.END:
        return "tool_use" if calls else "end_turn"
    return _WORDS.get(reason, "end_turn")


def _may_repeat(choice: Choice, *, calls: bool) -> bool:
    """Whether the provider's word for the reason still holds: not after its calls were taken out of the message."""
    if choice.stop_reason is StopReason.OTHER:
        return is_own(choice)
    return choice.stop_reason is not StopReason.CALL or calls or _UNCALLED in (choice.extra or {})
