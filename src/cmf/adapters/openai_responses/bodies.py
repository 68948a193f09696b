"""Requests and answers of the Responses format, both ways. Spec: openai_responses.md [RSP-1], [RSP-9] to [RSP-12]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cmf.adapters.openai_responses.parts import (
    CLIENT_TOOLS,
    FORMAT,
    HOSTED_TOOLS,
    KINDS,
    ItemReader,
    ItemWriter,
    default_form,
    in_form,
    message_form,
    with_leftover,
)
from cmf.adapters.wire import layout
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import marked_again
from cmf.adapters.wire.fields import (
    PARTIAL,
    Fields,
    allowed_names,
    as_text,
    extra_of,
    merge,
    object_in,
    opened,
    read_sampling,
    unmarked,
    write_definition,
)
from cmf.adapters.wire.layout import only_text, respell_one, shape_of, spelled_one
from cmf.adapters.wire.loss import drop, drop_foreign_extras, narrowed, refuse_foreign_kind
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import UnsupportedError
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import NO_SHAPE, Layout, Message, Part, TextPart, TokenUsage, ToolResultPart
from cmf.message.request import Choice, ErrorInfo, Request, Response, ToolChoice
from cmf.message.tools import ToolDefinition
from cmf.message.transform import has_client_call

_OWN: Final = frozen_mapping({FORMAT: frozen_mapping({})})
_TOOL_MODES: Final = frozenset({"auto", "none", "required"})
_INSTRUCTIONS: Final = Layout(format=FORMAT, shape=FrozenDict({"form": "instructions"}))
_STRING_INPUT: Final = Layout(format=FORMAT, shape=FrozenDict({"form": "input"}))
_SAMPLING: Final = {name: name for name in ("temperature", "top_p", "max_output_tokens")}
_FUNCTIONS: Final = ("function", "custom")
_SCHEMA_NAME: Final = "response"  # the format demands one


# -- reading requests --------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` counts where the body names none."""
    raw = freeze(body)
    request = _decode_head(raw, model)
    outside = dict(raw)  # without the texts that become messages; their absence and nulls stay, as spelling
    listed, instructions = raw.get("input"), raw.get("instructions")
    messages: list[Message] = []
    if isinstance(instructions, str):
        messages.append(_plain_message(Role.SYSTEM, instructions, _INSTRUCTIONS))
        del outside["instructions"]
    if isinstance(listed, str):
        messages.append(_plain_message(Role.USER, listed, _STRING_INPUT))
        del outside["input"]
    elif isinstance(listed, list) and listed:
        reader = ItemReader()
        messages += [_read_item(reader, item, at) for at, item in enumerate(listed)]
        del outside["input"]
    request = replace(request, messages=tuple(messages))
    return layout.spelled_one(request, _encode_head(request), outside, format_name=FORMAT)


def _plain_message(role: Role, text: str, spelling: Layout) -> Message:
    return trusted(Message, role=role, content=(trusted(TextPart, text=text),), provider_raw=spelling)


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


def _decode_head(raw: Any, model: str | None) -> Request:
    """The request without what `input` and `instructions` say."""
    fields = Fields(opened(raw), "$")
    if isinstance(fields.peek("input"), str | list | None):
        fields.left().pop("input", None)
    if isinstance(fields.peek("instructions"), str | None):
        fields.left().pop("instructions", None)
    named = fields.take("model", str)
    shape = object_in(object_in(fields.left(), "text"), "format")
    schema, schema_name = None, None
    if shape.get("type") == "json_schema" and isinstance(shape.get("schema"), dict):
        _, schema, schema_name = fields.take_in(("text", "format"), type=str, schema=dict, name=str)
    (effort,) = fields.take_in(("reasoning",), effort=str)
    return trusted(
        Request,
        model=named if named is not None else model,
        tools=_tools(fields),
        tool_choice=_tool_choice(fields),
        response_schema=schema,
        response_schema_name=schema_name,
        sampling=read_sampling(fields, _SAMPLING),
        reasoning_effort=effort,
        stream=fields.take("stream", bool),
        extra=fields.rest(FORMAT),
    )


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


