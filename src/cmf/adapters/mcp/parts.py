"""The content blocks of MCP as parts, and back. Spec: docs/spec/adapters/mcp.md [MCP-4], [MCP-5]."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

from cmf.adapters.wire.fields import Fields, extra_of, object_in
from cmf.adapters.wire.loss import drop
from cmf.errors import DecodeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, trusted
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

FORMAT: Final = "mcp"
Names = dict[str, str]
"""Tool names by call id, of the calls read so far: results do not carry them."""

_BLOCKS: Final[dict[str, tuple[type[Part], dict[str, str]]]] = {
    "text": (TextPart, {"text": "text"}),
    "image": (ImagePart, {"data": "data", "mimeType": "media_type"}),
    "audio": (AudioPart, {"data": "data", "mimeType": "media_type"}),
    "resource_link": (ResourceRefPart, {"uri": "uri", "name": "name"}),
}
"""Types of block that are all text: the part, and by key its fields, of which a block has to have the first."""
_KINDS: Final = {cls: kind for kind, (cls, _) in _BLOCKS.items()}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_blocks(raw: list[Any], path: str, names: Names) -> tuple[Part, ...]:
    """The parts of a list of content blocks, in order; a block of another type or shape is opaque [MCP-4]."""
    return tuple([_read_block(item, f"{path}[{index}]", names) for index, item in enumerate(raw)])


def _read_block(raw: Any, path: str, names: Names) -> Part:
    fields = Fields(raw, path)
    kind = fields.peek("type")
    part: Part | None = None
    if not isinstance(kind, str):
        kind = "block"
    elif kind in _BLOCKS:
        cls, keys = _BLOCKS[kind]
        own = {name: fields.take(key, str) for key, name in keys.items()}
        first, *_ = own.values()
        if first is not None:
            source = {"type": "base64"} if "data" in own else {}
            fields.drop("type", kind)
            part = trusted(cls, **source, **own, extra=fields.rest(FORMAT))
    elif kind == "resource":
        part = _read_embedded(fields)
    elif kind == "tool_use" and (name := fields.take("name", str)) is not None:
        call_id = fields.take("id", str)
        if call_id is not None:
            names[call_id] = name
        fields.drop("type", kind)
        part = trusted(
            ToolCallPart, tool_call_id=call_id, name=name, **read_arguments(fields, "input"), extra=fields.rest(FORMAT)
        )
    elif kind == "tool_result" and (call_id := fields.take("toolUseId", str)) is not None:
        fields.drop("type", kind)
        part = read_result(fields, call_id, names.get(call_id), names)
    return trusted(OpaquePart, provider=FORMAT, type=kind, value=raw) if part is None else part


def _read_embedded(fields: Fields) -> Part | None:
    body = fields.take("resource", dict)
    if body is None:
        return None
    resource = Fields(body, fields.path)
    part = _read_resource(resource)
    if part is None or not ("content" in part or "blob" in part):
        return None
    _annotate(part, fields)
    fields.drop("type", "resource")
    left = {**(resource.rest("resource") or {}), **(fields.rest("block") or {})}
    return trusted(ResourcePart, **part, extra=frozen_mapping({FORMAT: frozen_mapping(left)}) if left else None)


def _read_resource(fields: Fields) -> dict[str, Any] | None:
    """The content of a resource object; None if it has no URI, or data that would be written differently."""
    uri = fields.take("uri", str)
    if uri is None or ("text" in fields and "blob" in fields):
        return None
    part: dict[str, Any] = {"uri": uri, "mime_type": fields.take("mimeType", str)}
    if (text := fields.take("text", str)) is not None:
        part["content"] = text
    elif (blob := fields.take("blob", str)) is not None:
        try:
            part["blob"] = base64.b64decode(blob, validate=True)
        except ValueError:
            return None
        if base64.b64encode(part["blob"]).decode("ascii") != blob:
            return None
    return part


def read_resource(raw: Any, path: str, address: str = "uri") -> Part:
    """A resource of a list, with its content or without; `address` is the key of its URI."""
    fields = Fields(raw, path)
    part = None
    if address == "uri":
        part = _read_resource(fields)
    elif "uri" not in fields and (template := fields.take(address, str)) is not None:
        fields.put_back("uri", template)
        part = _read_resource(fields)
    if part is None:
        return trusted(OpaquePart, provider=FORMAT, type="resource", value=raw)
    part["name"] = fields.take("name", str)
    part["description"] = fields.take("description", str)
    _annotate(part, fields)
    size = fields.peek("size")
    if type(size) is int and size >= 0:
        part["size_bytes"] = fields.take("size", int)
    left = fields.rest("resource")
    return trusted(ResourcePart, **part, extra=frozen_mapping({FORMAT: left}) if left else None)


def _annotate(part: dict[str, Any], fields: Fields) -> None:
    """Take annotations if there are any; empty ones stay where they are."""
    if fields.peek("annotations") and (annotations := fields.take("annotations", dict)):
        part["annotations"] = annotations


def read_arguments(fields: Fields, key: str) -> dict[str, Any]:
    """The arguments under `key` as an object, an empty one for none; anything else as its JSON text [A8]."""
    value = fields.peek(key)
    fields.drop(key, value)
    if value is None or isinstance(value, FrozenDict):
        return {"arguments": FrozenDict() if value is None else value}
    return {"arguments_raw": dumps(value).decode("utf-8")}


def read_result(fields: Fields, call_id: str | None, tool_name: str | None, names: Names) -> ToolResultPart:
    """The result of a tool; what is left of `fields` (`structuredContent`, say) rides with it."""
    blocks = fields.take("content", list)
    failed = fields.take("isError", bool)
    content: Any = None
    if blocks is not None:
        content = read_blocks(blocks, f"{fields.path}.content", names) or freeze([])
    return trusted(
        ToolResultPart,
        tool_call_id=call_id,
        tool_name=tool_name,
        content=content,
        is_error=bool(failed),
        extra=fields.rest(FORMAT),
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def write_blocks(parts: Iterable[Part], message: Message | None) -> list[dict[str, Any]]:
    """The content blocks of these parts; what MCP has no block for is dropped with a record."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, OpaquePart) and part.provider != FORMAT:
            drop(FORMAT, part.type, f"a block of {part.provider}", message=message)
        elif isinstance(part, ThinkingPart | RedactedThinkingPart):
            drop(FORMAT, part.content_type.value, "no block for reasoning", message=message)
        else:
            blocks.append(_write_block(part, message))
    return blocks


