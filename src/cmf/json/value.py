"""What all values of the format have in common: frozen, strict, slotted, with one JSON form. Spec: message.md [MSG-3].

`@value` makes a pydantic dataclass: validated once when it is built from outside, never again. The JSON form of a
value is an object of its fields, in order, without those that are at their default; `None` is therefore absent.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Self, TypeVar, cast, dataclass_transform

import pydantic
import pydantic.dataclasses
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter

from cmf._native import filler
from cmf.enums import ContentType
from cmf.errors import SHAPE_WORDS, ShapeError
from cmf.json.codec import dumps, dumps_sorted, loads
from cmf.json.frozen import FrozenDict

Str = Annotated[str, Field(min_length=0)]
"""Text that is valid Unicode: the (empty) constraint makes pydantic look, so lone surrogates are refused."""

CONFIG = ConfigDict(
    defer_build=True, extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True, ser_json_bytes="base64"
)

_T = TypeVar("_T", bound="Value")
_Slotted = TypeVar("_Slotted")  # a value, or another frozen dataclass with slots
_TAGS = frozenset(ContentType)


class _Values(type):
    """Metaclass of values: a constructor that refuses its arguments raises ShapeError, not pydantic's error."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        try:
            return super().__call__(*args, **fields)
        except pydantic.ValidationError as error:
            raise shape_error(error, root=cls.__name__) from None


