"""Chat-completions bodies as canonical values. Spec: docs/spec/adapters/openai_chat.md [OAC-1] to [OAC-9].

Decoding is total: what has no canonical field stays in `extra`. A null, an empty list or an empty text under a key that
is known means the same as its absence, so it is layout, not content.
"""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.chat_completions_blocks import blocks, opaque
from cmf.adapters.chat_completions_dialect import (
    ROLES,
    Dialect,
    has_calls,
    stop_reason,
    tool_choice,
    usage_of,
    wire_tool_choice,
)
from cmf.adapters.fields import Fields
from cmf.codec import loads_object
from cmf.content import (
    AudioPart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.enums import MessageStatus, Role
from cmf.errors import ShapeError, UnknownRoleError
from cmf.frozen import FrozenDict, freeze, frozen_mapping, same_spelling
from cmf.message import Message
from cmf.request import Choice, ErrorInfo, Request, Response, Sampling
from cmf.tools import ToolDefinition
from cmf.value import trusted

PARTIAL: Final = "cmf_partial"  # a folder's own mark: the stream behind this body was cut
RESERVED: Final = "cmf_"  # what a folder adds; never emitted

Names = dict[str, str]  # the tool that a call id of the same request belongs to

_MESSAGE_NULLS: Final = (
    "content", "refusal", "tool_calls", "function_call", "audio", "annotations", "reasoning", "reasoning_content",
    "reasoning_details", "name",
)  # fmt: skip
_RESPONSE_NULLS: Final = ("choices", "usage", "error", "service_tier", "system_fingerprint")
_REQUEST_NULLS: Final = (
    "tools", "tool_choice", "response_format", "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens",
    "stop", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort", "stream", "functions", "function_call",
)  # fmt: skip


# -- messages ----------------------------------------------------------------------------------------------------------


def decoded_message(raw: Any, path: str, dialect: Dialect, names: Names, *, reply: bool = False) -> Message:
    """One message of a request, or (with `reply`) of a choice. Fills `names` with the calls that it makes."""
    fields = Fields(raw, path)
    for key in _MESSAGE_NULLS:
        fields.drop(key, None)
    name = fields.take("role", str)
    if reply:
        name = _reply_role(fields, name)
    role = ROLES.get(name) if name is not None else None
    if role is None:
        raise UnknownRoleError("unknown or missing role", path=f"{path}.role", hint=f"use one of {', '.join(ROLES)}")
    if role is Role.TOOL:
        part = _tool_result(fields, dialect, names)
        return trusted(Message, role=role, content=(part,), extra=dialect.rest(fields, _form(name)))
    parts: list[Part] = []
    joined = None
    if role is Role.ASSISTANT:
        joined = _reasoning(fields, dialect, parts)
    _content(fields, dialect, parts, reply=reply)
    if role is Role.ASSISTANT:
        _answer(fields, dialect, parts, names)
    return trusted(Message, role=role, content=tuple(parts), extra=dialect.rest(fields, joined))


def _reply_role(fields: Fields, name: str | None) -> str:
    if name is None and fields.peek("role") is None:
        fields.drop("role", None)
        return "assistant"
    if name != "assistant":
        raise UnknownRoleError("a reply has the role `assistant`", path=f"{fields.path}.role")
    return name


def _form(role: str | None) -> str | None:
    return "function" if role == "function" else None


def _tool_result(fields: Fields, dialect: Dialect, names: Names) -> ToolResultPart:
    call_id = fields.need("tool_call_id", str) if fields.peek("tool_call_id") is not None else None
    name = fields.peek("name")  # stays in `extra` too: the encoder must know that the wire had it
    if not isinstance(name, str):
        name = names.get(call_id) if call_id is not None else None
    content: Any = fields.take("content", str)
    if content is None and fields.peek("content") is not None:
        content = tuple(blocks(fields.need("content", list), f"{fields.path}.content", dialect))
    return trusted(ToolResultPart, tool_call_id=call_id, tool_name=name, content=content)


def _content(fields: Fields, dialect: Dialect, parts: list[Part], *, reply: bool) -> None:
    text = fields.take("content", str)
    if text is not None:
        if text:
            parts.append(trusted(TextPart, text=text))
        return
    if fields.peek("content") is None:
        return
    listed = blocks(fields.need("content", list), f"{fields.path}.content", dialect)
    if reply:
        # A client expects one text in a reply, so a list is said to be one; in a request both forms mean the same.
        listed = [_as_block(part, dialect) for part in listed]
    parts += listed


def _as_block(part: Part, dialect: Dialect) -> Part:
    if isinstance(part, TextPart) and dialect.key_of(part) is None:
        own = part.extra or {}
        return trusted(TextPart, text=part.text, extra=FrozenDict({**own, f"{dialect.format}.key": "block"}))
    return part


def _reasoning(fields: Fields, dialect: Dialect, parts: list[Part]) -> str | None:
    """The thinking beside the content. Gives the key whose text only repeats that of `reasoning_details`, if one does.

    Several details joined are a text of their own, which policy has to see in one piece.
    """
    details = _details(fields, dialect)
    texts = [part.text for part in details if isinstance(part, ThinkingPart) and part.text]
    whole = texts[0] if len(texts) == 1 else None
    repeated = None
    for key in ("reasoning_content", "reasoning"):
        text = fields.take(key, str)
        if text and text == whole and repeated is None:
            repeated = key
        elif text:
            extra = frozen_mapping({f"{dialect.format}.key": key})
            parts.append(trusted(ThinkingPart, text=text, extra=extra))
    parts += details
    return repeated


def _details(fields: Fields, dialect: Dialect) -> list[Part]:
    listed = fields.take("reasoning_details", list)
    if listed is None:
        return []
    if not all(isinstance(item, dict) for item in listed):
        fields.put_back("reasoning_details", listed)
        return []
    return [_detail(item, fields.path, dialect) for item in listed]


def _detail(raw: FrozenDict, path: str, dialect: Dialect) -> Part:
    fields = Fields(raw, path)
    kind = raw.get("type")
    if kind == "reasoning.encrypted" and (data := fields.take("data", str)) is not None:
        fields.drop("type", kind)
        return trusted(RedactedThinkingPart, data=data, extra=dialect.rest(fields, "reasoning_details"))
    if kind == "reasoning.summary" and (text := fields.take("summary", str)) is not None:
        return trusted(ThinkingPart, text=text, extra=dialect.rest(fields, "reasoning_details"))
    if kind == "reasoning.text" and isinstance(raw.get("text"), str | None):
        fields.drop("type", kind)
        fields.drop("text", None)
        text = fields.take("text", str)
        signature = fields.take("signature", str)
        extra = dialect.rest(fields, "reasoning_details")
        return trusted(ThinkingPart, text=text or "", signature=signature, extra=extra)
    return opaque(raw, dialect, "reasoning_details")


def _answer(fields: Fields, dialect: Dialect, parts: list[Part], names: Names) -> None:
    """What only an assistant's message has: a refusal, a sound, calls."""
    refusal = fields.take("refusal", str)
    if refusal:
        parts.append(trusted(TextPart, text=refusal, extra=frozen_mapping({f"{dialect.format}.key": "refusal"})))
    _audio(fields, dialect, parts)
    for index, raw in enumerate(_listed(fields, "tool_calls")):
        parts.append(_tool_call(raw, f"{fields.path}.tool_calls[{index}]", index, dialect))
    if "function_call" in fields:
        parts.append(_function_call(fields.need("function_call", dict), fields.path, dialect))
    for part in parts:
        if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
            names[part.tool_call_id] = part.name


def _audio(fields: Fields, dialect: Dialect, parts: list[Part]) -> None:
    raw = fields.take("audio", dict)
    if raw is None:
        return
    inner = Fields(raw, fields.path)
    data = inner.take("data", str)
    how = "base64" if data is not None else "file_ref"
    if data is None:
        data = inner.take("id", str)  # history names a sound that the provider keeps
    if data is None:
        fields.put_back("audio", raw)
        return
    parts.append(trusted(AudioPart, type=how, data=data, extra=dialect.rest(inner, "audio")))


def _tool_call(raw: Any, path: str, index: int, dialect: Dialect) -> Part:
    if not isinstance(raw, dict):
        raise ShapeError("expected an object", path=path, hint="a tool call has `function`")
    fields = Fields(raw, path)
    fields.drop("index", index)
    if not isinstance(raw.get("id"), str | None) or not isinstance(raw.get("type"), str | None):
        return opaque(raw, dialect, "tool_calls")
    call_id = fields.take("id", str)
    function = fields.take("function", dict)
    if function is not None:
        inner = Fields(function, f"{path}.function")
        name = inner.take("name", str)
        if name is None or not isinstance(inner.peek("arguments"), str | dict | None):
            return opaque(raw, dialect, "tool_calls")
        arguments, text, key = _arguments(inner)
        if inner.left():
            fields.put_back("function", inner.left())
        fields.drop("type", "function")
    else:
        custom = fields.take("custom", dict)
        inner = Fields(custom or {}, f"{path}.custom")
        name, said = inner.take("name", str), inner.take("input", str)
        if name is None or said is None:
            return opaque(raw, dialect, "tool_calls")
        arguments, text, key = frozen_mapping({"input": said}), None, "custom"
        if inner.left():
            fields.put_back("custom", inner.left())
        fields.drop("type", "custom")
    return trusted(
        ToolCallPart,
        tool_call_id=call_id,
        name=name,
        arguments=arguments,
        arguments_raw=text,
        extra=dialect.rest(fields, key),
    )


def _arguments(fields: Fields) -> tuple[FrozenDict | None, str | None, str | None]:
    """Arguments, or their text where it is no strict JSON object [A8]; and the form, where they are no text."""
    given = fields.take("arguments", dict)
    if given is not None:
        return freeze(given), None, "object"
    fields.drop("arguments", None)
    text = fields.take("arguments", str)
    if text is None:
        return None, None, None
    value = loads_object(text)
    return (None, text, None) if value is None else (freeze(value), None, None)


def _function_call(raw: Any, path: str, dialect: Dialect) -> Part:
    inner = Fields(raw, f"{path}.function_call")
    name = inner.take("name", str)
    if name is None or not isinstance(inner.peek("arguments"), str | None):
        return opaque(raw, dialect, "function_call")
    arguments, text, _ = _arguments(inner)
    extra = dialect.rest(inner, "function_call")
    return trusted(ToolCallPart, name=name, arguments=arguments, arguments_raw=text, extra=extra)


# -- requests ----------------------------------------------------------------------------------------------------------


def decoded_request(raw: Any, messages: Any, dialect: Dialect) -> Request:
    """Everything of a request but its messages."""
    fields = Fields(raw, "$")
    for key in _REQUEST_NULLS:
        fields.drop(key, None)
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
    listed = [_tool(raw, f"$.tools[{at}]", dialect) for at, raw in enumerate(_listed(fields, "tools"))]
    for at, raw in enumerate(_listed(fields, "functions")):
        inner = Fields(raw, f"$.functions[{at}]")
        listed.append(_defined(inner, inner, dialect, "functions"))
    return tuple(listed)


def _listed(fields: Fields, key: str) -> list[Any]:
    return fields.need(key, list) if key in fields else []


def _tool(raw: Any, path: str, dialect: Dialect) -> ToolDefinition:
    fields = Fields(raw, path)
    if fields.peek("type") is not None and not isinstance(fields.peek("type"), str):
        fields.need("type", str)
    for kind in ("function", "custom"):
        inner_raw = fields.take(kind, dict)
        if inner_raw is not None and isinstance(inner_raw.get("name"), str):
            inner = Fields(inner_raw, f"{path}.{kind}")
            fields.drop("type", kind)
            return _defined(inner, fields, dialect, None, kind)
        if inner_raw is not None:
            fields.put_back(kind, inner_raw)
    name = fields.need("type", str)  # a tool that the provider runs is known by its type
    return trusted(ToolDefinition, name=name, type=name, executed_by="provider", extra=dialect.rest(fields))


def _defined(inner: Fields, outer: Fields, dialect: Dialect, key: str | None, kind: str = "function") -> ToolDefinition:
    name = inner.need("name", str)
    description = inner.take("description", str)
    schema = inner.take("parameters", dict)
    if inner is not outer and inner.left():
        outer.put_back(kind, inner.left())
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
    if inner.left():
        outer.put_back("json_schema", inner.left())
    fields.take("response_format", dict)
    if outer.left():
        fields.put_back("response_format", outer.left())
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
        if inner.left():
            fields.put_back("reasoning", inner.left())
    return effort


def _sampling(fields: Fields) -> Sampling:
    stop = fields.peek("stop")
    if isinstance(stop, list) and all(isinstance(item, str) for item in stop):
        fields.take("stop", list)
        sequences: tuple[str, ...] | None = tuple(stop)
    else:
        sequences = (stop,) if isinstance(stop, str) else None  # the single text stays in `extra`: its form
    # The newer name is plain; where the older one stands alone it stays in `extra`, since some services know only that.
    ceiling = fields.take("max_completion_tokens", int)
    if ceiling is not None:
        fields.take("max_tokens", int)
    elif type(fields.peek("max_tokens")) is int:
        ceiling = fields.peek("max_tokens")
    return trusted(
        Sampling,
        temperature=fields.take_number("temperature"),
        top_p=fields.take_number("top_p"),
        top_k=fields.take_number("top_k"),
        max_output_tokens=ceiling,
        stop=sequences,
        seed=fields.take("seed", int),
        frequency_penalty=fields.take_number("frequency_penalty"),
        presence_penalty=fields.take_number("presence_penalty"),
    )


# -- responses ---------------------------------------------------------------------------------------------------------


def decoded_response(raw: Any, dialect: Dialect) -> Response:
    """A whole response, or an error in any of the shapes that errors come in."""
    if not isinstance(raw, dict):
        extra = FrozenDict({dialect.format: {RESERVED + "body": raw}})
        message = raw if isinstance(raw, str) else None
        return trusted(Response, error=trusted(ErrorInfo, message=message), extra=extra)
    fields = Fields(raw, "$")
    for key in _RESPONSE_NULLS:
        fields.drop(key, None)
    status = MessageStatus.PARTIAL if fields.take(PARTIAL, bool) else MessageStatus.COMPLETE
    listed = fields.take("choices", list)
    if listed is not None:
        fields.drop("object", "chat.completion")
    choices = [_choice(choice, f"$.choices[{at}]", at, dialect, status) for at, choice in enumerate(listed or ())]
    error, form = _error(fields) if listed is None or "error" in fields else (None, None)
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
    fields.drop("finish_reason", None)
    fields.drop("logprobs", None)
    fields.drop("message", None)
    said = fields.need("message", dict) if "message" in fields else {}
    decoded = decoded_message(said, f"{path}.message", dialect, {}, reply=True)
    if status is not MessageStatus.COMPLETE:
        decoded = trusted(Message, role=decoded.role, content=decoded.content, status=status, extra=decoded.extra)
    reason = fields.need("finish_reason", str) if "finish_reason" in fields else None
    calls = has_calls(decoded.content, dialect)
    refused = any(dialect.key_of(part) == "refusal" for part in decoded.content)
    return trusted(
        Choice,
        message=decoded,
        stop_reason=None if reason is None else stop_reason(reason, refused=refused, calls=calls),
        raw_stop_reason=reason,
        extra=dialect.rest(fields),
    )


def _error(fields: Fields) -> tuple[ErrorInfo, str | None]:
    """What went wrong, and in which form it was said: `error` as an object, as a text, or no `error` at all."""
    raw = fields.take("error", dict)
    if raw is not None:
        inner = Fields(raw, "$.error")
        info = _error_info(inner)
        if inner.left():
            fields.put_back("error", inner.left())
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


__all__ = ["PARTIAL", "RESERVED", "Names", "decoded_message", "decoded_request", "decoded_response"]
