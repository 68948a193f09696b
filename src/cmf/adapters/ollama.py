"""The wire format of Ollama's `/api/chat`: messages, requests, answers, and streams of lines. Spec: ollama.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cmf.adapters.wire import loss
from cmf.adapters.wire.base import Adapter, HttpCall, WireEvent
from cmf.adapters.wire.call_ids import call_names
from cmf.adapters.wire.fields import (
    MARK,
    PARTIAL,
    Fields,
    extra_of,
    merge,
    opened,
    read_sampling,
    role_named,
    unmarked,
    write_definition,
    write_sampling,
)
from cmf.adapters.wire.layout import respell, respell_one, spelled_one
from cmf.adapters.wire.replies import in_one_text, unrecognized
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message import binary
from cmf.message.message import (
    ImagePart,
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import NO_SAMPLING, Choice, ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition
from cmf.message.transform import has_call
from cmf.views.render import result_text

FORMAT: Final = "ollama"
EMPTY: Final = FrozenDict()
_ROLES: Final = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}
_BETWEEN: Final = "\n\n"  # this format has one text where others have several
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

# -- messages, read [OLL-1] to [OLL-5] ---------------------------------------------------------------------------------


class _Calls:
    """The tool calls of a conversation that wait for their results: by id, or else by name and order [OLL-4]."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str | None, str]] = []

    def name(self, id_: str | None, name: str | None) -> str | None:
        """The tool's name for a result; what it answers waits no longer."""
        for at, (waiting_id, waiting_name) in enumerate(self._waiting):
            if waiting_id == id_ if id_ is not None else name in (None, waiting_name):
                del self._waiting[at]
                return name or waiting_name
        return name

    def note(self, message: Message) -> None:
        """Note the calls of a message; a new turn of the assistant forgets what was never answered without an id."""
        if message.role is Role.ASSISTANT:
            calls = [(part.tool_call_id, part.name) for part in message.content if isinstance(part, ToolCallPart)]
            self._waiting = [*(call for call in self._waiting if call[0] is not None), *calls]


def _decode_message(raw: Any, path: str, name: str | None = None, *, reply: bool = False) -> Message:
    """The canonical message of one wire message; `name` is its tool's, where the wire has none."""
    fields = Fields(raw, path)
    role = Role.ASSISTANT
    if reply:
        fields.drop("role", "assistant")
    else:
        role = role_named(fields.take("role", str), _ROLES, path)
    fields.drop("role", None)
    is_result = role is Role.TOOL
    parts: list[Part] = []
    if not is_result and (thinking := fields.optional("thinking", str)):
        parts.append(trusted(ThinkingPart, text=thinking))
    text = fields.optional("content", str) or ""
    if text and not is_result:
        parts.append(trusted(TextPart, text=text))
    images = fields.optional("images", list) or ()
    if not all(isinstance(image, str) for image in images):
        raise ShapeError("an image is not a string", path=f"{path}.images", hint="send bare base64")
    parts += [trusted(ImagePart, type="base64", data=image) for image in images]
    if is_result:
        named = fields.optional("tool_name", str)
        if named is None:
            old = fields.peek("name")  # stays in `extra`, and so comes back
            named = old if isinstance(old, str) else name
        content = (trusted(TextPart, text=text), *parts) if images else text
        call_id = fields.optional("tool_call_id", str)
        parts = [trusted(ToolResultPart, tool_call_id=call_id, tool_name=named, content=content)]
    else:
        calls = fields.optional("tool_calls", list) or ()
        parts += [_decode_call(call, f"{path}.tool_calls[{at}]", at, reply=reply) for at, call in enumerate(calls)]
    return trusted(Message, role=role, content=tuple(parts), extra=fields.rest(FORMAT))


