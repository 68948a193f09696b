"""Parts and messages of the AI SDK, both ways. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.frozen import same_spelling
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.message.request import Request
from tests.cmf.adapters.aisdk_bodies import AISDK, PNG, STEP, read, text, tool, ui, written

PARTS: list[tuple[dict[str, Any], type]] = [
    (text("a", state="done"), TextPart),
    (text("a", state="streaming", providerMetadata={"openai": {"itemId": "x"}}), TextPart),
    (text("a"), TextPart),
    ({"type": "text", "text": None}, OpaquePart),
    ({"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"signature": "s"}}}, ThinkingPart),
    ({"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}", "filename": "a"}, ImagePart),
    ({"type": "file", "mediaType": "image/png", "url": f"data:image/gif;base64,{PNG}"}, ImagePart),
    ({"type": "file", "mediaType": "video/mp4", "url": "https://a/b"}, VideoPart),
    ({"type": "file", "mediaType": "AUDIO/wav", "url": "https://a/b", "size": 3}, AudioPart),
    ({"type": "file", "mediaType": "application/pdf", "url": "https://a/b", "filename": "b"}, DocumentPart),
    ({"type": "file", "mediaType": "", "url": ""}, DocumentPart),
    ({"type": "file", "url": "https://a/b"}, OpaquePart),
    ({"type": "file", "mediaType": "a/b", "providerReference": "x"}, OpaquePart),
    ({"type": "source-url", "sourceId": "s", "url": "https://a/b"}, OpaquePart),
    ({"type": "data-weather", "data": {"a": 1}, "id": "d"}, OpaquePart),
    ({"type": "step-start", "odd": 1}, OpaquePart),
    ({"type": "hologram"}, OpaquePart),
    ({"type": "tool-", "toolCallId": "c", "state": "input-available", "input": {"a": 1}}, OpaquePart),
    ({"type": "dynamic-tool", "toolName": "", "toolCallId": "c", "input": {}}, OpaquePart),
    ({"type": 5}, OpaquePart),
    ({}, OpaquePart),
    (tool("input-available", input={"a": 1}), ToolCallPart),
    ({"type": "dynamic-tool", "toolName": "t", "toolCallId": "c", "state": "input-streaming"}, ToolCallPart),
    ({"type": "dynamic-tool", "toolCallId": "c", "state": "input-available"}, OpaquePart),
    ({"type": "tool-t", "state": "input-available"}, OpaquePart),
    (tool("input-available", input=[1]), ToolCallPart),
    (tool("input-available", input=[1.0, {"a": "b"}], title="T"), ToolCallPart),
    (tool("input-available", rawInput=False), ToolCallPart),
    (tool("input-available", input=0), ToolCallPart),
]


@pytest.mark.spec("AISDK-3")
@pytest.mark.parametrize(("part", "kind"), PARTS)
def test_each_part_is_its_canonical_part_and_goes_back(part: dict[str, Any], kind: type) -> None:
    for role in ("user", "assistant"):
        request = read(ui(part, role=role))

        assert type(request.messages[0].content[0]) is kind
        assert same_spelling(written(request), [ui(part, role=role)])
    response = AISDK.from_wire_response(ui(part))
    assert same_spelling(AISDK.to_wire_response(response), ui(part))


@pytest.mark.spec("AISDK-3")
def test_a_second_part_of_the_same_call_is_judged_as_a_whole() -> None:
    message = ui(tool("input-available", input={}), tool("output-available", input={}, output="x"))

    request = read(message)

    assert [type(part) for part in request.messages[0].content] == [ToolCallPart, OpaquePart]
    assert same_spelling(written(request), [message])


@pytest.mark.spec("AISDK-3")
def test_a_part_that_is_no_object_is_refused_with_its_path() -> None:
    with pytest.raises(ShapeError) as refused:
        read(ui(text("a"), "b"))  # type: ignore[arg-type]

    assert refused.value.path == "$.messages[0].parts[1]"


TOOLS: list[dict[str, Any]] = [
    tool("output-available", input={"a": 1}, output={"b": [2.0]}),
    tool("output-available", input={}, output=None),
    tool("output-available", input={}),
    tool("output-available", output=[1], providerExecuted=True, resultProviderMetadata={"x": {}}, preliminary=True),
    tool("output-available", input=None, output="", providerExecuted=False, callProviderMetadata={"x": {}}),
    tool("output-error", input={}, errorText="no"),
    tool("output-error", rawInput={"a": 1}, errorText="no"),
    tool("output-error", rawInput='{"a": 1}', errorText="no"),
    tool("output-error", input='{"a"', errorText=""),
    tool("output-error", input={}),
    tool("output-error", input={}, output="x", errorText="no"),
    tool("output-denied", input={}, approval={"id": "p", "approved": False, "reason": "no"}),
    tool("approval-requested", input={}, approval={"id": "p"}),
    tool("approval-responded", input={}, approval={"id": "p", "approved": True}, title="T", toolMetadata={"a": 1}),
    tool("odd-state", input={}, output="x"),
    tool("odd-state", input={}, errorText="x"),
    {"type": "tool-a.b-ü", "toolCallId": "c", "input": {}},
    {"type": "tool-look", "toolName": "look", "toolCallId": "c", "state": "input-available", "input": {}},
    {"type": "dynamic-tool", "toolName": "t", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1},
]


@pytest.mark.spec("AISDK-4")
@pytest.mark.parametrize("part", TOOLS)
def test_a_tool_part_is_a_call_and_its_result_and_one_again(part: dict[str, Any]) -> None:
    request, response = read(ui(part)), AISDK.from_wire_response(ui(part))

    assert same_spelling(written(request), [ui(part)])
    assert same_spelling(AISDK.to_wire_response(response), ui(part))
    has_result = "output" in part or "errorText" in part or part.get("state", "").startswith("output-")
    parts = [type(one) for message in request.messages for one in message.content]
    assert parts == ([ToolCallPart, ToolResultPart] if has_result else [ToolCallPart])
    assert [type(one) for one in response.message.content] == parts


@pytest.mark.spec("AISDK-4")
def test_call_and_result_say_who_ran_what() -> None:
    response = AISDK.from_wire_response(
        ui(tool("output-error", input="text", errorText="no", providerExecuted=True, callProviderMetadata={"a": {}}))
    )

    assert response.message.content == (
        ToolCallPart(
            tool_call_id="c1", name="look", arguments_raw="text", executed_by="provider",
            extra={"aisdk": {"callProviderMetadata": {"a": {}}}},
        ),
        ToolResultPart(tool_call_id="c1", tool_name="look", content="no", is_error=True, executed_by="provider"),
    )  # fmt: skip


@pytest.mark.spec("AISDK-4")
def test_an_edited_result_leaves_its_metadata_behind() -> None:
    part = tool("output-available", input={}, output="pin 1234", resultProviderMetadata={"echo": {"of": "pin 1234"}})
    request = read(ui(STEP, part))
    assistant, result = request.messages
    edited = result.model_copy(update={"content": (result.content[0].edited(content="pin ****"),)})

    body = AISDK.to_wire(request.model_copy(update={"messages": (assistant, edited)}))

    assert "1234" not in json.dumps(body)
    assert body["messages"][0]["parts"][-1] == tool("output-available", input={}, output="pin ****")


CONVERSATION = ui(
    STEP,
    text("let me see", state="done"),
    tool("output-available", input={"a": 1}, output="seen"),
    tool("output-available", input={}, output="found", name="search", call_id="c2", providerExecuted=True),
    STEP,
    STEP,
    tool("output-error", input={}, errorText="no", call_id="c3"),
    text("done", state="done"),
    STEP,
)


@pytest.mark.spec("AISDK-5")
def test_history_is_cut_into_the_messages_that_other_formats_know() -> None:
    request = read(ui(text("look"), role="user"), CONVERSATION)

    assert [(message.role, [type(part) for part in message.content]) for message in request.messages] == [
        (Role.USER, [TextPart]),
        (Role.ASSISTANT, [TextPart, ToolCallPart, ToolCallPart, ToolResultPart]),
        (Role.TOOL, [ToolResultPart]),
        (Role.ASSISTANT, [ToolCallPart, TextPart]),
        (Role.TOOL, [ToolResultPart]),
    ]
    assert same_spelling(written(request), [ui(text("look"), role="user"), CONVERSATION])


@pytest.mark.spec("AISDK-5")
def test_an_answer_stays_in_one_message() -> None:
    response = AISDK.from_wire_response(CONVERSATION)

    assert response.message.role is Role.ASSISTANT
    assert len(response.message.content) == 8
    assert same_spelling(AISDK.to_wire_response(response), CONVERSATION)


@pytest.mark.spec("AISDK-5")
def test_what_lost_its_layout_is_one_message_still() -> None:
    request = read(CONVERSATION)
    copied = tuple(message.model_copy(update={"channel": "final"}) for message in request.messages)

    (message,) = written(request.model_copy(update={"messages": copied}))

    assert [part["type"] for part in message["parts"]] == [
        "step-start", "text", "tool-look", "tool-search", "step-start", "tool-look", "text",
    ]  # fmt: skip
    assert message["parts"][2]["output"] == "seen"


@pytest.mark.spec("AISDK-5")
def test_a_message_that_is_taken_away_takes_its_parts_with_it() -> None:
    request = read(CONVERSATION)

    (message,) = written(request.model_copy(update={"messages": (request.messages[0], *request.messages[2:])}))

    assert message["parts"][2] == tool("input-available", input={"a": 1})
    (orphan,) = written(Request(messages=request.messages[1:2]))
    assert orphan["parts"][0]["output"] == "seen"


@pytest.mark.spec("AISDK-5")
def test_two_answers_without_ids_stay_two() -> None:
    messages = [{"role": "assistant", "parts": [text("a")]}, {"role": "assistant", "parts": [text("b")]}]

    assert same_spelling(written(read(*messages)), messages)


@pytest.mark.spec("AISDK-4")
@pytest.mark.parametrize(("beside", "arguments"), [({}, {}), ({"input": None}, {}), ({"input": {"a": 1}}, {"a": 1})])
def test_a_call_without_input_has_no_arguments(beside: dict[str, Any], arguments: Any) -> None:
    message = ui(tool("output-available", output=1, **beside))

    request = read(message)

    (part,) = request.messages[0].content
    assert isinstance(part, ToolCallPart)
    assert part.arguments == arguments
    assert written(request) == [message]
    (waiting,) = read(ui(tool("input-streaming", **{**beside, "input": None}))).messages[0].content
    assert isinstance(waiting, ToolCallPart)
    assert waiting.arguments is None