# -- writing requests --------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """`POST /v1/responses`: the format keeps nothing outside the body."""
    return HttpCall(path="/v1/responses")


def write_request(request: Request) -> dict[str, Any]:
    """The body of a request."""
    drop_foreign_extras(FORMAT, request)
    body = layout.respell_one(
        _encode_head(request),
        replace(request, messages=()),
        format_name=FORMAT,
        decode=lambda spelt: _decode_head(spelt, request.model),
    )
    messages = marked_again(request.messages, FORMAT)
    if messages and (text := _plain_text(messages[0], Role.SYSTEM, "instructions")) is not None:
        body["instructions"] = text
        messages = messages[1:]
    if len(messages) == 1 and (text := _plain_text(messages[0], Role.USER, "input")) is not None:
        body["input"] = text
    elif messages:
        writer = ItemWriter()
        body["input"] = [item for message in messages for item in _write_items(writer, message)]
    return body


def _form(message: Message) -> str:
    """The form that the message had on this wire; empty if it did not come from it."""
    return as_text(layout.shape_of(message, FORMAT).get("form")) or ""


def _plain_text(message: Message, role: Role, form: str) -> str | None:
    """The text of a message that is nothing but one plain text of this role, and had this form."""
    return only_text(message) if message.role is role and _form(message) == form else None


def _write_items(writer: ItemWriter, message: Message) -> list[dict[str, Any]]:
    """The items of a message as they were spelled, if they still say exactly that; else plain."""
    shape, form = layout.shape_of(message, FORMAT), _form(message)
    plain = writer.items(message, object_in(shape, "kinds"))
    plain = [in_form(item, form or default_form(item)) for item in plain]

    results = [part for part in message.content if isinstance(part, ToolResultPart)]
    answered = {part.tool_call_id: part.tool_name for part in results}  # known from elsewhere
    names = {call_id: name for call_id, name in answered.items() if call_id is not None and name is not None}

    def decode(spelt: Any) -> tuple[Message, ...]:
        reader = ItemReader(names=names)
        return tuple(_unspelled(reader, item, "$") for item in spelt)

    return layout.respell(plain, (message,), format_name=FORMAT, decode=decode)


def _encode_head(request: Request) -> dict[str, Any]:
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
    text = object_in(own, "text")
    if request.response_schema is None and isinstance(shape := text.get("format"), dict) and "type" not in shape:
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
        # As the tool said in its own format: there the default is that it is not, here that it is.
        kept = [fields for fields in (tool.extra or {}).values() if isinstance(fields, dict)]
        kept += [object_in(fields, "function") for fields in kept]
        written["strict"] = any(fields.get("strict") is True for fields in kept)
    return with_leftover(written, own)


def _hosted(tool: ToolDefinition, own: dict[str, Any]) -> dict[str, Any]:
    if FORMAT not in (tool.extra or ()) and tool.type not in HOSTED_TOOLS and tool.type not in CLIENT_TOOLS:
        hint = "remove the tool, or route to its own provider"
        raise UnsupportedError("this format does not know the provider-run tool", about=tool, hint=hint)
    server = tool.namespace if tool.type == "mcp" else None
    return with_leftover({"type": tool.type, **present(server_label=server)}, own)


_COUNTED: Final = "response.input_tokens"  # the `object` of the answer to how many tokens a request would be
_ANSWERED: Final = frozenset({"output", "status", "error", "usage", "model", PARTIAL})
_STATUSES: Final = {
    "completed": MessageStatus.COMPLETE,
    "complete": MessageStatus.COMPLETE,
    "incomplete": MessageStatus.COMPLETE,  # the answer ended, if early: see its stop reason
    "failed": MessageStatus.ERROR,
    "cancelled": MessageStatus.CANCELLED,
    "queued": MessageStatus.PARTIAL,
    "in_progress": MessageStatus.PARTIAL,
}
_INCOMPLETE: Final = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.CONTENT_FILTER}


