"""What MCP says for each kind of content: calls and results, questions of a server and answers to them, notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.pipeline.gateway.matrix_bodies import SCHEMA

Way = Literal["call", "result", "question", "answer", "notice"]
PNG: Final = "image/png"
SAMPLING: Final = "sampling/createMessage"
CARRIER: Final = "tools/call"  # the call in whose stream a server says something else


@dataclass(frozen=True, slots=True)
class McpRow:
    """A kind of content, in the messages of one method: of a client's call or the server's result, and so on."""

    kind: str
    method: str
    way: Way

    def __str__(self) -> str:
        return f"{self.kind} in a {self.way} of {self.method}"


ROWS: Final = (
    McpRow("tool_call", "tools/call", "call"),
    McpRow("prompt_request", "prompts/get", "call"),
    McpRow("resource_ref", "resources/read", "call"),
    McpRow("resource_ref", "resources/subscribe", "call"),
    McpRow("resource_ref", "resources/unsubscribe", "call"),
    McpRow("text", "completion/complete", "call"),
    McpRow("opaque", "zebra/zebra", "call"),
    McpRow("tool_result", "tools/call", "result"),
    McpRow("media", "tools/call", "result"),
    McpRow("opaque", "tools/call", "result"),
    McpRow("resource", "tools/call", "result"),
    McpRow("resource_ref", "tools/call", "result"),
    McpRow("resource", "resources/read", "result"),
    McpRow("resource", "resources/list", "result"),
    McpRow("resource", "resources/templates/list", "result"),
    McpRow("prompt_result", "prompts/get", "result"),
    McpRow("tool_definition", "tools/list", "result"),
    McpRow("text", "initialize", "result"),
    McpRow("text", "tasks/get", "result"),
    McpRow("opaque", "ping", "result"),
    McpRow("text", SAMPLING, "question"),
    McpRow("tool_call", SAMPLING, "question"),
    McpRow("tool_result", SAMPLING, "question"),
    McpRow("media", SAMPLING, "question"),
    McpRow("opaque", SAMPLING, "question"),
    McpRow("tool_definition", SAMPLING, "question"),
    McpRow("text", "elicitation/create", "question"),
    McpRow("text", SAMPLING, "answer"),
    McpRow("tool_call", SAMPLING, "answer"),
    McpRow("media", SAMPLING, "answer"),
    McpRow("opaque", SAMPLING, "answer"),
    McpRow("text", "notifications/message", "notice"),
    McpRow("text", "notifications/progress", "notice"),
    McpRow("text", "notifications/tasks", "notice"),
    McpRow("text", "notifications/tasks/status", "notice"),
)
TASK: Final = {"taskId": "1", "status": "working"}
BEGIN: Final = {"name": "begin", "arguments": {}}
"""The call of a tool that begins this task."""
HELLO: Final = {"protocolVersion": "2025-11-25", "capabilities": {}}


def call(row: McpRow, marker: str, number: int) -> dict[str, Any]:
    """The client's call with which a cell begins: with `marker` in it where the row is of calls."""
    method = row.method if row.way in ("call", "result") else CARRIER
    held = marker if row.way == "call" else "n"
    params: dict[str, Any] = {
        "tools/call": {"name": "lookup", "arguments": {"note": held}},
        "prompts/get": {"name": "greet", "arguments": {"note": held}},
        "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": held}},
        "initialize": {**HELLO, "clientInfo": {"name": "c", "version": "1"}},
        "tasks/get": {"taskId": TASK["taskId"]},
        "zebra/zebra": {"zebra": held},
    }.get(method, {"uri": f"file:///{held}"} if method.startswith("resources/") and "list" not in method else {})
    meta = {"cell": number, "progressToken": token(number)}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}


def token(number: int) -> str:
    """What the call of a cell asks for progress under."""
    return f"t{number}"


