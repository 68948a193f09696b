"""Where the formats that share the chat-completions shape differ, and the tables that they have in common.

Spec: docs/spec/adapters/openai_chat.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any, Final, TypeVar

from cmf.adapters.wire.fields import Fields, extra_of
from cmf.adapters.wire.loss import drop_foreign_extra
from cmf.enums import Role
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace
from cmf.message.message import (
    Message,
    OpaquePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Request, Response
from cmf.message.transform import messages_of, with_messages

THOUGHTS: Final = ("reasoning_content", "reasoning", "reasoning_text")
"""Keys of a message whose text is thinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One format of the family.

    reasoning_key: the message key for a reply's reasoning of foreign origin; nested_effort: whether the effort is in a
    `reasoning` object; video: whether content may have a `video_url`; asks_as and answers_as: the format of the family
    all of whose fields are this one's too, in requests and in replies [OPR-6].
    """

    format: str
    path: str
    reasoning_key: str
    nested_effort: bool
    video: bool
    asks_as: str | None = None
    answers_as: str | None = None

    def rest(self, fields: Fields, key: str | None = None) -> FrozenDict | None:
        """What nobody took of a wire object, and which of several wire forms it had (its `key`)."""
        left = fields.left()
        extra: dict[str, Any] = {self.format: freeze(left)} if left else {}
        if key is not None:
            extra[f"{self.format}.key"] = key
        return frozen_mapping(extra) if extra else None

    def mark(self, key: str) -> FrozenDict:
        """The `extra` of a part that had this wire form and nothing else of its own."""
        return frozen_mapping({f"{self.format}.key": key})

    def key_of(self, holder: Any) -> str | None:
        """The wire form that a part, tool or response came in; None where it is the plain one, or a foreign value."""
        key = holder.extra.get(f"{self.format}.key") if holder.extra else None
        return key if isinstance(key, str) else None

    def own(self, holder: Any) -> dict[str, Any]:
        """What rode along with a part, tool or response from this format."""
        return extra_of(holder, self.format)

    def drop_foreign(self, holder: Any, block_type: str, message: Message | None = None) -> None:
        """Record what rode along with it from other formats."""
        drop_foreign_extra(self.format, holder, block_type, message=message)


ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.DEVELOPER,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


# -- values of a kindred format ----------------------------------------------------------------------------------------
# What a value has beyond the canonical fields is kept under the name of its format. Chat completions and OpenRouter
# name such fields alike, so between them they are written and not dropped [OPR-6].

_V = TypeVar("_V", bound=Request | Response)
_extra: Final = attrgetter("extra")
_LEAVES: Final = frozenset({TextPart, ThinkingPart, ToolCallPart})
"""Parts that keep what is their format's in `extra` alone."""


def as_own(value: _V, kin: str | None, own: str) -> _V:
    """The value as if `own` had read what `kin` did; the very same object where there is nothing of that."""
    if kin is None:
        return value
    names = {kin: own, f"{kin}.key": f"{own}.key"}
    value = with_messages(value, tuple([_message(message, names) for message in messages_of(value)]))
    holders = "tools" if isinstance(value, Request) else "choices"
    renamed: _V = _renamed(_with(value, holders, _renamed, names), names)
    return renamed


def _message(message: Message, names: dict[str, str]) -> Any:
    content = message.content
    if not message.extra and _LEAVES.issuperset(map(type, content)) and not any(map(_extra, content)):
        return message  # as most are: there is nothing to look through
    return _renamed(_with(message, "content", _part, names), names)


def _part(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        part = _with(part, "content", _part, names)
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


def _with(holder: Any, field: str, rename: Callable[[Any, dict[str, str]], Any], names: dict[str, str]) -> Any:
    """The holder with each item of a field renamed; the very same where each item is."""
    items = getattr(holder, field)
    renamed = tuple([rename(item, names) for item in items])
    return holder if all(map(is_, renamed, items)) else replace(holder, **{field: renamed})
