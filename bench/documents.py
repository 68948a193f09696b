"""The data of the measurements: invented, and distinct for each index. Standard library only."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# What a stage may be granted that reads all of a message's extensions; the first alone is what most stages need.
CAPABILITIES = (
    "read_labels",
    "read_subject",
    "read_roles",
    "read_permissions",
    "read_teams",
    "read_claims",
    "read_agent",
    "read_headers",
    "read_objects",
    "read_data",
    "read_delegation",
)
_THOUGHT = (
    "The customer asks for the balance of two accounts and wants the larger one settled first. I have to look both up, "
    "compare what is open, and only then prepare a transfer; a transfer needs the reference of the oldest invoice. "
)
_ANSWER = (
    "I am looking up both accounts now and will then tell you which invoice is the oldest one. Nothing is paid before "
    "you have confirmed the amount and the recipient. "
)


def mark(index: int, name: str, length: int = 12) -> str:
    """Hexadecimal text that is the same for the same index and name only."""
    return hashlib.sha256(f"{index} {name}".encode()).hexdigest()[:length]


def calls(index: int) -> list[dict[str, Any]]:
    """The two tool calls: id, name, arguments."""
    return [
        {
            "id": f"call_{mark(index, 'first', 24)}",
            "name": "account_balance",
            "arguments": {
                "account": f"ac-{mark(index, 'account')}",
                "currency": "EUR",
                "as_of": "2026-11-02",
                "include_pending": True,
                "filters": {"minimum": 120.5, "kinds": ["invoice", "credit", "fee"], "note": mark(index, "note", 40)},
            },
        },
        {
            "id": f"call_{mark(index, 'second', 24)}",
            "name": "search_invoices",
            "arguments": {
                "query": f"open invoices of {mark(index, 'customer')} sorted by age",
                "limit": 25,
                "fields": ["number", "amount", "due", "reference"],
                "range": {"from": "2026-01-01", "to": "2026-11-02"},
            },
        },
    ]


def thinking(index: int) -> str:
    """The thinking of the message."""
    return f"{mark(index, 'thinking', 32)} {_THOUGHT}{_THOUGHT}"


def answer(index: int) -> str:
    """The text of the message."""
    return f"{mark(index, 'text', 32)} {_ANSWER}{_ANSWER}"


def message(index: int) -> dict[str, Any]:
    """A message of four parts in this project's JSON form, with rich extensions."""
    parts: list[dict[str, Any]] = [
        {"content_type": "thinking", "text": thinking(index)},
        {"content_type": "text", "text": answer(index)},
    ]
    for call in calls(index):
        parts.append(
            {
                "content_type": "tool_call",
                "tool_call_id": call["id"],
                "name": call["name"],
                "arguments": call["arguments"],
                "namespace": "billing",
            }
        )
    return {"role": "assistant", "content": parts, "channel": "final", "extensions": extensions(index)}


