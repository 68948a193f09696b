"""Parts as content blocks of MCP. Spec: docs/spec/adapters/mcp.md [MCP-4], [MCP-5]."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final

from cmf.adapters.mcp.parts_in import FORMAT
from cmf.adapters.wire.fields import extra_of, object_in
from cmf.adapters.wire.loss import drop
from cmf.errors import DecodeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.value import present
from cmf.message.message import (
    AudioPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)


def write_blocks(parts: Iterable[Part], message: Message | None) -> list[dict[str, Any]]:
    """The content blocks of these parts; what MCP has no block for is dropped with a record."""
    blocks = (write_block(part, message) for part in parts)
    return [block for block in blocks if block is not None]


def write_block(part: Part, message: Message | None) -> dict[str, Any] | None:
    """The content block of one part; None where it is dropped."""
    if isinstance(part, OpaquePart):
        if part.provider == FORMAT:
            return dict(part.value)
        drop(FORMAT, part.type, f"a block of {part.provider}", message=message)
        return None
    if isinstance(part, ThinkingPart | RedactedThinkingPart):
        drop(FORMAT, part.content_type.value, "no block for reasoning", message=message)
        return None
    if isinstance(part, ToolResultPart):
        return _write_tool_result(part, message)
    writer = _WRITERS.get(type(part))
    if writer is None:
        raise UnsupportedError(f"mcp has no block for {part.content_type}", about=part, hint="route to another target")
    return writer(part)


def add(encoded: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """`encoded` with the keys of `extra` that it has not."""
    return {**extra, **encoded} if extra else encoded


def _write_text(part: TextPart) -> dict[str, Any]:
    return add({"type": "text", "text": part.text}, extra_of(part, FORMAT))


def _write_media(part: ImagePart | AudioPart) -> dict[str, Any]:
    if part.type != "base64":
        problem = "mcp carries images and sounds as data only"
        raise UnsupportedError(problem, about=part, hint="resolve the reference first")
    kind = "image" if isinstance(part, ImagePart) else "audio"
    return add({"type": kind, "data": part.data, **present(mimeType=part.media_type)}, extra_of(part, FORMAT))


def _write_embedded(part: ResourcePart) -> dict[str, Any]:
    if part.content is None and part.blob is None:
        return _write_link(part)
    left = extra_of(part, FORMAT)
    block: dict[str, Any] = {"type": "resource", "resource": write_resource(part, with_annotations=False)}
    if part.annotations:
        block["annotations"] = part.annotations
    return add(block, object_in(left, "block"))


def write_resource(part: Part, *, with_annotations: bool = True, address: str = "uri") -> dict[str, Any]:
    """A resource as an entry of a list; `address` is the key of its URI."""
    if isinstance(part, OpaquePart) and part.provider == FORMAT:
        return dict(part.value)
    if not isinstance(part, ResourcePart):
        raise UnsupportedError(
            f"mcp cannot list {part.content_type} as a resource", about=part, hint="send it as content"
        )
    item = {address: part.uri, **present(name=part.name, description=part.description, mimeType=part.mime_type)}
    blob = None if part.blob is None else base64.b64encode(part.blob).decode("ascii")
    item |= present(text=part.content, blob=blob, size=part.size_bytes)
    if with_annotations and part.annotations:
        item["annotations"] = part.annotations
    return add(item, object_in(extra_of(part, FORMAT), "resource"))


def _write_link(part: ResourcePart | ResourceRefPart) -> dict[str, Any]:
    block = {"type": "resource_link", "uri": part.uri, "name": part.name if part.name is not None else part.uri}
    return add(block, extra_of(part, FORMAT) if isinstance(part, ResourceRefPart) else {})


def _write_tool_use(part: ToolCallPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_use", "name": part.name, **present(id=part.tool_call_id)}
    arguments = write_arguments(part)
    block["input"] = {} if arguments is None else arguments
    return add(block, extra_of(part, FORMAT))


def _write_tool_result(part: ToolResultPart, message: Message | None) -> dict[str, Any]:
    return {"type": "tool_result", **present(toolUseId=part.tool_call_id), **write_result(part, message)}


def write_result(part: ToolResultPart, message: Message | None) -> dict[str, Any]:
    """The keys that say what a tool returned."""
    result: dict[str, Any] = {"content": _result_blocks(part.content, message)}
    if part.is_error:
        result["isError"] = True
    return add(result, extra_of(part, FORMAT))


def _result_blocks(content: Any, message: Message | None) -> list[dict[str, Any]]:
    if isinstance(content, tuple):
        return write_blocks(content, message)
    if content is None or content == []:
        return []
    return [{"type": "text", "text": content if isinstance(content, str) else dumps(content).decode("utf-8")}]


def write_arguments(part: ToolCallPart) -> Any:
    """The arguments as a JSON value; None where there are none."""
    if part.arguments_raw is None:
        return part.arguments
    try:
        return loads(part.arguments_raw, is_embedded=True)
    except DecodeError:
        problem = "mcp cannot carry arguments that are no JSON"
        raise UnsupportedError(problem, about=part, hint="repair the call first") from None


_WRITERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    TextPart: _write_text,
    ImagePart: _write_media,
    AudioPart: _write_media,
    ResourcePart: _write_embedded,
    ResourceRefPart: _write_link,
    ToolCallPart: _write_tool_use,
}
