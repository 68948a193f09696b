"""Requests of the Responses format, both ways. Spec: docs/spec/adapters/openai_responses.md [RSP-1], [RSP-9]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cmf.adapters.openai_responses.items import CLIENT_TOOLS, FORMAT, HOSTED_TOOLS, KINDS
from cmf.adapters.openai_responses.parts_in import ItemReader
from cmf.adapters.openai_responses.parts_out import ItemWriter, default_form, in_form, message_form, with_leftover
from cmf.adapters.wire import layout
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import marked_again
from cmf.adapters.wire.fields import Fields, allowed_names, as_text, extra_of, merge, object_in, opened
from cmf.adapters.wire.layout import only_text
from cmf.adapters.wire.loss import drop, drop_foreign_extras, narrowed, refuse_foreign_kind
from cmf.adapters.wire.options import read_sampling, write_definition
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import Layout, Message, TextPart
from cmf.message.request import Request, ToolChoice
from cmf.message.tools import ToolDefinition

_OWN: Final = frozen_mapping({FORMAT: frozen_mapping({})})
_TOOL_MODES: Final = frozenset({"auto", "none", "required"})
_INSTRUCTIONS: Final = Layout(format=FORMAT, shape=FrozenDict({"form": "instructions"}))
_STRING_INPUT: Final = Layout(format=FORMAT, shape=FrozenDict({"form": "input"}))
_SAMPLING: Final = {name: name for name in ("temperature", "top_p", "max_output_tokens")}
_FUNCTIONS: Final = ("function", "custom")
_SCHEMA_NAME: Final = "response"  # the format demands one


# -- reading -----------------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` counts where the body names none."""
    raw = freeze(body)
    request = _decode(raw, model)
    listed, instructions = raw.get("input"), raw.get("instructions")
    messages: list[Message] = []
    if isinstance(instructions, str):
        messages.append(_plain_message(Role.SYSTEM, instructions, _INSTRUCTIONS))
    if isinstance(listed, str):
        messages.append(_plain_message(Role.USER, listed, _STRING_INPUT))
    elif isinstance(listed, list):
        reader = ItemReader()
        messages += [_read_item(reader, item, at) for at, item in enumerate(listed)]
    request = replace(request, messages=tuple(messages))
    return layout.spelled_one(request, _encode(request), _outside(raw), format_name=FORMAT)


def _plain_message(role: Role, text: str, spelling: Layout | None) -> Message:
    parts = (trusted(TextPart, text=text),)
    return trusted(Message, role=role, content=parts, provider_raw=spelling)


def _outside(body: FrozenDict) -> dict[str, Any]:
    """The body without the texts that became messages; their absence and nulls stay, as spelling."""
    return {
        key: value
        for key, value in body.items()
        if not (key == "input" and (isinstance(value, str) or (isinstance(value, list) and value)))
        and not (key == "instructions" and isinstance(value, str))
    }


def _read_item(reader: ItemReader, item: Any, at: int) -> Message:
    """The message of one input item, with its spelling where the plain one differs."""
    path = f"$.input[{at}]"
    message = _unspelled(reader, item, path)
    if len(item) == 2 and isinstance(item.get("content"), str):  # role and content: the plain form
        return message
    plain = ItemWriter().items(message)
    notes: dict[str, Any] = {}
    if len(plain) == 1 and plain[0].get("type") == "message":
        form = message_form(item)
        if form != default_form(plain[0]):
            notes["form"] = form
        plain = [in_form(plain[0], form)]
    elif (kind := item.get("type")) in KINDS:
        notes["kinds"] = {"0": kind}
    return layout.spelled_one(message, plain, [item], format_name=FORMAT, path=path, index=at, notes=notes)


def _decode(raw: Any, model: str | None) -> Request:
    """The request without what `input` and `instructions` say."""
    fields = Fields(opened(raw), "$")
    if isinstance(fields.peek("input"), str | list | None):
        fields.left().pop("input", None)
    if isinstance(fields.peek("instructions"), str | None):
        fields.left().pop("instructions", None)
    named = fields.take("model", str)
    schema, schema_name = _schema(fields)
    return trusted(
        Request,
        model=named if named is not None else model,
        tools=_tools(fields),
        tool_choice=_tool_choice(fields),
        response_schema=schema,
        response_schema_name=schema_name,
        sampling=read_sampling(fields, _SAMPLING),
        reasoning_effort=_effort(fields),
        stream=fields.take("stream", bool),
        extra=fields.rest(FORMAT),
    )


def _schema(fields: Fields) -> tuple[FrozenDict | None, str | None]:
    text = object_in(fields.left(), "text")
    shape = object_in(text, "format")
    if shape.get("type") != "json_schema" or not isinstance(shape.get("schema"), dict):
        return None, None
    outer, inner = Fields(text, ""), Fields(shape, "")
    schema, name = inner.take("schema", FrozenDict), inner.take("name", str)
    inner.drop("type", "json_schema")
    outer.take("format", dict)
    outer.leave("format", inner)
    fields.take("text", dict)
    fields.leave("text", outer)
    return schema, name


