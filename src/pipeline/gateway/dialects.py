"""What differs between client dialects over HTTP: paths, framing, errors, lists of models. Spec: gateway.md."""

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

    ANSWER = "answer"  # ask a model
    COUNT = "count"  # estimate the tokens of a request
    MODELS = "models"  # list models
    CHECK = "check"  # judge a body, and send it nowhere
    ENVOY = "envoy"  # judge a request that Envoy holds, and would send on unchanged
    LITELLM = "litellm"  # judge what LiteLLM would send on


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client dialect."""

    name: str
    error: Callable[[Refusal, str], Any]  # the body for a refusal; takes the request's id too
    error_type: Callable[[int], str]  # the dialect's name for an error of that status
    answers: frozenset[int] = frozenset()  # statuses of refusals that are sent with status 200
    frame: Callable[[WireEvent], bytes] = sse_bytes
    stream_type: str = SSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a path is for; `model` and `stream` where the path says so, `listed` for a stream as one JSON array."""

    does: Does
    dialect: Dialect
    method: str = "POST"
    query: Mapping[str, tuple[str, ...]] | None = None  # the parameters allowed, and their values; () for any
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
    error: dict[str, Any] = {"type": anthropic_type(refusal.status), "message": refusal.message, "code": refusal.code}
    if refusal.details:
        error["details"] = refusal.details
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
"""Not a model's dialect: a check names the format of its body."""
LITELLM: Final = Dialect(
    name="litellm", error=_litellm_error, error_type=openai_type, answers=frozenset({400, 403, 413})
)
"""LiteLLM's generic guardrail API, which takes any other status than 200 for an outage."""
DIALECTS: Final = {one.name: one for one in (CHAT, RESPONSES, MESSAGES, GEMINI, OLLAMA)}

_BETA: Final = {"beta": ("true",)}
CHECK_PATH: Final = "/v1/check"
ENVOY_PREFIX: Final = "/ext_authz"  # set by Envoy before the path of the request
LITELLM_PATH: Final = "/beta/litellm_basic_guardrail_api"
CHECKS: Final = frozenset({Does.CHECK, Does.ENVOY, Does.LITELLM})
"""Served only with `check` in the settings."""
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
_JUDGED: Final = frozenset({Does.ANSWER, Does.COUNT})  # what Envoy may ask about
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
)  # served paths, with the end of paths that probably mean them
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
    "batchGenerateContent": "Batches are",
    "assistants": "Assistants are",
    "threads": "Assistants are",
    "conversations": "Conversations that a provider keeps are",
    "responses": "Responses that a provider keeps are",
    "compact": "Compaction without an answer is",
    "input_tokens": "Counting the tokens of a response is",
    "interactions": "Interactions are",
    "cachedContents": "Content that a provider keeps is",
    "containers": "Content that a provider keeps is",
    "vector_stores": "Content that a provider keeps is",
    "skills": "Skills are",
    "moderations": "Moderation is",
    "videos": "Video generation is",
    "fine_tuning": "Fine-tuning is",
    "show": "Managing Ollama's models is",
    "ps": "Managing Ollama's models is",
    "pull": "Managing Ollama's models is",
}
"""By a word of the path what is not supported; the last such word of a path says it."""


def endpoint_of(path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Endpoint | None:
    """The endpoint at a path, which is as it was sent; None where nothing is served."""
    if path.startswith(ENVOY_PREFIX):
        endpoint = endpoint_of(path.removeprefix(ENVOY_PREFIX), query, headers)
        return None if endpoint is None or endpoint.does not in _JUDGED else replace(endpoint, does=Does.ENVOY)
    found = PATHS.get(path)
    if found is not None:
        if path == "/v1/models" and "anthropic-version" in headers:
            return Endpoint(does=Does.MODELS, dialect=MESSAGES, method="GET", query={"limit": (), "beta": ("true",)})
        if path == "/v1/models" and "x-goog-api-key" in headers:  # Google's SDK uses this path too
            return PATHS["/v1beta/models"]
        return found
    match = _GEMINI_PATH.fullmatch(path)
    if match is None:
        return None
    model, method = unquote(match[1]).removeprefix("models/"), match[2]  # one name for one model
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
    """The 404 for a path. It names the path that was probably meant, or what is not supported, if it can tell."""
    if path == CHECK_PATH:
        return Refusal(404, "route.not-served", "Checks are not enabled: add `check` to the gateway's settings.")
    if path == LITELLM_PATH:
        message = "LiteLLM's checks are not enabled: add `check.litellm` to the gateway's settings."
        return Refusal(404, "route.not-served", message)
    if path.startswith(ENVOY_PREFIX):
        message = "Nothing to check: that takes `check.envoy` in the gateway's settings, and the path of a model's API."
        return Refusal(404, "route.not-served", message)
    meant = next((one for one, end in _ENDS if path.rstrip("/").endswith(end)), None)
    if meant is not None:
        message = f"Nothing is served at this path. Did you mean {meant}? Check the client's base URL."
        return Refusal(404, "route.unknown", message)
    words = path.strip("/").replace(":", "/").split("/")[::-1]
    known = next((_NOT_SERVED[word] for word in words if word in _NOT_SERVED), None)
    if known is not None:
        return Refusal(404, "route.not-served", f"{known} not supported: what cannot be judged is not served.")
    return Refusal(404, "route.unknown", "Nothing is served at this path: what cannot be judged is not passed on.")


def dialect_near(path: str) -> Dialect:
    """The dialect to answer an unknown path in, by how the path begins."""
    path = path.removeprefix(ENVOY_PREFIX)
    if path.startswith("/v1/messages"):
        return MESSAGES
    if path.startswith("/api/"):
        return OLLAMA
    return GEMINI if path.startswith("/v1beta/") or _GEMINI_METHOD.search(path) else CHAT


# -- the gateway's own answers -----------------------------------------------------------------------------------------


def counted(dialect: Dialect, tokens: int) -> Any:
    """An estimate of tokens, in the dialect's form."""
    return {"totalTokens": tokens} if dialect is GEMINI else {"input_tokens": tokens}


def listed_models(dialect: Dialect, names: Sequence[str]) -> Any:
    """A list of models, in the dialect's form."""
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
    """The media type and the bytes of a complete stream."""
    if endpoint.listed:
        return JSON, dumps([event["data"] for event in events if "data" in event])
    return endpoint.dialect.stream_type, b"".join(map(endpoint.dialect.frame, events))


def without_unasked(endpoint: Endpoint, body: Any, events: list[WireEvent]) -> list[WireEvent]:
    """The events that the client wants: of a chat, without usage unless `body` asks for it."""
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
