"""Values from JSON that was just parsed, in a third of the time that pydantic takes. Spec: message.md [MSG-3].

Only input that is valid beyond doubt is read here. For anything else `read` gives up, and pydantic, whose rules stand
with the types, reads the whole input and says what is wrong with it. So nothing is accepted that pydantic refuses, and
the values are equal: tests/cmf/test_reading.py compares the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import EnumType
from functools import cache
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import pydantic
from pydantic import TypeAdapter

from cmf.content import Parts, ResultContent
from cmf.errors import CmfError
from cmf.extensions import Headers, HttpHeaders
from cmf.frozen import JsonObject, freeze_parsed, frozen_mapping, sealed
from cmf.headers import is_sensitive
from cmf.message import Message
from cmf.security import DataPolicies, Objects, StrSet
from cmf.value import REQUIRED, Count, Flag, Str, Value, field_default, is_discriminator, maker

_T = TypeVar("_T", bound=Value)
_Read = Callable[[Any], Any]


class UnsureError(Exception):
    """The input may be invalid: pydantic has to decide."""


def read(cls: type[_T], data: Any) -> _T | None:
    """What `cls.model_validate(data)` gives, for `data` from `cmf.codec.loads`; None if pydantic has to be asked.

    The value keeps parts of `data`, which the caller may not use or change any more.
    """
    try:
        value: _T = _readers[cls](data)
    except (UnsureError, KeyError):
        return None
    return value


class _Readers(dict[type, _Read]):
    """Type → the function that reads it. It is written when first needed, since types refer to each other."""

    def __missing__(self, cls: type[Value]) -> _Read:
        self[cls] = reader = _written(cls) if _is_plain(cls) else _by_pydantic(cls)
        return reader


_readers: Final = _Readers()


def _is_plain(cls: type) -> bool:
    # What the validator of messages looks for (older versions, unknown roles) is nothing that is plainly in order.
    return cls is Message or not vars(cls)["__pydantic_decorators__"].model_validators


def _written(cls: type) -> _Read:
    """A function generated for `cls`, which takes a quarter of the time of a loop over its fields."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    known: dict[str, Any] = {"Unsure": UnsureError, "make": maker(cls, *(field.name for field in fields))}
    # What is absent is counted, not what is there: rich values are the slow ones.
    lines = ["def read(data):", " if type(data) is not dict: raise Unsure", f" left = len(data) - {len(fields)}"]
    hints = get_type_hints(cls, include_extras=True)
    for field in fields:
        name, default = field.name, field_default(field)
        known[f"default_{name}"] = default
        plain = "None" if default is None else f"default_{name}"
        if is_discriminator(field):
            taken = [f"if held != default_{name}: raise Unsure", f"held = default_{name}"]
        else:
            taken, known[f"read_{name}"] = _form(hints[name])
        taken = [f"held = data[{name!r}]", *(line.format(read=f"read_{name}") for line in taken), f"its_{name} = held"]
        if default is REQUIRED:  # without it: KeyError
            lines += [f" {line}" for line in taken]
        else:
            lines += [f" if {name!r} in data:", *(f"  {line}" for line in taken)]
            lines += [" else:", "  left += 1", f"  its_{name} = {plain}"]
    lines += [" if left: raise Unsure", f" return make({', '.join(f'its_{field.name}' for field in fields)})"]
    exec("\n".join(lines), known)  # noqa: S102 - the names are those of a class's fields
    reader: _Read = known["read"]
    return reader


