"""Tool calls: whether a message has any, and which result answers which where a format has no ids for them.

Spec: docs/spec/identity.md [ID-4].
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from cmf.message.message import Part, ToolCallPart, ToolResultPart


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
