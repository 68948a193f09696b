"""Which parts of a conversation are believed only if on record, and under which digest [C4]. Spec: provenance.md.

History that a client presents is a claim. What was judged here as the model's own reply, or as a tool's result, is on
record for its subject and session; the digest binds a result to the call that it answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast, get_args

from cmf.content import Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.digests import canonical_bytes
from cmf.enums import Role
from cmf.message import Message
from cmf.value import fields_of

HistoryTrust: TypeAlias = Literal["claimed", "trusted"]
"""Whether a history that was not judged here is believed: `claimed`, it is not; `trusted`, it is."""

_SPOKEN: Final = (Role.ASSISTANT, Role.TOOL)
_INSTRUCTIONS: Final = (Role.SYSTEM, Role.DEVELOPER)
_UNREAD_EXTRA: Final = (TextPart, ThinkingPart, ToolCallPart, ToolResultPart)
"""Parts whose wire extras (cache marks, say) no origin is ever found in: clients add and drop them as they please."""


def history_trust(word: object) -> HistoryTrust | None:
    """The trust that a file names; None for any other word."""
    return cast("HistoryTrust", word) if word in get_args(HistoryTrust) else None


def needs_record(role: Role, part: Part) -> bool:
    """Whether a part says what only the model or a tool can say: a claim, unless it is on record."""
    return role in _SPOKEN or isinstance(part, ToolCallPart | ToolResultPart)


def prefixes(messages: Iterable[Message]) -> list[str]:
    """A digest for each message of all that was said up to it, in order; instructions of the system are not counted.

    Those are the application's own, and change from turn to turn (the date in them, say).
    """
    claims, said = Claims(), b""
    found = []
    for message in messages:
        if message.role in _INSTRUCTIONS:
            continue
        parts = "".join(claims.digest(message.role, part) for part in message.content)
        said = hashlib.sha256(said + parts.encode()).digest()
        found.append(said.hex())
    return found


class Called(Protocol):
    """A call, as far as it takes to find it again."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str | None: ...


_C = TypeVar("_C", bound=Called)


class Calls(Generic[_C]):
    """The calls of a conversation so far: which one a result answers."""

    def __init__(self) -> None:
        self._by_id: dict[str, _C | None] = {}
        self._open: list[_C] = []

    def copy(self) -> Calls[_C]:
        """The same calls, to go on from apart."""
        other: Calls[_C] = Calls()
        other._by_id, other._open = dict(self._by_id), list(self._open)
        return other

    def add(self, tool_call_id: str | None, call: _C) -> None:
        """Remember the next call; an id that meant another tool before means none of them."""
        if not tool_call_id:
            self._open.append(call)
            return
        held = self._by_id.get(tool_call_id)
        reused = held is not None and (held.name, held.namespace) != (call.name, call.namespace)
        self._by_id[tool_call_id] = None if reused else call

    def answered(self, part: ToolResultPart) -> _C | None:
        """The call that a result answers: by its id, or without one the first open call of that name, open no more."""
        if part.tool_call_id:
            return self._by_id.get(part.tool_call_id)
        for place, call in enumerate(self._open):
            if part.tool_name in (None, call.name):
                return self._open.pop(place)
        return None


class Claims:
    """Reads a conversation in order, and gives each part the digest under which it is on record, if it needs one."""

    def __init__(self) -> None:
        self._calls: Calls[ToolCallPart] = Calls()

    def copy(self) -> Claims:
        """The same place in the same conversation, to read on from apart."""
        other = Claims()
        other._calls = self._calls.copy()
        return other

    def read(self, message: Message) -> tuple[str | None, ...]:
        """A digest per part of the next message; None where a part is believed to be its sender's in any case."""
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
        """The digest of the next part, whoever says it."""
        said = fields_of(part)
        if isinstance(part, _UNREAD_EXTRA):
            said.pop("extra", None)
        said.pop("tool_call_id", None)
        call: Sequence[Any] | None = None
        if isinstance(part, ToolCallPart):
            self._calls.add(part.tool_call_id, part)
        elif isinstance(part, ToolResultPart):
            answered = self._calls.answered(part)
            if answered is not None:
                call = [answered.namespace, answered.name, answered.arguments, answered.arguments_raw]
                if part.tool_name == answered.name:
                    said.pop("tool_name")  # some wires repeat it, others leave it out
        answering = [] if call is None else [call]
        return hashlib.sha256(canonical_bytes([role.value, said, *answering])).hexdigest()


__all__ = ["Calls", "Claims", "HistoryTrust", "history_trust", "needs_record", "prefixes"]