def _decode_call(raw: Any, path: str, position: int, *, reply: bool) -> ToolCallPart:
    fields = Fields(raw, path)
    if not reply:
        fields.drop("type", "function")
    function = Fields(fields.need("function", dict), f"{path}.function")
    name = function.need("name", str)
    function.drop("index", position)
    text = function.take("arguments", str)
    arguments = None if text is not None else function.optional("arguments", dict) or EMPTY
    fields.leave("function", function)
    return trusted(
        ToolCallPart,
        name=name,
        tool_call_id=fields.optional("id", str),
        arguments=arguments,
        arguments_raw=text,
        extra=fields.rest(FORMAT),
    )


# -- messages, written [OLL-1] to [OLL-6] ------------------------------------------------------------------------------


def _encode_message(message: Message, names: Mapping[str, str] = EMPTY, *, reply: bool = False) -> list[dict[str, Any]]:
    """The wire messages of one message: one, or one for each of several tool results and one for the rest."""
    results = [part for part in message.content if isinstance(part, ToolResultPart) and part.executed_by == "client"]
    own = [_encode_result(part, message, names) for part in results]
    rest = [part for part in message.content if part not in results] if results else message.content
    if rest or not results:
        own.append(_encode_parts(message, rest, reply=reply))
    if message.extra:
        original = extra_of(message, FORMAT)
        merge(own[0], original)
        if isinstance(original.get("role"), str):
            own[0]["role"] = original["role"]
        loss.drop_foreign_extra(FORMAT, message, "message", message=message)
    return own


def _encode_parts(message: Message, parts: Iterable[Part], *, reply: bool) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    images: list[str] = []
    calls: list[dict[str, Any]] = []
    for original in parts:
        loss.drop_foreign_extra(FORMAT, original, original.content_type.value, message=message)
        part = loss.resource_as_text(FORMAT, original, message=message)
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.text)
            if part.signature is not None:
                loss.drop(FORMAT, "thinking_signature", "the format has no signatures", message=message)
        elif isinstance(part, ToolCallPart) and part.executed_by == "client":
            calls.append(_encode_call(part, reply=reply))
        elif isinstance(part, MediaPart):
            images.append(_encode_image(part))
        else:
            loss.drop(FORMAT, part.content_type.value, "the format has no such part", message=message)
    role = "system" if message.role is Role.DEVELOPER else message.role.value
    between = "" if message.role is Role.ASSISTANT else _BETWEEN  # a model's text is cut wherever its service cuts it
    encoded: dict[str, Any] = {"role": role, "content": loss.joined(FORMAT, "text", texts, between, message=message)}
    if thoughts:
        encoded["thinking"] = loss.joined(FORMAT, "thinking", thoughts, between, message=message)
    return encoded | present(images=images or None, tool_calls=calls or None)


def _encode_call(part: ToolCallPart, *, reply: bool) -> dict[str, Any]:
    own = extra_of(part, FORMAT)
    arguments: Any = part.arguments
    if arguments is None:
        arguments = part.arguments_raw if part.arguments_raw and part.arguments_raw.strip() else EMPTY
    call: dict[str, Any] = {"function": {"name": part.name, "arguments": arguments}}
    if not reply and "type" not in own:
        call["type"] = "function"
    return merge(call | present(id=part.tool_call_id), own)


def _encode_image(part: MediaPart) -> str:
    if isinstance(part, ImagePart):
        if part.type == "base64":
            return part.data
        if (inline := binary.data_url(part.data)) is not None:
            return inline[1]
    kind, hint = part.content_type.value, "Ollama takes images, as base64: resolve them first"
    raise UnsupportedError(f"{kind} by {part.type}", about=part, hint=hint)


