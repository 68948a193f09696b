"""Chat-completions requests, both ways. Spec: docs/spec/adapters/openai_chat.md [OAC-9] to [OAC-15]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import Dialect, tool_choice, wire_tool_choice
from cmf.adapters.chat_completions.parts import Names, decoded_message, listed_in, read_plain, wire_messages
from cmf.adapters.wire import loss
from cmf.adapters.wire.call_ids import CallIds, call_names
from cmf.adapters.wire.fields import Fields, merge, object_in
from cmf.adapters.wire.layout import respell, respell_one, shape_of, spelled_one
from cmf.adapters.wire.options import read_sampling, write_definition, write_sampling
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message
from cmf.message.request import Request, Sampling
from cmf.message.tools import ToolDefinition

_SAMPLING: Final = {
    name: name for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")
}
_REQUEST_NULLS: Final = (
    "tools", "tool_choice", "response_format", "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens",
    "stop", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort", "stream", "functions", "function_call",
)  # fmt: skip


# -- reading -----------------------------------------------------------------------------------------------------------


def read_request(dialect: Dialect, body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` counts where the body names none (a deployment in the path)."""
    raw = freeze(body)
    listed: Any = raw.get("messages") if isinstance(raw, dict) else None
    rest = {key: item for key, item in raw.items() if key != "messages"} if isinstance(raw, dict) else raw
    head = _decode(rest, listed, dialect)
    names: dict[str, str] = {}
    messages = []
    for at, item in enumerate(listed):
        if (message := read_plain(item)) is None:
            message = _read_message(item, at, dialect, names)
            names |= call_names((message,))
        messages.append(message)
    request = spelled_one(
        replace(head, messages=tuple(messages)), _encode(head, dialect), rest, format_name=dialect.format
    )
    return request if request.model is not None else replace(request, model=model)


def _read_message(raw: Any, index: int, dialect: Dialect, names: Names) -> Message:
    path = f"$.messages[{index}]"
    message = decoded_message(raw, path, dialect, names)
    plain = wire_messages(message, dialect, CallIds())[0]
    return spelled_one(message, plain, raw, format_name=dialect.format, path=path, index=index)


def _decode(raw: Any, messages: Any, dialect: Dialect) -> Request:
    """Everything of a request but its messages."""
    fields = Fields(raw, "$")
    fields.drop_nulls(_REQUEST_NULLS)
    if not isinstance(messages, list):
        raise ShapeError("`messages` is missing or not an array", path="$.messages", hint="send at least one message")
    schema, schema_name = _response_schema(fields)
    return trusted(
        Request,
        model=fields.take("model", str),
        tools=_tools(fields, dialect),
        tool_choice=_tool_choice(fields),
        response_schema=schema,
        response_schema_name=schema_name,
        sampling=_sampling(fields),
        reasoning_effort=_effort(fields, dialect),
        stream=fields.take("stream", bool),
        extra=dialect.rest(fields),
    )


def _tools(fields: Fields, dialect: Dialect) -> tuple[ToolDefinition, ...]:
    listed = [_tool(raw, f"$.tools[{at}]", dialect) for at, raw in enumerate(listed_in(fields, "tools"))]
    for at, raw in enumerate(listed_in(fields, "functions")):
        inner = Fields(raw, f"$.functions[{at}]")
        listed.append(_defined(inner, inner, dialect, "functions"))
    return tuple(listed)


def _tool(raw: Any, path: str, dialect: Dialect) -> ToolDefinition:
    fields = Fields(raw, path)
    kind = fields.peek("type")
    for form in ("function", "custom"):
        described = fields.peek(form)  # some services have tools of their own in this shape: `builtin_function`
        if kind in (None, form) and isinstance(described, dict) and isinstance(described.get("name"), str):
            fields.take(form, dict)
            fields.drop("type", form)
            return _defined(Fields(described, f"{path}.{form}"), fields, dialect, None, form)
    if kind is not None:
        kind = fields.need("type", str)  # a tool that the provider runs is known by its type
        return trusted(ToolDefinition, name=kind, type=kind, executed_by="provider", extra=dialect.rest(fields))
    # One in a shape of some service's own: known by its name or else by its first key, and shown whole.
    other_keys = (key for key in fields.left() if key not in ("type", "function", "custom"))
    name = fields.peek("name") or next(other_keys, None)
    if not isinstance(name, str):
        name = fields.need("type", str)
    return trusted(ToolDefinition, name=name, executed_by="provider", extra=dialect.rest(fields, "untyped"))


def _defined(inner: Fields, outer: Fields, dialect: Dialect, key: str | None, kind: str = "function") -> ToolDefinition:
    name = inner.need("name", str)
    description = inner.take("description", str)
    schema = inner.take("parameters", dict)
    if inner is not outer:
        outer.leave(kind, inner)
    return trusted(
        ToolDefinition,
        name=name,
        description=description,
        input_schema=schema,
        type="custom" if kind == "custom" else None,
        extra=dialect.rest(outer, key),
    )


def _response_schema(fields: Fields) -> tuple[FrozenDict | None, str | None]:
    wanted = object_in(fields.left(), "response_format")
    described = object_in(wanted, "json_schema")
    if wanted.get("type") != "json_schema" or not isinstance(described.get("schema"), dict):
        return None, None
    if not isinstance(described.get("name"), str | None):
        return None, None
    fields.take_in(("response_format",), type=str)
    schema, name = fields.take_in(("response_format", "json_schema"), schema=dict, name=str)
    return freeze(schema), name


