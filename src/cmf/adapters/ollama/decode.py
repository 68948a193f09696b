"""Ollama's chat bodies as canonical values. Spec: docs/spec/adapters/ollama.md [OLL-1] to [OLL-10]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.wire.fields import MARK, PARTIAL, Fields
from cmf.adapters.wire.layout import spelling
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError, UnknownRoleError
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import (
    ImagePart,
    Layout,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.pairing import has_call
from cmf.message.request import NO_SAMPLING, Choice, ErrorInfo, Request, Response, Sampling
from cmf.message.tools import ToolDefinition

FORMAT: Final = "ollama"
GENERATED: Final = f"{MARK}generated"  # on a message whose fields were in the body itself
EMPTY: Final = FrozenDict()

NUMBERS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
COUNTS: Final = {"num_predict": "max_output_tokens", "seed": "seed"}
STOPS: Final = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "load": StopReason.OTHER,
    "unload": StopReason.OTHER,
}

_ROLES: Final = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}


def layout_of(plain: Any, raw: Any, path: str) -> Layout | None:
    """The layout that gives `raw` from its plain form; None if they are alike; ShapeError if text would be lost."""
    step = spelling(plain, raw, path)
    return Layout(format=FORMAT, shape=freeze(step)) if step else None


def opened(body: Any) -> dict[str, Any]:
    """The body, frozen; ShapeError unless it is an object."""
    raw = freeze(body)
    if not isinstance(raw, dict):
        raise ShapeError("expected a JSON object", path="$", hint="see the provider's reference")
    return raw


# -- messages ----------------------------------------------------------------------------------------------------------


class Calls:
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
            self._waiting = [call for call in self._waiting if call[0] is not None]
            self._waiting += [
                (part.tool_call_id, part.name) for part in message.content if isinstance(part, ToolCallPart)
            ]


def decode_message(raw: Any, path: str, name: str | None = None, *, reply: bool = False) -> Message:
    """The canonical message of one wire message; `name` is its tool's, where the wire has none.

    Raises:
        UnknownRoleError: a role that the provider does not know, in a request.
    """
    fields = Fields(raw, path)
    role = fields.peek("role")
    of_role = _ROLES.get(role) if isinstance(role, str) else None
    if reply:
        of_role = Role.ASSISTANT
        fields.drop("role", "assistant")
    elif of_role is None:
        raise UnknownRoleError("unknown role", path=f"{path}.role", hint="use system, user, assistant or tool")
    else:
        fields.take("role", str)
    fields.drop("role", None)
    if of_role is Role.TOOL:
        return _tool_message(fields, name)
    parts = _parts(fields)
    for index, call in enumerate(fields.optional("tool_calls", list) or ()):
        parts.append(_call(call, f"{path}.tool_calls[{index}]", index, reply=reply))
    return trusted(Message, role=of_role, content=tuple(parts), extra=fields.rest(FORMAT))


def _parts(fields: Fields) -> list[Part]:
    """Thinking, text and images, in the order in which a message has them; empty text is no part."""
    parts: list[Part] = []
    if thinking := fields.optional("thinking", str):
        parts.append(trusted(ThinkingPart, text=thinking))
    if text := fields.optional("content", str):
        parts.append(trusted(TextPart, text=text))
    return [*parts, *_images(fields)]


def _images(fields: Fields) -> list[Part]:
    images = fields.optional("images", list) or ()
    if not all(isinstance(image, str) for image in images):
        raise ShapeError("an image is not a string", path=f"{fields.path}.images", hint="send bare base64")
    return [trusted(ImagePart, type="base64", data=image) for image in images]


def _tool_message(fields: Fields, name: str | None) -> Message:
    text = fields.optional("content", str) or ""
    images = _images(fields)
    named = fields.optional("tool_name", str)
    if named is None:
        old = fields.peek("name")  # stays in `extra`, and so comes back
        named = old if isinstance(old, str) else name
    result = trusted(
        ToolResultPart,
        tool_call_id=fields.optional("tool_call_id", str),
        tool_name=named,
        content=(trusted(TextPart, text=text), *images) if images else text,
    )
    return trusted(Message, role=Role.TOOL, content=(result,), extra=fields.rest(FORMAT))


def _call(raw: Any, path: str, position: int, *, reply: bool) -> ToolCallPart:
    fields = Fields(raw, path)
    if not reply:
        fields.drop("type", "function")
    function = Fields(fields.need("function", dict), f"{path}.function")
    name = function.need("name", str)
    function.drop("index", position)
    text = function.take("arguments", str)
    arguments = None if text is not None else function.optional("arguments", dict) or EMPTY
    fields.leave("function", function)
    id_ = fields.optional("id", str)
    return trusted(
        ToolCallPart,
        name=name,
        tool_call_id=id_,
        arguments=arguments,
        arguments_raw=text,
        extra=fields.rest(FORMAT),
    )


# -- requests ----------------------------------------------------------------------------------------------------------


def decode_envelope(raw: Mapping[str, Any], model: str | None) -> Request:
    """A request's own fields, without its messages. A request streams unless `stream` is false."""
    fields = Fields(dict(raw), "$")
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
    drawn: dict[str, Any] = {name: options.take_number(key) for key, name in NUMBERS.items()}
    for key, name in COUNTS.items():
        drawn[name] = options.take(key, int)
    drawn["stop"] = options.take_texts("stop")
    fields.leave("options", options)
    return trusted(Sampling, **drawn)


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


