"""A message, its parts and its extensions, each of which may hold the others. Spec: message.md, extensions.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ArgsKwargs, PydanticCustomError

from cmf.enums import Capability, Channel, ContentType, Hook, MessageStatus, ResourceType, Role, RoutingMode, StopReason
from cmf.errors import CmfError, UnknownRoleError
from cmf.json.frozen import FrozenDict, JsonObject, JsonValue, freeze
from cmf.json.value import Blob, Count, Flag, Str, UtcTime, Value, replace, shape_error, value
from cmf.message.schema_versions import CURRENT, refuse_newer, upgrade_message
from cmf.message.security import Headers, HttpHeaders, SecurityExtension

if TYPE_CHECKING:
    from cmf.views.view import MessageView


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
    listed = []
    for item in items:
        kind = item.get("content_type") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in CONTENT_TYPES:
            listed.append({"content_type": ContentType.OPAQUE, "provider": "canonical", "type": kind, "value": item})
        else:
            listed.append(item)
    return listed


def _result_content(content: Any) -> Any:
    """Parts where every item is one (an instance, or an object with a `content_type`), else a JSON value."""
    if not isinstance(content, list | tuple) or not content or not all(map(_is_part, content)):
        return freeze(content)
    try:
        return _parts().validate_python(known_parts(content))
    except ValidationError as error:
        raise shape_error(error, root="") from None


def _is_part(item: Any) -> bool:
    return isinstance(item, Part) or (isinstance(item, dict) and "content_type" in item)


@cache
def _parts() -> TypeAdapter[tuple[ContentPart, ...]]:
    return TypeAdapter(tuple[ContentPart, ...])


if TYPE_CHECKING:
    # Constructors take any sequence and keep a tuple.
    Messages: TypeAlias = Sequence["Message"]
    Parts: TypeAlias = Sequence[Part]
    ResultContent: TypeAlias = JsonValue | Sequence[Part]
else:
    Messages = tuple["Message", ...]
    Parts = Annotated[tuple[ContentPart, ...], BeforeValidator(known_parts)]
    ResultContent = Annotated[Any, PlainValidator(_result_content), WithJsonSchema({})]


# -- extensions: everything about a message that is not its content ----------------------------------------------------

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Money = Annotated[Decimal, BeforeValidator(lambda amount: str(amount) if isinstance(amount, float) else amount)]


@value
class RequestExtension(Value):
    """Where and when the request runs, and its trace."""

    environment: Str | None = None
    request_id: Str | None = None
    timestamp: Str | None = None
    trace_id: Str | None = None
    span_id: Str | None = None


@value
class ConversationContext(Value):
    """Earlier messages, in full or as a summary."""

    history: tuple[Message, ...] | None = None
    summary: Str | None = None
    topics: tuple[Str, ...] = ()


@value
class AgentExtension(Value):
    """Which agent, in which session and turn, and what the user asked for. `turn` counts from 0."""

    input: Str | None = None
    session_id: Str | None = None
    conversation_id: Str | None = None
    turn: Count | None = None
    agent_id: Str | None = None
    parent_agent_id: Str | None = None
    conversation: ConversationContext | None = None


@value
class HttpExtension(Value):
    """HTTP context. The values of sensitive headers never leave the process: see `HttpHeaders`."""

    headers: Headers = HttpHeaders()

    def get_header(self, name: str) -> str | None:
        """The header's value, whatever the case of its name, also of a sensitive one; None without it."""
        return HttpHeaders(self.headers).get_header(name)


@value
class ToolMetadata(Value):
    """An MCP server's description of a tool."""

    name: Str
    title: Str | None = None
    description: Str | None = None
    input_schema: JsonObject | None = None
    output_schema: JsonObject | None = None
    server_id: Str | None = None
    namespace: Str | None = None
    annotations: JsonObject = FrozenDict()


@value
class ResourceMetadata(Value):
    """An MCP server's description of a resource."""

    uri: Str
    name: Str | None = None
    description: Str | None = None
    mime_type: Str | None = None
    server_id: Str | None = None
    annotations: JsonObject = FrozenDict()


@value
class PromptMetadata(Value):
    """An MCP server's description of a prompt. Arguments are a list, not a schema; there is no output schema."""

    name: Str
    description: Str | None = None
    arguments: tuple[FrozenDict, ...] | None = None
    server_id: Str | None = None
    annotations: JsonObject = FrozenDict()


@value
class MCPExtension(Value):
    """Metadata of the entity that is being processed; one of the three is set."""

    tool: ToolMetadata | None = None
    resource: ResourceMetadata | None = None
    prompt: PromptMetadata | None = None


@value
class TokenUsage(Value):
    """Tokens of one generation. `input_tokens` excludes cached and cache-write tokens [A10]."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count = 0
    cached_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0


@value
class CompletionExtension(Value):
    """How a generation ended, what it used and what it cost. `model` is the one that the provider names [A11]."""

    stop_reason: StopReason | None = None
    raw_stop_reason: Str | None = None
    tokens: TokenUsage | None = None
    model: Str | None = None
    raw_format: Str | None = None
    created_at: Str | None = None
    latency_ms: Count | None = None
    cost_usd: Money | None = None
    pricing_version: Str | None = None


@value
class ProvenanceExtension(Value):
    """Where the message came from. The two ids are twins of the message's own: None or equal [A11]."""

    source: Str | None = None
    message_id: Str | None = None
    parent_id: Str | None = None