def _encode_result(part: ToolResultPart, message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    content = part.content
    images: list[str] = []
    loss.drop_foreign_extra(FORMAT, part, "tool_result", message=message)
    if part.is_error:
        loss.drop(FORMAT, "is_error", "the format cannot say that a result is an error", message=message)
    if isinstance(content, tuple):
        content = tuple(loss.resource_as_text(FORMAT, inner, message=message) for inner in content)
        images = [_encode_image(inner) for inner in content if isinstance(inner, MediaPart)]
        for inner in content:
            if not isinstance(inner, TextPart | ImagePart):
                loss.drop(FORMAT, inner.content_type.value, "a result has text and images only", message=message)
    name = part.tool_name if part.tool_name is not None else names.get(part.tool_call_id or "")
    about = present(tool_name=name, tool_call_id=part.tool_call_id, images=images or None)
    return merge({"role": "tool", "content": result_text(content), **about}, extra_of(part, FORMAT))


# -- requests [OLL-6] to [OLL-9] ---------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` counts where the body names none."""
    raw = opened(body)
    listed = raw.get("messages")
    if listed is not None and not isinstance(listed, list):
        raise ShapeError("`messages` is not an array", path="$.messages", hint="see the provider's reference")
    calls = _Calls()
    messages = tuple([_read_message(message, index, calls) for index, message in enumerate(listed or ())])
    envelope = {key: item for key, item in raw.items() if key != "messages" or not item}
    request = replace(_decode_envelope(envelope, model), messages=messages)
    plain = _encode_envelope(request)
    if listed:
        del plain["messages"]
    return spelled_one(request, plain, envelope, format_name=FORMAT)


def _read_message(raw: Any, index: int, calls: _Calls) -> Message:
    path = f"$.messages[{index}]"
    message = _decode_message(raw, path)
    result = message.content[0] if message.role is Role.TOOL else None
    if isinstance(result, ToolResultPart):
        name = calls.name(result.tool_call_id, result.tool_name)
        if name != result.tool_name:
            message = replace(message, content=(replace(result, tool_name=name),))
    calls.note(message)
    return spelled_one(message, _encode_message(message)[0], raw, format_name=FORMAT, path=path)


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
    sampling = NO_SAMPLING
    if (options := fields.inside("options")) is not None:
        sampling = read_sampling(options, _SAMPLING)
        fields.leave("options", options)
    effort = fields.take("think", str)
    fields.drop("think", None)
    tools = fields.optional("tools", list) or ()
    return trusted(
        Request,
        model=named if named is not None else model,
        stream=True if stream is None else stream,
        response_schema=schema,
        reasoning_effort=effort,
        tools=tuple([_decode_tool(tool, f"$.tools[{index}]") for index, tool in enumerate(tools)]),
        sampling=sampling,
        extra=fields.rest(FORMAT),
    )


def _decode_tool(raw: Any, path: str) -> ToolDefinition:
    fields = Fields(raw, path)
    kind = fields.peek("type")
    if isinstance(kind, str) and kind != "function":
        return trusted(ToolDefinition, name=kind, type=kind, executed_by="provider", extra=fields.rest(FORMAT))
    fields.drop("type", "function")
    fields.drop("type", None)
    function = Fields(fields.need("function", dict), f"{path}.function")
    name = function.need("name", str)
    description = function.optional("description", str)
    schema = function.optional("parameters", dict)
    fields.leave("function", function)
    return trusted(ToolDefinition, name=name, description=description, input_schema=schema, extra=fields.rest(FORMAT))


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
    plain = _encode_message(message, names)
    if len(plain) != 1:
        return plain
    name = next((part.tool_name for part in message.content if isinstance(part, ToolResultPart)), None)

    def decode(spelt: Any) -> tuple[Message]:
        return (_decode_message(spelt, "$", name),)

    return [respell(plain[0], (message,), format_name=FORMAT, decode=decode)]


def _encode_envelope(request: Request) -> dict[str, Any]:
    """A request without its messages; `messages` is there, empty."""
    body: dict[str, Any] = {"messages": [], "stream": request.stream is True, **present(model=request.model)}
    options = write_sampling(request.sampling, _SAMPLING) or None
    body |= present(options=options, format=request.response_schema, think=request.reasoning_effort)
    if request.response_schema_name is not None:
        loss.drop(FORMAT, "response_schema_name", "a schema has no name here")
    choice = request.tool_choice
    if choice is not None and request.tools and choice.mode in ("required", "tool"):
        raise UnsupportedError("tool_choice that forces a call", path="tool_choice", hint="ask for `auto`")
    if choice is not None and request.tools and choice.mode == "none":
        loss.drop(FORMAT, "tools", "they are not to be called, and the format cannot say so")
    elif tools := loss.narrowed(FORMAT, request).tools:
        body["tools"] = [_encode_tool(tool) for tool in tools]
    loss.drop_foreign_extra(FORMAT, request, "request")
    return merge(body, extra_of(request, FORMAT))


def _encode_tool(tool: ToolDefinition) -> dict[str, Any]:
    own = extra_of(tool, FORMAT)
    if tool.executed_by == "provider":
        if own:
            return own
        raise UnsupportedError("a tool that another provider runs", about=tool, hint="drop it")
    loss.refuse_foreign_kind(FORMAT, tool)
    loss.drop_foreign_extra(FORMAT, tool, "tool_definition")
    return merge({"type": "function", "function": write_definition(tool, "parameters")}, own)


# -- answers and errors [OLL-10], [OLL-11] -----------------------------------------------------------------------------

_GENERATED: Final = f"{MARK}generated"  # on a message whose fields were in the body itself
_STOPS: Final = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "load": StopReason.OTHER,
    "unload": StopReason.OTHER,
}
_WORDS: Final = {StopReason.MAX_TOKENS: "length"}  # every other end is a stop


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response; an error body is a response with `error`."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        return unrecognized(raw, FORMAT)
    response = _decode(raw)
    if not response.choices and response.error is None and PARTIAL not in raw:
        return unrecognized(raw, FORMAT)
    return spelled_one(response, _encode(response), unmarked(raw), format_name=FORMAT)


