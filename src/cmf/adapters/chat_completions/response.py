"""Chat-completions answers and errors, both ways. Spec: docs/spec/adapters/openai_chat.md [OAC-9] to [OAC-15]."""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.chat_completions.dialect import FINISH_REASONS, STOP_REASONS, Dialect, usage_of, wire_usage
from cmf.adapters.chat_completions.parts import decoded_message, wire_assistant
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.fields import PARTIAL, Fields, merge, unmarked
from cmf.adapters.wire.layout import respell_one, spelled_one
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, StopReason
from cmf.json.frozen import freeze
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message
from cmf.message.pairing import has_client_call
from cmf.message.request import Choice, ErrorInfo, Request, Response

_RESPONSE_NULLS: Final = ("choices", "usage", "error", "service_tier", "system_fingerprint")
_CHOICE_NULLS: Final = ("finish_reason", "logprobs", "message")
_CHOICE_ERROR: Final = "choice_error"  # the form of an error inside a choice, to which it goes back
_NO_ID: Final = "chatcmpl-0"  # where a foreign response has no id: a constant, since nothing is minted here


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(dialect: Dialect, body: Any, context: Request | None) -> Response:
    """A whole response, or an error in any of the shapes that errors come in. The request is not needed."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        return unrecognized(raw, dialect.format)
    response = _decode(raw, dialect)
    return spelled_one(response, _encode(response, dialect), unmarked(raw), format_name=dialect.format)


def _decode(raw: Any, dialect: Dialect) -> Response:
    fields = Fields(raw, "$")
    fields.drop_nulls(_RESPONSE_NULLS)
    status = MessageStatus.PARTIAL if fields.take(PARTIAL, bool) else MessageStatus.COMPLETE
    listed = fields.take("choices", list)
    if listed is not None:
        fields.drop("object", "chat.completion")
    choices = [_choice(choice, f"$.choices[{at}]", at, dialect, status) for at, choice in enumerate(listed or ())]
    error, form = _error(fields) if listed is None or "error" in fields else _choice_error(listed)
    return trusted(
        Response,
        choices=tuple(choices),
        usage=usage_of(fields.peek("usage")),
        model=fields.take("model", str),
        error=error,
        extra=dialect.rest(fields, form),
    )


def _choice(raw: Any, path: str, index: int, dialect: Dialect, status: MessageStatus) -> Choice:
    fields = Fields(raw, path)
    fields.drop("index", index)
    fields.drop_nulls(_CHOICE_NULLS)
    message = fields.need("message", dict) if "message" in fields else {}
    decoded = decoded_message(message, f"{path}.message", dialect, {}, reply=True)
    if status is not MessageStatus.COMPLETE:
        decoded = replace(decoded, status=status)
    reason = fields.take("finish_reason", str)  # anything else is shown in `extra`
    stop = None if reason is None else _stop_reason(reason, *_ends_in(decoded, dialect))
    extra = dialect.rest(fields)
    if extra is None and stop is StopReason.OTHER:
        extra = freeze({dialect.format: {}})  # the mark by which a word that nobody knows is known as this format's
    return trusted(Choice, message=decoded, stop_reason=stop, raw_stop_reason=reason, extra=extra)


def _ends_in(message: Message, dialect: Dialect) -> tuple[bool, bool]:
    """Whether a message refuses, and whether it calls tools of the client."""
    keys = {dialect.key_of(part) for part in message.content}
    return "refusal" in keys, "tool_calls" in keys or has_client_call(message.content)


def _stop_reason(raw: str, refused: bool, calls: bool) -> StopReason:
    """The canonical reason. A refusal is in the message, with `stop` beside it; so are calls that were forced.

    Some services say "" beside calls, and others nothing but `stop`.
    """
    reason = STOP_REASONS.get(raw, StopReason.OTHER)
    if calls and not refused and (reason is StopReason.END or not raw):
        return StopReason.CALL
    if refused and reason is StopReason.END:
        return StopReason.REFUSAL
    return StopReason.OTHER if reason is StopReason.CALL and not calls else reason


def _choice_error(listed: list[Any]) -> tuple[ErrorInfo | None, str | None]:
    """What went wrong with a choice, where the body itself names no error; it stays with the choice, too."""
    for choice in listed:
        if isinstance(choice, dict) and isinstance(choice.get("error"), dict):
            return _error_info(Fields(choice["error"], "$.choices[].error")), _CHOICE_ERROR
    return None, None


def _error(fields: Fields) -> tuple[ErrorInfo, str | None]:
    """The error, and its form: `error` as an object, as a text, or no `error` at all."""
    raw = fields.take("error", dict)
    if raw is not None:
        inner = Fields(raw, "$.error")
        info = _error_info(inner)
        fields.leave("error", inner)
        return info, None
    text = fields.take("error", str)
    if text is not None:
        return trusted(ErrorInfo, message=text), "error_text"
    return _error_info(fields), "error_flat"


def _error_info(fields: Fields) -> ErrorInfo:
    code = fields.peek("code")
    return trusted(
        ErrorInfo,
        message=fields.take("message", str),
        type=fields.take("type", str),
        code=fields.take("code", str),
        status=code if type(code) is int else None,  # the number itself stays where it was
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def write_response(dialect: Dialect, response: Response) -> dict[str, Any]:
    """The body of a response."""
    plain = _encode(response, dialect)
    return respell_one(plain, response, format_name=dialect.format, decode=lambda spelt: _decode(spelt, dialect))


def _encode(response: Response, dialect: Dialect) -> dict[str, Any]:
    own = dialect.own(response)
    extra = unmarked(own)
    dialect.drop_foreign(response, "response")
    body: dict[str, Any] = {}
    form = dialect.key_of(response)
    if response.error is not None and not (form == _CHOICE_ERROR and response.choices):
        body |= _encode_error(response.error, form)
    if response.error is None or response.choices:
        body |= {"id": _NO_ID, "object": "chat.completion", "created": 0}
        ids = CallIds()
        body["choices"] = [_encode_choice(choice, at, dialect, ids) for at, choice in enumerate(response.choices)]
        for wire, choice in zip(body["choices"], response.choices, strict=True):
            # Another format may leave open why a whole answer ended; clients of this one want a word.
            if not own and wire["finish_reason"] is None and choice.message.status is not MessageStatus.PARTIAL:
                wire["finish_reason"] = "tool_calls" if _ends_in(choice.message, dialect)[1] else "stop"
    body |= {key: extra[key] for key in ("id", "object", "created") if key in extra} | present(model=response.model)
    if response.usage is not None:
        kept = extra.pop("usage", None)
        body["usage"] = kept if kept is not None and usage_of(kept) == response.usage else wire_usage(response.usage)
    return merge(body, extra)


def _encode_choice(choice: Choice, index: int, dialect: Dialect, ids: CallIds) -> dict[str, Any]:
    own = dialect.own(choice)
    message = wire_assistant(choice.message, dialect, ids, reply=True)
    body = {"index": own.get("index", index), "message": message, "finish_reason": _finish_reason(choice, dialect)}
    return merge(body, own)


def _finish_reason(choice: Choice, dialect: Dialect) -> str | None:
    """The raw reason where it is this format's and still true; else by the table, and by whether there are calls."""
    if choice.stop_reason is None:
        return None
    raw = choice.raw_stop_reason
    refused, calls = _ends_in(choice.message, dialect)
    own = choice.stop_reason is not StopReason.OTHER or dialect.format in (choice.extra or {})
    if raw is not None and own and _stop_reason(raw, refused, calls) is choice.stop_reason:
        return raw
    reason = StopReason.END if choice.stop_reason is StopReason.CALL and not calls else choice.stop_reason
    if reason is StopReason.REFUSAL and not refused:
        reason = StopReason.CONTENT_FILTER  # without a `refusal`, "stop" would say that this is the answer
    return "tool_calls" if calls and reason is StopReason.END else FINISH_REASONS.get(reason, "stop")


def _encode_error(error: ErrorInfo, form: str | None) -> dict[str, Any]:
    fields = present(message=error.message, type=error.type, code=error.code)
    if form == "error_text":
        return {"error": error.message or ""}
    return fields if form == "error_flat" else {"error": fields}
