"""What an answer of the Responses format means, and an error."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters.wire.loss import collecting
from cmf.enums import MessageStatus, StopReason
from cmf.errors import ShapeError
from cmf.json.value import replace
from cmf.message.message import ImagePart, OpaquePart, TextPart, ThinkingPart, TokenUsage, ToolCallPart
from cmf.message.request import ErrorInfo, Response
from cmf.views.iterate import iter_views
from tests.cmf.adapters.responses_bodies import (
    ADAPTER,
    FORMAT,
    ITEMS,
    TOOLS,
    answer_body,
    assert_lossless_answer,
    foreign_answer,
    said,
)


@pytest.mark.spec("RSP-11")
@pytest.mark.parametrize(
    ("fields", "stop", "status"),
    [
        ({"status": "completed"}, StopReason.END, MessageStatus.COMPLETE),
        ({"status": "complete"}, StopReason.END, MessageStatus.COMPLETE),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            StopReason.MAX_TOKENS,
            MessageStatus.COMPLETE,
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            StopReason.CONTENT_FILTER,
            MessageStatus.COMPLETE,
        ),
        ({"status": "incomplete", "incomplete_details": None}, StopReason.OTHER, MessageStatus.COMPLETE),
        ({"status": "failed", "error": {"code": "x", "message": "y"}}, StopReason.ERROR, MessageStatus.ERROR),
        ({"status": "cancelled"}, StopReason.OTHER, MessageStatus.CANCELLED),
        ({"status": "queued"}, None, MessageStatus.PARTIAL),
        ({"status": "in_progress"}, None, MessageStatus.PARTIAL),
        ({"status": "unheard of"}, StopReason.OTHER, MessageStatus.COMPLETE),
        ({"status": None}, StopReason.END, MessageStatus.COMPLETE),
    ],
)
def test_the_status_tells_why_an_answer_ended(
    fields: dict[str, Any], stop: StopReason | None, status: MessageStatus
) -> None:
    response = assert_lossless_answer(answer_body(said("x"), **fields))

    assert (response.choices[0].stop_reason, response.message.status) == (stop, status)


@pytest.mark.spec("RSP-11")
@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", StopReason.MAX_TOKENS), ("brand new", StopReason.OTHER), (7, StopReason.END)],
)
def test_without_a_status_the_details_tell_why_an_answer_ended(reason: Any, stop: StopReason) -> None:
    body = answer_body(said("x"), incomplete_details={"reason": reason})
    del body["status"]

    response = assert_lossless_answer(body)

    assert (response.choices[0].stop_reason, response.choices[0].raw_stop_reason) == (stop, None)


@pytest.mark.spec("RSP-11")
def test_calls_and_refusals_are_stop_reasons_of_their_own() -> None:
    refusal = said("", content=[{"type": "refusal", "refusal": "no"}])

    assert assert_lossless_answer(answer_body(ITEMS["call"])).choices[0].stop_reason is StopReason.CALL
    assert assert_lossless_answer(answer_body(refusal)).choices[0].stop_reason is StopReason.REFUSAL


@pytest.mark.spec("RSP-11")
def test_an_answer_edited_by_policy_is_written_with_a_status_that_fits() -> None:
    body = answer_body(said("x"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    response = ADAPTER.from_wire_response(body)
    choice = replace(response.choices[0], stop_reason=StopReason.CONTENT_FILTER)
    ended = replace(response.choices[0], stop_reason=StopReason.END)

    filtered = ADAPTER.to_wire_response(replace(response, choices=(choice,)))
    completed = ADAPTER.to_wire_response(replace(response, choices=(ended,)))

    assert (filtered["status"], filtered["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert (completed["status"], completed["incomplete_details"]) == ("completed", None)


@pytest.mark.spec("RSP-12")
def test_the_summary_beside_the_items_follows_an_edit_of_them() -> None:
    response = assert_lossless_answer(answer_body(said("secret"), output_text="secret"))
    part = response.message.content[0]
    edited = replace(response.message, content=(part.edited(text="[masked]"),))

    body = ADAPTER.to_wire_response(replace(response, choices=(replace(response.choices[0], message=edited),)))

    assert body["output_text"] == "[masked]"
    assert "secret" not in str(body)


def test_a_summary_that_says_something_else_is_shown() -> None:
    response = assert_lossless_answer(answer_body(said("this"), output_text="that"))

    assert next(iter_views(response)).properties["extra"][FORMAT]["output_text"] == "that"


def test_the_logprobs_and_citations_of_an_edited_text_do_not_leave() -> None:
    part = {
        "type": "output_text", "text": "secret",
        "annotations": [{"type": "url_citation", "title": "secret"}], "logprobs": [{"token": "secret"}],
    }  # fmt: skip
    response = assert_lossless_answer(answer_body(said("", content=[part])))
    edited = replace(response.message, content=(response.message.content[0].edited(text="[masked]"),))

    body = ADAPTER.to_wire_response(replace(response, choices=(replace(response.choices[0], message=edited),)))

    assert "secret" not in str(body)


@pytest.mark.spec("RSP-12")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "no", "type": "t", "param": None, "code": "c"}, "status": 401}, "no"),
        ({"error": {"message": "no", "code": 429}}, "no"),
        ({"error": "no", "code": "bad"}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"message": "no"}, "no"),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, None),
        ({"error": {}}, None),
        ({}, None),
    ],
)
def test_every_shape_of_error_is_an_error_and_comes_back(body: dict[str, Any], text: str | None) -> None:
    response = assert_lossless_answer(body)

    assert response.error is not None
    assert (response.error.message, response.choices) == (text, ())


@pytest.mark.spec("RSP-12")
def test_a_page_of_text_is_an_error_too() -> None:
    response = ADAPTER.from_wire_response("Bad gateway")

    assert response.error == ErrorInfo(message="Bad gateway")
    assert ADAPTER.to_wire_response(response) == "Bad gateway"


def test_an_output_item_that_is_no_object_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_response(answer_body("x"))

    assert caught.value.path == "$.output[0]"


@pytest.mark.spec("RSP-12")
def test_the_echo_of_the_request_stays_and_is_shown() -> None:
    echo = {"instructions": "be brief", "tools": [TOOLS[0]], "metadata": {"k": "v"}, "text": {"verbosity": "low"}}

    response = assert_lossless_answer(answer_body(said("x"), **echo))

    assert next(iter_views(response)).properties["extra"][FORMAT].items() >= echo.items()


@pytest.mark.spec("RSP-12")
@pytest.mark.parametrize("count", [0, 31])
@pytest.mark.parametrize("rest", [{}, {"note": {"x": 1}}])
def test_a_number_of_tokens_is_usage_and_no_error(count: int, rest: dict[str, Any]) -> None:
    response = assert_lossless_answer({"object": "response.input_tokens", "input_tokens": count, **rest})

    assert response.error is None
    assert not response.choices
    assert response.usage == TokenUsage(input_tokens=count, total_tokens=count)


@pytest.mark.spec("RSP-12")
@pytest.mark.parametrize("body", [{"input_tokens": -1}, {"input_tokens": 2**70}, {"input_tokens": 3, "error": "no"}])
def test_a_number_of_tokens_that_is_none_stays_an_error(body: dict[str, Any]) -> None:
    assert assert_lossless_answer({"object": "response.input_tokens", **body}).error is not None


@pytest.mark.parametrize("output", [{"status": "queued"}, {"status": "completed", "output": []}, {"output": []}])
def test_answers_without_items_have_one_empty_message(output: dict[str, Any]) -> None:
    response = assert_lossless_answer({"id": "resp_1", "object": "response", **output})

    assert response.message.content == ()


def test_a_message_of_the_users_inside_an_answer_stays_opaque() -> None:
    """A compaction answers with the user's messages as well."""
    item = {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "x"}]}

    response = assert_lossless_answer(answer_body(item, object="response.compaction"))

    assert isinstance(response.message.content[0], OpaquePart)