def _decode(raw: Mapping[str, Any]) -> Response:
    fields = Fields(raw, "$")
    cut = fields.peek(PARTIAL) is True
    fields.drop(PARTIAL, True)
    raw_message = fields.optional("message", dict)
    message: Message | None = None
    if raw_message is not None:
        message = _decode_message(raw_message, "$.message", reply=True)
    elif isinstance(fields.peek("response"), str):  # an answer of `/api/generate` has its text in the body itself
        thinking, text = fields.take("thinking", str), fields.take("response", str)
        parts: list[Part] = [trusted(ThinkingPart, text=thinking)] if thinking else []
        if text:
            parts.append(trusted(TextPart, text=text))
        extra = frozen_mapping({FORMAT: frozen_mapping({_GENERATED: True})})
        message = trusted(Message, role=Role.ASSISTANT, content=tuple(parts), extra=extra)
    choices = () if message is None else (_decode_choice(fields, message, cut=cut),)
    error = ErrorInfo(message=fields.take("error", str)) if fields.peek("error") is not None else None
    return trusted(
        Response,
        choices=choices,
        usage=_decode_usage(fields),
        model=fields.optional("model", str),
        error=error,
        extra=fields.rest(FORMAT),
    )


def _decode_choice(fields: Fields, message: Message, *, cut: bool) -> Choice:
    if cut or ("done" in fields and fields.peek("done") is not True):
        message = replace(message, status=MessageStatus.PARTIAL)
    for value in (True, False, None):
        fields.drop("done", value)
    reason, stop = fields.peek("done_reason"), None
    if isinstance(reason, str):
        stop = _STOPS.get(reason, StopReason.OTHER)
        if reason in _STOPS:
            fields.take("done_reason", str)
        if stop is StopReason.END and has_call(message.content):
            stop = StopReason.CALL
    fields.drop("done_reason", None)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=reason if stop is not None else None)


def _decode_usage(fields: Fields) -> TokenUsage | None:
    given, output = fields.peek("prompt_eval_count"), fields.peek("eval_count")
    counts = [count for count in (given, output) if count is not None]
    if not counts or not all(type(count) is int and count >= 0 for count in counts):
        return None
    for key, count in (("prompt_eval_count", given), ("eval_count", output)):
        fields.drop(key, count)
    return trusted(TokenUsage, input_tokens=given or 0, output_tokens=output or 0, total_tokens=sum(counts))


def join_texts(response: Response, streamed: bool) -> Response:
    """The response with its texts as one, and its thinking."""
    return in_one_text(response, FORMAT, is_own=lambda _: False)


