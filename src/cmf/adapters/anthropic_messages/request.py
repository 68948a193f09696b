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
    own_extra,
    rest_of,
)
from cmf.adapters.anthropic_messages.parts_out import encode_content
from cmf.adapters.anthropic_messages.tools import decode_choice, decode_tools, encode_choice, encode_tool
from cmf.adapters.wire import layout
from cmf.adapters.wire.call_id_forms import marked_again
from cmf.adapters.wire.call_ids import with_ids
from cmf.adapters.wire.fields import Fields, extra_of, merge
from cmf.adapters.wire.loss import drop, narrowed
from cmf.adapters.wire.message_groups import user_runs
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import Layout, Message, Part, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import NO_SAMPLING, Request, Sampling
from cmf.models.capabilities import lookup

HTTP: Final = f"{FORMAT}.http"
"""Where a request keeps the headers that change what its body means."""

DEFAULT_MAX_TOKENS: Final = 4096  # the format wants a limit; every model it serves can write this much
EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_HEADERS: Final = ("anthropic-beta", "anthropic-version")
_TOP: Final = -1  # the group number of what came in `system`
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_MESSAGE_KEYS: Final = frozenset({"role", "content"})
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_UNSUPPORTED_SAMPLING: Final = ("seed", "frequency_penalty", "presence_penalty")


# -- reading -----------------------------------------------------------------------------------------------------------


def decode_request(body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None) -> Request:
    """The request that a body describes; `model` and `headers` came beside it.

    Raises:
        ShapeError: with the path of what does not fit.
    """
    if not isinstance(body, dict):
        raise ShapeError("expected a JSON object", path="$", hint="see the Messages API reference")
    raw = freeze(body)
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
    found = layout.envelope_layout(_encode_head(request), head, format_name=FORMAT)
    return request if found is None else layout.with_layout(request, found)


