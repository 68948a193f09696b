"""How many messages of a conversation are the same as in the turn before. Spec: docs/spec/pipeline.md [PIPE-16].

A client sends its whole conversation with each turn, and it is decoded anew. Two messages count as the same only if
nobody could tell them apart: all fields are equal, and so are the order of keys, the spelling of numbers and the wire
layout. Fingerprints of the messages that are kept are compared, so that those do not have to be read again.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from cmf import _native
from cmf.json.value import Value, is_discriminator
from cmf.message.message import Layout


def _slots_of(cls: type) -> tuple[str, ...] | Literal["object", "array", "text", "odd"]:
    """How the native module takes the fingerprint of a type: by its fields, as JSON or as text; `odd` has none."""
    if issubclass(cls, Value) or cls is Layout:
        fields: Any = dataclasses.fields  # all values are dataclasses, which their base cannot say
        return tuple(field.name for field in fields(cls) if not is_discriminator(field))
    if issubclass(cls, dict | list):
        return "object" if issubclass(cls, dict) else "array"
    return "text" if issubclass(cls, StrEnum) or cls is datetime else "odd"


_equal_start: Final = _native.Fingerprints(_slots_of).again
identical_start: Final = _native.same_start
"""How many items at the beginning of two sequences are identical objects."""


def equal_start(held: tuple[Value, ...], known: bytes, given: tuple[Value, ...]) -> tuple[int, bytes]:
    """How many items at the beginning of `given` equal those of `held`; and the fingerprints of all of `given`.

    `known` are the fingerprints of `held`, as an earlier call returned them.
    """
    return _equal_start(held, known, given)


def unchanged(held: tuple[Value, ...], given: tuple[Value, ...]) -> int:
    """How many items at the beginning of both are the same."""
    start = identical_start(held, given)
    old, new = held[start : len(given)], given[start : len(held)]
    # Often all items differ (a new label is on each): comparing the first one alone finds that out.
    if not old or not equal_start((), equal_start((), b"", old[:1])[1], new[:1])[0]:
        return start
    return start + equal_start((), equal_start((), b"", old)[1], new)[0]


__all__ = ["equal_start", "identical_start", "unchanged"]
