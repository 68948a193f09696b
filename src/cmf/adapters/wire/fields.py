"""Reads a wire object without losing anything: known fields are taken, and all others are kept.

A decoder takes the keys that it knows, with values of the types that it knows. `rest()` returns everything else, which
goes into `extra` under the name of the format, so that no key is lost. Spec: docs/spec/adapters.md [ADP-2].
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, TypeVar

from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, trusted
from cmf.message.message import ToolCallPart
from cmf.message.request import NO_SAMPLING, Sampling
from cmf.message.tools import ToolDefinition

MARK: Final = "cmf_"
"""The prefix of keys that adapters add themselves, such as the marks of a fold. They are never written to the wire."""

PARTIAL: Final = f"{MARK}partial"
"""True in the body folded from a stream, if the stream was cut short."""

is_marked: Final = methodcaller("startswith", MARK)
"""Whether a key has that prefix."""

FIELD_NAMES: Final[dict[str, Any]] = loads(
    importlib.resources.files("cmf.adapters.wire").joinpath("field_names.json").read_bytes()
)
"""Names of fields, of whatever format, that are known or say nothing: see where each list is used."""

_T = TypeVar("_T")
_HINT: Final = "see the provider's reference"


class Fields:
    """A wire object that is being read. `path` is its JSON path, for errors."""

    __slots__ = ("_left", "path")

    def __init__(self, body: Any, path: str) -> None:
        if not isinstance(body, dict):
            raise ShapeError("expected a JSON object", path=path, hint=_HINT)
        self._left: dict[str, Any] = dict(body)
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def peek(self, key: str) -> Any:
        """The value under `key`, left in place; None if absent."""
        return self._left.get(key)

    def take(self, key: str, kind: type[_T]) -> _T | None:
        """Take the value under `key` if it is a `kind` (a bool is no int); any other value stays, for `rest()`."""
        value = self._left.get(key)
        if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
            del self._left[key]
            return value
        return None

    def take_in(self, path: Sequence[str], **kinds: type) -> list[Any]:
        """Take values out of the object at `path`, each if it is of its kind; objects that are empty then go, too."""
        key, *below = path
        held = self._left.get(key)
        if not isinstance(held, dict):
            return [None for _ in kinds]
        inner = Fields(held, f"{self.path}.{key}")
        taken = inner.take_in(below, **kinds) if below else [inner.take(name, kind) for name, kind in kinds.items()]
        if any(item is not None for item in taken):
            del self._left[key]
            self.leave(key, inner)
        return taken

    def take_number(self, key: str) -> int | float | None:
        """Take the number under `key`, as an int or a float as it was written."""
        value = self._left.get(key)
        if type(value) in (int, float):
            del self._left[key]
            return value
        return None

    def take_texts(self, key: str) -> tuple[str, ...] | None:
        """Take the list of strings under `key`; any other value stays."""
        value = self._left.get(key)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return None
        del self._left[key]
        return tuple(value)

    def need(self, key: str, kind: type[_T]) -> _T:
        """Take the value under `key`; ShapeError, with its path, if it is missing or no `kind`."""
        value = self.take(key, kind)
        if value is None:
            problem = "missing" if key not in self._left else f"not {_JSON_NAMES.get(kind, kind.__name__)}"
            raise ShapeError(f"`{key}` is {problem}", path=f"{self.path}.{key}", hint=_HINT)
        return value

    def optional(self, key: str, kind: type[_T]) -> _T | None:
        """Take the value under `key`; None if absent or null; ShapeError, with its path, if it is no `kind`."""
        self.drop(key, None)
        return self.need(key, kind) if key in self else None

    def inside(self, key: str) -> Fields | None:
        """The object under `key`, to be read on its own; None where absent or null. What is left goes back: `leave`."""
        body = self.optional(key, dict)
        return None if body is None else Fields(body, f"{self.path}.{key}")

    def drop(self, key: str, value: Any) -> None:
        """Drop `key` if it has exactly this value: for constants that the encoder writes anyway."""
        if key in self._left and type(self._left[key]) is type(value) and self._left[key] == value:
            del self._left[key]

    def drop_nulls(self, keys: Iterable[str]) -> None:
        """Drop each of `keys` whose value is null."""
        if None in self._left.values():
            for key in keys:
                self.drop(key, None)

    def put_back(self, key: str, value: Any) -> None:
        """Put back a value that was taken and turned out not to fit."""
        self._left[key] = value

    def leave(self, key: str, inner: Fields) -> None:
        """Put back the rest of the object that was under `key`, if there is any."""
        if inner._left:
            self._left[key] = inner._left

    def left(self) -> dict[str, Any]:
        """The remaining fields of an object inside another one, to be put back there."""
        return self._left

    def rest(self, format_name: str) -> FrozenDict | None:
        """The remaining fields, as an `extra` of this format; None if there are none."""
        return frozen_mapping({format_name: freeze(self._left)}) if self._left else None


def opened(body: Any) -> FrozenDict:
    """The body, frozen; ShapeError unless it is an object."""
    raw = freeze(body)
    if not isinstance(raw, FrozenDict):
        raise ShapeError("expected a JSON object", path="$", hint=_HINT)
    return raw


def role_named(name: Any, roles: Mapping[str, Role], path: str) -> Role:
    """The role that the format calls so; UnknownRoleError, with the path of its message, if it has none."""
    role = roles.get(name) if isinstance(name, str) else None
    if role is None:
        raise UnknownRoleError("unknown role", path=f"{path}.role", hint=f"use one of {', '.join(roles)}")
    return role


def extra_of(holder: Any, format_name: str) -> dict[str, Any]:
    """The `extra` of this format that a part, message, request … came with; empty if it came from another format."""
    extra = holder.extra
    own = extra.get(format_name) if extra else None
    return own if isinstance(own, dict) else {}


def object_in(own: Any, key: str) -> dict[str, Any]:
    """The object under `key` of an `extra`; empty if there is none, as in an `extra` that no adapter made."""
    item = own.get(key) if isinstance(own, dict) else None
    return item if isinstance(item, dict) else {}


def unmarked(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body, or an `extra`, without the keys that adapters add themselves."""
    if not any(map(is_marked, body)):
        return dict(body)
    return {key: item for key, item in body.items() if not is_marked(key)}


