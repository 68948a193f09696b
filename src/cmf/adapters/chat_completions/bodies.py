"""Chat-completions requests, answers and errors, both ways. Spec: adapters/openai_chat.md [OAC-9] to [OAC-15]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import Dialect
from cmf.adapters.chat_completions.parts import (
    Names,
    decoded_message,
    kind_of,
    listed_in,
    read_plain,
    wire_assistant,
    wire_messages,
)
from cmf.adapters.wire import loss
from cmf.adapters.wire.call_ids import CallIds, call_names
from cmf.adapters.wire.fields import (
    PARTIAL,
    Fields,
    allowed_names,
    count_in,
    merge,
    object_in,
    read_sampling,
    unmarked,
    write_definition,
    write_sampling,
)
from cmf.adapters.wire.layout import respell, respell_one, shape_of, spelled_one
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, StopReason
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message, TokenUsage
from cmf.message.request import Choice, ErrorInfo, Request, Response, Sampling, ToolChoice, ToolChoiceMode
from cmf.message.tools import ToolDefinition
from cmf.message.transform import has_client_call

_SAMPLING: Final = {
    name: name for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")
}
_REQUEST_NULLS: Final = (
    "tools", "tool_choice", "response_format", "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens",
    "stop", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort", "stream", "functions", "function_call",
)  # fmt: skip


_STOP_REASONS: Final = {
    "stop": StopReason.END,
    "eos": StopReason.END,
    "eos_token": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.CALL,
    "function_call": StopReason.CALL,
    "content_filter": StopReason.CONTENT_FILTER,
    "error": StopReason.ERROR,
}

_FINISH_REASONS: Final = {
    StopReason.CALL: "tool_calls",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTENT_FILTER: "content_filter",
}
"""The words for reasons; for all others it is `stop`."""

_CHOICE_MODES: Final[dict[str, ToolChoiceMode]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}


# -- reading requests --------------------------------------------------------------------------------------------------


def read_request(dialect: Dialect, body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` counts where the body names none (a deployment in the path)."""
    raw = freeze(body)
    listed: Any = raw.get("messages") if isinstance(raw, dict) else None
    rest = {key: item for key, item in raw.items() if key != "messages"} if isinstance(raw, dict) else raw
    head = _decode_head(rest, listed, dialect)
    names: dict[str, str] = {}
    messages = []
    for at, item in enumerate(listed):
        if (message := read_plain(item)) is None:
            message = _read_message(item, at, dialect, names)
            names |= call_names((message,))
        messages.append(message)
    request = spelled_one(
        replace(head, messages=tuple(messages)), _encode_head(head, dialect), rest, format_name=dialect.format
    )
    return request if request.model is not None else replace(request, model=model)


def _read_message(raw: Any, index: int, dialect: Dialect, names: Names) -> Message:
    path = f"$.messages[{index}]"
    message = decoded_message(raw, path, dialect, names)
    plain = wire_messages(message, dialect, CallIds())[0]
    return spelled_one(message, plain, raw, format_name=dialect.format, path=path, index=index)


def _decode_head(raw: Any, messages: Any, dialect: Dialect) -> Request:
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
        if isinstance(raw, dict):
            kind_of(raw, f"$.{key}")
        choice = _choice_in(raw)
        if choice is not None:
            if key == "tool_choice" and same_spelling(_choice_out(choice), raw):
                fields.take(key, object)
            return choice
    return None


def _choice_in(raw: Any) -> ToolChoice | None:
    """The canonical choice that a `tool_choice` or `function_call` means; None where it has no canonical meaning."""
    if isinstance(raw, str):
        mode = _CHOICE_MODES.get(raw)
        return ToolChoice(mode=mode) if mode is not None else None
    if not isinstance(raw, dict):
        return None
    for holder in (raw.get("function"), raw.get("custom"), raw):
        if isinstance(holder, dict) and isinstance(holder.get("name"), str):
            return ToolChoice(mode="tool", name=holder["name"])
    allowed = raw.get("allowed_tools", raw if raw.get("type") == "allowed_tools" else None)
    if not isinstance(allowed, dict):
        return None
    mode = _CHOICE_MODES.get(str(allowed.get("mode")), "auto")
    return ToolChoice(mode=mode, allowed=allowed_names(allowed.get("tools")))


