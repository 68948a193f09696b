"""The parts that a message is made of. Spec: docs/spec/message.md [MSG-5] to [MSG-9].

Each part's `content_type` is a literal that cannot lie; its JSON is flat [A1]. What a wire block carried beyond the
canonical fields stays with the part in `extra`, under the name of its wire format: shown to policy, and emitted to the
same format only (or one of its family, [OPR-6]), while the part is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cmf.enums import ContentType, ResourceType
from cmf.frozen import FrozenDict, JsonObject, JsonValue, freeze
from cmf.value import Blob, Count, Flag, Str, Value, replace, shape_error, value

if TYPE_CHECKING:
    from cmf.message import Message

SourceType = Literal["url", "base64", "file_ref"]


class Part(Value):
    """Base of all content parts."""

    __slots__ = ()
    content_type: Any
    extra: JsonObject | None

    def edited(self, **fields: Any) -> Any:
        """A changed copy. `extra` from the wire belonged to the unchanged part and is dropped."""
        return replace(self, extra=None, **fields)


@value
class TextPart(Part):
    """Plain text."""

    content_type: Literal[ContentType.TEXT] = ContentType.TEXT
    text: Str
    extra: JsonObject | None = None


@value
class ThinkingPart(Part):
    """A model's reasoning. `signature` is the provider's opaque proof of it: removed with the part, never edited."""

    content_type: Literal[ContentType.THINKING] = ContentType.THINKING
    text: Str
    signature: Str | None = None
    extra: JsonObject | None = None


@value
class RedactedThinkingPart(Part):
    """Reasoning that the provider hands out only as an opaque blob."""

    content_type: Literal[ContentType.REDACTED_THINKING] = ContentType.REDACTED_THINKING
    data: Str
    extra: JsonObject | None = None


@value
class ToolCallPart(Part):
    """A call of a tool.

    `arguments` is a JSON object or None; `arguments_raw` is the exact wire text where that was not a strict JSON object
    [A8]. `executed_by` says who runs it: the client, or the provider on its own machines.
    """

    content_type: Literal[ContentType.TOOL_CALL] = ContentType.TOOL_CALL
    tool_call_id: Str | None = None
    name: Str
    arguments: JsonObject | None = None
    arguments_raw: Str | None = None
    namespace: Str | None = None
    executed_by: Literal["client", "provider"] = "client"
    extra: JsonObject | None = None


@value
class ToolResultPart(Part):
    """What a tool returned: a JSON value, or an ordered tuple of parts. Both are lossless."""

    content_type: Literal[ContentType.TOOL_RESULT] = ContentType.TOOL_RESULT
    tool_call_id: Str | None = None
    tool_name: Str | None = None
    content: ResultContent = None
    is_error: Flag = False
    executed_by: Literal["client", "provider"] = "client"
    extra: JsonObject | None = None


@value
class ResourcePart(Part):
    """A resource with its content: text in `content`, or bytes in `blob`, never both."""

    content_type: Literal[ContentType.RESOURCE] = ContentType.RESOURCE
    resource_request_id: Str | None = None
    uri: Str
    name: Str | None = None
    description: Str | None = None
    resource_type: ResourceType = ResourceType.URI
    content: Str | None = None
    blob: Blob | None = None
    mime_type: Str | None = None
    size_bytes: Count | None = None
    annotations: JsonObject = FrozenDict()
    version: Str | None = None
    extra: JsonObject | None = None

    @model_validator(mode="after")
    def _one_body(self) -> ResourcePart:
        if self.content is not None and self.blob is not None:
            raise PydanticCustomError("exclusive", "content and blob exclude each other: keep one")
        return self


@value
class ResourceRefPart(Part):
    """A pointer to a resource, or to a range of it (`range_start` ≤ `range_end`, both inclusive)."""

    content_type: Literal[ContentType.RESOURCE_REF] = ContentType.RESOURCE_REF
    resource_request_id: Str | None = None
    uri: Str
    name: Str | None = None
    resource_type: ResourceType = ResourceType.URI
    range_start: Count | None = None
    range_end: Count | None = None
    selector: Str | None = None
    extra: JsonObject | None = None

    @model_validator(mode="after")
    def _ordered(self) -> ResourceRefPart:
        if self.range_start is not None and self.range_end is not None and self.range_start > self.range_end:
            raise PydanticCustomError("range_order", "range_start is past range_end: swap them")
        return self


@value
class PromptRequestPart(Part):
    """A request to render a prompt template."""

    content_type: Literal[ContentType.PROMPT_REQUEST] = ContentType.PROMPT_REQUEST
    prompt_request_id: Str | None = None
    name: Str
    arguments: JsonObject = FrozenDict()
    server_id: Str | None = None
    extra: JsonObject | None = None


@value
class PromptResultPart(Part):
    """A rendered prompt: messages, or a single text."""

    content_type: Literal[ContentType.PROMPT_RESULT] = ContentType.PROMPT_RESULT
    prompt_request_id: Str | None = None
    prompt_name: Str
    messages: Messages = ()
    content: Str | None = None
    is_error: Flag = False
    error_message: Str | None = None
    extra: JsonObject | None = None


@value
class ImagePart(Part):
    """An image: a URL, base64 text, or a reference to a file that is held elsewhere."""

    content_type: Literal[ContentType.IMAGE] = ContentType.IMAGE
    type: SourceType
    data: Str
    media_type: Str | None = None
    extra: JsonObject | None = None


@value
class VideoPart(Part):
    """A video; `duration_ms` in milliseconds."""

    content_type: Literal[ContentType.VIDEO] = ContentType.VIDEO
    type: SourceType
    data: Str
    media_type: Str | None = None
    duration_ms: Count | None = None
    extra: JsonObject | None = None


@value
class AudioPart(Part):
    """A sound; `duration_ms` in milliseconds."""

    content_type: Literal[ContentType.AUDIO] = ContentType.AUDIO
    type: SourceType
    data: Str
    media_type: Str | None = None
    duration_ms: Count | None = None
    extra: JsonObject | None = None


@value
class DocumentPart(Part):
    """A document, for example a PDF."""

    content_type: Literal[ContentType.DOCUMENT] = ContentType.DOCUMENT
    type: SourceType
    data: Str
    media_type: Str | None = None
    title: Str | None = None
    extra: JsonObject | None = None


@value
class OpaquePart(Part):
    """A wire block of a type that has no canonical shape: judged as a whole, kept, emitted to its own format only.

    `provider` is the wire format, `type` the block's own type, `value` the whole block.
    """

    content_type: Literal[ContentType.OPAQUE] = ContentType.OPAQUE
    provider: Str
    type: Str
    value: JsonObject
    extra: JsonObject | None = None


MediaPart: TypeAlias = ImagePart | VideoPart | AudioPart | DocumentPart
ContentPart: TypeAlias = Annotated[
    TextPart
    | ThinkingPart
    | RedactedThinkingPart
    | ToolCallPart
    | ToolResultPart
    | ResourcePart
    | ResourceRefPart
    | PromptRequestPart
    | PromptResultPart
    | ImagePart
    | VideoPart
    | AudioPart
    | DocumentPart
    | OpaquePart,
    Field(discriminator="content_type"),
]


def media_class(media_type: str) -> type[MediaPart]:
    """The part that data of this media type is: an image, a video or a sound, else a document."""
    return _FAMILIES.get(media_type.partition("/")[0].lower(), DocumentPart)


_FAMILIES: Final[dict[str, type[MediaPart]]] = {"image": ImagePart, "video": VideoPart, "audio": AudioPart}
CONTENT_TYPES: Final = frozenset(kind.value for kind in ContentType)


def known_parts(items: Any) -> Any:
    """Parts as given, with each part of an unknown type as an `opaque` part: kept and judged, never skipped [A12]."""
    if isinstance(items, set | frozenset):
        raise PydanticCustomError("tuple_type", "parts are ordered: give a list or a tuple")
    if not isinstance(items, list | tuple):
        return items
    return [_or_opaque(item) if isinstance(item, dict) else item for item in items]


def _or_opaque(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("content_type")
    if not isinstance(kind, str) or kind in CONTENT_TYPES:
        return part
    return {"content_type": ContentType.OPAQUE, "provider": "canonical", "type": kind, "value": part}


def _result_content(content: Any) -> Any:
    """Parts where every item is one (an instance, or an object with a `content_type`), else a JSON value."""
    if isinstance(content, list | tuple) and content and all(_is_part(item) for item in content):
        try:
            return _parts().validate_python(known_parts(content))
        except ValidationError as error:
            raise shape_error(error, root="") from None
    return freeze(content)


def _is_part(item: Any) -> bool:
    return isinstance(item, Part) or (isinstance(item, dict) and "content_type" in item)


@cache
def _parts() -> TypeAdapter[tuple[ContentPart, ...]]:
    return TypeAdapter(tuple[ContentPart, ...])


if TYPE_CHECKING:
    # Constructors take any sequence and keep a tuple.
    Messages: TypeAlias = Sequence[Message]
    Parts: TypeAlias = Sequence[Part]
    ResultContent: TypeAlias = JsonValue | Sequence[Part]
else:
    Messages = tuple["Message", ...]
    Parts = Annotated[tuple[ContentPart, ...], BeforeValidator(known_parts)]
    ResultContent = Annotated[Any, PlainValidator(_result_content), WithJsonSchema({})]

import cmf.message  # noqa: E402, F401 - values here hold messages: whoever loads this module must be able to build them
