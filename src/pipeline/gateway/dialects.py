"""What is particular to each client dialect over HTTP: its paths, its framing, its errors. Spec: gateway.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from cmf.adapters.base import WireEvent
from cmf.adapters.sse import ndjson_bytes, sse_bytes
from cmf.codec import dumps
from pipeline.gateway.refusal import Refusal

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"


class Does(StrEnum):
    """What an endpoint is for."""

    ANSWER = "answer"  # a model's answer
    COUNT = "count"  # tokens of a request, estimated here
    MODELS = "models"
    CHECK = "check"  # what policy says of a body; nothing is sent on
    ENVOY = "envoy"  # whether a request may go on unchanged: Envoy asks, and sends it
    LITELLM = "litellm"  # what LiteLLM may send on of what it hands over


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client dialect."""

    name: str
    error: Callable[[Refusal, str], Any]  # the body that says a refusal; also takes the request's id
    error_type: Callable[[int], str]  # the dialect's own word for an error of that status
    answers: frozenset[int] = frozenset()  # the refusals that are an answer here, with status 200
    frame: Callable[[WireEvent], bytes] = sse_bytes
    stream_type: str = SSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a path asks for: `model` and `stream` where the path says them, `listed` for a stream in a JSON array."""

    does: Does
    dialect: Dialect
    method: str = "POST"
    query: Mapping[str, tuple[str, ...]] | None = None  # what may stand in the query, and the values that it may have
    model: str | None = None
    stream: bool | None = None
    listed: bool = False


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


def _of_status(types: Mapping[int, str], client: str, server: str) -> Callable[[int], str]:
    return lambda status: types.get(status, client if status < 500 else server)


openai_type: Final = _of_status(_OPENAI_TYPES, "invalid_request_error", "server_error")
anthropic_type: Final = _of_status(_ANTHROPIC_TYPES, "invalid_request_error", "api_error")
gemini_state: Final = _of_status(_GEMINI_STATES, "FAILED_PRECONDITION", "INTERNAL")


def _openai_error(refusal: Refusal, _request_id: str) -> Any:
    kind = openai_type(refusal.status)
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}}


def _anthropic_error(refusal: Refusal, request_id: str) -> Any:
    error = {"type": anthropic_type(refusal.status), "message": refusal.message, "code": refusal.code}
    return {"type": "error", "error": error, "request_id": request_id}


def _gemini_error(refusal: Refusal, _request_id: str) -> Any:
    detail: dict[str, Any] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refusal.code,
        "domain": "cmf",
    }
    state = gemini_state(refusal.status)
    return {"error": {"code": refusal.status, "message": refusal.message, "status": state, "details": [detail]}}


def _ollama_error(refusal: Refusal, _request_id: str) -> Any:
    return {"error": f"{refusal.message} [{refusal.code}]"}


def _litellm_error(refusal: Refusal, _request_id: str) -> Any:
    return {"action": "BLOCKED", "blocked_reason": refusal.message}


# -- the dialects and their paths --------------------------------------------------------------------------------------

CHAT: Final = Dialect(name="openai_chat", error=_openai_error, error_type=openai_type)
RESPONSES: Final = Dialect(name="openai_responses", error=_openai_error, error_type=openai_type)
MESSAGES: Final = Dialect(name="anthropic_messages", error=_anthropic_error, error_type=anthropic_type)
GEMINI: Final = Dialect(name="gemini", error=_gemini_error, error_type=gemini_state)
OLLAMA: Final = Dialect(
    name="ollama", error=_ollama_error, error_type=openai_type, frame=ndjson_bytes, stream_type=NDJSON
)
CHECK: Final = Dialect(name="check", error=_openai_error, error_type=openai_type)
"""No dialect of a model's client: what is asked names its format itself."""
LITELLM: Final = Dialect(
    name="litellm", error=_litellm_error, error_type=openai_type, answers=frozenset({400, 403, 413})
)
"""Nor this: LiteLLM's generic guardrail API. By another status it would learn that something is wrong here."""
DIALECTS: Final = {one.name: one for one in (CHAT, RESPONSES, MESSAGES, GEMINI, OLLAMA)}

