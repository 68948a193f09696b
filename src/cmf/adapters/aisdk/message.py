"""UI messages of the AI SDK, requests and answers made of them, both ways. Spec: docs/spec/adapters/aisdk.md.

A UI part of a tool holds the call and its result in one object; here they are two parts. In history the result of a
tool that the application runs is a TOOL message, as in every other format; what was one UI message stays one group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from cmf.adapters.aisdk.version4 import as_it_was, modernized
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import with_ids
from cmf.adapters.wire.fields import MARK, PARTIAL, Fields, as_text, extra_of, object_in, role_named
from cmf.adapters.wire.layout import capped, grouped, grouped_as, respell, respell_one, shape_of, spelled_one, spelling
from cmf.adapters.wire.loss import drop, drop_foreign_extras
from cmf.adapters.wire.replies import unrecognized
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import DecodeError, ShapeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message.message import (
    NO_SHAPE,
    AudioPart,
    DocumentPart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    media_class,
)
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.message.transform import has_call

FORMAT: Final = "aisdk"
STREAM: Final = f"{MARK}stream"  # what the fold of a stream keeps beside its message
_STEP: Final = FrozenDict(type="step-start")
_ROLES: Final = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_WORDS: Final = {Role.SYSTEM: "system", Role.DEVELOPER: "system", Role.USER: "user"}
_ANY_TYPE: Final[dict[type, str]] = {
    ImagePart: "image/*",
    VideoPart: "video/*",
    AudioPart: "audio/*",
    DocumentPart: "application/octet-stream",
}

Names = Mapping[str, str]
"""Names of tools by call id, for results whose UI part does not say them."""
_NO_NAMES: Final[Names] = FrozenDict()
Encode = Callable[[Sequence[Message]], dict[str, Any]]


# -- reading UI messages [AISDK-1] to [AISDK-5] ------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """The parts of one UI message, step by step; `places` are those of parts that are written in another way."""

    places: dict[str, list[int]] = field(default_factory=lambda: {"steps": [], "raw": [], "dynamic": [], "values": []})
    calls: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    answers: list[list[Part]] = field(default_factory=lambda: [[]])
    results: list[list[Part]] = field(default_factory=lambda: [[]])

    def begin_step(self) -> None:
        """What follows came from another call of the model, which may use the ids of answered calls again."""
        self.calls -= self.answered
        self.answered.clear()
        if self.answers[-1] or self.results[-1]:
            self.answers.append([])
            self.results.append([])


def _read_message(
    raw: Any, path: str, *, index: int, split: bool, encode: Encode, names: Names = _NO_NAMES
) -> tuple[Message, ...]:
    """The messages of one UI message, which form a group; the first carries what has no canonical field.

    Args:
        raw: the frozen UI message.
        path: where it stands, for errors.
        index: the number of the group.
        split: results of the application's tools become TOOL messages; else all stays in one message.
        encode: the plain encoding, to find what the layout has to say.
        names: names of tools by call id.
    """
    raw, version4 = modernized(raw, path)
    fields = Fields(raw, path)
    role = role_named(fields.need("role", str), _ROLES, path)
    reading = _Reading()
    parts = fields.take("parts", list)
    shape: dict[str, Any] = {}
    content = fields.peek("content")
    if parts is not None:
        for at, part in enumerate(parts):
            _read_part(part, f"{path}.parts[{at}]", at, role, names, reading)
        texts = [part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
        if isinstance(content, str) and content == "".join(texts):  # it repeats the parts: that is spelling
            fields.drop("content", content)
            shape = {"content": True}
    elif fields.peek("parts") is not None:
        raise ShapeError("`parts` is not a list", path=f"{path}.parts", hint="see the AI SDK's UIMessage")
    elif (text := fields.take("content", str)) is not None:
        # The shape of version 4, which is still in databases.
        reading.answers[-1].append(trusted(TextPart, text=text))
        shape = {"form": "content"}
    messages = _messages(reading, role, split=split and role is Role.ASSISTANT)
    messages[0] = replace(messages[0], extra=fields.rest(FORMAT))
    shape |= {key: ats for key, ats in reading.places.items() if ats} | present(version4=version4 or None)
    if shape or len(messages) > 1:
        shape["parts"] = len(parts) if parts is not None else 0
    step = spelling(encode(_laid(messages, shape, index)), raw, path)
    return capped(_laid(messages, {**shape, **step}, index))


def _messages(reading: _Reading, role: Role, *, split: bool) -> list[Message]:
    if not split:
        content = tuple([part for answers in reading.answers for part in answers])
        return [trusted(Message, role=role, content=content)]
    messages: list[Message] = []
    for answers, results in zip(reading.answers, reading.results, strict=True):
        apart = set(map(id, results))
        kept = [part for part in answers if id(part) not in apart]
        if kept or not messages:
            messages.append(trusted(Message, role=role, content=tuple(kept)))
        messages += [trusted(Message, role=Role.TOOL, content=(result,)) for result in results]
    return messages


def _laid(messages: Sequence[Message], shape: dict[str, Any], index: int) -> Sequence[Message]:
    first = messages[0]
    if not shape and len(messages) == 1 and (first.extra is not None or first.role is not Role.ASSISTANT):
        return messages  # an answer without keys of its own has to be marked as standing alone
    return grouped_as(messages, format_name=FORMAT, index=index, shape=FrozenDict(shape))


# -- parts -------------------------------------------------------------------------------------------------------------


def _read_part(raw: Any, path: str, at: int, role: Role, names: Names, reading: _Reading) -> None:
    fields = Fields(raw, path)
    if raw == _STEP:
        reading.places["steps"].append(at)
        reading.begin_step()
        return
    kind = fields.peek("type")
    part: Part | None = None
    if not isinstance(kind, str):
        kind = "part"
    elif kind.startswith("tool-") or kind == "dynamic-tool":
        if _read_tool(fields, kind, at, names, reading):
            return
    elif kind in ("text", "reasoning") and (text := fields.take("text", str)) is not None:
        fields.drop("type", kind)
        if role is Role.ASSISTANT:
            fields.drop("state", "done")
        part = trusted(TextPart if kind == "text" else ThinkingPart, text=text, extra=fields.rest(FORMAT))
    elif kind == "file":
        part = _read_file(fields)
    if part is None:
        part = trusted(OpaquePart, provider=FORMAT, type=kind, value=raw)
    reading.answers[-1].append(part)


def _read_file(fields: Fields) -> Part | None:
    url, media_type = fields.peek("url"), fields.peek("mediaType")
    if not isinstance(url, str) or not isinstance(media_type, str):
        return None
    for key in ("type", "url", "mediaType"):
        fields.drop(key, fields.peek(key))
    head = f"data:{media_type};base64,"
    source, data = ("base64", url[len(head) :]) if url.startswith(head) else ("url", url)
    cls = media_class(media_type)
    own: dict[str, Any] = {"title": fields.take("filename", str)} if cls is DocumentPart else {}
    return trusted(cls, type=source, data=data, media_type=media_type, **own, extra=fields.rest(FORMAT))


def _read_tool(fields: Fields, kind: str, at: int, names: Names, reading: _Reading) -> bool:
    """The call and the result of a tool part; False if it does not fit."""
    dynamic = kind == "dynamic-tool"
    name = fields.take("toolName", str) if dynamic else kind.removeprefix("tool-")
    call_id = fields.take("toolCallId", str)
    if name is None or call_id is None or call_id in reading.calls:
        return False
    if not name and not (dynamic and fields.peek("input") is None):
        return False  # a part without a name is a result whose call is in an earlier message, and nothing else
    key = "rawInput" if fields.peek("input") is None and fields.peek("rawInput") is not None else "input"
    given = fields.peek(key)
    fields.drop(key, given)
    if given is not None and not isinstance(given, FrozenDict | str):
        reading.places["values"].append(at)
        given = dumps(given).decode()
    reading.calls.add(call_id)
    if dynamic:
        reading.places["dynamic"].append(at)
    if key == "rawInput":
        reading.places["raw"].append(at)
    ran = "client"
    if fields.peek("providerExecuted") is True:
        fields.drop("providerExecuted", True)
        ran = "provider"
    if given is None and name and fields.peek("state") != "input-streaming":
        given = FrozenDict()  # called without any
    result = _result(fields, call_id, name or names.get(call_id), ran)
    fields.drop("state", _state_of(result))
    fields.drop("type", kind)
    call = trusted(
        ToolCallPart,
        tool_call_id=call_id,
        name=name,
        arguments=given if isinstance(given, FrozenDict) else None,
        arguments_raw=given if isinstance(given, str) else None,
        executed_by=ran,
        extra=fields.rest(FORMAT),
    )
    reading.answers[-1].append(call)
    if result is not None:
        reading.answered.add(call_id)
        reading.answers[-1].append(result)
        if ran == "client":
            reading.results[-1].append(result)
    return True


def _result(fields: Fields, call_id: str, name: str | None, ran: str) -> ToolResultPart | None:
    """What the tool returned, if the part has it, with the fields that belong to the result."""
    state = fields.peek("state")
    error = fields.peek("errorText")
    failed = state in ("output-error", "output-denied") or (isinstance(error, str) and "output" not in fields)
    if not (failed or state == "output-available" or "output" in fields):
        return None
    content: Any = None
    if not failed:
        content = fields.peek("output")
        fields.drop("output", content)
    elif isinstance(error, str):
        content = error
        fields.drop("errorText", error)
    own = {}
    for key in ("resultProviderMetadata", "preliminary"):
        if (item := fields.peek(key)) is not None:
            own[key] = item
            fields.drop(key, item)
    if state == "output-denied":
        own["state"] = state
        fields.drop("state", state)
    return trusted(
        ToolResultPart,
        tool_call_id=call_id,
        tool_name=name,
        content=content,
        is_error=failed,
        executed_by=ran,
        extra=freeze({FORMAT: own}) if own else None,
    )


def _state_of(result: ToolResultPart | None) -> str:
    """The state of a tool part that names none."""
    if result is None:
        return "input-available"
    return "output-error" if result.is_error else "output-available"


# -- writing UI messages [AISDK-1] to [AISDK-6] ------------------------------------------------------------------------


def _write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The UI messages of a conversation: a group each, or a run of assistant and tool messages from elsewhere.

    An answer, its calls' results and the next answer from elsewhere are joined to one.
    """
    groups: list[list[Message]] = []
    for group in grouped(messages, FORMAT):
        if len(group) == 1 and groups and _goes_on(group[0]) and groups[-1][0].role in (Role.ASSISTANT, Role.TOOL):
            groups[-1] += group
        else:
            groups.append([*group])
    written: list[dict[str, Any]] = []
    for each in groups:
        wire = _older(_write_group(each, index=len(written), split=True), each)
        if wire.get("parts") != [] or not any(message.content for message in each):
            written.append(wire)
    return written


