"""Gemini's answers and errors, both ways. Spec: docs/spec/adapters/gemini.md [GEM-16] to [GEM-20]."""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.gemini.names import RESPONSE, normal, spelt
from cmf.adapters.gemini.parts_in import FORMAT, inside
from cmf.adapters.gemini.parts_out import encode_group
from cmf.adapters.gemini.request import decode_content
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import PARTIAL, Fields, as_text, count_in, extra_of, merge, unmarked
from cmf.adapters.wire.layout import respell_one, shape_of, spelled_one
from cmf.adapters.wire.replies import in_one_text, unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import freeze
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, TokenUsage
from cmf.message.pairing import has_client_call
from cmf.message.request import Choice, ErrorInfo, Request, Response

_FILTERED: Final = (
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION", "MODEL_ARMOR", "LANGUAGE",
)  # fmt: skip
_STOPS: Final[dict[str, StopReason]] = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    **dict.fromkeys(_FILTERED, StopReason.CONTENT_FILTER),
    "MALFORMED_FUNCTION_CALL": StopReason.ERROR,
    "UNEXPECTED_TOOL_CALL": StopReason.ERROR,
    "TOO_MANY_TOOL_CALLS": StopReason.ERROR,
    "OTHER": StopReason.OTHER,
    "FINISH_REASON_UNSPECIFIED": StopReason.OTHER,
}
_NUMBERED: Final = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}  # where all dialects agree
COUNT: Final = "totalTokens"  # of a reply that counts tokens, and has no candidates
_KNOWN: Final = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "error", COUNT, PARTIAL}
)
"""What replies of this format have; one without any of it is somebody else's."""
_RAW: Final[dict[StopReason, str]] = {
    StopReason.END: "STOP",
    StopReason.RETURN: "STOP",
    StopReason.CALL: "STOP",
    StopReason.STOP_SEQUENCE: "STOP",
    StopReason.PAUSE: "STOP",
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.REFUSAL: "SAFETY",
    StopReason.CONTENT_FILTER: "SAFETY",
    StopReason.ERROR: "OTHER",
    StopReason.OTHER: "OTHER",
}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response of an answer, an error, or an error in an array (a stream's form without `alt=sse`)."""
    raw = freeze(body)
    listed = isinstance(raw, list)
    if listed:
        if len(raw) != 1 or not isinstance(raw[0], dict) or "error" not in raw[0]:
            raise ShapeError("an array is a stream's events", path="$", hint="fold them first")
        raw = raw[0]
    if not isinstance(raw, dict):
        return unrecognized(raw, FORMAT)
    whole, names = normal(raw, RESPONSE)
    if _KNOWN.isdisjoint(whole):
        return unrecognized(raw, FORMAT)
    response = _decode(whole)
    if listed:
        names["one"] = True
    notes = {"names": names} if names else {}
    return spelled_one(response, _encode(response), unmarked(whole), format_name=FORMAT, notes=notes)


def _decode(whole: dict[str, Any]) -> Response:
    """The canonical response of a body in normal form, without its layout."""
    fields = Fields(whole, "$")
    cut = fields.peek(PARTIAL) is True
    fields.drop(PARTIAL, True)
    error = _error(fields)
    raw = fields.optional("candidates", list)
    candidates = [_candidate(each, index) for index, each in enumerate(raw or ())]
    blocked = inside(fields, "promptFeedback")
    if blocked is not None:
        if not candidates and error is None and blocked.peek("blockReason") is not None:
            candidates = [_empty(StopReason.CONTENT_FILTER, as_text(blocked.peek("blockReason")))]
        fields.leave("promptFeedback", blocked)
    if not candidates and error is None and fields.peek(COUNT) is None:
        candidates = [_empty(None if cut else StopReason.OTHER)]  # it was cut, or the model did not say why
    if cut:
        partial = MessageStatus.PARTIAL
        candidates = [replace(choice, message=replace(choice.message, status=partial)) for choice in candidates]
    return trusted(
        Response,
        choices=tuple(candidates),
        usage=_usage(fields.peek("usageMetadata")) or _counted(fields.peek(COUNT)),
        model=fields.optional("modelVersion", str),
        error=error,
        extra=fields.rest(FORMAT),
    )


def _candidate(raw: Any, index: int) -> Choice:
    fields = Fields(raw, f"$.candidates[{index}]")
    content = fields.optional("content", dict)
    if content is None:
        message = trusted(Message, role=Role.ASSISTANT, content=())
    else:
        message = decode_content(content, f"{fields.path}.content", reply=True)[0]
    reason = fields.peek("finishReason")
    stop, wire = _stop(reason, message)
    if wire is not None and wire in _STOPS and wire == reason:
        fields.take("finishReason", str)
    fields.drop("finishReason", None)
    fields.drop("index", index)
    return trusted(
        Choice,
        message=message,
        stop_reason=stop,
        raw_stop_reason=as_text(reason),
        extra=fields.rest(FORMAT),
    )


def _stop(reason: Any, message: Message) -> tuple[StopReason | None, str | None]:
    """Why it stopped, and the name of that reason; a number is the place in the provider's enumeration."""
    if reason is None:
        return None, None
    name = _NUMBERED.get(reason) if type(reason) is int else reason if isinstance(reason, str) else None
    stop = _STOPS.get(name or "", StopReason.OTHER)
    calls = has_client_call(message.content)
    return (StopReason.CALL if stop is StopReason.END and calls else stop), name


def _empty(stop: StopReason | None, raw: str | None = None) -> Choice:
    """An answer without content: of a prompt that was blocked, a stream that was cut, a model that gave none."""
    message = trusted(Message, role=Role.ASSISTANT, content=())
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=raw)


