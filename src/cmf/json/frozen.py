"""JSON values that cannot change: what makes sharing them between copies safe. Spec: docs/spec/message.md [MSG-4].

`FrozenDict` and `FrozenList` subclass `dict` and `list`, so that orjson writes them and they compare equal to plain
ones. Every method that would change them raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cmf._native import freezing
from cmf.errors import ShapeError

JsonValue: TypeAlias = "bool | int | float | str | FrozenList | FrozenDict | None"

MAX_DEPTH = 64  # levels of containers; the engines' JSON readers stop at 127, and views add a few levels


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} is frozen: build a new value instead of changing this one")


class _Frozen:
    """What both have: there is nothing that a copy would protect."""

    __slots__ = ()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def copy(self) -> Self:
        """Itself."""
        return self


class FrozenDict(_Frozen, dict[str, Any]):
    """A JSON object that cannot change. Values are frozen too."""

    __slots__ = ()

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __new__(cls, *args: Any, **kwargs: Any) -> FrozenDict:  # noqa: D102  (as `dict`)
        frozen = super().__new__(cls)
        for key, value in dict(*args, **kwargs).items():
            dict.__setitem__(frozen, _checked_key(key), freeze(value))
        return frozen

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: `dict.__init__` would merge into a finished value when called again."""

    def __hash__(self) -> int:  # type: ignore[override]  # what cannot change can be hashed
        return hash(frozenset(self.items()))

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, other) is True and same_json(self, other)

    def __or__(self, other: Any) -> FrozenDict:  # type: ignore[override]  # stays frozen
        return FrozenDict(dict(self) | dict(other))

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return frozen_mapping, (dict(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_frozen_object)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "object"}


class FrozenList(_Frozen, list[Any]):
    """A JSON array that cannot change. Items are frozen too."""

    __slots__ = ()

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = _refuse
    sort = reverse = __iadd__ = __imul__ = _refuse

    def __new__(cls, items: Any = ()) -> FrozenList:  # noqa: D102  (as `list`)
        frozen = super().__new__(cls)
        list.extend(frozen, [freeze(item) for item in items])
        return frozen

    def __init__(self, items: Any = ()) -> None:
        """Nothing: `list.__init__` would replace the content of a finished value when called again."""

    def __hash__(self) -> int:  # type: ignore[override]  # what cannot change can be hashed
        return hash(tuple(self))

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self, other) is True and same_json(self, other)

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Any]]]:
        return FrozenList, (list(self),)


_new_dict: Final = dict.__new__
_fill: Final = dict.update


def _freeze(value: Any, _depth: int = MAX_DEPTH) -> Any:
    """`value` as a frozen JSON value; a frozen one is returned as it is.

    Raises:
        ShapeError: not JSON (another type, NaN, a lone surrogate, a key that is no string), or deeper than 64 levels.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _checked_text(value)
    if kind is FrozenDict or kind is FrozenList or kind is bool or kind is int or value is None:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise ShapeError(
                "a number must be finite", code="shape.not-finite", hint="leave it out, or send it as text"
            )
        return value
    if _depth == 0:
        why, hint = f"nested deeper than {MAX_DEPTH} levels", "flatten the value"
        raise ShapeError(why, code="shape.too-deep", hint=hint)
    if isinstance(value, dict):
        return frozen_mapping({_checked_key(key): _freeze(item, _depth - 1) for key, item in value.items()})
    if isinstance(value, list | tuple):
        array = list.__new__(FrozenList)
        list.extend(array, [_freeze(item, _depth - 1) for item in value])
        return array
    if isinstance(value, str):
        return _freeze(str.__str__(value))
    raise ShapeError(
        f"{kind.__name__} is not a JSON type",
        code="shape.not-json",
        hint="read it with `cmf.json.codec.loads` first"
        if isinstance(value, bytes | bytearray | memoryview)
        else "use text, numbers, true, false, null, lists and objects",
    )


def frozen_mapping(items: dict[str, Any]) -> FrozenDict:
    """An unchangeable mapping whose values are frozen already (values of the format, for example)."""
    mapping = _new_dict(FrozenDict)
    _fill(mapping, items)
    return mapping


def thaw(value: Any) -> Any:
    """A plain, mutable copy of a JSON value: `dict` and `list` all the way down. Leaves are shared."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    return value


# Every adapter asks these of whole bodies: the native module does it in a tenth of the time that Python takes, and asks
# `_freeze` about what is not of the plainest types.
if TYPE_CHECKING:
    freeze = _freeze

    def same_json(left: Any, right: Any) -> bool:
        """Whether two JSON values are equal as JSON: true is not 1, but 1 is 1.0 (both are the number one)."""

    def same_spelling(left: Any, right: Any) -> bool:
        """`same_json`, with numbers spelled alike: 1 is not 1.0. The order of keys does not count."""
else:
    freeze, same_json, same_spelling = freezing(FrozenDict, FrozenList, _freeze, MAX_DEPTH)


def _checked_text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        hint = "send well-formed Unicode"
        raise ShapeError("text has a lone surrogate", code="shape.lone-surrogate", hint=hint) from None
    return text


def _checked_key(key: Any) -> str:
    if not isinstance(key, str):
        raise ShapeError("an object's keys must be strings", code="shape.not-json", hint="turn the keys into strings")
    if type(key) is not str:
        key = str.__str__(key)  # its characters, whatever its own __str__ returns
    return key if key.isascii() else _checked_text(key)


def _frozen_object(value: Any) -> FrozenDict:
    if not isinstance(value, dict):
        raise PydanticCustomError("object_type", "Input should be a JSON object")
    return cast("FrozenDict", freeze(value))


if TYPE_CHECKING:
    # Constructors take any mapping and freeze it; readers see a mapping without mutators.
    JsonObject: TypeAlias = Mapping[str, Any]
else:
    JsonObject = FrozenDict