def _goes_on(message: Message) -> bool:
    """Whether a lone message is no UI message of its own: a result, or an answer that did not come as one."""
    if message.role is Role.TOOL:
        return True
    layout = message.provider_raw
    came_so = layout is not None and layout.format == FORMAT and layout.size == 1
    return message.role is Role.ASSISTANT and not came_so and not extra_of(message, FORMAT)


def _write_group(group: Sequence[Message], *, index: int, split: bool) -> dict[str, Any]:
    """The UI message of a group: as it came if that still has the content of the messages, else in normal form."""

    def decode(spelt: Any) -> Sequence[Message]:
        return _read_message(spelt, "$", index=index, split=split, encode=lambda _: spelt, names=_names_in(group))

    return respell(_write_plain(group, index=index), group, format_name=FORMAT, decode=decode)


def _older(body: dict[str, Any], group: Sequence[Message]) -> dict[str, Any]:
    """The UI message in the form of version 4, if it came in that."""
    shape = shape_of(group[0], FORMAT)
    form = shape.get("version4")
    return as_it_was(body, form) if isinstance(form, dict) and len(body.get("parts", ())) == shape["parts"] else body


def _names_in(messages: Sequence[Message]) -> dict[str, str]:
    """The names of tools that results carry, by call id."""
    parts = (part for message in messages for part in message.content if isinstance(part, ToolResultPart))
    return {part.tool_call_id: part.tool_name for part in parts if part.tool_call_id and part.tool_name}


