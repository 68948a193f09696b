"""The OpenAI SDK reads what the two OpenAI adapters write, and writes what they read; nothing leaves the process."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from cmf.enums import Role
from cmf.message.message import ImagePart, ToolCallPart, ToolResultPart
from cmf.message.request import ErrorInfo, Response
from tests.cmf.adapters.sdk.upstream import ANSWERS, PERSON, PNG, WEATHER, Heard, Upstream, meant, recorded

openai = pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")

CHAT, RESPONSES = "openai_chat", "openai_responses"
BOTH = pytest.mark.parametrize("format_name", [CHAT, RESPONSES])
HI = [{"role": "user", "content": "hi"}]
CHAT_TOOL = {"type": "function", "function": WEATHER}
RESPONSES_TOOL = {"type": "function", "strict": False, **WEATHER}


def client_of(upstream: Upstream) -> Any:
    return openai.OpenAI(
        api_key="none", base_url="http://upstream.invalid/v1", http_client=upstream.client(httpx2), max_retries=0
    )


def heard_chat(completion: Any) -> Heard:
    message = completion.choices[0].message
    calls = [call.function for call in message.tool_calls or []]
    return Heard(
        text=(message.content or "") + (message.refusal or ""),
        calls=tuple((call.name, json.loads(call.arguments)) for call in calls),
    )


def heard_responses(response: Any) -> Heard:
    calls = [item for item in response.output if item.type == "function_call"]
    return Heard(text=response.output_text, calls=tuple((call.name, json.loads(call.arguments)) for call in calls))


def whole_and_streamed(upstream: Upstream) -> tuple[Any, Any, list[Heard]]:
    """The answer read twice, by the SDK's own accumulation the second time, and what was heard each time."""
    client = client_of(upstream)
    if upstream.format_name == CHAT:
        whole = client.chat.completions.create(model="m", messages=HI)
        with client.chat.completions.stream(model="m", messages=HI, stream_options={"include_usage": True}) as stream:
            for _ in stream:
                pass
            streamed = stream.current_completion_snapshot  # the final one is refused where the answer hit its limit
        return whole, streamed, [heard_chat(whole), heard_chat(streamed)]
    whole = client.responses.create(model="m", input="hi")
    with client.responses.stream(model="m", input="hi") as stream:
        terminal = ("response.completed", "response.incomplete", "response.failed")
        (streamed,) = (event.response for event in stream if event.type in terminal)
    return whole, streamed, [heard_responses(whole), heard_responses(streamed)]


@BOTH
@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize("name", ANSWERS)
def test_the_sdk_reads_an_answer_whole_and_streamed(format_name: str, name: str) -> None:
    whole, streamed, heard = whole_and_streamed(Upstream(format_name, ANSWERS[name]))

    assert heard == [meant(ANSWERS[name])] * 2
    assert whole.model == streamed.model == "some-model"
    assert whole.usage.total_tokens == streamed.usage.total_tokens == 8


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(
    ("name", "reason"), [("text", "stop"), ("calls", "tool_calls"), ("all", "tool_calls"), ("cut", "length")]
)
def test_the_reason_to_stop_is_one_that_the_sdk_knows(name: str, reason: str) -> None:
    whole, streamed, _ = whole_and_streamed(Upstream(CHAT, ANSWERS[name]))

    assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == reason


@pytest.mark.spec("ADP-12")
def test_each_chunk_of_a_call_is_joined_to_its_own() -> None:
    chunks = client_of(Upstream(CHAT, ANSWERS["all"])).chat.completions.create(model="m", messages=HI, stream=True)
    arguments: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or []:
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")

    assert [json.loads(text) for _, text in sorted(arguments.items())] == [{"city": "Zürich", "days": 2}, {}]


@BOTH
@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (403, "PermissionDeniedError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
    ],
)
def test_an_error_is_the_sdks_own(format_name: str, status: int, error: str) -> None:
    refused = Response(error=ErrorInfo(message="not today", type="some_error", code="some_code", status=status))
    client = client_of(Upstream(format_name, refused, status=status))

    ask = client.chat.completions.create if format_name == CHAT else client.responses.create
    question = {"messages": HI} if format_name == CHAT else {"input": "hi"}

    with pytest.raises(getattr(openai, error), match="not today") as caught:
        ask(model="m", **question)

    assert caught.value.code == "some_code"


@pytest.mark.spec("ADP-12")
def test_an_error_in_a_stream_is_raised() -> None:
    refused = Response(error=ErrorInfo(message="not today", code="some_code"))

    with pytest.raises(openai.APIError, match="not today"):
        list(client_of(Upstream(CHAT, refused)).chat.completions.create(model="m", messages=HI, stream=True))