_BETA: Final = {"beta": ("true",)}
CHECK_PATH: Final = "/v1/check"
ENVOY_PREFIX: Final = "/ext_authz"  # what Envoy sets before the path that its client asked for
LITELLM_PATH: Final = "/beta/litellm_basic_guardrail_api"
CHECKS: Final = frozenset({Does.CHECK, Does.ENVOY, Does.LITELLM})
"""What takes `check` in a gateway's settings."""
PATHS: Final = {
    "/v1/chat/completions": Endpoint(does=Does.ANSWER, dialect=CHAT),
    "/v1/responses": Endpoint(does=Does.ANSWER, dialect=RESPONSES),
    "/v1/messages": Endpoint(does=Does.ANSWER, dialect=MESSAGES, query=_BETA),
    "/v1/messages/count_tokens": Endpoint(does=Does.COUNT, dialect=MESSAGES, query=_BETA),
    "/api/chat": Endpoint(does=Does.ANSWER, dialect=OLLAMA),
    "/v1/models": Endpoint(does=Does.MODELS, dialect=CHAT, method="GET"),
    "/v1beta/models": Endpoint(does=Does.MODELS, dialect=GEMINI, method="GET", query={"pageSize": ()}),
    "/api/tags": Endpoint(does=Does.MODELS, dialect=OLLAMA, method="GET"),
    CHECK_PATH: Endpoint(does=Does.CHECK, dialect=CHECK),
    LITELLM_PATH: Endpoint(does=Does.LITELLM, dialect=LITELLM),
}
_JUDGED: Final = frozenset({Does.ANSWER, Does.COUNT})  # the requests that are somebody's to a model
_GEMINI_PATH: Final = re.compile(
    r"/v1(?:beta)?/models/([A-Za-z0-9._@%:-]{1,200}):(generateContent|streamGenerateContent|countTokens)"
)
_GEMINI_METHOD: Final = re.compile(r"/models/[^/]+:[a-z]+[A-Z][A-Za-z]*$")
_MODEL: Final = re.compile(r"[A-Za-z0-9._@:/-]{1,200}")
_ENDS: Final = (
    *((path, path.partition("/v1")[2]) for path in PATHS if path.startswith("/v1/") and path != CHECK_PATH),
    ("/v1beta/models/<model>:generateContent", ":generateContent"),
    ("/v1beta/models/<model>:streamGenerateContent", ":streamGenerateContent"),
    ("/api/chat", "/api/chat"),
    ("/api/chat", "/chat"),
)  # paths that are served, with the ends of paths that were probably meant
_NOT_SERVED: Final = {
    "embeddings": "Embeddings are",
    "files": "Files are",
    "uploads": "Files are",
    "batches": "Batches are",
    "images": "Image generation is",
    "audio": "Audio is",
    "realtime": "Realtime sessions are",
    "completions": "Bare completions are",
    "generate": "Bare completions are",
    "embed": "Embeddings are",
    "embedContent": "Embeddings are",
    "batchEmbedContents": "Embeddings are",
    "assistants": "Assistants are",
    "conversations": "Conversations that a provider keeps are",
}


