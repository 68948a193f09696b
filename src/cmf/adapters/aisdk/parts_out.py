"""Canonical messages to UI messages of the AI SDK. Spec: docs/spec/adapters/aisdk.md [AISDK-1] to [AISDK-6]."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from cmf.adapters.aisdk.parts_in import FORMAT, read_message, written_state
from cmf.adapters.aisdk.version4 import as_it_was
from cmf.adapters.wire.call_ids import with_ids
from cmf.adapters.wire.fields import extra_of
from cmf.adapters.wire.layout import grouped, respell, shape_of
from cmf.adapters.wire.loss import drop
from cmf.enums import Role
from cmf.errors import DecodeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict
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
)

_STEP: Final = {"type": "step-start"}
_ROLES: Final = {Role.SYSTEM: "system", Role.DEVELOPER: "system", Role.USER: "user"}
_ANY_TYPE: Final[dict[type, str]] = {
    ImagePart: "image/*",
    VideoPart: "video/*",
    AudioPart: "audio/*",
    DocumentPart: "application/octet-stream",
}


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The UI messages of a conversation: a group each, or a run of assistant and tool messages from elsewhere."""
    written: list[dict[str, Any]] = []
    for group in _groups(messages):
        wire = older(write_group(group, index=len(written), split=True), group)
        if wire.get("parts") != [] or not any(message.content for message in group):
            written.append(wire)
    return written


def _groups(messages: Sequence[Message]) -> list[list[Message]]:
    """Groups as they came; an answer, its calls' results and the next answer from elsewhere are joined to one."""
    groups: list[list[Message]] = []
    for group in grouped(messages, FORMAT):
        if len(group) == 1 and groups and _goes_on(group[0]) and groups[-1][0].role in (Role.ASSISTANT, Role.TOOL):
            groups[-1] += group
        else:
            groups.append([*group])
    return groups


def _goes_on(message: Message) -> bool:
    """Whether a lone message is no UI message of its own: a result, or an answer that did not come as one."""
    if message.role is Role.TOOL:
        return True
    layout = message.provider_raw
    came_so = layout is not None and layout.format == FORMAT and layout.size == 1
    return message.role is Role.ASSISTANT and not came_so and not extra_of(message, FORMAT)


def write_group(group: Sequence[Message], *, index: int, split: bool) -> dict[str, Any]:
    """The UI message of a group: as it came if that still has the content of the messages, else in normal form."""

    def decode(spelt: Any) -> Sequence[Message]:
        return read_message(spelt, "$", index=index, split=split, encode=lambda _: spelt, names=names_in(group))

    return respell(write_plain(group, index=index), group, format_name=FORMAT, decode=decode)


def older(body: dict[str, Any], group: Sequence[Message]) -> dict[str, Any]:
    """The UI message in the form of version 4, if it came in that."""
    shape = shape_of(group[0], FORMAT)
    form = shape.get("version4")
    return as_it_was(body, form) if isinstance(form, dict) and len(body.get("parts", ())) == shape["parts"] else body


def names_in(messages: Sequence[Message]) -> dict[str, str]:
    """The names of tools that results carry, by call id."""
    parts = (part for message in messages for part in message.content if isinstance(part, ToolResultPart))
    return {part.tool_call_id: part.tool_name for part in parts if part.tool_call_id and part.tool_name}


def write_plain(group: Sequence[Message], *, index: int = 0) -> dict[str, Any]:
    """The UI message of a group, with the placement of steps and the keys of inputs as it came."""
    group = with_ids(group)
    first = group[0]
    shape = shape_of(first, FORMAT)
    writing = _Writing(group, shape)
    parts = writing.parts()
    if len(parts) != shape.get("parts", len(parts)):
        # Something was added or taken away: the places of steps and spellings are no longer known.
        parts = _Writing(group, NO_SHAPE).parts()
    role = _ROLES.get(first.role, "assistant")
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
        self._steps = _places(shape, "steps")
        self._raw = _places(shape, "raw")
        self._dynamic = _places(shape, "dynamic")
        self._values = _places(shape, "values")
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
                self._out.append(dict(_STEP))
            for part in message.content:
                self._begin_steps()
                self._add(part, message)
        self._begin_steps()
        return self._out

    def _begin_steps(self) -> None:
        while len(self._out) in self._steps:
            self._out.append(dict(_STEP))

    def _add(self, part: Part, message: Message) -> None:
        if isinstance(part, ToolCallPart):
            waiting = self._results.get(part.tool_call_id)
            self._out.append(self._tool(part, waiting.popleft() if waiting else None))
        elif isinstance(part, ToolResultPart):
            waiting = self._results[part.tool_call_id]
            if waiting and waiting[0] is part:  # those before it were written with their calls, or by themselves
                self._out.append(self._tool(None, waiting.popleft()))
        elif (written := _write_part(part, message)) is not None:
            self._out.append(written)

    def _tool(self, call: ToolCallPart | None, result: ToolResultPart | None) -> dict[str, Any]:
        at = len(self._out)
        name = call.name if call is not None else (result.tool_name if result is not None else None) or ""
        call_id = call.tool_call_id if call is not None else result.tool_call_id if result is not None else None
        ran = call.executed_by if call is not None else result.executed_by if result is not None else "client"
        wire: dict[str, Any] = {"type": f"tool-{name}"}
        if at in self._dynamic or call is None or not name:
            wire = {"type": "dynamic-tool", "toolName": name}
        wire |= {"toolCallId": call_id, "state": written_state(result)}
        if call is not None:
            given = call.arguments if call.arguments_raw is None else call.arguments_raw
            if given is not None:
                value = _value(given) if at in self._values and isinstance(given, str) else given
                wire["rawInput" if at in self._raw else "input"] = value
        if ran == "provider":
            wire["providerExecuted"] = True
        if result is not None:
            wire |= _write_result(result)
        own = extra_of(call, FORMAT) if call is not None else {}
        if isinstance(own.get("state"), str):
            wire["state"] = own["state"]
        return {**own, **wire}


