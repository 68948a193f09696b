"""Reading the nested spelling of CMF messages. The bodies are of the shape that cpex 0.1.4 dumps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.cmf.strategies import json_value

from cmf import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    PromptRequestPart,
    PromptResultPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    iter_views,
)
from cmf.errors import CmfError, SchemaVersionError, ShapeError
from cmf.interop.cpex import from_cpex


def body(*content: Any, role: str = "assistant", **fields: Any) -> dict[str, Any]:
    return {"schema_version": "2.0", "role": role, "content": list(content), "channel": None, **fields}


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"content_type": kind, "content": fields}


NESTED: list[tuple[dict[str, Any], Any]] = [
    ({"content_type": "text", "text": "x"}, TextPart(text="x")),
    ({"content_type": "thinking", "text": "y"}, ThinkingPart(text="y")),
    (
        part("tool_call", tool_call_id="t", name="f", arguments={"a": 1}, namespace=None),
        ToolCallPart(tool_call_id="t", name="f", arguments={"a": 1}),
    ),
    (
        part("tool_result", tool_call_id="t", tool_name="f", content=[{"k": None}], is_error=False),
        ToolResultPart(tool_call_id="t", tool_name="f", content=[{"k": None}]),
    ),
    (
        part(
            "resource", resource_request_id="r", uri="file:///a", name=None, description=None, resource_type="file",
            content=None, blob="hi é", mime_type=None, size_bytes=None, annotations={}, version=None,
        ),
        ResourcePart(resource_request_id="r", uri="file:///a", resource_type="file", blob="hi é".encode()),
    ),
    (
        part(
            "resource_ref", resource_request_id="r", uri="db://u/1", name=None, resource_type="database",
            range_start=1, range_end=2, selector=None,
        ),
        ResourceRefPart(resource_request_id="r", uri="db://u/1", resource_type="database", range_start=1, range_end=2),
    ),
    (
        part("prompt_request", prompt_request_id="p", name="n", arguments={"a": "b"}, server_id="s"),
        PromptRequestPart(prompt_request_id="p", name="n", arguments={"a": "b"}, server_id="s"),
    ),
    (
        part(
            "prompt_result", prompt_request_id="p", prompt_name="n", content=None, is_error=False, error_message=None,
            messages=[body(part("image", type="url", data="u", media_type=None), role="user")],
        ),
        PromptResultPart(
            prompt_request_id="p",
            prompt_name="n",
            messages=[Message(role="user", content=[ImagePart(type="url", data="u")])],
        ),
    ),
    (part("image", type="base64", data="aGk=", media_type="image/png"),
     ImagePart(type="base64", data="aGk=", media_type="image/png")),
    (part("video", type="url", data="v", media_type=None, duration_ms=5),
     VideoPart(type="url", data="v", duration_ms=5)),
    (part("audio", type="url", data="a", media_type=None, duration_ms=None), AudioPart(type="url", data="a")),
    (part("document", type="url", data="d", media_type=None, title="t"), DocumentPart(type="url", data="d", title="t")),
]  # fmt: skip


@pytest.mark.spec("MSG-16")
@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ("x", "$"),
        ({"role": "user", "content": "x"}, "$"),
        (body(extensions={}), "$"),
        (body(role="robot"), "$.role"),
        (body(schema_version=2), "$.schema_version"),
        (body(schema_version="two"), "$.schema_version"),
        (body(channel="loud"), "$.channel"),
        (body({"content_type": "tool_call", "name": "f"}), "$.content[0]"),
        (body({"content_type": "tool_call", "content": "f"}), "$.content[0]"),
        (body({**part("tool_call", name="f"), "name": "g"}), "$.content[0]"),
        (body(part("tool_call", name="f", content_type="text", text="x")), "$.content[0]"),
        (body(part("tool_call", arguments={})), "$.content[0].name"),
        (body(part("resource", uri="u", content="x", blob="y")), "$.content[0]"),
        (body("x"), "$.content[0]"),
        (body(part("resource", uri="u", blob="\ud800")), "$.content[0].content.blob"),
        (body(part("prompt_result", prompt_name="n", messages=["x"])), "$.content[0].content.messages[0]"),
        (
            body(part("prompt_result", prompt_name="n", messages=[body(schema_version="9.0")])),
            "$.content[0].content.messages[0].schema_version",
        ),
    ],
)
def test_what_is_not_that_spelling_is_refused_where_it_stands(wrong: Any, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        from_cpex(wrong)
    assert caught.value.path == path


@pytest.mark.spec("MSG-16")
def test_a_newer_major_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(SchemaVersionError, match="version 3 is newer than 2"):
        from_cpex(body(schema_version="3.0"))
    assert from_cpex(body(schema_version="2.7")).schema_version == 2


@pytest.mark.spec("MSG-16")
@pytest.mark.parametrize(("dumped", "expected"), NESTED)
def test_each_nested_part_becomes_a_flat_one(dumped: dict[str, Any], expected: Any) -> None:
    assert from_cpex(body(dumped)).content == (expected,)


@pytest.mark.spec("MSG-16")
def test_an_unknown_part_is_opaque_and_judged() -> None:
    novel = part("hologram", beam="x")

    message = from_cpex(body(novel, channel="final"))

    assert message.content == (OpaquePart(provider="canonical", type="hologram", value=novel),)
    assert message.channel == "final"
    assert "beam" in str(next(iter_views(message)).content)


EXTENSIONS = {
    "request": {"environment": "prod", "request_id": "r", "timestamp": None, "trace_id": None, "span_id": None},
    "agent": {
        "input": "do", "session_id": "s", "conversation_id": None, "turn": 0, "agent_id": None, "parent_agent_id": None,
        "conversation": {
            "history": [body(part("tool_call", tool_call_id="t", name="f", arguments={}, namespace=None))],
            "summary": None,
            "topics": ["a"],
        },
    },
    "http": {"headers": {"X-Trace": "t"}},
    "security": {
        "labels": ["PII"],
        "classification": None,
        "subject": {
            "id": "ann", "type": "user", "roles": ["r"], "permissions": [], "teams": [], "claims": {"iss": "x"},
        },
        "objects": {"f": {"managed_by": "host", "permissions": ["p"], "trust_domain": None, "data_scope": []}},
        "data": {
            "f": {
                "apply_labels": ["PII"], "allowed_actions": None, "denied_actions": ["export"],
                "retention": {"max_age_seconds": 5, "policy": "session", "delete_after": None},
            },
        },
    },
    "delegation": {"chain": [{"subject_id": "ann", "subject_type": "user"}], "depth": 1},
    "mcp": None,
    "completion": {
        "stop_reason": "end", "tokens": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "model": "m",
        "raw_format": None, "created_at": None, "latency_ms": 4,
    },
    "provenance": None,
    "llm": {"model_id": "m", "provider": "p", "capabilities": []},
    "framework": None,
    "meta": {"tags": ["t"], "scope": None, "properties": {"k": "v"}},
    "custom": {"own": 1},
}  # fmt: skip


@pytest.mark.spec("MSG-16")
def test_the_extensions_beside_the_message_are_read_with_it() -> None:
    message = from_cpex(body(), EXTENSIONS)

    assert message.extensions is not None
    assert message.extensions.model_dump() == {
        "request": {"environment": "prod", "request_id": "r"},
        "agent": {
            "input": "do",
            "session_id": "s",
            "turn": 0,
            "conversation": {
                "history": [
                    {
                        "role": "assistant",
                        "content": [{"content_type": "tool_call", "tool_call_id": "t", "name": "f", "arguments": {}}],
                    }
                ],
                "topics": ["a"],
            },
        },
        "http": {"headers": {"X-Trace": "t"}},
        "security": {
            "labels": ["PII"],
            "subject": {
                "id": "ann",
                "type": "user",
                "roles": ["r"],
                "permissions": [],
                "teams": [],
                "claims": {"iss": "x"},
            },
            "objects": {"f": {"permissions": ["p"]}},
            "data": {
                "f": {
                    "apply_labels": ["PII"],
                    "denied_actions": ["export"],
                    "retention": {"max_age_seconds": 5, "policy": "session"},
                }
            },
        },
        "completion": {
            "stop_reason": "end",
            "tokens": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            "model": "m",
            "latency_ms": 4,
        },
        "llm": {"model_id": "m", "provider": "p"},
        "meta": {"tags": ["t"], "properties": {"k": "v"}},
        "custom": {"own": 1, "cpex": {"delegation": EXTENSIONS["delegation"]}},
    }
    for wrong in ("x", {"nonsense": {}}, {"agent": {"conversation": {"history": ["x"]}}}):
        with pytest.raises(ShapeError) as caught:
            from_cpex(body(), wrong)
        assert caught.value.path.startswith("$.extensions")


@given(json_value, json_value)
def test_any_json_is_a_message_or_an_error_of_ours(document: Any, extensions: Any) -> None:
    for candidate in (document, body(document), body(part("prompt_result", messages=document))):
        try:
            message = from_cpex(candidate, extensions)
        except CmfError:
            continue
        assert Message.model_validate_json(message.model_dump_json()) == message
