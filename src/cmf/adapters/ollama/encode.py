"""Canonical values as Ollama's chat bodies. Spec: docs/spec/adapters/ollama.md [OLL-1] to [OLL-11]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cmf.adapters.ollama.decode import COUNTS, EMPTY, FORMAT, GENERATED, NUMBERS, STOPS
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import extra_of, merge, unmarked
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import UnsupportedError
from cmf.json.codec import dumps
from cmf.message import binary
from cmf.message.message import (
    ImagePart,
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition
from cmf.views.render import result_text

_RAW: Final = {StopReason.MAX_TOKENS: "length"}  # every other end is a stop
_BETWEEN: Final = "\n\n"  # this format has one text where others have several


# -- messages ----------------------------------------------------------------------------------------------------------


def encode_message(message: Message, names: Mapping[str, str] = EMPTY, *, reply: bool = False) -> list[dict[str, Any]]:
    """The wire messages of one message: one, or one for each of several tool results and one for the rest."""
    results = [part for part in message.content if isinstance(part, ToolResultPart) and part.executed_by == "client"]
    if not results:
        own = [_wire_message(message, message.content, reply=reply)]
    else:
        own = [_result(part, message, names) for part in results]
        rest = [part for part in message.content if part not in results]
        if rest:
            own.append(_wire_message(message, rest, reply=reply))
    if message.extra:
        original = extra_of(message, FORMAT)
        merge(own[0], original)
        if isinstance(original.get("role"), str):
            own[0]["role"] = original["role"]
        loss.drop_foreign_extra(FORMAT, message, "message", message=message)
    return own


def _wire_message(message: Message, parts: Iterable[Part], *, reply: bool) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    images: list[str] = []
    calls: list[dict[str, Any]] = []
    for one in parts:
        loss.drop_foreign_extra(FORMAT, one, one.content_type.value, message=message)
        part = loss.resource_as_text(FORMAT, one, message=message)
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.text)
            if part.signature is not None:
                loss.drop(FORMAT, "thinking_signature", "the format has no signatures", message=message)
        elif isinstance(part, ToolCallPart) and part.executed_by == "client":
            calls.append(_call(part, reply=reply))
        elif isinstance(part, MediaPart):
            images.append(_image(part))
        else:
            loss.drop(FORMAT, part.content_type.value, "the format has no such part", message=message)
    role = "system" if message.role is Role.DEVELOPER else message.role.value
    between = "" if message.role is Role.ASSISTANT else _BETWEEN  # a model's text is cut wherever its service cuts it
    encoded: dict[str, Any] = {"role": role, "content": loss.joined(FORMAT, "text", texts, between, message=message)}
    if thoughts:
        encoded["thinking"] = loss.joined(FORMAT, "thinking", thoughts, between, message=message)
    if images:
        encoded["images"] = images
    if calls:
        encoded["tool_calls"] = calls
    return encoded


def _call(part: ToolCallPart, *, reply: bool) -> dict[str, Any]:
    arguments: Any = part.arguments
    if arguments is None:
        arguments = part.arguments_raw if part.arguments_raw and part.arguments_raw.strip() else EMPTY
    call: dict[str, Any] = {"function": {"name": part.name, "arguments": arguments}}
    if not reply and "type" not in extra_of(part, FORMAT):
        call["type"] = "function"
    if part.tool_call_id is not None:
        call["id"] = part.tool_call_id
    return merge(call, extra_of(part, FORMAT)) if part.extra else call


def _image(part: MediaPart) -> str:
    if isinstance(part, ImagePart):
        if part.type == "base64":
            return part.data
        if (inline := binary.data_url(part.data)) is not None:
            return inline[1]
    raise UnsupportedError(
        f"{part.content_type.value} by {part.type}",
        about=part,
        hint="Ollama takes images, as base64: resolve them first",
    )


def _result(part: ToolResultPart, message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    content = part.content
    images: list[str] = []
    loss.drop_foreign_extra(FORMAT, part, "tool_result", message=message)
    if part.is_error:
        loss.drop(FORMAT, "is_error", "the format cannot say that a result is an error", message=message)
    if isinstance(content, tuple):
        content = tuple(loss.resource_as_text(FORMAT, inner, message=message) for inner in content)
        images = [_image(one) for one in content if isinstance(one, MediaPart)]
        known = (TextPart, ImagePart)
        for inner in content:
            if not isinstance(inner, known):
                loss.drop(FORMAT, inner.content_type.value, "a result has text and images only", message=message)
    text = (
        content if isinstance(content, str) else result_text(content) if isinstance(content, tuple) else _json(content)
    )
    encoded: dict[str, Any] = {"role": "tool", "content": text}
    name = part.tool_name if part.tool_name is not None else names.get(part.tool_call_id or "")
    if name is not None:
        encoded["tool_name"] = name
    if part.tool_call_id is not None:
        encoded["tool_call_id"] = part.tool_call_id
    if images:
        encoded["images"] = images
    return merge(encoded, extra_of(part, FORMAT)) if part.extra else encoded


def _json(content: Any) -> str:
    return "" if content is None else dumps(content).decode()


# -- requests ----------------------------------------------------------------------------------------------------------


def encode_envelope(request: Request) -> dict[str, Any]:
    """A request without its messages; `messages` is there, empty."""
    body: dict[str, Any] = {"messages": [], "stream": request.stream is True}
    if request.model is not None:
        body["model"] = request.model
    if options := _options(request):
        body["options"] = options
    if request.response_schema is not None:
        body["format"] = request.response_schema
    if request.response_schema_name is not None:
        loss.drop(FORMAT, "response_schema_name", "a schema has no name here")
    if request.reasoning_effort is not None:
        body["think"] = request.reasoning_effort
    tools = _tools(request)
    if tools:
        body["tools"] = tools
    loss.drop_foreign_extra(FORMAT, request, "request")
    return merge(body, extra_of(request, FORMAT))


def _options(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    options: dict[str, Any] = {}
    for key, name in (*NUMBERS.items(), *COUNTS.items()):
        if (number := getattr(sampling, name)) is not None:
            options[key] = number
    if sampling.stop is not None:
        options["stop"] = list(sampling.stop)
    return options


def _tools(request: Request) -> list[Any]:
    choice = request.tool_choice
    if choice is not None and request.tools:
        if choice.mode in ("required", "tool"):
            raise UnsupportedError("tool_choice that forces a call", path="tool_choice", hint="ask for `auto`")
        if choice.mode == "none":
            loss.drop(FORMAT, "tools", "they are not to be called, and the format cannot say so")
            return []
    return [_tool(tool) for tool in loss.narrowed(FORMAT, request).tools]


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    own = extra_of(tool, FORMAT)
    if tool.executed_by == "provider":
        if own:
            return own
        raise UnsupportedError("a tool that another provider runs", about=tool, hint="drop it")
    loss.refuse_foreign_kind(FORMAT, tool)
    loss.drop_foreign_extra(FORMAT, tool, "tool_definition")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.input_schema is not None:
        function["parameters"] = tool.input_schema
    return merge({"type": "function", "function": function}, own)


# -- responses ---------------------------------------------------------------------------------------------------------


def plain_response(response: Response) -> dict[str, Any]:
    """The response's body. Raises UnsupportedError for several choices, and for results of tools."""
    if len(response.choices) > 1:
        raise UnsupportedError("several choices", path="choices", hint="ask for one")
    own = unmarked(extra_of(response, FORMAT))
    body: dict[str, Any] = {}
    if response.model is not None:
        body["model"] = response.model
    if response.error is not None and "error" not in own:
        body["error"] = _error(response.error)
    for choice in response.choices:
        body |= _choice(choice, own)
    if response.usage is not None:
        usage = response.usage
        given = usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens
        body |= {"prompt_eval_count": given, "eval_count": usage.output_tokens}
    loss.drop_foreign_extra(FORMAT, response, "response")
    return merge(body, own)


