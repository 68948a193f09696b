"""Reading a wire object so that nothing is lost: what is understood is taken, what is left is kept.

A decoder takes the keys it knows, in the shapes it knows; `rest()` is everything else, and goes into `extra` under the
name of the format. No key can fall between. Spec: docs/spec/adapters.md [ADP-2].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar

from cmf.errors import ShapeError
from cmf.frozen import FrozenDict, freeze, frozen_mapping

MARK: Final = "cmf_"
"""How the keys begin that adapters make themselves, such as the marks of a fold: no wire is written with them."""

PARTIAL: Final = f"{MARK}partial"
"""True in the body that a stream adds up to, where the stream was cut."""

is_marked: Final = methodcaller("startswith", MARK)
"""Whether a key is one of these."""

_T = TypeVar("_T")


class Fields:
    """A wire object being read. `path` is where it stands, for errors."""

    __slots__ = ("_left", "path")

    def __init__(self, body: Any, path: str) -> None:
        if not isinstance(body, dict):
            raise ShapeError("expected a JSON object", path=path, hint="see the provider's reference")
        self._left: dict[str, Any] = dict(body)
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def peek(self, key: str) -> Any:
        """The value under `key`, left in place; None where absent."""
        return self._left.get(key)

    def take(self, key: str, kind: type[_T]) -> _T | None:
        """The value under `key` if it is a `kind` (a bool is no int); anything else stays, and ends in `rest()`."""
        value = self._left.get(key)
        if isinstance(value, kind) and not (kind is not bool and isinstance(value, bool)):
            del self._left[key]
            return value
        return None

    def take_number(self, key: str) -> int | float | None:
        """The number under `key`, in its spelling."""
        value = self._left.get(key)
        if type(value) in (int, float):
            del self._left[key]
            return value
        return None

    def take_texts(self, key: str) -> tuple[str, ...] | None:
        """The texts of the list under `key`; what is no list, or has anything else in it, stays."""
        value = self._left.get(key)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return None
        del self._left[key]
        return tuple(value)

    def need(self, key: str, kind: type[_T]) -> _T:
        """The value under `key`; ShapeError, with its path, where it is missing or no `kind`."""
        value = self.take(key, kind)
        if value is None:
            found = "missing" if key not in self._left else f"not {_JSON_NAMES.get(kind, kind.__name__)}"
            raise ShapeError(f"`{key}` is {found}", path=f"{self.path}.{key}", hint="see the provider's reference")
        return value

    def optional(self, key: str, kind: type[_T]) -> _T | None:
        """The value under `key`; None where absent or null; ShapeError, with its path, where it is something else."""
        self.drop(key, None)
        return self.need(key, kind) if key in self else None

    def drop(self, key: str, value: Any) -> None:
        """Forget `key` where it has exactly this value: for constants that the encoder writes anyway."""
        if key in self._left and type(self._left[key]) is type(value) and self._left[key] == value:
            del self._left[key]

    def put_back(self, key: str, value: Any) -> None:
        """Return what was taken but could not be understood after all."""
        self._left[key] = value

    def leave(self, key: str, inner: Fields) -> None:
        """Put back what nobody took of the object that stood under `key`, if there is anything."""
        if inner._left:
            self._left[key] = inner._left

    def left(self) -> dict[str, Any]:
        """What nobody took: for an object inside another one, to be put back there."""
        return self._left

    def rest(self, format_name: str) -> FrozenDict | None:
        """What nobody took, as an `extra` of this format; None if nothing is left."""
        return frozen_mapping({format_name: freeze(self._left)}) if self._left else None


def extra_of(holder: Any, format_name: str) -> dict[str, Any]:
    """What rode along with a part, message, request … from this very format; empty for any other."""
    extra = holder.extra
    own = extra.get(format_name) if extra else None
    return own if isinstance(own, dict) else {}


def object_in(own: Any, key: str) -> dict[str, Any]:
    """The object under `key` of what rode along; empty where there is none, as in an `extra` that no adapter made."""
    found = own.get(key) if isinstance(own, dict) else None
    return found if isinstance(found, dict) else {}


def unmarked(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of a body, or of an `extra`, is not an adapter's own."""
    if not any(map(is_marked, body)):
        return dict(body)
    return {key: item for key, item in body.items() if not is_marked(key)}


def count_in(counts: Mapping[str, Any], key: str) -> int:
    """The number under `key`; 0 where there is none, or one that counts nothing."""
    number = counts.get(key)
    return number if type(number) is int and number > 0 else 0


def strings_in(value: Any) -> Iterator[str]:
    """All texts of a JSON value, keys too, in no order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def merge(encoded: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """`encoded` with what rode along; where both have a key, objects are merged and else `encoded` wins."""
    if encoded.keys().isdisjoint(extra):
        encoded.update(extra)
        return encoded
    for key, value in extra.items():
        mine = encoded.get(key, _ABSENT)
        if mine is _ABSENT:
            encoded[key] = value
        elif type(mine) is dict and isinstance(value, dict):  # a frozen one is a value of its own
            merge(mine, value)
    return encoded


_ABSENT = object()
_JSON_NAMES: dict[type, str] = {
    str: "a string",
    list: "an array",
    dict: "an object",
    bool: "true or false",
    int: "an integer",
}
