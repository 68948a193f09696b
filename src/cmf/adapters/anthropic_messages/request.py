"""Requests of the Messages format, both directions. Spec: docs/spec/adapters/anthropic_messages.md.

The envelope (everything but `system` and `messages`) and each wire message are read and spelled on their own, so that
an edit of one message leaves the spelling of the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cmf.adapters.anthropic_messages.parts_in import (
    FORMAT,
    Names,
    decode_assistant,
    decode_blocks,
    is_own,
    learn_calls,
    rest_of,
)
from cmf.adapters.anthropic_messages.parts_out import encode_content
from cmf.adapters.wire import layout
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import marked_again, with_ids
from cmf.adapters.wire.fields import Fields, extra_of, merge, opened, role_named
from cmf.adapters.wire.layout import user_runs
from cmf.adapters.wire.loss import drop, narrowed, own_extra
from cmf.adapters.wire.options import read_sampling, write_definition, write_sampling
from cmf.enums import Role
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import Layout, Message, Part, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import Request, ToolChoice, ToolChoiceMode
from cmf.message.tools import ToolDefinition
from cmf.models.capabilities import lookup

HTTP: Final = f"{FORMAT}.http"
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


# -- reading -----------------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The request that a body describes, or a body for counting tokens. It keeps the `anthropic-*` headers."""
    raw = opened(body)
    messages = raw.get("messages")
    names: Names = {}
    if not isinstance(messages, list):
        raise ShapeError("`messages` is no array", path="$.messages", hint="see the Messages API reference")
    read = list(_decode_system(raw.get("system"), names))
    for index, item in enumerate(messages):
        read += _decode_message(item, index, names)
    head = frozen_mapping({key: item for key, item in raw.items() if key not in ("system", "messages")})
    request = replace(_decode_head(head, model=model, headers=headers), messages=tuple(read))
    if "system" in raw and not raw["system"]:
        head = frozen_mapping({**head, "system": raw["system"]})  # null or empty: nothing but spelling
    return layout.spelled_one(request, _encode_head(request), head, format_name=FORMAT)


def _decode_head(head: Any, *, model: str | None, headers: Mapping[str, str]) -> Request:
    fields = Fields(head, "$")
    own_model = fields.take("model", str)
    choice, choice_left = _decode_choice(fields.take("tool_choice", dict))
    if choice_left is not None:
        fields.put_back("tool_choice", choice_left)
    effort, schema = _decode_output(fields)
    return trusted(
        Request,
        model=own_model if own_model is not None else model,
        tools=_decode_tools(fields),
        tool_choice=choice,
        response_schema=schema,
        sampling=read_sampling(fields, _SAMPLING),
        reasoning_effort=effort,
        stream=fields.take("stream", bool),
        extra=_with_headers(fields.rest(FORMAT), headers),
    )


def _decode_output(fields: Fields) -> tuple[str | None, FrozenDict | None]:
    """Effort and schema. The schema is in `output_config.format`, or in the older `output_format`."""
    config = fields.take("output_config", dict)
    left = dict(config or {})
    effort = left.get("effort")
    if isinstance(effort, str) and effort in EFFORTS:
        del left["effort"]
    else:
        effort = None
    if "output_format" in fields:
        older = fields.peek("output_format")
        schema = _schema_in(older)
        if schema is None and isinstance(older, dict) and older.get("type") == "json_schema":
            raise ShapeError("a JSON schema is no object", path="$.output_format.schema", hint="send the schema")
        if schema is not None:  # its `type` stays, and shows at writing that the schema belongs there
            fields.put_back("output_format", {key: item for key, item in older.items() if key != "schema"})
    else:
        form = left.get("format")
        schema = _schema_in(form)
        if schema is not None and form is not None:
            left["format"] = {key: item for key, item in form.items() if key not in ("type", "schema")}
            if not left["format"]:
                del left["format"]
    if left or config == {}:
        fields.put_back("output_config", left)
    return effort, schema


def _schema_in(form: Any) -> FrozenDict | None:
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    schema = form.get("schema")
    return schema if isinstance(schema, FrozenDict) else None


def _with_headers(extra: FrozenDict | None, headers: Mapping[str, str]) -> FrozenDict | None:
    lower = {name.lower(): text for name, text in headers.items()}
    kept = {name: lower[name] for name in _HEADERS if name in lower}
    return frozen_mapping({**(extra or {}), HTTP: freeze(kept)}) if kept else extra


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
    plain = encode_group((message,))
    return layout.spelled((message,), plain, raw, format_name=FORMAT, path="$.system", index=_TOP, keep=True)


def _decode_message(item: Any, index: int, names: Names) -> tuple[Message, ...]:
    path = f"$.messages[{index}]"
    if (plain_message := _read_plain(item, index)) is not None:
        return (plain_message,)
    group = _group_in(item, path, names)
    # Without a layout, results of parallel calls are put together and system text is moved to the front.
    keep = group[0].role in (Role.TOOL, Role.SYSTEM)
    return layout.spelled(group, encode_group(group), item, format_name=FORMAT, path=path, index=index, keep=keep)


