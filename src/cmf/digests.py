"""Two digests of a value: of all that it is, and of what it says [A3]. Spec: identity.md [ID-6] to [ID-9].

Both are SHA-256 over RFC 8785 canonical JSON, with one stated deviation: an integer beyond ±(2^53 - 1) enters as a
tagged exact string, because RFC 8785 would round it, and two amounts must never share a digest.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import rfc8785

from cmf.content import Part, PromptResultPart, ToolCallPart, ToolResultPart
from cmf.message import Message
from cmf.pairing import Pairing
from cmf.request import Request, Response
from cmf.value import Value

MAX_EXACT: Final = 2**53 - 1
_TAGS: Final = ("int:", "str:")
_MINTED: Final = frozenset({"id", "session_id", "parent_id", "created_at", "status", "schema_version", "extensions"})


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value; large integers as tagged exact strings."""
    return rfc8785.dumps(_exact(value))


def value_hash(value: Value) -> str:
    """SHA-256, in hex, of the whole value but its layout: equal values, and only they, share it."""
    return hashlib.sha256(canonical_bytes(value.model_dump())).hexdigest()


def content_digest(value: Message | Request | Response) -> str:
    """SHA-256, in hex, of what a value says: roles, channels and parts; tool ids by position; nothing that was minted.

    It survives stamping, a provider swap and a restart; reuse, approvals and the record of history go by it.
    """
    return hashlib.sha256(canonical_bytes(_said(value))).hexdigest()


def _said(value: Message | Request | Response) -> Any:
    positions: dict[str, str] = {}

    def position(tool_id: str) -> str:
        # The n-th call met, whatever it is called: ids are minted, and differ from provider to provider.
        return positions.setdefault(tool_id, f"#{len(positions)}")

    pairing = Pairing(position, lambda: position(f"\0{len(positions)}"))
    if isinstance(value, Message):
        return _said_message(value, pairing)
    fields = value.model_dump()
    if isinstance(value, Request):
        fields.pop("session_id", None)
        fields["messages"] = [_said_message(message, pairing) for message in value.messages]
        return fields
    fields.pop("usage", None)
    fields["choices"] = [
        {**choice.model_dump(), "message": _said_message(choice.message, pairing)} for choice in value.choices
    ]
    return fields


def _said_message(message: Message, pairing: Pairing) -> dict[str, Any]:
    fields = {name: item for name, item in message.model_dump().items() if name not in _MINTED}
    fields["content"] = [_said_part(part, pairing) for part in message.content]
    return fields


def _said_part(part: Part, pairing: Pairing) -> dict[str, Any]:
    fields = part.model_dump()
    if isinstance(part, ToolCallPart | ToolResultPart):
        fields["tool_call_id"] = pairing.name_of(part)
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        fields["content"] = [_said_part(inner, pairing) for inner in part.content]
    if isinstance(part, PromptResultPart):
        fields["messages"] = [_said_message(message, pairing) for message in part.messages]
    return fields


def _exact(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        # What already looks like a tag is tagged itself, so that no text can pose as a number.
        return f"str:{value}" if value.startswith(_TAGS) else value
    if kind is int or kind is float:
        if -MAX_EXACT <= value <= MAX_EXACT or not float(value).is_integer():
            return value
        return f"int:{int(value)}"
    if isinstance(value, dict):
        return {_exact(key): _exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    return value