def _decode_head(head: Any, *, model: str | None, headers: Mapping[str, str] | None) -> Request:
    fields = Fields(head, "$")
    own_model = fields.take("model", str)
    choice, choice_left = decode_choice(fields.take("tool_choice", dict))
    if choice_left is not None:
        fields.put_back("tool_choice", choice_left)
    effort, schema = _decode_output(fields)
    return trusted(
        Request,
        model=own_model if own_model is not None else model,
        tools=decode_tools(fields),
        tool_choice=choice,
        response_schema=schema,
        sampling=_decode_sampling(fields),
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


def _decode_sampling(fields: Fields) -> Sampling:
    found: dict[str, Any] = {}
    for name in _SAMPLING:
        if (number := fields.take_number(name)) is not None:
            found[name] = number
    if (limit := fields.take("max_tokens", int)) is not None:
        found["max_output_tokens"] = limit
    if (stop := fields.take_texts("stop_sequences")) is not None:
        found["stop"] = stop
    return trusted(Sampling, **found) if found else NO_SAMPLING


def _with_headers(extra: FrozenDict | None, headers: Mapping[str, str] | None) -> FrozenDict | None:
    lower = {name.lower(): text for name, text in headers.items()} if headers else {}
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
    group = layout.with_spelling((message,), raw, format_name=FORMAT, index=_TOP, path="$.system", encode=encode_group)
    return _placed(group, _TOP)


def _decode_message(item: Any, index: int, names: Names) -> tuple[Message, ...]:
    path = f"$.messages[{index}]"
    group = _group_in(item, path, names)
    group = layout.with_spelling(group, item, format_name=FORMAT, index=index, path=path, encode=encode_group)
    # Without a layout, results of parallel calls are put together and system text is moved to the front.
    return _placed(group, index) if group[0].role in (Role.TOOL, Role.SYSTEM) else group


def _placed(group: tuple[Message, ...], index: int) -> tuple[Message, ...]:
    if group[0].provider_raw is not None:
        return group
    return (layout.with_layout(group[0], Layout(format=FORMAT, group=index)), *group[1:])


def _group_in(item: Any, path: str, names: Names) -> tuple[Message, ...]:
    """The canonical messages of one wire message: one, but for results, which are a message of their own each."""
    if not isinstance(item, dict):
        raise ShapeError("expected a message", path=path, hint="see the Messages API reference")
    raw_role, content = item.get("role"), item.get("content")
    role = _ROLES.get(raw_role) if isinstance(raw_role, str) else None
    if role is None:
        raise UnknownRoleError("unknown role", path=f"{path}.role", hint=f"use one of {', '.join(_ROLES)}")
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


def encode_request(request: Request) -> dict[str, Any]:
    """The body of a request.

    Raises:
        UnsupportedError: tools, media or structured output that the format cannot say. LossyProjectionError: a critical
            block would be dropped.
    """
    body = _encode_head(request)
    found = request.provider_raw
    if found is not None and found.format == FORMAT:
        head = replace(request, messages=())
        body = layout.respell_envelope(body, head, format_name=FORMAT, decode=_head_of(head))
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


def _head_of(head: Request) -> Any:
    headers = extra_of(head, HTTP)

    def decode(spelt: Any) -> Request:
        frozen = freeze({key: item for key, item in spelt.items() if key != "system"})
        return _decode_head(frozen, model=head.model, headers=headers)

    return decode


def _encode_head(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {} if request.model is None else {"model": request.model}
    if request.tool_choice is not None:
        request = narrowed(FORMAT, request)
    if request.tools:
        body["tools"] = [encode_tool(tool) for tool in request.tools]
    if request.tool_choice is not None:
        body["tool_choice"] = encode_choice(request.tool_choice)
    sampling = request.sampling
    own = own_extra(request, "request")
    limit = sampling.max_output_tokens
    if limit is not None or "max_tokens" not in own:
        body["max_tokens"] = DEFAULT_MAX_TOKENS if limit is None else limit
    # Each by its name: to ask for attributes in a loop takes five times as long.
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.stop is not None:
        body["stop_sequences"] = list(sampling.stop)
    if request.stream is not None:
        body["stream"] = request.stream
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
    sampling = request.sampling
    if sampling.seed is sampling.frequency_penalty is sampling.presence_penalty is None:
        unsupported: Sequence[str] = ()
    else:
        unsupported = [name for name in _UNSUPPORTED_SAMPLING if getattr(sampling, name) is not None]
    for name in unsupported:
        drop(FORMAT, f"sampling.{name}", "the format has no such field")
    if request.reasoning_effort is not None and request.reasoning_effort not in EFFORTS:
        drop(FORMAT, "reasoning_effort", "the format has no such level")
    if request.response_schema_name is not None:
        drop(FORMAT, "response_schema_name", "the format does not name schemas")


def _is_broken(call: ToolCallPart) -> bool:
    """Whether the arguments of a call are text that is no JSON object."""
    return call.arguments is None and bool(call.arguments_raw)


def encode_group(group: Sequence[Message]) -> dict[str, Any]:
    """The wire message that a group of canonical ones makes, spelled plainly: content is a list of blocks."""
    first = group[0]
    role = {Role.ASSISTANT: "assistant", Role.SYSTEM: "system", Role.DEVELOPER: "system"}.get(first.role, "user")
    wire: dict[str, Any] = {"role": role, "content": []}
    for message in group:
        for part in message.content:
            if type(part) is ToolCallPart and _is_broken(part) and not is_own(part):
                hint = "leave the call out, or mend it"
                raise UnsupportedError("arguments that are no JSON object", about=part, hint=hint)
        wire["content"] += encode_content(message)
        if message.extra:
            merge(wire, own_extra(message, "message", message))
    return wire


def _respelled(group: Sequence[Message], names: Names) -> dict[str, Any]:
    def decode(spelt: Any) -> Sequence[Message]:
        return _group_in(freeze(spelt), "$", names)

    wire: dict[str, Any] = layout.respell(group, format_name=FORMAT, encode=encode_group, decode=decode)
    for message in group:
        for part in message.content:
            if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
                names[part.tool_call_id] = part.name
    return wire


def _groups(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Messages by the wire message they make: as they came; results that came from elsewhere share one."""
    return layout.joined(layout.grouped(messages, FORMAT), lambda group: _is_loose(group) or None)


def _is_loose(group: tuple[Message, ...]) -> bool:
    found = group[0].provider_raw
    kept = found is not None and found.format == FORMAT and found.size == len(group)
    return not kept and all(message.role is Role.TOOL for message in group)


def _goes_on_top(group: tuple[Message, ...], model: str | None, listed: list[dict[str, Any]]) -> bool:
    """Whether system text belongs in `system`: what came so, what leads, and what the model takes nowhere else."""
    if group[0].role not in (Role.SYSTEM, Role.DEVELOPER):
        return False
    found = group[0].provider_raw
    if found is not None and found.format == FORMAT:
        return found.group == _TOP
    return not listed or not lookup(FORMAT, model or "").supports_system_messages_in_list
