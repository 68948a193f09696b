"""A stream is heard as it comes, and ends in the answer or in an error, never in both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cmf.adapters import FORMATS, get
from cmf.adapters.wire.stream import MessageComplete, StreamError, StreamEvent, TextDelta, ToolUseEnd
from cmf.enums import MessageStatus, StopReason
from cmf.errors import CmfError
from cmf.message.message import Message
from cmf.message.request import Choice, Response

CHAT = get("openai_chat")


def _chunk(delta: dict[str, Any], index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"data": {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}}


def _call(arguments: str, **more: Any) -> dict[str, Any]:
    return _chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments, **more}, "id": "c1"}]})


DONE = {"data": "[DONE]"}
SAID = Message.model_validate({"role": "assistant", "content": [{"content_type": "text", "text": "There."}]})
ANSWER = Response(choices=(Choice(message=SAID, stop_reason=StopReason.END),), model="m")


async def _arriving(events: list[Any]) -> AsyncIterator[Any]:
    for event in events:
        yield event


def _heard(*events: Any) -> list[StreamEvent]:
    async def collect() -> list[StreamEvent]:
        return [event async for event in CHAT.stream_response(_arriving(list(events)))]

    return asyncio.run(collect())


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    "events",
    [
        [],
        [_chunk({"content": "half"})],
        [_chunk({"content": "half"}), _chunk({}, finish="stop")],
        [_chunk({"content": "half"}), {"data": {"error": {"message": "overloaded", "code": 529}}}, DONE],
        [_call('{"to": "a@x', name="send")],
    ],
)
def test_a_stream_that_did_not_come_to_its_end_ends_in_an_error(events: list[Any]) -> None:
    said = _heard(*events)

    assert isinstance(said[-1], StreamError)
    assert said[-1].partial is not None
    assert not any(isinstance(event, MessageComplete | ToolUseEnd) for event in said)
    assert all(choice.message.status is MessageStatus.PARTIAL for choice in said[-1].partial.choices)


@pytest.mark.spec("STR-5", "OAC-25")
@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([_chunk({"role": "user", "content": "x"}), DONE], "shape.unknown-role"),
        ([_chunk({"content": "\ud800"}), DONE], "shape.lone-surrogate"),
        ([_chunk({"tool_calls": "f()"}), DONE], "shape.invalid"),
    ],
)
def test_what_cannot_be_read_ends_the_stream_with_the_code_of_the_refusal(events: list[Any], code: str) -> None:
    last = _heard(*events)[-1]

    assert isinstance(last, StreamError)
    assert last.error.type == code


@pytest.mark.spec("STR-1", "STR-3", "STR-4", "OAC-25")
def test_a_whole_stream_is_reported_in_order_and_ends_in_the_answer() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    said = _heard(
        {"comment": "processing"},
        _chunk({"role": "assistant", "reasoning": "hm"}),
        _chunk({"content": "He"}),
        _chunk({"content": "llo"}),
        _call("", name="send"),
        _call('{"to":'),
        _call('"a"}'),
        _chunk({}, finish="tool_calls"),
        {"data": {"id": "c", "choices": [], "usage": usage}},
        DONE,
    )

    assert [event.type for event in said] == [
        "thinking_delta",
        "text_delta",
        "text_delta",
        "tool_use_start",
        "tool_use_input_delta",
        "tool_use_input_delta",
        "tool_use_end",
        "usage_update",
        "message_complete",
    ]
    end, last = said[-3], said[-1]
    assert isinstance(end, ToolUseEnd)
    assert end.call.arguments == {"to": "a"}
    assert isinstance(last, MessageComplete)
    assert last.response.message.content[-1] == end.call


@pytest.mark.spec("STR-3", "OAC-15")
def test_interleaved_choices_are_separated() -> None:
    said = _heard(
        _chunk({"content": "a"}, 0),
        _chunk({"content": "x"}, 1),
        _chunk({"content": "b"}, 0),
        _chunk({"content": "y"}, 1),
        DONE,
    )

    texts = [
        "".join(event.text for event in said if isinstance(event, TextDelta) and event.choice == at) for at in (0, 1)
    ]

    assert texts == ["ab", "xy"]
    last = said[-1]
    assert isinstance(last, MessageComplete)
    assert [choice.message.content[0].text for choice in last.response.choices] == texts


@pytest.mark.spec("OAC-25")
@pytest.mark.parametrize(
    ("delta", "types"),
    [
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, ["thinking_delta"]),
        ({"content": [{"type": "text", "text": "4"}, "odd", {"type": "image_url"}]}, ["text_delta"]),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}, 5]}, ["thinking_delta"]),
        ({"refusal": "no"}, ["text_delta"]),
        (
            {"tool_calls": [{"type": "custom", "custom": {"name": "sh", "input": "ls"}}, 7]},
            ["tool_use_start", "tool_use_input_delta"],
        ),
        ({"content": 5}, ["text_delta"]),
        ({"reasoning": {}, "tool_calls": {}, "refusal": []}, []),
    ],
)
def test_each_shape_of_delta_says_what_it_brings(delta: dict[str, Any], types: list[str]) -> None:
    said = _heard(_chunk(delta), {"data": None}, {"data": {"choices": 5}})

    assert [event.type for event in said[:-1]] == types


@pytest.mark.spec("STR-5")
@pytest.mark.parametrize("name", FORMATS)
def test_a_list_of_events_is_reported_like_a_live_stream(name: str) -> None:
    """What `fold_events` takes, every adapter streams too."""

    async def collect(events: Any) -> list[StreamEvent]:
        return [event async for event in get(name).stream_response(events)]

    events = list(get(name).to_wire_events(ANSWER))

    assert asyncio.run(collect(events)) == asyncio.run(collect(_arriving(events)))
    assert asyncio.run(collect(iter(events)))[-1].type == "message_complete"


@pytest.mark.spec("STR-5")
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_event_or_nested_for_ever_is_an_error_and_no_exception(name: str) -> None:
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"a": deep}
    adapter = get(name)
    strange: list[Any] = [3, None, "text", [], {"data": deep}, {"data": {"choices": [{"delta": {"z": deep}}]}}]
    strange.append({"data": {"type": "response.function_call_arguments.delta", "delta": "x", "output_index": {}}})

    async def last(event: Any) -> StreamEvent:
        return [said async for said in adapter.stream_response([event])][-1]

    for event in strange:
        assert isinstance(asyncio.run(last(event)), StreamError), event
        with contextlib.suppress(CmfError):
            folded = adapter.from_wire_response(adapter.fold_events([event]))
            assert all(choice.message.status is not MessageStatus.COMPLETE for choice in folded.choices)
