"""The Anthropic SDK reads what the Messages adapter writes, and writes what it reads; nothing leaves the process."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from cmf.enums import Role
from cmf.message.message import ImagePart, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.message.request import ErrorInfo, Response
from tests.cmf.adapters.sdk.upstream import ANSWERS, PERSON, PNG, WEATHER, Heard, Upstream, meant, recorded

anthropic = pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")

FORMAT = "anthropic_messages"
ASK = {"model": "claude-test", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}


def client_of(upstream: Upstream) -> Any:
    return anthropic.Anthropic(
        api_key="none", base_url="http://upstream.invalid", http_client=upstream.client(httpx2), max_retries=0
    )


def heard(message: Any) -> Heard:
    return Heard(
        text="".join(block.text for block in message.content if block.type == "text"),
        calls=tuple((block.name, block.input) for block in message.content if block.type == "tool_use"),
    )


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize("name", ANSWERS)
def test_the_sdk_reads_an_answer_whole_and_streamed(name: str) -> None:
    upstream = Upstream(FORMAT, ANSWERS[name])
    client = client_of(upstream)

    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        texts = "".join(stream.text_stream)
        streamed = stream.get_final_message()

    assert heard(whole) == heard(streamed) == meant(ANSWERS[name])
    assert texts == meant(ANSWERS[name]).text
    assert whole.stop_reason == streamed.stop_reason
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (3, 5)
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (3, 5)
    assert whole.model == streamed.model == "some-model"


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(
    ("name", "reason"), [("text", "end_turn"), ("calls", "tool_use"), ("all", "tool_use"), ("cut", "max_tokens")]
)
def test_the_reason_to_stop_is_one_that_the_sdk_knows(name: str, reason: str) -> None:
    assert client_of(Upstream(FORMAT, ANSWERS[name])).messages.create(**ASK).stop_reason == reason


@pytest.mark.spec("ADP-12")
def test_signed_thinking_is_read_as_thinking() -> None:
    adapter = Upstream(FORMAT, ANSWERS["text"]).adapter
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "2"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    client = client_of(Upstream(FORMAT, adapter.from_wire_response(body)))

    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        streamed = stream.get_final_message()

    for message in (whole, streamed):
        assert [(block.type, getattr(block, "thinking", None)) for block in message.content] == [
            ("thinking", "hm"),
            ("text", None),
        ]
        assert message.content[0].signature == "c2ln"


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "invalid_request_error", "BadRequestError"),
        (401, "authentication_error", "AuthenticationError"),
        (403, "permission_error", "PermissionDeniedError"),
        (429, "rate_limit_error", "RateLimitError"),
        (500, "api_error", "InternalServerError"),
    ],
)
def test_an_error_is_the_sdks_own(status: int, kind: str, error: str) -> None:
    refused = Response(error=ErrorInfo(message="not today", type=kind, status=status))

    with pytest.raises(getattr(anthropic, error)) as caught:
        client_of(Upstream(FORMAT, refused, status=status)).messages.create(**ASK)

    assert caught.value.body["error"] == {"type": kind, "message": "not today"}


@pytest.mark.spec("ADP-12")
def test_an_error_in_a_stream_is_raised() -> None:
    refused = Response(error=ErrorInfo(message="not today", type="overloaded_error"))

    with (
        pytest.raises(anthropic.APIStatusError, match="not today"),
        client_of(Upstream(FORMAT, refused)).messages.stream(**ASK) as stream,
    ):
        stream.get_final_message()


@pytest.mark.spec("ADP-12")
@pytest.mark.proof
def test_the_sdk_reads_what_other_providers_really_answered(
    proof_scale: float, proof_seed: int, proof_row: Any
) -> None:
    count = 0
    for where, response in recorded(FORMAT, proof_scale, proof_seed):
        client = client_of(Upstream(FORMAT, response))
        with client.messages.stream(**ASK) as stream:
            streamed = stream.get_final_message()

        assert heard(client.messages.create(**ASK)) == meant(response), where
        assert heard(streamed) == meant(response), where
        count += 1
    proof_row("Anthropic's SDK reads other providers' answers", answers=count)
    assert count > 20


@pytest.mark.spec("ADP-12")
def test_a_conversation_with_tools_and_images_that_the_sdk_writes_is_read() -> None:
    upstream = Upstream(FORMAT, ANSWERS["all"])
    client = client_of(upstream)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    question = {"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]}
    first = client.messages.create(**{**ASK, "messages": [question]}, tools=[TOOL], system="be brief")
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [image, {"type": "text", "text": "ok"}]}
        for block in first.content
        if block.type == "tool_use"
    ]

    client.messages.create(
        model="claude-test",
        max_tokens=64,
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        messages=[question, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}],
        tools=[TOOL],
        tool_choice={"type": "tool", "name": "get_weather"},
        stop_sequences=["END"],
        thinking={"type": "enabled", "budget_tokens": 1024},
        metadata={"user_id": "u1"},
    )
    request = upstream.read()

    roles = [message.role for message in request.messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert isinstance(request.messages[1].content[0], ImagePart)
    calls = [part for part in request.messages[2].content if isinstance(part, ToolCallPart)]
    answers = [message.content[0] for message in request.messages[3:]]
    assert all(isinstance(part, ToolResultPart) for part in answers)
    assert [part.tool_call_id for part in answers] == [call.tool_call_id for call in calls]  # type: ignore[attr-defined]
    assert [part.tool_name for part in answers] == ["get_weather", "get_time"]  # type: ignore[attr-defined]
    assert (request.tools[0].name, request.tool_choice.name) == ("get_weather", "get_weather")  # type: ignore[union-attr]
    assert request.sampling.stop == ("END",)
    assert upstream.paths == [upstream.adapter.to_http(request).path] * 2


@pytest.mark.spec("ADP-12")
def test_thinking_that_the_sdk_sends_back_keeps_its_signature() -> None:
    upstream = Upstream(FORMAT, ANSWERS["text"])
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    history = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "2"}]},
        {"role": "user", "content": "sure?"},
    ]

    client_of(upstream).messages.create(**{**ASK, "messages": history}, stream=False)

    part = upstream.read().messages[1].content[0]
    assert isinstance(part, ThinkingPart)
    assert (part.text, part.signature) == ("hm", "c2ln")


@pytest.mark.spec("ADP-12")
def test_structured_output_that_the_sdk_asks_for_is_the_canonical_schema() -> None:
    upstream = Upstream(FORMAT, Response(choices=ANSWERS["text"].choices))
    wanted = {"format": {"type": "json_schema", "schema": PERSON}}

    client_of(upstream).messages.create(**ASK, output_config=wanted)
    request = upstream.read()

    assert request.response_schema == PERSON
    assert request.messages[0].content == (TextPart(text="hi"),)


@pytest.mark.spec("ADP-12")
def test_a_streamed_call_says_so() -> None:
    upstream = Upstream(FORMAT, ANSWERS["text"])

    list(client_of(upstream).messages.create(**ASK, stream=True))

    assert upstream.read().stream is True
