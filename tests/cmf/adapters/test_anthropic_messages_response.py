"""Responses of the Messages format. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.enums import Role, StopReason
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.message import Message, Part, TextPart, TokenUsage, ToolCallPart
from cmf.message.request import Choice, ErrorInfo, Response
from tests.cmf.adapters.messages_bodies import ADAPTER, CALLS, TEXT, answered


@pytest.mark.parametrize(
    ("change", "path"),
    [({"content": "x"}, "$.content"), ({"role": "user"}, "$.role"), ({"stop_reason": 1}, "$.stop_reason")],
)
def test_a_reply_that_does_not_fit_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_response(answered(**change))

    assert caught.value.path == path


@pytest.mark.spec("ANT-17")
def test_a_reply_without_content_says_nothing() -> None:
    body = answered() | {"content": None}

    response = ADAPTER.from_wire_response(body)

    assert response.message.content == ()
    assert same_spelling(ADAPTER.to_wire_response(response), body)


@pytest.mark.spec("ANT-17")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"stop_reason": "end_turn"}, StopReason.END),
        ({"stop_reason": "tool_use"}, StopReason.CALL),
        ({"stop_reason": "tool_use", "stop_sequence": "END", "stop_details": {"type": "x"}}, StopReason.CALL),
        ({"stop_reason": "max_tokens"}, StopReason.MAX_TOKENS),
        ({"stop_reason": "model_context_window_exceeded"}, StopReason.MAX_TOKENS),
        ({"stop_reason": "stop_sequence", "stop_sequence": "END"}, StopReason.STOP_SEQUENCE),
        ({"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": None}}, StopReason.REFUSAL),
        ({"stop_reason": "pause_turn", "stop_details": None}, StopReason.PAUSE),
        ({"stop_reason": "brand_new", "stop_sequence": "END"}, StopReason.OTHER),
        ({"stop_reason": None}, None),
    ],
)
def test_a_stop_reason_is_read_and_goes_back(fields: dict[str, Any], reason: StopReason | None) -> None:
    response = ADAPTER.from_wire_response(answered(**fields))

    (choice,) = response.choices
    assert (choice.stop_reason, choice.raw_stop_reason) == (reason, fields["stop_reason"])
    assert choice.message.id == "msg_1"
    assert ADAPTER.to_wire_response(response) == answered(**fields)


@pytest.mark.spec("ANT-12")
def test_a_result_that_stands_before_its_call_goes_back_as_it_came() -> None:
    result = {"type": "mcp_tool_result", "tool_use_id": "s", "content": "x", "is_error": False}
    call = {"type": "mcp_tool_use", "id": "s", "name": "f", "server_name": "q", "input": []}
    body = answered(result, call, result, stop_details=None)

    assert same_spelling(ADAPTER.to_wire_response(ADAPTER.from_wire_response(body)), body)


@pytest.mark.spec("ANT-18")
def test_a_reply_whose_calls_were_taken_out_ends_its_turn() -> None:
    response = ADAPTER.from_wire_response(answered(TEXT, CALLS[0], stop_reason="tool_use", stop_details={"a": 1}))
    choice = response.choices[0]
    text_only = replace(choice, message=replace(choice.message, content=choice.message.content[:1]))

    assert ADAPTER.to_wire_response(replace(response, choices=(text_only,)))["stop_reason"] == "end_turn"


@pytest.mark.spec("ANT-18")
@pytest.mark.parametrize(
    ("reason", "raw", "parts", "word"),
    [
        (StopReason.END, "stop", (), "end_turn"),
        (StopReason.END, "stop", (ToolCallPart(name="f"),), "tool_use"),
        (StopReason.CONTENT_FILTER, "SAFETY", (), "refusal"),
        (StopReason.OTHER, "whatever", (), "end_turn"),
        (StopReason.MAX_TOKENS, "length", (), "max_tokens"),
    ],
)
def test_a_foreign_stop_reason_is_written_in_this_format(
    reason: StopReason, raw: str, parts: tuple[Part, ...], word: str
) -> None:
    message = Message(role=Role.ASSISTANT, content=parts)
    response = Response(choices=(Choice(message=message, stop_reason=reason, raw_stop_reason=raw),))

    body = ADAPTER.to_wire_response(response)

    assert body["stop_reason"] == word
    assert {"id", "type", "role", "model", "content", "stop_sequence", "usage"} <= body.keys()


@pytest.mark.spec("ANT-18")
def test_two_choices_are_refused() -> None:
    choice = Choice(message=Message(role=Role.ASSISTANT, content=()))

    with pytest.raises(UnsupportedError):
        ADAPTER.to_wire_response(Response(choices=(choice, choice)))


@pytest.mark.spec("ANT-19")
def test_cached_tokens_are_counted_apart() -> None:
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 8,
        "service_tier": "standard",
        "iterations": [{"input_tokens": 1}],
    }

    response = ADAPTER.from_wire_response(answered(usage=usage))

    assert response.usage == TokenUsage(
        input_tokens=1, output_tokens=2, cached_input_tokens=4, cache_creation_input_tokens=8, total_tokens=15
    )
    assert ADAPTER.to_wire_response(response) == answered(usage=usage)


@pytest.mark.spec("ANT-19")
@pytest.mark.parametrize(
    "usage", [None, {}, {"input_tokens": None}, {"input_tokens": -1}, {"input_tokens": 2**70}, "x"]
)
def test_odd_usage_goes_back_as_it_came(usage: Any) -> None:
    body = answered(usage=usage)

    assert same_spelling(ADAPTER.to_wire_response(ADAPTER.from_wire_response(body)), body)


@pytest.mark.spec("ANT-20")
@pytest.mark.parametrize("kind", [{"type": "error"}, {}])
def test_an_error_body_is_a_response_with_error(kind: dict[str, Any]) -> None:
    body = {**kind, "error": {"type": "overloaded_error", "message": "busy"}, "request_id": "req_1"}

    response = ADAPTER.from_wire_response(body)

    assert response.error == ErrorInfo(type="overloaded_error", message="busy")
    assert response.choices == ()
    assert ADAPTER.to_wire_response(response) == body
    assert ADAPTER.to_wire_events(response) == [{"event": "error", "data": {**body, "type": "error"}}]


@pytest.mark.spec("ANT-20")
@pytest.mark.parametrize(
    "body",
    [
        "bad gateway", [{"error": {"code": 503}}], {"message": "x"}, {"error": "x"}, {"input_tokens": "x"}, None, {},
        {"content": "what is in a file"},
    ],
)  # fmt: skip
def test_a_reply_of_a_proxy_is_an_error_and_kept_whole(body: Any) -> None:
    response = ADAPTER.from_wire_response(body)

    assert response.error is not None
    assert ADAPTER.to_wire_response(response) == body
    assert ADAPTER.fold_events(ADAPTER.to_wire_events(response))["error"]


@pytest.mark.spec("ANT-16")
def test_a_foreign_call_without_an_id_gets_one() -> None:
    message = Message(role=Role.ASSISTANT, content=(TextPart(text="hi"), ToolCallPart(name="f")))
    response = Response(
        choices=(Choice(message=message, stop_reason=StopReason.CALL),), usage=TokenUsage(output_tokens=1)
    )

    body = ADAPTER.to_wire_response(response)

    assert body["content"][1] == {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}
    assert (body["stop_reason"], body["usage"]["output_tokens"]) == ("tool_use", 1)


@pytest.mark.spec("ANT-20")
def test_a_foreign_error_is_an_error_here() -> None:
    body = ADAPTER.to_wire_response(Response(error=ErrorInfo(message="busy"), usage=TokenUsage()))

    assert body == {"type": "error", "error": {"type": "api_error", "message": "busy"}}


@pytest.mark.spec("ANT-20")
@pytest.mark.parametrize("body", [{"input_tokens": 12}, {"input_tokens": 12, "context_management": {"x": 1}}])
def test_a_count_of_tokens_is_a_response_without_choices(body: dict[str, Any]) -> None:
    response = ADAPTER.from_wire_response(body)

    assert (response.error, response.choices) == (None, ())
    assert response.usage == TokenUsage(input_tokens=12, total_tokens=12)
    assert ADAPTER.to_wire_response(response) == body