@value
class LLMExtension(Value):
    """The model that is asked or that answered; `model_id` is `<provider>:<model>`."""

    model_id: Str | None = None
    provider: Str | None = None
    capabilities: tuple[Str, ...] = ()


@value
class FrameworkExtension(Value):
    """The agent framework around the message."""

    framework: Str | None = None
    framework_version: Str | None = None
    node_id: Str | None = None
    graph_id: Str | None = None
    metadata: JsonObject = FrozenDict()


@value
class MetaExtension(Value):
    """The host's own data about the message: tags, a scope, free properties; `critical` forbids any loss [A13]."""

    tags: tuple[Str, ...] = ()
    scope: Str | None = None
    properties: JsonObject = FrozenDict()


@value
class RoutingExtension(Value):
    """The compact record of a routing decision; `confidence` from 0 to 1."""

    mode: RoutingMode
    chosen_model: Str
    reason: Str
    rule_name: Str | None = None
    confidence: Fraction | None = None
    alternatives_considered: tuple[Str, ...] = ()


@value
class DelegationHop(Value):
    """One hand-over of authority: who gave it to whom, for what, until when."""

    delegator: Str
    delegate: Str
    scope: tuple[Str, ...] = ()
    reason: Str | None = None
    granted_at: UtcTime | None = None
    expires_at: UtcTime | None = None


@value
class DelegationExtension(Value):
    """The chain of hand-overs, oldest first. It only grows at its end."""

    chain: tuple[DelegationHop, ...] = ()


@value
class Extensions(Value):
    """The only carrier of context. A slot that is None is absent."""

    request: RequestExtension | None = None
    agent: AgentExtension | None = None
    http: HttpExtension | None = None
    security: SecurityExtension | None = None
    mcp: MCPExtension | None = None
    completion: CompletionExtension | None = None
    provenance: ProvenanceExtension | None = None
    llm: LLMExtension | None = None
    framework: FrameworkExtension | None = None
    meta: MetaExtension | None = None
    routing: RoutingExtension | None = None
    delegation: DelegationExtension | None = None
    custom: JsonObject | None = None


# -- the message -------------------------------------------------------------------------------------------------------

SCHEMA_VERSION: int = CURRENT

_Function = TypeVar("_Function", bound=Callable[..., Any])

NO_SHAPE: Final = FrozenDict()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a message was spelled on its wire: grouping, absent against null, the text of embedded JSON [A15].

    It holds no fact: an adapter uses it only if decoding what it yields gives exactly this message again. It is made by
    adapters alone; no JSON form of a message has it, so none can bring one in.

    `group` numbers the wire message (or item) that this message was part of, `size` how many messages came from it.
    """

    format: str
    group: int = 0
    size: int = 1
    shape: FrozenDict = NO_SHAPE


@value
class Message(Value):
    """One turn: a role and an ordered list of parts; everything else is optional [A2]."""

    role: Role
    content: Parts
    id: Str | None = None
    session_id: Str | None = None
    parent_id: Str | None = None
    channel: Channel | None = None
    status: MessageStatus = MessageStatus.COMPLETE
    created_at: UtcTime | None = None
    schema_version: Annotated[int, Field(strict=True, ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    extensions: Extensions | None = None
    extra: JsonObject | None = None
    provider_raw: Layout | None = dataclasses.field(
        default=None, init=False, compare=False, repr=False, metadata={"dump": False}
    )

    @property
    def parent_tool_use_id(self) -> str | None:
        """The id of the call that a tool message answers: derived, so that it cannot disagree [A11]."""
        for part in self.content:
            if isinstance(part, ToolResultPart):
                return part.tool_call_id
        return None

    @property
    def hash(self) -> str:
        """SHA-256, in hex, of the whole message but its layout; see `cmf.message.digests`."""
        digest: str = _derived["value_hash"](self)
        return digest

    @property
    def content_digest(self) -> str:
        """SHA-256, in hex, of the message's content, without generated ids; see `cmf.message.digests`."""
        digest: str = _derived["content_digest"](self)
        return digest

    def iter_views(
        self, *, hook: Hook | str | None = None, capabilities: Iterable[Capability | str] | None = None
    ) -> Iterator[MessageView]:
        """The views of this message: see `cmf.iter_views`."""
        views: Iterator[MessageView] = _derived["iter_views"](self, hook=hook, capabilities=capabilities)
        return views

    @model_validator(mode="before")
    @classmethod
    def _current(cls, data: Any) -> Any:
        """Older schema versions are read into this one, wherever a message occurs; newer ones are refused [A14]."""
        if isinstance(data, dict):
            role = data.get("role")
            if isinstance(role, str) and role not in _ROLES:
                raise UnknownRoleError("unknown role", path="$.role", hint=f"use one of {', '.join(Role)}")
            return upgrade_message(data)
        if isinstance(data, ArgsKwargs):
            refuse_newer(data.kwargs or {})
        return data


class _Derived(dict[str, Callable[..., Any]]):
    def __missing__(self, name: str) -> NoReturn:
        raise CmfError(f"{name} is not loaded", hint="import Message from cmf", code="message.not-loaded")


_derived: Final = _Derived()


def derived(function: _Function) -> _Function:
    """Let messages have `function` as a method. It sits above this module, since it takes requests too."""
    _derived[function.__name__] = function
    return function


_ROLES: Final = frozenset(map(str, Role))
