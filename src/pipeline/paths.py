"""Finding and replacing what a view's path names, in values that cannot change. Spec: docs/spec/effects.md [EFF-1]."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cmf.content import ToolResultPart
from cmf.message import Message
from cmf.request import Choice, Request, Response
from cmf.value import replace

_WHOLE: Final = frozenset({"request", "response", "message"})
_STEP: Final = re.compile(r"(\w+)\[(\d+)\]|(\w+)")


@lru_cache(maxsize=4096)  # a few places are looked at all the time
def steps_of(path: str) -> tuple[tuple[str, int | None], ...]:
    """`messages[0].content[1]` as (("messages", 0), ("content", 1))."""
    return tuple(
        (match[1], int(match[2])) if match[1] is not None else (match[3], None) for match in _STEP.finditer(path)
    )


def edit(value: Any, path: str, change: Callable[[Any], Any]) -> Any:
    """A copy of `value` in which what `path` names is replaced by `change(it)`; None removes it from its list.

    Everything off the path is the very same object as before. The paths `request`, `response` and `message` name the
    whole value.
    """
    steps = steps_of(path)
    if path in _WHOLE:
        return change(value)
    return _edit(value, steps, change)


def _edit(value: Any, steps: tuple[tuple[str, int | None], ...], change: Callable[[Any], Any]) -> Any:
    if not steps:
        return change(value)
    (name, index), rest = steps[0], steps[1:]
    held = getattr(value, name)
    if index is None:
        return _with(value, name, _edit(held, rest, change))
    done = _edit(held[index], rest, change)
    items = held[:index] + held[index + 1 :] if done is None else (*held[:index], done, *held[index + 1 :])
    return _with(value, name, items)


def _with(value: Any, name: str, held: Any) -> Any:
    if isinstance(value, Message | Request | Response | Choice):
        return replace(value, **{name: held})
    # A result whose inner part was edited is itself an edited part: its `extra` is dropped.
    return value.edited(**{name: held})


def part_at(value: Any, path: str) -> Any:
    """What `path` names in `value`."""
    for name, index in steps_of(path):
        held = getattr(value, name)
        value = held if index is None else held[index]
    return value


def message_place(path: str) -> int | None:
    """Which message of a request holds what `path` names; None where it is in no message of one."""
    match steps_of(path):
        case (("messages", place), *_):
            return place
        case _:
            return None


def message_path(path: str) -> str:
    """The path of the message that holds what `path` names; "" for a bare message."""
    steps = []
    for name, index in steps_of(path):
        if name == "content":
            break
        steps.append(name if index is None else f"{name}[{index}]")
    return ".".join(steps)


def holds_parts(part: Any) -> bool:
    """Whether a part is a result made of parts, whose own text is only what its parts say."""
    return isinstance(part, ToolResultPart) and isinstance(part.content, tuple)
