"""Ollama's answers and errors, both ways. Spec: docs/spec/adapters/ollama.md [OLL-10], [OLL-11]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.ollama.parts_in import FORMAT, decode_message
from cmf.adapters.ollama.parts_out import encode_message
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import MARK, PARTIAL, Fields, extra_of, merge, unmarked
from cmf.adapters.wire.layout import respell_one, spelled_one
from cmf.adapters.wire.replies import in_one_text, unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import UnsupportedError
from cmf.json.frozen import freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, Part, TextPart, ThinkingPart, TokenUsage, ToolResultPart
from cmf.message.pairing import has_call
from cmf.message.request import Choice, ErrorInfo, Request, Response

_GENERATED: Final = f"{MARK}generated"  # on a message whose fields were in the body itself
_STOPS: Final = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "load": StopReason.OTHER,
    "unload": StopReason.OTHER,
}
_WORDS: Final = {StopReason.MAX_TOKENS: "length"}  # every other end is a stop


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response; an error body is a response with `error`."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        return unrecognized(raw, FORMAT)
    response = _decode(raw)
    if not response.choices and response.error is None and PARTIAL not in raw:
        return unrecognized(raw, FORMAT)
    return spelled_one(response, _encode(response), unmarked(raw), format_name=FORMAT)


def _decode(raw: Mapping[str, Any]) -> Response:
    fields = Fields(raw, "$")
    cut = fields.peek(PARTIAL) is True
    fields.drop(PARTIAL, True)
    message = fields.optional("message", dict)
    choices: tuple[Choice, ...] = ()
    if message is not None:
        choices = (_choice(fields, decode_message(message, "$.message", reply=True), cut=cut),)
    elif isinstance(fields.peek("response"), str):
        choices = (_choice(fields, _generated(fields), cut=cut),)
    error = ErrorInfo(message=fields.take("error", str)) if fields.peek("error") is not None else None
    return trusted(
        Response,
        choices=choices,
        usage=_usage(fields),
        model=fields.optional("model", str),
        error=error,
        extra=fields.rest(FORMAT),
    )


def _generated(fields: Fields) -> Message:
    """The message of an answer of `/api/generate`, which has its text in the body itself."""
    thinking, text = fields.take("thinking", str), fields.take("response", str)
    parts: list[Part] = [trusted(ThinkingPart, text=thinking)] if thinking else []
    if text:
        parts.append(trusted(TextPart, text=text))
    extra = frozen_mapping({FORMAT: frozen_mapping({_GENERATED: True})})
    return trusted(Message, role=Role.ASSISTANT, content=tuple(parts), extra=extra)


def _choice(fields: Fields, message: Message, *, cut: bool) -> Choice:
    if cut or ("done" in fields and fields.peek("done") is not True):
        message = replace(message, status=MessageStatus.PARTIAL)
    for value in (True, False, None):
        fields.drop("done", value)
    reason = fields.peek("done_reason")
    stop = None
    if isinstance(reason, str):
        stop = _STOPS.get(reason, StopReason.OTHER)
        if reason in _STOPS:
            fields.take("done_reason", str)
        if stop is StopReason.END and has_call(message.content):
            stop = StopReason.CALL
    fields.drop("done_reason", None)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=reason if stop is not None else None)


def _usage(fields: Fields) -> TokenUsage | None:
    given, output = fields.peek("prompt_eval_count"), fields.peek("eval_count")
    counts = [count for count in (given, output) if count is not None]
    if not counts or not all(type(count) is int and count >= 0 for count in counts):
        return None
    fields.take("prompt_eval_count", int)
    fields.take("eval_count", int)
    fields.drop("prompt_eval_count", None)
    fields.drop("eval_count", None)
    total = (given or 0) + (output or 0)
    return trusted(TokenUsage, input_tokens=given or 0, output_tokens=output or 0, total_tokens=total)


# -- writing -----------------------------------------------------------------------------------------------------------


def join_texts(response: Response, streamed: bool) -> Response:
    """The response with its texts as one, and its thinking."""
    return in_one_text(response, FORMAT, is_own=lambda _: False)


def write_response(response: Response) -> dict[str, Any]:
    """The body of a response; UnsupportedError for several choices, and for results of tools."""
    return respell_one(_encode(response), response, format_name=FORMAT, decode=_decode)


def _encode(response: Response) -> dict[str, Any]:
    if len(response.choices) > 1:
        raise UnsupportedError("several choices", path="choices", hint="ask for one")
    own = unmarked(extra_of(response, FORMAT))
    body = present(model=response.model)
    if response.error is not None and "error" not in own:
        error = response.error
        body["error"] = error.message or error.type or error.code or "error"
    for choice in response.choices:
        body |= _encode_choice(choice, own)
    if response.usage is not None:
        usage = response.usage
        given = usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens
        body |= {"prompt_eval_count": given, "eval_count": usage.output_tokens}
    loss.drop_foreign_extra(FORMAT, response, "response")
    return merge(body, own)


def _encode_choice(choice: Choice, own: Mapping[str, Any]) -> dict[str, Any]:
    loss.drop_foreign_extra(FORMAT, choice, "choice", message=choice.message)
    body: dict[str, Any] = {**_answer(choice.message), "done": choice.message.status is not MessageStatus.PARTIAL}
    if choice.stop_reason is not None and "done_reason" not in own:
        raw = choice.raw_stop_reason
        end = StopReason.END if choice.stop_reason is StopReason.CALL else choice.stop_reason
        fits = raw is not None and _STOPS.get(raw) in (choice.stop_reason, end)
        body["done_reason"] = raw if fits else _WORDS.get(choice.stop_reason, "stop")
    return body


def _answer(message: Message) -> dict[str, Any]:
    """The message, or its content in the body itself if it came so and still can."""
    if any(isinstance(part, ToolResultPart) and part.executed_by == "client" for part in message.content):
        raise UnsupportedError(
            "a reply with the result of a tool", about=message, hint="send the result with the next request"
        )
    (wire,) = encode_message(message, reply=True)
    if wire.pop(_GENERATED, None) is not True or not wire.keys() <= {"role", "content", "thinking"}:
        return {"message": wire}
    thinking = {"thinking": wire["thinking"]} if "thinking" in wire else {}
    return {"response": wire["content"], **thinking}