# -- reading answers ---------------------------------------------------------------------------------------------------


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response; what is no response is an error."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        return unrecognized(raw, FORMAT)
    response, form = _decode_answer(raw)
    return spelled_one(response, _encode_answer(response, form), unmarked(raw), format_name=FORMAT, notes=form)


def _decode_answer(body: Any) -> tuple[Response, dict[str, Any]]:
    """The response, and how it was spelled as far as the encoder cannot tell: `error` and `derived` [RSP-12]."""
    form: dict[str, Any] = {}
    fields = Fields(opened(body), "$")
    left = fields.left()
    if left.get("object") == _COUNTED and (counted := _tokens(fields)) is not None:
        return counted, form
    partial = left.pop(PARTIAL, None) is True
    output = fields.take("output", list)
    error = _error(fields, form, answered=output is not None)
    choices: tuple[Choice, ...] = ()
    without_output = left.get("output") is None and (left.get("object") == "response" or "status" in left)
    if output is not None or (error is None and without_output):
        reader = ItemReader(answer=True, items=output or ())
        items = enumerate(output or ())
        message_parts = tuple([part for at, item in items for part in reader.read(item, f"$.output[{at}]")[1]])
        choices = (_choice(fields, message_parts, partial=partial),)
        form |= _kinds(message_parts)
        text = _joined_text(message_parts)
        if output is not None and left.get("output_text") == text and text:
            del left["output_text"]
            form["derived"] = True
    elif error is None:  # no response, but an error of a server in between, in one of its shapes
        form["error"] = next((key for key in ("message", "detail") if isinstance(fields.peek(key), str)), "none")
        error = trusted(ErrorInfo, message=fields.take(form["error"], str) if form["error"] != "none" else None)
    usage, model = _usage(fields), fields.take("model", str)
    return trusted(Response, choices=choices, usage=usage, model=model, error=error, extra=fields.rest(FORMAT)), form


def _tokens(fields: Fields) -> Response | None:
    """The number of tokens of a request, if the body has one and nothing that belongs to an answer."""
    count = fields.peek("input_tokens")
    if not _ANSWERED.isdisjoint(fields.left()) or type(count) is not int or not 0 <= count <= SAFE_INTEGER:
        return None
    fields.take("object", str)
    fields.take("input_tokens", int)
    usage = trusted(TokenUsage, input_tokens=count, total_tokens=count)
    return trusted(Response, usage=usage, extra=fields.rest(FORMAT))


def _kinds(parts: tuple[Part, ...]) -> dict[str, Any]:
    """The item types of calls and results, by number of the part, and how many parts there are."""
    types = {str(at): kind for at, part in enumerate(parts) if (kind := _wire_type(part)) in KINDS}
    return {"kinds": types, "parts": len(parts)} if types else {}


def _joined_text(parts: Iterable[Part]) -> str:
    """The text of the answer's `output_text` parts, without refusals: the format's own summary."""
    return "".join(part.text for part in parts if isinstance(part, TextPart) and not _is_refusal(part))


def _is_refusal(part: Part) -> bool:
    """Whether a text part is a refusal on the wire."""
    return _wire_type(part) == "refusal"


def _wire_type(part: Part) -> str | None:
    """The type of the wire block that a part was, where it is not the usual one."""
    return as_text(extra_of(part, FORMAT).get("type"))


def _choice(fields: Fields, parts: tuple[Part, ...], *, partial: bool) -> Choice:
    raw = fields.take("status", str)
    status = MessageStatus.PARTIAL if partial else _STATUSES.get(raw or "", MessageStatus.COMPLETE)
    message = trusted(Message, role=Role.ASSISTANT, content=parts, status=status)
    stop = None if status is MessageStatus.PARTIAL else _stop_reason(raw, fields.left(), parts)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=raw)


