"""Blocks, calls and details that few services send come back as they were, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    PromptResultPart,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.message.request import Choice, ErrorInfo, Request, Response, ToolChoice
from cmf.message.tools import ToolDefinition

CHAT = get("openai_chat")


def _through(message: dict[str, Any], **fields: Any) -> Any:
    body = {"model": "m", "messages": [message], **fields}
    request = CHAT.from_wire_request(body)
    assert CHAT.to_wire(request) == body
    return request


@pytest.mark.spec("OAC-3", "OAC-4")
@pytest.mark.parametrize(
    ("block", "part_type", "shown"),
    [
        ({"type": "refusal", "refusal": "no"}, TextPart, "no"),
        ({"type": "thinking", "thinking": "hm", "signature": "s"}, ThinkingPart, "hm"),
        ({"type": "image_url", "image_url": "https://x.example/a.png", "detail": "low"}, ImagePart, None),
        ({"type": "image_url", "image_url": {"url": "https://x.example/a.png", "detail": "low"}}, ImagePart, None),
        ({"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}}, VideoPart, None),
        ({"type": "input_audio", "input_audio": "https://x.example/a.wav"}, AudioPart, None),
        ({"type": "input_audio", "input_audio": "UklG"}, AudioPart, None),
        ({"type": "input_audio", "input_audio": {"data": "UklG", "speed": 2}}, AudioPart, None),
        ({"type": "document_url", "document_url": "https://x.example/a.pdf", "document_name": "a"}, DocumentPart, None),
        ({"type": "file", "file": {"file_data": "JVBERi0=", "note": None}}, DocumentPart, None),
        ({"type": "file", "file": {"file_data": "https://x.example/a.pdf"}}, DocumentPart, None),
        ({"type": "text", "text": None}, OpaquePart, None),
        ({"type": "refusal", "refusal": 5}, OpaquePart, None),
        ({"type": "thinking", "thinking": ["hm"]}, OpaquePart, None),
        ({"type": "thinking", "thinking": [{"type": "text", "text": 5}]}, OpaquePart, None),
        ({"type": "input_audio", "input_audio": {"format": "wav"}}, OpaquePart, None),
        ({"type": "input_audio", "input_audio": None}, OpaquePart, None),
        ({"type": "image_url", "image_url": {}}, OpaquePart, None),
        ({"type": "file", "file": {}}, OpaquePart, None),
        ({"type": "document_url", "document_url": {}}, OpaquePart, None),
    ],
)
def test_a_block_comes_back_as_it_was(block: dict[str, Any], part_type: type, shown: str | None) -> None:
    part = _through({"role": "user", "content": [block, {"type": "text", "text": "x"}]}).messages[0].content[0]

    assert type(part) is part_type
    assert shown is None or part.text == shown


@pytest.mark.spec("OAC-3")
@pytest.mark.parametrize("content", [["text"], [None], [[]]])
def test_a_block_that_is_no_object_is_refused(content: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        CHAT.from_wire_request({"messages": [{"role": "user", "content": content}]})
    assert caught.value.path == "$.messages[0].content[0]"


@pytest.mark.spec("OAC-6", "OAC-7")
@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_details": [{"type": "reasoning.unheard", "blob": "x"}]},
        {"reasoning_details": ["odd", {"type": "reasoning.text", "text": "x"}]},
        {"reasoning_details": [{"type": "reasoning.text", "signature": "s"}]},
        {"audio": {"id": "audio_1"}},
        {"audio": {"expires_at": 5}},
        {"audio": {"id": "audio_1", "data": "UklG", "transcript": "hi"}},
        {"function_call": {"name": "f", "arguments": "{", "note": 1}},
        {"function_call": {"arguments": "{}"}},
        {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]},
        {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
        {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "note": "x"}}]},
        {"tool_calls": [{"id": "c", "type": "function", "custom": {"name": "f", "input": "x", "note": "x"}}]},
        {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f"}}]},
        {"tool_calls": [{"id": 5, "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ],
)
def test_what_stands_beside_the_content_comes_back_as_it_was(fields: dict[str, Any]) -> None:
    _through({"role": "assistant", "content": "x", **fields})


@pytest.mark.spec("OAC-9", "OAC-10")
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": 5, "schema": {}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": True}, "note": 1}},
        {"stop": ["a", 5]},
        {"stop": []},
        {"tool_choice": 5},
        {"tools": [{"type": "odd", "function": {"name": "f"}}]},
        {"tools": [{"function": {"name": "f", "description": None}}]},
        {"tools": [{"type": "web_search", "function": {"note": "no name"}}]},
        {"max_tokens": 5, "max_completion_tokens": 6},
        {"temperature": "1"},
    ],
)
def test_a_field_of_the_request_comes_back_as_it_was(fields: dict[str, Any]) -> None:
    _through({"role": "user", "content": "x"}, **fields)


@pytest.mark.spec("OAC-9")
def test_a_schema_of_the_answer_is_named_where_it_has_no_name() -> None:
    written = CHAT.to_wire(Request(response_schema=FrozenDict({"type": "object"})))

    assert written["response_format"]["json_schema"] == {"name": "response", "schema": {"type": "object"}}


@pytest.mark.spec("OAC-17")
def test_foreign_fields_of_calls_tools_messages_and_envelopes_are_dropped_with_a_record() -> None:
    foreign = FrozenDict({"gemini": {"thoughtSignature": "s"}})
    call = ToolCallPart(tool_call_id="c", name="f", extra=foreign)
    result = ToolResultPart(tool_call_id="c", content=FrozenDict({"a": 1}), extra=foreign)
    request = Request(
        messages=(
            Message(role=Role.ASSISTANT, content=(call,), extra=foreign),
            Message(role=Role.TOOL, content=(result,)),
        ),
        tools=(ToolDefinition(name="f", extra=foreign),),
        extra=foreign,
    )

    with collecting() as losses:
        written = CHAT.to_wire(request)

    assert "thoughtSignature" not in str(written)
    assert sorted(loss.block_type for loss in losses) == [
        "message",
        "request",
        "tool_call",
        "tool_definition",
        "tool_result",
    ]
    assert written["messages"][1]["content"] == '{"a":1}'


@pytest.mark.spec("OAC-17")
def test_a_foreign_reply_drops_its_own_fields_and_keeps_its_usage() -> None:
    foreign = FrozenDict({"anthropic_messages": {"container": "c"}})
    message = Message(role=Role.ASSISTANT, content=(TextPart(text="x"),))
    usage = TokenUsage(input_tokens=1, output_tokens=2, cached_input_tokens=3)
    response = Response(choices=(Choice(message=message),), usage=usage, model="claude", extra=foreign)

    with collecting() as losses:
        written = CHAT.to_wire_response(response)

    assert [loss.block_type for loss in losses] == ["response"]
    assert (written["model"], written["object"]) == ("claude", "chat.completion")
    assert written["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 2,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


@pytest.mark.spec("OAC-14")
def test_a_foreign_error_is_an_error_object() -> None:
    error = ErrorInfo(message="no", type="overloaded_error")

    assert CHAT.to_wire_response(Response(error=error)) == {"error": {"message": "no", "type": "overloaded_error"}}


@pytest.mark.spec("OAC-16")
def test_a_result_and_a_text_in_one_message_are_two_messages() -> None:
    message = Message(role=Role.USER, content=(ToolResultPart(tool_call_id="c", content="1"), TextPart(text="go on")))
    alone = Message(role=Role.TOOL, content=(TextPart(text="out"),))

    written = CHAT.to_wire(Request(messages=(message, alone)))["messages"]

    assert written == [
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "user", "content": "go on"},
        {"role": "tool", "tool_call_id": "call_1", "content": "out"},
    ]


@pytest.mark.spec("OAC-10")
def test_a_foreign_tool_choice_is_spelled_plainly() -> None:
    request = Request(tool_choice=ToolChoice(mode="tool", name="f"), reasoning_effort="low")

    written = CHAT.to_wire(request)

    assert written["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert written["reasoning_effort"] == "low"


@pytest.mark.spec("OAC-18")
@pytest.mark.parametrize(
    "part",
    [PromptResultPart(prompt_name="p", content="x"), ImagePart(type="base64", data="AAAA")],
)
def test_a_part_that_no_block_can_say_is_refused(part: Any) -> None:
    with pytest.raises(UnsupportedError):
        CHAT.to_wire(Request(messages=(Message(role=Role.USER, content=(part,)),)))


@pytest.mark.spec("OAC-4")
def test_a_foreign_sound_and_document_are_sent_as_data() -> None:
    sound = AudioPart(type="base64", data="SUQz", media_type="audio/mpeg")
    document = DocumentPart(type="base64", data="JVBE", media_type="application/pdf", title="a.pdf")

    written = CHAT.to_wire(Request(messages=(Message(role=Role.USER, content=(sound, document)),)))

    assert written["messages"][0]["content"] == [
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
    ]
