"""Views of every kind with every field, for docs/input.md: made by the code that makes all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cmf import Message, Request, Response
from cmf.json.codec import loads
from cmf.views.iterate import iter_views
from pipeline.decisions.policy_input import Facts, SessionFacts, shared_bytes, whole, with_facts

_TIME: Final = "2026-11-20T10:30:00Z"

EXTENSIONS: Final[dict[str, Any]] = {
    "request": {
        "environment": "production",
        "request_id": "req-7",
        "timestamp": _TIME,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "span_id": "00f067aa0ba902b7",
    },
    "agent": {
        "input": "send the plan",
        "session_id": "s-1",
        "conversation_id": "c-1",
        "turn": 3,
        "agent_id": "mail-agent",
        "parent_agent_id": "planner",
        "conversation": {"history": [], "summary": "A plan was made.", "topics": ["plan"]},
    },
    "http": {"headers": {"User-Agent": "app/1.0"}},
    "security": {
        "labels": ["customer"],
        "classification": "internal",
        "subject": {
            "id": "ann",
            "type": "user",
            "roles": ["editor"],
            "permissions": ["mail:send"],
            "teams": ["support"],
            "claims": {"tenant": "acme"},
        },
        "objects": {
            "tool://mail/send": {
                "managed_by": "both",
                "permissions": ["mail:send"],
                "trust_domain": "internal",
                "data_scope": ["mail"],
            }
        },
        "data": {
            "tool://mail/send": {
                "apply_labels": ["mail"],
                "allowed_actions": ["read", "display"],
                "denied_actions": ["train"],
                "retention": {"max_age_seconds": 3600, "policy": "session", "delete_after": _TIME},
            }
        },
    },
    "mcp": {
        "tool": {
            "name": "send",
            "title": "Send a mail",
            "description": "Sends a mail.",
            "input_schema": {"type": "object"},
            "output_schema": {"type": "object"},
            "server_id": "mail",
            "namespace": "mail",
            "annotations": {"readOnlyHint": False},
        },
        "resource": {
            "uri": "file:///a.md",
            "name": "a",
            "description": "Notes.",
            "mime_type": "text/markdown",
            "server_id": "files",
            "annotations": {"audience": ["user"]},
        },
        "prompt": {
            "name": "greet",
            "description": "Greets.",
            "arguments": [{"name": "who"}],
            "server_id": "office",
            "annotations": {"audience": ["user"]},
        },
    },
    "completion": {
        "stop_reason": "call",
        "raw_stop_reason": "tool_calls",
        "tokens": {
            "input_tokens": 120,
            "output_tokens": 30,
            "total_tokens": 350,
            "cached_input_tokens": 150,
            "cache_creation_input_tokens": 50,
        },
        "model": "gpt-5-2026-10-01",
        "raw_format": "openai_chat",
        "created_at": _TIME,
        "latency_ms": 840,
        "cost_usd": "0.0021",
        "pricing_version": "2026-11",
    },
    "provenance": {"source": "gateway", "message_id": "msg-2", "parent_id": "msg-1"},
    "llm": {"model_id": "openai:gpt-5", "provider": "openai", "capabilities": ["tools"]},
    "framework": {
        "framework": "langgraph",
        "framework_version": "1.0",
        "node_id": "agent",
        "graph_id": "support",
        "metadata": {"run": 1, "note": "\uff54he plan"},
    },
    "meta": {"tags": ["beta"], "scope": "support", "properties": {"ticket": 4711}},
    "routing": {
        "mode": "rule",
        "chosen_model": "openai:gpt-5",
        "reason": "the large one is asked for",
        "rule_name": "large",
        "confidence": 0.9,
        "alternatives_considered": ["openai:gpt-5-mini"],
    },
    "delegation": {
        "chain": [
            {
                "delegator": "ann",
                "delegate": "mail-agent",
                "scope": ["mail:send"],
                "reason": "asked to",
                "granted_at": _TIME,
                "expires_at": _TIME,
            }
        ]
    },
    "custom": {"cost_centre": "4711"},
}

SESSION: Final = SessionFacts(
    labels=frozenset({"customer"}),
    counters={"calls:tool://mail/send": 2},
    events=[{"type": "tool_call", "uri": "tool://mail/send"}],
    approvals=[
        {
            "id": "apr-1",
            "status": "approved",
            "digest": "9f86d081",
            "target": "tool://mail/send",
            "rules": ["mail/ask"],
            "revision": "5f2c",
        }
    ],
)

ORIGINS: Final[Sequence[Mapping[str, Any]]] = (
    {
        "path": "",
        "type": "call",
        "profile": "known",
        "sink": True,
        "irreversible": True,
        "askable": True,
        "inferred": ["actions", "sink"],
        "inference": "enforce",
        "actions": ["send"],
        "fits": False,
        "sources": [{"kind": "user", "trust": "trusted", "message": 1, "match": "asked", "labels": []}],
    },
    {
        "path": "/to",
        "type": "string",
        "use": "control",
        "sources": [
            {
                "kind": "tool_result",
                "trust": "untrusted",
                "message": 2,
                "match": "exact",
                "tool": "read_page",
                "field": "/author/mail",
                "labels": ["web"],
            }
        ],
        "complete": False,
        "named": True,
        "more": 3,
    },
    {"path": "/body", "type": "address", "use": "content", "span": [9, 31], "sources": []},
)

_WIRE: Final = {"cache_control": {"type": "ephemeral"}, "note": "VGhlIHBsYW4sIGluIGJhc2U2NC4="}
_IN_PARTS: Final = {"id": "msg-2", "parent_id": "msg-1", "session_id": "s-1", "channel": "final"}
_TEXT: Final = {"content_type": "text", "text": "the plan"}
_WIDE: Final = {"content_type": "text", "text": "\uff54he plan: VGhlIHBsYW4sIGluIGJhc2U2NC4="}
_PICTURE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

_PARTS: Final[dict[str, list[dict[str, Any]]]] = {
    "user": [
        {"content_type": "text", "text": "send the plan to bob@corp.example", "extra": _WIRE},
        {"content_type": "image", "type": "url", "data": "https://example.org/%7Ea.png", "media_type": "image/png"},
        {"content_type": "image", "type": "base64", "data": _PICTURE, "media_type": "image/png"},
        {"content_type": "video", "type": "url", "data": "https://example.org/a.mp4", "duration_ms": 9000},
        {"content_type": "audio", "type": "base64", "data": "SUQzBAAA", "media_type": "audio/mpeg", "duration_ms": 9},
        {"content_type": "document", "type": "base64", "data": "cGxhbg==", "media_type": "text/plain", "title": "Plan"},
        {
            "content_type": "resource",
            "uri": "file:///%61.md",
            "name": "a",
            "description": "Notes.",
            "resource_type": "file",
            "content": "# Plan",
            "mime_type": "text/markdown",
            "annotations": {"audience": ["user"]},
            "version": "2",
            "resource_request_id": "r-1",
        },
        {"content_type": "resource", "uri": "file:///a.bin", "blob": "cGxhbg==", "mime_type": "text/plain"},
        {
            "content_type": "resource_ref",
            "uri": "file:///a.md",
            "name": "a",
            "resource_type": "file",
            "range_start": 0,
            "range_end": 80,
            "selector": "#plan",
            "resource_request_id": "r-1",
        },
        {
            "content_type": "prompt_request",
            "name": "greet",
            "server_id": "office",
            "arguments": {"who": "Bob", "ticket": 2**60},
            "prompt_request_id": "p-1",
        },
        {
            "content_type": "prompt_result",
            "prompt_name": "greet",
            "messages": [{"role": "user", "content": [_TEXT]}],
            "is_error": True,
            "error_message": "no such prompt",
            "prompt_request_id": "p-1",
        },
        {"content_type": "opaque", "provider": "openai_chat", "type": "input_file", "value": {"file_id": "f-1"}},
    ],
    "assistant": [
        {"content_type": "thinking", "text": "They want the plan.", "signature": "c2VhbGVk"},
        {"content_type": "redacted_thinking", "data": "c2VhbGVk"},
        {
            "content_type": "tool_call",
            "tool_call_id": "call_1",
            "name": "send",
            "namespace": "mail",
            "arguments": {"to": "bob@corp.example", "body": "see here: ann@corp.example", "ticket": 2**60},
        },
        {"content_type": "tool_call", "tool_call_id": "call_2", "name": "search", "arguments_raw": '{"query": '},
    ],
    "tool": [
        {
            "content_type": "tool_result",
            "tool_call_id": "call_1",
            "tool_name": "send",
            "content": [_TEXT],
            "is_error": False,
        }
    ],
}

REQUEST: Final[dict[str, Any]] = {
    "model": "openai:gpt-5",
    "messages": [
        {"role": role, "content": parts, "extensions": EXTENSIONS, **_IN_PARTS} for role, parts in _PARTS.items()
    ],
    "tools": [
        {
            "name": "send",
            "namespace": "mail",
            "description": "Sends a mail.",
            "input_schema": {"type": "object", "not": {}},
            "type": "function",
            "side_effects": "write",
        }
    ],
    "tool_choice": {"mode": "tool", "name": "send"},
    "response_schema": {"type": "object"},
    "response_schema_name": "mail",
    "sampling": {"temperature": 0.2, "max_output_tokens": 1000},
    "reasoning_effort": "low",
    "stream": False,
    "session_id": "s-1",
    "extra": {"openrouter": {"user": "u-1", "models": ["acme/small"]}},
}

RESPONSE: Final[dict[str, Any]] = {
    "model": "openai:gpt-5",
    "choices": [
        {"message": {"role": "assistant", "content": [_TEXT]}, "stop_reason": "end", "raw_stop_reason": "stop"}
    ],
    "usage": {"input_tokens": 120, "output_tokens": 30, "total_tokens": 150},
    "error": {"message": "overloaded", "type": "server_error", "code": "529", "status": 529, "retry_after_seconds": 20},
    "extra": {
        "openrouter": {"system_fingerprint": "fp_1"},
        "gemini": {"searchEntryPoint": {"renderedContent": '<img src="https://example.org/a.png">'}},
    },
}


_BARE_EXTENSIONS: Final[dict[str, Any]] = {
    **{name: {} for name in EXTENSIONS if name not in ("routing", "custom")},
    "agent": {"conversation": {}},
    "security": {
        "subject": {},
        "objects": {"tool://_/a": {}},
        "data": {"tool://_/a": {"retention": {}}},
    },
    "mcp": {"tool": {"name": "a"}, "resource": {"uri": "a:b"}, "prompt": {"name": "a"}},
    "completion": {"tokens": {}},
    "routing": {"mode": "default", "chosen_model": "a:b", "reason": "r"},
    "delegation": {"chain": [{"delegator": "a", "delegate": "b"}]},
}
_BARE_PARTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("user", {"content_type": "text", "text": ""}),
    *(
        ("user", {"content_type": kind, "type": "url", "data": "a:b"})
        for kind in ("image", "video", "audio", "document")
    ),
    ("user", {"content_type": "resource", "uri": "a:b"}),
    ("user", {"content_type": "resource_ref", "uri": "a:b"}),
    ("user", {"content_type": "prompt_request", "name": "a"}),
    ("user", {"content_type": "prompt_result", "prompt_name": "a"}),
    ("user", {"content_type": "opaque", "provider": "a", "type": "b", "value": {}}),
    ("assistant", {"content_type": "thinking", "text": ""}),
    ("assistant", {"content_type": "tool_call", "name": "a"}),
    ("tool", {"content_type": "tool_result"}),
)


def documents() -> Iterator[dict[str, Any]]:
    """Policy inputs in which every field occurs at least once."""
    partial = {"role": "assistant", "content": [_TEXT, _WIDE], "status": "partial", "id": "msg-3"}
    yield from _inputs(Request.model_validate(REQUEST), SESSION, ORIGINS)
    yield from _inputs(Response.model_validate(RESPONSE), SESSION, ORIGINS)
    yield from _inputs(Message.model_validate(partial), SESSION, ORIGINS)
    yield from _inputs(Message.model_validate(_ADDRESSES), SESSION, ORIGINS)


_ADDRESSES: Final[dict[str, Any]] = {
    "role": "assistant",
    "content": [
        {"content_type": "text", "text": "![chart](https://ann@charts.example/a.png#b)"},
        {
            "content_type": "tool_call",
            "name": "fetch",
            "arguments": {
                "number": "http://0x7f.1/",
                "other": "https://bank.example@b\u00fccher.example/a/../b",
                "port": "http://host.example:99999/",
                "url": "host.example:8080/x",
            },
        },
    ],
}


def bare() -> Iterator[dict[str, Any]]:
    """Policy inputs of every kind with nothing but what has to be there."""
    messages: list[dict[str, Any]] = [
        {"role": role, "content": [part], "extensions": _BARE_EXTENSIONS} for role, part in _BARE_PARTS
    ]
    messages[0]["extensions"] = {**_BARE_EXTENSIONS, "delegation": {}}
    origins = [{"path": "", "type": "call", "sources": [dict(ORIGINS[0]["sources"][0])]}]
    yield from _inputs(
        Request.model_validate({"messages": messages, "tools": [{"name": "a"}]}), SessionFacts(), origins
    )
    yield from _inputs(Response(), SessionFacts(), origins)


def _inputs(
    value: Message | Request | Response, session: SessionFacts, origins: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for view in iter_views(value):
        document = whole(view, session, origins if view.kind == "tool_call" else None)
        context = loads(shared_bytes(view, session, spelled=True))
        found = loads(with_facts(document, Facts(*[True] * len(Facts._fields))))
        yield found | {name: context[name] for name in ("spelled_context",) if name in context}
