"""Converts MCP messages to canonical requests and responses. Spec: mcp-proxy.md [MCPX-14], [MCPX-23]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from cmf import adapters
from cmf.json.codec import dumps, loads_object
from cmf.json.value import replace
from cmf.message.digests import canonical_bytes
from cmf.message.message import Message, Part, PromptRequestPart, ToolCallPart
from cmf.message.request import Request, Response

FORMAT: Final = "mcp"
_WRAPPERS: Final = frozenset({"result", "content"})  # keys that servers put around a text; any other is not judged


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


@dataclass(frozen=True, slots=True)
class Repeated:
    """Which texts of a result its structured content repeats: the blocks they are in, and in which form."""

    blocks: tuple[int, ...]
    verbatim: tuple[bool, ...]  # each: the text as it is, else the value whose JSON it is
    key: str | None  # around them; None: one text is the JSON of the whole
    listed: bool


def unrepeated(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], Repeated | None]:
    """An answer without structured content that only repeats texts of it, and how to repeat them again.

    Servers send most results twice: as texts and as structured content. The texts are judged, and what policy leaves
    of them becomes both again (`repeat`).
    """
    result = body.get("result")
    if _is_finished_task(result):
        left, again = unrepeated(result)
        return {**body, "result": left}, again
    if not isinstance(result, dict) or "structuredContent" not in result or not isinstance(result.get("content"), list):
        return body, None
    again = _repeated(result["structuredContent"], [_text(block) for block in result["content"]])
    if again is None:
        return body, None
    return {**body, "result": {k: v for k, v in result.items() if k != "structuredContent"}}, again


def repeat(written: dict[str, Any], again: Repeated) -> dict[str, Any]:
    """The answer with what policy left of the texts as structured content; without, where one is no JSON any more."""
    result = written.get("result", {})
    if _is_finished_task(result):
        return {**written, "result": repeat(result, again)}
    texts = [_text(block) for block in result.get("content", [])]
    if again.listed and len(texts) != len(again.blocks):
        return written
    values: list[Any] = []
    for at, verbatim in zip(again.blocks, again.verbatim, strict=True):
        text = texts[at] if at < len(texts) else None
        value = text if verbatim or text is None else loads_object(text)
        if value is None:
            return written
        values.append(value)
    inner: Any = values if again.listed else values[0]
    structured = inner if again.key is None else {again.key: inner}
    return {**written, "result": {**result, "structuredContent": structured}}


def _repeated(structured: Any, texts: list[str | None]) -> Repeated | None:
    """How `structured` repeats texts, which stand for the blocks of a result; None where it says anything else."""
    key = next(iter(structured)) if isinstance(structured, dict) and len(structured) == 1 else None
    inner = structured[key] if key in _WRAPPERS else None
    if isinstance(inner, list) and inner and len(inner) == len(texts):
        forms = [_form(value, text) for value, text in zip(inner, texts, strict=True)]
        verbatim = tuple(form for form in forms if form is not None)
        return Repeated(tuple(range(len(texts))), verbatim, key, listed=True) if len(verbatim) == len(forms) else None
    for at, text in enumerate(texts):
        if isinstance(inner, str) and inner == text:
            return Repeated((at,), (True,), key, listed=False)
        if _form(structured, text) is False:
            return Repeated((at,), (False,), None, listed=False)
    return None


def _form(value: Any, text: str | None) -> bool | None:
    """Whether `text` is the value itself; False where it is its JSON, None where it says anything else."""
    if text is None:
        return None
    if isinstance(value, str):
        return True if value == text else None
    same = isinstance(value, dict) and _same(loads_object(text), value)
    return False if same and _is_literal(text, value) else None


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _is_finished_task(result: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the result of its call is in it."""
    return isinstance(result, dict) and isinstance(result.get("result"), dict)


def _same(left: Any, right: Any) -> bool:
    return left is not None and canonical_bytes(left) == canonical_bytes(right)


def _is_literal(text: str, structured: Any) -> bool:
    """Whether the text has the values in their own characters: a rule that looks for some of these finds them there."""
    return "\\" not in text and "".join(text.split()) == "".join(dumps(structured).decode().split())