def _effort(fields: Fields) -> str | None:
    inner = Fields(object_in(fields.left(), "reasoning"), "")
    effort = inner.take("effort", str)
    if effort is not None:
        fields.take("reasoning", dict)
        fields.leave("reasoning", inner)
    return effort


def _tool_choice(fields: Fields) -> ToolChoice | None:
    """The canonical choice. A spelling that is not the plain one stays, for the encoder to find."""
    raw = fields.peek("tool_choice")
    choice = tool_choice(raw)
    if choice is not None and (isinstance(raw, str) or raw == {"type": "function", "name": choice.name}):
        fields.take("tool_choice", object)
    return choice


def tool_choice(raw: Any) -> ToolChoice | None:
    """The canonical choice that a `tool_choice` means; None where it has no canonical meaning."""
    if isinstance(raw, str):
        return trusted(ToolChoice, mode=raw) if raw in _TOOL_MODES else None
    kind = raw.get("type") if isinstance(raw, dict) else None
    if kind == "allowed_tools":
        mode = "required" if raw.get("mode") == "required" else "auto"
        return trusted(ToolChoice, mode=mode, allowed=allowed_names(raw.get("tools")))
    if kind in ("function", "custom") and isinstance(raw.get("name"), str):
        return trusted(ToolChoice, mode="tool", name=raw["name"])
    return None


def _tools(fields: Fields) -> tuple[ToolDefinition, ...]:
    fields.drop("tools", None)
    listed = fields.peek("tools")
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        return ()
    fields.take("tools", list)
    return tuple(definition for tool in listed for definition in _tool(tool))


def _tool(tool: dict[str, Any]) -> list[ToolDefinition]:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind in _FUNCTIONS:
        return [_own_tool(tool, None)]
    fields = Fields(tool, "")
    fields.take("type", str)
    listed = tool.get("tools")
    are_tools = isinstance(listed, list) and all(
        isinstance(each, dict) and each.get("type") in _FUNCTIONS for each in listed
    )
    if kind == "namespace" and isinstance(tool.get("name"), str) and are_tools:
        return _namespace(fields)
    space = fields.take("server_label", str) if kind == "mcp" else None
    is_own = kind in CLIENT_TOOLS and kind != "namespace"  # one that holds others was read
    if kind == "shell" and tool.get("environment") is not None:
        is_own = object_in(tool, "environment").get("type") == "local"  # else it runs in the provider's container
    runner = "client" if is_own else "provider"
    extra = fields.rest(FORMAT) or _OWN  # a tool may be nothing but its type: the mark shows that it is this format's
    return [trusted(ToolDefinition, name=kind, namespace=space, type=kind, executed_by=runner, extra=extra)]


def _own_tool(tool: dict[str, Any], namespace: str | None) -> ToolDefinition:
    """A tool that the client runs: a function, or one with free-text input."""
    fields = Fields(tool, "")
    kind = fields.take("type", str)
    return trusted(
        ToolDefinition,
        name=fields.take("name", str) or "",
        description=fields.take("description", str),
        input_schema=fields.take("parameters", dict),
        namespace=namespace,
        type="custom" if kind == "custom" else None,
        extra=fields.rest(FORMAT),
    )


def _namespace(fields: Fields) -> list[ToolDefinition]:
    """The namespace itself, then each of its tools with its own definition."""
    name = fields.need("name", str)
    inner = [_own_tool(tool, name) for tool in fields.need("tools", list)]
    description = fields.take("description", str)
    extra = fields.rest(FORMAT)
    return [trusted(ToolDefinition, name=name, description=description, type="namespace", extra=extra), *inner]


def _unspelled(reader: ItemReader, item: Any, path: str) -> Message:
    role, parts = reader.read(item, path)
    return trusted(Message, role=role, content=parts)


# -- writing -----------------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """`POST /v1/responses`: the format keeps nothing outside the body."""
    return HttpCall(path="/v1/responses")


def write_request(request: Request) -> dict[str, Any]:
    """The body of a request."""
    drop_foreign_extras(FORMAT, request)
    body = layout.respell_one(
        _encode(request),
        replace(request, messages=()),
        format_name=FORMAT,
        decode=lambda spelt: _decode(spelt, request.model),
    )
    messages = marked_again(request.messages, FORMAT)
    if messages and _form(messages[0]) == "instructions" and (text := _plain_text(messages[0], Role.SYSTEM)):
        body["instructions"] = text[0]
        messages = messages[1:]
    if len(messages) == 1 and _form(messages[0]) == "input" and (text := _plain_text(messages[0], Role.USER)):
        body["input"] = text[0]
    elif messages:
        writer = ItemWriter()
        body["input"] = [item for message in messages for item in _write_items(writer, message)]
    return body


def _form(message: Message) -> str:
    """The form that the message had on this wire; empty if it did not come from it."""
    return as_text(layout.shape_of(message, FORMAT).get("form")) or ""


