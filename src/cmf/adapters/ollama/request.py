"""Ollama's chat requests, both ways. Spec: docs/spec/adapters/ollama.md [OLL-6] to [OLL-9]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.ollama.parts_in import FORMAT, Calls, decode_message
from cmf.adapters.ollama.parts_out import encode_message
from cmf.adapters.wire import loss
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import call_names
from cmf.adapters.wire.fields import Fields, extra_of, merge, opened
from cmf.adapters.wire.layout import respell, respell_one, spelled_one
from cmf.adapters.wire.options import read_sampling, write_definition, write_sampling
from cmf.enums import Role
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenList, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, ToolResultPart
from cmf.message.request import NO_SAMPLING, Request, Sampling
from cmf.message.tools import ToolDefinition

_SAMPLING: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "num_predict": "max_output_tokens",
    "seed": "seed",
    "stop": "stop",
}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` counts where the body names none."""
    raw = opened(body)
    listed = raw.get("messages")
    if listed is not None and not isinstance(listed, list):
        raise ShapeError("`messages` is not an array", path="$.messages", hint="see the provider's reference")
    calls = Calls()
    messages = tuple(_read_message(message, index, calls) for index, message in enumerate(listed or ()))
    envelope = {key: item for key, item in raw.items() if key != "messages" or not item}
    request = replace(_decode_envelope(envelope, model), messages=messages)
    plain = _encode_envelope(request)
    if listed:
        del plain["messages"]
    return spelled_one(request, plain, envelope, format_name=FORMAT)


def _read_message(raw: Any, index: int, calls: Calls) -> Message:
    path = f"$.messages[{index}]"
    message = decode_message(raw, path)
    result = message.content[0] if message.role is Role.TOOL else None
    if isinstance(result, ToolResultPart):
        name = calls.name(result.tool_call_id, result.tool_name)
        if name != result.tool_name:
            message = replace(message, content=(replace(result, tool_name=name),))
    calls.note(message)
    return spelled_one(message, encode_message(message)[0], raw, format_name=FORMAT, path=path)


def _decode_envelope(raw: Mapping[str, Any], model: str | None) -> Request:
    """A request's own fields, without its messages. It streams unless `stream` is false."""
    fields = Fields(raw, "$")
    fields.drop("messages", None)
    fields.drop("messages", FrozenList())
    named = fields.optional("model", str)
    stream = fields.optional("stream", bool)
    schema = fields.take("format", dict)
    if schema is None:
        fields.drop("format", None)
        fields.drop("format", "")
    sampling = _options(fields)
    effort = fields.take("think", str)
    fields.drop("think", None)
    tools = tuple(_tool(tool, f"$.tools[{index}]") for index, tool in enumerate(fields.optional("tools", list) or ()))
    return trusted(
        Request,
        model=named if named is not None else model,
        stream=True if stream is None else stream,
        response_schema=schema,
        reasoning_effort=effort,
        tools=tools,
        sampling=sampling,
        extra=fields.rest(FORMAT),
    )


def _options(fields: Fields) -> Sampling:
    raw = fields.optional("options", dict)
    if raw is None:
        return NO_SAMPLING
    options = Fields(raw, "$.options")
    sampling = read_sampling(options, _SAMPLING)
    fields.leave("options", options)
    return sampling


def _tool(raw: Any, path: str) -> ToolDefinition:
    fields = Fields(raw, path)
    kind = fields.peek("type")
    if isinstance(kind, str) and kind != "function":
        own = frozen_mapping({FORMAT: freeze(fields.left())})
        return trusted(ToolDefinition, name=kind, type=kind, executed_by="provider", extra=own)
    fields.drop("type", "function")
    fields.drop("type", None)
    function = Fields(fields.need("function", dict), f"{path}.function")
    name = function.need("name", str)
    description = function.optional("description", str)
    schema = function.optional("parameters", dict)
    fields.leave("function", function)
    return trusted(ToolDefinition, name=name, description=description, input_schema=schema, extra=fields.rest(FORMAT))


# -- writing -----------------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """`POST /api/chat`, or `/api/generate` for a bare prompt; whether to stream is given in the body."""
    is_generate = not request.messages and "prompt" in extra_of(request, FORMAT)
    path = "/api/generate" if is_generate else "/api/chat"
    return HttpCall(path=path, headers={"content-type": "application/json"})


def write_request(request: Request) -> dict[str, Any]:
    """The body of a request; UnsupportedError for media, tools or a tool choice that Ollama cannot take."""
    body = respell_one(
        _encode_envelope(request),
        replace(request, messages=()),
        format_name=FORMAT,
        decode=lambda spelt: _decode_envelope(spelt, None),
    )
    names = call_names(request.messages)
    if request.messages:
        body["messages"] = [wire for message in request.messages for wire in _write_message(message, names)]
    return body


def _write_message(message: Message, names: Mapping[str, str]) -> list[Any]:
    plain = encode_message(message, names)
    if len(plain) != 1:
        return plain
    name = next((part.tool_name for part in message.content if isinstance(part, ToolResultPart)), None)
    spelt = respell(plain[0], (message,), format_name=FORMAT, decode=lambda spelt: (decode_message(spelt, "$", name),))
    return [spelt]


def _encode_envelope(request: Request) -> dict[str, Any]:
    """A request without its messages; `messages` is there, empty."""
    body: dict[str, Any] = {"messages": [], "stream": request.stream is True}
    body |= present(model=request.model)
    if options := write_sampling(request.sampling, _SAMPLING):
        body["options"] = options
    body |= present(format=request.response_schema, think=request.reasoning_effort)
    if request.response_schema_name is not None:
        loss.drop(FORMAT, "response_schema_name", "a schema has no name here")
    if tools := _encode_tools(request):
        body["tools"] = tools
    loss.drop_foreign_extra(FORMAT, request, "request")
    return merge(body, extra_of(request, FORMAT))


def _encode_tools(request: Request) -> list[Any]:
    choice = request.tool_choice
    if choice is not None and request.tools:
        if choice.mode in ("required", "tool"):
            raise UnsupportedError("tool_choice that forces a call", path="tool_choice", hint="ask for `auto`")
        if choice.mode == "none":
            loss.drop(FORMAT, "tools", "they are not to be called, and the format cannot say so")
            return []
    return [_encode_tool(tool) for tool in loss.narrowed(FORMAT, request).tools]


def _encode_tool(tool: ToolDefinition) -> dict[str, Any]:
    own = extra_of(tool, FORMAT)
    if tool.executed_by == "provider":
        if own:
            return own
        raise UnsupportedError("a tool that another provider runs", about=tool, hint="drop it")
    loss.refuse_foreign_kind(FORMAT, tool)
    loss.drop_foreign_extra(FORMAT, tool, "tool_definition")
    return merge({"type": "function", "function": write_definition(tool, "parameters")}, own)