def _error(error: ErrorInfo) -> str:
    return error.message or error.type or error.code or "error"


def _choice(choice: Choice, own: Mapping[str, Any]) -> dict[str, Any]:
    loss.drop_foreign_extra(FORMAT, choice, "choice", message=choice.message)
    body: dict[str, Any] = {**_answer(choice.message), "done": choice.message.status is not MessageStatus.PARTIAL}
    if choice.stop_reason is not None and "done_reason" not in own:
        raw = choice.raw_stop_reason
        fits = raw is not None and STOPS.get(raw) in (choice.stop_reason, _end(choice.stop_reason))
        body["done_reason"] = raw if fits else _RAW.get(choice.stop_reason, "stop")
    return body


def _answer(message: Message) -> dict[str, Any]:
    """The message, or its content in the body itself if it came so and still can."""
    if any(isinstance(part, ToolResultPart) and part.executed_by == "client" for part in message.content):
        raise UnsupportedError(
            "a reply with the result of a tool", about=message, hint="send the result with the next request"
        )
    (wire,) = encode_message(message, reply=True)
    if wire.pop(GENERATED, None) is not True or not wire.keys() <= {"role", "content", "thinking"}:
        return {"message": wire}
    thinking = {"thinking": wire["thinking"]} if "thinking" in wire else {}
    return {"response": wire["content"], **thinking}


def _end(stop: StopReason) -> StopReason:
    return StopReason.END if stop is StopReason.CALL else stop
