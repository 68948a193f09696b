"""Strict parsing of JSON-RPC messages, and the answers to those that are refused.

Invalid messages get the error numbers of JSON-RPC; decisions of policy get -32010 and following, which no SDK takes
for a lost connection or a timeout to retry.
Spec: docs/spec/mcp-proxy.md [MCPX-1] ff., [MCPX-30] ff. Some MCP implementations match keys without regard to case
(`Name` is `name` to them), so a key that differs from a key of the protocol in case only is refused as a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cmf.adapters.mcp.message import VERSION_KEY
from cmf.errors import CmfError, DecodeError
from cmf.json.codec import MAX_BRACKETS, loads
from pipeline.decisions.errors import ApprovalRequired, DecisionError, PolicyUnavailable

REFUSED: Final = -32010
APPROVAL: Final = -32011
UNAVAILABLE: Final = -32012
CLOSED: Final = -32000
TIMEOUT: Final = -32001
HEADER_MISMATCH: Final = -32020  # since revision 2026-07-28: headers and body differ
UNSUPPORTED_VERSION: Final = -32022


class Refused(Exception):
    """A message is not forwarded.

    Attributes:
        number: the JSON-RPC error number. code: stable, for programs.
        message: for people; never content. data: the `data` of the JSON-RPC error.
    """

    def __init__(self, number: int, code: str, message: str, **data: Any) -> None:
        super().__init__(code)
        self.number = number
        self.code = code
        self.message = message
        self.data = {"code": code, **data}

    @property
    def decision_id(self) -> str | None:
        """The decision that refused it; None where there was none."""
        id_ = self.data.get("decision_id")
        return id_ if isinstance(id_, str) else None


def of_decision(error: DecisionError) -> Refused:
    """The refusal for a decision that blocks the message."""
    number, message = REFUSED, error.user_message
    data: dict[str, Any] = {
        "decision_id": error.decision_id,
        "verdict": error.decision.verdict.value,
        "retryable": error.retryable,
    }
    if isinstance(error, PolicyUnavailable):
        number = UNAVAILABLE
    elif isinstance(error, ApprovalRequired):
        number = APPROVAL
        if error.approval_ids:
            data["approval_ids"] = list(error.approval_ids)
            message = f"{message} Waiting for approval {', '.join(error.approval_ids)}."
    return Refused(number, error.code, f"{message} (decision {error.decision_id})", **data)


def timed_out(who: str = "server") -> Refused:
    """The refusal of a call that `who`, the server or the client, did not answer in time."""
    return Refused(TIMEOUT, "mcp.timeout", f"The {who} did not answer in time.", retryable=True)


def of_unreadable(error: CmfError) -> Refused:
    """The refusal of a message that is not valid MCP, or cannot be expressed in MCP."""
    where = f" at {error.path}" if error.path else ""
    hint = f"; {error.hint}" if error.hint else ""
    return Refused(INVALID_PARAMS, error.code, f"{error.message}{where}{hint}")


def error_body(id: Id | None, refused: Refused) -> dict[str, Any]:
    """A JSON-RPC error response."""
    error = {"code": refused.number, "message": refused.message, "data": refused.data}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def refusal_body(id: Id, body: Mapping[str, Any], refused: Refused) -> dict[str, Any]:
    """The answer to the refused call `body`.

    A refused tool call gets a tool result with `isError`, so that the model that called the tool reads the reason.
    Outages and all other calls get a JSON-RPC error.
    """
    if body.get("method") != "tools/call" or refused.number in (UNAVAILABLE, CLOSED, TIMEOUT):
        return error_body(id, refused)
    meta_out = {f"cmf/{name.replace('_', '-')}": value for name, value in refused.data.items()}
    text = {"type": "text", "text": refused.message}
    result: dict[str, Any] = {"content": [text], "isError": True, "_meta": meta_out}
    meta = (body.get("params") or {}).get("_meta")
    if isinstance(meta, Mapping) and VERSION_KEY in meta:
        result["resultType"] = "complete"  # required in every result since revision 2026-07-28
    return {"jsonrpc": "2.0", "id": id, "result": result}


MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_BATCH: Final = 100
MAX_ID_CHARS: Final = 256

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602

Id = str | int


class Kind(StrEnum):
    """The kind of a JSON-RPC message."""

    CALL = "call"
    NOTIFICATION = "notification"
    ANSWER = "answer"


class FrameError(Refused):
    """A message cannot be parsed; `id` is that of the call to answer, None if the message has no usable one."""

    def __init__(self, number: int, code: str, message: str, id: Id | None = None) -> None:
        super().__init__(number, code, message)
        self.id = id


@dataclass(frozen=True, slots=True)
class Frame:
    """A parsed message. Calls and answers have an `id`; calls and notifications have a `method`."""

    kind: Kind
    body: dict[str, Any]
    id: Id | None = None
    method: str = ""

    @property
    def params(self) -> dict[str, Any]:
        """The params; empty if the message has none."""
        params = self.body.get("params")
        return params if isinstance(params, dict) else {}


@dataclass(frozen=True, slots=True)
class Batch:
    """Several messages sent together as one JSON array."""

    frames: tuple[Frame, ...]


_PROTOCOL_KEYS: Final = frozenset(
    {
        "jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data",
        "name", "arguments", "uri", "_meta", "progressToken", "cursor", "nextCursor", "requestId", "reason", "level",
        "ref", "argument", "value", "messages", "role", "content", "type", "text", "blob", "mimeType", "contents",
        "structuredContent", "isError", "tools", "description", "inputSchema", "outputSchema", "annotations", "title",
        "resources", "resourceTemplates", "uriTemplate", "prompts", "prompt", "instructions", "capabilities",
        "protocolVersion", "clientInfo", "serverInfo", "systemPrompt", "maxTokens", "temperature", "stopSequences",
        "modelPreferences", "includeContext", "model", "stopReason", "requestedSchema", "action", "mode", "url",
        "roots", "resource", "input", "toolUseId", "toolChoice", "task", "taskId", "tasks", "status",
        "statusMessage", "ttl", "ttlMs", "completion", "values", "progress", "total", "resultType", "inputRequests",
        "inputResponses", "requestState",
    }
)  # fmt: skip
_BY_FOLDED_KEY: Final = {key.casefold(): key for key in _PROTOCOL_KEYS}
_FREE: Final = frozenset(
    {
        "_meta", "structuredContent", "data", "inputSchema", "outputSchema", "requestedSchema", "capabilities",
        "inputRequests", "inputResponses", "metadata", "experimental", "extensions",
    }
)  # fmt: skip
"""Keys whose values are objects with keys that the protocol does not define."""
_ARGUMENTS: Final = frozenset({"arguments", "input"})
"""Keys whose values have keys that a tool defines, and may match without regard to case."""
_KEYS: Final = {
    Kind.CALL: frozenset({"jsonrpc", "id", "method", "params"}),
    Kind.NOTIFICATION: frozenset({"jsonrpc", "method", "params"}),
    Kind.ANSWER: frozenset({"jsonrpc", "id", "result", "error"}),
}


def read(raw: bytes, *, max_bytes: int = MAX_MESSAGE_BYTES) -> Frame | Batch:
    """Parse a message or a batch.

    Raises:
        FrameError: mcp.unreadable (no strict JSON), mcp.invalid (no JSON-RPC message), mcp.ambiguous-key.
    """
    try:
        body = loads(raw, max_bytes=max_bytes, max_brackets=MAX_BRACKETS)
    except DecodeError as error:
        raise FrameError(PARSE_ERROR, "mcp.unreadable", f"This is no strict JSON: {error.code}.") from None
    return frame_of(body)


def frame_of(body: Any) -> Frame | Batch:
    """The message or batch in a JSON value that was parsed strictly."""
    if not isinstance(body, list):
        return _frame(body)
    if not 0 < len(body) <= MAX_BATCH:
        raise _invalid(f"A batch has 1 to {MAX_BATCH} messages.")
    return Batch(tuple(_frame(item) for item in body))


def _frame(body: Any) -> Frame:
    if not isinstance(body, dict):
        raise _invalid("A message is an object.")
    if body.get("jsonrpc") != "2.0":
        raise _invalid('`jsonrpc` is not "2.0".')
    kind = _kind(body)
    if not body.keys() <= _KEYS[kind]:
        raise _invalid("The message has keys that JSON-RPC does not know.")
    message_id = body.get("id")
    if kind is not Kind.NOTIFICATION and not is_id(message_id):
        raise _invalid("The id is neither a text nor an integer.")
    method = body.get("method", "")
    if not isinstance(method, str) or len(method) > MAX_ID_CHARS:
        raise _invalid("The method is not a name.")
    call_id = message_id if kind is Kind.CALL else None
    payload = body.get("params" if kind is not Kind.ANSWER else "result" if "result" in body else "error", {})
    if not isinstance(payload, dict):
        raise _invalid("Params, results and errors are objects.", call_id)
    for key in _ambiguous(payload):
        shown = f"The key `{key}`" if key.isprintable() and len(key) <= 64 else "A key"
        raise FrameError(INVALID_REQUEST, "mcp.ambiguous-key", f"{shown} is like another one.", call_id)
    is_error = kind is Kind.ANSWER and "error" in body
    if is_error and (type(payload.get("code")) is not int or not isinstance(payload.get("message"), str)):
        raise _invalid("An error has a number and a message.")
    return Frame(kind, body, message_id, method)


def _kind(body: dict[str, Any]) -> Kind:
    if "method" in body:
        return Kind.CALL if "id" in body else Kind.NOTIFICATION
    if ("result" in body) == ("error" in body):
        raise _invalid("The message is neither a call nor one answer.")
    return Kind.ANSWER


def is_id(id: Any) -> bool:
    """Whether this can be the id of a call: in MCP a string or an integer, never null."""
    return (type(id) is int and abs(id) < 2**53) or (isinstance(id, str) and len(id) <= MAX_ID_CHARS)


def _ambiguous(value: Any) -> Iterator[str]:
    """Keys that equal another key, or a key of the protocol, if case is ignored."""
    stack: list[tuple[Any, bool]] = [(value, True)]  # (value, whether the protocol defines its keys)
    while stack:
        node, of_protocol = stack.pop()
        if isinstance(node, list):
            stack += [(each, of_protocol) for each in node]
        elif isinstance(node, dict):
            seen: set[str] = set()
            for key, inner in node.items():
                fold = key.casefold()
                if fold in seen or (of_protocol and _BY_FOLDED_KEY.get(fold, key) != key):
                    yield key
                seen.add(fold)
                if key not in _FREE:
                    stack.append((inner, of_protocol and key not in _ARGUMENTS))


def _invalid(message: str, id: Id | None = None) -> FrameError:
    return FrameError(INVALID_REQUEST, "mcp.invalid", message, id)
