"""Arguments of tools that a server also wants in headers (revision 2026-07-28). Spec: mcp-proxy.md [MCPX-68]."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cmf.adapters.mcp.request import header_value

PREFIX: Final = "mcp-param-"
MAX_TOOLS: Final = 4096  # whose headers are known; the oldest are forgotten first
_KEY: Final = "x-mcp-header"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_TYPES: Final = frozenset({"boolean", "integer", "number", "string"})

_Path = tuple[str, ...]


class ParamHeaders:
    """By tool of one server, the arguments that go in headers too. They are learned from the server's lists."""

    def __init__(self) -> None:
        self._by_tool: OrderedDict[str, Mapping[str, _Path]] = OrderedDict()

    def learn(self, answer: Any) -> None:
        """Take over what an answer to `tools/list` says of the tools in it."""
        result = answer.get("result") if isinstance(answer, Mapping) else None
        tools = result.get("tools") if isinstance(result, Mapping) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
                self._by_tool[tool["name"]] = _headers_of(tool.get("inputSchema"))
                self._by_tool.move_to_end(tool["name"])
        while len(self._by_tool) > MAX_TOOLS:
            self._by_tool.popitem(last=False)

    def of(self, body: Mapping[str, Any]) -> dict[str, str] | None:
        """The headers for a message, by lower-case name; None for the call of a tool that was in no list."""
        if body.get("method") != "tools/call":
            return {}
        params = body.get("params")
        known = self._by_tool.get(str(params.get("name"))) if isinstance(params, Mapping) else None
        if known is None or not isinstance(params, Mapping):
            return None
        found = {name: _text(_at(params.get("arguments"), path)) for name, path in known.items()}
        return {name: header_value(text) for name, text in found.items() if text is not None}


def _headers_of(schema: Any) -> dict[str, _Path]:
    """By header the path of its argument; none at all if a declaration is invalid, as the tool is then for clients."""
    headers: dict[str, _Path] = {}
    for path, declared, kind in _declared(schema, ()):
        name = f"{PREFIX}{declared}".lower()
        if not isinstance(declared, str) or not _NAME.fullmatch(declared) or name in headers or kind not in _TYPES:
            return {}
        headers[name] = path
    return headers


def _declared(schema: Any, path: _Path) -> Iterator[tuple[_Path, Any, Any]]:
    """Each declaration under `properties`, at any depth: the path of its argument, what it declares, and the type."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for key, inner in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(inner, Mapping):
            if _KEY in inner:
                yield (*path, key), inner[_KEY], _hashable(inner.get("type"))
            yield from _declared(inner, (*path, key))


def _hashable(kind: Any) -> str:
    return kind if isinstance(kind, str) else ""


def _at(arguments: Any, path: _Path) -> Any:
    for key in path:
        arguments = arguments.get(key) if isinstance(arguments, Mapping) else None
    return arguments


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
