"""The endpoints of the gateway: which path is for which dialect and operation. Spec: gateway.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pipeline.gateway.http.dialects import CHAT, CHECK, GEMINI, LITELLM, MESSAGES, OLLAMA, RESPONSES, Dialect
from pipeline.gateway.http.refusal import Refusal


class Operation(StrEnum):
    """The operation of an endpoint."""

    ANSWER = "answer"  # ask a model
    COUNT = "count"  # estimate the tokens of a request
    MODELS = "models"  # list models
    MODEL = "model"  # describe one
    CHECK = "check"  # judge a body, and send it nowhere
    ENVOY = "envoy"  # judge a request that Envoy holds, and would send on unchanged
    LITELLM = "litellm"  # judge what LiteLLM would send on


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What a path is for; `model` and `stream` if the path names these, `as_array` for a stream as one JSON array."""

    operation: Operation
    dialect: Dialect
    method: str = "POST"
    query: Mapping[str, tuple[str, ...]] | None = None  # the parameters allowed, and their values; () for any
    model: str | None = None
    stream: bool | None = None
    as_array: bool = False
    untyped: bool = False  # whether a body needs no media type, as for Ollama, whose clients may send none


_BETA: Final = {"beta": ("true",)}
CHECK_PATH: Final = "/v1/check"
ENVOY_PREFIX: Final = "/ext_authz"  # set by Envoy before the path of the request
LITELLM_PATH: Final = "/beta/litellm_basic_guardrail_api"
CHECKS: Final = frozenset({Operation.CHECK, Operation.ENVOY, Operation.LITELLM})
"""Served only with `check` in the settings."""
PATHS: Final = {
    "/v1/chat/completions": Endpoint(operation=Operation.ANSWER, dialect=CHAT),
    "/v1/responses": Endpoint(operation=Operation.ANSWER, dialect=RESPONSES),
    "/v1/messages": Endpoint(operation=Operation.ANSWER, dialect=MESSAGES, query=_BETA),
    "/v1/messages/count_tokens": Endpoint(operation=Operation.COUNT, dialect=MESSAGES, query=_BETA),
    "/api/chat": Endpoint(operation=Operation.ANSWER, dialect=OLLAMA, untyped=True),
    "/v1/models": Endpoint(operation=Operation.MODELS, dialect=CHAT, method="GET"),
    "/v1beta/models": Endpoint(operation=Operation.MODELS, dialect=GEMINI, method="GET", query={"pageSize": ()}),
    "/api/tags": Endpoint(operation=Operation.MODELS, dialect=OLLAMA, method="GET"),
    "/api/show": Endpoint(operation=Operation.MODEL, dialect=OLLAMA, untyped=True),
    CHECK_PATH: Endpoint(operation=Operation.CHECK, dialect=CHECK),
    LITELLM_PATH: Endpoint(operation=Operation.LITELLM, dialect=LITELLM),
}
_JUDGED: Final = frozenset({Operation.ANSWER, Operation.COUNT})  # what Envoy may ask about
_GEMINI_PATH: Final = re.compile(
    r"/v1(?:beta)?/models/([A-Za-z0-9._@%:-]{1,200}):(generateContent|streamGenerateContent|countTokens)"
)
_MODEL_PATH: Final = re.compile(r"(/v1(?:beta)?/models)(?:/([A-Za-z0-9._@%:-]{1,200}))?")
_GEMINI_METHOD: Final = re.compile(r"/models/[^/]+:[a-z]+[A-Z][A-Za-z]*$")
_MODEL: Final = re.compile(r"[A-Za-z0-9._@:/-]{1,200}")
_OF_MESSAGES: Final = {"limit": (), "beta": ("true",)}
_ENDS: Final = (
    *((path, path.partition("/v1")[2]) for path in PATHS if path.startswith("/v1/") and path != CHECK_PATH),
    ("/v1beta/models/<model>:generateContent", ":generateContent"),
    ("/v1beta/models/<model>:streamGenerateContent", ":streamGenerateContent"),
    ("/api/chat", "/api/chat"),
    ("/api/chat", "/chat"),
)  # served paths, with the end of paths that probably mean them
_NOT_SERVED: Final = json.loads(Path(__file__).with_name("not_served.json").read_bytes())
"""What is not supported, by a word of the path; the last such word decides."""


