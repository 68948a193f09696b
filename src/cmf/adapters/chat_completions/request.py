"""Chat-completions requests, both ways. Spec: docs/spec/adapters/openai_chat.md [OAC-9] to [OAC-15]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import Dialect, tool_choice, wire_tool_choice
from cmf.adapters.chat_completions.parts_in import Names, decoded_message, listed_in, read_plain
from cmf.adapters.chat_completions.parts_out import wire_messages
from cmf.adapters.wire import loss
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.fields import Fields, merge
from cmf.adapters.wire.layout import respell, respell_one, shape_of, spelled_one
from cmf.adapters.wire.options import read_sampling, write_definition, write_sampling
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, ToolCallPart
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
    names: Names = {}
    messages = tuple([_read_message(message, at, dialect, names) for at, message in enumerate(listed)])
    request = spelled_one(replace(head, messages=messages), _encode(head, dialect), rest, format_name=dialect.format)
    return request if request.model is not None else replace(request, model=model)


def _read_message(raw: Any, index: int, dialect: Dialect, names: Names) -> Message:
    if (plain_message := read_plain(raw)) is not None:
        return plain_message
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
    tools = _tools(fields, dialect)
    schema, schema_name = _response_schema(fields)
    choice = _tool_choice(fields)
    return trusted(
        Request,
        model=fields.take("model", str),
        tools=tools,
        tool_choice=choice,
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
    if fields.peek("type") is not None and not isinstance(fields.peek("type"), str):
        fields.need("type", str)
    for kind in ("function", "custom"):
        if fields.peek("type") not in (None, kind):
            continue  # some services have tools of their own in this shape: `builtin_function`
        inner_raw = fields.take(kind, dict)
        if inner_raw is not None and isinstance(inner_raw.get("name"), str):
            inner = Fields(inner_raw, f"{path}.{kind}")
            fields.drop("type", kind)
            return _defined(inner, fields, dialect, None, kind)
        if inner_raw is not None:
            fields.put_back(kind, inner_raw)
    name = fields.take("type", str)  # a tool that the provider runs is known by its type
    if name is None:
        return _untyped(fields, dialect)
    return trusted(ToolDefinition, name=name, type=name, executed_by="provider", extra=dialect.rest(fields))


def _untyped(fields: Fields, dialect: Dialect) -> ToolDefinition:
    """A tool in a shape of some service's own: known by its name or else by its first key, and shown whole."""
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
    wanted = fields.peek("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return None, None
    described = wanted.get("json_schema")
    if not isinstance(described, dict) or not isinstance(described.get("schema"), dict):
        return None, None
    if not isinstance(described.get("name"), str | None):
        return None, None
    outer, inner = Fields(wanted, "$.response_format"), Fields(described, "$.response_format.json_schema")
    schema, name = inner.take("schema", dict), inner.take("name", str)
    outer.drop("type", "json_schema")
    outer.take("json_schema", dict)
    outer.leave("json_schema", inner)
    fields.take("response_format", dict)
    fields.leave("response_format", outer)
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
    effort = fields.take("reasoning_effort", str)
    reasoning = fields.peek("reasoning")
    if not dialect.nested_effort:
        return effort
    if effort is not None:
        fields.put_back("reasoning_effort", effort)  # the other spelling: the encoder finds it in `extra`
        return effort
    if not isinstance(reasoning, dict):
        return None
    inner = Fields(reasoning, "$.reasoning")
    effort = inner.take("effort", str)
    if effort is not None:
        fields.take("reasoning", dict)
        fields.leave("reasoning", inner)
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
    ids, names = CallIds(), Names()
    body["messages"] = [wire for message in request.messages for wire in _write_message(message, dialect, ids, names)]
    return body


def _write_message(message: Message, dialect: Dialect, ids: CallIds, names: Names) -> list[Any]:
    written = wire_messages(message, dialect, ids)
    if shape_of(message, dialect.format):

        def decode(spelt: Any) -> tuple[Message]:
            return (decoded_message(spelt, "$", dialect, dict(names)),)

        written = [respell(written[0], (message,), format_name=dialect.format, decode=decode)]
    for part in message.content:
        if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
            names[part.tool_call_id] = part.name
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
        key, described = _encode_tool(tool, dialect)
        body.setdefault(key, []).append(described)
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


def _encode_tool(tool: ToolDefinition, dialect: Dialect) -> tuple[str, Any]:
    own = dialect.own(tool)
    dialect.drop_foreign(tool, "tool_definition")
    if dialect.key_of(tool) == "untyped":
        return "tools", own
    if tool.executed_by == "provider":
        if tool.type != tool.name or (tool.extra and not any(key.startswith(dialect.format) for key in tool.extra)):
            raise UnsupportedError(
                f"{dialect.format} cannot offer a tool that another provider runs", about=tool, hint="strip the tool"
            )
        return "tools", merge({"type": tool.type}, own)
    loss.refuse_foreign_kind(dialect.format, tool)
    described = write_definition(tool, "parameters")
    if dialect.key_of(tool) == "functions":
        return "functions", merge(described, own)
    kind = "custom" if tool.type == "custom" else "function"
    return "tools", merge({"type": own.get("type", kind), kind: described}, own)


def _spelled_choice(request: Request, extra: dict[str, Any]) -> dict[str, Any]:
    """The choice as it was spelled, if that still means it; taken out of `extra` in any case."""
    spelt = {key: extra.pop(key) for key in ("tool_choice", "function_call") if tool_choice(extra.get(key)) is not None}
    return next(({key: raw} for key, raw in spelt.items() if tool_choice(raw) == request.tool_choice), {})