def _stop_reason(status: str | None, envelope: dict[str, Any], parts: Iterable[Part]) -> StopReason | None:
    """Why an answer with this status (None: the server sends none) and these parts ended [RSP-11]."""
    reason = object_in(envelope, "incomplete_details").get("reason")
    if status in ("completed", "complete") or (status is None and not isinstance(reason, str)):
        listed = tuple(parts)
        if has_client_call(listed):
            return StopReason.CALL
        return StopReason.REFUSAL if any(_is_refusal(part) for part in listed) else StopReason.END
    if status in ("queued", "in_progress"):
        return None
    if status == "failed":
        return StopReason.ERROR
    if isinstance(reason, str) and status in (None, "incomplete"):
        return _INCOMPLETE.get(reason, StopReason.OTHER)
    return StopReason.OTHER


def _error(fields: Fields, form: dict[str, Any], *, answered: bool) -> ErrorInfo | None:
    error = fields.peek("error")
    if isinstance(error, dict):
        message, kind, code = fields.take_in(("error",), message=str, type=str, code=str)
        fields.drop("error", FrozenDict())
        return trusted(ErrorInfo, message=message, type=kind, code=code)
    if isinstance(error, str) and not answered:
        form["error"] = "string"
        return trusted(ErrorInfo, message=fields.take("error", str), code=fields.take("code", str))
    return None


def _usage(fields: Fields) -> TokenUsage | None:
    """Tokens as [A10] counts them; what the numbers do not say again stays."""
    usage = fields.peek("usage")
    listed = usage.get("input_tokens_details") if isinstance(usage, dict) else None
    if not isinstance(usage, dict) or not isinstance(listed, dict | None):
        return None
    rest, details = Fields(usage, "$.usage"), Fields(listed or {}, "$.usage.input_tokens_details")
    counts = [_count(rest, key) for key in ("input_tokens", "output_tokens", "total_tokens")]
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    uncounted = _COUNTS & rest.left().keys() or _CACHE_COUNTS & details.left().keys()
    if uncounted or counts[0] < cached + written:
        return None  # no counts that we know: the block stays as it is
    if listed is not None:
        rest.take("input_tokens_details", dict)
        rest.leave("input_tokens_details", details)
    fields.take("usage", dict)
    fields.leave("usage", rest)
    return trusted(
        TokenUsage,
        input_tokens=counts[0] - cached - written,
        output_tokens=counts[1],
        total_tokens=counts[2],
        cached_input_tokens=cached,
        cache_creation_input_tokens=written,
    )


_COUNTS: Final = frozenset({"input_tokens", "output_tokens", "total_tokens"})
_CACHE_COUNTS: Final = frozenset({"cached_tokens", "cache_write_tokens"})


def _count(block: Fields, key: str) -> int:
    value = block.peek(key)
    return block.take(key, int) or 0 if type(value) is int and value >= 0 else 0


# -- writing answers ---------------------------------------------------------------------------------------------------


def write_response(response: Response) -> dict[str, Any]:
    """The body of a response; the marks of the fold are left out."""
    drop_foreign_extras(FORMAT, response)
    plain = _encode_answer(response, shape_of(response, FORMAT))
    return respell_one(plain, response, format_name=FORMAT, decode=lambda spelt: _decode_answer(spelt)[0])


def _encode_answer(response: Response, form: dict[str, Any]) -> Any:
    """The response as plainly as its provider would say it; `form` is what `_decode_answer` gave [RSP-12]."""
    own = unmarked(extra_of(response, FORMAT))
    if (asked := _asked(response)) is not None:
        return merge({"object": _COUNTED, "input_tokens": asked}, own)
    body = present(model=response.model)
    if response.choices:
        _write_choice(body, response, own, form)
    if response.error is not None:
        _write_error(body, response, own, form)
    if response.usage is not None:
        body["usage"] = _encode_usage(response.usage, foreign=not own)
    merge(body, own)
    if response.choices and not own:
        for key, value in _ENVELOPE.items():
            body.setdefault(key, value)
    return body


def _asked(response: Response) -> int | None:
    """The number of tokens of a request, if that is all that the response has."""
    usage = response.usage
    if response.choices or response.error is not None or response.model is not None or usage is None:
        return None
    alone = TokenUsage(input_tokens=usage.input_tokens, total_tokens=usage.input_tokens)
    return alone.input_tokens if usage == alone else None


