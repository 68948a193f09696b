"""Answers of the Responses format, both ways. Spec: docs/spec/adapters/openai_responses.md [RSP-9] to [RSP-12]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cmf.adapters.openai_responses.items import FORMAT, KINDS
from cmf.adapters.openai_responses.parts_in import ItemReader
from cmf.adapters.openai_responses.parts_out import ItemWriter
from cmf.adapters.wire.fields import PARTIAL, Fields, as_text, extra_of, merge, object_in, opened, unmarked
from cmf.adapters.wire.layout import respell_one, shape_of, spelled_one
from cmf.adapters.wire.loss import drop, drop_foreign_extras
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import FrozenDict, FrozenList, freeze
from cmf.json.value import present, trusted
from cmf.message.message import NO_SHAPE, Message, Part, TextPart, TokenUsage
from cmf.message.pairing import has_client_call
from cmf.message.request import Choice, ErrorInfo, Request, Response

_COUNTED: Final = "response.input_tokens"  # the `object` of the answer to how many tokens a request would be
_ANSWERED: Final = frozenset({"output", "status", "error", "usage", "model", PARTIAL})
_STATUSES: Final = {
    "completed": MessageStatus.COMPLETE,
    "complete": MessageStatus.COMPLETE,
    "incomplete": MessageStatus.COMPLETE,  # the answer ended, if early: see its stop reason
    "failed": MessageStatus.ERROR,
    "cancelled": MessageStatus.CANCELLED,
    "queued": MessageStatus.PARTIAL,
    "in_progress": MessageStatus.PARTIAL,
}
_INCOMPLETE: Final = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.CONTENT_FILTER}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response; what is no response is an error."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        return unrecognized(raw, FORMAT)
    response, form = _decode(raw)
    return spelled_one(response, _encode(response, form), unmarked(raw), format_name=FORMAT, notes=form)


def _decode(body: Any) -> tuple[Response, dict[str, Any]]:
    """The response, and how it was spelled as far as the encoder cannot tell: `error` and `derived` [RSP-12]."""
    form: dict[str, Any] = {}
    fields = Fields(opened(body), "$")
    left = fields.left()
    if left.get("object") == _COUNTED and (counted := _tokens(fields)) is not None:
        return counted, form
    partial = left.pop(PARTIAL, None) is True
    output = fields.take("output", list)
    error = _error(fields, form, answered=output is not None)
    choices: tuple[Choice, ...] = ()
    without_output = left.get("output") is None and (left.get("object") == "response" or "status" in left)
    if output is not None or (error is None and without_output):
        message_parts = _answer_parts(output or ())
        choices = (_choice(fields, message_parts, partial=partial),)
        form |= _kinds(message_parts)
        text = _joined_text(message_parts)
        if output is not None and left.get("output_text") == text and text:
            del left["output_text"]
            form["derived"] = True
    elif error is None:
        error = _other_error(fields, form)
    usage, model = _usage(fields), fields.take("model", str)
    return trusted(Response, choices=choices, usage=usage, model=model, error=error, extra=fields.rest(FORMAT)), form


def _tokens(fields: Fields) -> Response | None:
    """The number of tokens of a request, if the body has one and nothing that belongs to an answer."""
    count = fields.peek("input_tokens")
    if not _ANSWERED.isdisjoint(fields.left()) or type(count) is not int or not 0 <= count <= SAFE_INTEGER:
        return None
    fields.take("object", str)
    fields.take("input_tokens", int)
    usage = trusted(TokenUsage, input_tokens=count, total_tokens=count)
    return trusted(Response, usage=usage, extra=fields.rest(FORMAT))


def _kinds(parts: tuple[Part, ...]) -> dict[str, Any]:
    """The item types of calls and results, by number of the part, and how many parts there are."""
    types = {str(at): kind for at, part in enumerate(parts) if (kind := _wire_type(part)) in KINDS}
    return {"kinds": types, "parts": len(parts)} if types else {}


def _answer_parts(output: Iterable[Any]) -> tuple[Part, ...]:
    items = list(output)
    reader = ItemReader(answer=True, items=items)
    return tuple(part for at, item in enumerate(items) for part in reader.read(item, f"$.output[{at}]")[1])


def _joined_text(parts: Iterable[Part]) -> str:
    """The text of the answer's `output_text` parts, without refusals: the format's own summary."""
    return "".join(part.text for part in parts if isinstance(part, TextPart) and not _is_refusal(part))


def _is_refusal(part: Part) -> bool:
    """Whether a text part is a refusal on the wire."""
    return _wire_type(part) == "refusal"


def _wire_type(part: Part) -> str | None:
    """The type of the wire block that a part was, where it is not the usual one."""
    return as_text(extra_of(part, FORMAT).get("type"))


def _choice(fields: Fields, parts: tuple[Part, ...], *, partial: bool) -> Choice:
    raw = fields.take("status", str)
    status = MessageStatus.PARTIAL if partial else _STATUSES.get(raw or "", MessageStatus.COMPLETE)
    message = trusted(Message, role=Role.ASSISTANT, content=parts, status=status)
    stop = None if status is MessageStatus.PARTIAL else _stop_reason(raw, fields.left(), parts)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=raw)


def _stop_reason(status: str | None, envelope: dict[str, Any], parts: Iterable[Part]) -> StopReason | None:
    """Why an answer with this status (None: the server sends none) and these parts ended [RSP-11]."""
    reason = object_in(envelope, "incomplete_details").get("reason")
    if status in ("completed", "complete") or (status is None and not isinstance(reason, str)):
        listed = tuple(parts)
        if has_client_call(listed):
            return StopReason.CALL
        return StopReason.REFUSAL if any(_is_refusal(part) for part in listed) else StopReason.END
    if status in ("queued", "in_progress"):
        return None
    if status == "failed":
        return StopReason.ERROR
    if isinstance(reason, str) and status in (None, "incomplete"):
        return _INCOMPLETE.get(reason, StopReason.OTHER)
    return StopReason.OTHER


def _error(fields: Fields, form: dict[str, Any], *, answered: bool) -> ErrorInfo | None:
    error = fields.peek("error")
    if isinstance(error, dict):
        inner = Fields(error, "$.error")
        texts = {key: inner.take(key, str) for key in ("message", "type", "code")}
        fields.take("error", dict)
        fields.leave("error", inner)
        return trusted(ErrorInfo, **texts)
    if isinstance(error, str) and not answered:
        form["error"] = "string"
        return trusted(ErrorInfo, message=fields.take("error", str), code=fields.take("code", str))
    return None


def _other_error(fields: Fields, form: dict[str, Any]) -> ErrorInfo:
    """A body that is not a response: an error of a server in between, in one of its shapes."""
    for key in ("message", "detail"):
        if (text := fields.take(key, str)) is not None:
            form["error"] = key
            return trusted(ErrorInfo, message=text)
    form["error"] = "none"
    return trusted(ErrorInfo)


def _usage(fields: Fields) -> TokenUsage | None:
    """Tokens as [A10] counts them; what the numbers do not say again stays."""
    usage = fields.peek("usage")
    listed = usage.get("input_tokens_details") if isinstance(usage, dict) else None
    if not isinstance(usage, dict) or not isinstance(listed, dict | None):
        return None
    rest, details = Fields(usage, "$.usage"), Fields(listed or {}, "$.usage.input_tokens_details")
    counts = [_count(rest, key) for key in ("input_tokens", "output_tokens", "total_tokens")]
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    uncounted = _COUNTS & rest.left().keys() or _CACHE_COUNTS & details.left().keys()
    if uncounted or counts[0] < cached + written:
        return None  # no counts that we know: the block stays as it is
    if listed is not None:
        rest.take("input_tokens_details", dict)
        rest.leave("input_tokens_details", details)
    fields.take("usage", dict)
    fields.leave("usage", rest)
    return trusted(
        TokenUsage,
        input_tokens=counts[0] - cached - written,
        output_tokens=counts[1],
        total_tokens=counts[2],
        cached_input_tokens=cached,
        cache_creation_input_tokens=written,
    )


_COUNTS: Final = frozenset({"input_tokens", "output_tokens", "total_tokens"})
_CACHE_COUNTS: Final = frozenset({"cached_tokens", "cache_write_tokens"})


def _count(block: Fields, key: str) -> int:
    value = block.peek(key)
    return block.take(key, int) or 0 if type(value) is int and value >= 0 else 0


# -- writing -----------------------------------------------------------------------------------------------------------


def write_response(response: Response) -> dict[str, Any]:
    """The body of a response; the marks of the fold are left out."""
    drop_foreign_extras(FORMAT, response)
    plain = _encode(response, shape_of(response, FORMAT))
    return respell_one(plain, response, format_name=FORMAT, decode=lambda spelt: _decode(spelt)[0])


def _encode(response: Response, form: dict[str, Any]) -> Any:
    """The response as plainly as its provider would say it; `form` is what `_decode` gave [RSP-12]."""
    own = unmarked(extra_of(response, FORMAT))
    if (asked := _asked(response)) is not None:
        return merge({"object": _COUNTED, "input_tokens": asked}, own)
    body = present(model=response.model)
    if response.choices:
        _write_choice(body, response, own, form)
    if response.error is not None:
        _write_error(body, response, own, form)
    if response.usage is not None:
        body["usage"] = _encode_usage(response.usage, foreign=not own)
    merge(body, own)
    if response.choices and not own:
        for key, value in _ENVELOPE.items():
            body.setdefault(key, value)
    return body


def _asked(response: Response) -> int | None:
    """The number of tokens of a request, if that is all that the response has."""
    usage = response.usage
    if response.choices or response.error is not None or response.model is not None or usage is None:
        return None
    alone = TokenUsage(input_tokens=usage.input_tokens, total_tokens=usage.input_tokens)
    return alone.input_tokens if usage == alone else None


# What clients of the format expect of any answer; no clock here, so the time is nought.
_ENVELOPE: Final[dict[str, Any]] = {
    "id": "resp_0",
    "object": "response",
    "created_at": 0,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": FrozenDict(),
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": FrozenList(),
    "top_p": None,
}


def _write_choice(body: dict[str, Any], response: Response, own: dict[str, Any], form: dict[str, Any]) -> None:
    choice = response.choices[0]
    for other in response.choices[1:]:
        drop(FORMAT, "choice", "an answer has one choice here", message=other.message)
    parts = choice.message.content
    raw = choice.raw_stop_reason
    cut = choice.message.status is MessageStatus.PARTIAL and choice.stop_reason is None
    if raw is not None and (own or raw in _STATUSES) and (cut or _still(raw, own, parts, choice.stop_reason)):
        body["status"] = raw
    else:
        refused = choice.stop_reason is StopReason.REFUSAL and not any(map(_is_refusal, parts))
        status, reason = _STATUS.get(StopReason.CONTENT_FILTER if refused else choice.stop_reason, ("completed", None))
        if "status" not in own:
            body["status"] = "in_progress" if choice.message.status is MessageStatus.PARTIAL else status
        # By the details, without a status.
        explained = not refused and raw is None and (cut or _still(None, own, parts, choice.stop_reason))
        if not explained and (reason is not None or "incomplete_details" in own):
            body["incomplete_details"] = {"reason": reason} if reason is not None else None
    kinds = object_in(form, "kinds") if form.get("parts") == len(parts) else NO_SHAPE
    body["output"] = ItemWriter(answer=True, stem=_stem(own.get("id"))).items(choice.message, kinds)
    if form.get("derived") is True and (text := _joined_text(parts)):
        body["output_text"] = text


def _stem(answer_id: Any) -> str:
    """What the ids of an answer's items have between their kind and their number: items are known by them [C9]."""
    return f"{answer_id.removeprefix('resp_')}_" if isinstance(answer_id, str) and answer_id else ""