@BOTH
@pytest.mark.spec("ADP-12")
@pytest.mark.proof
def test_the_sdk_reads_what_other_providers_really_answered(
    format_name: str, proof_scale: float, proof_seed: int, proof_row: Any
) -> None:
    count = 0
    for where, response in recorded(format_name, proof_scale, proof_seed):
        _, _, heard = whole_and_streamed(Upstream(format_name, response))

        assert heard == [meant(response)] * 2, where
        count += 1
    proof_row(f"OpenAI's SDK reads other providers' answers as {format_name}", answers=count)
    assert count > 20


@pytest.mark.spec("ADP-12")
def test_a_chat_with_tools_and_images_that_the_sdk_writes_is_read() -> None:
    upstream = Upstream(CHAT, ANSWERS["all"])
    client = client_of(upstream)
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
    question = {"role": "user", "content": [image, {"type": "text", "text": "what is it?"}], "name": "ann"}
    first = client.chat.completions.create(model="m", messages=[question], tools=[CHAT_TOOL]).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in first.tool_calls]

    client.chat.completions.create(
        model="m",
        messages=[{"role": "developer", "content": "be brief"}, question, first, *results],
        tools=[CHAT_TOOL],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        parallel_tool_calls=False,
        max_completion_tokens=64,
        temperature=0,
        stop=["END"],
        seed=7,
        reasoning_effort="low",
        user="u1",
        stream_options={"include_usage": True},
        stream=True,
    ).close()
    request = upstream.read()

    roles = [message.role for message in request.messages]
    assert roles == [Role.DEVELOPER, Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert isinstance(request.messages[1].content[0], ImagePart)
    calls = [part for part in request.messages[2].content if isinstance(part, ToolCallPart)]
    answers = [message.content[0] for message in request.messages[3:]]
    assert all(isinstance(part, ToolResultPart) for part in answers)
    assert [call.arguments for call in calls] == [{"city": "Zürich", "days": 2}, {}]
    assert [part.tool_name for part in answers] == ["get_weather", "get_time"]  # type: ignore[attr-defined]
    assert (request.tools[0].name, request.tool_choice.name) == ("get_weather", "get_weather")  # type: ignore[union-attr]
    assert (request.sampling.max_output_tokens, request.sampling.stop, request.stream) == (64, ("END",), True)
    assert upstream.paths[-1] == "/v1/chat/completions"
    assert upstream.adapter.to_http(request).path == "/v1/chat/completions"


@pytest.mark.spec("ADP-12")
def test_structured_output_that_the_sdk_asks_for_is_the_canonical_schema() -> None:
    chat, responses = Upstream(CHAT, ANSWERS["text"]), Upstream(RESPONSES, ANSWERS["text"])

    client_of(chat).chat.completions.create(
        model="m",
        messages=HI,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}},
    )
    client_of(responses).responses.create(
        model="m", input="hi", text={"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
    )

    for request in (chat.read(), responses.read()):
        assert (request.response_schema, request.response_schema_name) == (PERSON, "person")


@pytest.mark.spec("ADP-12")
def test_a_response_with_tools_and_images_that_the_sdk_writes_is_read() -> None:
    upstream = Upstream(RESPONSES, ANSWERS["all"])
    client = client_of(upstream)
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}
    question = {"role": "user", "content": [image, {"type": "input_text", "text": "what is it?"}]}
    first = client.responses.create(model="m", input=[question], tools=[RESPONSES_TOOL])
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "ok"}
        for item in first.output
        if item.type == "function_call"
    ]

    client.responses.create(
        model="m",
        instructions="be brief",
        input=[question, *first.output, *results],
        tools=[RESPONSES_TOOL],
        tool_choice={"type": "function", "name": "get_weather"},
        max_output_tokens=64,
        store=False,
    )
    request = upstream.read()

    assert [message.role for message in request.messages][:2] == [Role.SYSTEM, Role.USER]
    assert [message.role for message in request.messages][-2:] == [Role.TOOL] * 2
    answers = [message.content[0] for message in request.messages[-2:]]
    assert [part.tool_name for part in answers] == ["get_weather", "get_time"]  # type: ignore[attr-defined]
    assert isinstance(request.messages[1].content[0], ImagePart)
    assert (request.tools[0].name, request.tool_choice.name) == ("get_weather", "get_weather")  # type: ignore[union-attr]
    assert upstream.paths[-1] == upstream.adapter.to_http(request).path == "/v1/responses"