def endpoint_of(path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Endpoint | None:
    """The endpoint at a path, which is as it was sent; None where nothing is served."""
    if path.startswith(ENVOY_PREFIX):
        endpoint = endpoint_of(path.removeprefix(ENVOY_PREFIX), query, headers)
        if endpoint is None or endpoint.operation not in _JUDGED:
            return None
        return replace(endpoint, operation=Operation.ENVOY, untyped=False)
    models = _MODEL_PATH.fullmatch(path)
    if models is not None and not _GEMINI_METHOD.search(path):
        return _about_models(models[1], models[2], headers)
    if path in PATHS:
        return PATHS[path]
    match = _GEMINI_PATH.fullmatch(path)
    model = "" if match is None else unquote(match[1]).removeprefix("models/")  # one name for one model
    if match is None or not _MODEL.fullmatch(model):
        return None
    if match[2] == "countTokens":
        return Endpoint(operation=Operation.COUNT, dialect=GEMINI, model=model, query={})
    stream = match[2] == "streamGenerateContent"
    return Endpoint(
        operation=Operation.ANSWER,
        dialect=GEMINI,
        model=model,
        stream=stream,
        as_array=stream and ("alt", "sse") not in query,
        query={"alt": ("sse", "json")},
    )


def _about_models(path: str, name: str | None, headers: Mapping[str, str]) -> Endpoint | None:
    """The list of models, or one of them; three SDKs ask for it at the same path, with different headers."""
    listed = PATHS[path]
    if path == "/v1/models" and "anthropic-version" in headers:
        listed = replace(listed, dialect=MESSAGES, query=_OF_MESSAGES)
    elif path == "/v1/models" and "x-goog-api-key" in headers:
        listed = PATHS["/v1beta/models"]
    if name is None:
        return listed
    model = unquote(name)
    return replace(listed, operation=Operation.MODEL, model=model) if _MODEL.fullmatch(model) else None


def nothing_there(path: str) -> Refusal:
    """The 404 for a path. It names the path that was probably meant, or what is not supported, if it can tell."""
    probable = next((one for one, end in _ENDS if path.rstrip("/").endswith(end)), None)
    words = path.strip("/").replace(":", "/").split("/")[::-1]
    known = next((_NOT_SERVED[word] for word in words if word in _NOT_SERVED), None)
    code = "route.not-served"
    if path == CHECK_PATH:
        message = "Checks are not enabled: add `check` to the gateway's settings."
    elif path == LITELLM_PATH:
        message = "LiteLLM's checks are not enabled: add `check.litellm` to the gateway's settings."
    elif path.startswith(ENVOY_PREFIX):
        message = "Nothing to check: that takes `check.envoy` in the gateway's settings, and the path of a model's API."
    elif probable is not None:
        code = "route.unknown"
        message = f"Nothing is served at this path. Did you mean {probable}? Check the client's base URL."
    elif known is not None:
        message = f"{known} not supported: what cannot be judged is not served."
    else:
        code, message = "route.unknown", "Nothing is served at this path: what cannot be judged is not passed on."
    return Refusal(404, code, message)


def dialect_near(path: str) -> Dialect:
    """The dialect to answer an unknown path in, by how the path begins."""
    path = path.removeprefix(ENVOY_PREFIX)
    if path.startswith("/v1/messages"):
        return MESSAGES
    if path.startswith("/api/"):
        return OLLAMA
    return GEMINI if path.startswith("/v1beta/") or _GEMINI_METHOD.search(path) else CHAT