def _choice_out(choice: ToolChoice) -> Any:
    """The plain spelling of a canonical choice."""
    return {"type": "function", "function": {"name": choice.name}} if choice.mode == "tool" else choice.mode


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


# -- writing requests --------------------------------------------------------------------------------------------------


def write_request(dialect: Dialect, request: Request) -> dict[str, Any]:
    """The body of a request; what the format cannot say is dropped with a record, or refused [C8]."""
    body = respell_one(
        _encode_head(request, dialect),
        replace(request, messages=()),
        format_name=dialect.format,
        decode=lambda spelt: _decode_head(spelt, [], dialect),
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


def _encode_head(request: Request, dialect: Dialect) -> dict[str, Any]:
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
        body["tool_choice"] = _choice_out(request.tool_choice)
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
    spelt = {key: extra.pop(key) for key in ("tool_choice", "function_call") if _choice_in(extra.get(key)) is not None}
    return next(({key: raw} for key, raw in spelt.items() if _choice_in(raw) == request.tool_choice), {})


_RESPONSE_NULLS: Final = ("choices", "usage", "error", "service_tier", "system_fingerprint")
_CHOICE_NULLS: Final = ("finish_reason", "logprobs", "message")
_CHOICE_ERROR: Final = "choice_error"  # the form of an error inside a choice, to which it goes back
_NO_ID: Final = "chatcmpl-0"  # where a foreign response has no id: a constant, since nothing is minted here


# -- reading answers ---------------------------------------------------------------------------------------------------


def read_response(dialect: Dialect, body: Any, context: Request | None) -> Response:
    """A whole response, or an error in any of the shapes that errors come in. The request is not needed."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        return unrecognized(raw, dialect.format)
    response = _decode_response(raw, dialect)
    return spelled_one(response, _encode_response(response, dialect), unmarked(raw), format_name=dialect.format)


def _decode_response(raw: Any, dialect: Dialect) -> Response:
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
        usage=_usage_in(fields.peek("usage")),
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
    stop = None if reason is None else _stop_reason(reason, *_ends_in(decoded, dialect))
    extra = dialect.rest(fields)
    if extra is None and stop is StopReason.OTHER:
        extra = freeze({dialect.format: {}})  # the mark by which a word that nobody knows is known as this format's
    return trusted(Choice, message=decoded, stop_reason=stop, raw_stop_reason=reason, extra=extra)


def _usage_in(raw: Any) -> TokenUsage | None:
    """Canonical counts. There cached and cache-write tokens are no input tokens; `prompt_tokens` has them [A10]."""
    if not isinstance(raw, dict):
        return None
    prompt, output = count_in(raw, "prompt_tokens"), count_in(raw, "completion_tokens")
    inner = object_in(raw, "prompt_tokens_details")
    cached = (
        count_in(inner, "cached_tokens") or count_in(raw, "prompt_cache_hit_tokens") or count_in(raw, "cached_tokens")
    )
    written = count_in(inner, "cache_write_tokens") or count_in(raw, "cache_creation_input_tokens")
    return trusted(
        TokenUsage,
        input_tokens=max(0, prompt - cached - written),
        output_tokens=output,
        total_tokens=count_in(raw, "total_tokens") or prompt + output,
        cached_input_tokens=cached,
        cache_creation_input_tokens=written,
    )


def _usage_out(usage: TokenUsage) -> dict[str, Any]:
    """Canonical counts as this family counts."""
    prompt = usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens or prompt + usage.output_tokens,
    }
    details = {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_creation_input_tokens}
    if any(details.values()):
        counted["prompt_tokens_details"] = {key: count for key, count in details.items() if count}
    return counted


def _ends_in(message: Message, dialect: Dialect) -> tuple[bool, bool]:
    """Whether a message refuses, and whether it calls tools of the client."""
    keys = {dialect.key_of(part) for part in message.content}
    return "refusal" in keys, "tool_calls" in keys or has_client_call(message.content)


def _stop_reason(raw: str, refused: bool, calls: bool) -> StopReason:
    """The canonical reason. A refusal is in the message, with `stop` beside it; so are calls that were forced.

    Some services say "" beside calls, and others nothing but `stop`.
    """
    reason = _STOP_REASONS.get(raw, StopReason.OTHER)
    if calls and not refused and (reason is StopReason.END or not raw):
        return StopReason.CALL
    if refused and reason is StopReason.END:
        return StopReason.REFUSAL
    return StopReason.OTHER if reason is StopReason.CALL and not calls else reason


def _choice_error(listed: list[Any]) -> tuple[ErrorInfo | None, str | None]:
    """What went wrong with a choice, where the body itself names no error; it stays with the choice, too."""
    for choice in listed:
        if isinstance(choice, dict) and isinstance(choice.get("error"), dict):
            return _error_info(Fields(choice["error"], "$.choices[].error")), _CHOICE_ERROR
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


# -- writing answers ---------------------------------------------------------------------------------------------------


def write_response(dialect: Dialect, response: Response) -> dict[str, Any]:
    """The body of a response."""
    plain = _encode_response(response, dialect)
    return respell_one(
        plain, response, format_name=dialect.format, decode=lambda spelt: _decode_response(spelt, dialect)
    )


def _encode_response(response: Response, dialect: Dialect) -> dict[str, Any]:
    own = dialect.own(response)
    extra = unmarked(own)
    dialect.drop_foreign(response, "response")
    body: dict[str, Any] = {}
    form = dialect.key_of(response)
    if response.error is not None and not (form == _CHOICE_ERROR and response.choices):
        body |= _encode_error(response.error, form)
    if response.error is None or response.choices:
        body |= {"id": _NO_ID, "object": "chat.completion", "created": 0}
        ids = CallIds()
        body["choices"] = [_encode_choice(choice, at, dialect, ids) for at, choice in enumerate(response.choices)]
        for wire, choice in zip(body["choices"], response.choices, strict=True):
            # Another format may leave open why a whole answer ended; clients of this one want a word.
            if not own and wire["finish_reason"] is None and choice.message.status is not MessageStatus.PARTIAL:
                wire["finish_reason"] = "tool_calls" if _ends_in(choice.message, dialect)[1] else "stop"
    body |= {key: extra[key] for key in ("id", "object", "created") if key in extra} | present(model=response.model)
    if response.usage is not None:
        kept = extra.pop("usage", None)
        body["usage"] = kept if kept is not None and _usage_in(kept) == response.usage else _usage_out(response.usage)
    return merge(body, extra)


def _encode_choice(choice: Choice, index: int, dialect: Dialect, ids: CallIds) -> dict[str, Any]:
    own = dialect.own(choice)
    message = wire_assistant(choice.message, dialect, ids, reply=True)
    body = {"index": own.get("index", index), "message": message, "finish_reason": _finish_reason(choice, dialect)}
    return merge(body, own)


def _finish_reason(choice: Choice, dialect: Dialect) -> str | None:
    """The raw reason where it is this format's and still true; else by the table, and by whether there are calls."""
    if choice.stop_reason is None:
        return None
    raw = choice.raw_stop_reason
    refused, calls = _ends_in(choice.message, dialect)
    own = choice.stop_reason is not StopReason.OTHER or dialect.format in (choice.extra or {})
    if raw is not None and own and _stop_reason(raw, refused, calls) is choice.stop_reason:
        return raw
    reason = StopReason.END if choice.stop_reason is StopReason.CALL and not calls else choice.stop_reason
    if reason is StopReason.REFUSAL and not refused:
        reason = StopReason.CONTENT_FILTER  # without a `refusal`, "stop" would say that this is the answer
    return "tool_calls" if calls and reason is StopReason.END else _FINISH_REASONS.get(reason, "stop")


def _encode_error(error: ErrorInfo, form: str | None) -> dict[str, Any]:
    fields = present(message=error.message, type=error.type, code=error.code)
    if form == "error_text":
        return {"error": error.message or ""}
    return fields if form == "error_flat" else {"error": fields}
