"""What differs between client dialects over HTTP: framing, errors, lists of models. Spec: gateway.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.sse import ndjson_bytes, sse_bytes
from cmf.json.codec import dumps
from pipeline.gateway.http.refusal import Refusal

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client dialect."""

    name: str
    error: Callable[[Refusal, str], Any]  # the body for a refusal; takes the request's id too
    error_type: Callable[[int], str]  # the dialect's name for an error of that status
    details: Callable[[str, Any], Any] = lambda *_: None  # of a refusal, for its code and request
    answers: frozenset[int] = frozenset()  # statuses of refusals that are sent with status 200
    frame: Callable[[WireEvent], bytes] = sse_bytes
    stream_type: str = SSE
    ping: bytes = b""  # keeps a stream alive of which nothing can be sent yet; empty where readers know no such thing


# -- errors ------------------------------------------------------------------------------------------------------------

_OPENAI_TYPES: Final = {401: "authentication_error", 403: "policy_violation", 429: "rate_limit_error"}
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_GEMINI_STATES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_UNKNOWN_ANSWER: Final = ("reference.response", "request.reference")  # codes: an answer that is not known here


def _of_status(types: Mapping[int, str], client: str, server: str) -> Callable[[int], str]:
    return lambda status: types.get(status, client if status < 500 else server)


openai_type: Final = _of_status(_OPENAI_TYPES, "invalid_request_error", "server_error")
anthropic_type: Final = _of_status(_ANTHROPIC_TYPES, "invalid_request_error", "api_error")
gemini_state: Final = _of_status(_GEMINI_STATES, "FAILED_PRECONDITION", "INTERNAL")


def _openai_error(refusal: Refusal, _request_id: str) -> Any:
    kind = openai_type(refusal.status)
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}}


def _anthropic_details(code: str, body: Any) -> dict[str, str]:
    """What makes Anthropic's SDK send the whole history, if it continued a thread that is not known here [GW-39]."""
    thread = body.get("thread")
    continues = isinstance(thread, dict) and thread.get("type") == "continue"
    return {"error_code": "thread_not_found"} if continues and code in _UNKNOWN_ANSWER else {}


def _anthropic_error(refusal: Refusal, request_id: str) -> Any:
    error: dict[str, Any] = {"type": anthropic_type(refusal.status), "message": refusal.message, "code": refusal.code}
    if refusal.details:
        error["details"] = refusal.details
    return {"type": "error", "error": error, "request_id": request_id}


def _gemini_error(refusal: Refusal, _request_id: str) -> Any:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": refusal.code, "domain": "cmf"}
    state = gemini_state(refusal.status)
    return {"error": {"code": refusal.status, "message": refusal.message, "status": state, "details": [info]}}


def _ollama_error(refusal: Refusal, _request_id: str) -> Any:
    return {"error": f"{refusal.message} [{refusal.code}]"}


def _litellm_error(refusal: Refusal, _request_id: str) -> Any:
    return {"action": "BLOCKED", "blocked_reason": refusal.message}


# -- the dialects and their paths --------------------------------------------------------------------------------------

_COMMENT: Final = b": waiting\n\n"
CHAT: Final = Dialect(name="openai_chat", error=_openai_error, error_type=openai_type, ping=_COMMENT)
RESPONSES: Final = Dialect(name="openai_responses", error=_openai_error, error_type=openai_type, ping=_COMMENT)
MESSAGES: Final = Dialect(
    name="anthropic_messages",
    error=_anthropic_error,
    error_type=anthropic_type,
    details=_anthropic_details,
    ping=sse_bytes({"event": "ping", "data": {"type": "ping"}}),
)
GEMINI: Final = Dialect(name="gemini", error=_gemini_error, error_type=gemini_state)
OLLAMA: Final = Dialect(
    name="ollama", error=_ollama_error, error_type=openai_type, frame=ndjson_bytes, stream_type=NDJSON
)
CHECK: Final = Dialect(name="check", error=_openai_error, error_type=openai_type)
"""Not a model's dialect: a check names the format of its body."""
LITELLM: Final = Dialect(
    name="litellm", error=_litellm_error, error_type=openai_type, answers=frozenset({400, 403, 413})
)
"""LiteLLM's generic guardrail API, which takes any other status than 200 for an outage."""
DIALECTS: Final = {one.name: one for one in (CHAT, RESPONSES, MESSAGES, GEMINI, OLLAMA)}


# -- the gateway's own answers -----------------------------------------------------------------------------------------


def counted(dialect: Dialect, tokens: int) -> Any:
    """An estimate of tokens, in the dialect's form."""
    return {"totalTokens": tokens} if dialect is GEMINI else {"input_tokens": tokens}


def listed_models(dialect: Dialect, names: Sequence[str]) -> Any:
    """A list of models, in the dialect's form."""
    data = [described_model(dialect, name) for name in names]
    if dialect is GEMINI:
        return {"models": data}
    if dialect is OLLAMA:
        return {"models": [{"name": name, "model": name} for name in names]}
    if dialect is MESSAGES:
        ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
        return {"data": data, "has_more": False, **ends}
    return {"object": "list", "data": data}


def described_model(dialect: Dialect, name: str) -> Any:
    """What is said of one model, in the dialect's form: its name, and what the dialect lets clients ask of it."""
    if dialect is GEMINI:
        methods = ["generateContent", "countTokens"]
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    if dialect is OLLAMA:
        return {"details": {}, "model_info": {}, "capabilities": ["completion", "tools", "vision"]}
    if dialect is MESSAGES:
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "cmf"}


# -- streams -----------------------------------------------------------------------------------------------------------


def streamed(dialect: Dialect, events: Sequence[WireEvent], *, as_array: bool) -> tuple[str, bytes]:
    """The media type and the bytes of a complete stream, in the dialect's framing or as one JSON array."""
    if as_array:
        return JSON, dumps([event["data"] for event in events if "data" in event])
    return dialect.stream_type, b"".join(map(dialect.frame, events))


def without_usage_unless_asked(dialect: Dialect, body: Any, events: list[WireEvent]) -> list[WireEvent]:
    """The events that the client wants: of a chat, without usage unless `body` asks for it.

    Clients that did not ask for usage fail on a chunk that has usage and no choices.
    """
    options = body.get("stream_options") if isinstance(body, dict) else None
    if dialect is not CHAT or (isinstance(options, dict) and options.get("include_usage") is True):
        return events
    datas = ((event, event.get("data")) for event in events)
    return [
        event for event, data in datas if not (isinstance(data, dict) and data.get("choices") == [] and "usage" in data)
    ]
