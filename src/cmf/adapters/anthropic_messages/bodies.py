"""Requests and responses of the Messages format, both ways. Spec: docs/spec/adapters/anthropic_messages.md.

The envelope of a request (everything but `system` and `messages`) and each wire message are read and spelled on their
own, so that an edit of one message leaves the spelling of the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cmf.adapters.anthropic_messages.parts import FORMAT, HINT, Names, decode_blocks, encode_content, is_own, rest_of
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import call_names, marked_again, with_ids
from cmf.adapters.wire.fields import (
    MARK,
    PARTIAL,
    Fields,
    as_text,
    extra_of,
    merge,
    object_in,
    opened,
    read_sampling,
    role_named,
    unmarked,
    write_definition,
    write_sampling,
)
from cmf.adapters.wire.layout import (
    grouped,
    joined,
    only_text,
    respell,
    respell_one,
    shape_of,
    spelled,
    spelled_one,
    user_runs,
)
from cmf.adapters.wire.loss import drop, drop_foreign_extra, narrowed, own_extra
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import Layout, Message, Part, TextPart, TokenUsage, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, ErrorInfo, Request, Response, ToolChoice, ToolChoiceMode
from cmf.message.tools import ToolDefinition
from cmf.message.transform import has_client_call
from cmf.models.capabilities import lookup

_HTTP: Final = f"{FORMAT}.http"
"""Where a request keeps the headers that change what its body means."""

DEFAULT_MAX_TOKENS: Final = 4096  # the format wants a limit; every model it serves can write this much
EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_HEADERS: Final = ("anthropic-beta", "anthropic-version")
_TOP: Final = -1  # the group number of what came in `system`
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_ROLE_WORDS: Final = {Role.ASSISTANT: "assistant", Role.SYSTEM: "system", Role.DEVELOPER: "system"}
_BARE: Final = FrozenDict({"at": {"content": {"block": "text"}}})  # the layout of content that is a bare text
_MESSAGE_KEYS: Final = frozenset({"role", "content"})
_SAMPLING: Final = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
}
_UNSUPPORTED_SAMPLING: Final = ("seed", "frequency_penalty", "presence_penalty")
_VERSION: Final = "2023-06-01"
_MODES: Final[dict[str, ToolChoiceMode]] = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_MODE_WORDS: Final = {mode: word for word, mode in _MODES.items()}
# Schemas of the provider, run by the client.
_CLIENT_RUN: Final = ("bash_", "browser_", "computer_", "memory_", "text_editor_")
_NAME_KEYS: Final = {"mcp_toolset": "mcp_server_name"}
_NO_PARAMETERS: Final = FrozenDict({"type": "object", "properties": {}})


# -- reading requests --------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The request that a body describes, or a body for counting tokens. It keeps the `anthropic-*` headers."""
    raw = opened(body)
    messages = raw.get("messages")
    names: Names = {}
    if not isinstance(messages, list):
        raise ShapeError("`messages` is no array", path="$.messages", hint=HINT)
    read = list(_decode_system(raw.get("system"), names))
    for index, item in enumerate(messages):
        read += _decode_message(item, index, names)
    head = frozen_mapping({key: item for key, item in raw.items() if key not in ("system", "messages")})
    request = replace(_decode_head(head, model=model, headers=headers), messages=tuple(read))
    if "system" in raw and not raw["system"]:
        head = frozen_mapping({**head, "system": raw["system"]})  # null or empty: nothing but spelling
    return spelled_one(request, _encode_head(request), head, format_name=FORMAT)


def _decode_head(head: Any, *, model: str | None, headers: Mapping[str, str]) -> Request:
    fields = Fields(head, "$")
    own_model = fields.take("model", str)
    choice = _decode_choice(fields)
    effort, schema = _decode_output(fields)
    tools, sampling, stream = _decode_tools(fields), read_sampling(fields, _SAMPLING), fields.take("stream", bool)
    extra = fields.rest(FORMAT)
    lower = {name.lower(): text for name, text in headers.items()}
    if kept := {name: lower[name] for name in _HEADERS if name in lower}:
        extra = frozen_mapping({**(extra or {}), _HTTP: freeze(kept)})
    return trusted(
        Request,
        model=own_model if own_model is not None else model,
        tools=tools,
        tool_choice=choice,
        response_schema=schema,
        sampling=sampling,
        reasoning_effort=effort,
        stream=stream,
        extra=extra,
    )


