"""What chat completions say of values that came from another format, and what they drop or refuse."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role, StopReason
from cmf.errors import LossyProjectionError, UnsupportedError
from cmf.json.frozen import FrozenDict
from cmf.message.message import (
    AudioPart,
    Extensions,
    ImagePart,
    Message,
    MetaExtension,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    ResourcePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.message.request import Choice, Request, Response
from cmf.message.tools import ToolDefinition

CHAT = get("openai_chat")


def _reply(message: dict[str, Any], finish: str | None = "stop", **fields: Any) -> Response:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return CHAT.from_wire_response({"id": "c", "object": "chat.completion", "choices": [choice], **fields})


def _asked(*parts: Part, role: Role = Role.USER, **fields: Any) -> Request:
    return Request(messages=(Message(role=role, content=parts, **fields),))


def _answered(*parts: Part, stop: StopReason = StopReason.END) -> Any:
    message = Message(role=Role.ASSISTANT, content=parts)
    return CHAT.to_wire_response(Response(choices=(Choice(message=message, stop_reason=stop),)))["choices"][0]


@pytest.mark.spec("OAC-16")
def test_calls_and_results_without_ids_are_paired_in_order() -> None:
    calls = Message(role=Role.ASSISTANT, content=(ToolCallPart(name="a"), ToolCallPart(name="b")))
    results = [Message(role=Role.TOOL, content=(ToolResultPart(content=text),)) for text in ("1", "2")]

    written = CHAT.to_wire(Request(messages=(calls, *results)))["messages"]

    assert [call["id"] for call in written[0]["tool_calls"]] == ["call_1", "call_2"]
    assert [(result["tool_call_id"], result["content"]) for result in written[1:]] == [("call_1", "1"), ("call_2", "2")]


@pytest.mark.spec("OAC-17", "ADP-10")
@pytest.mark.parametrize(
    "part",
    [
        ThinkingPart(text="hm", signature="sig"),
        RedactedThinkingPart(data="blob"),
        OpaquePart(provider="gemini", type="executableCode", value=FrozenDict({"code": "1"})),
        ToolCallPart(name="web_search", executed_by="provider"),
        ToolResultPart(content="found", executed_by="provider"),
    ],
)
def test_what_only_its_own_provider_understands_is_dropped_with_a_record(part: Part) -> None:
    with collecting() as losses:
        written = CHAT.to_wire(_asked(TextPart(text="x"), part, role=Role.ASSISTANT, id="m1", session_id="s1"))

    assert written["messages"] == [{"role": "assistant", "content": "x"}]
    assert [(loss.session_id, loss.message_id, loss.adapter) for loss in losses] == [("s1", "m1", "openai_chat")]


@pytest.mark.spec("ADP-11")
def test_nothing_of_a_critical_message_is_dropped() -> None:
    critical = Extensions(meta=MetaExtension(properties=FrozenDict({"critical": True})))

    with pytest.raises(LossyProjectionError):
        CHAT.to_wire(_asked(ThinkingPart(text="hm"), role=Role.ASSISTANT, extensions=critical))


@pytest.mark.spec("OAC-17")
def test_fields_and_flags_of_another_format_are_dropped_with_a_record() -> None:
    marked = TextPart(text="x", extra=FrozenDict({"anthropic_messages": {"cache_control": {"type": "ephemeral"}}}))
    failed = Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="c", content="boom", is_error=True),))

    with collecting() as losses:
        written = CHAT.to_wire(Request(messages=(Message(role=Role.USER, content=(marked,)), failed)))

    assert written["messages"][0] == {"role": "user", "content": "x"}
    assert [loss.block_type for loss in losses] == ["text", "tool_result"]


@pytest.mark.spec("OAC-18", "ADP-10")
@pytest.mark.parametrize(
    "part",
    [
        ImagePart(type="file_ref", data="file-1"),
        VideoPart(type="url", data="https://x.example/v.mp4"),
        AudioPart(type="url", data="https://x.example/a.wav"),
        ResourcePart(uri="file:///a", blob=b"x"),
    ],
)
def test_what_would_change_the_meaning_if_dropped_is_refused(part: Part) -> None:
    with pytest.raises(UnsupportedError):
        CHAT.to_wire(_asked(part))


@pytest.mark.spec("OAC-18", "ADP-10")
def test_a_resource_is_written_as_its_text() -> None:
    resource = ResourcePart(uri="file:///a", content="x")
    with collecting() as losses:
        written = CHAT.to_wire(_asked(TextPart(text="look:"), resource))

    assert written["messages"][0]["content"] == [{"type": "text", "text": "look:"}, {"type": "text", "text": "x"}]
    assert [loss.block_type for loss in losses] == ["resource_address"]


@pytest.mark.spec("OAC-18")
@pytest.mark.parametrize(
    "tool",
    [
        ToolDefinition(name="web_search", type="web_search_20250305", executed_by="provider"),
        *(
            get("openai_responses").from_wire_request({"model": "m", "input": "hi", "tools": [tool]}).tools[0]
            for tool in (
                {"type": "web_search"},
                {"type": "mcp", "server_label": "h", "server_url": "https://h.example"},
            )
        ),
    ],
    ids=["messages", "responses", "a server that only its fields name"],
)
@pytest.mark.parametrize("name", ["openai_chat", "openrouter"])
def test_a_tool_that_another_provider_runs_is_refused(tool: ToolDefinition, name: str) -> None:
    with pytest.raises(UnsupportedError):
        get(name).to_wire(Request(tools=(tool,)))


@pytest.mark.spec("OAC-19")
def test_a_reply_of_another_format_has_one_text_and_its_thinking() -> None:
    message = _answered(ThinkingPart(text="hm", signature="s"), TextPart(text="a"), TextPart(text="b"))["message"]

    assert message == {"role": "assistant", "content": "ab", "reasoning_content": "hm"}


@pytest.mark.spec("OAC-19")
@pytest.mark.parametrize(
    "content",
    [
        [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "4"}],
        [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}],
        [{"type": "image_url", "image_url": "https://a/b.png"}],
        [{"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}],
        [{"type": "reference", "reference_ids": [1]}],
        [],
    ],
)
def test_a_reply_that_came_as_a_list_goes_out_as_one(content: Any) -> None:
    response = _reply({"role": "assistant", "content": content})
    streamed = CHAT.fold_events(CHAT.to_wire_events(response))

    assert CHAT.to_wire_response(response)["choices"][0]["message"]["content"] == content
    assert streamed["choices"][0]["message"]["content"] == content


def test_the_call_goes_to_the_one_path() -> None:
    call = CHAT.to_http(Request())

    assert (call.method, call.path) == ("POST", "/v1/chat/completions")


def test_tokens_are_estimated_from_all_text() -> None:
    image = ImagePart(type="base64", data="A" * 40_000, media_type="image/png")
    tool = ToolDefinition(name="f", description="d" * 400, input_schema=FrozenDict({}))
    message = Message(role=Role.USER, content=(TextPart(text="w" * 400), image))

    estimate = CHAT.estimate_input_tokens(Request(messages=(message,), tools=(tool,)))

    assert 1_200 < estimate < 1_300
