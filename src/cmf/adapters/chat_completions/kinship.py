"""Values of a kindred format as this one's own: what they were read with means the same here [OPR-6].

What a value has beyond the canonical fields is kept under the name of its format. Chat completions and OpenRouter name
such fields alike, so between them they are written and not dropped.
"""

from __future__ import annotations

from operator import attrgetter, is_
from typing import Any, Final, TypeVar

from cmf.json.frozen import freeze
from cmf.json.value import replace
from cmf.message.message import Message, OpaquePart, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, Request, Response

_V = TypeVar("_V", bound=Request | Response)
_H = TypeVar("_H")
_extra: Final = attrgetter("extra")
_LEAVES: Final = frozenset({TextPart, ThinkingPart, ToolCallPart})
"""Parts that keep what is their format's in `extra` alone."""


def as_own(value: _V, kin: str | None, own: str) -> _V:
    """The value as if `own` had read what `kin` did; the very same object where there is nothing of that."""
    if kin is None:
        return value
    names = {kin: own, f"{kin}.key": f"{own}.key"}
    fields: dict[str, Any]
    if isinstance(value, Request):
        fields = {"tools": tuple(_renamed(tool, names) for tool in value.tools)}
        fields["messages"] = tuple(_message(message, names) for message in value.messages)
    else:
        fields = {"choices": tuple(_choice(choice, names) for choice in value.choices)}
    renamed: _V = _renamed(_with(value, **fields), names)
    return renamed


def _choice(choice: Choice, names: dict[str, str]) -> Any:
    return _renamed(_with(choice, message=_message(choice.message, names)), names)


def _message(message: Message, names: dict[str, str]) -> Any:
    content = message.content
    if not message.extra and _LEAVES.issuperset(map(type, content)) and not any(map(_extra, content)):
        return message  # as most are: there is nothing to look through
    return _renamed(_with(message, content=tuple(_part(part, names) for part in message.content)), names)


def _part(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        part = _with(part, content=tuple(_part(inner, names) for inner in part.content))
    elif isinstance(part, OpaquePart) and part.provider in names:
        part = replace(part, provider=names[part.provider])
    return _renamed(part, names)


def _renamed(holder: Any, names: dict[str, str]) -> Any:
    """The holder with what is kept under the name of its kin under the own name; what it has of its own comes first."""
    extra = holder.extra
    if not extra or extra.keys().isdisjoint(names):
        return holder
    renamed = {names[name]: kept for name, kept in extra.items() if name in names}
    for name, kept in extra.items():
        if name not in names:
            theirs: Any = renamed.get(name)
            both = isinstance(theirs, dict) and isinstance(kept, dict)
            renamed[name] = {**theirs, **kept} if both else kept
    return replace(holder, extra=freeze(renamed))


def _with(holder: _H, **fields: Any) -> _H:
    """The holder with these fields; the very same where each item of them is."""
    changed = {name: new for name, new in fields.items() if not _same(new, getattr(holder, name))}
    return replace(holder, **changed) if changed else holder


def _same(new: Any, old: Any) -> bool:
    if isinstance(new, tuple) and isinstance(old, tuple):
        return all(map(is_, new, old))  # as long as each other: one was made from the other
    return new is old
