"""Ollama's messages as canonical ones. Spec: docs/spec/adapters/ollama.md [OLL-1] to [OLL-5]."""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.wire.fields import Fields, role_named
from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.frozen import FrozenDict
from cmf.json.value import trusted
from cmf.message.message import ImagePart, Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart

FORMAT: Final = "ollama"
EMPTY: Final = FrozenDict()
_ROLES: Final = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}


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
    """The canonical message of one wire message; `name` is its tool's, where the wire has none."""
    fields = Fields(raw, path)
    role = Role.ASSISTANT
    if reply:
        fields.drop("role", "assistant")
    else:
        role = role_named(fields.take("role", str), _ROLES, path)
    fields.drop("role", None)
    if role is Role.TOOL:
        return _tool_message(fields, name)
    parts = _parts(fields)
    for index, call in enumerate(fields.optional("tool_calls", list) or ()):
        parts.append(_call(call, f"{path}.tool_calls[{index}]", index, reply=reply))
    return trusted(Message, role=role, content=tuple(parts), extra=fields.rest(FORMAT))


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
