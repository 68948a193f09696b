"""Which result answers which call, where a format has no ids: by order and name. Spec: docs/spec/identity.md [ID-4]."""

from __future__ import annotations

from collections.abc import Callable

from cmf.content import Part, ToolCallPart, ToolResultPart


class Pairing:
    """Names the calls of one value as they come: `named` for those with an id, `unnamed` for those without."""

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
