"""Detecting the wire format of a body from its shape. Spec: docs/spec/cli.md [CLI-73].

For files on the command line only; the format of traffic is given by its route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from cmf.errors import ShapeError

Kind = Literal["request", "response"]
Body = Mapping[str, Any]


def detected(body: object) -> tuple[str, Kind]:
    """The format and the kind of `body`. ShapeError (`input.unknown-format`) if it matches none."""
    if isinstance(body, Mapping):
        for name, kind, fits in _SHAPES:
            if fits(body):
                return name, kind
    message, hint = "this is not the shape of any known format", "give the format with --from"
    raise ShapeError(message, path="$", hint=hint, code="input.unknown-format")


def _parts(body: Body) -> Iterator[Mapping[str, Any]]:
    """The messages of a body, and the parts of their content."""
    for message in [body, *_objects(body.get("messages"))]:
        yield message
        yield from _objects(message.get("content"))


def _canonical(body: Body) -> bool:
    return any("content_type" in part for part in _parts(body))


def _canonical_response(body: Body) -> bool:
    messages = _objects([choice.get("message") for choice in _objects(body.get("choices"))])
    return any(map(_canonical, messages))


def _ui(body: Body) -> bool:
    return any(_has_list(part, "parts") and "role" in part for part in _parts(body))


def _anthropic(body: Body) -> bool:
    roles = {message.get("role") for message in _parts(body)}
    if roles & {"system", "developer", "tool"} or _calls(body):
        return False
    blocks = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document")
    is_block = any(part.get("type") in blocks for part in _parts(body))
    has_schemas = any("input_schema" in tool for tool in _objects(body.get("tools")))
    return "system" in body or is_block or has_schemas or str(body.get("model", "")).startswith("claude")


def _calls(body: Body) -> list[Mapping[str, Any]]:
    calls = (call for message in _parts(body) for call in _objects(message.get("tool_calls")))
    return _objects([call.get("function") for call in calls])


def _objects(items: object) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _ollama(body: Body) -> bool:
    has_objects = any(isinstance(call.get("arguments"), Mapping) for call in _calls(body))
    has_own = bool(body.keys() & {"options", "keep_alive", "think"})
    return has_objects or has_own or any("images" in part or "tool_name" in part for part in _parts(body))


def _router(body: Body) -> bool:
    has_own = bool(body.keys() & {"models", "provider", "transforms", "plugins", "route"})
    has_own |= any("native_finish_reason" in choice for choice in _objects(body.get("choices")))
    return has_own or "/" in str(body.get("model", ""))


def _has(name: str) -> Callable[[Body], bool]:
    return lambda body: name in body


def _has_list(body: Body, name: str) -> bool:
    return isinstance(body.get(name), list)


def _with_messages(fits: Callable[[Body], bool]) -> Callable[[Body], bool]:
    return lambda body: _has_list(body, "messages") and fits(body)


# The first match wins: unmistakable formats first, then those with fields of their own, then the widely copied one.
_SHAPES: Final[tuple[tuple[str, Kind, Callable[[Body], bool]], ...]] = (
    ("canonical", "request", lambda body: _canonical(body) and "choices" not in body),
    ("canonical", "response", _canonical_response),
    ("mcp", "response", lambda body: "jsonrpc" in body and ("result" in body or "error" in body)),
    ("mcp", "request", _has("jsonrpc")),
    ("gemini", "request", _has("contents")),
    ("gemini", "response", _has("candidates")),
    (
        "aisdk",
        "request",
        _with_messages(_ui),
    ),
    ("aisdk", "response", lambda body: _has_list(body, "parts") and "role" in body),
    ("openai_responses", "response", lambda body: body.get("object") == "response" or _has_list(body, "output")),
    ("openai_responses", "request", lambda body: "input" in body and "messages" not in body),
    ("anthropic_messages", "response", lambda body: body.get("type") == "message" and "content" in body),
    ("anthropic_messages", "request", _with_messages(_anthropic)),
    ("ollama", "response", lambda body: isinstance(body.get("message"), Mapping) and "done" in body),
    ("openrouter", "response", lambda body: "choices" in body and _router(body)),
    ("openai_chat", "response", _has("choices")),
    ("openrouter", "request", _with_messages(_router)),
    ("ollama", "request", _with_messages(_ollama)),
    ("openai_chat", "request", _with_messages(lambda _: True)),
)
