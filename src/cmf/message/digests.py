"""Two digests of a value: of everything in it, and of its content alone [A3]. Spec: identity.md [ID-6] to [ID-9].

Both are SHA-256 over RFC 8785 canonical JSON, with one stated deviation: an integer beyond ±(2^53 - 1) enters as a
tagged exact string, because RFC 8785 would round it, and two amounts must never share a digest.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from typing import Any, Final

import rfc8785

from cmf.json.codec import SAFE_INTEGER, dumps, ready
from cmf.json.value import Value, fields_of, sorted_bytes, to_json
from cmf.message.message import Message, Part, PromptResultPart, ToolCallPart, ToolResultPart, derived
from cmf.message.request import Request, Response
from cmf.message.transform import Pairing

_TAGS: Final = ("int:", "str:")
_ODD_NUMBER: Final = re.compile(rb"[:,\[]-?[0-9]+(?:\.0[^0-9]|(?:\.[0-9]+)?[eE])")
_STEP: Final = 1 << 20  # bytes of one search, during which no other thread runs
_LONGEST: Final = 64  # well above the characters of a number with a point or an exponent
_BEYOND_BMP: Final = re.compile(rb"[\xf0-\xf4]")
_MINTED: Final = frozenset({"id", "session_id", "parent_id", "created_at", "status", "schema_version", "extensions"})


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value, or of a value of the format; large integers as tagged exact strings."""
    plain = sorted_bytes(value)
    return dumps(_canonical(value)) if plain is None or _may_differ(plain) else plain


@derived
def value_hash(value: Value) -> str:
    """SHA-256, in hex, of the whole value but its layout: equal values, and only they, share it."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


@derived
def content_digest(value: Message | Request | Response) -> str:
    """SHA-256, in hex, of a value's content: roles, channels and parts; tool ids by position; no generated ids.

    It survives stamping, a provider swap and a restart; reuse, approvals and the record of history go by it.
    """
    return hashlib.sha256(canonical_bytes(content_of(value))).hexdigest()


def content_of(value: Message | Request | Response) -> Any:
    """What `content_digest` is of."""
    positions: dict[str, str] = {}

    def position(tool_id: str) -> str:
        # The n-th call met, whatever it is called: ids are minted, and differ from provider to provider.
        return positions.setdefault(tool_id, f"#{len(positions)}")

    pairing = Pairing(position, lambda: position(f"\0{len(positions)}"))
    if isinstance(value, Message):
        return _message_content(value, pairing)
    fields = fields_of(value)
    if isinstance(value, Request):
        fields.pop("session_id", None)
        fields["messages"] = [_message_content(message, pairing) for message in value.messages]
        return fields
    fields.pop("usage", None)
    fields["choices"] = [
        {**fields_of(choice), "message": _message_content(choice.message, pairing)} for choice in value.choices
    ]
    return fields


def _message_content(message: Message, pairing: Pairing) -> dict[str, Any]:
    fields = {name: item for name, item in fields_of(message).items() if name not in _MINTED}
    fields["content"] = [_part_content(part, pairing) for part in message.content]
    return fields


def _part_content(part: Part, pairing: Pairing) -> dict[str, Any]:
    fields = fields_of(part)
    if isinstance(part, ToolCallPart | ToolResultPart):
        fields["tool_call_id"] = pairing.name_of(part)
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        fields["content"] = [_part_content(inner, pairing) for inner in part.content]
    if isinstance(part, PromptResultPart):
        fields["messages"] = [_message_content(message, pairing) for message in part.messages]
    return fields


def _may_differ(plain: bytes) -> bool:
    """Whether `plain`, written with sorted keys, may differ from its RFC 8785 form, or has to be tagged.

    So it may with whole numbers that have a point, with exponents and with keys beyond the BMP. Numbers that are not
    finite were written as null.
    """
    return (
        plain[:1] not in (b"{", b"[")
        or b"null" in plain
        or b'"int:' in plain
        or b'"str:' in plain
        or any(_ODD_NUMBER.search(plain, at, at + _STEP + _LONGEST) for at in range(0, len(plain), _STEP))
        or (not plain.isascii() and _BEYOND_BMP.search(plain) is not None)
    )


def _canonical(value: Any) -> Any:
    """`value` such that the plain JSON writer gives its RFC 8785 form, in a tenth of the time of the reference writer.

    Keys are put in order here; numbers that the two would spell differently are written by the reference writer.
    """
    kind = type(value)
    if kind is str:
        # What already looks like a tag is tagged itself, so that no text can pose as a number.
        return f"str:{value}" if value.startswith(_TAGS) else value
    if value is None or kind is bool:
        return value
    if kind is int or kind is float:
        return _number(value)
    if isinstance(value, dict):
        items = {_canonical(key): _canonical(item) for key, item in value.items()}
        # RFC 8785 orders keys by UTF-16 code units; for ASCII that is the order of Python.
        by_units = None if all(map(str.isascii, items)) else lambda key: key.encode("utf-16-be")
        return {key: items[key] for key in sorted(items, key=by_units)}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, Value):
        return _canonical(fields_of(value))
    return _canonical(to_json(value))


def _number(number: int | float) -> Any:
    if -SAFE_INTEGER <= number <= SAFE_INTEGER:
        return int(number) if number == int(number) else ready(rfc8785.dumps(number))
    if isinstance(number, float) and not number.is_integer():  # refused there: it is not finite
        return ready(rfc8785.dumps(number))
    # A double that large is a whole number: the one that it is written as, which may be another than its binary value.
    whole = int(Decimal(repr(number))) if isinstance(number, float) else number
    try:
        return f"int:{whole}"
    except ValueError:  # more digits than Python writes
        return f"int:{hex(whole)}"
