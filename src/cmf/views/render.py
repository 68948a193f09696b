"""What a view shows of each type of part: tables from types to functions that fill the policy input.

Nothing of a part may be left out: each of its strings is in `content`, `arguments`, `uri`, `name` or `properties`, or
`properties.data` has its digest [B3]. Spec: docs/spec/views.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from cmf.enums import ViewKind
from cmf.errors import DecodeError, UnmappedPartError
from cmf.json.codec import SAFE_INTEGER, dumps, dumps_with_range, is_small
from cmf.json.value import present, to_json
from cmf.message import binary
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    MediaPart,
    OpaquePart,
    PromptRequestPart,
    PromptResultPart,
    RedactedThinkingPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.views.uris import normalise, segment

SAFE_PROPERTIES: Final = (
    "namespace", "tool_id", "tool_name", "server_id", "is_error", "message_count", "resource_type", "version",
    "executed_by", "source_type", "duration_ms", "redacted", "container", "arguments_invalid", "provider", "type",
)  # fmt: skip
"""The properties that hold no content: what `to_dict(include_content=False)` still shows."""

Keys: TypeAlias = tuple[str, ...]
"""The names under which an entity may be registered, best first [B9]."""

Shower: TypeAlias = Callable[[Any, dict[str, Any]], tuple[dict[str, Any], Keys]]
"""What shows one type of part: adds `uri`, `name`, `content`, `size_bytes`, `mime_type` and `arguments` (as policy sees
them), as far as known, to the input that it is given; returns the properties and the keys."""

NO_KEYS: Final[Keys] = ()
_SHORT: Final = 128  # characters of a URI that is worth keeping in memory
_MANY: Final = 1024


def exact_json(value: Any, pointer: str, properties: dict[str, Any]) -> Any:
    """`value` for a policy engine: integers beyond ±2^53 become decimal strings, listed in `big_integers` [A3]."""
    if isinstance(value, dict | list | tuple) and (is_small(value) or not _has_big(value)):
        return value
    pointers: list[str] = []
    shown = _exact(value, pointer, pointers)
    if pointers:
        properties["big_integers"] = [*properties.get("big_integers", ()), *pointers]
    return shown


def _has_big(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is int or kind is float:
            if not -SAFE_INTEGER <= item <= SAFE_INTEGER:
                return True
        elif isinstance(item, list | tuple):
            stack.extend(item)
        elif isinstance(item, dict | Mapping):  # that it is a dict is seen at once
            stack.extend(item.values())
    return False


def _exact(value: Any, pointer: str, pointers: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _exact(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", pointers)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_exact(item, f"{pointer}/{index}", pointers) for index, item in enumerate(value)]
    # A double that large is the whole number that it is written as; infinity, which is no JSON, the writer refuses.
    if type(value) in (int, float) and SAFE_INTEGER < abs(value) < math.inf:
        pointers.append(pointer)
        try:
            return str(value if type(value) is int else int(Decimal(repr(value))))
        except ValueError:
            raise DecodeError("a number has too many digits", code="json.not-finite", hint="send it as text") from None
    return value


# -- one function a kind -----------------------------------------------------------------------------------------------


def _text(part: TextPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    shown["content"] = part.text
    return {}, NO_KEYS


def _thinking(part: ThinkingPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    shown["content"] = part.text
    if part.signature is None:
        return {}, NO_KEYS
    return {"data": [binary.describe("signature", part.signature, shown=False)]}, NO_KEYS


def _redacted_thinking(part: RedactedThinkingPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    shown["content"] = part.data
    return {"redacted": True, "data": [binary.describe("data", part.data)]}, NO_KEYS


def _tool_call(part: ToolCallPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    properties = present(namespace=part.namespace, tool_id=part.tool_call_id, executed_by=part.executed_by)
    shown["uri"], keys = addressed("tool", (part.namespace, part.name))
    arguments = part.arguments
    shown |= {"name": part.name, "content": "{}", "mime_type": "application/json"}
    if arguments is not None:
        shown["content"], is_exact = dumps_with_range(arguments)
        shown["arguments"] = arguments if is_exact else exact_json(arguments, "/arguments", properties)
    if (raw := part.arguments_raw) is not None:
        properties |= {"arguments_invalid": True, "arguments_raw": raw}
        shown["content"] = raw
    return properties, keys


def addressed(scheme: str, names: tuple[str | None, ...]) -> tuple[str, Keys]:
    """The URI and the keys of an entity. The last of `names` is its own, the one before it its namespace."""
    entry = _addressed_before.get((scheme, names))
    if entry is None:
        uri = f"{scheme}://{'/'.join(segment(name or '') for name in names)}"
        entry = uri, entity_keys(uri, names[-2] if len(names) > 1 else None, names[-1])
        if len(uri) <= _SHORT:
            if len(_addressed_before) >= _MANY:
                _addressed_before.clear()
            _addressed_before[scheme, names] = entry
    return entry


# The same few are called all the time.
_addressed_before: Final[dict[tuple[str, tuple[str | None, ...]], tuple[str, Keys]]] = {}


def entity_keys(uri: str, namespace: str | None, name: str | None) -> Keys:
    """The keys under which an entity's profile is looked up: URI, `namespace/name`, bare name [B9]."""
    if name is None:
        return (uri,)
    return (uri, name) if namespace is None else (uri, f"{namespace}/{name}", name)


