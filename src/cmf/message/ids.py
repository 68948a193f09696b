"""Ids: minting them in order, and keeping the two names of a tool call together [A2]. Spec: docs/spec/identity.md.

Nothing here reads a clock on its own: whoever stamps brings one. Adapters mint nothing.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from ulid import ULID

from cmf.errors import UnknownToolIdError
from cmf.json.value import replace
from cmf.message.message import Message, Part, PromptResultPart, ToolCallPart, ToolResultPart
from cmf.message.model_ids import provider_of
from cmf.message.request import Request, Response
from cmf.message.transform import Pairing, messages_of, with_messages

TOOL_PREFIX: Final = "tu_"
NO_PROVIDER: Final = "_"
"""The name under which a map keeps the ids of values that name no provider."""
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")
_RANDOM_BITS: Final = 80
_MAX_RANDOM: Final = (1 << _RANDOM_BITS) - 1

Clock = Callable[[], datetime]
_T = TypeVar("_T", bound=Message | Request | Response)


def is_ulid(text: str | None) -> bool:
    """Whether `text` is a ULID: 26 characters of Crockford base 32, in upper case."""
    return text is not None and _ULID.match(text) is not None


class Ids:
    """ULIDs that only go up: within one millisecond, when the clock steps back, and across threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = (0, 0)

    def ulid(self) -> str:
        """The next id: 26 characters of Crockford base 32."""
        now = int(self._clock().timestamp() * 1000)
        with self._lock:
            millisecond, randomness = self._last
            if now > millisecond:
                millisecond, randomness = now, secrets.randbits(_RANDOM_BITS - 1)
            elif randomness < _MAX_RANDOM:
                randomness += 1
            else:
                millisecond, randomness = millisecond + 1, secrets.randbits(_RANDOM_BITS - 1)
            self._last = (millisecond, randomness)
            return str(ULID.from_bytes(millisecond.to_bytes(6, "big") + randomness.to_bytes(10, "big")))

    def tool_id(self) -> str:
        """The next canonical tool id: `tu_<ulid>`."""
        return TOOL_PREFIX + self.ulid()


@dataclass(slots=True)
class IdMap:
    """Canonical tool ids and what each provider calls them, both ways, for one session.

    It survives a provider swap (a new provider gets a name of its own for the same call) and, as JSON, a restart.
    """

    to_provider: dict[str, dict[str, str]] = field(default_factory=dict)
    to_canonical: dict[str, dict[str, str]] = field(default_factory=dict)

    def canonical(self, provider: str, provider_id: str, mint: Callable[[], str]) -> str:
        """The canonical id of what `provider` calls `provider_id`; minted when it is first met."""
        if provider_id in self.to_provider:
            return provider_id  # it is one of ours already
        canonical_ids = self.to_canonical.setdefault(provider, {})
        if provider_id not in canonical_ids:
            self.link(mint(), provider, provider_id)
        return canonical_ids[provider_id]

    def provider(self, provider: str, canonical_id: str) -> str:
        """What `provider` calls `canonical_id`; the canonical id itself where that provider never named it.

        Raises:
            UnknownToolIdError: the session has no such call.
        """
        names = self.to_provider.get(canonical_id)
        if names is None:
            raise UnknownToolIdError("the session has no such tool call", hint="ids never cross sessions")
        return names.get(provider, canonical_id)

    def link(self, canonical_id: str, provider: str, provider_id: str) -> None:
        """Record that `provider` calls `canonical_id` `provider_id`."""
        self.to_provider.setdefault(canonical_id, {})[provider] = provider_id
        self.to_canonical.setdefault(provider, {})[provider_id] = canonical_id

    def to_json(self) -> dict[str, dict[str, str]]:
        """Canonical id → provider → its name, for storage."""
        return {canonical: dict(names) for canonical, names in self.to_provider.items()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Mapping[str, str]]) -> IdMap:
        """The map that `to_json` gave."""
        id_map = cls()
        for canonical, names in stored.items():
            id_map.to_provider.setdefault(canonical, {})
            for provider, name in names.items():
                id_map.link(canonical, provider, name)
        return id_map


