"""UI messages of the AI SDK to canonical messages. Spec: docs/spec/adapters/aisdk.md [AISDK-1] to [AISDK-5].

A UI part of a tool holds the call and its result in one object; here they are two parts. In history the result of a
tool that the application runs is a TOOL message, as in every other format; what was one UI message stays one group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cmf.adapters.aisdk.version4 import modernized
from cmf.adapters.wire.fields import Fields, role_named
from cmf.adapters.wire.layout import capped, grouped_as, spelling
from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.codec import dumps
from cmf.json.frozen import FrozenDict, freeze
from cmf.json.value import replace, trusted
from cmf.message.message import (
    DocumentPart,
    Message,
    OpaquePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    media_class,
)

FORMAT: Final = "aisdk"
STEP: Final = FrozenDict(type="step-start")
ROLES: Final = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}

Names = Mapping[str, str]
"""Names of tools by call id, for results whose UI part does not say them."""

Encode = Callable[[Sequence[Message]], dict[str, Any]]


@dataclass(slots=True)
class _Reading:
    """The parts of one UI message, step by step."""

    steps: list[int] = field(default_factory=list)
    raw_input: list[int] = field(default_factory=list)
    dynamic: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
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


def read_message(raw: Any, path: str, *, index: int, split: bool, encode: Encode, names: Names) -> tuple[Message, ...]:
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
    role = role_named(fields.need("role", str), ROLES, path)
    reading = _Reading()
    parts = fields.take("parts", list)
    shape: dict[str, Any] = {}
    if parts is not None:
        for at, part in enumerate(parts):
            _read_part(part, f"{path}.parts[{at}]", at, role, names, reading)
        shape = _repeated_content(fields, parts)
    elif fields.peek("parts") is not None:
        raise ShapeError("`parts` is not a list", path=f"{path}.parts", hint="see the AI SDK's UIMessage")
    elif (text := fields.take("content", str)) is not None:
        # The shape of version 4, which is still in databases.
        reading.answers[-1].append(trusted(TextPart, text=text))
        shape = {"form": "content"}
    messages = _messages(reading, role, split=split and role is Role.ASSISTANT)
    messages[0] = replace(messages[0], extra=fields.rest(FORMAT))
    places = {"steps": reading.steps, "raw": reading.raw_input, "dynamic": reading.dynamic, "values": reading.values}
    shape |= {key: ats for key, ats in places.items() if ats}
    if version4:
        shape["version4"] = version4
    if shape or len(messages) > 1:
        shape["parts"] = len(parts) if parts is not None else 0
    step = spelling(encode(_laid(messages, shape, index)), raw, path)
    return capped(_laid(messages, {**shape, **step}, index))


def _repeated_content(fields: Fields, parts: Sequence[Any]) -> dict[str, Any]:
    """A `content` that repeats the text of the parts is spelling; else it stays with the message."""
    content = fields.peek("content")
    texts = [part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str)]
    if not isinstance(content, str) or content != "".join(texts):
        return {}
    fields.drop("content", content)
    return {"content": True}


def _messages(reading: _Reading, role: Role, *, split: bool) -> list[Message]:
    if not split:
        content = tuple(part for answers in reading.answers for part in answers)
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
    if raw == STEP:
        reading.steps.append(at)
        reading.begin_step()
        return
    kind = fields.peek("type")
    part: Part | None = None
    if not isinstance(kind, str):
        kind = "part"
    elif kind.startswith("tool-") or kind == "dynamic-tool":
        if _read_tool(fields, kind, at, names, reading):
            return
    elif kind == "text" or kind == "reasoning":
        part = _text(fields, kind, role)
    elif kind == "file":
        part = _file(fields)
    if part is None:
        part = trusted(OpaquePart, provider=FORMAT, type=kind, value=raw)
    reading.answers[-1].append(part)


def _text(fields: Fields, kind: str, role: Role) -> Part | None:
    text = fields.take("text", str)
    if text is None:
        return None
    fields.drop("type", kind)
    if role is Role.ASSISTANT:
        fields.drop("state", "done")
    return trusted(TextPart if kind == "text" else ThinkingPart, text=text, extra=fields.rest(FORMAT))


def _file(fields: Fields) -> Part | None:
    url, media_type = fields.peek("url"), fields.peek("mediaType")
    if not isinstance(url, str) or not isinstance(media_type, str):
        return None
    for key in ("type", "url", "mediaType"):
        fields.drop(key, fields.peek(key))
    head = f"data:{media_type};base64,"
    inline = url.startswith(head)
    cls = media_class(media_type)
    own: dict[str, Any] = {"title": fields.take("filename", str)} if cls is DocumentPart else {}
    return trusted(
        cls,
        type="base64" if inline else "url",
        data=url[len(head) :] if inline else url,
        media_type=media_type,
        **own,
        extra=fields.rest(FORMAT),
    )


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
        reading.values.append(at)
        given = dumps(given).decode()
    reading.calls.add(call_id)
    if dynamic:
        reading.dynamic.append(at)
    if key == "rawInput":
        reading.raw_input.append(at)
    ran = "client"
    if fields.peek("providerExecuted") is True:
        fields.drop("providerExecuted", True)
        ran = "provider"
    if given is None and name and fields.peek("state") != "input-streaming":
        given = FrozenDict()  # called without any
    result = _result(fields, call_id, name or names.get(call_id), ran)
    fields.drop("state", written_state(result))
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


def written_state(result: ToolResultPart | None) -> str:
    """The state of a tool part that names none."""
    if result is None:
        return "input-available"
    return "output-error" if result.is_error else "output-available"
