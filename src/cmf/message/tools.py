"""Tool definitions, the registry that holds an installation's own tools to their rules, and the input of calls.

Whether a call's arguments fit its tool's schema is told in bounded time, whatever either of them is: schemas come from
wires and registries, a pattern may be made to backtrack, and references may be made to multiply. So the steps of a
validation are counted first, and patterns run on an engine that does not backtrack. Spec: tools.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from cmf.enums import SideEffects
from cmf.errors import ToolNameError, ToolSchemaError, UnknownToolError
from cmf.json.frozen import JsonObject, thaw
from cmf.json.value import Flag, Str, Value, value

_SNAKE_CASE: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*\Z")
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_KEYWORDS: Final = frozenset(
    {"type", "enum", "required", "properties", "items", "description", "format", "title", "default"}
)
"""What Anthropic and OpenAI both take reliably; `additionalProperties` only as a boolean [A7]."""


@value
class ToolDefinition(Value):
    """A tool as it is offered to a model.

    `type` is the wire's own kind for tools that the provider runs ("web_search_20250305", say); `executed_by` says who
    runs it. `side_effects` None means: not declared.
    """

    name: Str
    description: Str | None = None
    input_schema: JsonObject | None = None
    namespace: Str | None = None
    type: Str | None = None
    executed_by: Literal["client", "provider"] = "client"
    side_effects: SideEffects | None = None
    requires_workspace: Flag = True
    extra: JsonObject | None = None


class SchemaFinding(NamedTuple):
    """One construct outside the subset, and its place."""

    path: str
    problem: str


def schema_findings(schema: Any, path: str = "$") -> Iterator[SchemaFinding]:
    """What of a tool's input schema is outside the accepted subset of JSON Schema; nothing if it is inside.

    Spec: [TOOL-2].
    """
    if not isinstance(schema, dict):
        yield SchemaFinding(path, "a schema must be an object")
        return
    for keyword, item in schema.items():
        at = f"{path}.{keyword}"
        if keyword == "additionalProperties":
            if not isinstance(item, bool):
                yield SchemaFinding(at, "only true or false is allowed")
        elif keyword not in _KEYWORDS:
            yield SchemaFinding(at, "this keyword is not allowed")
    kind = schema.get("type", "object")
    if any(not isinstance(name, str) or name not in _TYPES for name in (kind if isinstance(kind, list) else [kind])):
        yield SchemaFinding(f"{path}.type", "not a JSON type")
    elif isinstance(kind, list) and (len(kind) != 2 or "null" not in kind):
        yield SchemaFinding(f"{path}.type", "a list of types may only add null to one type")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield SchemaFinding(f"{path}.properties", "must be an object")
        return
    for name, inner in properties.items():
        yield from schema_findings(inner, f"{path}.properties.{name}")
    if "items" in schema:
        yield from schema_findings(schema["items"], f"{path}.items")


class ToolRegistry:
    """The tools of an installation, by namespace and name. Registering is strict; wire tools are not registered."""

    def __init__(self, tools: Iterable[ToolDefinition] = ()) -> None:
        self._tools: dict[tuple[str | None, str], ToolDefinition] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: ToolDefinition) -> None:
        """Add a tool.

        Raises:
            ToolNameError: not snake_case, or taken. ToolSchemaError: the schema leaves the subset (path says where), or
                the tool does not declare its side effects.
        """
        if not _SNAKE_CASE.match(tool.name):
            raise ToolNameError("a tool's name must be snake_case", hint="use lower-case letters, digits and _")
        key = (tool.namespace, tool.name)
        if key in self._tools:
            raise ToolNameError("a tool of that name is registered already", code="tool-name.taken", hint="rename it")
        if tool.side_effects is None:
            hint = f"set side_effects: {', '.join(SideEffects)}"
            why = "the tool does not declare its side effects"
            raise ToolSchemaError(why, code="tool-schema.side-effects", hint=hint)
        for finding in schema_findings(tool.input_schema if tool.input_schema is not None else {}):
            raise ToolSchemaError(finding.problem, path=finding.path, hint="rewrite it within the subset")
        self._tools[key] = tool

    def find(self, name: str, namespace: str | None = None) -> ToolDefinition:
        """The tool of that name; without a namespace only if exactly one namespace has it [B9].

        Raises:
            UnknownToolError: none, or more than one.
        """
        exact = self._tools.get((namespace, name))
        if exact is not None:
            return exact
        named = [tool for (_, own_name), tool in self._tools.items() if own_name == name] if namespace is None else []
        if len(named) != 1:
            why = "more than one tool has that name" if named else "no tool has that name"
            raise UnknownToolError(why, hint="name its namespace" if named else "register it")
        return named[0]

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


# -- the input of calls [TOOL-5], [TOOL-6] -----------------------------------------------------------------------------

MAX_STEPS: Final = 100_000  # a part of the schema held to a part of the arguments
MAX_COMPARED: Final = 500_000  # values and names that a step looks at one by one
MAX_MATCHED: Final = 4_000_000  # characters that patterns are held to, times patterns
MAX_LOOKED_AROUND: Final = 4_000  # the same, for patterns that look around: they may take 1,000 steps a character
MAX_TRACKED: Final = 5_000_000  # steps, times the most items or properties that one of them notes
_BACKTRACKS: Final = 1_000
_OWN_STEPS: Final = 10  # that a validation counts for, however short
_PATTERN_STEPS: Final = 1_000  # that compiling a pattern counts for
_READ: Final = 16  # values that are read in the time in which one is compared
_PATTERN_BYTES: Final = 1_000_000  # of a compiled pattern
_PATTERNS_BYTES: Final = 5_000_000  # of all patterns of a schema
_MAX_KEPT: Final = 512  # schemas that stay compiled

_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
_OF_EACH: Final = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains")
_TRACKED: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(slots=True)
class Work:
    """What the validations of one run have taken so far: its calls share the limits."""

    steps: int = 0
    compared: int = 0
    matched: int = 0
    schemas: set[int] = field(default_factory=set)


def input_problem(tool: ToolDefinition, arguments: Any) -> str | None:
    """The JSON path in `arguments` that does not fit the tool's schema; None where all fits, or there is no schema.

    A schema that cannot be used fits nothing, nor does anything whose validation takes too long: the path is then `$`.
    Spec: [TOOL-5], [TOOL-6].
    """
    return None if tool.input_schema is None else schema_problem(tool.input_schema, thaw(arguments), Work())


def is_usable(schema: JsonObject, work: Work) -> bool:
    """Whether arguments can be held to a schema at all: it is JSON Schema 2020-12, with patterns that end.

    True if finding out would take too long: `schema_problem` then says so.
    """
    try:
        return _compiled(schema, work) is not None
    except _UnboundedError:
        return True


def schema_problem(schema: JsonObject, arguments: Any, work: Work) -> str | None:
    """`input_problem`, for a schema by itself and thawed arguments, as part of a run that has done `work`."""
    try:
        compiled = _compiled(schema, work)
        if compiled is None:
            return "$"
        compiled.count(arguments, work)
        return compiled.problem(arguments)
    except Exception:  # noqa: BLE001  (whatever fails there, the input was not shown to fit)
        return "$"


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.match(step) else f"[{step!r}]"


class _UnboundedError(Exception):
    """A validation that would take too many steps, or whose steps cannot be counted."""


class _Compiled:
    """A schema as the validator has it, and as its steps are counted."""

    def __init__(self, schema: Any, patterns: int) -> None:
        import jsonschema_rs  # only validation needs it

        def nothing_is_fetched(uri: str) -> Any:  # noqa: ARG001  (the name that the validator calls it with)
            raise LookupError

        def built(options: Any) -> Any:
            return jsonschema_rs.Draft202012Validator(
                schema, pattern_options=options, retriever=nothing_is_fetched, validate_formats=False
            )

        self._root = schema
        self._most = MAX_MATCHED
        self._sizes: dict[int, int] = {}  # for each schema that was counted, what `_size_of` says
        self._misfit = jsonschema_rs.ValidationError
        size = min(_PATTERN_BYTES, _PATTERNS_BYTES // max(1, patterns))
        try:
            self._validator = built(jsonschema_rs.RegexOptions(size_limit=size))
        except jsonschema_rs.ValidationError:
            # Perhaps for a pattern that looks around: there is an engine that can, up to a limit.
            self._validator = built(jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=size))
            self._most = MAX_LOOKED_AROUND

    def problem(self, arguments: Any) -> str | None:
        """The JSON path of the first misfit. The others are not looked for: there may be millions."""
        try:
            self._validator.validate(arguments)
        except self._misfit as error:
            return "$" + "".join(_step(step) for step in error.instance_path)
        return None

    def count(self, arguments: Any, work: Work) -> None:
        """Add what holding `arguments` to the schema takes; _UnboundedError where it takes too much."""
        widest = 0
        work.steps += _OWN_STEPS
        work.compared += _values_in(arguments) // _READ
        waiting = [(self._root, arguments)]
        while waiting:
            schema, instance = waiting.pop()
            work.steps += 1
            if not isinstance(schema, dict):
                continue
            work.matched += _matched(schema, instance)
            work.compared += self._compared(schema, instance)
            # The validator notes of each item and property which parts of the schema looked at it.
            if isinstance(instance, dict | list) and not _TRACKED.isdisjoint(schema):
                widest = max(widest, len(instance))
            # What waits is a step too, and one schema can have thousands of parts.
            left = MAX_STEPS - work.steps - len(waiting)
            waiting.extend(islice(self._parts(schema, instance), max(0, left) + 1))
            if (
                work.steps + len(waiting) > MAX_STEPS
                or work.compared > MAX_COMPARED
                or work.matched > self._most
                or work.steps * widest > MAX_TRACKED
            ):
                work.steps = max(work.steps, MAX_STEPS)
                raise _UnboundedError

    def _compared(self, schema: dict[str, Any], instance: Any) -> int:
        """How many values and names this part alone looks at one by one, whatever the instance is, and of it."""
        if id(schema) not in self._sizes:
            self._sizes[id(schema)] = _size_of(schema)
        own = self._sizes[id(schema)]
        if not isinstance(instance, dict | list):
            return own
        return own + (_values_in(instance) if "uniqueItems" in schema else len(instance))

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
        schema = self._root
        for token in reference.split("/")[1:]:
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            schema = schema[int(name)] if isinstance(schema, list) else schema[name]
        return schema


def _matched(schema: dict[str, Any], instance: Any) -> int:
    """How many characters patterns are held to, for this part alone."""
    if isinstance(instance, str):
        return len(instance) if "pattern" in schema else 0
    if isinstance(instance, dict) and "patternProperties" in schema:
        return len(schema["patternProperties"]) * sum(map(len, instance))
    return 0


def _size_of(schema: dict[str, Any]) -> int:
    """How many values and names of its own a schema compares; those of an `enum` that are looked up do not count."""
    listed = [each for each in schema.get("enum", ()) if isinstance(each, float | list | dict)]
    named = (schema.get(word, ()) for word in ("required", "properties", "patternProperties"))
    depended = schema.get("dependentRequired", {}).values()
    return _values_in([*listed, schema.get("const")]) + sum(map(len, named)) + sum(map(len, depended))


def _values_in(value: Any) -> int:
    """How many values a JSON value holds."""
    return sum(len(each) for each in _holders_in(value))


def _patterns_in(schema: Any) -> int:
    """How many patterns a schema has, at most."""
    count = 0
    for each in _holders_in(schema):
        named = each.get("patternProperties") if isinstance(each, dict) else None
        count += (isinstance(each, dict) and "pattern" in each) + (len(named) if isinstance(named, dict) else 0)
    return count


def _holders_in(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """The objects and arrays of a JSON value."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            yield each
            waiting.extend(each.values() if isinstance(each, dict) else each)


_kept: dict[int, tuple[JsonObject, _Compiled | None, int]] = {}


def _compiled(schema: JsonObject, work: Work) -> _Compiled | None:
    """The compiled schema; None for one that cannot be used. Kept by identity: tools are remembered as they are.

    Its patterns count once in a run, kept or not. _UnboundedError if nothing more is to be done in this run.
    """
    held = _kept.get(id(schema))
    plain = None
    if held is None or held[0] is not schema:
        plain = thaw(schema)
        held = schema, None, _patterns_in(plain)
    if id(schema) not in work.schemas:
        work.schemas.add(id(schema))
        work.steps += held[2] * _PATTERN_STEPS
    if work.steps > MAX_STEPS:
        raise _UnboundedError
    if plain is None:
        return held[1]
    try:
        compiled = _Compiled(plain, held[2])
    except Exception:  # noqa: BLE001  (a schema that cannot be used fits nothing)
        compiled = None
    if len(_kept) >= _MAX_KEPT:
        _kept.clear()
    _kept[id(schema)] = (schema, compiled, held[2])
    return compiled
