"""How much of a conversation came again exactly as it was. Spec: docs/spec/pipeline.md [PIPE-16]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, is_
from typing import Final, NamedTuple, TypeVar, cast

from cmf.content import Part, PromptResultPart, ToolResultPart
from cmf.message import Layout, Message
from cmf.value import Value
from pipeline.policy_input import json_bytes

_T = TypeVar("_T", bound=Value)


def same_start(held: Sequence[object], given: Sequence[object]) -> int:
    """How many items at the beginning are the very same objects."""
    if all(map(is_, held, given)):
        return min(len(held), len(given))
    return next(place for place, (old, new) in enumerate(zip(held, given, strict=False)) if old is not new)


def unchanged(held: tuple[_T, ...], given: tuple[_T, ...]) -> int:
    """How many items at the beginning are the same to everybody who reads or writes them.

    Values that cannot change are the same where they are the very same objects. What was decoded anew has to be alike
    in every byte of its JSON form, the order of keys included, in what of it is parts, and in how its wire spelled it.
    """
    start = same_start(held, given)
    old, new = held[start : len(given)], given[start : len(held)]
    # Where everything differs, as when a label is on all of it, the first says so.
    if _alike(old[:1], new[:1]) and _alike(old, new):
        return start + len(old)
    return next(place for place, pair in enumerate(zip(old, new, strict=True), start) if not _alike(*zip(pair)))


class Form(NamedTuple):
    """All of some items that anybody reads or writes: equal for those that are the same to everybody.

    `written` is their JSON form, `spelt` how the wire spelled each; `made` says of results whether parts are in them.
    """

    written: bytes
    spelt: tuple[Layout | None, ...]
    made: tuple[bool, ...]

    @classmethod
    def of(cls, items: tuple[Value, ...]) -> Form:
        """The form of these items."""
        if not items or not isinstance(items[0], Message):
            return cls(json_bytes(items), (), ())
        messages = cast("tuple[Message, ...]", items)
        return cls(json_bytes(items), tuple(map(_SPELT, messages)), tuple(_made_of_parts(_holding(messages))))

    def then(self, other: Form) -> Form:
        """The form of these items and the others after them."""
        parts = [written for written in (self.written[1:-1], other.written[1:-1]) if written]
        return Form(b"[" + b",".join(parts) + b"]", self.spelt + other.spelt, self.made + other.made)


def _alike(held: tuple[Value, ...], given: tuple[Value, ...]) -> bool:
    return Form.of(held) == Form.of(given)


def _holding(messages: Iterable[Message]) -> list[Part]:
    """The parts that can hold others."""
    return [part for message in messages for part in message.content if type(part) in _HOLDING]


def _made_of_parts(parts: Iterable[Part]) -> Iterator[bool]:
    """Whether each result is made of parts, however deep: a JSON value can look the same, and has no views inside."""
    for part in parts:
        if isinstance(part, PromptResultPart):
            yield from _made_of_parts(_holding(part.messages))
        elif isinstance(part, ToolResultPart):
            yield isinstance(part.content, tuple)
            yield from _made_of_parts(part.content if isinstance(part.content, tuple) else ())


_HOLDING: Final = frozenset({ToolResultPart, PromptResultPart})
_SPELT: Final[Callable[[Message], Layout | None]] = attrgetter("provider_raw")

__all__ = ["Form", "same_start", "unchanged"]
