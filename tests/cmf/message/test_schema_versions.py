"""Reading older schema versions into the current one."""

from __future__ import annotations

import json
import logging
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.strategies import base64_text, count, json_object, json_value, moment, name, text

from cmf import (
    SCHEMA_VERSION,
    Choice,
    ConversationContext,
    Message,
    OpaquePart,
    PromptResultPart,
    Request,
    Response,
    TextPart,
    iter_views,
)
from cmf.errors import CmfError, SchemaVersionError, ShapeError


def version_1(*blocks: Any, role: str = "assistant", **fields: Any) -> dict[str, Any]:
    return {"schema_version": 1, "role": role, "content": list(blocks), **fields}


def read(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return Message.model_validate(version_1(*blocks, **fields)).model_dump()


def refused(data: Any, of: Any = Message) -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        of.model_validate(data)
    return caught.value


NEWER = {"schema_version": 3, "role": "user", "content": []}


@pytest.mark.spec("EVO-1")
@pytest.mark.parametrize(
    ("of", "data", "path"),
    [
        (Message, NEWER, "$.schema_version"),
        (Request, {"messages": [{"role": "user", "content": []}, NEWER]}, "$.messages[1].schema_version"),
        (Response, {"choices": [{"message": NEWER}]}, "$.choices[0].message.schema_version"),
        (ConversationContext, {"history": [NEWER]}, "$.history[0].schema_version"),
        (
            Message,
            {
                "role": "user",
                "content": [{"content_type": "prompt_result", "prompt_name": "p", "messages": [NEWER]}],
            },
            "$.content[0].messages[0].schema_version",
        ),
    ],
)
def test_a_newer_version_is_refused_wherever_it_stands(of: Any, data: Any, path: str) -> None:
    error = refused(data, of)

    assert isinstance(error, SchemaVersionError)
    assert (error.path, error.code) == (path, "schema.too-new")
    assert "version 3 is newer than 2" in error.message


@pytest.mark.spec("EVO-1")
def test_no_message_claims_another_version_than_the_current_one() -> None:
    for version in (3, 10**6):
        with pytest.raises(SchemaVersionError):
            Message(role="user", content=[], schema_version=version)
    for version in (0, -1, 1, "2", True, 2.0, None):
        with pytest.raises(ShapeError):
            Message(role="user", content=[], schema_version=version)
    assert Message(role="user", content=[]).schema_version == SCHEMA_VERSION == 2


@pytest.mark.spec("EVO-6")
@pytest.mark.parametrize(
    ("data", "path"),
    [
        (version_1(role="robot"), "$.role"),
        ({**version_1(), "content": "text"}, "$.content"),
        ({"schema_version": 1, "role": "user"}, "$.content"),
        (version_1("text"), "$.content[0]"),
        (version_1({"text": "x"}), "$.content[0]"),
        (version_1({"type": 5}), "$.content[0]"),
        (version_1({"type": "text"}), "$.content[0].text"),
        (version_1({"type": "text", "text": 5}), "$.content[0].text"),
        (version_1({"type": "tool_use", "name": "f", "input": {}}), "$.content[0].id"),
        (version_1({"type": "tool_use", "name": "f", "id": "tu_1"}), "$.content[0].input"),
        (version_1({"type": "tool_use", "name": "f", "id": "tu_1", "input": [1]}), "$.content[0].arguments"),
        (version_1({"type": "tool_result", "content": []}), "$.content[0].tool_use_id"),
        (version_1({"type": "tool_result", "tool_use_id": "tu_1", "content": "x"}), "$.content[0].content"),
        (version_1({"type": "tool_result", "tool_use_id": "tu_1", "content": ["x"]}), "$.content[0].content[0]"),
        (version_1({"type": "image", "media_type": "image/png"}), "$.content[0].source"),
        (version_1({"type": "image", "media_type": "image/png", "source": {"kind": "url"}}), "$.content[0].source"),
        (
            version_1({"type": "image", "media_type": "image/png", "source": {"kind": "ftp", "data": "x"}}),
            "$.content[0].type",
        ),
        (version_1({"type": "image", "source": {"kind": "url", "data": "x"}}), "$.content[0].media_type"),
        (version_1(metadata=[1]), "$.metadata"),
        (version_1(metadata={"usage": 5}), "$.metadata.usage"),
        (version_1(metadata={"routing": "x"}), "$.metadata.routing"),
        (version_1(metadata={"status": "lost"}), "$.status"),
        (version_1(extensions={}), "$"),
        (version_1({"content_type": "text", "text": "x"}), "$.content[0]"),
    ],
)
def test_what_does_not_fit_version_1_is_refused_where_it_stands(data: dict[str, Any], path: str) -> None:
    assert refused(data).path == path


@pytest.mark.spec("EVO-2")
def test_each_block_becomes_its_part() -> None:
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "text", "text": "x"}, {"content_type": "text", "text": "x"}),
        (
            {"type": "thinking", "text": "x", "signature": "s"},
            {"content_type": "thinking", "text": "x", "signature": "s"},
        ),
        ({"type": "redacted_thinking", "data": "b"}, {"content_type": "redacted_thinking", "data": "b"}),
        (
            {"type": "tool_use", "id": "tu_1", "name": "f", "input": {"a": 1}},
            {"content_type": "tool_call", "tool_call_id": "tu_1", "name": "f", "arguments": {"a": 1}},
        ),
        (
            {"type": "image", "source": {"kind": "file_ref", "data": "a.png"}, "media_type": "image/png"},
            {"content_type": "image", "type": "file_ref", "data": "a.png", "media_type": "image/png"},
        ),
        (
            {
                "type": "tool_result",
                "tool_use_id": "tu_1",
                "is_error": True,
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image", "source": {"kind": "url", "data": "u"}, "media_type": "image/png"},
                ],
            },
            {
                "content_type": "tool_result",
                "tool_call_id": "tu_1",
                "content": [
                    {"content_type": "text", "text": "x"},
                    {"content_type": "image", "type": "url", "data": "u", "media_type": "image/png"},
                ],
                "is_error": True,
            },
        ),
    ]

    assert read(*(block for block, _ in blocks))["content"] == [part for _, part in blocks]
    assert read({"type": "tool_result", "tool_use_id": "tu_1", "content": []})["content"][0]["content"] == []