def _write_plain(group: Sequence[Message], *, index: int = 0) -> dict[str, Any]:
    """The UI message of a group, with the placement of steps and the keys of inputs as it came."""
    group = with_ids(group)
    first = group[0]
    shape = shape_of(first, FORMAT)
    writing = _Writing(group, shape)
    parts = writing.parts()
    if len(parts) != shape.get("parts", len(parts)):
        # Something was added or taken away: the places of steps and spellings are no longer known.
        parts = _Writing(group, NO_SHAPE).parts()
    role = _WORDS.get(first.role, "assistant")
    message: dict[str, Any] = {"role": role, "parts": parts}
    text = "".join(part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))
    if shape.get("form") == "content" and all(part.get("type") == "text" for part in parts):
        message = {"role": role, "content": text}
    elif shape.get("content") is True:
        message["content"] = text
    return {"id": f"msg_{index}", **extra_of(first, FORMAT), **message}


class _Writing:
    """The parts of one UI message, as they are put together."""

    def __init__(self, group: Sequence[Message], shape: FrozenDict) -> None:
        self._group = group
        self._steps, self._raw, self._dynamic, self._values = (
            frozenset(at for at in ats if type(at) is int) if isinstance(ats := shape.get(key), list) else frozenset()
            for key in ("steps", "raw", "dynamic", "values")
        )
        self._placed = "parts" in shape
        self._out: list[dict[str, Any]] = []
        self._results: dict[str | None, deque[ToolResultPart]] = {}  # by id, those not written yet
        for message in group:
            for part in message.content:
                if isinstance(part, ToolResultPart):
                    self._results.setdefault(part.tool_call_id, deque()).append(part)

    def parts(self) -> list[dict[str, Any]]:
        """All parts, steps included."""
        several = sum(message.role is Role.ASSISTANT for message in self._group) > 1
        for message in self._group:
            if several and not self._placed and message.role is Role.ASSISTANT:
                self._out.append({**_STEP})
            for part in message.content:
                self._begin_steps()
                if isinstance(part, ToolCallPart):
                    waiting = self._results.get(part.tool_call_id)
                    self._out.append(self._tool(part, waiting.popleft() if waiting else None))
                elif isinstance(part, ToolResultPart):
                    waiting = self._results[part.tool_call_id]
                    if waiting and waiting[0] is part:  # those before it were written with their calls, or before it
                        self._out.append(self._tool(None, waiting.popleft()))
                elif (written := _write_part(part, message)) is not None:
                    self._out.append(written)
        self._begin_steps()
        return self._out

    def _begin_steps(self) -> None:
        while len(self._out) in self._steps:
            self._out.append({**_STEP})

    def _tool(self, call: ToolCallPart | None, result: ToolResultPart | None) -> dict[str, Any]:
        at = len(self._out)
        said: Any = result if call is None else call
        name = (call.name if call is not None else said.tool_name) or ""
        wire: dict[str, Any] = {"type": f"tool-{name}"}
        if at in self._dynamic or call is None or not name:
            wire = {"type": "dynamic-tool", "toolName": name}
        wire |= {"toolCallId": said.tool_call_id, "state": _state_of(result)}
        if call is not None:
            given: Any = call.arguments if call.arguments_raw is None else call.arguments_raw
            key = "rawInput" if at in self._raw else "input"
            wire |= present(**{key: given})
            if at in self._values and isinstance(given, str):
                with suppress(DecodeError):  # it is no JSON any more
                    wire[key] = loads(given)
        if said.executed_by == "provider":
            wire["providerExecuted"] = True
        if result is not None:
            wire |= _write_result(result)
        own = extra_of(call, FORMAT) if call is not None else {}
        if isinstance(own.get("state"), str):
            wire["state"] = own["state"]
        return {**own, **wire}


