"""What of a conversation came again exactly as it was. Spec: docs/spec/pipeline.md [PIPE-16]."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TypeVar

from cmf.message import Layout, Message
from cmf.value import Value, to_bytes

_T = TypeVar("_T", bound=Value)


def same_start(held: Sequence[object], given: Sequence[object]) -> int:
    """How many items at the beginning are the very same objects."""
    if all(map(is_, held, given)):
        return min(len(held), len(given))
    return next(place for place, (old, new) in enumerate(zip(held, given, strict=False)) if old is not new)


def unchanged(held: tuple[_T, ...], given: tuple[_T, ...]) -> int:
    """How many items at the beginning are the same to everybody who reads or writes them.

    Values that cannot change are the same where they are the very same objects. What was decoded anew has to be equal,
    type by type, and alike in every byte, the order of keys included, and in how its wire spelled it.
    """
    start = same_start(held, given)
    count = min(len(held), len(given))
    if start == count or _alike(held[start:count], given[start:count]):
        return count
    pairs = enumerate(zip(held[start:count], given[start:count], strict=True), start)
    return next(place for place, (old, new) in pairs if not _alike((old,), (new,)))


def _alike(held: tuple[_T, ...], given: tuple[_T, ...]) -> bool:
    return held == given and _spelt(held) == _spelt(given) and to_bytes(held) == to_bytes(given)


def _spelt(items: tuple[Value, ...]) -> list[Layout | None]:
    return [item.provider_raw for item in items if isinstance(item, Message)]


__all__ = ["same_start", "unchanged"]