def _usage(raw: Any) -> TokenUsage | None:
    """Tokens; the prompt's without what was cached [A10], the answer's with the thoughts."""
    if not isinstance(raw, dict):
        return None
    cached = count_in(raw, "cachedContentTokenCount")
    given = max(0, count_in(raw, "promptTokenCount") - cached) + count_in(raw, "toolUsePromptTokenCount")
    output = count_in(raw, "candidatesTokenCount") + count_in(raw, "thoughtsTokenCount")
    total = count_in(raw, "totalTokenCount") or given + cached + output
    return trusted(TokenUsage, input_tokens=given, output_tokens=output, total_tokens=total, cached_input_tokens=cached)


def _counted(count: Any) -> TokenUsage | None:
    """The tokens of a reply that counts them."""
    if type(count) is not int or not 0 <= count <= SAFE_INTEGER:
        return None
    return trusted(TokenUsage, input_tokens=count, total_tokens=count)


def _error(fields: Fields) -> ErrorInfo | None:
    raw = fields.peek("error")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        return ErrorInfo(message=as_text(raw))
    error = Fields(fields.need("error", dict), "$.error")
    info = ErrorInfo(
        message=error.take("message", str),
        type=error.take("status", str),
        code=error.take("code", str),
        status=error.take("code", int),
    )
    fields.leave("error", error)
    return info


# -- writing -----------------------------------------------------------------------------------------------------------


def join_texts(response: Response, streamed: bool) -> Response:
    """The response, if streamed with neighbouring texts as one: whoever reads the stream joins them [GEM-22]."""
    if not streamed:
        return response
    return in_one_text(response, FORMAT, is_own=lambda part: FORMAT in (part.extra or ()), neighbours=True)


def write_response(response: Response) -> Any:
    """The body of a response, as it came where that still has the same content."""
    body = respell_one(_encode(response), response, format_name=FORMAT, decode=_decode)
    names = dict(shape_of(response, FORMAT).get("names") or {})
    alone = names.pop("one", False)
    body = spelt(body, names, RESPONSE)
    return [body] if alone else body


def _encode(response: Response) -> dict[str, Any]:
    """The response in normal form."""
    own = unmarked(extra_of(response, FORMAT))
    body: dict[str, Any] = {}
    if response.error is not None and isinstance(own.get("error", {}), dict):
        body["error"] = _written_error(response.error)
    usage, says_nothing = response.usage, not response.choices and response.error is None
    if says_nothing and usage is not None and usage.total_tokens == usage.input_tokens:
        return merge({COUNT: usage.total_tokens, **present(modelVersion=response.model)}, own)
    if response.choices or says_nothing:
        body["candidates"] = [_written(choice, index) for index, choice in enumerate(response.choices)]
    body |= present(modelVersion=response.model)
    if response.usage is not None and _usage(own.get("usageMetadata")) != response.usage:
        own.pop("usageMetadata", None)
        body["usageMetadata"] = _written_usage(response.usage)
    loss.drop_foreign_extra(FORMAT, response, "response")
    return merge(body, own)


def _written(choice: Choice, index: int) -> dict[str, Any]:
    own = extra_of(choice, FORMAT)
    candidate: dict[str, Any] = {"content": encode_group([choice.message])}
    if "finishReason" not in own and (reason := _written_stop(choice)) is not None:
        candidate["finishReason"] = reason
    loss.drop_foreign_extra(FORMAT, choice, "choice", message=choice.message)
    if "index" not in own:
        candidate["index"] = index
    return merge(candidate, own)


def _written_stop(choice: Choice) -> str | None:
    raw, stop = choice.raw_stop_reason, choice.stop_reason
    if raw is not None and raw in _STOPS and _STOPS[raw] in (stop, _STOPS[_RAW[stop]] if stop is not None else None):
        return raw
    return None if stop is None else _RAW[stop]


def _written_usage(usage: TokenUsage) -> dict[str, Any]:
    counts = {
        "promptTokenCount": usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    if usage.cached_input_tokens:
        counts["cachedContentTokenCount"] = usage.cached_input_tokens
    return counts


def _written_error(error: ErrorInfo) -> dict[str, Any]:
    code = error.status if error.status is not None else error.code
    return present(code=code, message=error.message, status=error.type)
