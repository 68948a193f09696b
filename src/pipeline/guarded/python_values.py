"""The JSON of what a Python function takes or returns, and values of the function's own types again. Spec: guard.md.

What a function gets back is made of what was judged, never the object that was there before: what is not in the JSON
form was not judged, and does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import GenericAlias, NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from pydantic import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError

from cmf.codec import dumps
from cmf.errors import CmfError
from cmf.frozen import freeze, thaw
from pipeline.errors import CallError

UNKNOWN: Final = object()
"""The declared type of what has none."""
_LEAVES: Final = (str, int, float, bool, NoneType)
_NO_SCHEMA: Final = (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, TypeError)


def hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of a function, resolved, the result's as `return`; none where one of them cannot be."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  (evaluating an annotation runs whatever it says)
        return {}


@dataclass(frozen=True, slots=True)
class Spelled:
    """A value as frozen JSON, and how to make a value of its type again: None where JSON types are its own."""

    json: Any
    adapter: TypeAdapter[Any] | None

    def made(self, json: Any, path: str) -> Any:
        """A value of the same type from `json`: what policy left of it.

        Raises:
            CallError: it does not fit the type any more.
        """
        if self.adapter is None:
            return thaw(json)
        try:
            return self.adapter.validate_json(dumps(json))
        except Exception:  # noqa: BLE001  (a validator is somebody's code; its text may quote the value)
            hint = "let the rule leave what the type needs"
            raise CallError(
                "what policy left does not fit its type", path=path, code="guard.no-value", hint=hint
            ) from None


def spelled(value: Any, declared: Any, path: str) -> Spelled:
    """`value` as JSON, by its declared type where that helps, else by its own.

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
    """What an iterator of the declared type yields."""
    inner = get_args(declared)
    return inner[0] if get_origin(declared) is not None and inner else UNKNOWN


def list_of(declared: Any) -> Any:
    """The type of a list of what is declared."""
    return UNKNOWN if declared is UNKNOWN else GenericAlias(list, (declared,))


def adapter_of(declared: Any) -> TypeAdapter[Any] | None:
    """What reads and writes values of a type; None where there is none, or the type says nothing."""
    if declared in (UNKNOWN, Any, object):
        return None
    try:
        return _adapter(declared)
    except TypeError:  # unhashable: an annotation that holds a list, say
        return _made_adapter(declared)


def _made_adapter(declared: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(declared)
    except _NO_SCHEMA:
        return None


_adapter: Final = lru_cache(maxsize=1_024)(_made_adapter)  # building one costs a thousand times what using it does


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
    if path.startswith("$.arguments."):  # `self`, mostly
        hint += "; or say `private=[…]` of a parameter that is no input"
    return CallError("a value that has no JSON form cannot be judged", path=path, code="guard.not-json", hint=hint)
