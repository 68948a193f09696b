"""Functions that make a value together with the values inside it, for the shapes that nearly all traffic has.

`cmf.json.value.maker` makes one value a call: a message, its parts and its layout take one each. The native module
makes all of a shape in one call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from cmf.json import native
from cmf.json.value import slots, trusted

_Made = TypeVar("_Made")


@dataclasses.dataclass(frozen=True, slots=True)
class Shape(Generic[_Made]):
    """A value of type `cls` to make. Each field is the name of an argument, another shape, or a tuple of these.

    Fields that are not named get their defaults.
    """

    cls: type[_Made]
    fields: Mapping[str, Field]


Field: TypeAlias = "str | Shape[Any] | tuple[Field, ...]"


def shape_maker(shape: Shape[_Made], *names: str) -> Callable[..., _Made]:
    """A function that takes the arguments `names`, in this order, and makes the shape.

    Nothing is validated, as in `cmf.json.value.trusted`: the caller vouches for types, frozenness and strict text.
    """
    if native.shape_maker is None:
        return py_shape_maker(shape, *names)
    _, cls, fields = _source(shape, names)
    made: Callable[..., _Made] = native.shape_maker(cls, fields, len(names))
    return made


def _source(field: Field, names: Sequence[str]) -> tuple[Any, ...]:
    """The field in the form that `cmf.json.native.shape_maker` takes."""
    if isinstance(field, str):
        return "given", names.index(field)
    if isinstance(field, tuple):
        return "several", tuple(_source(inner, names) for inner in field)
    given = {name: _source(inner, names) for name, inner in field.fields.items()}
    return "made", field.cls, slots(field.cls, given)


def py_shape_maker(shape: Shape[_Made], *names: str) -> Callable[..., _Made]:
    """`shape_maker` in Python, where the native module is not built."""
    return lambda *given: _made(shape, dict(zip(names, given, strict=True)))


def _made(field: Field, given: Mapping[str, Any]) -> Any:
    if isinstance(field, str):
        return given[field]
    if isinstance(field, tuple):
        return tuple(_made(inner, given) for inner in field)
    return trusted(field.cls, **{name: _made(inner, given) for name, inner in field.fields.items()})