# What clients of the format expect of any answer; no clock here, so the time is nought.
_ENVELOPE: Final[dict[str, Any]] = {
    "id": "resp_0",
    "object": "response",
    "created_at": 0,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": FrozenDict(),
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": FrozenList(),
    "top_p": None,
}


def _write_choice(body: dict[str, Any], response: Response, own: dict[str, Any], form: dict[str, Any]) -> None:
    choice = response.choices[0]
    for other in response.choices[1:]:
        drop(FORMAT, "choice", "an answer has one choice here", message=other.message)
    parts = choice.message.content
    raw = choice.raw_stop_reason
    cut = choice.message.status is MessageStatus.PARTIAL and choice.stop_reason is None
    if raw is not None and (own or raw in _STATUSES) and (cut or _still(raw, own, parts, choice.stop_reason)):
        body["status"] = raw
    else:
        refused = choice.stop_reason is StopReason.REFUSAL and not any(map(_is_refusal, parts))
        status, reason = _STATUS.get(StopReason.CONTENT_FILTER if refused else choice.stop_reason, ("completed", None))
        if "status" not in own:
            body["status"] = "in_progress" if choice.message.status is MessageStatus.PARTIAL else status
        # By the details, without a status.
        explained = not refused and raw is None and (cut or _still(None, own, parts, choice.stop_reason))
        if not explained and (reason is not None or "incomplete_details" in own):
            body["incomplete_details"] = {"reason": reason} if reason is not None else None
    kinds = object_in(form, "kinds") if form.get("parts") == len(parts) else NO_SHAPE
    body["output"] = ItemWriter(answer=True, stem=_stem(own.get("id"))).items(choice.message, kinds)
    if form.get("derived") is True and (text := _joined_text(parts)):
        body["output_text"] = text


def _stem(answer_id: Any) -> str:
    """What the ids of an answer's items have between their kind and their number: items are known by them [C9]."""
    return f"{answer_id.removeprefix('resp_')}_" if isinstance(answer_id, str) and answer_id else ""


def _still(raw: str | None, own: dict[str, Any], parts: Iterable[Part], wanted: StopReason | None) -> bool:
    """Whether the original status still gives the reason why the answer ended."""
    reason = _stop_reason(raw, own, parts)
    return reason is wanted or (reason in _ENDED and wanted in _ENDED)  # the status does not tell these apart


_ENDED: Final = frozenset(
    {StopReason.END, StopReason.RETURN, StopReason.CALL, StopReason.STOP_SEQUENCE, StopReason.REFUSAL}
)


_STATUS: Final[dict[StopReason | None, tuple[str, str | None]]] = {
    StopReason.MAX_TOKENS: ("incomplete", "max_output_tokens"),
    StopReason.CONTENT_FILTER: ("incomplete", "content_filter"),
    StopReason.ERROR: ("failed", None),
}


def _write_error(body: dict[str, Any], response: Response, own: dict[str, Any], form: dict[str, Any]) -> None:
    error = response.error
    spelt = form.get("error")
    error_fields = {} if error is None else error.model_dump()
    error_fields.pop("status", None)  # of the HTTP answer, not of its body
    if spelt in ("string", "message", "detail"):
        body["error" if spelt == "string" else spelt] = error_fields.get("message", "")
        if spelt == "string":
            body |= present(code=error_fields.get("code"))
    elif spelt != "none":
        # `type` is the discriminator of nothing here, so it may be absent; clients read `message`.
        blank = {} if own or not error_fields else {"message": "", "type": None, "param": None, "code": None}
        body["error"] = blank | error_fields


def _encode_usage(usage: TokenUsage, *, foreign: bool) -> dict[str, Any]:
    cached, written = usage.cached_input_tokens, usage.cache_creation_input_tokens
    asked = usage.input_tokens + cached + written
    details = {"cached_tokens": cached} | ({"cache_write_tokens": written} if written or foreign else {})
    counts: dict[str, Any] = {
        "input_tokens": asked,
        "input_tokens_details": details,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens or asked + usage.output_tokens,
    }
    if foreign:
        counts["output_tokens_details"] = {"reasoning_tokens": 0}
    return counts