def write_response(response: Response) -> dict[str, Any]:
    """The body of a response; UnsupportedError for several choices, and for results of tools."""
    return respell_one(_encode(response), response, format_name=FORMAT, decode=_decode)


def _encode(response: Response) -> dict[str, Any]:
    if len(response.choices) > 1:
        raise UnsupportedError("several choices", path="choices", hint="ask for one")
    own = unmarked(extra_of(response, FORMAT))
    body = present(model=response.model)
    if (error := response.error) is not None and "error" not in own:
        body["error"] = error.message or error.type or error.code or "error"
    for choice in response.choices:
        loss.drop_foreign_extra(FORMAT, choice, "choice", message=choice.message)
        body |= {**_encode_answer(choice.message), "done": choice.message.status is not MessageStatus.PARTIAL}
        if choice.stop_reason is not None and "done_reason" not in own:
            raw = choice.raw_stop_reason
            end = StopReason.END if choice.stop_reason is StopReason.CALL else choice.stop_reason
            fits = raw is not None and _STOPS.get(raw) in (choice.stop_reason, end)
            body["done_reason"] = raw if fits else _WORDS.get(choice.stop_reason, "stop")
    if (usage := response.usage) is not None:
        given = usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens
        body |= {"prompt_eval_count": given, "eval_count": usage.output_tokens}
    loss.drop_foreign_extra(FORMAT, response, "response")
    return merge(body, own)


def _encode_answer(message: Message) -> dict[str, Any]:
    """The message, or its content in the body itself if it came so and still can."""
    if any(isinstance(part, ToolResultPart) and part.executed_by == "client" for part in message.content):
        hint = "send the result with the next request"
        raise UnsupportedError("a reply with the result of a tool", about=message, hint=hint)
    (wire,) = _encode_message(message, reply=True)
    if wire.pop(_GENERATED, None) is not True or not wire.keys() <= {"role", "content", "thinking"}:
        return {"message": wire}
    return {"response": wire["content"], **{key: item for key, item in wire.items() if key == "thinking"}}


# -- streams: lines that each hold a piece of the message, the last one `done` [OLL-12] ff. ----------------------------

_SUPERSEDED: Final = f"{MARK}superseded"  # values that a later line replaced
_UNRECOGNIZED: Final = f"{MARK}unrecognized"  # lines that are no object
_NOTHING: Final = object()
_MESSAGE_TEXTS: Final = ("content", "thinking")
_MESSAGE_LISTS: Final = ("tool_calls", "images")
_BODY_TEXTS: Final = ("response", "thinking")  # of a body that is the message itself
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


def fold_events(events: Iterable[WireEvent | Any]) -> dict[str, Any]:
    """The whole answer that the lines add up to; marked with `cmf_partial` where it was cut."""
    superseded: list[Any] = []
    unread: list[Any] = []
    whole, message = _Gathered(superseded), _Gathered(superseded)
    body = whole.fields
    for event in events:
        line = event.get("data", _NOTHING) if isinstance(event, dict) else _NOTHING
        if not isinstance(line, dict):
            if line is not _NOTHING:
                unread.append(line)
            continue
        for key, value in line.items():
            if key != "message" or not isinstance(value, dict):
                whole.add(key, value, _BODY_TEXTS, ("logprobs",))
            elif isinstance(body.setdefault("message", message.fields), dict):
                body["message"] = message.fields
                for name, item in value.items():
                    message.add(name, item, _MESSAGE_TEXTS, _MESSAGE_LISTS)
            else:
                unread.append({key: value})
    message.settle()
    whole.settle()
    if superseded:
        body[_SUPERSEDED] = superseded
    if unread:
        body[_UNRECOGNIZED] = unread
    if body.get("done") is not True and "error" not in body:
        body[PARTIAL] = True
    return body