def _decode_output(fields: Fields) -> tuple[str | None, FrozenDict | None]:
    """Effort and schema. The schema is in `output_config.format`, or in the older `output_format`."""
    config = object_in(fields.left(), "output_config")
    effort = as_text(config.get("effort"))
    if effort in EFFORTS:
        fields.take_in(("output_config",), effort=str)
    older = fields.peek("output_format")
    schema = _schema_in(older if "output_format" in fields else config.get("format"))
    if schema is None and object_in(fields.left(), "output_format").get("type") == "json_schema":
        raise ShapeError("a JSON schema is no object", path="$.output_format.schema", hint="send the schema")
    if schema is not None and "output_format" in fields:
        fields.take_in(("output_format",), schema=dict)  # its `type` stays: the schema is written there again
    elif schema is not None:
        fields.take_in(("output_config", "format"), type=str, schema=dict)
    return effort if effort in EFFORTS else None, schema


def _schema_in(form: Any) -> FrozenDict | None:
    schema = form.get("schema") if isinstance(form, dict) and form.get("type") == "json_schema" else None
    return schema if isinstance(schema, FrozenDict) else None


def _decode_system(system: Any, names: Names) -> tuple[Message, ...]:
    if not system and (system is None or isinstance(system, str | list)):
        return ()
    if isinstance(system, str):
        parts: list[Part] = [trusted(TextPart, text=system)]
    elif isinstance(system, list):
        parts = decode_blocks(system, "$.system", names)
    else:
        raise ShapeError("`system` is no text and no list of blocks", path="$.system", hint="send text blocks")
    message = trusted(Message, role=Role.SYSTEM, content=tuple(parts))
    raw = {"role": "system", "content": system}
    return spelled(
        (message,), _encode_group((message,)), raw, format_name=FORMAT, path="$.system", index=_TOP, keep=True
    )


def _decode_message(item: Any, index: int, names: Names) -> tuple[Message, ...]:
    path = f"$.messages[{index}]"
    if (plain_message := _read_plain(item, index)) is not None:
        return (plain_message,)
    group = _group_in(item, path, names)
    # Without a layout, results of parallel calls are put together and system text is moved to the front.
    keep = group[0].role in (Role.TOOL, Role.SYSTEM)
    return spelled(group, _encode_group(group), item, format_name=FORMAT, path=path, index=index, keep=keep)


def _read_plain(item: Any, index: int) -> Message | None:
    """The message of a user or assistant that is one text, bare or in a block, and nothing else; None for any other."""
    if not isinstance(item, dict) or item.keys() != _MESSAGE_KEYS:
        return None
    role, content = item["role"], item["content"]
    is_bare = not isinstance(content, list) or len(content) != 1
    block = {"type": "text", "text": content} if is_bare else content[0]
    if role not in ("user", "assistant") or not isinstance(block, dict) or block.keys() != {"type", "text"}:
        return None
    text = block["text"]
    if block["type"] != "text" or not isinstance(text, str) or not text:
        return None
    written = Layout(format=FORMAT, group=index, shape=_BARE) if is_bare else None
    return trusted(Message, role=_ROLES[role], content=(trusted(TextPart, text=text),), provider_raw=written)


def _group_in(item: Any, path: str, names: Names) -> tuple[Message, ...]:
    """The canonical messages of one wire message: one, but for results, which are a message of their own each."""
    if not isinstance(item, dict):
        raise ShapeError("expected a message", path=path, hint=HINT)
    role, content = role_named(item.get("role"), _ROLES, path), item.get("content")
    if isinstance(content, str):
        parts: list[Part] = [trusted(TextPart, text=content)]
    elif isinstance(content, list):
        parts = decode_blocks(content, f"{path}.content", names, role)
    elif role is Role.SYSTEM and "content" not in item:
        parts = []  # it sets something from here on, such as `output_config`
    else:
        raise ShapeError("`content` is no text and no list of blocks", path=f"{path}.content", hint="send blocks")
    extra = rest_of(item, _MESSAGE_KEYS) if item.keys() != _MESSAGE_KEYS else None
    if role is not Role.USER or not any(isinstance(part, ToolResultPart) for part in parts):
        return (trusted(Message, role=role, content=tuple(parts), extra=extra),)
    return tuple(
        trusted(Message, role=each, content=run, extra=extra if at == 0 else None)
        for at, (each, run) in enumerate(user_runs(parts))
    )


# -- writing requests --------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """`POST /v1/messages`, with the version and the betas that the request came with."""
    return HttpCall(path="/v1/messages", headers={"anthropic-version": _VERSION, **extra_of(request, _HTTP)})


