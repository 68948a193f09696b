"""Converts MCP messages to canonical requests and responses. Spec: mcp-proxy.md [MCPX-14], [MCPX-23]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from cmf import adapters
from cmf.codec import dumps, loads_object
from cmf.content import Part, PromptRequestPart, ToolCallPart
from cmf.digests import canonical_bytes
from cmf.message import Message
from cmf.request import Request, Response
from cmf.value import replace

FORMAT: Final = "mcp"


def request_of(body: Mapping[str, Any], server: str | None) -> Request:
    """A call or notification as a request, with the server as namespace of the tools and prompts in it.

    Raises:
        CmfError: it is not a valid MCP message.
    """
    request = adapters.get(FORMAT).from_wire_request(_with_arguments(body))
    if server is None:
        return request
    return replace(
        request,
        messages=tuple(_with_server(message, server) for message in request.messages),
        tools=tuple(replace(tool, namespace=server) for tool in request.tools),
    )


def response_of(body: Mapping[str, Any], asked: Request | None, server: str | None) -> Response:
    """The answer to `asked` as a response, with the server as namespace of the tools it lists. Raises CmfError."""
    response = adapters.get(FORMAT).from_wire_response(body, asked)
    if server is None or not response.tools:
        return response
    return replace(response, tools=tuple(replace(tool, namespace=server) for tool in response.tools))


def _with_arguments(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool call with `arguments: {}` if it has none: policy and the tool both read an object."""
    params = body.get("params")
    if body.get("method") != "tools/call" or not isinstance(params, dict) or "arguments" in params:
        return body
    return {**body, "params": {**params, "arguments": {}}}


def _with_server(message: Message, server: str) -> Message:
    parts = tuple(_part(part, server) for part in message.content)
    return message if parts == message.content else replace(message, content=parts)


def _part(part: Part, server: str) -> Part:
    if isinstance(part, ToolCallPart):
        return replace(part, namespace=server)
    if isinstance(part, PromptRequestPart):
        return replace(part, server_id=server)
    return part


# -- structured content that repeats a text ----------------------------------------------------------------------------


def unrepeated(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[int, bool] | None]:
    """An answer without structured content that only repeats a text of it; the text's place, and whether it is wrapped.

    Servers send most results twice: as text and as structured content. The text is judged, and what policy leaves
    of it becomes both again (`repeat`).
    """
    result = body.get("result")
    if _is_finished_task(result):
        left, again = unrepeated(result)
        return {**body, "result": left}, again
    if not isinstance(result, dict) or "structuredContent" not in result or not isinstance(result.get("content"), list):
        return body, None
    structured, left = result["structuredContent"], {k: v for k, v in result.items() if k != "structuredContent"}
    for at, block in enumerate(result["content"]):
        text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if isinstance(text, str):
            for wrapped in (True, False):
                same = _same(_structured(text, wrapped=wrapped), structured)
                if same and (wrapped or _is_verbatim(text, structured)):
                    return {**body, "result": left}, (at, wrapped)
    return body, None


def repeat(written: dict[str, Any], at: int, wrapped: bool) -> dict[str, Any]:
    """The answer with what policy left of the text as structured content; without, where it is no JSON any more."""
    result = written.get("result", {})
    if _is_finished_task(result):
        return {**written, "result": repeat(result, at, wrapped)}
    blocks = result.get("content", [])
    block = blocks[at] if at < len(blocks) else {}
    structured = _structured(block["text"], wrapped=wrapped) if block.get("type") == "text" else None
    return written if structured is None else {**written, "result": {**result, "structuredContent": structured}}


def _is_finished_task(result: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the result of its call is in it."""
    return isinstance(result, dict) and isinstance(result.get("result"), dict)


def _structured(text: str, *, wrapped: bool) -> dict[str, Any] | None:
    return {"result": text} if wrapped else loads_object(text)


def _same(left: Any, right: Any) -> bool:
    return left is not None and canonical_bytes(left) == canonical_bytes(right)


def _is_verbatim(text: str, structured: Any) -> bool:
    """Whether the text has the values in their own characters: a rule that looks for some of these finds them there."""
    return "\\" not in text and "".join(text.split()) == "".join(dumps(structured).decode().split())


__all__ = ["FORMAT", "repeat", "request_of", "response_of", "unrepeated"]
