"""Gemini's tool objects, both ways. Spec: docs/spec/adapters/gemini.md [GEM-13]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from cmf.adapters.gemini.names import CLIENT_RUN, PROVIDER_TOOLS
from cmf.adapters.gemini.parts_in import FORMAT
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import Fields, extra_of, merge
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, trusted
from cmf.message.tools import ToolDefinition

SCHEMA_NOTE: Final = "cmf_schema"  # the name of a schema's key, if that was the older one
OPENAPI: Final = "openapi"

_UPPER: Final = ("OBJECT", "ARRAY", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "NULL")
_LOWERED: Final = {name: name.lower() for name in _UPPER}
_RAISED: Final = {lower: name for name, lower in _LOWERED.items()}
_ONE: Final = ("items", "additionalProperties")  # the value under these is a schema
_LISTED: Final = ("anyOf", "prefixItems")  # a list of schemas
_NAMED: Final = ("properties", "defs")  # an object of schemas


def decode_tools(fields: Fields) -> tuple[tuple[ToolDefinition, ...], list[int] | None]:
    """The tools of a request, and how many came in each object, if not in the usual way."""
    raw = fields.optional("tools", list)
    if not raw:
        return (), None
    groups = [_tool_group(tool, f"{fields.path}.tools[{index}]") for index, tool in enumerate(raw)]
    flat = tuple(tool for group in groups for tool in group)
    sizes = [len(group) for group in groups]
    return flat, (None if sizes == _plain_sizes(flat) else sizes)


def _tool_group(raw: Any, path: str) -> list[ToolDefinition]:
    if not isinstance(raw, dict):
        raise ShapeError("expected a JSON object", path=path, hint="a tool is an object with one key for its kind")
    group: list[ToolDefinition] = []
    for key, value in raw.items():
        if key == "functionDeclarations" and (value is None or isinstance(value, list)):
            group += [_declared(each, f"{path}.{key}[{index}]") for index, each in enumerate(value or ())]
        elif value is not None or key not in PROVIDER_TOOLS:
            own = frozen_mapping({FORMAT: frozen_mapping({key: value})})
            runner = "client" if key in CLIENT_RUN else "provider"
            group.append(trusted(ToolDefinition, name=key, type=key, executed_by=runner, extra=own))
    return group


def _declared(raw: Any, path: str) -> ToolDefinition:
    fields = Fields(raw, path)
    name = fields.need("name", str)
    description = fields.optional("description", str)
    schema, note = decode_schema(fields, "parametersJsonSchema", "parameters")
    if note is not None:
        fields.put_back(SCHEMA_NOTE, note)
    return trusted(ToolDefinition, name=name, description=description, input_schema=schema, extra=fields.rest(FORMAT))


def decode_schema(fields: Fields, new: str, old: str) -> tuple[FrozenDict | None, str | None]:
    """The schema under the one name or the other, if there is only one; and a note if it was the older name.

    The note is that name, or that the schema's types had OpenAPI's names there [GEM-25].
    """
    if new in fields and old in fields:
        return None, None
    if SCHEMA_NOTE in fields:
        raise ShapeError("a reserved key", path=f"{fields.path}.{SCHEMA_NOTE}", hint="leave it out")
    newer = fields.take(new, FrozenDict)
    if newer is not None:
        return newer, None
    older = fields.take(old, FrozenDict)
    lower = None if older is None else lowered(older)
    return (older, None if older is None else old) if lower is None else (lower, OPENAPI)


def encode_schema(schema: Any, note: Any) -> Any:
    """The schema as `decode_schema` found it."""
    return raised(schema) if note == OPENAPI else schema


def _plain_sizes(tools: Sequence[ToolDefinition]) -> list[int]:
    """How tools are grouped unless they came otherwise: consecutive functions together, each provider's tool alone."""
    sizes: list[int] = []
    together = False
    for tool in tools:
        if together and _is_declared(tool):
            sizes[-1] += 1
        else:
            sizes.append(1)
        together = _is_declared(tool)
    return sizes


def _is_declared(tool: ToolDefinition) -> bool:
    """Whether it is a function declaration, and no key of a tool object."""
    return tool.executed_by == "client" and tool.type not in CLIENT_RUN


def encode_tools(tools: Sequence[ToolDefinition], sizes: Sequence[int] | None) -> list[dict[str, Any]]:
    """Tool objects in normal form; UnsupportedError for what another provider runs."""
    objects: list[dict[str, Any]] = []
    at = 0
    for size in _plain_sizes(tools) if sizes is None else sizes:
        together: dict[str, Any] = {}
        for tool in tools[at : at + size]:
            if _is_declared(tool):
                together.setdefault("functionDeclarations", []).append(_declaration(tool))
            else:
                together.update(_builtin(tool))
        objects.append(together)
        at += size
    return objects


def _declaration(tool: ToolDefinition) -> dict[str, Any]:
    loss.refuse_foreign_kind(FORMAT, tool)
    loss.drop_foreign_extra(FORMAT, tool, "tool_definition")
    own = {key: item for key, item in extra_of(tool, FORMAT).items() if key != SCHEMA_NOTE}
    note = extra_of(tool, FORMAT).get(SCHEMA_NOTE)
    declared = {"name": tool.name, **present(description=tool.description)}
    if tool.input_schema is not None:
        kind = tool.input_schema.get("type")
        upper = isinstance(kind, str) and kind.isupper()  # OpenAPI's spelling, which only the older name takes
        key = "parameters" if note is not None or upper else "parametersJsonSchema"
        declared[key] = encode_schema(tool.input_schema, note)
    return merge(declared, own)


def _builtin(tool: ToolDefinition) -> dict[str, Any]:
    own = extra_of(tool, FORMAT)
    if own:
        return own
    if tool.type in PROVIDER_TOOLS:
        return {tool.type: {}}
    raise UnsupportedError("a tool that another provider runs", about=tool, hint="offer one of Gemini's, or drop it")


# -- types of schemas: OpenAPI's upper-case names, as Gemini's older schemas have them, and JSON Schema's [GEM-25] -----
# A canonical schema is JSON Schema: tools are checked by it, and other providers refuse `OBJECT`.


def lowered(schema: FrozenDict) -> FrozenDict | None:
    """The schema with JSON Schema's names of types; None unless it has types, and OpenAPI's alone."""
    others: list[Any] = []
    names: list[str] = []

    def lowered(name: Any) -> Any:
        lower = _LOWERED.get(name) if isinstance(name, str) else None
        (others if lower is None else names).append(name)
        return lower

    retyped = _retyped(schema, lowered)
    return freeze(retyped) if names and not others else None


def raised(schema: Any) -> Any:
    """The schema with OpenAPI's names of types; a type that has none there stays."""
    return _retyped(schema, lambda name: _RAISED.get(name, name) if isinstance(name, str) else name)


def _retyped(schema: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    retyped: dict[str, Any] = {}
    for key, item in schema.items():
        if key == "type":
            retyped[key] = change(item)
        elif key in _ONE:
            retyped[key] = _retyped(item, change)
        elif key in _LISTED and isinstance(item, list):
            retyped[key] = [_retyped(each, change) for each in item]
        elif key in _NAMED and isinstance(item, dict):
            retyped[key] = {name: _retyped(each, change) for name, each in item.items()}
        else:
            retyped[key] = item
    return retyped
