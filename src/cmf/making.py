"""Values with the values inside them, made in one go: for the shapes that nearly all traffic has.

`cmf.value.maker` makes one value, and takes a call for each of a message, its parts and its layout. The native module
fills the whole shape in one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from cmf import native
from cmf.value import slots, trusted

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
        return py_shape_maker(shape, *names)
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


def py_shape_maker(shape: Shape[_Made], *names: str) -> Callable[..., _Made]:
    """The same, written in Python."""
    return lambda *given: _made(shape, dict(zip(names, given, strict=True)))


def _made(field: Field, given: Mapping[str, Any]) -> Any:
    if isinstance(field, str):
        return given[field]
    if isinstance(field, tuple):
        return tuple(_made(inner, given) for inner in field)
    return trusted(field.cls, **{name: _made(inner, given) for name, inner in field.fields.items()})