def result(row: McpRow, marker: str, number: int) -> dict[str, Any]:
    """What the server's answer to the call of a cell is: with `marker` in it where the row is of results."""
    held = marker if row.way == "result" else "n"
    found: dict[str, Any] = {
        "tools/call": {"content": [_block(row.kind, held)]},
        "prompts/get": {"messages": [{"role": "user", "content": text(held)}]},
        "resources/read": {"contents": [{"uri": "file:///a", "text": held}]},
        "resources/list": {"resources": [{"uri": f"file:///{held}", "name": "a"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": f"file:///{held}/{{x}}", "name": "a"}]},
        "tools/list": {"tools": [tool(f"lookup{number}", held)]},
        "tasks/get": {**TASK, "statusMessage": held},
        "completion/complete": {"completion": {"values": ["bob"], "total": 1}},
        "initialize": {**HELLO, "serverInfo": {"name": "s", "version": "1"}, "instructions": held},
    }.get(row.method if row.way in ("call", "result") else CARRIER, {})
    return {"zebra": held} if (row.kind, row.method) == ("opaque", "ping") else found


def said(row: McpRow, marker: str, number: int) -> dict[str, Any]:
    """What the server says before its answer: a question, or a notice."""
    held = marker if row.way in ("question", "notice") else "n"
    params: dict[str, Any] = {
        SAMPLING: lambda: _sampling(row.kind, held),
        "elicitation/create": lambda: {"message": held, "requestedSchema": {"type": "object", "properties": {}}},
        "notifications/message": lambda: {"level": "info", "data": held},
        "notifications/progress": lambda: {"progressToken": token(number), "progress": 1, "message": held},
        "notifications/tasks": lambda: {**TASK, "statusMessage": held},
        "notifications/tasks/status": lambda: {**TASK, "statusMessage": held},
    }[row.method]()
    own = {} if row.way == "notice" else {"id": f"q{number}"}
    return {"jsonrpc": "2.0", **own, "method": row.method, "params": params}


def asking(said: dict[str, Any]) -> dict[str, Any]:
    """A result that asks the same within itself, as revision 2026-07-28 does."""
    question = {key: said[key] for key in ("method", "params")}
    return {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}


def answer(row: McpRow, marker: str) -> dict[str, Any]:
    """What the client says to a question: with `marker` in it where the row is of answers."""
    block = {
        "text": text(marker),
        "media": {"type": "image", "data": marker, "mimeType": PNG},
        "tool_call": {"type": "tool_use", "id": "c1", "name": "lookup", "input": {"note": marker}},
        "opaque": {"type": "zebra", "zebra": marker},
    }[row.kind]
    return {"role": "assistant", "content": block, "model": "m", "stopReason": "endTurn"}


def text(held: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": held}


def tool(name: str, described: str) -> dict[str, Any]:
    """A definition."""
    return {"name": name, "description": described, "inputSchema": SCHEMA}


def _block(kind: str, held: str) -> dict[str, Any]:
    return {
        "media": {"type": "image", "data": held, "mimeType": PNG},
        "opaque": {"type": "zebra", "zebra": held},
        "resource": {"type": "resource", "resource": {"uri": "file:///a", "text": held}},
        "resource_ref": {"type": "resource_link", "uri": f"file:///{held}", "name": "a"},
    }.get(kind, text(held))


def _sampling(kind: str, held: str) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "c1", "name": "lookup", "input": {"note": held if kind == "tool_call" else "n"}}
    back = {"type": "tool_result", "toolUseId": "c1", "content": [text(held if kind == "tool_result" else "fine")]}
    messages = {
        "text": [{"role": "user", "content": text(held)}],
        "media": [{"role": "user", "content": _block(kind, held)}],
        "opaque": [{"role": "user", "content": [text("hi"), _block(kind, held)]}],
        "tool_definition": [{"role": "user", "content": text("hi")}],
    }.get(kind) or [
        {"role": "user", "content": text("hi")},
        {"role": "assistant", "content": use},
        {"role": "user", "content": back},
    ]
    return {
        "messages": messages,
        "maxTokens": 5,
        "tools": [tool("lookup", held if kind == "tool_definition" else "L.")],
    }