def stamp(
    value: _T, ids: Ids, clock: Clock, id_map: IdMap, *, provider: str | None = None, session_id: str | None = None
) -> _T:
    """`value` with ids and times where they were missing, and canonical ids in place of the provider's.

    Ids that are canonical already stay, and times. Calls and results that a format leaves without ids are paired by
    order within the value. `provider` is whose ids the value has, by default of whom its model is; `session_id` is for
    messages without one, by default the request's.
    """
    session_id = session_id or (value.session_id if isinstance(value, Request) else None)
    stamper = _Stamper(ids, clock, id_map, provider or _own_provider(value), session_id)
    return with_messages(value, tuple(map(stamper.message, messages_of(value))))


def unstamp(value: _T, id_map: IdMap, *, provider: str | None = None) -> _T:
    """`value` with the ids that `provider` knows; the way back from `stamp`, with the same default."""
    provider = provider or _own_provider(value)
    names = id_map.to_provider
    message_ids = _message_ids(provider)

    def provider_id(message_id: str | None) -> str | None:
        return names.get(str(message_id), {}).get(message_ids, message_id)

    def provider_names(part: Part) -> Part:
        if isinstance(part, ToolCallPart | ToolResultPart) and (part.tool_call_id or "").startswith(TOOL_PREFIX):
            return replace(part, tool_call_id=id_map.provider(provider, str(part.tool_call_id)))
        return part

    def unstamped(message: Message) -> Message:
        named = _with_parts(message, provider_names)
        return replace(named, id=provider_id(message.id), parent_id=provider_id(message.parent_id))

    return with_messages(value, tuple(map(unstamped, messages_of(value))))


def _own_provider(value: Message | Request | Response) -> str:
    if isinstance(value, Message):
        llm = None if value.extensions is None else value.extensions.llm
        return (llm and llm.provider) or NO_PROVIDER
    return provider_of(value.model or "") or NO_PROVIDER


def _message_ids(provider: str) -> str:
    """The name under which a map keeps a provider's message ids, apart from its tool ids."""
    return f"{provider}/messages"


class _Stamper:
    def __init__(self, ids: Ids, clock: Clock, id_map: IdMap, provider: str, session_id: str | None) -> None:
        self._ids, self._clock, self._map, self._provider = ids, clock, id_map, provider
        self._session_id = session_id
        self._pairing = Pairing(self._canonical, self._minted)

    def message(self, message: Message) -> Message:
        stamped = _with_parts(message, self._part)
        return replace(
            stamped,
            id=self._message_id(message.id) or self._ids.ulid(),
            parent_id=self._message_id(message.parent_id),
            session_id=message.session_id or self._session_id,
            created_at=message.created_at or self._clock(),
        )

    def _message_id(self, given: str | None) -> str | None:
        if given is None or is_ulid(given):
            return given
        return self._map.canonical(_message_ids(self._provider), given, self._ids.ulid)

    def _part(self, part: Part) -> Part:
        if isinstance(part, ToolCallPart | ToolResultPart):
            return replace(part, tool_call_id=self._pairing.name_of(part))
        return part

    def _canonical(self, provider_id: str) -> str:
        return self._map.canonical(self._provider, provider_id, self._ids.tool_id)

    def _minted(self) -> str:
        minted = self._ids.tool_id()
        self._map.to_provider.setdefault(minted, {})
        return minted


def _with_parts(message: Message, change: Callable[[Part], Part]) -> Message:
    return replace(message, content=tuple(_deep(part, change) for part in message.content))


def _deep(part: Part, change: Callable[[Part], Part]) -> Part:
    """The part changed, then what is inside it: a result cannot answer a call that it holds."""
    part = change(part)
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        return replace(part, content=tuple(_deep(inner, change) for inner in part.content))
    if isinstance(part, PromptResultPart):
        return replace(part, messages=tuple(_with_parts(message, change) for message in part.messages))
    return part
