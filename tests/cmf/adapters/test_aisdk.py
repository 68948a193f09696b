"""The AI SDK over recorded traffic; its bodies; content of other formats. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cmf.adapters.wire.loss import collecting
from cmf.enums import Role, StopReason
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict, same_spelling
from cmf.message.message import (
    ImagePart,
    Message,
    OpaquePart,
    RedactedThinkingPart,
    ResourcePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Choice, Request, Response, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition
from tests.cmf.adapters.aisdk_bodies import AISDK, PNG, STEP, read, shown, text, ui, written
from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.streams import unmarked


class TestWire(Proof):
    format_name = "aisdk"


@pytest.mark.spec("AISDK-1")
@pytest.mark.parametrize(
    "body",
    [
        {"messages": [ui(text("hi"), role="user")], "id": "c", "trigger": "submit-message", "messageId": None},
        {"messages": [], "model": "m", "tools": {"x": 1}},
        {"message": ui(text("hi"), role="user"), "id": "c"},
        [ui(text("hi"), role="user"), ui(text("hello"))],
        [],
    ],
)
def test_a_request_is_written_in_the_form_it_came_in(body: Any) -> None:
    request = AISDK.from_wire_request(body)

    assert same_spelling(AISDK.to_wire(request), body)


@pytest.mark.spec("AISDK-1")
def test_the_model_of_the_body_wins_and_one_from_the_path_is_not_written() -> None:
    assert AISDK.from_wire_request({"messages": [], "model": "m"}, model="n").model == "m"
    request = AISDK.from_wire_request({"messages": []}, model="n")
    assert request.model == "n"
    assert AISDK.to_wire(request) == {"messages": []}


@pytest.mark.spec("AISDK-1")
def test_a_body_without_messages_is_refused() -> None:
    for body in ({}, {"messages": "x"}, {"messages": [1]}, {"message": "x"}, "x", None, [None]):
        with pytest.raises(ShapeError):
            AISDK.from_wire_request(body)
    for body in ({"parts": []}, {"role": "user", "parts": "x"}):
        with pytest.raises(ShapeError):
            AISDK.from_wire_response(body)


@pytest.mark.spec("AISDK-1")
@pytest.mark.parametrize(
    "body", [{"error": "no"}, {"error": {"message": "no", "code": 5}}, {"error": None}, {"error": "no", "at": "x"}]
)
def test_an_error_body_is_a_response_with_an_error(body: dict[str, Any]) -> None:
    response = AISDK.from_wire_response(body)

    assert response.error is not None
    assert response.error.message in ("no", None)
    assert same_spelling(AISDK.to_wire_response(response), body)


@pytest.mark.spec("AISDK-2")
@pytest.mark.parametrize(
    "message",
    [
        ui(text("a"), text("b"), role="user", content="ab", createdAt="2025"),
        ui(text("a"), role="user", content="other"),
        {"role": "user", "content": "version 4"},
        {"role": "assistant", "content": "", "toolInvocations": [], "annotations": [{"x": "y"}], "id": None},
        {"role": "assistant", "parts": None, "id": "m1"},
        {"role": "assistant", "parts": []},
        ui(role="system", metadata={"a": [1.0, None]}),
    ],
)
def test_what_belongs_to_the_message_goes_back_as_it_came(message: dict[str, Any]) -> None:
    request = read(message, message)

    assert same_spelling(written(request), [message, message])
    assert all(json.dumps(key)[1:-1] in shown(request) for key in message if key not in ("role", "parts", "content"))


@pytest.mark.spec("AISDK-2")
def test_a_repeated_text_does_not_survive_a_redaction() -> None:
    request = read(ui(text("pin 1234"), role="user", content="pin 1234"))
    message = request.messages[0]
    edited = object.__new__(Message)
    for field in Message.__dataclass_fields__:
        object.__setattr__(edited, field, getattr(message, field))
    object.__setattr__(edited, "content", (TextPart(text="pin ****"),))

    assert written(request.model_copy(update={"messages": (edited,)})) == [
        ui(text("pin ****"), role="user", content="pin ****")
    ]


@pytest.mark.spec("AISDK-2")
def test_another_role_is_refused_and_so_are_parts_that_are_no_list() -> None:
    with pytest.raises(UnknownRoleError) as refused:
        read(ui(role="tool"))
    assert refused.value.path == "$.messages[0].role"
    for parts in ({"a": 1}, "text", 5):
        with pytest.raises(ShapeError):
            read({"role": "user", "parts": parts})


@pytest.mark.spec("AISDK-6")
def test_a_conversation_from_elsewhere_is_joined_by_answers() -> None:
    image = ImagePart(type="base64", data=PNG, media_type="image/png")
    request = Request(
        model="m",
        messages=(
            Message(role=Role.DEVELOPER, content=(TextPart(text="be brief"),)),
            Message(role=Role.USER, content=(ImagePart(type="url", data="https://a/b"),)),
            Message(
                role=Role.ASSISTANT,
                content=(
                    ThinkingPart(text="hm", signature="s"),
                    ToolCallPart(tool_call_id="c", name="t", arguments={}),
                ),
            ),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="c", content=(TextPart(text="a"), image)),)),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_name="u", is_error=True, content={"a": 1}),)),
            Message(role=Role.ASSISTANT, content=(TextPart(text="done"), RedactedThinkingPart(data="x"))),
        ),
        sampling=Sampling(temperature=0.5),
        reasoning_effort="low",
    )

    with collecting() as losses:
        body = AISDK.to_wire(request)

    assert [loss.block_type for loss in losses] == ["temperature", "reasoning_effort", "signature", "redacted_thinking"]
    assert body["model"] == "m"
    system, user, answer = body["messages"]
    assert system == {"id": "msg_0", "role": "system", "parts": [text("be brief")]}
    assert user["parts"] == [{"type": "file", "mediaType": "image/*", "url": "https://a/b"}]
    assert answer == {
        "id": "msg_2",
        "role": "assistant",
        "parts": [
            STEP,
            {"type": "reasoning", "text": "hm", "state": "done"},
            {
                "type": "tool-t", "toolCallId": "c", "state": "output-available", "input": {},
                "output": {"type": "content", "value": [
                    text("a"), {"type": "media", "data": PNG, "mediaType": "image/png"},
                ]},
            },
            {"type": "dynamic-tool", "toolName": "u", "toolCallId": "call_1", "state": "output-error",
             "errorText": '{"a":1}'},
            STEP,
            text("done", state="done"),
        ],
    }  # fmt: skip


@pytest.mark.spec("AISDK-6")
@pytest.mark.parametrize(
    "request_",
    [
        Request(tools=(ToolDefinition(name="t"),)),
        Request(tool_choice=ToolChoice(mode="none")),
        Request(response_schema=FrozenDict(type="object")),
        Request(response_schema=FrozenDict()),
        Request(messages=(Message(role=Role.USER, content=(ImagePart(type="file_ref", data="f"),)),)),
        Request(messages=(Message(role=Role.USER, content=(ResourcePart(uri="file:///a", content="x"),)),)),
        Request(messages=(Message(role=Role.SYSTEM, content=(ImagePart(type="url", data="https://a/b"),)),)),
        Request(messages=(Message(role=Role.TOOL, content=(
            ToolResultPart(content=(ImagePart(type="url", data="https://a/b"),)),
        )),)),
    ],
)  # fmt: skip
def test_what_the_sdk_cannot_say_is_refused(request_: Request) -> None:
    with pytest.raises(UnsupportedError):
        AISDK.to_wire(request_)


@pytest.mark.spec("AISDK-6")
def test_an_answer_from_elsewhere_streams_as_it_is_written() -> None:
    said = Message(role=Role.ASSISTANT, content=(TextPart(text="hi"), ToolCallPart(name="t", arguments_raw="{")))
    response = Response(choices=(Choice(message=said, stop_reason=StopReason.REFUSAL),))

    body = AISDK.to_wire_response(response)
    events = AISDK.to_wire_events(response)

    assert body["parts"][1] == {
        "type": "tool-t", "toolCallId": "call_1", "state": "input-available", "input": "{",
    }  # fmt: skip
    assert unmarked(AISDK.fold_events(events)) == body
    assert {"data": {"type": "finish", "finishReason": "content-filter"}} in events
    with pytest.raises(UnsupportedError):
        AISDK.to_wire_response(response.model_copy(update={"choices": response.choices * 2}))


@pytest.mark.spec("AISDK-6")
def test_a_message_of_which_nothing_is_left_is_left_out() -> None:
    opaque = OpaquePart(provider="gemini", type="odd", value={"x": 1})

    with collecting() as losses:
        messages = written(Request(messages=(Message(role=Role.USER, content=(opaque,)),)))

    assert messages == []
    assert [loss.block_type for loss in losses] == ["opaque"]
