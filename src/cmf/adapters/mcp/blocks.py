"""The content blocks of MCP, to and from parts. Spec: docs/spec/adapters/mcp.md [MCP-4], [MCP-5]."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final

from cmf.adapters.wire.fields import Fields, extra_of, object_in
from cmf.adapters.wire.loss import drop
from cmf.errors import DecodeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import trusted
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


def read_blocks(raw: list[Any], path: str, names: Names) -> tuple[Part, ...]:
    """The parts of a list of content blocks, in order; a block of another type or shape is opaque [MCP-4].

    Raises:
        ShapeError: an item is no object.
    """
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


def _image(fields: Fields) -> Part | None:
    return _media(ImagePart, fields)


def _audio(fields: Fields) -> Part | None:
    return _media(AudioPart, fields)


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
    if annotations := fields.take("annotations", dict):
        part["annotations"] = annotations
    else:
        _return(fields, "annotations", annotations)
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
    if annotations := fields.take("annotations", dict):
        part["annotations"] = annotations
    else:
        _return(fields, "annotations", annotations)
    size = fields.take("size", int)
    if size is not None and size >= 0:
        part["size_bytes"] = size
    else:
        _return(fields, "size", size)
    left = fields.rest("resource")
    return trusted(ResourcePart, **part, extra=frozen_mapping({FORMAT: left}) if left else None)


def _return(fields: Fields, key: str, value: Any) -> None:
    if value is not None:
        fields.put_back(key, value)


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


def write_arguments(part: ToolCallPart) -> Any:
    """The arguments as a JSON value; None where there are none.

    Raises:
        UnsupportedError: they are text that is no JSON, which has no place here.
    """
    if part.arguments_raw is None:
        return part.arguments
    try:
        return loads(part.arguments_raw, is_embedded=True)
    except DecodeError:
        problem = "mcp cannot carry arguments that are no JSON"
        raise UnsupportedError(problem, about=part, hint="repair the call first") from None


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
    "image": _image,
    "audio": _audio,
    "resource": _embedded,
    "resource_link": _link,
}


# -- back to the wire --------------------------------------------------------------------------------------------------


def write_blocks(parts: Iterable[Part], message: Message | None) -> list[dict[str, Any]]:
    """The content blocks of these parts; what MCP has no block for is dropped with a record.

    Raises:
        UnsupportedError: media or a prompt that no block can carry [C8].
    """
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
    block = {"type": "image" if isinstance(part, ImagePart) else "audio", "data": part.data}
    if part.media_type is not None:
        block["mimeType"] = part.media_type
    return add(block, extra_of(part, FORMAT))


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
    item: dict[str, Any] = {address: part.uri}
    for key, text in (("name", part.name), ("description", part.description), ("mimeType", part.mime_type)):
        if text is not None:
            item[key] = text
    if part.content is not None:
        item["text"] = part.content
    if part.blob is not None:
        item["blob"] = base64.b64encode(part.blob).decode("ascii")
    if part.size_bytes is not None:
        item["size"] = part.size_bytes
    if with_annotations and part.annotations:
        item["annotations"] = part.annotations
    return add(item, object_in(extra_of(part, FORMAT), "resource"))


def _write_link(part: ResourcePart | ResourceRefPart) -> dict[str, Any]:
    block = {"type": "resource_link", "uri": part.uri, "name": part.name if part.name is not None else part.uri}
    return add(block, extra_of(part, FORMAT) if isinstance(part, ResourceRefPart) else {})


def _write_tool_use(part: ToolCallPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_use", "name": part.name}
    if part.tool_call_id is not None:
        block["id"] = part.tool_call_id
    arguments = write_arguments(part)
    block["input"] = {} if arguments is None else arguments
    return add(block, extra_of(part, FORMAT))


def _write_tool_result(part: ToolResultPart, message: Message | None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result"}
    if part.tool_call_id is not None:
        block["toolUseId"] = part.tool_call_id
    return block | write_result(part, message)


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


_WRITERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    TextPart: _write_text,
    ImagePart: _write_media,
    AudioPart: _write_media,
    ResourcePart: _write_embedded,
    ResourceRefPart: _write_link,
    ToolCallPart: _write_tool_use,
}
