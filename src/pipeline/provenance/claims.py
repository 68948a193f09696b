"""Which parts of a conversation are believed only if they are on record, and under which digest [C4].

The history that a client sends is a claim: it could have made up what the model or a tool said. What was judged here as
a reply of the model or the result of a tool is on record, by digest, for its subject and session. The digest of a
result covers the call that it answers. Spec: docs/spec/provenance.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast, get_args

from cmf.enums import Role
from cmf.json.value import fields_of
from cmf.message.digests import canonical_bytes
from cmf.message.message import Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart

HistoryTrust: TypeAlias = Literal["claimed", "trusted"]
"""Whether a history that was not judged here is believed: `claimed`, it is not; `trusted`, it is."""

_SPOKEN: Final = (Role.ASSISTANT, Role.TOOL)
_INSTRUCTIONS: Final = (Role.SYSTEM, Role.DEVELOPER)
_UNREAD_EXTRA: Final = (TextPart, ThinkingPart, ToolCallPart, ToolResultPart)
"""Parts whose `extra` fields are left out of the digest: clients add and drop them (cache marks, say), and no origin is
ever looked up in them."""


def history_trust(word: object) -> HistoryTrust | None:
    """`word` if it is a `HistoryTrust`, else None."""
    return cast("HistoryTrust", word) if word in get_args(HistoryTrust) else None


def needs_record(role: Role, part: Part) -> bool:
    """Whether only the model or a tool could have written the part, so that it is believed only if on record."""
    return role in _SPOKEN or isinstance(part, ToolCallPart | ToolResultPart)


def prefixes(messages: Iterable[Message]) -> list[str]:
    """For each message, a digest (SHA-256, hex) of the conversation up to and including it.

    System and developer messages are left out: they are the application's, and change between turns (a date, say).
    """
    claims, chained = Claims(), b""
    found = []
    for message in messages:
        if message.role in _INSTRUCTIONS:
            continue
        parts = "".join(claims.digest(message.role, part) for part in message.content)
        chained = hashlib.sha256(chained + parts.encode()).digest()
        found.append(chained.hex())
    return found


class _Called(Protocol):
    """What identifies the tool of a call."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str | None: ...


_C = TypeVar("_C", bound=_Called)


class Calls(Generic[_C]):
    """The tool calls of a conversation so far, to find the one that a result answers."""

    def __init__(self) -> None:
        self._by_id: dict[str, _C | None] = {}
        self._open: list[_C] = []

    def copy(self) -> Calls[_C]:
        """A copy, to which calls can be added independently."""
        other: Calls[_C] = Calls()
        other._by_id, other._open = dict(self._by_id), list(self._open)
        return other

    def add(self, tool_call_id: str | None, call: _C) -> None:
        """Remember the next call. An id that another tool had before belongs to neither from now on."""
        if not tool_call_id:
            self._open.append(call)
            return
        held = self._by_id.get(tool_call_id)
        reused = held is not None and (held.name, held.namespace) != (call.name, call.namespace)
        self._by_id[tool_call_id] = None if reused else call

    def answered(self, part: ToolResultPart) -> _C | None:
        """The call that a result answers: by its id; without one, the first call of that tool not answered yet."""
        if part.tool_call_id:
            return self._by_id.get(part.tool_call_id)
        for place, call in enumerate(self._open):
            if part.tool_name in (None, call.name):
                return self._open.pop(place)
        return None


class Claims:
    """Reads a conversation in order, and gives each part that needs a record the digest that it is on record under."""

    def __init__(self) -> None:
        self._calls: Calls[ToolCallPart] = Calls()

    def copy(self) -> Claims:
        """A copy, to read on independently from the same place."""
        other = Claims()
        other._calls = self._calls.copy()
        return other

    def read(self, message: Message) -> tuple[str | None, ...]:
        """For each part of the next message its digest; None for a part that needs no record."""
        return tuple(
            self.digest(message.role, part) if needs_record(message.role, part) else None for part in message.content
        )

    def pass_over(self, message: Message) -> None:
        """Read the next message without its digests."""
        for part in message.content:
            if isinstance(part, ToolCallPart):
                self._calls.add(part.tool_call_id, part)
            elif isinstance(part, ToolResultPart):
                self._calls.answered(part)

    def digest(self, role: Role, part: Part) -> str:
        """The digest of the next part, whether or not it needs a record."""
        fields = fields_of(part)
        if isinstance(part, _UNREAD_EXTRA):
            fields.pop("extra", None)
        fields.pop("tool_call_id", None)
        call: Sequence[Any] | None = None
        if isinstance(part, ToolCallPart):
            self._calls.add(part.tool_call_id, part)
        elif isinstance(part, ToolResultPart):
            answered = self._calls.answered(part)
            if answered is not None:
                call = [answered.namespace, answered.name, answered.arguments, answered.arguments_raw]
                if part.tool_name == answered.name:
                    fields.pop("tool_name")  # some wires repeat it, others leave it out
        answering = [] if call is None else [call]
        return hashlib.sha256(canonical_bytes([role.value, fields, *answering])).hexdigest()
