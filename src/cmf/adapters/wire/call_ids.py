"""Ids and names of tool calls, for formats that want what another one does not say. Spec: identity.md [ID-4]."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from cmf.json.value import replace
from cmf.message.message import Message, Part, ToolCallPart, ToolResultPart
from cmf.message.pairing import OpenCalls


class CallIds:
    """The ids of the calls and results of one conversation, which are asked for in order.

    Other than in `cmf.message.pairing`, a result without an id may answer a call with one: on a wire it has to name
    some call.
    """

    __slots__ = ("_made", "_open", "_prefix")

    def __init__(self, prefix: str = "call_") -> None:
        self._prefix = prefix
        self._made = 0
        self._open = OpenCalls()  # by id

    def of(self, part: ToolCallPart | ToolResultPart) -> str:
        """The id of a call, or of the call that a result answers; a new one for a result that answers none."""
        call_id = part.tool_call_id
        if isinstance(part, ToolCallPart):
            call_id = self._mint() if call_id is None else call_id
            self._open.add(call_id, part.name)
            return call_id
        if call_id is None:
            call_id = self._open.first(part.tool_name)
        if call_id is None:
            return self._mint()
        self._open.close(call_id)
        return call_id

    def _mint(self) -> str:
        self._made += 1
        return f"{self._prefix}{self._made}"


def with_ids(messages: Iterable[Message], prefix: str = "call_") -> list[Message]:
    """The messages with an id for every tool call and result; those that lack none are the same objects.

    New ids are `prefix` and a number: those of one conversation, unless the prefix says whose they are.
    """
    ids = CallIds(prefix)
    return [_with_ids(message, ids) for message in messages]


def _with_ids(message: Message, ids: CallIds) -> Message:
    named = tuple(_with_id(part, ids) for part in message.content)
    return message if all(map(operator.is_, named, message.content)) else replace(message, content=named)


def _with_id(part: Part, ids: CallIds) -> Part:
    if not isinstance(part, ToolCallPart | ToolResultPart):
        return part
    call_id = ids.of(part)
    return part if part.tool_call_id is not None else replace(part, tool_call_id=call_id)


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """The names of the tools that are called, by the ids of the calls: for results that do not say them."""
    calls = (part for message in messages for part in message.content if isinstance(part, ToolCallPart))
    return {call.tool_call_id: call.name for call in calls if call.tool_call_id is not None}