METADATA = {
    "model": "anthropic:claude-sonnet-4-6",
    "provider": "anthropic",
    "routing": {
        "mode": "rule",
        "chosen_model": "anthropic:claude-sonnet-4-6",
        "reason": "r",
        "rule_name": "n",
        "confidence": 0.5,
        "alternatives_considered": ["openai:gpt-5"],
    },
    "usage": {
        "input_tokens": 8,
        "output_tokens": 42,
        "cached_input_tokens": 2,
        "cache_creation_input_tokens": 1,
        "cost_usd": "0.000654",
        "pricing_version": "2026-05-08",
        "latency_ms": 820,
    },
    "status": "cancelled",
    "user_id": "u-1",
    "team_id": "t-1",
}


@pytest.mark.spec("EVO-2")
def test_each_fact_of_the_metadata_goes_to_its_one_home() -> None:
    message = Message.model_validate(
        version_1(id="m", session_id="s", created_at="2026-05-08T09:00:00.000001Z", metadata=METADATA)
    )

    assert message.model_dump() == {
        "role": "assistant",
        "content": [],
        "id": "m",
        "session_id": "s",
        "status": "cancelled",
        "created_at": "2026-05-08T09:00:00.000001Z",
        "extensions": {
            "llm": {"model_id": METADATA["model"], "provider": "anthropic"},
            "routing": METADATA["routing"],
            "completion": {
                "tokens": {
                    "input_tokens": 8,
                    "output_tokens": 42,
                    "total_tokens": 53,
                    "cached_input_tokens": 2,
                    "cache_creation_input_tokens": 1,
                },
                "cost_usd": "0.000654",
                "pricing_version": "2026-05-08",
                "latency_ms": 820,
            },
            "security": {"subject": {"id": "u-1", "teams": ["t-1"]}},
        },
    }
    assert message.extensions is not None
    assert message.extensions.completion is not None
    assert message.extensions.completion.cost_usd == Decimal("0.000654")
    assert "extensions" not in read(metadata={"model": None, "parent_tool_use_id": None})
    assert "extensions" not in read(metadata=None)


@pytest.mark.spec("EVO-2")
def test_the_answered_call_is_derived_and_another_one_is_kept() -> None:
    result = {"type": "tool_result", "tool_use_id": "tu_1", "content": []}

    same = Message.model_validate(version_1(result, role="tool", metadata={"parent_tool_use_id": "tu_1"}))
    other = read(result, role="tool", metadata={"parent_tool_use_id": "tu_2"})
    alone = read(role="tool", metadata={"parent_tool_use_id": "tu_2", "status": "partial"})

    assert same.parent_tool_use_id == "tu_1"
    assert same.extensions is None
    assert other["extensions"] == alone["extensions"] == {"custom": {"parent_tool_use_id": "tu_2"}}


@pytest.mark.spec("EVO-3")
def test_fields_unknown_to_version_1_are_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    metadata = {
        "model": "a:b",
        "mood": {"secret": "x"},
        "usage": {"input_tokens": 1, "reasoning_tokens": 5},
        "routing": {"mode": "rule", "chosen_model": "a:b", "reason": "r", "weight": 2},
    }
    with caplog.at_level(logging.WARNING):
        message = Message.model_validate(
            version_1(
                {"type": "video", "source": "v"},
                {"type": "text", "text": "x", "cache_control": {"k": 1}, "extra": 2},
                metadata=metadata,
            )
        )

    assert message.content[0] == OpaquePart(provider="metis", type="video", value={"type": "video", "source": "v"})
    assert message.content[1] == TextPart(text="x", extra={"metis": {"cache_control": {"k": 1}, "extra": 2}})
    assert message.extensions is not None
    assert message.extensions.custom == {
        "mood": {"secret": "x"},
        "usage": {"reasoning_tokens": 5},
        "routing": {"weight": 2},
    }
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == "unknown metadata kept in `custom`: mood, routing, usage"