def test_servers_that_leave_things_out_are_read() -> None:
    bare = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]}

    response = assert_lossless_answer(bare)

    assert response.message.content[0].text == "x"


@pytest.mark.spec("EXT-8")
@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (
            {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 12},
            TokenUsage(input_tokens=6, cached_input_tokens=4, output_tokens=2, total_tokens=12),
        ),
        (
            {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2}},
            TokenUsage(input_tokens=7, cached_input_tokens=1, cache_creation_input_tokens=2),
        ),
        ({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 4}}, None),
        ({"input_tokens": -1, "output_tokens": "many", "cost": {"usd": 0.1}}, None),
        ({"input_tokens": 1, "input_tokens_details": ["none"], "output_tokens": 2}, None),
        (
            {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 2},
            TokenUsage(input_tokens=1, output_tokens=2),
        ),
        ({}, TokenUsage()),
        (None, None),
    ],
)
def test_usage_counts_cached_tokens_once(usage: Any, tokens: TokenUsage | None) -> None:
    assert assert_lossless_answer(answer_body(said("x"), usage=usage)).usage == tokens


def test_a_foreign_answer_is_written_as_clients_expect_it() -> None:
    response = foreign_answer(
        ThinkingPart(text="hm", signature="theirs"),
        TextPart(text="a"),
        ToolCallPart(name="add", tool_call_id="toolu_1"),
        ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"),
        stop_reason=StopReason.MAX_TOKENS,
        raw_stop_reason="max_tokens",
    )

    body = ADAPTER.to_wire_response(replace(response, model="claude", usage=TokenUsage(input_tokens=1)))

    assert [item["type"] for item in body["output"]] == [
        "reasoning", "message", "function_call", "image_generation_call",
    ]  # fmt: skip
    assert all(item["id"] for item in body["output"])
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (body["object"], body["model"], body["usage"]["total_tokens"]) == ("response", "claude", 1)
    assert body["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert "theirs" not in str(body)


def test_of_several_foreign_choices_the_others_are_recorded_as_dropped() -> None:
    one = foreign_answer(TextPart(text="a")).choices[0]

    with collecting() as losses:
        body = ADAPTER.to_wire_response(Response(choices=(one, one)))

    assert len(body["output"]) == 1
    assert [loss.block_type for loss in losses] == ["choice"]


def test_a_foreign_error_has_what_clients_read() -> None:
    body = ADAPTER.to_wire_response(Response(error=ErrorInfo(message="no", code="c")))

    assert body == {"error": {"message": "no", "type": None, "param": None, "code": "c"}}
