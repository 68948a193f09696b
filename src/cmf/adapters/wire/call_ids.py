"""Ids of tool calls: for formats that want one where another says none, and in a form that a format takes.

Each form is made of the id alone, so that a call and its results get the same one in every turn, and nothing has to be
remembered: `cmf_` and the id with each odd byte as `-` and two hexadecimal digits, which is read back; where that is
too long, `cmf-` and a digest, which stays the name of the call on both sides. Spec: docs/spec/identity.md [ID-4],
[ID-10].
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final
from urllib.parse import unquote_to_bytes

from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import replace
from cmf.message.message import Message, Part, ToolCallPart, ToolResultPart
from cmf.message.transform import OpenCalls

MAX_LENGTH: Final = 64
_ESCAPED: Final = "cmf_"  # how the forms begin that are read back
_DIGEST: Final = "cmf-"
_DIGITS: Final = 36  # 144 bits; with the prefix 40 characters, which is the least that any endpoint was seen to take
_MARKED: Final = ".id"
_AS_THEY_ARE: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_TAKEN: Final = _AS_THEY_ARE + b"-"


class CallIds:
    """The ids of the calls and results of one conversation, which are asked for in order.

    Other than in `cmf.message.transform`, a result without an id may answer a call with one: on a wire it has to name
    some call.
    """

    __slots__ = ("_new", "_open")

    def __init__(self, prefix: str = "call_") -> None:
        self._new = (f"{prefix}{number}" for number in count(1))
        self._open = OpenCalls()  # by id

    def of(self, part: ToolCallPart | ToolResultPart) -> str:
        """The id of a call, or of the call that a result answers; a new one for a result that answers none."""
        call_id = part.tool_call_id
        if isinstance(part, ToolCallPart):
            call_id = next(self._new) if call_id is None else call_id
            self._open.add(call_id, part.name)
            return call_id
        if call_id is None:
            call_id = self._open.first(part.tool_name)
        if call_id is None:
            return next(self._new)
        self._open.close(call_id)
        return call_id


def with_ids(messages: Iterable[Message], prefix: str = "call_") -> list[Message]:
    """The messages with an id for every tool call and result; those that lack none are the same objects.

    New ids are `prefix` and a number: those of one conversation, unless the prefix says whose they are.
    """
    ids = CallIds(prefix)
    named = []
    for message in messages:
        parts = tuple([_with_id(part, ids) for part in message.content])
        same = all(map(operator.is_, parts, message.content))
        named.append(message if same else replace(message, content=parts))
    return named


def _with_id(part: Part, ids: CallIds) -> Part:
    if not isinstance(part, ToolCallPart | ToolResultPart):
        return part
    call_id = ids.of(part)
    return part if part.tool_call_id is not None else replace(part, tool_call_id=call_id)


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """The names of the tools that are called, by the ids of the calls: for results that do not say them."""
    names: dict[str, str] = {}
    for message in messages:
        for part in message.content:
            if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
                names[part.tool_call_id] = part.name
    return names


# -- the form of an id -------------------------------------------------------------------------------------------------


def is_plain(call_id: str) -> bool:
    """Whether an id is 1 to 64 letters, digits, `_` and `-` of ASCII."""
    return 0 < len(call_id) <= MAX_LENGTH and not call_id.encode().translate(None, _TAKEN)


def is_short(call_id: str) -> bool:
    """Whether an id is no longer than 64 characters."""
    return len(call_id) <= MAX_LENGTH


def plain_form(call_id: str) -> str:
    """The id of letters, digits, `_` and `-` that stands for this one: itself, if it is such a one already."""
    if is_plain(call_id) and from_plain_form(call_id) == call_id:
        return call_id
    spelt = "".join(chr(byte) if byte in _AS_THEY_ARE else f"-{byte:02X}" for byte in call_id.encode("utf-8"))
    escaped = _ESCAPED + spelt
    return escaped if is_short(escaped) else _digest(call_id)


def from_plain_form(wire_id: str) -> str:
    """The id that `plain_form` writes so; the very same where it writes none so, or a digest."""
    if not wire_id.startswith(_ESCAPED):
        return wire_id
    try:
        call_id = unquote_to_bytes(wire_id.removeprefix(_ESCAPED).replace("-", "%")).decode("utf-8")
    except UnicodeDecodeError:
        return wire_id
    return call_id if plain_form(call_id) == wire_id else wire_id


def short_form(call_id: str) -> str:
    """The id of at most 64 characters that stands for this one: itself, if it is such a one already."""
    return call_id if is_short(call_id) else _digest(call_id)


def _digest(call_id: str) -> str:
    return _DIGEST + hashlib.sha256(call_id.encode("utf-8")).hexdigest()[:_DIGITS]


def mark(format_name: str) -> str:
    """The key of a part's `extra` which marks an id that came from this format unchanged, and goes back so."""
    return format_name + _MARKED


def with_mark(extra: FrozenDict | None, format_name: str) -> FrozenDict:
    """The `extra` of a part, and the mark."""
    return frozen_mapping({**(extra or {}), mark(format_name): FrozenDict()})


def marked_again(messages: Sequence[Message], format_name: str) -> Sequence[Message]:
    """The messages, where edited calls and results, which an edit takes the mark from, have that of their other half.

    Half a pair under another name answers nothing.
    """
    key = mark(format_name)
    named = {
        part.tool_call_id
        for message in messages
        for part in message.content
        if isinstance(part, ToolCallPart | ToolResultPart) and part.extra and key in part.extra
    }
    if not named:
        return messages

    def again(part: Part) -> Part:
        lost = isinstance(part, ToolCallPart | ToolResultPart) and part.tool_call_id in named and not part.extra
        return replace(part, extra=with_mark(None, format_name)) if lost else part

    return [replace(message, content=tuple(map(again, message.content))) for message in messages]
