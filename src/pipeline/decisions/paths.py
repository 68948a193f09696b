"""Finding and replacing what a view's path names, in values that cannot change. Spec: docs/spec/effects.md [EFF-1]."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from cmf.json.value import replace
from cmf.message.message import Message, ToolResultPart
from cmf.message.request import Choice, Request, Response

Change: TypeAlias = Callable[[Any], Any]
_WHOLE: Final = frozenset({"request", "response", "message"})
_STEP: Final = re.compile(r"(\w+)\[(\d+)\]|(\w+)")


@lru_cache(maxsize=4096)  # a few places are looked at all the time
def steps_of(path: str) -> tuple[tuple[str, int | None], ...]:
    """`messages[0].content[1]` as (("messages", 0), ("content", 1))."""
    return tuple(
        (match[1], int(match[2])) if match[1] is not None else (match[3], None) for match in _STEP.finditer(path)
    )


def edit(value: Any, changes: Iterable[tuple[str, Change]]) -> Any:
    """A copy of `value` in which what each path names is replaced by `change(it)`; None removes it from its list.

    Everything off the paths is the very same object as before. The paths `request`, `response` and `message` name the
    whole value. What stands inside of something is changed before it, however the two are ordered; the places are
    those of `value`, whatever is removed. Each list is copied once, however many of its items change.
    """
    root = _Place()
    for path, change in changes:
        place = root
        for step in () if path in _WHOLE else steps_of(path):
            if step not in place.inner:
                place.inner[step] = _Place()
            place = place.inner[step]
        place.changes.append(change)
    return _edited(value, root)


class _Place:
    """The changes to one value and to the values inside it, in the order in which they are made."""

    __slots__ = ("changes", "inner")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.inner: dict[tuple[str, int | None], _Place] = {}


def _edited(value: Any, place: _Place) -> Any:
    held: dict[str, Any] = {}
    for (name, index), inner in place.inner.items():
        if index is None:
            held[name] = _edited(getattr(value, name), inner)
            continue
        if name not in held:
            held[name] = list(getattr(value, name))
        held[name][index] = _edited(held[name][index], inner)
    for name, items in held.items():
        field = {name: tuple(item for item in items if item is not None) if type(items) is list else items}
        # A result whose inner part was edited is itself an edited part: its `extra` is dropped.
        is_holder = isinstance(value, Message | Request | Response | Choice)
        value = replace(value, **field) if is_holder else value.edited(**field)
    for change in place.changes:
        value = None if value is None else change(value)
    return value


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
    """Whether a part is a tool result made of parts, so that its text is only the text of those parts."""
    return isinstance(part, ToolResultPart) and isinstance(part.content, tuple)
