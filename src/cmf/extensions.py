"""Everything about a message that is not its content, each fact in one slot. Spec: docs/spec/extensions.md.

How each slot may change on its way through the pipeline, and who may read it, stands in `cmf.tiers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cmf.enums import RoutingMode, StopReason
from cmf.frozen import FrozenDict, JsonObject
from cmf.headers import is_sensitive
from cmf.security import SecurityExtension
from cmf.value import Count, Str, UtcTime, Value, value

if TYPE_CHECKING:
    from cmf.message import Message

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Money = Annotated[Decimal, BeforeValidator(lambda amount: str(amount) if isinstance(amount, float) else amount)]


class _Values:
    """The values of sensitive headers. No copy, pickle or text of it has them."""

    __slots__ = ("texts",)

    def __init__(self, texts: Mapping[str, str] = FrozenDict()) -> None:
        self.texts = texts

    def __repr__(self) -> str:
        return "<withheld>"

    def __reduce__(self) -> tuple[type[_Values], tuple[()]]:
        return _Values, ()


_NO_VALUES: Final = _Values()


class HttpHeaders(FrozenDict):
    """HTTP headers by name. The value of a sensitive one is None, here and in whatever is made of it [EXT-9].

    `get_header` alone gives such a value, and only while the object it was given to lives: JSON, pickles and copies
    made by field keep the name, with null, which is no header's text.
    """

    __slots__ = ("_values",)
    _values: _Values

    def __new__(cls, headers: Mapping[str, str | None] = FrozenDict()) -> Self:  # noqa: D102  (as `dict`)
        if type(headers) is cls:
            return headers
        given = dict(headers)
        values = {name: text for name, text in given.items() if text is not None and is_sensitive(name)}
        made = dict.__new__(cls)
        dict.update(made, {name: None if name in values else text for name, text in given.items()})
        made._values = _Values(values) if values else _NO_VALUES
        return made

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and (type(other) is not HttpHeaders or exposed(self) == exposed(other))

    __hash__ = FrozenDict.__hash__

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return HttpHeaders, (dict(self),)

    def get_header(self, name: str) -> str | None:
        """The header's value, whatever the case of its name; None without it, or if its value was not kept."""
        wanted = name.lower()
        return next((text for key, text in exposed(self).items() if key.lower() == wanted), None)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(given: Any, texts: Any) -> HttpHeaders:
            if type(given) is cls:
                return given
            read = texts(given)
            if any(text is None and not is_sensitive(name) for name, text in read.items()):
                raise PydanticCustomError("string_type", "Only the value of a sensitive header may be null")
            return cls(read)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(dict[Str, Str | None]))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema)


def exposed(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """All headers with their values, sensitive ones too; None for one that was not kept. Never for a reader."""
    values = headers._values.texts if isinstance(headers, HttpHeaders) else FrozenDict()
    return {name: values.get(name, text) for name, text in headers.items()}


if TYPE_CHECKING:
    # Constructors take any mapping.
    Headers: TypeAlias = Mapping[str, str | None]
else:
    Headers = HttpHeaders


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


import cmf.message  # noqa: E402, F401 - values here hold messages: whoever loads this module must be able to build them
