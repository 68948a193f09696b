"""Tool definitions and tool choice of the Messages format, both directions. Spec: anthropic_messages.md [ANT-4]."""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.anthropic_messages.parts_in import is_own, own_extra, rest_of
from cmf.adapters.wire.fields import Fields, merge
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import trusted
from cmf.message.request import ToolChoice, ToolChoiceMode
from cmf.message.tools import ToolDefinition

_MODES: Final[dict[str, ToolChoiceMode]] = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_WORDS: Final = {mode: word for word, mode in _MODES.items()}
# Schemas of the provider, run by the client.
_CLIENT_RUN: Final = ("bash_", "browser_", "computer_", "memory_", "text_editor_")
_NAME_KEYS: Final = {"mcp_toolset": "mcp_server_name"}
_NOTHING: Final = FrozenDict()
_NO_PARAMETERS: Final = FrozenDict({"type": "object", "properties": {}})


def decode_tools(fields: Fields) -> tuple[ToolDefinition, ...]:
    """The tools that a request offers, taken from its fields; none where `tools` is absent or null."""
    raw = fields.take("tools", list)
    if raw is None:
        if "tools" in fields and fields.peek("tools") is not None:
            raise ShapeError("`tools` is no array", path="$.tools", hint="see the Messages API reference")
        fields.drop("tools", None)
        return ()
    return tuple(_decode_tool(tool, f"$.tools[{index}]") for index, tool in enumerate(raw))


def _decode_tool(tool: Any, path: str) -> ToolDefinition:
    if not isinstance(tool, dict):
        raise ShapeError("expected a tool definition", path=path, hint="see the Messages API reference")
    kind = tool.get("type")
    if not isinstance(kind, str) or kind == "custom":
        kind = None  # the client's own tool; a type, if there is one, rides along
    found: dict[str, Any] = {} if kind is None else {"type": kind, "executed_by": _runs(kind)}
    known = set(found) - {"executed_by"}
    for key, shape in (("description", str), ("input_schema", dict)):
        if isinstance(tool.get(key), shape):
            known.add(key)
            found[key] = tool[key]
    name_key = _NAME_KEYS.get(kind or "", "name")
    if isinstance(tool.get(name_key), str):
        known.add(name_key)
        found["name"] = tool[name_key]
    elif kind is not None and name_key not in tool:
        found["name"] = kind
    else:
        raise ShapeError(f"`{name_key}` is no string", path=f"{path}.{name_key}", hint="name the tool")
    return trusted(ToolDefinition, **found, extra=rest_of(tool, frozenset(known), always=kind is not None))


def _runs(kind: str) -> str:
    return "client" if kind.startswith(_CLIENT_RUN) else "provider"


def encode_tool(tool: ToolDefinition) -> dict[str, Any]:
    """The wire form of one tool definition.

    Raises:
        UnsupportedError: a kind of tool that only another provider knows.
    """
    if tool.type is None and tool.extra is None and tool.executed_by == "client":  # nearly all are
        description, schema = tool.description, tool.input_schema
        if description is not None and schema is not None:
            return {"name": tool.name, "description": description, "input_schema": schema}
    if (tool.type is not None or tool.executed_by == "provider") and not is_own(tool):
        raise UnsupportedError(
            "a tool of another provider cannot be offered here",
            about=tool,
            hint="route to its provider, or leave the tool out",
        )
    own = own_extra(tool, "tool_definition") if tool.extra else _NOTHING
    if tool.type is None:
        wire: dict[str, Any] = {"name": tool.name}
    else:
        wire = {_NAME_KEYS.get(tool.type, "name"): tool.name, "type": tool.type}
    if tool.description is not None:
        wire["description"] = tool.description
    if tool.input_schema is not None:
        wire["input_schema"] = tool.input_schema
    elif tool.type is None and "input_schema" not in own:
        wire["input_schema"] = dict(_NO_PARAMETERS)  # the format wants one
    return merge(wire, own) if own else wire


def decode_choice(choice: Any) -> tuple[ToolChoice | None, FrozenDict | None]:
    """The canonical tool choice, and what of the wire's it cannot hold. ShapeError for one without a type."""
    if choice is None:
        return None, None
    kind, name = choice.get("type"), choice.get("name")
    if not isinstance(kind, str):
        raise ShapeError("`type` is no string", path="$.tool_choice.type", hint=f"use one of {', '.join(_MODES)}")
    mode = _MODES.get(kind)
    if mode is None or (mode == "tool") is not isinstance(name, str):
        return None, choice
    read_keys = ("type", "name") if mode == "tool" else ("type",)
    left = {key: item for key, item in choice.items() if key not in read_keys}
    return trusted(ToolChoice, mode=mode, name=name), frozen_mapping(left) if left else None


def encode_choice(choice: ToolChoice) -> dict[str, Any]:
    """The wire form of a tool choice."""
    wire: dict[str, Any] = {"type": _WORDS[choice.mode]}
    return wire if choice.name is None else {**wire, "name": choice.name}
