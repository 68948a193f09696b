"""What a message is, and what it is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from cmf import (
    Channel,
    Choice,
    Extensions,
    FrozenDict,
    Message,
    MessageStatus,
    ProvenanceExtension,
    Request,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    adapters,
)
from cmf.errors import CmfError, ShapeError, UnknownRoleError


def refused(data: Any, of: Any = Message) -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        of.model_validate(data)
    return caught.value


@pytest.mark.spec("MSG-1")
@pytest.mark.parametrize(
    ("data", "path", "code"),
    [
        ({"content": []}, "$.role", "shape.missing"),
        ({"role": "user"}, "$.content", "shape.missing"),
        ({"role": "user", "content": None}, "$.content", "shape.tuple-type"),
        ({"role": "user", "content": "hi"}, "$.content", "shape.tuple-type"),
        ({"role": "user", "content": {"content_type": "text"}}, "$.content", "shape.tuple-type"),
        ({"role": "robot", "content": []}, "$.role", "shape.unknown-role"),
        ({"role": "User", "content": []}, "$.role", "shape.unknown-role"),
        ({"role": None, "content": []}, "$.role", "shape.enum"),
        ({"role": ["user"], "content": []}, "$.role", "shape.enum"),
        ([], "$", "shape.dataclass-type"),
        ("user", "$", "shape.dataclass-type"),
    ],
)
def test_a_message_needs_a_known_role_and_content(data: Any, path: str, code: str) -> None:
    error = refused(data)

    assert (error.path, error.code) == (path, code)


@pytest.mark.spec("MSG-1")
def test_an_unknown_role_is_an_error_of_its_own_wherever_it_stands() -> None:
    wrong = {"role": "robot", "content": []}

    assert isinstance(refused(wrong), UnknownRoleError)
    inner = refused({"messages": [wrong]}, Request)
    assert isinstance(inner, UnknownRoleError)
    assert inner.path == "$.messages[0].role"
    assert refused({"message": wrong}, Choice).path == "$.message.role"
    with pytest.raises(ShapeError):
        Message(role="robot", content=[])


@pytest.mark.spec("MSG-1")
@pytest.mark.parametrize("role", Role)
def test_role_and_content_are_enough(role: Role) -> None:
    message = Message(role=role, content=[])

    assert message.model_dump() == {"role": role.value, "content": []}
    assert Message.model_validate({"role": role.value, "content": []}) == message


@pytest.mark.spec("MSG-2")
def test_the_fields_and_their_defaults() -> None:
    bare = Message(role="user", content=[])
    full = Message(
        role="assistant",
        content=[TextPart(text="x")],
        id="m",
        session_id="s",
        parent_id="p",
        channel="final",
        status="partial",
        created_at="2026-05-08T11:00:00.000001+02:00",
        extensions=Extensions(provenance=ProvenanceExtension(source="user")),
        extra={"gemini": {"k": 1}},
    )

    assert (bare.id, bare.session_id, bare.parent_id, bare.channel, bare.created_at) == (None,) * 5
    assert (bare.extensions, bare.extra, bare.provider_raw) == (None, None, None)
    assert (bare.status, bare.schema_version) == (MessageStatus.COMPLETE, 2)
    assert full.model_dump() == {
        "role": "assistant",
        "content": [{"content_type": "text", "text": "x"}],
        "id": "m",
        "session_id": "s",
        "parent_id": "p",
        "channel": "final",
        "status": "partial",
        "created_at": "2026-05-08T09:00:00.000001Z",
        "extensions": {"provenance": {"source": "user"}},
        "extra": {"gemini": {"k": 1}},
    }
    assert Message.model_validate(full.model_dump()) == full


@pytest.mark.spec("MSG-2")
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("channel", "loud"),
        ("status", "done"),
        ("id", 5),
        ("session_id", ["s"]),
        ("created_at", "2026-05-08T09:00:00"),
        ("created_at", "2026-05-08"),
        ("created_at", "2026-05-08T09:00:00.1234567Z"),
        ("created_at", "yesterday"),
        ("created_at", 1_778_230_800),
        ("created_at", True),
        ("created_at", datetime(2026, 5, 8)),  # noqa: DTZ001
        ("extensions", []),
        ("extra", [1]),
        ("nickname", "x"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(field: str, wrong: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        Message(role="user", content=[], **{field: wrong})
    assert caught.value.path == f"Message.{field}"
    if not isinstance(wrong, datetime):
        assert refused({"role": "user", "content": [], field: wrong}).path == f"$.{field}"


@pytest.mark.spec("MSG-2")
@pytest.mark.parametrize(
    "given",
    [
        "2026-05-08T09:00:00Z",
        "2026-05-08T09:00:00.000000+00:00",
        "2026-05-08T09:00:00.0000000000Z",
        "2026-05-08T04:00:00-05:00",
        datetime(2026, 5, 8, 11, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_time_is_kept_in_utc_whatever_its_zone(given: Any) -> None:
    message = Message(role="user", content=[], created_at=given)

    assert message.created_at == datetime(2026, 5, 8, 9, tzinfo=UTC)
    assert message.model_dump()["created_at"] == "2026-05-08T09:00:00.000000Z"


@pytest.mark.spec("MSG-2")
@pytest.mark.parametrize("channel", Channel)
@pytest.mark.parametrize("status", MessageStatus)
def test_channels_and_statuses_are_closed_sets(channel: Channel, status: MessageStatus) -> None:
    message = Message(role="user", content=[], channel=channel.value, status=status.value)

    assert (message.channel, message.status) == (channel, status)


def test_what_a_tool_message_answers_is_derived() -> None:
    answer = Message(role="tool", content=[TextPart(text="x"), ToolResultPart(tool_call_id="c")])

    assert answer.parent_tool_use_id == "c"
    assert Message(role="tool", content=[]).parent_tool_use_id is None
    with pytest.raises((AttributeError, TypeError)):
        answer.parent_tool_use_id = "d"  # type: ignore[misc]


@pytest.mark.spec("MSG-10")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("\ud800", "shape.lone-surrogate"),
        ({"\udfff": 1}, "shape.lone-surrogate"),
        (float("nan"), "shape.not-finite"),
        (float("-inf"), "shape.not-finite"),
        ({1: "x"}, "shape.not-json"),
        ({None: "x"}, "shape.not-json"),
        (b"x", "shape.not-json"),
        ({1, 2}, "shape.not-json"),
        (object(), "shape.not-json"),
    ],
)
def test_what_is_no_strict_json_is_refused_at_any_depth(wrong: Any, code: str) -> None:
    holders = (
        lambda value: ToolCallPart(name="f", arguments={"a": [{"b": value}]}),
        lambda value: ToolResultPart(content=value),
        lambda value: TextPart(text="x", extra={"w": value}),
        lambda value: Message(role="user", content=[], extra={"w": value}),
        lambda value: Extensions(custom={"w": value}),
        lambda value: FrozenDict({"w": value}),
    )
    for holder in holders:
        with pytest.raises(CmfError) as caught:
            holder(wrong)
        assert (caught.value.code, bool(caught.value.hint)) == (code, True)


@pytest.mark.parametrize("body", [b'{"model": "m", "messages": []}', bytearray(b"{}"), memoryview(b"{}")])
def test_bytes_in_place_of_a_body_are_refused_with_what_reads_them(body: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        adapters.get("openai_chat").from_wire_request(body)
    assert "cmf.json.codec.loads" in caught.value.hint


@pytest.mark.spec("MSG-10")
def test_lone_surrogates_are_refused_in_every_text_field() -> None:
    for build in (
        lambda: TextPart(text="a\ud800"),
        lambda: Message(role="user", content=[], id="\udfff"),
        lambda: Extensions(custom={"k": ["\ud800"]}),
        lambda: Message.model_validate_json(b'{"role":"user","content":[],"id":"\\ud800"}'),
    ):
        with pytest.raises(CmfError) as caught:
            build()
        assert "\ud800" not in str(caught.value)
    assert TextPart(text="\U0001f600\u0000é").text == "\U0001f600\u0000é"


@pytest.mark.spec("MSG-10")
def test_sixty_four_levels_are_the_deepest() -> None:
    deep: Any = []
    for _ in range(62):
        deep = [deep]
    assert FrozenDict({"a": deep})["a"] == deep

    with pytest.raises(ShapeError) as caught:
        ToolCallPart(name="f", arguments={"a": [[deep]]})
    assert caught.value.code == "shape.too-deep"


@pytest.mark.spec("MSG-11")
def test_one_and_true_are_two_values_and_both_spellings_of_one_are_kept() -> None:
    def called(value: Any) -> ToolCallPart:
        return ToolCallPart(name="f", arguments={"a": [value]})

    assert called(1) != called(True)
    assert called(0) != called(False)
    assert called(1) == called(1.0)
    assert hash(called(1)) == hash(called(1.0))
    assert json.dumps(called(1.0).model_dump()["arguments"]) == '{"a": [1.0]}'
    assert json.dumps(called(1).model_dump()["arguments"]) == '{"a": [1]}'
    message = Message(role="assistant", content=[called(1.0), called(True), called(2**70)])
    again = Message.model_validate_json(message.model_dump_json())
    assert again.model_dump_json() == message.model_dump_json()
    assert b"[1.0]" in message.model_dump_json()
    assert str(2**70).encode() in message.model_dump_json()


@pytest.mark.spec("MSG-12")
@pytest.mark.parametrize(
    "data",
    [
        {"role": "s3cret", "content": []},
        {"role": "user", "content": [{"content_type": ["s3cret"]}]},
        {"role": "user", "content": [{"content_type": 53, "s3cret": 1}]},
        {"role": "user", "content": [{"content_type": "text", "text": ["s3cret"]}]},
        {"role": "user", "content": ["s3cret"]},
        {"role": "user", "content": [], "created_at": "s3cret"},
        {"role": "user", "content": [], "channel": "s3cret"},
        {
            "role": "tool",
            "content": [{"content_type": "tool_result", "content": [{"content_type": "text", "text": 1}]}],
        },
        {"role": "user", "content": [{"content_type": "image", "type": "s3cret", "data": "x"}]},
    ],
)
def test_an_error_names_the_place_and_never_the_content(data: Any) -> None:
    error = refused(data)

    assert "s3cret" not in str(error)
    assert "53" not in str(error)
    assert error.code.startswith("shape.")
    assert error.path.startswith("$.")
