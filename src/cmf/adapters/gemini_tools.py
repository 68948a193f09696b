"""Gemini's tool objects, both ways. Spec: docs/spec/adapters/gemini.md [GEM-13]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cmf.adapters import loss
from cmf.adapters.fields import Fields, extra_of, merge
from cmf.adapters.gemini_names import PROVIDER_TOOLS
from cmf.adapters.gemini_parts import FORMAT, optional
from cmf.errors import ShapeError, UnsupportedError
from cmf.frozen import FrozenDict, frozen_mapping
from cmf.tools import ToolDefinition
from cmf.value import trusted

SCHEMA_NOTE: Final = "cmf_schema"  # under which name a schema stood, where that was the older one


def decode_tools(fields: Fields) -> tuple[tuple[ToolDefinition, ...], list[int] | None]:
    """The tools of a request, and how many stood in each object, where that is not the plain way."""
    raw = optional(fields, "tools", list)
    if not raw:
        return (), None
    groups: list[list[ToolDefinition]] = []
    for index, tool in enumerate(raw):
        groups.append(_tool_group(tool, f"{fields.path}.tools[{index}]"))
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
            group.append(trusted(ToolDefinition, name=key, type=key, executed_by="provider", extra=own))
    return group


def _declared(raw: Any, path: str) -> ToolDefinition:
    fields = Fields(raw, path)
    name = fields.need("name", str)
    description = optional(fields, "description", str)
    schema, old = decode_schema(fields, "parametersJsonSchema", "parameters")
    if old:
        fields.put_back(SCHEMA_NOTE, "parameters")
    return trusted(ToolDefinition, name=name, description=description, input_schema=schema, extra=fields.rest(FORMAT))


def decode_schema(fields: Fields, new: str, old: str) -> tuple[FrozenDict | None, bool]:
    """The schema that stands under the one name or the other, and whether it was the older one; neither, if both do."""
    if new in fields and old in fields:
        return None, False
    if SCHEMA_NOTE in fields:
        raise ShapeError("a reserved key", path=f"{fields.path}.{SCHEMA_NOTE}", hint="leave it out")
    found = fields.take(new, dict)
    if found is not None:
        return found, False  # type: ignore[return-value]  # the body was frozen at entry
    found = fields.take(old, dict)
    return found, found is not None  # type: ignore[return-value]


def _plain_sizes(tools: Sequence[ToolDefinition]) -> list[int]:
    """How tools are grouped unless a wire said otherwise: runs of functions together, each provider's tool alone."""
    sizes: list[int] = []
    together = False
    for tool in tools:
        if together and tool.executed_by == "client":
            sizes[-1] += 1
        else:
            sizes.append(1)
        together = tool.executed_by == "client"
    return sizes


def encode_tools(tools: Sequence[ToolDefinition], sizes: Sequence[int] | None) -> list[dict[str, Any]]:
    """Tool objects in normal form; UnsupportedError for what another provider runs."""
    made: list[dict[str, Any]] = []
    at = 0
    for size in _plain_sizes(tools) if sizes is None else sizes:
        together: dict[str, Any] = {}
        for tool in tools[at : at + size]:
            if tool.executed_by == "client":
                together.setdefault("functionDeclarations", []).append(_declaration(tool))
            else:
                together.update(_provider_tool(tool))
        made.append(together)
        at += size
    return made


def _declaration(tool: ToolDefinition) -> dict[str, Any]:
    loss.drop_foreign_extra(FORMAT, tool, "tool_definition")
    own = {key: item for key, item in extra_of(tool, FORMAT).items() if key != SCHEMA_NOTE}
    old = SCHEMA_NOTE in extra_of(tool, FORMAT)
    declared: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        declared["description"] = tool.description
    if tool.input_schema is not None:
        kind = tool.input_schema.get("type")
        upper = isinstance(kind, str) and kind.isupper()  # OpenAPI's spelling, which only the older name takes
        declared["parameters" if old or upper else "parametersJsonSchema"] = tool.input_schema
    return merge(declared, own)


def _provider_tool(tool: ToolDefinition) -> dict[str, Any]:
    own = extra_of(tool, FORMAT)
    if own:
        return own
    if tool.type in PROVIDER_TOOLS:
        return {tool.type: {}}
    raise UnsupportedError("a tool that another provider runs", hint="offer one of Gemini's, or drop it")