def _plain_text(message: Message, role: Role) -> tuple[str] | None:
    """The text of a message that is nothing but one plain text of this role."""
    text = only_text(message) if message.role is role else None
    return None if text is None else (text,)


def _write_items(writer: ItemWriter, message: Message) -> list[dict[str, Any]]:
    """The items of a message as they were spelled, if they still say exactly that; else plain."""
    shape, form = layout.shape_of(message, FORMAT), _form(message)
    plain = writer.items(message, object_in(shape, "kinds"))
    plain = [in_form(item, form or default_form(item)) for item in plain]

    def decode(spelt: Any) -> tuple[Message, ...]:
        reader = ItemReader()
        for part in message.content:  # the name of an answered call is known from elsewhere
            reader.expect(part)
        return tuple(_unspelled(reader, item, "$") for item in spelt)

    return layout.respell(plain, (message,), format_name=FORMAT, decode=decode)


def _encode(request: Request) -> dict[str, Any]:
    """Everything of the request but `input` and `instructions`."""
    body = present(model=request.model)
    spelled = extra_of(request, FORMAT).get("tool_choice")
    if request.tool_choice is None or tool_choice(spelled) != request.tool_choice:
        request, spelled = narrowed(FORMAT, request), None
    if request.tools:
        body["tools"] = _encode_tools(request.tools)
    if (choice := request.tool_choice) is not None:
        named = next((tool for tool in request.tools if tool.name == choice.name), None)
        kind = "custom" if named is not None and named.type == "custom" else "function"
        body["tool_choice"] = spelled or ({"type": kind, "name": choice.name} if choice.mode == "tool" else choice.mode)
    if request.response_schema is not None:
        name = request.response_schema_name
        shape = {"type": "json_schema", "name": name if name is not None else _SCHEMA_NAME}
        body["text"] = {"format": {**shape, "schema": request.response_schema}}
    if request.reasoning_effort is not None:
        body["reasoning"] = {"effort": request.reasoning_effort}
    body |= present(stream=request.stream)
    for name, value in request.sampling.model_dump().items():
        if name in _SAMPLING:
            body[name] = value
        else:
            drop(FORMAT, f"sampling.{name}", "no such parameter in this format")
    return merge(body, _riding_envelope(request))


def _riding_envelope(request: Request) -> dict[str, Any]:
    own = extra_of(request, FORMAT)
    if tool_choice(own.get("tool_choice")) is not None:  # written already, or no longer asked for
        own = {key: value for key, value in own.items() if key != "tool_choice"}
    text = own.get("text")
    shape = text.get("format") if isinstance(text, dict) else None
    if request.response_schema is None and isinstance(text, dict) and isinstance(shape, dict) and "type" not in shape:
        # What accompanied a schema that was removed is not a format by itself.
        return {**own, "text": {key: value for key, value in text.items() if key != "format"}}
    return own


def _encode_tools(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for tool in definitions:
        own = extra_of(tool, FORMAT)
        if tool.type == "namespace" and "tools" not in own:
            space = {"type": "namespace", "name": tool.name, **present(description=tool.description), "tools": []}
            listed.append(with_leftover(space, own))
        elif tool.executed_by == "provider" or (tool.type in CLIENT_TOOLS and tool.type != "custom"):
            listed.append(_hosted(tool, own))
        elif tool.namespace is not None:
            if not listed or listed[-1].get("type") != "namespace" or listed[-1]["name"] != tool.namespace:
                listed.append({"type": "namespace", "name": tool.namespace, "tools": []})
            listed[-1]["tools"].append(_function(tool, own))
        else:
            listed.append(_function(tool, own))
    return listed


def _function(tool: ToolDefinition, own: dict[str, Any]) -> dict[str, Any]:
    refuse_foreign_kind(FORMAT, tool)
    kind = "custom" if tool.type == "custom" else "function"
    written = {"type": kind, **write_definition(tool, "parameters")}
    if tool.type != "custom" and FORMAT not in (tool.extra or ()):
        written["strict"] = _is_strict(tool)
    return with_leftover(written, own)


def _is_strict(tool: ToolDefinition) -> bool:
    """Whether the tool said so in its own format: there the default is that it is not, here that it is."""
    kept = [own for own in (tool.extra or {}).values() if isinstance(own, dict)]
    return any(own.get("strict") is True for own in (*kept, *(object_in(fields, "function") for fields in kept)))


def _hosted(tool: ToolDefinition, own: dict[str, Any]) -> dict[str, Any]:
    if FORMAT not in (tool.extra or ()) and tool.type not in HOSTED_TOOLS and tool.type not in CLIENT_TOOLS:
        raise UnsupportedError(
            "this format does not know the provider-run tool",
            about=tool,
            hint="remove the tool, or route to its own provider",
        )
    written: dict[str, Any] = {"type": tool.type}
    if tool.type == "mcp" and tool.namespace is not None:
        written["server_label"] = tool.namespace
    return with_leftover(written, own)