def _write_result(result: ToolResultPart) -> dict[str, Any]:
    wire: dict[str, Any] = {**extra_of(result, FORMAT)}
    if not result.is_error:
        wire["output"] = _output(result.content)
    elif result.content is not None or wire.get("state") != "output-denied":
        text = _output(result.content)
        wire["errorText"] = text if isinstance(text, str) else "" if text is None else dumps(text).decode("utf-8")
    return wire


def _output(content: Any) -> Any:
    """What a tool returned, as JSON: text where it is nothing but text, else the SDK's own list of items."""
    if not isinstance(content, tuple):
        return content
    if all(isinstance(part, TextPart) for part in content):
        return "\n".join(part.text for part in content)
    items: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, TextPart):
            items.append({"type": "text", "text": part.text})
        elif isinstance(part, MediaPart) and part.type == "base64":
            items.append({"type": "media", "data": part.data, "mediaType": _media_type(part)})
        else:
            problem = f"a tool's output cannot hold {part.content_type} here"
            raise UnsupportedError(problem, about=part, hint="route to another target")
    return {"type": "content", "value": items}


def _write_part(part: Part, message: Message) -> dict[str, Any] | None:
    if isinstance(part, OpaquePart) and part.provider == FORMAT:
        return dict(part.value)
    if isinstance(part, OpaquePart | RedactedThinkingPart):
        drop(FORMAT, part.content_type.value, "a block of another format", message=message)
        return None
    if isinstance(part, TextPart | ThinkingPart):
        if isinstance(part, ThinkingPart) and part.signature is not None:
            drop(FORMAT, "signature", "the proof of another provider", message=message)
        wire = {"type": "text" if isinstance(part, TextPart) else "reasoning", "text": part.text}
        if message.role is Role.ASSISTANT:
            wire["state"] = "done"
        return wire | {key: item for key, item in extra_of(part, FORMAT).items() if key not in ("type", "text")}
    if not isinstance(part, MediaPart):
        problem = f"the AI SDK has no part for {part.content_type}"
        raise UnsupportedError(problem, about=part, hint="route to another target")
    if part.type == "file_ref":
        problem = "the AI SDK carries files as data or by URL only"
        raise UnsupportedError(problem, about=part, hint="resolve the reference first")
    if message.role is Role.SYSTEM:
        raise UnsupportedError("a system message has no files", about=part, hint="put the file into a user message")
    media_type = _media_type(part)
    url = f"data:{media_type};base64,{part.data}" if part.type == "base64" else part.data
    title = part.title if isinstance(part, DocumentPart) else None
    return {**extra_of(part, FORMAT), "type": "file", "mediaType": media_type, "url": url, **present(filename=title)}