def write_request(request: Request) -> dict[str, Any]:
    """The body of a request."""

    def decode(spelt: Any) -> Request:
        spelt_head = frozen_mapping({key: item for key, item in spelt.items() if key != "system"})
        return _decode_head(spelt_head, model=request.model, headers=extra_of(request, _HTTP))

    head = replace(request, messages=())
    body = respell_one(_encode_head(request), head, format_name=FORMAT, decode=decode)
    system, listed = _encode_turns(request)
    if system:
        body["system"] = system
    body["messages"] = listed
    return body


def _encode_turns(request: Request) -> tuple[Any, list[dict[str, Any]]]:
    """What goes into `system`, and the wire messages."""
    top: list[tuple[Message, ...]] = []
    listed: list[dict[str, Any]] = []
    names: Names = {}
    for group in _groups(with_ids(marked_again(request.messages, FORMAT))):
        if _goes_on_top(group, request.model, listed):
            top.append(group)
            continue
        wire = _respelled(group, names)
        if wire.get("content") != [] or not any(message.content for message in group):
            listed.append(wire)
    if len(top) == 1:
        return _respelled(top[0], names)["content"], listed
    return [block for group in top for block in _encode_group(group)["content"]], listed


def _encode_head(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {} if request.model is None else {"model": request.model}
    if request.tool_choice is not None:
        request = narrowed(FORMAT, request)
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    if request.tool_choice is not None:
        body["tool_choice"] = _encode_choice(request.tool_choice)
    own = own_extra(FORMAT, request, "request")
    limit = {} if "max_tokens" in own else {"max_tokens": DEFAULT_MAX_TOKENS}
    body |= limit | write_sampling(request.sampling, _SAMPLING) | present(stream=request.stream)
    if request.reasoning_effort is not None or request.response_schema is not None:
        _encode_output(request, body, own)
    for name in _UNSUPPORTED_SAMPLING:
        if getattr(request.sampling, name) is not None:
            drop(FORMAT, f"sampling.{name}", "the format has no such field")
    if request.reasoning_effort is not None and request.reasoning_effort not in EFFORTS:
        drop(FORMAT, "reasoning_effort", "the format has no such level")
    if request.response_schema_name is not None:
        drop(FORMAT, "response_schema_name", "the format does not name schemas")
    return merge(body, _fitting(own, body)) if own else body


def _encode_output(request: Request, body: dict[str, Any], own: dict[str, Any]) -> None:
    config: dict[str, Any] = {}
    if request.reasoning_effort in EFFORTS:
        config["effort"] = request.reasoning_effort
    if request.response_schema is not None:
        older = own.get("output_format")
        if _awaits_schema(older):
            body["output_format"] = {"schema": request.response_schema}  # its `type` rode along
        else:
            config["format"] = {"type": "json_schema", "schema": request.response_schema}
    if config:
        body["output_config"] = config


def _awaits_schema(older: Any) -> bool:
    """Whether an `output_format` that rode along is what reading left when it took the schema out."""
    return isinstance(older, dict) and older.get("type") == "json_schema" and "schema" not in older


def _fitting(own: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """What rode along, without the leftovers of a tool choice or schema that has been taken away since."""
    left = dict(own)
    choice = left.get("tool_choice")
    if isinstance(choice, dict) and "type" not in choice and "tool_choice" not in body:
        del left["tool_choice"]
    older = left.get("output_format")
    if _awaits_schema(older) and "output_format" not in body:
        del left["output_format"]
    return left


def _encode_group(group: Sequence[Message]) -> dict[str, Any]:
    """The wire message that a group of canonical ones makes, spelled plainly: content is a list of blocks."""
    wire: dict[str, Any] = {"role": _ROLE_WORDS.get(group[0].role, "user"), "content": []}
    for message in group:
        for part in message.content:
            # Text that is no JSON object may not pose as arguments.
            is_broken = type(part) is ToolCallPart and part.arguments is None and part.arguments_raw
            if is_broken and not is_own(part):
                hint = "leave the call out, or mend it"
                raise UnsupportedError("arguments that are no JSON object", about=part, hint=hint)
        wire["content"] += encode_content(message)
        if message.extra:
            merge(wire, own_extra(FORMAT, message, "message", message=message))
    return wire


def _respelled(group: Sequence[Message], names: Names) -> dict[str, Any]:
    if len(group) == 1 and (text := only_text(group[0])):
        shape = shape_of(group[0], FORMAT)
        if not shape or shape == _BARE:
            content = text if shape else [{"type": "text", "text": text}]
            return {"role": _ROLE_WORDS.get(group[0].role, "user"), "content": content}
    wire = respell(_encode_group(group), group, format_name=FORMAT, decode=lambda spelt: _group_in(spelt, "$", names))
    names |= call_names(group)
    return wire


def _groups(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Messages by the wire message they make: as they came; results that came from elsewhere share one."""

    def loose(group: tuple[Message, ...]) -> bool | None:
        own = group[0].provider_raw
        kept = own is not None and own.format == FORMAT and own.size == len(group)
        return (not kept and all(message.role is Role.TOOL for message in group)) or None

    return joined(grouped(messages, FORMAT), loose)


def _goes_on_top(group: tuple[Message, ...], model: str | None, listed: list[dict[str, Any]]) -> bool:
    """Whether system text belongs in `system`: what came so, what leads, and what the model takes nowhere else."""
    if group[0].role not in (Role.SYSTEM, Role.DEVELOPER):
        return False
    own = group[0].provider_raw
    if own is not None and own.format == FORMAT:
        return own.group == _TOP
    return not listed or not lookup(FORMAT, model or "").supports_system_messages_in_list


# -- tools and tool choice, both directions [ANT-4] --------------------------------------------------------------------


def _decode_tools(fields: Fields) -> tuple[ToolDefinition, ...]:
    listed = fields.optional("tools", list) or ()
    return tuple(_decode_tool(tool, f"$.tools[{index}]") for index, tool in enumerate(listed))


def _decode_tool(tool: Any, path: str) -> ToolDefinition:
    if not isinstance(tool, dict):
        raise ShapeError("expected a tool definition", path=path, hint=HINT)
    kind = tool.get("type")
    if not isinstance(kind, str) or kind == "custom":
        kind = None  # the client's own tool; a type, if there is one, rides along
    fields: dict[str, Any] = (
        {} if kind is None else {"type": kind, "executed_by": "client" if kind.startswith(_CLIENT_RUN) else "provider"}
    )
    taken = set(fields) - {"executed_by"}
    for key, shape in (("description", str), ("input_schema", dict)):
        if isinstance(tool.get(key), shape):
            taken.add(key)
            fields[key] = tool[key]
    name_key = _NAME_KEYS.get(kind or "", "name")
    if isinstance(tool.get(name_key), str):
        taken.add(name_key)
        fields["name"] = tool[name_key]
    elif kind is not None and name_key not in tool:
        fields["name"] = kind
    else:
        raise ShapeError(f"`{name_key}` is no string", path=f"{path}.{name_key}", hint="name the tool")
    return trusted(ToolDefinition, **fields, extra=rest_of(tool, frozenset(taken), always=kind is not None))


def _encode_tool(tool: ToolDefinition) -> dict[str, Any]:
    if (tool.type is not None or tool.executed_by == "provider") and not is_own(tool):
        raise UnsupportedError(
            "a tool of another provider cannot be offered here",
            about=tool,
            hint="route to its provider, or leave the tool out",
        )
    own = own_extra(FORMAT, tool, "tool_definition")
    wire = write_definition(tool, "input_schema")
    if tool.type is not None:
        wire = {_NAME_KEYS.get(tool.type, "name"): wire.pop("name"), "type": tool.type, **wire}
    elif "input_schema" not in own:
        wire.setdefault("input_schema", dict(_NO_PARAMETERS))  # the format wants one
    return merge(wire, own) if own else wire


def _decode_choice(fields: Fields) -> ToolChoice | None:
    """The canonical tool choice; what of the wire's it cannot hold stays. ShapeError for one without a type."""
    choice = fields.peek("tool_choice")
    if not isinstance(choice, dict):
        return None
    kind, name = choice.get("type"), choice.get("name")
    if not isinstance(kind, str):
        raise ShapeError("`type` is no string", path="$.tool_choice.type", hint=f"use one of {', '.join(_MODES)}")
    mode = _MODES.get(kind)
    if mode is None or (mode == "tool") is not isinstance(name, str):
        return None
    fields.take_in(("tool_choice",), type=str, **({"name": str} if mode == "tool" else {}))
    return trusted(ToolChoice, mode=mode, name=name)


def _encode_choice(choice: ToolChoice) -> dict[str, Any]:
    return {"type": _MODE_WORDS[choice.mode], **present(name=choice.name)}


OTHER_EVENTS: Final = f"{MARK}events"  # what a stream had beside its message
_UNCALLED: Final = f"{FORMAT}.uncalled"  # marks the extra of a choice that stopped for a call and came without one
_BLANK: Final = {
    "id": "msg_0",  # the format wants an id; none is minted
    "type": "message",
    "role": "assistant",
    "model": "",
    "stop_sequence": None,
    "usage": {"input_tokens": 0, "output_tokens": 0},
}

_REASONS: Final = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.CALL,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.PAUSE,
    "compaction": StopReason.PAUSE,
}
_REASON_WORDS: Final = {
    StopReason.CALL: "tool_use",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.REFUSAL: "refusal",
    StopReason.CONTENT_FILTER: "refusal",
    StopReason.PAUSE: "pause_turn",
}
_COUNTS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cached_input_tokens",
    "cache_creation_input_tokens": "cache_creation_input_tokens",
}


# -- reading responses -------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The response of a whole body or of the fold of a stream; `context` names the tools that its results answer."""
    raw = freeze(body)
    messages = context.messages if context is not None else ()
    response = _read(raw, {**_result_names(messages), **call_names(messages)})
    if response is None:
        return unrecognized(raw, FORMAT)
    return spelled_one(response, _encode_response(response), unmarked(raw), format_name=FORMAT)


def _read(raw: Any, names: Names) -> Response | None:
    """The response without its layout; None if it is neither a message nor an error or a count of this format."""
    if not isinstance(raw, dict):
        return None
    if "content" in raw and (isinstance(raw["content"], list) or "role" in raw or raw.get("type") == "message"):
        return _decode_answer(raw, names)
    return _decode_error(raw) if isinstance(raw.get("error"), dict) else _decode_count(raw)


def _decode_error(raw: Any) -> Response:
    fields = Fields(raw, "$")
    fields.drop("type", "error")
    return trusted(Response, error=_error_info(fields), extra=fields.rest(FORMAT))


def _error_info(fields: Fields) -> ErrorInfo:
    message, kind = fields.take_in(("error",), message=str, type=str)
    fields.drop("error", FrozenDict())
    return trusted(ErrorInfo, message=message, type=kind)


def _decode_count(raw: Any) -> Response | None:
    fields = Fields(raw, "$")
    count = fields.take("input_tokens", int)
    if count is None or not 0 <= count <= SAFE_INTEGER:
        return None
    usage = trusted(TokenUsage, input_tokens=count, total_tokens=count)
    return trusted(Response, usage=usage, extra=fields.rest(FORMAT))


def _decode_answer(raw: Any, names: Names) -> Response:
    fields = Fields(raw, "$")
    content = fields.need("content", list) if fields.peek("content") is not None else ()
    fields.drop("content", None)  # gateways write an empty answer so
    raw_role = fields.take("role", str)
    if raw_role not in (None, "assistant"):
        raise ShapeError("`role` is not `assistant`", path="$.role", hint="a reply is the assistant's")
    fields.drop("type", "message")
    message = trusted(
        Message,
        role=Role.ASSISTANT,
        content=tuple(decode_blocks(content, "$.content", names, Role.ASSISTANT)),
        id=fields.take("id", str),
        status=MessageStatus.PARTIAL if fields.peek(PARTIAL) is True else MessageStatus.COMPLETE,
    )
    fields.drop(PARTIAL, True)
    choice = _decode_ending(fields, message)
    error = _error_info(fields) if isinstance(fields.peek("error"), dict) else None
    usage = _decode_usage(fields)
    model = fields.take("model", str)
    return trusted(Response, choices=(choice,), usage=usage, model=model, error=error, extra=fields.rest(FORMAT))


def _decode_ending(fields: Fields, message: Message) -> Choice:
    raw = fields.take("stop_reason", str)
    if raw is None and fields.peek("stop_reason") is not None:
        raise ShapeError("`stop_reason` is no string", path="$.stop_reason", hint=HINT)
    fields.drop("stop_reason", None)
    left: dict[str, Any] = {}
    for key in ("stop_sequence", "stop_details"):
        if (item := fields.peek(key)) is not None:
            left[key] = item
            fields.take(key, type(item))
        fields.drop(key, None)
    reason = None if raw is None else _REASONS.get(raw, StopReason.OTHER)
    extra: dict[str, Any] = {}
    if left or reason is StopReason.OTHER:
        extra[FORMAT] = frozen_mapping(left)
    if reason is StopReason.CALL and not has_client_call(message.content):
        extra[_UNCALLED] = FrozenDict()
    kept = frozen_mapping(extra) if extra else None
    return trusted(Choice, message=message, stop_reason=reason, raw_stop_reason=raw, extra=kept)


def _decode_usage(fields: Fields) -> TokenUsage | None:
    usage = fields.take("usage", dict)
    if usage is None:
        return None
    left = dict(usage)
    counts = {
        field: left.pop(key)
        for key, field in _COUNTS.items()
        if type(left.get(key)) is int and 0 <= left[key] <= SAFE_INTEGER
    }
    if left:
        fields.put_back("usage", frozen_mapping(left))
    return trusted(TokenUsage, **counts, total_tokens=sum(counts.values()))


def _result_names(messages: Sequence[Message]) -> Names:
    """The names of the tools whose results stand before their calls, or alone, by the id of the call."""
    parts = [
        part for message in messages for part in message.content if isinstance(part, ToolCallPart | ToolResultPart)
    ]
    first = {part.tool_call_id: part for part in reversed(parts)}
    names = {call_id: part.tool_name for call_id, part in first.items() if isinstance(part, ToolResultPart)}
    return {call_id: name for call_id, name in names.items() if call_id is not None and name is not None}


# -- writing responses -------------------------------------------------------------------------------------------------


def write_response(response: Response) -> Any:
    """The body of a response: a message, an error, or a count of tokens."""
    # Those that reading began with: a response learns the names of its own calls as they come.
    names = _result_names([choice.message for choice in response.choices])

    def decode(spelt: Any) -> Response:
        return _read(spelt, dict(names)) or unrecognized(spelt, FORMAT)

    return respell_one(_encode_response(response), response, format_name=FORMAT, decode=decode)


def _encode_response(response: Response) -> dict[str, Any]:
    extra = unmarked(own_extra(FORMAT, response, "response"))
    if len(response.choices) > 1:
        raise UnsupportedError("the format has one choice per response", path="choices", hint="send one of them")
    body: dict[str, Any] = {}
    usage = response.usage
    is_answer = bool(response.choices) or response.error is None
    if usage is not None and not response.choices and is_answer and usage.total_tokens == usage.input_tokens:
        body = {"input_tokens": usage.input_tokens}  # nothing but a count of the tokens of a request
    elif is_answer:
        said = _encode_answer(response) if response.choices else {**_SILENT, "model": response.model or ""}
        body = {key: item for key, item in _BLANK.items() if key not in extra} | said
        if usage is not None:
            counts = {key: getattr(usage, field) for key, field in _COUNTS.items()}
            body["usage"] = _beside(counts, extra.get("usage"))
    elif "type" not in extra:
        body["type"] = "error"
    if response.error is not None:
        wire_error = {"type": response.error.type or "api_error", "message": response.error.message or ""}
        body["error"] = _beside(wire_error, extra.get("error"))
    return merge(body, extra)


_SILENT: Final = {"content": [], "stop_reason": "end_turn"}  # an answer of another format that has no choice


def _encode_answer(response: Response) -> dict[str, Any]:
    choice = response.choices[0]
    (message,) = with_ids((choice.message,))
    body = {"content": encode_content(message, answer=True), "stop_reason": _stop_reason(choice)}
    drop_foreign_extra(FORMAT, message, "message", message=message)
    body |= present(id=message.id, model=response.model)
    return body | own_extra(FORMAT, choice, "choice", message=message)


def _beside(written: dict[str, Any], odd: Any) -> dict[str, Any]:
    """What is written, except what the provider sent in a shape of its own, which was kept and stays as it is."""
    return {key: item for key, item in written.items() if not isinstance(odd, dict) or key not in odd}


def _stop_reason(choice: Choice) -> str | None:
    """The wire's word: the provider's own as long as it fits, else derived from the reason and the content."""
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    if reason is None:
        return None
    calls = has_client_call(choice.message.content)
    # The provider's word holds no more after its calls were taken out of the message.
    holds = reason is not StopReason.CALL or calls or _UNCALLED in (choice.extra or {})
    if reason is StopReason.OTHER:
        holds = is_own(choice)
    if raw is not None and _REASONS.get(raw, StopReason.OTHER) is reason and holds:
        return raw
    if reason is StopReason.CALL or reason is StopReason.END:
        return "tool_use" if calls else "end_turn"
    return _REASON_WORDS.get(reason, "end_turn")