def _write_block(part: Part, message: Message | None) -> dict[str, Any]:
    own = extra_of(part, FORMAT)
    if isinstance(part, OpaquePart):
        return dict(part.value)
    if isinstance(part, ToolResultPart):
        return {"type": "tool_result", **present(toolUseId=part.tool_call_id), **write_result(part, message)}
    if isinstance(part, ToolCallPart):
        block: dict[str, Any] = {"type": "tool_use", "name": part.name, **present(id=part.tool_call_id)}
        arguments = write_arguments(part)
        return {**own, **block, "input": {} if arguments is None else arguments}
    if isinstance(part, ResourcePart) and (part.content is not None or part.blob is not None):
        body: dict[str, Any] = {"type": "resource", "resource": write_resource(part, with_annotations=False)}
        return {**object_in(own, "block"), **body, **present(annotations=part.annotations or None)}
    if isinstance(part, ResourcePart | ResourceRefPart):
        link = {"type": "resource_link", "uri": part.uri, "name": part.name if part.name is not None else part.uri}
        return {**own, **link} if isinstance(part, ResourceRefPart) else link
    kind = _KINDS.get(type(part))
    if kind is None:
        raise UnsupportedError(f"mcp has no block for {part.content_type}", about=part, hint="route to another target")
    if isinstance(part, ImagePart | AudioPart) and part.type != "base64":
        problem = "mcp carries images and sounds as data only"
        raise UnsupportedError(problem, about=part, hint="resolve the reference first")
    return {**own, "type": kind, **present(**{key: getattr(part, name) for key, name in _BLOCKS[kind][1].items()})}


def write_resource(part: Part, *, with_annotations: bool = True, address: str = "uri") -> dict[str, Any]:
    """A resource as an entry of a list; `address` is the key of its URI."""
    if isinstance(part, OpaquePart) and part.provider == FORMAT:
        return dict(part.value)
    if not isinstance(part, ResourcePart):
        problem = f"mcp cannot list {part.content_type} as a resource"
        raise UnsupportedError(problem, about=part, hint="send it as content")
    item = {address: part.uri, **present(name=part.name, description=part.description, mimeType=part.mime_type)}
    blob = None if part.blob is None else base64.b64encode(part.blob).decode("ascii")
    item |= present(text=part.content, blob=blob, size=part.size_bytes)
    if with_annotations and part.annotations:
        item["annotations"] = part.annotations
    return {**object_in(extra_of(part, FORMAT), "resource"), **item}


def write_result(part: ToolResultPart, message: Message | None) -> dict[str, Any]:
    """The keys that say what a tool returned."""
    content, blocks = part.content, []
    if isinstance(content, tuple):
        blocks = write_blocks(content, message)
    elif content is not None and content != []:
        blocks = [{"type": "text", "text": content if isinstance(content, str) else dumps(content).decode("utf-8")}]
    return {**extra_of(part, FORMAT), "content": blocks, **present(isError=part.is_error or None)}


def write_arguments(part: ToolCallPart) -> Any:
    """The arguments as a JSON value; None where there are none."""
    if part.arguments_raw is None:
        return part.arguments
    try:
        return loads(part.arguments_raw, is_embedded=True)
    except DecodeError:
        problem = "mcp cannot carry arguments that are no JSON"
        raise UnsupportedError(problem, about=part, hint="repair the call first") from None
