"""Canonical messages as Ollama's. Spec: docs/spec/adapters/ollama.md [OLL-1] to [OLL-6]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cmf.adapters.ollama.parts_in import EMPTY, FORMAT
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import extra_of, merge
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.json.value import present
from cmf.message import binary
from cmf.message.message import (
    ImagePart,
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.views.render import result_text

_BETWEEN: Final = "\n\n"  # this format has one text where others have several


def encode_message(message: Message, names: Mapping[str, str] = EMPTY, *, reply: bool = False) -> list[dict[str, Any]]:
    """The wire messages of one message: one, or one for each of several tool results and one for the rest."""
    results = [part for part in message.content if isinstance(part, ToolResultPart) and part.executed_by == "client"]
    if not results:
        own = [_wire_message(message, message.content, reply=reply)]
    else:
        own = [_result(part, message, names) for part in results]
        rest = [part for part in message.content if part not in results]
        if rest:
            own.append(_wire_message(message, rest, reply=reply))
    if message.extra:
        original = extra_of(message, FORMAT)
        merge(own[0], original)
        if isinstance(original.get("role"), str):
            own[0]["role"] = original["role"]
        loss.drop_foreign_extra(FORMAT, message, "message", message=message)
    return own


def _wire_message(message: Message, parts: Iterable[Part], *, reply: bool) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    images: list[str] = []
    calls: list[dict[str, Any]] = []
    for original in parts:
        loss.drop_foreign_extra(FORMAT, original, original.content_type.value, message=message)
        part = loss.resource_as_text(FORMAT, original, message=message)
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.text)
            if part.signature is not None:
                loss.drop(FORMAT, "thinking_signature", "the format has no signatures", message=message)
        elif isinstance(part, ToolCallPart) and part.executed_by == "client":
            calls.append(_call(part, reply=reply))
        elif isinstance(part, MediaPart):
            images.append(_image(part))
        else:
            loss.drop(FORMAT, part.content_type.value, "the format has no such part", message=message)
    role = "system" if message.role is Role.DEVELOPER else message.role.value
    between = "" if message.role is Role.ASSISTANT else _BETWEEN  # a model's text is cut wherever its service cuts it
    encoded: dict[str, Any] = {"role": role, "content": loss.joined(FORMAT, "text", texts, between, message=message)}
    if thoughts:
        encoded["thinking"] = loss.joined(FORMAT, "thinking", thoughts, between, message=message)
    if images:
        encoded["images"] = images
    if calls:
        encoded["tool_calls"] = calls
    return encoded


def _call(part: ToolCallPart, *, reply: bool) -> dict[str, Any]:
    arguments: Any = part.arguments
    if arguments is None:
        arguments = part.arguments_raw if part.arguments_raw and part.arguments_raw.strip() else EMPTY
    call: dict[str, Any] = {"function": {"name": part.name, "arguments": arguments}}
    if not reply and "type" not in extra_of(part, FORMAT):
        call["type"] = "function"
    call |= present(id=part.tool_call_id)
    return merge(call, extra_of(part, FORMAT)) if part.extra else call


def _image(part: MediaPart) -> str:
    if isinstance(part, ImagePart):
        if part.type == "base64":
            return part.data
        if (inline := binary.data_url(part.data)) is not None:
            return inline[1]
    raise UnsupportedError(
        f"{part.content_type.value} by {part.type}",
        about=part,
        hint="Ollama takes images, as base64: resolve them first",
    )


def _result(part: ToolResultPart, message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    content = part.content
    images: list[str] = []
    loss.drop_foreign_extra(FORMAT, part, "tool_result", message=message)
    if part.is_error:
        loss.drop(FORMAT, "is_error", "the format cannot say that a result is an error", message=message)
    if isinstance(content, tuple):
        content = tuple(loss.resource_as_text(FORMAT, inner, message=message) for inner in content)
        images = [_image(inner) for inner in content if isinstance(inner, MediaPart)]
        for inner in content:
            if not isinstance(inner, TextPart | ImagePart):
                loss.drop(FORMAT, inner.content_type.value, "a result has text and images only", message=message)
    encoded: dict[str, Any] = {"role": "tool", "content": result_text(content)}
    name = part.tool_name if part.tool_name is not None else names.get(part.tool_call_id or "")
    encoded |= present(tool_name=name, tool_call_id=part.tool_call_id)
    if images:
        encoded["images"] = images
    return merge(encoded, extra_of(part, FORMAT)) if part.extra else encoded