def endpoint_of(path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Endpoint | None:
    """What the path asks for; None where nothing is served. `path` is as it was sent."""
    if path.startswith(ENVOY_PREFIX):
        asked = endpoint_of(path.removeprefix(ENVOY_PREFIX), query, headers)
        return None if asked is None or asked.does not in _JUDGED else replace(asked, does=Does.ENVOY)
    found = PATHS.get(path)
    if found is not None:
        if path == "/v1/models" and "anthropic-version" in headers:
            return Endpoint(does=Does.MODELS, dialect=MESSAGES, method="GET", query={"limit": (), "beta": ("true",)})
        if path == "/v1/models" and "x-goog-api-key" in headers:  # Google's client asks here too
            return PATHS["/v1beta/models"]
        return found
    match = _GEMINI_PATH.fullmatch(path)
    if match is None:
        return None
    model, method = unquote(match[1]).removeprefix("models/"), match[2]  # the same model, and one name for it
    if not _MODEL.fullmatch(model):
        return None
    if method == "countTokens":
        return Endpoint(does=Does.COUNT, dialect=GEMINI, model=model, query={})
    stream = method == "streamGenerateContent"
    return Endpoint(
        does=Does.ANSWER,
        dialect=GEMINI,
        model=model,
        stream=stream,
        listed=stream and ("alt", "sse") not in query,
        query={"alt": ("sse", "json")},
    )


def nothing_there(path: str) -> Refusal:
    """The 404 for a path: it names the path that was probably meant, or what is not supported, where that is known."""
    if path == CHECK_PATH:
        return Refusal(404, "route.not-served", "Nothing is checked here: that takes `check` in a gateway's settings.")
    if path == LITELLM_PATH:
        message = "LiteLLM is told nothing here: that takes `check.litellm` in a gateway's settings."
        return Refusal(404, "route.not-served", message)
    if path.startswith(ENVOY_PREFIX):
        message = "Nothing is said of this path: it takes `check.envoy` in a gateway's settings, and a path of a model."
        return Refusal(404, "route.not-served", message)
    meant = next((one for one, end in _ENDS if path.rstrip("/").endswith(end)), None)
    if meant is not None:
        message = f"Nothing is served at this path. It ends like {meant}, which is: look at the client's base URL."
        return Refusal(404, "route.unknown", message)
    words = path.strip("/").replace(":", "/").split("/")
    known = next((_NOT_SERVED[word] for word in words if word in _NOT_SERVED), None)
    if known is not None:
        return Refusal(404, "route.not-served", f"{known} not judged here, and so not served.")
    return Refusal(404, "route.unknown", "Nothing is served at this path: what is not judged is not passed on.")


def dialect_near(path: str) -> Dialect:
    """The dialect in which an unknown path is answered, by how the path begins."""
    path = path.removeprefix(ENVOY_PREFIX)
    if path.startswith("/v1/messages"):
        return MESSAGES
    if path.startswith("/api/"):
        return OLLAMA
    return GEMINI if path.startswith("/v1beta/") or _GEMINI_METHOD.search(path) else CHAT


# -- answers that are no model's ---------------------------------------------------------------------------------------


def counted(dialect: Dialect, tokens: int) -> Any:
    """An estimate of tokens, as the dialect says it."""
    return {"totalTokens": tokens} if dialect is GEMINI else {"input_tokens": tokens}


def listed_models(dialect: Dialect, names: Sequence[str]) -> Any:
    """The models that can be asked for by name, as the dialect lists them."""
    if dialect is GEMINI:
        return {"models": [{"name": f"models/{name}", "displayName": name} for name in names]}
    if dialect is OLLAMA:
        return {"models": [{"name": name, "model": name} for name in names]}
    if dialect is MESSAGES:
        made = "1970-01-01T00:00:00Z"
        data = [{"type": "model", "id": name, "display_name": name, "created_at": made} for name in names]
        ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
        return {"data": data, "has_more": False, **ends}
    return {"object": "list", "data": [_openai_model(name) for name in names]}


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "cmf"}


# -- streams -----------------------------------------------------------------------------------------------------------


def streamed(endpoint: Endpoint, events: Sequence[WireEvent]) -> tuple[str, bytes]:
    """The media type and the bytes of a stream whose events are all there."""
    if endpoint.listed:
        return JSON, dumps([event["data"] for event in events if "data" in event])
    return endpoint.dialect.stream_type, b"".join(map(endpoint.dialect.frame, events))


def without_unasked(endpoint: Endpoint, body: Any, events: list[WireEvent]) -> list[WireEvent]:
    """The events that the client asked for: of a chat, without usage unless `body` wants it."""
    if endpoint.dialect is not CHAT or _wants_usage(body):
        return events
    return [event for event in events if not _only_usage(event)]


def _wants_usage(body: Any) -> bool:
    options = body.get("stream_options") if isinstance(body, dict) else None
    return isinstance(options, dict) and options.get("include_usage") is True


def _only_usage(event: WireEvent) -> bool:
    """Whether a chunk has usage and no choices. Clients that did not ask for usage fail on such a chunk."""
    data = event.get("data")
    return isinstance(data, dict) and data.get("choices") == [] and "usage" in data


__all__ = [
    "CHECKS",
    "CHECK_PATH",
    "DIALECTS",
    "ENVOY_PREFIX",
    "JSON",
    "LITELLM_PATH",
    "NDJSON",
    "PATHS",
    "SSE",
    "Dialect",
    "Does",
    "Endpoint",
    "counted",
    "dialect_near",
    "endpoint_of",
    "listed_models",
    "nothing_there",
    "streamed",
    "without_unasked",
]