def _media_type(part: MediaPart) -> str:
    return part.media_type if part.media_type is not None else _ANY_TYPE[type(part)]


# -- requests: what `useChat` sends to its server ----------------------------------------------------------------------

_CALL: Final = HttpCall(path="/api/chat", headers={"Content-Type": "application/json"})


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request: of an object with `messages` (or the last `message` alone), or a list of messages."""
    raw = freeze(body)
    request, form = _decode_request(raw, model)
    return spelled_one(request, _encode_request(request, form), raw, format_name=FORMAT, notes=form)


def _decode_request(raw: Any, model: str | None) -> tuple[Request, dict[str, Any]]:
    """The request, and how its messages were arranged in the body."""
    if isinstance(raw, list):
        return trusted(Request, model=model, messages=_conversation(raw, "$")), {"form": "list"}
    fields = Fields(raw, "$")
    listed = fields.take("messages", list)
    form: dict[str, Any] = {}
    if listed is None:
        messages, form = _conversation([fields.need("message", dict)], "$.message"), {"form": "one"}
    else:
        messages = _conversation(listed, "$.messages")
    named = fields.take("model", str)
    model = named if named is not None else model
    return trusted(Request, model=model, messages=messages, extra=fields.rest(FORMAT)), form


def _conversation(listed: Sequence[Any], path: str) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, raw in enumerate(listed):
        encode = partial(_write_plain, index=index)
        messages += _read_message(raw, f"{path}[{index}]", index=index, split=True, encode=encode)
    return tuple(messages)


def http_call(request: Request) -> HttpCall:
    """The POST to the application's chat route."""
    return _CALL


def write_request(request: Request) -> Any:
    """The body of a request."""
    drop_foreign_extras(FORMAT, request)
    return respell_one(
        _encode_request(request, shape_of(request, FORMAT)),
        request,
        format_name=FORMAT,
        decode=lambda spelt: _decode_request(spelt, request.model)[0],
    )


def _encode_request(request: Request, form: Mapping[str, Any]) -> Any:
    for name in ("tools", "tool_choice", "response_schema"):
        if getattr(request, name) not in (None, ()):
            raise UnsupportedError(
                f"a UI message request cannot carry {name}", path=name, hint="set it on the chat's server"
            )
    for name, item in (*request.sampling.model_dump().items(), ("reasoning_effort", request.reasoning_effort)):
        if item is not None:
            drop(FORMAT, name, "set on the chat's server")
    messages = _write_messages(request.messages)
    if form.get("form") == "list":
        return messages
    body: dict[str, Any] = dict(extra_of(request, FORMAT))
    if form.get("form") == "one" and len(messages) == 1:
        body["message"] = messages[0]
    else:
        body["messages"] = messages
    if request.model is not None:
        body["model"] = request.model
    return body


# -- answers: a UI message, or an error --------------------------------------------------------------------------------

