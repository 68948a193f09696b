"""Values with the values inside them, made in one go: for the shapes that nearly all traffic has.

`cmf.value.maker` makes one value. To make a message with its parts and layout that way takes a call for each of them,
which is a fifth of the time; a function written for the whole shape takes one. The native module fills the whole shape
in a third of that time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from cmf import native
from cmf.value import filled, slots

_Made = TypeVar("_Made")


@dataclasses.dataclass(frozen=True, slots=True)
class Shape(Generic[_Made]):
    """What is made: a value of type `cls`; each field is an argument's name, a shape, or a tuple of these.

    Fields that are not named get their defaults.
    """

    cls: type[_Made]
    fields: Mapping[str, Field]


Field: TypeAlias = "str | Shape[Any] | tuple[Field, ...]"


def shape_maker(shape: Shape[_Made], *names: str) -> Callable[..., _Made]:
    """A function of these arguments, in this order, that makes the shape, without validation (see `cmf.value.trusted`).

    It stands to `trusted` as `cmf.value.maker` does; the caller vouches for types, frozenness and strict text.
    """
    if native.shape_maker is None:
        return written_shape_maker(shape, *names)
    _, cls, fields = _told(shape, names)
    made: Callable[..., _Made] = native.shape_maker(cls, fields, len(names))
    return made


def _told(field: Field, names: Sequence[str]) -> tuple[Any, ...]:
    """The field as `cmf.native.shape_maker` is told it."""
    if isinstance(field, str):
        return "given", names.index(field)
    if isinstance(field, tuple):
        return "several", tuple(_told(inner, names) for inner in field)
    given = {name: _told(inner, names) for name, inner in field.fields.items()}
    return "made", field.cls, slots(field.cls, given)


def written_shape_maker(shape: Shape[_Made], *names: str) -> Callable[..., _Made]:
    """The same, written in Python."""
    known: dict[str, Any] = {}
    lines = [f"def make({', '.join(names)}):"]
    made = _written(shape, lines, known)
    exec("\n".join([*lines, f" return {made}"]), known)  # noqa: S102 - names of fields and arguments
    make: Callable[..., _Made] = known["make"]
    return make


def _written(field: Field, lines: list[str], known: dict[str, Any]) -> str:
    """What stands for the field, once `lines` have run."""
    if isinstance(field, str):
        return field
    if isinstance(field, tuple):
        return "(" + "".join(f"{_written(inner, lines, known)}, " for inner in field) + ")"
    given = {name: _written(inner, lines, known) for name, inner in field.fields.items()}
    number = f"_{len(lines)}"  # each value has lines of its own, so this names it
    lines += filled(field.cls, number, given, known)
    return f"made{number}"