def _tool_result(part: ToolResultPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    name = part.tool_name
    shown["uri"], keys = addressed("tool_result", (part.tool_name,))
    shown["content"] = result_text(part.content)
    if name is not None:
        shown["name"] = name
    if not isinstance(part.content, str | tuple):
        shown["mime_type"] = "application/json"
    tool = present(executed_by=part.executed_by, tool_name=name, tool_id=part.tool_call_id)
    return {"is_error": part.is_error, **tool}, keys


def result_text(content: Any) -> str:
    """A result as text to scan: a string as it is, a JSON value as its JSON, parts as their texts, one a line."""
    if isinstance(content, str):
        return content
    if isinstance(content, tuple):
        return "\n".join(part.text for part in content if isinstance(part, TextPart))
    return "" if content is None else dumps(content).decode()


def _resource(part: ResourcePart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    properties: dict[str, Any] = {"resource_type": part.resource_type.value}
    shown |= present(name=part.name, mime_type=part.mime_type, content=part.content)
    uri = _address(shown, properties, part.uri)
    properties |= present(version=part.version, description=part.description, request_id=part.resource_request_id)
    if part.annotations:
        properties["annotations"] = exact_json(part.annotations, "/properties/annotations", properties)
    if part.blob is not None:
        described = binary.describe("blob", to_json(part.blob), part.mime_type)
        properties["data"] = [described]
        shown |= present(content=described.get("text"), size_bytes=len(part.blob))
    if part.size_bytes is not None:
        shown["size_bytes"] = part.size_bytes
    return properties, entity_keys(uri, None, part.name)


def _address(shown: dict[str, Any], properties: dict[str, Any], raw_uri: str) -> str:
    shown["uri"] = uri = normalise(raw_uri)
    if uri != raw_uri:
        properties["raw_uri"] = raw_uri
    return uri


def _resource_ref(part: ResourceRefPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    properties: dict[str, Any] = {"resource_type": part.resource_type.value}
    shown |= present(name=part.name, content=part.uri)
    uri = _address(shown, properties, part.uri)
    properties |= present(range_start=part.range_start, range_end=part.range_end, selector=part.selector)
    properties |= present(request_id=part.resource_request_id)
    return properties, entity_keys(uri, None, part.name)


def _prompt_request(part: PromptRequestPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    uri, keys = addressed("prompt", (part.server_id, part.name))
    properties: dict[str, Any] = present(server_id=part.server_id, request_id=part.prompt_request_id)
    shown |= {"uri": uri, "name": part.name, "mime_type": "application/json"}
    shown["content"], small = dumps_with_range(part.arguments)
    shown["arguments"] = part.arguments if small else exact_json(part.arguments, "/arguments", properties)
    return properties, keys


def _prompt_result(part: PromptResultPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    properties: dict[str, Any] = {"is_error": part.is_error, "message_count": len(part.messages)}
    properties |= present(error_message=part.error_message, request_id=part.prompt_request_id)
    content = part.content if part.content is not None else part.error_message
    uri, keys = addressed("prompt_result", (part.prompt_name,))
    shown |= present(uri=uri, name=part.prompt_name, content=content)
    return properties, keys


def _media(part: MediaPart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    properties: dict[str, Any] = {"source_type": part.type}
    shown |= present(mime_type=part.media_type)
    if part.type == "base64":
        described = binary.describe("data", part.data, part.media_type)
        properties["data"] = [described]
        size = described.get("decoded_length", described["length"])
        shown |= present(content=described.get("text"), size_bytes=size)
    else:
        shown["content"] = part.data
        _address(shown, properties, part.data)
        if part.type == "url" and (held := binary.describe_url("data", part.data, part.media_type)) is not None:
            properties["data"] = [held]
    if isinstance(part, VideoPart | AudioPart) and part.duration_ms is not None:
        properties["duration_ms"] = part.duration_ms
    if isinstance(part, DocumentPart) and part.title is not None:
        shown["name"] = properties["title"] = part.title
    return properties, NO_KEYS


def _opaque(part: OpaquePart, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    uri, _ = addressed("opaque", (part.provider, part.type))
    shown |= {"uri": uri, "name": part.type, "content": dumps(part.value).decode(), "mime_type": "application/json"}
    return {"provider": part.provider, "type": part.type}, NO_KEYS


class Piece(NamedTuple):
    """The text of one part within a joined text: the path of the part's view, and where the text starts and ends."""

    path: str
    start: int
    end: int


class JoinedText(NamedTuple):
    """The texts of a message, or of a result, as one: what many readers make of them [VIEW-24]."""

    text: str
    pieces: tuple[Piece, ...]
    extra: None = None


class JoinedThinking(JoinedText):
    """The thoughts of a message as one."""

    __slots__ = ()


def _joined(part: JoinedText, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    shown["content"] = part.text
    return {"joined": len(part.pieces)}, NO_KEYS


class _Table(dict[type, tuple[ViewKind, Shower]]):
    """Type of part → the kind of its view, and its shower; the modules above add types that are no content parts.

    Raises:
        UnmappedPartError: no entry for the type. [VIEW-2]
    """

    def __missing__(self, part_type: type) -> NoReturn:
        raise UnmappedPartError(
            f"{part_type.__name__} is mapped to no view kind", hint="add it to the table in cmf/views/render.py"
        )


KINDS: Final = _Table(
    {
        TextPart: (ViewKind.TEXT, _text),
        ThinkingPart: (ViewKind.THINKING, _thinking),
        RedactedThinkingPart: (ViewKind.THINKING, _redacted_thinking),
        ToolCallPart: (ViewKind.TOOL_CALL, _tool_call),
        ToolResultPart: (ViewKind.TOOL_RESULT, _tool_result),
        ResourcePart: (ViewKind.RESOURCE, _resource),
        ResourceRefPart: (ViewKind.RESOURCE_REF, _resource_ref),
        PromptRequestPart: (ViewKind.PROMPT_REQUEST, _prompt_request),
        PromptResultPart: (ViewKind.PROMPT_RESULT, _prompt_result),
        ImagePart: (ViewKind.IMAGE, _media),
        VideoPart: (ViewKind.VIDEO, _media),
        AudioPart: (ViewKind.AUDIO, _media),
        DocumentPart: (ViewKind.DOCUMENT, _media),
        OpaquePart: (ViewKind.OPAQUE, _opaque),
        JoinedText: (ViewKind.TEXT, _joined),
        JoinedThinking: (ViewKind.THINKING, _joined),
    }
)


BRIEFS: Final[dict[type, Callable[[Any], tuple[str | None, str | None]]]] = {
    TextPart: lambda _: (None, None),
    ThinkingPart: lambda _: (None, None),
    ToolCallPart: lambda part: (addressed("tool", (part.namespace, part.name))[0], part.name),
    ToolResultPart: lambda part: (addressed("tool_result", (part.tool_name,))[0], part.tool_name),
}
"""The functions for `uri` and `name` alone, for the types of part that are most frequent."""