def peer_message(index: int) -> dict[str, Any]:
    """The same message in the form of cpex, whose extensions go beside it."""
    parts: list[dict[str, Any]] = [
        {"content_type": "thinking", "text": thinking(index)},
        {"content_type": "text", "text": answer(index)},
    ]
    for call in calls(index):
        held = {"tool_call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        parts.append({"content_type": "tool_call", "content": {**held, "namespace": "billing"}})
    return {"role": "assistant", "content": parts, "channel": "final"}


def extensions(index: int) -> dict[str, Any]:
    """Extensions that both formats spell alike, down to the last key."""
    return {
        "request": {
            "environment": "production",
            "request_id": f"req-{mark(index, 'request', 32)}",
            "timestamp": "2026-11-02T10:15:00Z",
            "trace_id": mark(index, "trace", 32),
            "span_id": mark(index, "span", 16),
        },
        "agent": {
            "input": f"Settle the larger of my two accounts, customer {mark(index, 'customer')}.",
            "session_id": f"se-{mark(index, 'session')}",
            "conversation_id": f"co-{mark(index, 'conversation')}",
            "turn": 3,
            "agent_id": "billing-agent",
        },
        "http": {
            "headers": {
                "User-Agent": "billing-client/4.2",
                "Authorization": f"Bearer {mark(index, 'bearer', 40)}",
                "X-Request-Id": mark(index, "request", 32),
                "Accept": "application/json",
            }
        },
        "security": {
            "labels": ["confidential", "finance"],
            "classification": "internal",
            "subject": {
                "id": f"user-{mark(index, 'user')}",
                "type": "user",
                "roles": ["billing-agent", "viewer"],
                "permissions": ["accounts.read", "invoices.read", "transfers.prepare"],
                "teams": ["billing"],
                "claims": {"iss": "https://id.example.com", "email": f"{mark(index, 'user')}@example.com"},
            },
            "objects": {
                "account_balance": {
                    "managed_by": "tool",
                    "permissions": ["accounts.read"],
                    "trust_domain": "internal",
                    "data_scope": ["balance", "currency"],
                }
            },
            "data": {
                "search_invoices": {
                    "apply_labels": ["finance"],
                    "denied_actions": ["export"],
                    "retention": {"max_age_seconds": 86400, "policy": "session"},
                }
            },
        },
        "llm": {"model_id": "anthropic:claude-sonnet", "provider": "anthropic", "capabilities": ["tools", "vision"]},
        "framework": {"framework": "langgraph", "framework_version": "1.2", "node_id": f"n-{mark(index, 'node')}"},
        "meta": {"tags": ["billing", "pilot"], "scope": "eu", "properties": {"tenant": f"t-{mark(index, 'tenant')}"}},
    }


def message_bytes(index: int) -> bytes:
    """`message` as JSON text."""
    return _dumps(message(index))


def peer_bytes(index: int) -> tuple[bytes, bytes]:
    """`peer_message` and `extensions` as JSON texts."""
    return _dumps(peer_message(index)), _dumps(extensions(index))


def anthropic_response(index: int) -> bytes:
    """The same message as an answer of Anthropic's API."""
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": thinking(index), "signature": mark(index, "signature", 64)},
        {"type": "text", "text": answer(index)},
    ]
    for call in calls(index):
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]})
    usage = {"input_tokens": 812, "output_tokens": 164}
    return _dumps(
        {
            "id": f"msg_{mark(index, 'message', 24)}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": blocks,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": usage,
        }
    )


def openai_request(index: int = 0) -> dict[str, Any]:
    """A chat completions request of 20 messages and 6 tool calls, about 40 KB."""
    paragraph = _THOUGHT + _ANSWER
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You settle accounts. " + paragraph}]
    for turn in range(6):
        call = calls(index * 10 + turn)[turn % 2]
        messages.append({"role": "user", "content": f"{turn} {mark(index, f'ask {turn}')} " + paragraph * 5})
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        called = {"id": call["id"], "type": "function", "function": function}
        messages.append({"role": "assistant", "content": _ANSWER, "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(_rows(index, turn))})
    messages.append({"role": "user", "content": "Which one is the oldest? " + paragraph})
    return {
        "model": "claude-sonnet-4-5",
        "messages": messages,
        "tools": [_tool(name) for name in ("account_balance", "search_invoices", "prepare_transfer")],
        "temperature": 0.2,
        "max_completion_tokens": 1024,
    }


def _rows(index: int, turn: int) -> dict[str, Any]:
    rows = [
        {"number": f"I-{mark(index, f'row {turn} {row}')}", "amount": 10.25 * row, "due": "2026-12-01", "paid": False}
        for row in range(38)
    ]
    return {"rows": rows, "next": None}


def _tool(name: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "account": {"type": "string", "description": "The account's id, as on its statement."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "fields": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["account"],
    }
    described = {"name": name, "description": f"What {name} does. {_ANSWER}", "parameters": schema}
    return {"type": "function", "function": described}


def openai_chunks(count: int) -> list[dict[str, Any]]:
    """The chunks of a streamed answer: `count` pieces of text, and the end."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    pieces = [chunk({"content": f" word{index} of the answer"}) for index in range(count)]
    return [chunk({"role": "assistant", "content": ""}), *pieces, chunk({}, "stop")]


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
