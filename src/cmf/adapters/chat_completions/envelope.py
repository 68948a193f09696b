"""The rest of a chat-completions request, and its response or error, as canonical values.

Spec: docs/spec/adapters/openai_chat.md [OAC-9] to [OAC-15].
"""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.chat_completions.decode import decoded_message, listed_in
from cmf.adapters.chat_completions.dialect import (
    CHOICE_ERROR,
    Dialect,
    has_calls,
    stop_reason,
    tool_choice,
    usage_of,
    wire_tool_choice,
)
from cmf.adapters.wire.fields import MARK, PARTIAL, Fields
from cmf.enums import MessageStatus, StopReason
from cmf.errors import ShapeError
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import replace, trusted
from cmf.message.request import Choice, ErrorInfo, Request, Response, Sampling
from cmf.message.tools import ToolDefinition

_RESPONSE_NULLS: Final = ("choices", "usage", "error", "service_tier", "system_fingerprint")
_CHOICE_NULLS: Final = ("finish_reason", "logprobs", "message")
_REQUEST_NULLS: Final = (
    "tools", "tool_choice", "response_format", "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens",
    "stop", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort", "stream", "functions", "function_call",
)  # fmt: skip


# -- requests ----------------------------------------------------------------------------------------------------------


def decoded_request(raw: Any, messages: Any, dialect: Dialect) -> Request:
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
    """A tool in a shape of some service's own: known by its name or else by its first key, and shown whole.

    Raises:
        ShapeError: it has no such key.
    """
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
    return trusted(
        Sampling,
        temperature=fields.take_number("temperature"),
        top_p=fields.take_number("top_p"),
        top_k=fields.take_number("top_k"),
        max_output_tokens=ceiling,
        stop=stop,
        seed=fields.take("seed", int),
        frequency_penalty=fields.take_number("frequency_penalty"),
        presence_penalty=fields.take_number("presence_penalty"),
    )


# -- responses ---------------------------------------------------------------------------------------------------------


def decoded_response(raw: Any, dialect: Dialect) -> Response:
    """A whole response, or an error in any of the shapes that errors come in."""
    if not isinstance(raw, dict):
        extra = FrozenDict({dialect.format: {f"{MARK}body": raw}})
        message = raw if isinstance(raw, str) else None
        return trusted(Response, error=trusted(ErrorInfo, message=message), extra=extra)
    fields = Fields(raw, "$")
    fields.drop_nulls(_RESPONSE_NULLS)
    status = MessageStatus.PARTIAL if fields.take(PARTIAL, bool) else MessageStatus.COMPLETE
    listed = fields.take("choices", list)
    if listed is not None:
        fields.drop("object", "chat.completion")
    choices = [_choice(choice, f"$.choices[{at}]", at, dialect, status) for at, choice in enumerate(listed or ())]
    error, form = _error(fields) if listed is None or "error" in fields else _choice_error(listed)
    return trusted(
        Response,
        choices=tuple(choices),
        usage=usage_of(fields.peek("usage")),
        model=fields.take("model", str),
        error=error,
        extra=dialect.rest(fields, form),
    )


def _choice(raw: Any, path: str, index: int, dialect: Dialect, status: MessageStatus) -> Choice:
    fields = Fields(raw, path)
    fields.drop("index", index)
    fields.drop_nulls(_CHOICE_NULLS)
    message = fields.need("message", dict) if "message" in fields else {}
    decoded = decoded_message(message, f"{path}.message", dialect, {}, reply=True)
    if status is not MessageStatus.COMPLETE:
        decoded = replace(decoded, status=status)
    reason = fields.take("finish_reason", str)  # anything else is shown in `extra`
    calls = has_calls(decoded.content, dialect)
    refused = any(dialect.key_of(part) == "refusal" for part in decoded.content)
    stop = None if reason is None else stop_reason(reason, refused=refused, calls=calls)
    extra = dialect.rest(fields)
    if extra is None and stop is StopReason.OTHER:
        extra = freeze({dialect.format: {}})  # the mark by which a word that nobody knows is known as this format's
    return trusted(Choice, message=decoded, stop_reason=stop, raw_stop_reason=reason, extra=extra)


def _choice_error(listed: list[Any]) -> tuple[ErrorInfo | None, str | None]:
    """What went wrong with a choice, where the body itself names no error; it stays with the choice, too."""
    for choice in listed:
        if isinstance(choice, dict) and isinstance(choice.get("error"), dict):
            return _error_info(Fields(choice["error"], "$.choices[].error")), CHOICE_ERROR
    return None, None


def _error(fields: Fields) -> tuple[ErrorInfo, str | None]:
    """The error, and its form: `error` as an object, as a text, or no `error` at all."""
    raw = fields.take("error", dict)
    if raw is not None:
        inner = Fields(raw, "$.error")
        info = _error_info(inner)
        fields.leave("error", inner)
        return info, None
    text = fields.take("error", str)
    if text is not None:
        return trusted(ErrorInfo, message=text), "error_text"
    return _error_info(fields), "error_flat"


def _error_info(fields: Fields) -> ErrorInfo:
    code = fields.peek("code")
    return trusted(
        ErrorInfo,
        message=fields.take("message", str),
        type=fields.take("type", str),
        code=fields.take("code", str),
        status=code if type(code) is int else None,  # the number itself stays where it was
    )
