"""Walking through a value and changing it: its messages, its parts wherever they are, and its calls with their results.

Parts are in messages, in results and in rendered prompts. Paths are those of the views: `messages[0].content[1]`,
`choices[0].message.content[0]`, `content[2].content[0]`. Where a format has no ids for calls, results answer them in
order: docs/spec/identity.md [ID-4].
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from cmf.json.value import replace
from cmf.message.message import Message, Part, PromptResultPart, ToolCallPart, ToolResultPart
from cmf.message.request import Request, Response

Change = Callable[[Part, str], Part]
"""A part and its path to the part that takes its place; inner parts are changed before the one that holds them."""

_T = TypeVar("_T", bound=Message | Request | Response)


def messages_of(value: Message | Request | Response) -> tuple[Message, ...]:
    """The messages of a value, in order."""
    if isinstance(value, Message):
        return (value,)
    if isinstance(value, Request):
        return tuple(value.messages)
    return tuple(choice.message for choice in value.choices)


def with_messages(value: _T, messages: tuple[Message, ...]) -> _T:
    """`value` with these messages in place of its own; `value` itself if they are the same objects."""
    if all(new is old for new, old in zip(messages, messages_of(value), strict=True)):
        return value
    changed: Any
    if isinstance(value, Message):
        changed = messages[0]
    elif isinstance(value, Request):
        changed = replace(value, messages=messages)
    else:
        choices = zip(value.choices, messages, strict=True)
        changed = replace(value, choices=tuple(replace(choice, message=message) for choice, message in choices))
    result: _T = changed
    return result


def message_paths(value: Message | Request | Response) -> Iterator[tuple[str, Message]]:
    """The messages of a value, each with its path; the path of a message alone is empty."""
    form = "" if isinstance(value, Message) else "messages[{}]" if isinstance(value, Request) else "choices[{}].message"
    return ((form.format(at), message) for at, message in enumerate(messages_of(value)))


def part_paths(value: Message | Request | Response) -> Iterator[tuple[str, Part]]:
    """All parts of a value, each with its path; inner parts come before the one that holds them."""
    pairs: list[tuple[str, Part]] = []

    def note(part: Part, path: str) -> Part:
        pairs.append((path, part))
        return part

    map_parts(value, note)
    return iter(pairs)


def map_parts(value: _T, change: Change) -> _T:
    """`value` with every part changed; the very same object where nothing was.

    A result whose inner part was changed is itself a changed part: its `extra` from the wire is dropped.
    """
    paths = message_paths(value)
    return with_messages(
        value, tuple(_in_message(message, change, f"{path}." if path else "") for path, message in paths)
    )


def _in_message(message: Message, change: Change, prefix: str) -> Message:
    content = _each(message.content, lambda part, at: _in_part(part, change, f"{prefix}content[{at}]"))
    return message if content is message.content else replace(message, content=content)


def _in_part(part: Any, change: Change, path: str) -> Part:
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        inner = _each(part.content, lambda item, at: _in_part(item, change, f"{path}.content[{at}]"))
        part = part if inner is part.content else part.edited(content=inner)
    elif isinstance(part, PromptResultPart):
        messages = _each(part.messages, lambda item, at: _in_message(item, change, f"{path}.messages[{at}]."))
        part = part if messages is part.messages else part.edited(messages=messages)
    return change(part, path)


def _each(items: Any, change: Callable[[Any, int], Any]) -> Any:
    changed = tuple(change(item, at) for at, item in enumerate(items))
    return items if all(new is old for new, old in zip(changed, items, strict=True)) else changed


# -- calls and their results -------------------------------------------------------------------------------------------


def has_call(parts: Iterable[Part]) -> bool:
    """Whether one of the parts is a tool call, whoever runs the tool."""
    return any(isinstance(part, ToolCallPart) for part in parts)


def has_client_call(parts: Iterable[Part]) -> bool:
    """Whether one of the parts asks the client to run a tool, so that the turn ends and a result is waited for."""
    return any(isinstance(part, ToolCallPart) and part.executed_by == "client" for part in parts)


class OpenCalls:
    """The calls that wait for a result, each under a key of its own, in order."""

    __slots__ = ("_by_tool", "_tools")

    def __init__(self) -> None:
        # No `dict`: looking for its first key begins with all that were removed before it.
        self._tools: OrderedDict[str, str] = OrderedDict()
        self._by_tool: dict[str, OrderedDict[str, None]] = {}

    def add(self, key: str, tool_name: str) -> None:
        """Add a call, in place of one that has its key."""
        self.close(key)
        self._tools[key] = tool_name
        self._by_tool.setdefault(tool_name, OrderedDict())[key] = None

    def first(self, tool_name: str | None) -> str | None:
        """The key of the first call of a tool, or of any if the name is None."""
        return next(iter(self._tools if tool_name is None else self._by_tool.get(tool_name, ())), None)

    def close(self, key: str) -> None:
        """Take the call out, if there is one."""
        if (tool_name := self._tools.pop(key, None)) is not None:
            del self._by_tool[tool_name][key]


class Pairing:
    """Gives each call of one value a name, and each result the name of the call that it answers: by id, else by order.

    Args:
        named: the name of a call that has an id, by that id.
        unnamed: a new name, for a call without an id; no other call has it.
    """

    def __init__(self, named: Callable[[str], str], unnamed: Callable[[], str]) -> None:
        self._named = named
        self._unnamed = unnamed
        self._open = OpenCalls()

    def name_of(self, part: Part) -> str | None:
        """The name of the call that `part` is, or answers; None for other parts, and for a result without a call."""
        if isinstance(part, ToolCallPart | ToolResultPart) and part.tool_call_id:
            return self._named(part.tool_call_id)
        if isinstance(part, ToolCallPart):
            name = self._unnamed()
            self._open.add(name, part.name)
            return name
        answered = self._open.first(part.tool_name) if isinstance(part, ToolResultPart) else None
        if answered is not None:
            self._open.close(answered)
        return answered
