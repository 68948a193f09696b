"""Generated values of the format, for properties that hold of all of them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from cmf import (
    AgentExtension,
    AudioPart,
    Choice,
    CompletionExtension,
    ContentType,
    ConversationContext,
    DataPolicy,
    DelegationExtension,
    DelegationHop,
    DocumentPart,
    ErrorInfo,
    Extensions,
    FrameworkExtension,
    HttpExtension,
    ImagePart,
    LLMExtension,
    MCPExtension,
    Message,
    MetaExtension,
    ObjectSecurityProfile,
    OpaquePart,
    PromptMetadata,
    PromptRequestPart,
    PromptResultPart,
    ProvenanceExtension,
    RedactedThinkingPart,
    Request,
    RequestExtension,
    ResourceMetadata,
    ResourcePart,
    ResourceRefPart,
    Response,
    RetentionPolicy,
    RoutingExtension,
    Sampling,
    SecurityExtension,
    SubjectExtension,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolMetadata,
    ToolResultPart,
    VideoPart,
)
from cmf.enums import Channel, MessageStatus, ResourceType, Role, RoutingMode, SideEffects, StopReason, SubjectType

text = st.text(max_size=12)
name = st.text(min_size=1, max_size=8)
maybe = st.none() | text
count = st.integers(0, 10_000)
number = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
json_value: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
json_object = st.dictionaries(text, json_value, max_size=3)
extra = st.none() | st.dictionaries(st.sampled_from(["openai_chat", "gemini"]), json_object, min_size=1, max_size=2)
moment = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
base64_text = st.binary(max_size=20).map(lambda raw: base64.b64encode(raw).decode())


def built(cls: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances of `cls` with a random selection of the optional fields (those named with a leading `_`)."""
    required = {key: field for key, field in fields.items() if not key.startswith("_")}
    optional = {key[1:]: field for key, field in fields.items() if key.startswith("_")}
    return st.fixed_dictionaries(required, optional=optional).map(lambda chosen: cls(**chosen))