def _form(hint: Any) -> tuple[list[str], _Read | None]:
    """Lines of code that turn the variable `held` into a field of this type, and the function that they call `read`."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if NoneType in get_args(hint) else [hint]
    if len(kinds) == 1:
        kind = kinds[0]
        for known, lines, read_item in _forms():
            if kind is known or kind == known:
                return lines, read_item
        if get_origin(kind) is Literal:
            return _ONE_OF, {item: item for item in get_args(kind)}.get
        if isinstance(kind, EnumType):
            return _ONE_OF, {str(item): item for item in list[Any](kind)}.get
        if isinstance(kind, type) and issubclass(kind, Value):
            return ["held = {read}(held)"], _reader(kind)
        items = get_args(kind)
        if get_origin(kind) is tuple and len(items) == 2 and isinstance(items[0], type) and issubclass(items[0], Value):
            return _EACH, _reader(items[0])
    return ["held = {read}(held)"], _by_pydantic(hint)


_ONE_OF: Final = ["held = {read}(held) if type(held) is str else None", "if held is None: raise Unsure"]
_LIST: Final = "if type(held) is not list: raise Unsure"
_TEXTS: Final = [_LIST, "for each in held:", " if type(each) is not str: raise Unsure"]
_EACH: Final = [_LIST, "held = tuple([{read}(each) for each in held])"]


def _reader(cls: type[Value]) -> _Read:
    # Messages hold parts, and parts hold messages: their reader may not be there yet.
    return (lambda item: _readers[cls](item)) if cls is Message else _readers[cls]


@cache
def _forms() -> list[tuple[Any, list[str], _Read | None]]:
    """Type of a field → how it is read. Text needs no check: the parser has refused what is not Unicode."""
    return [
        (Str, ["if type(held) is not str: raise Unsure"], None),
        (Flag, ["if type(held) is not bool: raise Unsure"], None),
        (Count, ["if type(held) is not int or held < 0: raise Unsure"], None),
        (tuple[Str, ...], [*_TEXTS, "held = tuple(held)"], None),
        (StrSet, [*_TEXTS, "held = frozenset(held)"], None),
        (JsonObject, ["if type(held) is not dict: raise Unsure", "held = {read}(held)"], sealed),
        (Headers, ["held = {read}(held)"], _headers),
        (Objects, ["held = {read}(held)"], _registry(get_args(get_args(Objects)[0])[1])),
        (DataPolicies, ["held = {read}(held)"], _registry(get_args(get_args(DataPolicies)[0])[1])),
        (Parts, _EACH, _part),
        (ResultContent, ["if type(held) is not str: held = {read}(held)"], _result),
    ]


def _headers(headers: Any) -> Any:
    if type(headers) is not dict:
        raise UnsureError
    for name, text in headers.items():
        if type(text) is not str and not (text is None and is_sensitive(name)):
            raise UnsureError
    return HttpHeaders(headers)


def _registry(cls: type[Value]) -> _Read:
    def read_registry(entries: Any) -> Any:
        if type(entries) is not dict:
            raise UnsureError
        reader = _readers[cls]
        return frozen_mapping({name: reader(entry) for name, entry in entries.items()})

    return read_registry


class _PartReaders(dict[str, _Read]):
    """`content_type` → the function that reads such a part."""

    def __missing__(self, kind: str) -> _Read:
        part_types = get_args(get_args(get_args(get_args(Parts)[0])[0])[0])
        for cls in part_types:
            if kind == field_default(dataclasses.fields(cls)[0]):
                self[kind] = reader = _readers[cls]
                return reader
        raise UnsureError


_part_readers: Final = _PartReaders()


def _part(part: Any) -> Any:
    if type(part) is not dict:
        raise UnsureError
    kind = part.get("content_type")
    if type(kind) is not str:
        raise UnsureError
    return _part_readers[kind](part)


def _result(content: Any) -> Any:
    if type(content) is list and content and all(type(item) is dict and "content_type" in item for item in content):
        return tuple([_part(item) for item in content])
    return freeze_parsed(content)


def _by_pydantic(hint: Any) -> _Read:
    validate = TypeAdapter(hint).validate_python

    def read_item(item: Any) -> Any:
        try:
            return validate(item)
        except (pydantic.ValidationError, CmfError):
            raise UnsureError from None

    return read_item
