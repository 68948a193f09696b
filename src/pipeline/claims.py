"""Which parts of a conversation need to be on record to be believed, and under which digest [C4]. Spec: provenance.md.

History that a client presents is a claim. What was judged here as the model's own reply, or as a tool's result, is on
record for its subject and session; the digest binds a result to the call that it answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from cmf.content import Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.digests import canonical_bytes
from cmf.enums import Role
from cmf.message import Message
from cmf.value import fields_of

_SPOKEN: Final = (Role.ASSISTANT, Role.TOOL)
_UNREAD_EXTRA: Final = (TextPart, ThinkingPart, ToolCallPart, ToolResultPart)
"""Parts whose wire extras (cache marks, say) no origin is ever found in: clients add and drop them as they please."""


class Claims:
    """Reads a conversation in order, and gives each part the digest under which it is on record, if it needs one."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCallPart | None] = {}
        self._open: list[ToolCallPart] = []

    def copy(self) -> Claims:
        """The same place in the same conversation, to read on from apart."""
        other = Claims()
        other._calls, other._open = dict(self._calls), list(self._open)
        return other

    def read(self, message: Message) -> tuple[str | None, ...]:
        """A digest per part of the next message; None where a part is believed to be its sender's in any case."""
        spoken = message.role in _SPOKEN
        return tuple(
            self._digest(message.role, part) if spoken or isinstance(part, ToolCallPart | ToolResultPart) else None
            for part in message.content
        )

    def _digest(self, role: Role, part: Part) -> str:
        said = fields_of(part)
        if isinstance(part, _UNREAD_EXTRA):
            said.pop("extra", None)
        said.pop("tool_call_id", None)
        call: Sequence[Any] | None = None
        if isinstance(part, ToolCallPart):
            self._called(part)
        elif isinstance(part, ToolResultPart):
            answered = self._answered(part)
            if answered is not None:
                call = [answered.namespace, answered.name, answered.arguments, answered.arguments_raw]
                if part.tool_name == answered.name:
                    said.pop("tool_name")  # some wires repeat it, others leave it out
        return hashlib.sha256(canonical_bytes([role.value, said, call])).hexdigest()

    def _called(self, call: ToolCallPart) -> None:
        if not call.tool_call_id:
            self._open.append(call)
            return
        held = self._calls.get(call.tool_call_id)
        reused = held is not None and (held.name, held.namespace) != (call.name, call.namespace)
        self._calls[call.tool_call_id] = None if reused else call

    def _answered(self, part: ToolResultPart) -> ToolCallPart | None:
        """The call that a result answers: by its id, or without one the first open call of that name."""
        if part.tool_call_id:
            return self._calls.get(part.tool_call_id)
        for place, call in enumerate(self._open):
            if part.tool_name in (None, call.name):
                return self._open.pop(place)
        return None


__all__ = ["Claims"]
