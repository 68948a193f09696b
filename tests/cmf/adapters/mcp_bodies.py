"""Bodies of MCP, and what its tests ask of them."""

from __future__ import annotations

from typing import Any

from cmf.adapters import get
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views

MCP = get("mcp")
PNG = "iVBORw0KGgo="


def call(method: str, params: Any = None, **envelope: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, **envelope}
    return body if params is None else {**body, "params": params}


def answer(result: Any, **envelope: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "result": result, **envelope}


def kinds(value: Request | Response) -> list[str]:
    return [view.kind.value for view in iter_views(value)]


def again(body: Any, *, context: Request | None = None, response: bool = False) -> Any:
    if response:
        return MCP.to_wire_response(MCP.from_wire_response(body, context))
    return MCP.to_wire(MCP.from_wire_request(body))