def _still(raw: str | None, own: dict[str, Any], parts: Iterable[Part], wanted: StopReason | None) -> bool:
    """Whether the original status still gives the reason why the answer ended."""
    reason = _stop_reason(raw, own, parts)
    return reason is wanted or (reason in _ENDED and wanted in _ENDED)  # the status does not tell these apart


_ENDED: Final = frozenset(
    {StopReason.END, StopReason.RETURN, StopReason.CALL, StopReason.STOP_SEQUENCE, StopReason.REFUSAL}
)


_STATUS: Final[dict[StopReason | None, tuple[str, str | None]]] = {
    StopReason.MAX_TOKENS: ("incomplete", "max_output_tokens"),
    StopReason.CONTENT_FILTER: ("incomplete", "content_filter"),
    StopReason.ERROR: ("failed", None),
}


def _write_error(body: dict[str, Any], response: Response, own: dict[str, Any], form: dict[str, Any]) -> None:
    error = response.error
    spelt = form.get("error")
    error_fields = {} if error is None else error.model_dump()
    error_fields.pop("status", None)  # of the HTTP answer, not of its body
    if spelt == "string":
        body["error"] = error_fields.get("message", "")
        if "code" in error_fields:
            body["code"] = error_fields["code"]
    elif spelt in ("message", "detail"):
        body[spelt] = error_fields.get("message", "")
    elif spelt != "none":
        # `type` is the discriminator of nothing here, so it may be absent; clients read `message`.
        body["error"] = (
            error_fields
            if own or not error_fields
            else {"message": "", "type": None, "param": None, "code": None} | error_fields
        )


def _encode_usage(usage: TokenUsage, *, foreign: bool) -> dict[str, Any]:
    cached, written = usage.cached_input_tokens, usage.cache_creation_input_tokens
    asked = usage.input_tokens + cached + written
    details = {"cached_tokens": cached} | ({"cache_write_tokens": written} if written or foreign else {})
    counts: dict[str, Any] = {
        "input_tokens": asked,
        "input_tokens_details": details,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens or asked + usage.output_tokens,
    }
    if foreign:
        counts["output_tokens_details"] = {"reasoning_tokens": 0}
    return counts
