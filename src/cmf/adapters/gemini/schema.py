"""OpenAPI's upper-case names of types, as Gemini's older schemas have them, and JSON Schema's.

Spec: docs/spec/adapters/gemini.md [GEM-25]. A canonical schema is JSON Schema: tools are checked by it, and other
providers refuse `OBJECT`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cmf.json.frozen import FrozenDict, freeze

OPENAPI: Final = "openapi"

_UPPER: Final = ("OBJECT", "ARRAY", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "NULL")
_LOWERED: Final = {name: name.lower() for name in _UPPER}
_RAISED: Final = {lower: name for name, lower in _LOWERED.items()}
_ONE: Final = ("items", "additionalProperties")  # the value under these is a schema
_LISTED: Final = ("anyOf", "prefixItems")  # a list of schemas
_NAMED: Final = ("properties", "defs")  # an object of schemas


def lowered(schema: FrozenDict) -> FrozenDict | None:
    """The schema with JSON Schema's names of types; None unless it has types, and OpenAPI's alone."""
    strange: list[Any] = []
    found: list[str] = []

    def lower(name: Any) -> Any:
        known = _LOWERED.get(name) if isinstance(name, str) else None
        (strange if known is None else found).append(name)
        return known

    made = _retyped(schema, lower)
    return freeze(made) if found and not strange else None


def raised(schema: Any) -> Any:
    """The schema with OpenAPI's names of types; a type that has none there stays."""
    return _retyped(schema, lambda name: _RAISED.get(name, name) if isinstance(name, str) else name)


def _retyped(schema: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, item in schema.items():
        if key == "type":
            made[key] = change(item)
        elif key in _ONE:
            made[key] = _retyped(item, change)
        elif key in _LISTED and isinstance(item, list):
            made[key] = [_retyped(each, change) for each in item]
        elif key in _NAMED and isinstance(item, dict):
            made[key] = {name: _retyped(each, change) for name, each in item.items()}
        else:
            made[key] = item
    return made