_STOP_REASONS: Final = {
    "stop": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "content-filter": StopReason.CONTENT_FILTER,
    "tool-calls": StopReason.CALL,
    "error": StopReason.ERROR,
    "other": StopReason.OTHER,
    "unknown": StopReason.OTHER,
}
_STOP_WORDS: Final = {
    StopReason.END: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTENT_FILTER: "content-filter",
    StopReason.REFUSAL: "content-filter",
    StopReason.CALL: "tool-calls",
    StopReason.ERROR: "error",
}
_RESPONSE_KEYS: Final = frozenset({"role", "parts", "error", STREAM, PARTIAL})  # what a message, an error or a fold has


def read_response(body: Any, context: Request | None = None) -> Response:
    """The canonical response of a UI message, or of what a stream folded to.

    `context` names the tools of results whose call is in an earlier message.
    """
    raw, names = freeze(body), _names_in(context.messages) if context is not None else {}
    if not isinstance(raw, dict) or not _RESPONSE_KEYS & raw.keys():
        return unrecognized(raw, FORMAT)
    notes, partial = object_in(raw, STREAM), raw.get(PARTIAL) is True
    own: dict[str, Any] = {"stream": notes} if notes else {}
    if partial:
        own["partial"] = True
    message_body = frozen_mapping({key: item for key, item in raw.items() if key not in (STREAM, PARTIAL)})
    errors, error = notes.get("errors"), None
    if isinstance(errors, list) and errors:
        text = errors[0].get("errorText") if isinstance(errors[0], dict) else None
        error = trusted(ErrorInfo, message=as_text(text), type="error")
    if "role" not in message_body and "error" in message_body:
        return _only_an_error(message_body, own)
    (message,) = _read_message(message_body, "$", index=0, split=False, encode=_write_plain, names=names)
    failed = MessageStatus.COMPLETE if error is None else MessageStatus.ERROR
    status = MessageStatus.CANCELLED if "abort" in notes else MessageStatus.PARTIAL if partial else failed
    if status is not MessageStatus.COMPLETE:
        message = replace(message, status=status)
    word = as_text(notes.get("finishReason"))
    stop = _stop_reason(word, message) if word is not None else None
    mark = None if word is None or word in _STOP_REASONS else freeze({FORMAT: {}})  # the word is this format's
    choice = trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=word, extra=mark)
    return trusted(Response, choices=(choice,), error=error, extra=freeze({FORMAT: own}) if own else None)


def _only_an_error(body: FrozenDict, own: dict[str, Any]) -> Response:
    raw_error = body["error"]
    text = raw_error.get("message") if isinstance(raw_error, dict) else raw_error
    kept = {key: item for key, item in body.items() if key != "error" or not isinstance(raw_error, str)}
    error = trusted(ErrorInfo, message=as_text(text))
    own = {**own, "body": frozen_mapping(kept)} if kept else own
    return trusted(Response, error=error, extra=freeze({FORMAT: own}) if own else None)


def write_response(response: Response) -> dict[str, Any]:
    """The UI message; `{"error": …}` for a response that is nothing but an error."""
    if response.error is not None and response.choices:
        drop(FORMAT, "error", "a UI message cannot say that it failed", message=response.choices[0].message)
    body = current_body(response)
    return _older(body, (response.choices[0].message,)) if response.choices else body


def current_body(response: Response) -> dict[str, Any]:
    """The same in the form of version 5, whatever version it came in."""
    drop_foreign_extras(FORMAT, response)
    if response.error is not None and not response.choices:
        return {"error": response.error.message or "", **object_in(extra_of(response, FORMAT), "body")}
    if len(response.choices) != 1:
        raise UnsupportedError("the AI SDK has one answer at a time", path="choices", hint="choose one")
    return _write_group((response.choices[0].message,), index=0, split=False)


def _stop_reason(word: str, message: Message) -> StopReason:
    """The stop reason of a word; `tool-calls` is one only where there is a call."""
    reason = _STOP_REASONS.get(word, StopReason.OTHER)
    return StopReason.OTHER if reason is StopReason.CALL and not has_call(message.content) else reason


def stop_word(choice: Choice | None) -> str | None:
    """The wire's word for why the choice ended: the one that it came with, if it still means the same."""
    if choice is None:
        return None
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    own = raw in _STOP_REASONS or FORMAT in (choice.extra or {})
    if raw is not None and own and _stop_reason(raw, choice.message) is reason:
        return raw
    if reason is StopReason.CALL and not has_call(choice.message.content):
        return "stop"
    return None if reason is None else _STOP_WORDS.get(reason, "other")
