"""OpenRouter: where it is more than chat completions, and the proofs over recorded traffic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.json.frozen import freeze
from cmf.json.value import replace
from cmf.message.message import Message, RedactedThinkingPart, TextPart, ThinkingPart, VideoPart
from cmf.message.request import Choice, Request, Response
from tests.cmf.adapters.harness import Proof

ROUTER = get("openrouter")


class TestRecordedTraffic(Proof):
    format_name = "openrouter"


def _details(*details: dict[str, Any]) -> Response:
    deltas = [{"index": 0, "delta": {"reasoning_details": [detail]}} for detail in details]
    events = [{"data": {"choices": [delta]}} for delta in deltas]
    return ROUTER.from_wire_response(ROUTER.fold_events([*events, {"data": "[DONE]"}]))  # type: ignore[list-item]


@pytest.mark.spec("OPR-1")
def test_the_effort_is_inside_the_reasoning_object() -> None:
    body = {"model": "m", "messages": [], "reasoning": {"effort": "low", "exclude": True}}

    request = ROUTER.from_wire_request(body)

    assert request.reasoning_effort == "low"
    assert ROUTER.to_wire(request) == body
    assert ROUTER.to_wire(replace(request, reasoning_effort="high"))["reasoning"] == {"effort": "high", "exclude": True}
    assert ROUTER.to_http(request).path == "/api/v1/chat/completions"


@pytest.mark.spec("OPR-2")
def test_a_signed_detail_that_was_edited_loses_its_signature() -> None:
    detail = {
        "type": "reasoning.text",
        "text": "secret",
        "signature": "sig",
        "format": "anthropic-claude-v1",
        "index": 0,
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": "x", "reasoning_details": [detail]}}
    response = ROUTER.from_wire_response({"choices": [choice]})
    message = response.message

    edited = replace(message, content=(message.content[0].edited(text="***", signature=None), message.content[1]))
    written = ROUTER.to_wire_response(replace(response, choices=(replace(response.choices[0], message=edited),)))

    assert ROUTER.to_wire_response(response)["choices"][0] == choice
    assert written["choices"][0]["message"] == {"role": "assistant", "content": "x", "reasoning": "***"}


@pytest.mark.spec("OPR-2")
def test_foreign_thinking_is_reasoning_to_a_client() -> None:
    message = Message(role=Role.ASSISTANT, content=(ThinkingPart(text="hm"), TextPart(text="x")))

    written = ROUTER.to_wire_response(Response(choices=(Choice(message=message),)))

    assert written["choices"][0]["message"]["reasoning"] == "hm"


@pytest.mark.spec("OPR-3")
def test_pieces_of_one_detail_are_joined_and_signed() -> None:
    response = _details(
        {"type": "reasoning.text", "text": "a", "index": 0, "id": None},
        {"type": "reasoning.text", "text": "b", "index": 0},
        {"type": "reasoning.text", "text": "", "index": 0, "signature": "sig"},
    )

    assert [(part.text, part.signature) for part in response.message.content if isinstance(part, ThinkingPart)] == [
        ("ab", "sig")
    ]


@pytest.mark.spec("OPR-3")
def test_details_of_another_type_index_or_id_are_not_joined() -> None:
    response = _details(
        {"type": "reasoning.text", "text": "a", "index": 0},
        {"type": "reasoning.text", "text": "b", "index": 1, "id": "r1"},
        {"type": "reasoning.text", "text": "c", "index": 1, "id": "r2"},
        {"type": "reasoning.summary", "summary": "d", "index": 1},
        {"type": "reasoning.encrypted", "data": "e", "index": 1},
        {"type": "reasoning.encrypted", "data": "f", "index": 1},
    )

    parts = response.message.content

    assert [part.text for part in parts if isinstance(part, ThinkingPart)] == ["a", "b", "c", "d"]
    assert [part.data for part in parts if isinstance(part, RedactedThinkingPart)] == ["e", "f"]


@pytest.mark.spec("OPR-4", "ADP-5")
def test_a_comment_is_framing_and_is_not_copied() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "x"}, "native_finish_reason": "end_turn"}], "provider": "P"}
    events = [{"comment": "OPENROUTER PROCESSING"}, {"data": chunk}, {"data": "[DONE]"}]

    response = ROUTER.from_wire_response(ROUTER.fold_events(events))  # type: ignore[arg-type]

    assert "PROCESSING" not in str(ROUTER.to_wire_events(response))
    assert ROUTER.to_wire_response(response)["provider"] == "P"
    assert ROUTER.to_wire_response(response)["choices"][0]["native_finish_reason"] == "end_turn"


@pytest.mark.spec("OPR-5")
def test_a_video_is_sent_as_a_url() -> None:
    video = VideoPart(type="base64", data="AAAA", media_type="video/mp4")

    written = ROUTER.to_wire(Request(messages=(Message(role=Role.USER, content=(video,)),)))

    assert written["messages"][0]["content"] == [
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    ]


@pytest.mark.spec("OPR-5")
def test_a_server_tool_is_run_by_the_provider() -> None:
    tools = [{"type": "openrouter:web_search", "parameters": {"max_uses": 1}}]

    request = ROUTER.from_wire_request({"model": "m", "messages": [], "tools": tools})

    assert (request.tools[0].name, request.tools[0].executed_by) == ("openrouter:web_search", "provider")
    assert ROUTER.to_wire(request)["tools"] == tools


# -- clients of chat completions, whose upstream is OpenRouter ---------------------------------------------------------

CHAT = get("openai_chat")
ASKED: dict[str, Any] = {
    "model": "acme/large",
    "provider": {"order": ["acme"]},
    "reasoning": {"max_tokens": 64},
    "response_format": {"type": "json_object"},
    "parallel_tool_calls": False,
    "tools": [
        {"type": "function", "function": {"name": "weigh", "strict": True, "parameters": {"type": "object"}}},
        {"type": "openrouter:web_search", "parameters": {"max_results": 2}},
    ],
    "messages": [
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "x"}}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "sig", "index": 0}],
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": "{}"}},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "image_url", "image_url": {"url": "https://h.example/a.png", "detail": "low"}}],
            "name": "weigh",
        },
        {"role": "user", "content": [{"type": "new_block", "text": "hi"}]},
    ],
}  # fmt: skip
ANSWERED: dict[str, Any] = {
    "id": "gen-1",
    "object": "chat.completion",
    "created": 5,
    "model": "acme/large",
    "provider": "acme",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "native_finish_reason": "end_turn",
            "logprobs": {"content": []},
            "message": {
                "role": "assistant",
                "content": "x",
                "reasoning": "hm",
                "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "sig", "index": 0}],
                "annotations": [{"type": "url_citation", "url_citation": {"url": "https://h.example"}}],
            },
        },
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.25},
}


@pytest.mark.spec("OPR-6")
def test_a_request_read_as_openrouters_does_not_take_its_fields_to_other_services() -> None:
    with collecting() as losses:
        written = CHAT.to_wire(ROUTER.from_wire_request({**ASKED, "tools": ASKED["tools"][:1]}))

    assert written.keys() == {"model", "messages", "tools"}
    assert {loss.block_type for loss in losses} >= {"request", "thinking", "tool_definition"}


@pytest.mark.spec("OPR-6")
def test_what_a_client_of_chat_completions_asks_for_reaches_openrouter_whole() -> None:
    with collecting() as losses:
        written = ROUTER.to_wire(CHAT.from_wire_request(ASKED))

    assert written == ASKED
    assert losses == []


@pytest.mark.spec("OPR-6")
def test_what_openrouter_answers_reaches_a_client_of_chat_completions_whole() -> None:
    response = ROUTER.from_wire_response(ANSWERED)

    with collecting() as losses:
        written = CHAT.to_wire_response(response)
        streamed = CHAT.fold_events(CHAT.to_wire_events(response))

    assert written == ANSWERED
    assert streamed == ANSWERED
    assert losses == []


@pytest.mark.spec("OPR-6")
def test_what_the_client_is_told_of_its_own_stands_before_openrouters() -> None:
    response = ROUTER.from_wire_response(ANSWERED)
    own = {**(response.extra or {}), "openai_chat": {"id": "chatcmpl-7"}}

    written = CHAT.to_wire_response(replace(response, extra=freeze(own)))

    assert written == {**ANSWERED, "id": "chatcmpl-7"}


@pytest.mark.spec("OPR-6", "ADP-6")
def test_edited_reasoning_loses_its_signature_on_the_way_too() -> None:
    response = ROUTER.from_wire_response(ANSWERED)
    thought, said = response.message.content
    message = replace(response.message, content=(thought.edited(text="***", signature=None), said), extra=None)
    choice = replace(response.choices[0], message=message)

    written = json.dumps(CHAT.to_wire_response(replace(response, choices=(choice,))))

    assert "***" in written
    assert "sig" not in written
    assert "hm" not in written
