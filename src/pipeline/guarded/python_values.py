"""Converting Python values to JSON and back to the function's own types. Spec: guard.md.

A value handed on is always rebuilt from the judged JSON, never the original object: whatever is not in the JSON form
was not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import GenericAlias, NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from pydantic import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError

from cmf.errors import CmfError
from cmf.json.codec import dumps
from cmf.json.frozen import freeze, thaw
from pipeline.decisions.errors import CallError

UNKNOWN: Final = object()
"""The declared type of a value without one."""
_LEAVES: Final = (str, int, float, bool, NoneType)
_NO_SCHEMA: Final = (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeError)


def hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The resolved annotations of a function, its result's as `return`; empty if one of them cannot be resolved."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  (evaluating an annotation runs arbitrary code)
        return {}


@dataclass(frozen=True, slots=True)
class Spelled:
    """A value as frozen JSON, and the adapter that rebuilds its type; None if it consists of JSON types."""

    json: Any
    adapter: TypeAdapter[Any] | None

    def made(self, json: Any, path: str) -> Any:
        """A value of the same type from `json`, the value after policy.

        Raises:
            CallError: it no longer fits the type.
        """
        if self.adapter is None:
            return thaw(json)
        try:
            return self.adapter.validate_json(dumps(json))
        except Exception:  # noqa: BLE001  (validators run user code; the message may quote the value)
            what, hint = "the value no longer fits its type after policy", "have the rule keep what the type requires"
            raise CallError(what, path=path, code="guard.no-value", hint=hint) from None


def spelled(value: Any, declared: Any, path: str) -> Spelled:
    """`value` as JSON, by its declared type if that helps, else by its own.

    Raises:
        CallError: it has no JSON form that can be judged.
    """
    if _is_json(value):
        return Spelled(_frozen(value, path), None)
    for kind in (declared, type(value)):
        adapter = adapter_of(kind)
        if adapter is None:
            continue
        try:
            json = adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings="error")
        except (PydanticSerializationError, UnicodeDecodeError, ValueError):
            continue
        return Spelled(_frozen(json, path), adapter)
    raise _not_json(path)


def item_of(declared: Any) -> Any:
    """The item type of a declared iterator type."""
    inner = get_args(declared)
    return inner[0] if get_origin(declared) is not None and inner else UNKNOWN


def list_of(declared: Any) -> Any:
    """The list type with this item type."""
    return UNKNOWN if declared is UNKNOWN else GenericAlias(list, (declared,))


def adapter_of(declared: Any) -> TypeAdapter[Any] | None:
    """The adapter that reads and writes a type; None if there is none, or the type is unknown."""
    if declared in (UNKNOWN, Any, object):
        return None
    try:
        return _adapter(declared)
    except TypeError:  # an unhashable annotation, such as one containing a list
        return _made_adapter(declared)


def _made_adapter(declared: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(declared)
    except _NO_SCHEMA:
        return None


_adapter: Final = lru_cache(maxsize=1_024)(_made_adapter)  # building one costs a thousand times as much as using it


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind in _LEAVES:
        return True
    if kind is dict:
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    return kind is list and all(map(_is_json, value))


def _frozen(json: Any, path: str) -> Any:
    try:
        return freeze(json)
    except CmfError:
        raise _not_json(path) from None


def _not_json(path: str) -> CallError:
    hint = "use JSON types, a dataclass or a pydantic model"
    if path.startswith("$.arguments."):  # usually `self`
        hint += "; or list a parameter that is not an input in `private=[…]`"
    return CallError("a value that has no JSON form cannot be judged", path=path, code="guard.not-json", hint=hint)
