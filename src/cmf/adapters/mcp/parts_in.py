"""The content blocks of MCP as parts. Spec: docs/spec/adapters/mcp.md [MCP-4], [MCP-5]."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from cmf.adapters.wire.fields import Fields
from cmf.json.codec import dumps
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import trusted
from cmf.message.message import (
    AudioPart,
    ImagePart,
    OpaquePart,
    Part,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT: Final = "mcp"

Names = dict[str, str]
"""Tool names by call id, of the calls read so far: results do not carry them."""


def read_blocks(raw: list[Any], path: str, names: Names) -> tuple[Part, ...]:
    """The parts of a list of content blocks, in order; a block of another type or shape is opaque [MCP-4]."""
    return tuple(read_block(item, f"{path}[{index}]", names) for index, item in enumerate(raw))


def read_block(raw: Any, path: str, names: Names) -> Part:
    """The part of one content block."""
    fields = Fields(raw, path)
    kind = fields.peek("type")
    part: Part | None = None
    if kind == "tool_use":
        part = _tool_use(fields, names)
    elif kind == "tool_result":
        part = _tool_result(fields, names)
    elif isinstance(kind, str) and (reader := _READERS.get(kind)) is not None:
        part = reader(fields)
    if part is not None:
        return part
    return trusted(OpaquePart, provider=FORMAT, type=kind if isinstance(kind, str) else "block", value=raw)


def _text(fields: Fields) -> Part | None:
    text = fields.take("text", str)
    return None if text is None else trusted(TextPart, text=text, extra=_left(fields))


def _media(cls: type[ImagePart] | type[AudioPart], fields: Fields) -> Part | None:
    data = fields.take("data", str)
    if data is None:
        return None
    return trusted(cls, type="base64", data=data, media_type=fields.take("mimeType", str), extra=_left(fields))


def _link(fields: Fields) -> Part | None:
    uri = fields.take("uri", str)
    if uri is None:
        return None
    return trusted(ResourceRefPart, uri=uri, name=fields.take("name", str), extra=_left(fields))


def _embedded(fields: Fields) -> Part | None:
    body = fields.take("resource", dict)
    if body is None:
        return None
    resource = Fields(body, fields.path)
    part = _resource_fields(resource)
    if part is None or not ("content" in part or "blob" in part):
        return None
    _annotate(part, fields)
    fields.drop("type", "resource")
    left = {**(resource.rest("resource") or {}), **(fields.rest("block") or {})}
    return trusted(ResourcePart, **part, extra=frozen_mapping({FORMAT: frozen_mapping(left)}) if left else None)


def _resource_fields(fields: Fields) -> dict[str, Any] | None:
    """The content of a resource object; None if it has no URI, or data that would be written differently."""
    uri = fields.take("uri", str)
    if uri is None or ("text" in fields and "blob" in fields):
        return None
    part: dict[str, Any] = {"uri": uri, "mime_type": fields.take("mimeType", str)}
    if (text := fields.take("text", str)) is not None:
        part["content"] = text
    elif (blob := fields.take("blob", str)) is not None:
        raw = _exact_bytes(blob)
        if raw is None:
            return None
        part["blob"] = raw
    return part


def _exact_bytes(text: str) -> bytes | None:
    """The bytes that base64 `text` spells, if they are spelled so again."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if base64.b64encode(raw).decode("ascii") == text else None


def read_resource(raw: Any, path: str, address: str = "uri") -> Part:
    """A resource of a list, with its content or without; `address` is the key of its URI."""
    fields = Fields(raw, path)
    if address != "uri":
        template = None if "uri" in fields else fields.take(address, str)
        if template is None:
            return trusted(OpaquePart, provider=FORMAT, type="resource", value=raw)
        fields.put_back("uri", template)
    part = _resource_fields(fields)
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


def _tool_use(fields: Fields, names: Names) -> Part | None:
    name = fields.take("name", str)
    if name is None:
        return None
    call_id = fields.take("id", str)
    if call_id is not None:
        names[call_id] = name
    fields.drop("type", "tool_use")
    arguments, raw = read_arguments(fields, "input")
    return trusted(
        ToolCallPart,
        tool_call_id=call_id,
        name=name,
        arguments=arguments,
        arguments_raw=raw,
        extra=fields.rest(FORMAT),
    )


def read_arguments(fields: Fields, key: str) -> tuple[FrozenDict | None, str | None]:
    """The arguments under `key` as an object, an empty one for none; anything else as its JSON text [A8]."""
    value = fields.peek(key)
    if value is None:
        fields.drop(key, None)
        return FrozenDict(), None
    fields.drop(key, value)
    return (value, None) if isinstance(value, FrozenDict) else (None, dumps(value).decode("utf-8"))


def _tool_result(fields: Fields, names: Names) -> Part | None:
    call_id = fields.take("toolUseId", str)
    if call_id is None:
        return None
    fields.drop("type", "tool_result")
    return read_result(fields, call_id, names.get(call_id), names)


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


def _left(fields: Fields) -> FrozenDict | None:
    fields.drop("type", fields.peek("type"))
    return fields.rest(FORMAT)


_READERS: Final[dict[str, Callable[[Fields], Part | None]]] = {
    "text": _text,
    "image": partial(_media, ImagePart),
    "audio": partial(_media, AudioPart),
    "resource": _embedded,
    "resource_link": _link,
}
