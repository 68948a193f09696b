"""Changing the parts of a value, wherever they are: in messages, in results, in rendered prompts.

Paths are those of the views: `messages[0].content[1]`, `choices[0].message.content[0]`, `content[2].content[0]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cmf.json.value import replace
from cmf.message.message import Message, Part, PromptResultPart, ToolResultPart
from cmf.message.request import Request, Response

Change = Callable[[Part, str], Part]
"""A part and its path to the part that takes its place; inner parts are changed before the one that holds them."""

_T = TypeVar("_T", bound=Message | Request | Response)


def map_parts(value: _T, change: Change) -> _T:
    """`value` with every part changed; the very same object where nothing was.

    A result whose inner part was changed is itself a changed part: its `extra` from the wire is dropped.
    """
    changed: Any
    if isinstance(value, Message):
        changed = _in_message(value, change, "")
    elif isinstance(value, Request):
        messages = _each(value.messages, lambda item, at: _in_message(item, change, f"messages[{at}]."))
        changed = _with(value, messages=messages)
    else:
        choices = _each(
            value.choices,
            lambda item, at: _with(item, message=_in_message(item.message, change, f"choices[{at}].message.")),
        )
        changed = _with(value, choices=choices)
    result: _T = changed
    return result


def _in_message(message: Any, change: Change, prefix: str) -> Any:
    return _with(
        message, content=_each(message.content, lambda part, at: _in_part(part, change, f"{prefix}content[{at}]"))
    )


def _in_part(part: Part, change: Change, path: str) -> Part:
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        inner = _each(part.content, lambda item, at: _in_part(item, change, f"{path}.content[{at}]"))
        part = _with(part, content=inner)
    elif isinstance(part, PromptResultPart):
        messages = _each(part.messages, lambda item, at: _in_message(item, change, f"{path}.messages[{at}]."))
        part = _with(part, messages=messages)
    return change(part, path)


def _each(items: Any, change: Callable[[Any, int], Any]) -> Any:
    changed = tuple(change(item, at) for at, item in enumerate(items))
    return items if all(new is old for new, old in zip(changed, items, strict=True)) else changed


def _with(holder: Any, **field: Any) -> Any:
    ((name, item),) = field.items()
    if item is getattr(holder, name):
        return holder
    return holder.edited(**field) if isinstance(holder, Part) else replace(holder, **field)