@pytest.mark.spec("EVO-4")
@pytest.mark.parametrize(
    ("of", "data"),
    [
        (Message, {"role": "user", "content": [], "provider_raw": {"format": "x", "shape": {}}}),
        (Message, version_1(provider_raw={"smuggled": 1}, metadata={"provider_raw": {"smuggled": 1}})),
        (Request, {"messages": [{"role": "user", "content": [], "provider_raw": {"smuggled": 1}}]}),
        (Response, {"choices": [{"message": {"role": "assistant", "content": [], "provider_raw": 1}}]}),
    ],
)
def test_a_wire_layout_in_json_input_is_ignored(of: Any, data: dict[str, Any]) -> None:
    value = of.model_validate_json(json.dumps(data))

    assert "provider_raw" not in json.dumps(value.model_dump())
    assert "smuggled" not in json.dumps(value.model_dump())
    for message in [value] if of is Message else [*getattr(value, "messages", ()), *_answers(value)]:
        assert message.provider_raw is None


def _answers(value: Any) -> list[Message]:
    return [choice.message for choice in getattr(value, "choices", ())]


@pytest.mark.spec("EVO-4")
@pytest.mark.parametrize("of", [Request, Response, Message])
def test_a_layout_is_no_argument_and_no_field_of_an_envelope(of: Any) -> None:
    given_fields = {"role": "user", "content": []} if of is Message else {}
    with pytest.raises(ShapeError):
        of(**given_fields, provider_raw=None)
    if of is not Message:
        assert refused({"provider_raw": {"format": "x"}}, of).path == "$.provider_raw"


@pytest.mark.spec("EVO-2")
@pytest.mark.spec("EVO-5")
def test_old_messages_inside_other_values_are_read_too() -> None:
    old = version_1({"type": "text", "text": "x"})
    new = Message(role="assistant", content=[TextPart(text="x")])

    assert Request(messages=[old]) == Request(messages=[new])
    assert Response.model_validate({"choices": [{"message": old}]}) == Response(choices=[Choice(message=new)])
    assert PromptResultPart(prompt_name="p", messages=[old]).messages == (new,)
    assert ConversationContext(history=[old]).history == (new,)


blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": text}, optional={"x": json_value}),
    st.fixed_dictionaries({"type": st.just("thinking"), "text": text}, optional={"signature": st.none() | base64_text}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": text}),
    st.fixed_dictionaries({"type": st.just("tool_use"), "id": name, "name": name, "input": json_object}),
    st.fixed_dictionaries(
        {
            "type": st.just("image"),
            "media_type": name,
            "source": st.fixed_dictionaries(
                {"kind": st.sampled_from(["base64", "url", "file_ref"]), "data": base64_text}
            ),
        }
    ),
    st.fixed_dictionaries({"type": st.just("novel")}, optional={"x": json_value}),
)
results = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "tool_use_id": name, "content": st.lists(blocks, max_size=2)},
    optional={"is_error": st.booleans()},
)
metadatas = st.fixed_dictionaries(
    {},
    optional={
        "model": st.none() | text,
        "provider": text,
        "usage": st.fixed_dictionaries({"input_tokens": count, "output_tokens": count}, optional={"x": json_value}),
        "parent_tool_use_id": st.none() | name,
        "status": st.sampled_from(["complete", "partial", "cancelled", "error"]),
        "user_id": text,
        "team_id": text,
        "mood": json_value,
        "provider_raw": json_object,
    },
)
old_messages = st.fixed_dictionaries(
    {
        "schema_version": st.just(1),
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": st.lists(blocks | results, max_size=3),
    },
    optional={
        "id": name,
        "session_id": name,
        "metadata": st.none() | metadatas,
        "created_at": moment.map(lambda at: at.isoformat()),
    },
)


@pytest.mark.spec("EVO-5")
@given(old_messages)
def test_what_was_read_is_written_in_the_current_version_and_reads_back(old: dict[str, Any]) -> None:
    before = json.dumps(old)
    message = Message.model_validate(old)

    assert message.schema_version == SCHEMA_VERSION
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert Message.model_validate_json(json.dumps(old)) == message
    assert json.dumps(old) == before
    assert len([view for view in iter_views(message) if "." not in view.path]) == max(1, len(old["content"]))


@pytest.mark.spec("EVO-6")
@given(
    st.fixed_dictionaries(
        {"schema_version": st.just(1), "role": st.just("user"), "content": json_value | st.lists(json_value)},
        optional={"metadata": json_value, "id": json_value, "x": json_value},
    )
)
def test_any_object_that_says_version_1_is_a_message_or_an_error_of_ours(data: dict[str, Any]) -> None:
    error = _error_of(data)

    assert error is None or (error.path.startswith("$") and error.code)


def _error_of(data: dict[str, Any]) -> CmfError | None:
    try:
        Message.model_validate(data)
    except CmfError as error:
        return error
    return None
