"""What a conversation needs that a model does not offer: asked before a swap or a route, not found out on the wire.

Spec: docs/spec/capabilities.md [CAP-5] to [CAP-7]; seed 000 §8.4. What may be dropped with a record (thinking, cache
marks) is no shortfall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.message.message import ImagePart, Message, Part, ToolCallPart, ToolResultPart
from cmf.message.request import Request
from cmf.message.transform import part_paths
from cmf.models.capabilities import ModelCapabilities


class Shortfall(NamedTuple):
    """One thing that is needed: the declaration that is missing, where it is needed, and what it is in plain words."""

    capability: str
    path: str
    what: str


def shortfalls(
    value: Request | Sequence[Message], offered: ModelCapabilities, *, input_tokens: int = 0
) -> tuple[Shortfall, ...]:
    """What of a request, or of a session's messages, a model with these declarations cannot take, each thing once.

    Args:
        value: what is to be sent.
        offered: what the model declares; a model that nobody declared offers nothing.
        input_tokens: the estimated size, 0 where nobody estimated it.
    """
    messages, prefix = (value.messages, "$.messages") if isinstance(value, Request) else (value, "$")
    first: dict[str, Shortfall] = {}
    missing = list(_of_messages(messages, prefix, offered))
    if isinstance(value, Request):
        missing += _of_request(value, offered)
    if input_tokens > offered.max_context_tokens:
        missing.append(Shortfall("max_context_tokens", prefix, "more tokens"))
    for shortfall in missing:
        first.setdefault(shortfall.capability, shortfall)
    return tuple(first.values())


def check_swap(messages: Sequence[Message], offered: ModelCapabilities, *, name: str, input_tokens: int = 0) -> None:
    """Nothing, where the session can go on with the model called `name`.

    Raises:
        UnsupportedError: it cannot; code `swap.<capability>`, and the path of the first part in the way.
    """
    for shortfall in shortfalls(messages, offered, input_tokens=input_tokens):
        raise UnsupportedError(
            f"Cannot swap to {name}: session contains {shortfall.what} that this model can't process.",
            path=shortfall.path,
            code=f"swap.{shortfall.capability.replace('_', '-')}",
            hint=f"choose a model that declares {shortfall.capability}",
        )


def _of_messages(messages: Iterable[Message], prefix: str, offered: ModelCapabilities) -> Iterator[Shortfall]:
    for index, message in enumerate(messages):
        at = f"{prefix}[{index}]"
        if message.role in (Role.SYSTEM, Role.DEVELOPER) and message.content and not offered.supports_system_prompt:
            yield Shortfall("supports_system_prompt", at, "a system prompt")
        for path, part in part_paths(message):
            yield from _of_part(part, f"{at}.{path}", offered)


def _of_part(part: Part, path: str, offered: ModelCapabilities) -> Iterator[Shortfall]:
    if isinstance(part, ToolCallPart | ToolResultPart) and not offered.supports_tools:
        yield Shortfall("supports_tools", path, "tool calls")
    if isinstance(part, ImagePart):
        if not offered.supports_images:
            yield Shortfall("supports_images", path, "images")
        elif part.media_type is not None and part.media_type.lower() not in offered.accepted_image_media_types:
            yield Shortfall("accepted_image_media_types", path, "images of a type")


def _of_request(request: Request, offered: ModelCapabilities) -> Iterator[Shortfall]:
    streams_calls = request.stream is True and bool(request.tools)
    wanted = request.sampling.max_output_tokens
    needs = (
        ("supports_tools", "$.tools", "tools", bool(request.tools)),
        ("supports_structured_output", "$.response_schema", "a response schema", request.response_schema is not None),
        ("supports_streaming", "$.stream", "a stream", request.stream is True),
        ("supports_streaming_tool_calls", "$.stream", "streamed tool calls", streams_calls),
    )
    for capability, path, what, needed in needs:
        if needed and not getattr(offered, capability):
            yield Shortfall(capability, path, what)
    if wanted is not None and wanted > offered.max_output_tokens:
        yield Shortfall("max_output_tokens", "$.sampling.max_output_tokens", "more output tokens")
