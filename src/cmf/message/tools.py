"""Tool definitions, and the registry that holds an installation's own tools to their rules. Spec: tools.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from cmf.enums import SideEffects
from cmf.errors import ToolNameError, ToolSchemaError, UnknownToolError
from cmf.json.frozen import JsonObject
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
