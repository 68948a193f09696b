"""Whether a call's arguments fit its tool's schema, in bounded time whatever either of them is. Spec: tools.md.

Schemas come from wires and registries: a pattern may be made to backtrack, and references may be made to multiply. So
the steps of a validation are counted first, and patterns run on an engine that does not backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from cmf.json.frozen import JsonObject, thaw
from cmf.message.tools import ToolDefinition

MAX_STEPS: Final = 100_000  # of one validation: a part of the schema held to a part of the arguments
MAX_MATCHED: Final = 4_000_000  # characters that patterns are held to, times patterns
MAX_LOOKED_AROUND: Final = 4_000  # the same, for patterns that look around: they may take 1,000 steps a character
MAX_TRACKED: Final = 20_000_000  # steps, times the most items or properties that one of them notes
_BACKTRACKS: Final = 1_000
_PATTERN_BYTES: Final = 1_000_000  # of a compiled pattern
_MAX_KEPT: Final = 512  # schemas that stay compiled

_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
_OF_EACH: Final = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def input_problem(tool: ToolDefinition, arguments: Any) -> str | None:
    """The JSON path in `arguments` that does not fit the tool's schema; None where all fits, or there is no schema.

    A schema that cannot be used fits nothing, nor does anything whose validation takes too long: the path is then `$`.
    Spec: [TOOL-5], [TOOL-6].
    """
    return None if tool.input_schema is None else schema_problem(tool.input_schema, arguments)


def is_usable(schema: JsonObject) -> bool:
    """Whether arguments can be held to a schema at all: it is JSON Schema 2020-12, with patterns that end."""
    return _compiled(schema) is not None


def schema_problem(schema: JsonObject, arguments: Any) -> str | None:
    """`input_problem`, for a schema by itself."""
    compiled = _compiled(schema)
    if compiled is None:
        return "$"
    plain = thaw(arguments)
    try:
        compiled.count(plain)
        error = next(compiled.validator.iter_errors(plain), None)
    except Exception:  # noqa: BLE001  (whatever fails there, the input was not shown to fit)
        return "$"
    return None if error is None else "$" + "".join(_step(step) for step in error.instance_path)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.match(step) else f"[{step!r}]"


class _UnboundedError(Exception):
    """A validation that would take too many steps, or whose steps cannot be counted."""


class _Compiled:
    """A schema as the validator has it, and as its steps are counted."""

    def __init__(self, schema: Any) -> None:
        import jsonschema_rs  # only validation needs it

        self._root = schema
        self._most = MAX_MATCHED
        self._enums: dict[int, int] = {}  # for each schema with an `enum`, how many of its values are slow to compare
        options: Any = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES)
        try:
            self.validator = self._built(options)
        except jsonschema_rs.ValidationError:
            # Perhaps for a pattern that looks around: there is an engine that can, up to a limit.
            options = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=_PATTERN_BYTES)
            self.validator = self._built(options)
            self._most = MAX_LOOKED_AROUND

    def _built(self, options: Any) -> Any:
        import jsonschema_rs

        return jsonschema_rs.Draft202012Validator(
            self._root, pattern_options=options, retriever=_nothing_is_fetched, validate_formats=False
        )

    def count(self, arguments: Any) -> None:
        """Return if holding `arguments` to the schema takes few steps; _UnboundedError otherwise."""
        steps = matched = widest = 0
        waiting = [(self._root, arguments)]
        while waiting:
            schema, instance = waiting.pop()
            steps += 1
            if not isinstance(schema, dict):
                continue
            matched += _matched(schema, instance)
            steps += self._compared(schema)
            if _is_tracked(schema) and isinstance(instance, dict | list):
                widest = max(widest, len(instance))
            # What waits is a step too, and one schema can have thousands of parts.
            waiting.extend(islice(self._parts(schema, instance), max(0, MAX_STEPS - steps - len(waiting)) + 1))
            if len(waiting) > MAX_STEPS - steps or matched > self._most or steps * widest > MAX_TRACKED:
                raise _UnboundedError

    def _compared(self, schema: dict[str, Any]) -> int:
        """How many values of an `enum` are compared one by one: all that are no text, whole number or constant."""
        listed = schema.get("enum")
        if not listed:
            return 0
        if id(schema) not in self._enums:
            self._enums[id(schema)] = sum(isinstance(each, float | list | dict) for each in listed)
        return self._enums[id(schema)]

    def _parts(self, schema: dict[str, Any], instance: Any) -> Iterator[tuple[Any, Any]]:
        """What holding `instance` to `schema` comes to: at least the pairs that the validator looks at."""
        for word in _IN_PLACE_LISTS:
            yield from ((each, instance) for each in schema.get(word, ()))
        yield from ((schema[word], instance) for word in _IN_PLACE if word in schema)
        if "$dynamicRef" in schema:
            raise _UnboundedError
        if "$ref" in schema:
            yield self._at(schema["$ref"]), instance
        yield from ((each, instance) for each in schema.get("dependentSchemas", {}).values())
        if isinstance(instance, dict):
            declared = schema.get("properties", {})
            yield from ((declared[name], item) for name, item in instance.items() if name in declared)
            for each in schema.get("patternProperties", {}).values():
                yield from ((each, item) for item in instance.values())
            if "propertyNames" in schema:
                yield from ((schema["propertyNames"], name) for name in instance)
            yield from self._of_each(schema, instance.values())
        elif isinstance(instance, list):
            yield from zip(schema.get("prefixItems", ()), instance, strict=False)
            yield from self._of_each(schema, instance)

    def _of_each(self, schema: dict[str, Any], items: Any) -> Iterator[tuple[Any, Any]]:
        for word in _OF_EACH:
            if isinstance(schema.get(word), dict):
                yield from ((schema[word], item) for item in items)

    def _at(self, reference: str) -> Any:
        """What a pointer into the same schema names."""
        if not reference.startswith("#/") and reference != "#":
            raise _UnboundedError
        found = self._root
        for token in reference.split("/")[1:]:
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found[name]
        return found


def _is_tracked(schema: dict[str, Any]) -> bool:
    """Whether the validator notes of each item and property which parts of the schema looked at it."""
    return "unevaluatedProperties" in schema or "unevaluatedItems" in schema


def _matched(schema: dict[str, Any], instance: Any) -> int:
    """How many characters patterns are held to, for this part alone."""
    if isinstance(instance, str):
        return len(instance) if "pattern" in schema else 0
    if isinstance(instance, dict) and "patternProperties" in schema:
        return len(schema["patternProperties"]) * sum(map(len, instance))
    return 0


def _nothing_is_fetched(uri: str) -> Any:  # noqa: ARG001  (the name that the validator calls it with)
    raise LookupError


_kept: dict[int, tuple[JsonObject, _Compiled | None]] = {}


def _compiled(schema: JsonObject) -> _Compiled | None:
    """The compiled schema; None for one that cannot be used. Kept by identity: tools are remembered as they are."""
    held = _kept.get(id(schema))
    if held is not None and held[0] is schema:
        return held[1]
    try:
        made = _Compiled(thaw(schema))
    except Exception:  # noqa: BLE001  (a schema that cannot be used fits nothing)
        made = None
    if len(_kept) >= _MAX_KEPT:
        _kept.clear()
    _kept[id(schema)] = (schema, made)
    return made