class _Gathered:
    """An object whose texts and lists come in pieces. They are joined once, so that a fold is linear in its bytes."""

    def __init__(self, superseded: list[Any]) -> None:
        self.fields: dict[str, Any] = {}  # of a text that goes on, its first piece until it is settled
        self._texts: dict[str, list[str]] = {}
        self._own: set[str] = set()  # the lists that no line holds
        self._superseded = superseded

    def add(self, key: str, value: Any, texts: tuple[str, ...], lists: tuple[str, ...]) -> None:
        """Go on with the text or list under `key`, if it is one of these; else set it. What it held is superseded.

        A number or a moment is not kept, and null takes nothing back: a client's dump says so of all that a line does
        not have.
        """
        old = self.fields.get(key)
        if key in texts and isinstance(value, str) and isinstance(old, str):
            self._texts.setdefault(key, [old]).append(value)
        elif key in lists and isinstance(value, list) and isinstance(old, list):
            if key not in self._own:
                self.fields[key] = [*old]
                self._own.add(key)
            self.fields[key] += value
        elif value is not None or old is None or key == "done":
            self._join(key)
            self._own.discard(key)
            old = self.fields.get(key)
            self.fields[key] = value
            is_moment = key == "created_at" and isinstance(old, str) and _MOMENT.fullmatch(old) is not None
            if isinstance(old, str | list | dict) and old and not is_moment and old != value:
                self._superseded.append({key: old})

    def settle(self) -> None:
        """Join what came in pieces."""
        for key in list(self._texts):
            self._join(key)

    def _join(self, key: str) -> None:
        if (pieces := self._texts.pop(key, None)) is not None:
            self.fields[key] = "".join(pieces)


def error_event(text: str, reply: Any) -> WireEvent:
    """The line for an error with this text."""
    return {"data": {"error": text}}


def write_events(response: Response) -> list[WireEvent]:
    """The lines that fold to the body of the response: thinking, text, and the rest with the last one."""
    body = write_response(response)
    message = body.get("message")
    if "done" not in body or "error" in body:
        return [{"data": body}]
    about = {key: body[key] for key in ("model", "created_at") if key in body}
    if message is None and isinstance(body.get("response"), str):
        texts = {key: body[key] for key in ("thinking", "response") if isinstance(body.get(key), str) and body[key]}
        lines = [{**about, "response": "", key: text, "done": False} for key, text in texts.items()]
        return [{"data": line} for line in (*lines, {**body, **dict.fromkeys(texts, "")})]
    if not isinstance(message, dict):
        return [{"data": body}]
    texts = {key: message[key] for key in ("thinking", "content") if isinstance(message.get(key), str) and message[key]}
    who = {key: message[key] for key in ("role",) if key in message}
    if isinstance(message.get("content"), str):
        who["content"] = ""
    lines = [{**about, "message": {**who, key: text}, "done": False} for key, text in texts.items()]
    last = {**body, "message": {**message, **dict.fromkeys(texts, "")}}
    return [{"data": line} for line in (*lines, last)]


class LiveDecoder:
    """What each line adds at once. Never raises."""

    def __init__(self) -> None:
        self._calls = LiveCalls()

    def __call__(self, event: WireEvent) -> Iterator[StreamEvent]:
        """The canonical events of one line."""
        line = event.get("data")
        message = line.get("message") if isinstance(line, dict) else None
        if isinstance(line, dict) and message is None and "response" in line:
            message = {"thinking": line.get("thinking"), "content": line["response"]}
        if not isinstance(message, dict):
            return
        if (thinking := message.get("thinking")) and isinstance(thinking, str):
            yield ThinkingDelta(text=thinking)
        if (text := message.get("content")) and isinstance(text, str):
            yield TextDelta(text=text)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if isinstance(name, str):
                yield self._calls.begin(None, call.get("id"), name)  # it does not grow, so no key is needed


ADAPTER: Final = Adapter(
    name=FORMAT,
    read_request=read_request,
    write_request=write_request,
    to_http=http_call,
    read_response=read_response,
    write_response=write_response,
    fold=fold_events,
    write_events=write_events,
    error_event=error_event,
    live_decoder=LiveDecoder,
    join_texts=join_texts,
)
