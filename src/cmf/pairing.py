"""Tool calls: whether a message has any, and which result answers which where a format has no ids for them.

Spec: docs/spec/identity.md [ID-4].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cmf.content import Part, ToolCallPart, ToolResultPart


def has_call(parts: Iterable[Part]) -> bool:
    """Whether one of the parts is a tool call, whoever runs the tool."""
    return any(isinstance(part, ToolCallPart) for part in parts)


def has_client_call(parts: Iterable[Part]) -> bool:
    """Whether one of the parts asks the client to run a tool, so that the turn ends and a result is waited for."""
    return any(isinstance(part, ToolCallPart) and part.executed_by == "client" for part in parts)


class Pairing:
    """Gives each call of one value a name, and each result the name of the call that it answers: by id, else by order.

    Args:
        named: the name of a call that has an id, by that id.
        unnamed: a new name, for a call without an id.
    """

    def __init__(self, named: Callable[[str], str], unnamed: Callable[[], str]) -> None:
        self._named = named
        self._unnamed = unnamed
        self._open: list[tuple[str, str]] = []

    def name_of(self, part: Part) -> str | None:
        """The name of the call that `part` is, or answers; None for other parts, and for a result without a call."""
        if isinstance(part, ToolCallPart | ToolResultPart) and part.tool_call_id:
            return self._named(part.tool_call_id)
        if isinstance(part, ToolCallPart):
            name = self._unnamed()
            self._open.append((part.name, name))
            return name
        return self._answered(part.tool_name) if isinstance(part, ToolResultPart) else None

    def _answered(self, tool_name: str | None) -> str | None:
        for index, (called, name) in enumerate(self._open):
            if tool_name in (None, called):
                del self._open[index]
                return name
        return None
