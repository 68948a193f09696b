"""What is sent to the server's side of an MCP connection, both ways, and the headers of HTTP. Spec: mcp.md [MCP-9]."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.mcp.calls import RpcContent
from cmf.adapters.mcp.message import as_extra, batch_in, batched, extras_of, read, write, write_batch
from cmf.adapters.mcp.parts_in import FORMAT
from cmf.adapters.mcp.results import UNKNOWN_CALL
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.fields import extra_of, object_in
from cmf.adapters.wire.layout import respell_one, spelled_one
from cmf.adapters.wire.loss import drop, drop_foreign_extras
from cmf.errors import UnsupportedError
from cmf.json.frozen import freeze
from cmf.json.value import trusted
from cmf.message.request import Request

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""Where a call of revision 2026-07-28 names its revision, in its `_meta`."""
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method the parameter that names what is asked for."""
_HEADERS: Final = ("mcp-protocol-version", "mcp-session-id")
_HEADER_NAMES: Final = {"mcp-protocol-version": "MCP-Protocol-Version", "mcp-session-id": "Mcp-Session-Id"}


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request of a JSON-RPC message or batch."""
    own = {name: text for key, text in headers.items() if (name := key.lower()) in _HEADERS}
    raw = freeze(body)
    request = _decode(raw, model, own)
    return spelled_one(request, _encode(request), raw, format_name=FORMAT)


def _decode(raw: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    if isinstance(raw, list):
        entries = [read(entry, f"$[{at}]", UNKNOWN_CALL) for at, entry in enumerate(raw)]
        content, extra = batched(entries), {"batch": extras_of(entries)}
    else:
        message = read(raw, "$", UNKNOWN_CALL, alone=True)
        content, extra = message.content, message.extra
    if headers:
        extra = {**extra, "headers": freeze(dict(headers))}
    return trusted(
        Request,
        model=model,
        messages=tuple(content.messages),
        tools=tuple(content.tools),
        tool_choice=content.tool_choice,
        sampling=content.sampling,
        extra=as_extra(extra),
    )


def write_request(request: Request) -> Any:
    """The JSON-RPC message or batch; a request of another format becomes a call, a read, or a completion."""
    if request.response_schema is not None:
        raise UnsupportedError(
            "mcp cannot ask for structured output", path="response_schema", hint="route to a model's own API"
        )
    if request.reasoning_effort is not None:
        drop(FORMAT, "reasoning_effort", "no such parameter")
    drop_foreign_extras(FORMAT, request)
    own = object_in(extra_of(request, FORMAT), "headers")
    return respell_one(
        _encode(request), request, format_name=FORMAT, decode=lambda spelt: _decode(spelt, request.model, own)
    )


def _encode(request: Request) -> Any:
    batch = batch_in(request)
    if batch is not None:
        return write_batch(batch, request.messages, request.tools)
    content = RpcContent(
        messages=list(request.messages),
        tools=list(request.tools),
        sampling=request.sampling,
        tool_choice=request.tool_choice,
    )
    return write(content, extra_of(request, FORMAT), asking=True)


def http_call(request: Request) -> HttpCall:
    """The POST of the streamable HTTP transport; from revision 2026-07-28 on with its routing headers [MCP-9]."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    own = object_in(extra_of(request, FORMAT), "headers")
    headers |= {_HEADER_NAMES[name]: header_value(str(own[name])) for name in _HEADERS if name in own}
    body = write_request(request)
    if isinstance(body, dict):
        headers |= _routing_headers(body)
    return HttpCall(path="/mcp", headers=headers)


def _routing_headers(body: Mapping[str, Any]) -> dict[str, str]:
    params, method = body.get("params"), body.get("method")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if not isinstance(version, str) or not isinstance(method, str):
        return {}
    headers = {"MCP-Protocol-Version": header_value(version), "Mcp-Method": header_value(method)}
    name = params.get(NAMED.get(method, "")) if isinstance(params, dict) else None
    return {**headers, "Mcp-Name": header_value(name)} if isinstance(name, str) else headers


def header_value(text: str) -> str:
    """The value of a header: as it is where a header can carry it, else in base64, as the transport prescribes."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="