def as_text(item: Any) -> str | None:
    """The item if it is a text; None if it is anything else."""
    return item if isinstance(item, str) else None


def arguments_text(call: ToolCallPart) -> str:
    """The arguments as embedded JSON: the raw text where they are none."""
    return call.arguments_raw if call.arguments_raw is not None else dumps(call.arguments or {}).decode()


def count_in(counts: Mapping[str, Any], key: str) -> int:
    """The positive integer under `key`; 0 if there is none."""
    number = counts.get(key)
    return number if type(number) is int and number > 0 else 0


def strings_in(value: Any) -> Iterator[str]:
    """All strings of a JSON value, including keys, in no particular order."""
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


def allowed_names(listed: Any) -> tuple[str, ...]:
    """The tools that a choice allows, by name; one that the provider runs by its server, or else by its type."""
    named = []
    for entry in listed if isinstance(listed, list | tuple) else ():
        if not isinstance(entry, dict):
            continue
        inner = next((entry[key] for key in ("function", "custom") if isinstance(entry.get(key), dict)), entry)
        candidates = (inner.get(key) for key in ("name", "server_label", "type"))
        named += [name for name in candidates if isinstance(name, str) and name not in ("function", "custom")][:1]
    return tuple(named)


def merge(encoded: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """`encoded` with the fields of `extra` added. If both have a key, objects are merged; otherwise `encoded` wins."""
    if encoded.keys().isdisjoint(extra):
        encoded.update(extra)
        return encoded
    for key, value in extra.items():
        held = encoded.get(key, _ABSENT)
        if held is _ABSENT:
            encoded[key] = value
        elif type(held) is dict and isinstance(value, dict):  # a frozen one is a value of its own
            merge(held, value)
    return encoded


_ABSENT = object()
_JSON_NAMES: dict[type, str] = {
    str: "a string",
    list: "an array",
    dict: "an object",
    bool: "true or false",
    int: "an integer",
}


# -- what requests of all formats say alike, under names of their own --------------------------------------------------

_COUNTS: Final = frozenset({"max_output_tokens", "seed"})


def read_sampling(fields: Fields, names: Mapping[str, str]) -> Sampling:
    """The options that stand under these wire names, each taken if it has the type of its field; others stay."""
    drawn: dict[str, Any] = {}
    for key, name in names.items():
        if name == "stop":
            drawn[name] = fields.take_texts(key)
        else:
            drawn[name] = fields.take(key, int) if name in _COUNTS else fields.take_number(key)
    drawn = present(**drawn)
    return trusted(Sampling, **drawn) if drawn else NO_SAMPLING


def write_sampling(sampling: Sampling, names: Mapping[str, str]) -> dict[str, Any]:
    """The options under their wire names, without those that are None."""
    drawn = {key: item for key, name in names.items() if (item := getattr(sampling, name)) is not None}
    return {key: list(item) if isinstance(item, tuple) else item for key, item in drawn.items()}


def write_definition(tool: ToolDefinition, schema_key: str) -> dict[str, Any]:
    """The name, description and input schema of a tool, the last under the key that the format has for it."""
    return {"name": tool.name, **present(description=tool.description, **{schema_key: tool.input_schema})}