# -- responses ---------------------------------------------------------------------------------------------------------


def read_response(raw: Mapping[str, Any]) -> Response:
    """The canonical response of a body, without its layout."""
    fields = Fields(dict(raw), "$")
    cut = fields.peek(PARTIAL) is True
    fields.drop(PARTIAL, True)
    message = fields.optional("message", dict)
    choices: tuple[Choice, ...] = ()
    if message is not None:
        choices = (_choice(fields, decode_message(message, "$.message", reply=True), cut=cut),)
    elif isinstance(fields.peek("response"), str):
        choices = (_choice(fields, _generated(fields), cut=cut),)
    error = fields.peek("error")
    info = None
    if error is not None:
        info = ErrorInfo(message=fields.take("error", str))
    return trusted(
        Response,
        choices=choices,
        usage=_usage(fields),
        model=fields.optional("model", str),
        error=info,
        extra=fields.rest(FORMAT),
    )


def _generated(fields: Fields) -> Message:
    """The message of an answer of `/api/generate`, which has its text in the body itself."""
    thinking, text = fields.take("thinking", str), fields.take("response", str)
    parts: list[Part] = [trusted(ThinkingPart, text=thinking)] if thinking else []
    if text:
        parts.append(trusted(TextPart, text=text))
    extra = frozen_mapping({FORMAT: frozen_mapping({GENERATED: True})})
    return trusted(Message, role=Role.ASSISTANT, content=tuple(parts), extra=extra)


def _choice(fields: Fields, message: Message, *, cut: bool) -> Choice:
    if cut or ("done" in fields and fields.peek("done") is not True):
        message = replace(message, status=MessageStatus.PARTIAL)
    for done in (True, False, None):
        fields.drop("done", done)
    reason = fields.peek("done_reason")
    stop = None
    if isinstance(reason, str):
        stop = STOPS.get(reason, StopReason.OTHER)
        if reason in STOPS:
            fields.take("done_reason", str)
        if stop is StopReason.END and has_call(message.content):
            stop = StopReason.CALL
    fields.drop("done_reason", None)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=reason if stop is not None else None)


def _usage(fields: Fields) -> TokenUsage | None:
    given, made = fields.peek("prompt_eval_count"), fields.peek("eval_count")
    counts = [count for count in (given, made) if count is not None]
    if not counts or not all(type(count) is int and count >= 0 for count in counts):
        return None
    fields.take("prompt_eval_count", int)
    fields.take("eval_count", int)
    fields.drop("prompt_eval_count", None)
    fields.drop("eval_count", None)
    total = (given or 0) + (made or 0)
    return trusted(TokenUsage, input_tokens=given or 0, output_tokens=made or 0, total_tokens=total)
