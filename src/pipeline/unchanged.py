"""How much of a conversation came again exactly as it was. Spec: docs/spec/pipeline.md [PIPE-16].

What was decoded anew is the same if it is alike in all that anybody reads or writes of it: the order of keys and the
spelling of numbers included, what of it is parts, and how its wire spelled it. That is told by fingerprints: a
conversation that is kept does not have to be read again for it.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from cmf import _native
from cmf.message import Layout
from cmf.value import Value, is_discriminator


def _slots_of(cls: type) -> tuple[str, ...] | Literal["object", "array", "text", "odd"]:
    """What an instance of a type is told by: all of its fields, or what it is as text; else there is no telling."""
    if issubclass(cls, Value) or cls is Layout:
        fields: Any = dataclasses.fields  # all values are dataclasses, which their base cannot say
        return tuple(field.name for field in fields(cls) if not is_discriminator(field))
    if issubclass(cls, dict | list):
        return "object" if issubclass(cls, dict) else "array"
    return "text" if issubclass(cls, StrEnum) or cls is datetime else "odd"


_again: Final = _native.Fingerprints(_slots_of).again
same_start: Final = _native.same_start
"""How many items at the beginning of two sequences are the very same objects."""


def again(held: tuple[Value, ...], known: bytes, given: tuple[Value, ...]) -> tuple[int, bytes]:
    """How many of `given` at the beginning are as those of `held`, whose fingerprints are `known`; and theirs."""
    return _again(held, known, given)


def unchanged(held: tuple[Value, ...], given: tuple[Value, ...]) -> int:
    """How many items at the beginning are the same to everybody who reads or writes them."""
    start = same_start(held, given)
    old, new = held[start : len(given)], given[start : len(held)]
    # Where everything differs, as when a label is on all of it, the first says so.
    if not old or not again((), again((), b"", old[:1])[1], new[:1])[0]:
        return start
    return start + again((), again((), b"", old)[1], new)[0]


__all__ = ["again", "same_start", "unchanged"]