def _tool_choice(fields: Fields) -> Any:
    """The canonical choice. A spelling that is not the plain one stays in `extra`, for the encoder to find."""
    for key in ("tool_choice", "function_call"):
        raw = fields.peek(key)
        choice = tool_choice(raw)
        if choice is not None:
            if key == "tool_choice" and same_spelling(wire_tool_choice(choice), raw):
                fields.take(key, object)
            return choice
    return None


def _effort(fields: Fields, dialect: Dialect) -> str | None:
    effort: str | None = fields.take("reasoning_effort", str)
    if not dialect.nested_effort:
        return effort
    if effort is not None:
        fields.put_back("reasoning_effort", effort)  # the other spelling: the encoder finds it in `extra`
        return effort
    (effort,) = fields.take_in(("reasoning",), effort=str)
    return effort


def _sampling(fields: Fields) -> Sampling:
    stop = fields.take_texts("stop")
    if isinstance(alone := fields.peek("stop"), str):
        stop = (alone,)  # and stays in `extra`, for its form
    # The newer name is the usual one; the older one by itself is kept in `extra`, since some services know only that.
    ceiling = fields.take("max_completion_tokens", int)
    if ceiling is not None:
        ceiling = max(ceiling, fields.take("max_tokens", int) or 0)  # which of both counts, each service decides
    elif type(fields.peek("max_tokens")) is int:
        ceiling = fields.peek("max_tokens")
    return replace(read_sampling(fields, _SAMPLING), max_output_tokens=ceiling, stop=stop)


# -- writing -----------------------------------------------------------------------------------------------------------


def write_request(dialect: Dialect, request: Request) -> dict[str, Any]:
    """The body of a request; what the format cannot say is dropped with a record, or refused [C8]."""
    body = respell_one(
        _encode(request, dialect),
        replace(request, messages=()),
        format_name=dialect.format,
        decode=lambda spelt: _decode(spelt, [], dialect),
    )
    ids, names = CallIds(), dict[str, str]()
    body["messages"] = [wire for message in request.messages for wire in _write_message(message, dialect, ids, names)]
    return body


def _write_message(message: Message, dialect: Dialect, ids: CallIds, names: dict[str, str]) -> list[Any]:
    written = wire_messages(message, dialect, ids)
    if shape_of(message, dialect.format):

        def decode(spelt: Any) -> tuple[Message]:
            return (decoded_message(spelt, "$", dialect, names),)

        written = [respell(written[0], (message,), format_name=dialect.format, decode=decode)]
    names |= call_names((message,))
    return written


def _encode(request: Request, dialect: Dialect) -> dict[str, Any]:
    """Everything of a request but its messages."""
    body = present(model=request.model)
    extra = dict(dialect.own(request))
    dialect.drop_foreign(request, "request")
    _encode_sampling(request, body, extra)
    choice = _spelled_choice(request, extra)
    if not choice:
        request = loss.narrowed(dialect.format, request)
    for tool in request.tools:
        key = "functions" if dialect.key_of(tool) == "functions" else "tools"
        body.setdefault(key, []).append(_encode_tool(tool, dialect))
    if choice:
        body |= choice
    elif request.tool_choice is not None:
        body["tool_choice"] = wire_tool_choice(request.tool_choice)
    if request.response_schema is not None:
        named = {"name": request.response_schema_name or "response", "schema": request.response_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if request.reasoning_effort is not None:
        if dialect.nested_effort and "reasoning_effort" not in extra:
            body["reasoning"] = {"effort": request.reasoning_effort}
        else:
            body["reasoning_effort"] = request.reasoning_effort
    return merge(body | present(stream=request.stream), extra)


def _encode_sampling(request: Request, body: dict[str, Any], extra: dict[str, Any]) -> None:
    sampling = request.sampling
    body |= write_sampling(sampling, _SAMPLING)
    older = type(extra.get("max_tokens")) is int
    if older:
        del extra["max_tokens"]
    if sampling.max_output_tokens is not None:
        body["max_tokens" if older else "max_completion_tokens"] = sampling.max_output_tokens
    alone = extra.pop("stop") if isinstance(extra.get("stop"), str) else None
    if sampling.stop is not None:
        body["stop"] = alone if sampling.stop == (alone,) else list(sampling.stop)


def _encode_tool(tool: ToolDefinition, dialect: Dialect) -> Any:
    own, key = dialect.own(tool), dialect.key_of(tool)
    dialect.drop_foreign(tool, "tool_definition")
    if key == "untyped":
        return own
    if tool.executed_by == "provider":
        if tool.type != tool.name or (tool.extra and not any(name.startswith(dialect.format) for name in tool.extra)):
            problem = f"{dialect.format} cannot offer a tool that another provider runs"
            raise UnsupportedError(problem, about=tool, hint="strip the tool")
        return merge({"type": tool.type}, own)
    loss.refuse_foreign_kind(dialect.format, tool)
    described = write_definition(tool, "parameters")
    if key == "functions":
        return merge(described, own)
    kind = "custom" if tool.type == "custom" else "function"
    return merge({"type": own.get("type", kind), kind: described}, own)


def _spelled_choice(request: Request, extra: dict[str, Any]) -> dict[str, Any]:
    """The choice as it was spelled, if that still means it; taken out of `extra` in any case."""
    spelt = {key: extra.pop(key) for key in ("tool_choice", "function_call") if tool_choice(extra.get(key)) is not None}
    return next(({key: raw} for key, raw in spelt.items() if tool_choice(raw) == request.tool_choice), {})