def media(cls: Any, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    source = st.tuples(st.just("base64"), base64_text | text) | st.tuples(st.sampled_from(["url", "file_ref"]), text)
    fields = st.fixed_dictionaries({}, optional={"media_type": text, "extra": extra, **more})
    return st.tuples(source, fields).map(lambda made: cls(type=made[0][0], data=made[0][1], **made[1]))


leaf_parts = st.one_of(
    built(TextPart, text=text, _extra=extra),
    built(ThinkingPart, text=text, _signature=base64_text | text, _extra=extra),
    built(RedactedThinkingPart, data=base64_text | text, _extra=extra),
    built(
        ToolCallPart,
        name=name,
        _tool_call_id=text,
        _arguments=json_object,
        _arguments_raw=text,
        _namespace=name,
        _executed_by=st.sampled_from(["client", "provider"]),
        _extra=extra,
    ),
    built(
        ToolResultPart, content=json_value, _tool_call_id=text, _tool_name=name, _is_error=st.booleans(), _extra=extra
    ),
    built(
        ResourcePart,
        uri=text,
        _resource_request_id=text,
        _name=name,
        _description=text,
        _resource_type=st.sampled_from(ResourceType),
        _content=text,
        _mime_type=text,
        _size_bytes=count,
        _annotations=json_object,
        _version=text,
        _extra=extra,
    ),
    built(ResourcePart, uri=text, blob=st.binary(max_size=20), _mime_type=text),
    built(
        ResourceRefPart,
        uri=text,
        _name=name,
        _range_start=st.just(3),
        _range_end=st.just(9),
        _selector=text,
        _extra=extra,
    ),
    built(PromptRequestPart, name=name, _arguments=json_object, _server_id=name, _prompt_request_id=text, _extra=extra),
    media(ImagePart),
    media(VideoPart, duration_ms=count),
    media(AudioPart, duration_ms=count),
    media(DocumentPart, title=text),
    built(OpaquePart, provider=name, type=name, value=json_object, _extra=extra),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        built(ToolResultPart, content=st.lists(inner, min_size=1, max_size=2).map(tuple), _tool_name=name),
        built(
            PromptResultPart,
            prompt_name=name,
            messages=st.lists(bare_messages(inner), max_size=2),
            _content=text,
            _error_message=text,
            _is_error=st.booleans(),
            _prompt_request_id=text,
            _extra=extra,
        ),
    )


def bare_messages(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return built(Message, role=st.sampled_from(Role), content=st.lists(inner, max_size=2), _id=name, _extra=extra)


parts = st.recursive(leaf_parts, _nested, max_leaves=4)
labels = st.sets(text, max_size=3)

extensions = built(
    Extensions,
    _request=built(
        RequestExtension, _environment=text, _request_id=text, _timestamp=text, _trace_id=text, _span_id=text
    ),
    _agent=built(
        AgentExtension,
        _input=text,
        _session_id=text,
        _conversation_id=text,
        _turn=count,
        _agent_id=text,
        _parent_agent_id=text,
        _conversation=built(
            ConversationContext,
            _summary=text,
            _topics=st.lists(text, max_size=2),
            _history=st.lists(bare_messages(leaf_parts), max_size=1),
        ),
    ),
    _http=built(HttpExtension, headers=st.dictionaries(name, text, max_size=2)),
    _security=built(
        SecurityExtension,
        _labels=labels,
        _classification=text,
        _subject=built(
            SubjectExtension,
            _id=text,
            _type=st.sampled_from(SubjectType),
            _roles=labels,
            _permissions=labels,
            _teams=labels,
            _claims=json_object,
        ),
        _objects=st.dictionaries(
            name,
            built(
                ObjectSecurityProfile,
                _managed_by=st.sampled_from(["host", "tool", "both"]),
                _permissions=st.lists(text, max_size=2),
                _trust_domain=text,
                _data_scope=st.lists(text, max_size=2),
            ),
            max_size=2,
        ),
        _data=st.dictionaries(
            name,
            built(
                DataPolicy,
                _apply_labels=st.lists(text, max_size=2),
                _allowed_actions=st.lists(text, max_size=2),
                _denied_actions=st.lists(text, max_size=2),
                _retention=built(
                    RetentionPolicy,
                    _max_age_seconds=count,
                    _policy=st.sampled_from(["session", "transient", "persistent", "none"]),
                    _delete_after=moment,
                ),
            ),
            max_size=2,
        ),
    ),
    _mcp=built(
        MCPExtension,
        _tool=built(ToolMetadata, name=name, _title=text, _input_schema=json_object, _annotations=json_object),
        _resource=built(ResourceMetadata, uri=text, _mime_type=text),
        _prompt=built(PromptMetadata, name=name, _arguments=st.lists(json_object, max_size=2)),
    ),
    _completion=built(
        CompletionExtension,
        _stop_reason=st.sampled_from(StopReason),
        _raw_stop_reason=text,
        _tokens=built(TokenUsage, _input_tokens=count, _output_tokens=count, _cached_input_tokens=count),
        _model=text,
        _cost_usd=st.decimals(0, 100, places=6),
        _latency_ms=count,
    ),
    _provenance=built(ProvenanceExtension, _source=text, _message_id=text),
    _llm=built(LLMExtension, _model_id=text, _provider=text, _capabilities=st.lists(text, max_size=2)),
    _framework=built(FrameworkExtension, _framework=text, _metadata=json_object),
    _meta=built(MetaExtension, _tags=st.lists(text, max_size=2), _scope=text, _properties=json_object),
    _routing=built(
        RoutingExtension,
        mode=st.sampled_from(RoutingMode),
        chosen_model=text,
        reason=text,
        _confidence=st.floats(0, 1),
        _alternatives_considered=st.lists(text, max_size=2),
    ),
    _delegation=built(
        DelegationExtension,
        chain=st.lists(
            built(DelegationHop, delegator=text, delegate=text, _scope=st.lists(text), _expires_at=moment), max_size=2
        ),
    ),
    _custom=json_object,
)

messages = built(
    Message,
    role=st.sampled_from(Role),
    content=st.lists(parts, max_size=3),
    _id=name,
    _session_id=name,
    _parent_id=name,
    _channel=st.sampled_from(Channel),
    _status=st.sampled_from(MessageStatus),
    _created_at=moment,
    _extensions=extensions,
    _extra=extra,
)
tools = built(
    ToolDefinition,
    name=name,
    _description=text,
    _input_schema=json_object,
    _namespace=name,
    _type=text,
    _executed_by=st.sampled_from(["client", "provider"]),
    _side_effects=st.sampled_from(SideEffects),
    _extra=extra,
)
sampling = built(
    Sampling,
    _temperature=number,
    _top_p=number,
    _max_output_tokens=count,
    _stop=st.lists(text, max_size=2),
    _seed=count,
)
requests = built(
    Request,
    _model=text,
    messages=st.lists(messages, max_size=2),
    _tools=st.lists(tools, max_size=2),
    _tool_choice=built(ToolChoice, mode=st.sampled_from(["auto", "none", "required", "tool"]), _name=name),
    _response_schema=json_object,
    _response_schema_name=text,
    _sampling=sampling,
    _reasoning_effort=text,
    _stream=st.booleans(),
    _extra=extra,
    _session_id=text,
    _critical_kinds=st.lists(st.sampled_from(ContentType), max_size=2),
)
responses = built(
    Response,
    choices=st.lists(
        built(Choice, message=messages, _stop_reason=st.sampled_from(StopReason), _raw_stop_reason=text, _extra=extra),
        max_size=2,
    ),
    _usage=built(TokenUsage, _input_tokens=count),
    _model=text,
    _error=built(ErrorInfo, _message=text, _type=text, _code=text, _status=count, _retry_after_seconds=count),
    _extra=extra,
)
values = messages | requests | responses