def _read_plain(item: Any, index: int) -> Message | None:
    """The message of a user or assistant that is one text, bare or in a block, and nothing else; None for any other."""
    if not isinstance(item, dict) or item.keys() != _MESSAGE_KEYS:
        return None
    role, content = item["role"], item["content"]
    is_bare = isinstance(content, str)
    blocks = [{"type": "text", "text": content}] if is_bare else content
    block = blocks[0] if isinstance(blocks, list) and len(blocks) == 1 else None
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
        raise ShapeError("expected a message", path=path, hint="see the Messages API reference")
    role, content = role_named(item.get("role"), _ROLES, path), item.get("content")
    if isinstance(content, str):
        parts: list[Part] = [trusted(TextPart, text=content)]
    elif isinstance(content, list):
        read = decode_assistant if role is Role.ASSISTANT else decode_blocks
        parts = read(content, f"{path}.content", names)
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


# -- writing -----------------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """`POST /v1/messages`, with the version and the betas that the request came with."""
    return HttpCall(path="/v1/messages", headers={"anthropic-version": _VERSION, **extra_of(request, HTTP)})


def write_request(request: Request) -> dict[str, Any]:
    """The body of a request."""

    def decode(spelt: Any) -> Request:
        spelt_head = frozen_mapping({key: item for key, item in spelt.items() if key != "system"})
        return _decode_head(spelt_head, model=request.model, headers=extra_of(request, HTTP))

    head = replace(request, messages=())
    body = layout.respell_one(_encode_head(request), head, format_name=FORMAT, decode=decode)
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
    system = _respelled(top[0], names)["content"] if len(top) == 1 else _joined(top)
    return system, listed


def _joined(groups: Sequence[Sequence[Message]]) -> list[dict[str, Any]]:
    return [block for group in groups for block in encode_group(group)["content"]]


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
    _report_unsaid(request)
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


def _report_unsaid(request: Request) -> None:
    for name in _UNSUPPORTED_SAMPLING:
        if getattr(request.sampling, name) is not None:
            drop(FORMAT, f"sampling.{name}", "the format has no such field")
    if request.reasoning_effort is not None and request.reasoning_effort not in EFFORTS:
        drop(FORMAT, "reasoning_effort", "the format has no such level")
    if request.response_schema_name is not None:
        drop(FORMAT, "response_schema_name", "the format does not name schemas")


def _role_of(message: Message) -> str:
    return _ROLE_WORDS.get(message.role, "user")


def encode_group(group: Sequence[Message]) -> dict[str, Any]:
    """The wire message that a group of canonical ones makes, spelled plainly: content is a list of blocks."""
    wire: dict[str, Any] = {"role": _role_of(group[0]), "content": []}
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
    if len(group) == 1 and (text := layout.only_text(group[0])):
        shape = layout.shape_of(group[0], FORMAT)
        if not shape or shape == _BARE:
            return {"role": _role_of(group[0]), "content": text if shape else [{"type": "text", "text": text}]}
    wire = layout.respell(
        encode_group(group), group, format_name=FORMAT, decode=lambda spelt: _group_in(spelt, "$", names)
    )
    learn_calls(names, group)
    return wire


def _groups(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Messages by the wire message they make: as they came; results that came from elsewhere share one."""
    return layout.joined(layout.grouped(messages, FORMAT), lambda group: _is_loose(group) or None)


def _is_loose(group: tuple[Message, ...]) -> bool:
    own = group[0].provider_raw
    kept = own is not None and own.format == FORMAT and own.size == len(group)
    return not kept and all(message.role is Role.TOOL for message in group)


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
    raw = fields.take("tools", list)
    if raw is None:
        if "tools" in fields and fields.peek("tools") is not None:
            raise ShapeError("`tools` is no array", path="$.tools", hint="see the Messages API reference")
        fields.drop("tools", None)
        return ()
    return tuple(_decode_tool(tool, f"$.tools[{index}]") for index, tool in enumerate(raw))


def _decode_tool(tool: Any, path: str) -> ToolDefinition:
    if not isinstance(tool, dict):
        raise ShapeError("expected a tool definition", path=path, hint="see the Messages API reference")
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


def _decode_choice(choice: Any) -> tuple[ToolChoice | None, FrozenDict | None]:
    """The canonical tool choice, and what of the wire's it cannot hold. ShapeError for one without a type."""
    if choice is None:
        return None, None
    kind, name = choice.get("type"), choice.get("name")
    if not isinstance(kind, str):
        raise ShapeError("`type` is no string", path="$.tool_choice.type", hint=f"use one of {', '.join(_MODES)}")
    mode = _MODES.get(kind)
    if mode is None or (mode == "tool") is not isinstance(name, str):
        return None, choice
    read_keys = ("type", "name") if mode == "tool" else ("type",)
    left = {key: item for key, item in choice.items() if key not in read_keys}
    return trusted(ToolChoice, mode=mode, name=name), frozen_mapping(left) if left else None


def _encode_choice(choice: ToolChoice) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": _MODE_WORDS[choice.mode]}
    return wire if choice.name is None else {**wire, "name": choice.name}