def _places(shape: FrozenDict, key: str) -> frozenset[int]:
    ats = shape.get(key)
    return frozenset(at for at in ats if type(at) is int) if isinstance(ats, list) else frozenset()


def _value(text: str) -> Any:
    """The JSON value that an input was read from; the text itself if it is no JSON any more."""
    try:
        return loads(text)
    except DecodeError:
        return text


def _write_result(result: ToolResultPart) -> dict[str, Any]:
    own = extra_of(result, FORMAT)
    wire: dict[str, Any] = dict(own)
    if result.is_error:
        if result.content is not None or own.get("state") != "output-denied":
            wire["errorText"] = _error_text(result.content)
    else:
        wire["output"] = _output(result.content)
    return wire


def _error_text(content: Any) -> str:
    if isinstance(content, tuple):
        content = _output(content)
    if content is None:
        return ""
    return content if isinstance(content, str) else dumps(content).decode("utf-8")


def _output(content: Any) -> Any:
    """What a tool returned, as JSON: text where it is nothing but text, else the SDK's own list of items."""
    if not isinstance(content, tuple):
        return content
    if all(isinstance(part, TextPart) for part in content):
        return "\n".join(part.text for part in content)
    return {"type": "content", "value": [_output_item(part) for part in content]}


def _output_item(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart | AudioPart | VideoPart | DocumentPart) and part.type == "base64":
        return {"type": "media", "data": part.data, "mediaType": _media_type(part)}
    raise UnsupportedError(
        f"a tool's output cannot hold {part.content_type} here", about=part, hint="route to another target"
    )


def _write_part(part: Part, message: Message) -> dict[str, Any] | None:
    if isinstance(part, OpaquePart) and part.provider == FORMAT:
        return dict(part.value)
    if isinstance(part, OpaquePart | RedactedThinkingPart):
        drop(FORMAT, part.content_type.value, "a block of another format", message=message)
        return None
    writer = _WRITERS.get(type(part))
    if writer is None:
        raise UnsupportedError(
            f"the AI SDK has no part for {part.content_type}", about=part, hint="route to another target"
        )
    return writer(part, message)


def _write_text(part: TextPart, message: Message) -> dict[str, Any]:
    return _text_part({"type": "text", "text": part.text}, part, message)


def _write_thinking(part: ThinkingPart, message: Message) -> dict[str, Any]:
    if part.signature is not None:
        drop(FORMAT, "signature", "the proof of another provider", message=message)
    return _text_part({"type": "reasoning", "text": part.text}, part, message)


def _text_part(wire: dict[str, Any], part: Part, message: Message) -> dict[str, Any]:
    if message.role is Role.ASSISTANT:
        wire["state"] = "done"
    own = extra_of(part, FORMAT)
    return {**wire, **{key: item for key, item in own.items() if key not in ("type", "text")}} if own else wire


def _write_file(part: MediaPart, message: Message) -> dict[str, Any]:
    if part.type == "file_ref":
        raise UnsupportedError(
            "the AI SDK carries files as data or by URL only", about=part, hint="resolve the reference first"
        )
    media_type = _media_type(part)
    url = f"data:{media_type};base64,{part.data}" if part.type == "base64" else part.data
    wire = {"type": "file", "mediaType": media_type, "url": url}
    if isinstance(part, DocumentPart) and part.title is not None:
        wire["filename"] = part.title
    if message.role is Role.SYSTEM:
        raise UnsupportedError("a system message has no files", about=part, hint="put the file into a user message")
    return {**extra_of(part, FORMAT), **wire}


def _media_type(part: MediaPart) -> str:
    return part.media_type if part.media_type is not None else _ANY_TYPE[type(part)]


_WRITERS: Final[dict[type, Callable[[Any, Message], dict[str, Any]]]] = {
    TextPart: _write_text,
    ThinkingPart: _write_thinking,
    ImagePart: _write_file,
    VideoPart: _write_file,
    AudioPart: _write_file,
    DocumentPart: _write_file,
}
