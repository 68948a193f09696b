"""Walking through a value and changing it: its messages, and its parts wherever they are.

Parts are in messages, in results and in rendered prompts. Paths are those of the views: `messages[0].content[1]`,
`choices[0].message.content[0]`, `content[2].content[0]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cmf.json.value import replace
from cmf.message.message import Message, Part, PromptResultPart, ToolResultPart
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
