"""Event streams of the Messages format. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import (
    MessageComplete,
    StreamError,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from cmf.enums import MessageStatus
from cmf.errors import ShapeError
from cmf.json.frozen import same_spelling
from cmf.message.request import ErrorInfo
from cmf.views.iterate import iter_views
from tests.cmf.adapters.messages_bodies import ADAPTER, CALLS, answered
from tests.cmf.adapters.streams import unmarked


def event(kind: str, **fields: Any) -> WireEvent:
    """One event as the provider frames it."""
    return {"event": kind, "data": {"type": kind, **fields}}


def start(**fields: Any) -> WireEvent:
    """The event that begins a message."""
    return event("message_start", message=answered(stop_reason=None, **fields))


def streamed(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[WireEvent]:
    """The events of one block."""
    return [
        event("content_block_start", index=index, content_block=begun),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


END = [
    event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
    event("message_stop"),
]
HI = streamed(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "h"}, {"type": "text_delta", "text": "i"})


def folded(*events: WireEvent) -> Any:
    """The fold of some events, which is checked to be written and streamed again alike."""
    body = ADAPTER.fold_events(events)
    response = ADAPTER.from_wire_response(body)
    assert same_spelling(ADAPTER.to_wire_response(response), unmarked(body))
    assert same_spelling(unmarked(ADAPTER.fold_events(ADAPTER.to_wire_events(response))), unmarked(body))
    return body


async def _heard(events: Sequence[WireEvent]) -> list[StreamEvent]:
    async def arriving() -> AsyncIterator[WireEvent]:
        for each in events:
            yield each

    return [each async for each in ADAPTER.stream_response(arriving())]


@pytest.mark.spec("ANT-26")
@pytest.mark.parametrize(
    "events",
    [
        [event("message_start", message={"content": ["x"]})],
        ["x"],
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(events: list[WireEvent]) -> None:
    with pytest.raises(ShapeError):
        ADAPTER.fold_events(events)
    assert type(asyncio.run(_heard(events))[-1]) is StreamError


@pytest.mark.spec("ANT-26")
@pytest.mark.parametrize(
    ("events", "content", "apart"),
    [
        (HI[1:], [{"type": "text", "text": "hi"}], []),
        ([{"data": {key: item for key, item in one["data"].items() if key != "index"}} for one in HI],
         [{"type": "text", "text": "hi"}], [{"type": "content_block_stop"}]),
        ([HI[0], HI[1], *HI], [{"type": "text", "text": "h"}, {"type": "text", "text": "hi"}], []),
        ([event("content_block_start", index="0", content_block={"type": "text", "text": "x"})],
         [{"type": "text", "text": "x"}], [{"type": "content_block_start", "index": "0"}]),
        ([event("content_block_delta", index=3, delta={"type": "input_json_delta", "partial_json": "{}"})], [],
         [{"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "{}"}}]),
        (streamed(0, {**CALLS[0], "input": {"x": 1}}, {"type": "input_json_delta", "partial_json": '{"x":2}'}),
         [{**CALLS[0], "input": {"x": 2}}], [{"input": {"x": 1}}]),
    ],
)  # fmt: skip
def test_blocks_that_hosts_announce_badly_are_read_all_the_same(
    events: list[WireEvent], content: list[Any], apart: list[Any]
) -> None:
    stream = [start(), *events, *END]

    body = folded(*stream)

    heard = asyncio.run(_heard(stream))
    assert (body["content"], body.get("cmf_events", [])) == (content, apart)
    assert "".join(each.text for each in heard if isinstance(each, TextDelta)) == "".join(
        block["text"] for block in content if block["type"] == "text"
    )
    assert isinstance(heard[-1], MessageComplete)


@pytest.mark.spec("ANT-21")
def test_a_stream_adds_up_to_its_message() -> None:
    cited = {"type": "char_location", "cited_text": "h"}

    body = folded(
        start(),
        event("ping"),
        *streamed(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *streamed(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "hi"},
            {"type": "citations_delta", "citation": cited},
        ),
        *streamed(
            2,
            {"type": "compaction", "content": None},
            {"type": "compaction_delta", "content": "sum", "encrypted_content": None},
        ),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn", "container": {"id": "c"}},
            usage={"output_tokens": 9},
            context_management={"applied_edits": []},
        ),
        END[1],
    )

    assert body == answered(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "hi", "citations": [cited]},
        {"type": "compaction", "content": "sum"},
        usage={"input_tokens": 1, "output_tokens": 9},
        container={"id": "c"},
        context_management={"applied_edits": []},
    )


@pytest.mark.spec("ANT-22")
@pytest.mark.parametrize(
    ("pieces", "begun", "found"),
    [
        ([], {}, {}),
        ([""], {}, {}),
        (["", '{"x"', ": 1.0}"], {}, {"x": 1.0}),
        (['{"x": '], {}, '{"x": '),
        (['{"x": 1, "x": 2}'], {}, '{"x": 1, "x": 2}'),
        (["[1]"], {}, "[1]"),
        (["{}"], None, {}),
        ([""], {"x": 1}, {"x": 1}),
    ],
)
def test_arguments_are_read_once_they_are_whole(pieces: list[str], begun: Any, found: Any) -> None:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]

    body = folded(start(), *streamed(0, {**CALLS[0], "input": begun}, *deltas), *END[1:])

    assert same_spelling(body["content"], [{**CALLS[0], "input": found}])


@pytest.mark.spec("ANT-23")
@pytest.mark.parametrize("length", range(6))
def test_a_stream_without_its_end_is_partial(length: int) -> None:
    body = folded(*[start(), *HI, *END][:length])

    assert ADAPTER.from_wire_response(body).message.status is MessageStatus.PARTIAL
    assert "cmf_partial" not in ADAPTER.to_wire_response(ADAPTER.from_wire_response(body))


@pytest.mark.spec("ANT-23")
def test_an_error_in_the_middle_makes_a_partial_message_with_it() -> None:
    broken = {"type": "overloaded_error", "message": "busy"}
    events = [start(), *HI, event("error", error=broken, request_id="req_1")]

    response = ADAPTER.from_wire_response(folded(*events))

    assert response.error == ErrorInfo(type="overloaded_error", message="busy")
    assert response.message.status is MessageStatus.PARTIAL
    assert "req_1" in str(response.extra)
    last = asyncio.run(_heard(events))[-1]
    assert type(last) is StreamError
    assert last.partial == response


@pytest.mark.spec("ANT-23")
def test_an_error_before_the_message_is_an_error() -> None:
    broken = event("error", error={"type": "overloaded_error", "message": "busy"}, request_id="req_1")

    assert folded(broken) == broken["data"]


@pytest.mark.spec("ANT-24")
@pytest.mark.parametrize(
    "odd",
    [
        event("brand_new", a="b"),
        event("ping", padding="b"),
        {"data": "b"},
        event("content_block_stop", index=0, more="b"),
        event("content_block_delta", index=0, delta={"type": "brand_new_delta", "a": "b"}),
        event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "b"}),
        event("message_delta", delta={"content": "b"}),
        event("message_delta", delta="b"),
        event("message_delta", delta={"stop_reason": "end_turn"}, stop_reason="b"),
        event("message_start", message="b"),
        event("message_stop", more="b"),
        event("error", error="b"),
        event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "b"}),
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "b"}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": ["b"]}),
        event("content_block_delta", index=0, delta="b"),
    ],
)
def test_what_has_no_place_is_judged_and_not_written_again(odd: WireEvent) -> None:
    body = folded(start(), *HI[:2], odd, *HI[2:], *END)

    response = ADAPTER.from_wire_response(body)
    assert body["cmf_events"] == [odd["data"]]
    assert body["content"] == [{"type": "text", "text": "hi"}]
    assert "'b'" in str([view.to_opa_input() for view in iter_views(response)])


@pytest.mark.spec("ANT-24")
@pytest.mark.parametrize("kind", ["message_start", "content_block_start", "content_block_delta", "message_stop"])
def test_what_a_host_adds_to_an_event_is_judged_and_the_event_still_counts(kind: str) -> None:
    events = [
        {**one, "data": {**one["data"], "hostMetrics": {"from": "b"}}} if one["event"] == kind else one
        for one in (start(), *HI, *END)
    ]

    body = folded(*events)

    response = ADAPTER.from_wire_response(body)
    assert response.choices[0].message.status is MessageStatus.COMPLETE
    assert body["content"] == [{"type": "text", "text": "hi"}]
    assert body["cmf_events"][0] == {"type": kind, "hostMetrics": {"from": "b"}}
    assert "'b'" in str([view.to_opa_input() for view in iter_views(response)])


@pytest.mark.spec("ANT-24")
@pytest.mark.parametrize(
    ("begun", "delta", "whole"),
    [
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": "i"}, {"text": "i"}),
        ({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "i"}, {"thinking": "i"}),
        ({"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "c2ln"}, {"signature": "c2ln"}),
        ({"type": "text", "text": ""}, {"type": "citations_delta", "citation": {"a": 1}}, {"citations": [{"a": 1}]}),
        ({"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "i"}, {"content": "i"}),
    ],
)
def test_what_a_delta_says_beside_its_own_field_is_judged_and_the_field_still_counts(
    begun: dict[str, Any], delta: dict[str, Any], whole: dict[str, Any]
) -> None:
    body = folded(start(), *streamed(0, begun, {**delta, "estimated_tokens": 50, "more": "b"}), *END)

    assert body["content"] == [{**begun, **whole}]
    assert body["cmf_events"] == [{"type": delta["type"], "estimated_tokens": 50, "more": "b"}]


@pytest.mark.spec("ANT-24")
@pytest.mark.parametrize(
    ("begun", "delta"),
    [
        ({"type": "text", "text": "hi", "citations": {}}, {"type": "citations_delta", "citation": {}}),
        ({"type": "text", "text": ["hi"]}, {"type": "text_delta", "text": "x"}),
        ({"type": "thinking", "thinking": "hm"}, {"type": "signature_delta", "signature": 1}),
        ({"type": ""}, {"text": "x"}),
        ({"type": "odd"}, {"type": "odd_delta", "odd": "x"}),
    ],
)
def test_a_delta_that_its_block_cannot_take_is_kept_apart(begun: dict[str, Any], delta: dict[str, Any]) -> None:
    events = [start(), *streamed(0, begun, delta), *END]

    body = folded(*events)

    assert body["content"] == [begun]
    assert body["cmf_events"] == [events[2]["data"]]


@pytest.mark.spec("ANT-24")
def test_a_signature_that_is_replaced_is_judged_too() -> None:
    signed = [{"type": "signature_delta", "signature": text} for text in ("Zmlyc3Q=", "c2Vjb25k")]

    body = folded(start(), *streamed(0, {"type": "thinking", "thinking": "", "signature": ""}, *signed), *END)

    assert body["content"][0]["signature"] == "c2Vjb25k"
    assert body["cmf_events"] == [{"signature": "Zmlyc3Q="}]


@pytest.mark.spec("ANT-25")
def test_a_second_start_goes_on_with_the_message() -> None:
    second = start(id="msg_2")

    body = folded(start(), *HI, *END, second, *HI, *END)

    assert [each["text"] for each in body["content"]] == ["hi", "hi"]
    assert body["id"] == "msg_2"
    assert {"id": "msg_1"} in body["cmf_events"]


@pytest.mark.spec("ANT-25")
def test_a_second_start_opens_the_message_again() -> None:
    body = folded(start(), *HI, *END, start())

    assert body["cmf_partial"] is True


@pytest.mark.spec("ANT-23", "ANT-25")
@pytest.mark.parametrize("at", range(1, 6))
def test_a_stop_and_a_start_spliced_in_do_not_make_what_came_before_whole(at: int) -> None:
    events = [start(), *HI, *END]
    spliced = [*events[:at], event("message_stop"), start(), *events[at:]]

    for length in range(len(spliced)):
        try:
            body = ADAPTER.fold_events(spliced[:length])
        except ShapeError:
            continue  # deltas of the block that the second start has closed
        assert body["cmf_partial"] is True
    assert type(asyncio.run(_heard(spliced[: at + 1]))[-1]) is StreamError


@pytest.mark.spec("ANT-23", "ANT-25")
def test_a_stop_before_its_time_is_judged_and_the_message_goes_on() -> None:
    body = folded(start(), *HI, event("message_stop"), start(), *HI, *END)

    assert [each["text"] for each in body["content"]] == ["hi", "hi"]
    assert body["cmf_events"] == [{"type": "message_stop"}]
    assert "cmf_partial" not in body


@pytest.mark.spec("ANT-23")
def test_a_message_that_begins_with_how_it_ends_is_whole_after_its_stop() -> None:
    whole = answered(content=[{**CALLS[0]}], stop_reason="tool_use")

    body = folded(event("message_start", message=whole), event("message_stop"))

    assert ADAPTER.from_wire_response(body).message.status is MessageStatus.COMPLETE
    assert same_spelling(body, whole)


@pytest.mark.spec("ANT-24")
def test_usage_of_another_shape_is_judged_where_counts_replace_it() -> None:
    body = folded(start(usage="metered elsewhere"), *HI, *END)

    assert body["usage"] == {"output_tokens": 9}
    assert body["cmf_events"] == [{"usage": "metered elsewhere"}]


@pytest.mark.spec("ANT-21")
def test_content_in_the_first_event_is_reported_too() -> None:
    begun = [{"type": "text", "text": "be"}, {**CALLS[0]}]
    stream = [start() | {"data": {"type": "message_start", "message": answered(*begun, stop_reason=None)}}, *HI, *END]

    heard = asyncio.run(_heard(stream))

    assert [each.text for each in heard if isinstance(each, TextDelta)] == ["be", "h", "i"]
    assert [each.name for each in heard if isinstance(each, ToolUseStart)] == ["do_a"]


def test_the_live_events_tell_text_thinking_and_calls() -> None:
    thinking = {"type": "thinking", "thinking": "h", "signature": ""}
    input_delta = {"type": "input_json_delta", "partial_json": '{"x":1}'}

    heard = asyncio.run(
        _heard(
            [
                start(),
                *streamed(
                    0,
                    thinking,
                    {"type": "thinking_delta", "thinking": "m"},
                    {"type": "signature_delta", "signature": "s"},
                ),
                *streamed(1, {"type": "text", "text": "he"}, {"type": "text_delta", "text": "y"}),
                *streamed(2, {**CALLS[0], "input": {}}, input_delta),
                *END,
            ]
        )
    )

    assert [each.text for each in heard if isinstance(each, ThinkingDelta)] == ["h", "m"]
    assert [each.text for each in heard if isinstance(each, TextDelta)] == ["he", "y"]
    assert [each for each in heard if isinstance(each, ToolUseStart | ToolUseInputDelta)] == [
        ToolUseStart(index=0, tool_call_id="a", name="do_a"),
        ToolUseInputDelta(index=0, received_chars=7),
    ]
    (end,) = [each for each in heard if isinstance(each, ToolUseEnd)]
    assert end.call.arguments == {"x": 1}
    assert isinstance(heard[-1], MessageComplete)


@pytest.mark.spec("ANT-21")
@pytest.mark.parametrize(
    ("blocks", "model", "kept"),
    [
        ([{"from": {"model": "first"}, "to": {"model": "second"}}], "second", None),
        ([{"from": {"model": "first"}, "to": {"model": "second"}},
          {"from": {"model": "second"}, "to": {"model": "third"}}], "third", None),
        ([{"to": {"model": "second"}}], "second", [{"model": "first"}]),
        ([{"from": {"model": "other"}, "to": {"model": "second"}}], "second", [{"model": "first"}]),
        ([{"from": {"model": "first"}, "to": "second"}], "first", None),
    ],
)  # fmt: skip
def test_the_model_of_a_message_is_the_one_that_took_over(blocks: list[Any], model: str, kept: Any) -> None:
    """As the whole response says it; what no block names of the models before is judged all the same."""
    handed = [each for at, block in enumerate(blocks) for each in streamed(at, {"type": "fallback", **block})]

    body = folded(start(model="first"), *handed, *streamed(5, {"type": "text", "text": "hi"}), *END)

    assert (body["model"], body.get("cmf_events")) == (model, kept)


@pytest.mark.spec("ANT-29", "STR-3")
def test_a_summary_is_heard_as_the_text_that_it_is() -> None:
    summary = streamed(0, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "So far. "})
    sealed = {"type": "compaction_delta", "content": "hidden", "encrypted_content": "E"}
    rest = streamed(1, {"type": "compaction", "content": None, "encrypted_content": None}, sealed)

    said = streamed(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Now."})

    heard = asyncio.run(_heard([start(), *summary, *rest, *said, *END]))

    assert [each.text for each in heard if isinstance(each, TextDelta)] == ["So far. ", "Now."]
