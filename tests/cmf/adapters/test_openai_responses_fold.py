"""Streams of the Responses format: folded, streamed again, heard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import (
    MessageComplete,
    StreamError,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from cmf.enums import MessageStatus
from cmf.errors import ShapeError
from cmf.message.request import ErrorInfo
from tests.cmf.adapters.mediation import unseen_strings
from tests.cmf.adapters.responses_bodies import (
    ADAPTER,
    ITEMS,
    answer_body,
    events,
    heard,
    said,
    streamed,
)
from tests.cmf.adapters.streams import unmarked


def left_over(stream: Sequence[WireEvent]) -> list[Any]:
    body = ADAPTER.fold_events(stream)
    response = ADAPTER.from_wire_response(body)
    left: list[Any] = body.get("cmf_stream", {}).get("unfolded", [])
    assert unseen_strings(left, response, frozenset()) == []
    assert "cmf_" not in str(ADAPTER.to_wire_response(response))
    return left


@pytest.mark.spec("RSP-13")
def test_a_stream_folds_to_its_final_response_and_no_more() -> None:
    assert ADAPTER.fold_events(streamed("a", "b", final="ab")) == answer_body(said("ab"))


@pytest.mark.spec("RSP-13")
def test_streamed_items_are_the_output_where_the_final_response_has_none() -> None:
    stream = streamed("a", "b", final="ab")
    stream[-1]["data"]["response"]["output"] = []
    done = events({"type": "response.output_item.done", "output_index": 0, "item": said("ab")})

    body = ADAPTER.fold_events([*stream[:-1], *done, stream[-1]])

    assert body == answer_body(said("ab"))


@pytest.mark.spec("RSP-13")
def test_a_finished_item_without_content_gets_it_from_its_pieces() -> None:
    stream = streamed("a", "b", final="ab")
    stream[-1]["data"]["response"]["output"] = []
    bare = {key: value for key, value in said("ab").items() if key != "content"}
    done = events({"type": "response.output_item.done", "output_index": 0, "item": bare})

    response = ADAPTER.from_wire_response(ADAPTER.fold_events([*stream[:-1], *done, stream[-1]]))

    assert response.message.content[0].text == "ab"


@pytest.mark.spec("RSP-13")
def test_a_stream_without_an_end_folds_to_a_partial_answer() -> None:
    body = ADAPTER.fold_events(streamed("a", "b"))
    response = ADAPTER.from_wire_response(body)

    assert body["cmf_partial"] is True
    assert response.message.status is MessageStatus.PARTIAL
    assert response.message.content[0].text == "ab"
    assert "cmf_partial" not in ADAPTER.to_wire_response(response)
    assert isinstance(heard(streamed("a", "b"))[-1], StreamError)


@pytest.mark.spec("RSP-13")
@pytest.mark.parametrize("stream", [[], [{"comment": "x"}], [{"data": "[DONE]"}], [{"event": "x"}]])
def test_a_stream_that_says_nothing_is_partial(stream: list[WireEvent]) -> None:
    response = ADAPTER.from_wire_response(ADAPTER.fold_events(stream))

    assert response.message.status is MessageStatus.PARTIAL


@pytest.mark.spec("RSP-13")
def test_pieces_of_every_kind_are_put_together() -> None:
    def piece(kind: str, at: int, *texts: str, **place: Any) -> list[dict[str, Any]]:
        return [{"type": f"response.{kind}.delta", "output_index": at, "delta": text, **place} for text in texts]

    body = ADAPTER.fold_events(
        events(
            *piece("reasoning_summary_text", 0, "hm", summary_index=0),
            *piece("reasoning_text", 1, "hm", "m", content_index=0),
            *piece("function_call_arguments", 2, "{", "}"),
            *piece("custom_tool_call_input", 3, "select"),
            *piece("code_interpreter_call_code", 4, "1+1"),
            *piece("apply_patch_call_operation_diff", 5, "@@"),
            *piece("shell_call_command", 6, "l", "s", command_index=0),
            *piece("refusal", 7, "no", content_index=0),
            *piece("output_text", 8, "yes", content_index=7),
        )
    )

    assert body["output"][0] == {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert body["output"][2] == {"type": "function_call", "arguments": "{}"}
    assert body["output"][3] == {"type": "custom_tool_call", "input": "select"}
    assert body["output"][4] == {"type": "code_interpreter_call", "code": "1+1"}
    assert body["output"][5]["operation"]["diff"] == "@@"
    assert body["output"][6]["action"]["commands"] == ["ls"]
    assert body["output"][7]["content"] == [{"type": "refusal", "refusal": "no"}]
    assert body["output"][8]["content"] == [{"type": "output_text", "text": "yes"}]


@pytest.mark.spec("RSP-14")
def test_text_that_was_streamed_and_is_not_in_the_final_response_is_shown() -> None:
    left = left_over(streamed("the secret", " plan", final="nothing to see"))

    assert left == [{"output_index": 0, "at": "/content/0/text", "delta": "the secret plan"}]


@pytest.mark.spec("RSP-14")
@pytest.mark.parametrize(
    "stray",
    [
        {"type": "response.hologram.delta", "delta": "x", "output_index": 0},
        {"type": "response.output_text.delta", "delta": {"not": "text"}},
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "other"},
        {"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": "none"},
        {"type": "response.content_part.done", "output_index": 3, "content_index": 0, "part": {"type": "x"}},
        {"type": "response.output_item.done", "output_index": 0, "item": said("other")},
        {"type": "response.output_item.done", "output_index": 0, "item": None},
        {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {"url": "https://x"}},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_other"},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "msg_1", "news": "x"},
        {"type": "response.in_progress", "response": answer_body(instructions="others")},
        {"type": "response.completed", "response": "none"},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "",
         "logprobs": [{"token": "other"}]},
        {"type": "response.image_generation_call.partial_image", "output_index": 0, "partial_image_b64": "iVBO"},
    ],
)  # fmt: skip
def test_whatever_else_a_stream_says_is_shown_and_not_emitted(stray: dict[str, Any]) -> None:
    stream = streamed("ab", final="ab")
    stream[-1:-1] = events(stray)

    assert left_over(stream) != []


@pytest.mark.spec("RSP-14")
@pytest.mark.parametrize("data", ["plain text", ["x"], {"no": "type"}])
def test_data_that_is_no_event_is_shown(data: Any) -> None:
    assert left_over([*streamed("ab", final="ab"), {"data": data}]) == [data]


@pytest.mark.spec("RSP-14")
def test_padding_is_shown_as_what_it_is() -> None:
    stream = streamed("ab", final="ab")
    stream[2]["data"]["obfuscation"] = "x7Kq"

    body = ADAPTER.fold_events(stream)

    assert body["cmf_stream"] == {"unfolded": [], "padding": "x7Kq"}


@pytest.mark.spec("RSP-14", "RSP-15")
def test_what_is_streamed_again_is_what_the_body_says_and_no_more() -> None:
    item = ITEMS["reasoning"] | {"encrypted_content": "whole"}
    queued = answer_body(status="queued", service_tier="auto", reasoning={"summary": "auto"}, output=[])
    last = answer_body(item, service_tier="default", reasoning={"summary": None})
    delta = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": ""}
    body = ADAPTER.fold_events(
        events(
            {"type": "response.queued", "response": queued},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "encrypted_content": "begun"}},
            {**delta, "obfuscation": "x7Kq"},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "encrypted_content": "done"}},
            {"type": "response.completed", "response": last},
        )
    )
    assert len(body["cmf_stream"]["unfolded"]) == 3

    again = ADAPTER.to_wire_events(ADAPTER.from_wire_response(body))

    assert ADAPTER.fold_events(again) == unmarked(body)
    assert again == ADAPTER.to_wire_events(ADAPTER.from_wire_response(unmarked(body)))


@pytest.mark.spec("RSP-14")
def test_other_ids_of_the_same_item_are_kept_once() -> None:
    left = left_over(streamed("a", "b", final="ab", item_id="msg_other"))

    assert left == [{"type": "response.output_text.delta", "item_id": "msg_other"}]


def test_an_event_that_is_no_object_and_data_too_deep_are_refused() -> None:
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]

    for stream in ([1], [{"data": {"type": "x", "deep": deep}}]):
        with pytest.raises(ShapeError):
            ADAPTER.fold_events(stream)  # type: ignore[arg-type]  # hostile on purpose


@pytest.mark.spec("RSP-13")
def test_huge_indexes_do_not_blow_up_the_fold() -> None:
    stream = streamed("a")
    stream[-1]["data"] |= {"content_index": 2**70, "output_index": 2**70}

    assert len(ADAPTER.fold_events(stream)["output"]) == 2


@pytest.mark.spec("RSP-15")
@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "code": "server_error", "message": "broke", "param": None},
        {"type": "error", "error": {"code": "server_error", "message": "broke"}},
    ],
)
@pytest.mark.parametrize("before", [0, 4])
def test_an_error_event_ends_the_stream_in_an_error(error: dict[str, Any], before: int) -> None:
    stream = [*streamed("a", "b")[:before], *events(error)]

    response = ADAPTER.from_wire_response(ADAPTER.fold_events(stream))
    last = heard(stream)[-1]
    again = ADAPTER.fold_events(ADAPTER.to_wire_events(response))

    assert response.error is not None
    assert (response.error.message, response.error.code) == ("broke", "server_error")
    assert all(choice.message.status is MessageStatus.PARTIAL for choice in response.choices)
    assert isinstance(last, StreamError)
    assert unmarked(again) == ADAPTER.to_wire_response(response)
    assert ADAPTER.to_wire_events(response)[-1]["event"] == "error"


@pytest.mark.spec("ADP-9")
@pytest.mark.parametrize("kind", [{"a": "b"}, ["x"], 5])
def test_an_error_whose_type_is_no_text_is_one_too(kind: Any) -> None:
    response = ADAPTER.from_wire_response(
        ADAPTER.fold_events([{"data": {"type": kind, "error": {"message": "broke"}}}])
    )

    assert response.error is not None
    assert response.error.message == "broke"


def test_a_second_error_and_what_stands_beside_one_are_shown() -> None:
    error = {"type": "error", "error": {"message": "one"}, "hint": "two"}

    left = left_over([*streamed("a"), *events(error, {"type": "error", "message": "three"})])

    assert [each.get("hint") or each.get("message") for each in left if each["type"] == "error"] == ["three", "two"]


@pytest.mark.spec("RSP-13")
def test_a_failed_response_is_an_error_and_no_message() -> None:
    failed = answer_body(status="failed", error={"code": "server_error", "message": "broke"})
    stream = events({"type": "response.failed", "response": failed})

    response = ADAPTER.from_wire_response(ADAPTER.fold_events(stream))

    assert response.error == ErrorInfo(code="server_error", message="broke")
    assert isinstance(heard(stream)[-1], StreamError)
    assert ADAPTER.to_wire_events(response)[-1]["event"] == "response.failed"


@pytest.mark.spec("RSP-15")
def test_a_live_stream_gives_text_thinking_and_calls() -> None:
    body = answer_body(ITEMS["reasoning"], said("hello"), ITEMS["call"], ITEMS["custom call"])
    response = ADAPTER.from_wire_response(body)

    live = heard(ADAPTER.to_wire_events(response))

    assert "".join(event.text for event in live if isinstance(event, TextDelta)) == "hello"
    assert [event.text for event in live if isinstance(event, ThinkingDelta)] == ["first", "second"]
    starts = [(event.index, event.name, event.tool_call_id) for event in live if isinstance(event, ToolUseStart)]
    assert starts == [(0, "add", "call_1"), (1, "sql", "call_7")]
    assert [event.received_chars for event in live if isinstance(event, ToolUseInputDelta)] == [
        len(ITEMS["call"]["arguments"]),
        8,
    ]
    assert [event.call.name for event in live if isinstance(event, ToolUseEnd)] == ["add", "sql"]
    assert live[-1] == MessageComplete(response=response)


@pytest.mark.spec("RSP-15")
def test_text_that_comes_only_at_the_end_is_reported_then() -> None:
    terminal = events({"type": "response.completed", "response": answer_body(said("late"))})

    assert [event.text for event in heard(terminal) if isinstance(event, TextDelta)] == ["late"]


@pytest.mark.spec("RSP-15")
@pytest.mark.parametrize(
    ("ending", "output", "live"),
    [
        ([], said("hello"), ["hello"]),
        ([{"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "hello"}], said("hello"),
         ["hello"]),
        ([], None, ["llo"]),  # the final response leaves its items out
    ],
)  # fmt: skip
def test_a_resumed_stream_reports_its_whole_text(ending: list[Any], output: Any, live: list[str]) -> None:
    place = {"output_index": 0, "content_index": 0}
    stream = events(
        {"type": "response.output_text.delta", **place, "delta": "l"},
        {"type": "response.output_text.delta", **place, "delta": "lo"},
        *ending,
        {"type": "response.completed", "response": answer_body(*([output] if output else []))},
    )

    told = heard(stream)

    assert [event.text for event in told if isinstance(event, TextDelta)] == live
    assert isinstance(last := told[-1], MessageComplete)
    assert [part.text for part in last.response.message.content] == live


@pytest.mark.spec("RSP-15")
def test_text_of_events_without_an_index_is_reported_once() -> None:
    whole = ADAPTER.to_wire_events(ADAPTER.from_wire_response(answer_body(ITEMS["reasoning"], said("hello"))))
    spoken = ("response.output_text.delta", "response.output_text.done")
    stream = [
        {"data": {**each["data"], "output_index": None}} if each["data"]["type"] in spoken else each for each in whole
    ]

    assert [event.text for event in heard(stream) if isinstance(event, TextDelta)] == ["hello"]


@pytest.mark.spec("RSP-15")
def test_text_of_an_item_that_moved_in_the_final_response_is_reported_once() -> None:
    item = said("hello", id="msg_9")
    stream = events(
        {"type": "response.output_item.added", "output_index": 3, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "output_index": 3, "content_index": 0, "delta": "hello"},
        {"type": "response.completed", "response": answer_body(ITEMS["reasoning"], item)},
    )

    assert [event.text for event in heard(stream) if isinstance(event, TextDelta)] == ["hello"]


@pytest.mark.spec("RSP-13")
def test_a_cut_stream_without_a_response_comes_back_as_it_is() -> None:
    body = ADAPTER.fold_events([{"data": "gateway timeout"}])

    response = ADAPTER.from_wire_response(body)

    assert ADAPTER.to_wire_response(response) == unmarked(body) == {"output": []}
    assert unmarked(ADAPTER.fold_events(ADAPTER.to_wire_events(response))) == {"output": []}


@pytest.mark.spec("RSP-15")
def test_a_partial_answer_streams_without_an_end() -> None:
    response = ADAPTER.from_wire_response(ADAPTER.fold_events(streamed("a", "b")))

    again = ADAPTER.to_wire_events(response)

    assert {event["event"] for event in again}.isdisjoint({"response.completed", "error"})
    assert unmarked(ADAPTER.fold_events(again)) == ADAPTER.to_wire_response(response)