class Value(metaclass=_Values):
    """Base of all values. Equality is by content and by type; instances are hashable and cannot change."""

    __slots__ = ()

    @classmethod
    def model_validate(cls, data: Any) -> Self:
        """The value that `data` (an instance, or its JSON form as Python objects) describes; ShapeError if none."""
        if type(data) is cls:
            return data
        try:
            return cast("Self", _adapter(cls).validate_python(data))
        except pydantic.ValidationError as error:
            raise shape_error(error) from None

    @classmethod
    def model_validate_json(cls, data: bytes | str) -> Self:
        """The value that these JSON bytes describe. Strict JSON: see `cmf.json.codec.loads`."""
        return cls.model_validate(loads(data))

    def model_dump(self) -> dict[str, Any]:
        """The JSON form as plain Python objects: a fresh dict that the caller may change."""
        return {name: to_json(item) for name, item in fields_of(self).items()}

    def model_dump_json(self) -> bytes:
        """The JSON form as UTF-8 bytes; equal values give equal bytes."""
        return to_bytes(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with the fields in `update` replaced and validated; the others are shared."""
        if not update:
            return self
        cls: Any = type(self)
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(cls) if field.init}
        return cast("Self", cls(**{**own, **update}))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field, dataclasses.field))
def value(cls: type[_T]) -> type[_T]:
    """Make `cls` a frozen, slotted, keyword-only pydantic dataclass whose constructor raises ShapeError."""
    decorated = pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=CONFIG)(cls)
    return cast("type[_T]", decorated)


def shape_error(error: pydantic.ValidationError, root: str = "$") -> ShapeError:
    """The first finding of pydantic as one of ours: location and reason, never the input."""
    errors = error.errors(include_url=False, include_input=False)
    first = next((entry for entry in errors if entry["type"] == "unexpected_positional_argument"), errors[0])
    path = root
    after_index = False
    for step in first["loc"]:
        if isinstance(step, int):
            path = f"{path}[{step}]"
        elif not (after_index and step in _TAGS):  # pydantic names the union's branch; JSON has no such step
            path = f"{path}.{step}"
        after_index = isinstance(step, int)
    own_error = first.get("ctx", {}).get("error")
    if isinstance(
        own_error, ShapeError
    ):  # raised by a validator of the format: it has its own code, and a path from there
        own_error.at(path)
        return own_error
    more = error.error_count() - 1
    also = f" (and {more} more)" if more else ""
    title = error.title if error.title.isidentifier() else "value"
    why = SHAPE_WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    hint = "write [TextPart(text=…)]" if path == "Message.content" and first["type"] == "tuple_type" else ""
    return ShapeError(f"{title}: {why}{also}", path=path, code=f"shape.{first['type'].replace('_', '-')}", hint=hint)


# -- the JSON form -----------------------------------------------------------------------------------------------------

REQUIRED: Final = object()


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def json_schema(cls: type[Value]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a type's JSON form."""
    schema: dict[str, Any] = _as_read(_adapter(cls).json_schema(mode="validation"))
    schema.get("$defs", {}).pop("Layout", None)
    own = schema.pop("$ref", "").removeprefix("#/$defs/")
    return {**schema["$defs"][own], **schema} if own else schema


def _as_read(schema: Any) -> Any:
    """The schema without the empty constraint of `Str`, and without the layout, which no JSON form has [A15]."""
    if isinstance(schema, dict):
        return {
            key: _as_read(item)
            for key, item in schema.items()
            if not (key == "minLength" and item == 0) and key != "provider_raw"
        }
    return [_as_read(item) for item in schema] if isinstance(schema, list) else schema


def field_default(field: dataclasses.Field[Any]) -> Any:
    """The default of the field; `REQUIRED` if it has none."""
    if field.default is not dataclasses.MISSING:
        default = field.default
        if isinstance(default, pydantic.fields.FieldInfo):
            return REQUIRED if default.is_required() else default.get_default(call_default_factory=True)
        return default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED


@cache
def _defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    defaults = ((field.name, field_default(field)) for field in dataclasses.fields(cls))
    return tuple((name, None if item is REQUIRED else item) for name, item in defaults)


if TYPE_CHECKING:

    def trusted(cls: type[_Slotted], **fields: Any) -> _Slotted:
        """A `cls` built without validation, for code that made every field itself (decoders, `replace`).

        The caller vouches for types, frozenness and strict text. Missing fields get their defaults.
        """

    def replace(original: _Slotted, **fields: Any) -> _Slotted:
        """A copy with some fields replaced, unvalidated; every other field is the very same object."""
else:
    trusted, replace = filler(_defaults)


def is_discriminator(field: dataclasses.Field[Any]) -> bool:
    """Whether the field names the type of the value (`content_type`, say), and so is always at its default."""
    return field.name in ("content_type", "type") and isinstance(field_default(field), str)


def fields_of(item: Value) -> dict[str, Any]:
    """The fields that the JSON form of `item` has, in order, not yet converted: those that are not at their default."""
    fields: dict[str, Any] = _encoders[type(item)](item)
    return fields


class Entry(NamedTuple):
    """A field of a JSON form; `absent` tells when it is left out.

    `same`: if it is the default object. `empty`, `equal`, `blank`: also if it is of the default's type and is empty, is
    equal to the default, or has an empty JSON form, respectively.
    """

    name: str
    default: Any
    absent: Literal["never", "same", "empty", "equal", "blank"]


def entries(cls: type) -> tuple[Entry, ...]:
    """The fields that a JSON form may have, in order. A discriminator is at its default, and is never left out."""
    listed: list[Entry] = []
    for field in dataclasses.fields(cls):
        default = field_default(field)
        if not field.metadata.get("dump", True):
            continue
        if default is REQUIRED or is_discriminator(field):
            listed.append(Entry(field.name, REQUIRED, "never"))
        elif isinstance(default, FrozenDict | frozenset | tuple) and not default:
            listed.append(Entry(field.name, default, "empty"))
        elif isinstance(default, Value) and not fields_of(default):
            listed.append(Entry(field.name, default, "blank"))
        else:
            listed.append(Entry(field.name, default, "same" if default is None else "equal"))
    return tuple(listed)


_UNEQUAL: Final = "held is not {default} and (type(held) is not type({default}) or held != {default})"
_DIFFERS: Final = {
    "never": "True",
    "same": "held is not {default}",
    "empty": "held is not {default} and (held or type(held) is not type({default}))",
    "equal": _UNEQUAL,
    "blank": _UNEQUAL,  # the native writer sees by what it wrote that both are empty
}


def whole_reader(cls: type[Value]) -> Callable[[Any], dict[str, Any]]:
    """A function like `fields_of` for one type. It leaves out fields that are None, and no others."""
    return _reader(Entry(name, None, "same") for name, _, _ in entries(cls))


def _reader(fields: Iterable[Entry]) -> Callable[[Any], dict[str, Any]]:
    """A function generated for these fields, as `dataclasses` does: it takes a quarter of the time of a loop."""
    scope: dict[str, Any] = {}
    lines = ["def read(item):", " fields = {}"]
    for name, default, absent in fields:
        scope[f"default_{name}"] = default
        differs = _DIFFERS[absent].format(default=f"default_{name}")
        lines += [f" held = item.{name}", f" if {differs}: fields[{name!r}] = held"]
    exec("\n".join([*lines, " return fields"]), scope)  # noqa: S102 - the names are those of a class's fields
    reader: Callable[[Any], dict[str, Any]] = scope["read"]
    return reader


def present(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: item for name, item in fields.items() if item is not None}


def to_json(item: Any) -> Any:
    """Any field of a value as plain JSON objects; sets are sorted, times are UTC with microseconds."""
    if type(item) in _LEAVES:
        return item
    if isinstance(item, dict):
        return {key: each if type(each) in _LEAVES else to_json(each) for key, each in item.items()}
    if isinstance(item, tuple | list):
        return [each if type(each) in _LEAVES else to_json(each) for each in item]
    if isinstance(item, StrEnum):
        return item.value
    return to_json(encoded(item))


def to_bytes(item: Any) -> bytes:
    """The JSON form of any field of a value, or of plain objects that hold values, as UTF-8 bytes.

    These are the bytes of `to_json`, written without making its objects, in a fifth of the time.
    """
    return dumps(item, encoded)


def sorted_bytes(item: Any) -> bytes | None:
    """The same with the keys of all objects in the order of their code points; None where an integer is not small."""
    return dumps_sorted(item, encoded)


def encoded(item: Any) -> Any:
    """The JSON form of an object that is not of a JSON type; what is inside it is not converted yet."""
    return _encoders[type(item)](item)


_LEAVES = frozenset({str, int, float, bool, type(None)})


class _Encoders(dict[type, Callable[[Any], Any]]):
    """Type → the function that gives its JSON form. Those of value types are added when they are first needed."""

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        if isinstance(cls, _Values):
            self[cls] = reader = _reader(entries(cls))
            return reader
        raise TypeError(f"{cls.__name__} has no JSON form")


_encoders = _Encoders(
    {
        frozenset: sorted,
        datetime: lambda moment: moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        Decimal: str,
        bytes: lambda blob: base64.b64encode(blob).decode("ascii"),
    }
)


# -- field types -------------------------------------------------------------------------------------------------------


_FINER_THAN_MICROSECONDS = re.compile(r"\.\d{6}\d*[1-9]")


def _moment(moment: Any) -> Any:
    if not isinstance(moment, datetime | str):
        raise ValueError("a time is ISO 8601 text")
    if isinstance(moment, str) and _FINER_THAN_MICROSECONDS.search(moment):
        raise ValueError("a time has no more than microseconds")
    return moment


def _to_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:  # `astimezone` would take the zone of this machine
        raise ValueError("a time needs its zone")
    return moment.astimezone(UTC)


def _number(number: Any) -> Any:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def _to_bytes(blob: Any) -> Any:
    if isinstance(blob, str):
        try:
            return base64.b64decode(blob, validate=True)
        except ValueError:
            raise ValueError("not base64") from None
    return blob


UtcTime = Annotated[datetime, BeforeValidator(_moment), pydantic.AfterValidator(_to_utc)]
"""A moment with its zone, kept in UTC with microseconds; ISO 8601 in JSON."""

Blob = Annotated[bytes, BeforeValidator(_to_bytes), PlainSerializer(to_json, return_type=str)]
"""Bytes; standard base64 in JSON."""

Number = Annotated[int | float, BeforeValidator(_number)]
"""A JSON number in the spelling it came in: 1 stays an int, 1.0 a float."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false; no string or number is taken for either."""

Count = Annotated[int, Field(strict=True, ge=0)]
"""A whole number that is not negative."""
