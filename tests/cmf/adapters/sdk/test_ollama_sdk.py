"""Ollama's SDK reads what its adapter writes, and writes what it reads; nothing leaves the process."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmf.adapters.wire.sse import ndjson_bytes
from cmf.enums import Role
from cmf.message.message import ImagePart, ToolCallPart, ToolResultPart
from cmf.message.request import ErrorInfo, Response
from tests.cmf.adapters.sdk.upstream import ANSWERS, PERSON, PNG, WEATHER, Heard, Upstream, meant, recorded

ollama = pytest.importorskip("ollama", reason="the provider's own SDK is a development dependency")

FORMAT = "ollama"
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": WEATHER}


def upstream_of(answer: Response, status: int = 200) -> Upstream:
    return Upstream(FORMAT, answer, status=status, framing=ndjson_bytes)


def client_of(upstream: Upstream) -> Any:
    return ollama.Client(host="http://upstream.invalid", transport=httpx.MockTransport(upstream.handler(httpx)))


def heard(*answers: Any) -> Heard:
    messages = [answer.message for answer in answers]
    calls = [call.function for message in messages for call in message.tool_calls or []]
    return Heard(
        text="".join(message.content or "" for message in messages),
        calls=tuple((call.name, dict(call.arguments)) for call in calls),
    )


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize("name", ANSWERS)
def test_the_sdk_reads_an_answer_whole_and_streamed(name: str) -> None:
    client = client_of(upstream_of(ANSWERS[name]))

    whole = client.chat(model="m", messages=HI)
    streamed = list(client.chat(model="m", messages=HI, stream=True))

    assert heard(whole) == heard(*streamed) == meant(ANSWERS[name])
    assert (whole.model, whole.done, streamed[-1].done) == ("some-model", True, True)
    assert (whole.prompt_eval_count, whole.eval_count) == (streamed[-1].prompt_eval_count, streamed[-1].eval_count)
    assert (whole.prompt_eval_count, whole.eval_count) == (3, 5)


@pytest.mark.spec("ADP-12")
def test_thinking_is_read_as_thinking() -> None:
    client = client_of(upstream_of(ANSWERS["thinking"]))

    whole = client.chat(model="m", messages=HI, think=True)
    streamed = list(client.chat(model="m", messages=HI, think=True, stream=True))

    assert whole.message.thinking == "".join(each.message.thinking or "" for each in streamed) == "let me see"


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(("name", "reason"), [("text", "stop"), ("calls", "stop"), ("cut", "length")])
def test_the_reason_to_stop_is_one_that_the_sdk_knows(name: str, reason: str) -> None:
    assert client_of(upstream_of(ANSWERS[name])).chat(model="m", messages=HI).done_reason == reason


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_error_is_the_sdks_own(status: int, stream: bool) -> None:
    client = client_of(upstream_of(Response(error=ErrorInfo(message="not today", status=status)), status=status))

    with pytest.raises(ollama.ResponseError, match="not today") as caught:
        list(client.chat(model="m", messages=HI, stream=stream))

    assert caught.value.status_code == status


@pytest.mark.spec("ADP-12")
def test_an_error_in_a_stream_is_raised() -> None:
    client = client_of(upstream_of(Response(error=ErrorInfo(message="not today"))))

    with pytest.raises(ollama.ResponseError, match="not today"):
        list(client.chat(model="m", messages=HI, stream=True))


@pytest.mark.spec("ADP-12")
@pytest.mark.proof
def test_the_sdk_reads_what_other_providers_really_answered(
    proof_scale: float, proof_seed: int, proof_row: Any
) -> None:
    count = 0
    for where, response in recorded(FORMAT, proof_scale, proof_seed):
        client = client_of(upstream_of(response))
        whole = client.chat(model="m", messages=HI)
        streamed = list(client.chat(model="m", messages=HI, stream=True))

        assert heard(whole) == heard(*streamed), where
        assert heard(whole).calls == meant(response).calls, where
        assert heard(whole).text.replace("\n", "") == meant(response).text.replace("\n", ""), where
        count += 1
    proof_row("Ollama's SDK reads other providers' answers", answers=count)
    assert count > 20


@pytest.mark.spec("ADP-12")
def test_a_conversation_with_tools_and_images_that_the_sdk_writes_is_read() -> None:
    upstream = upstream_of(ANSWERS["all"])
    client = client_of(upstream)
    question = {"role": "user", "content": "what is it?", "images": [PNG]}
    first = client.chat(model="m", messages=[question], tools=[TOOL]).message
    results = [{"role": "tool", "tool_name": call.function.name, "content": "ok"} for call in first.tool_calls]

    client.chat(
        model="m",
        messages=[{"role": "system", "content": "be brief"}, question, first, *results],
        tools=[TOOL],
        options={"temperature": 0.5, "num_predict": 64, "stop": ["END"], "seed": 7},
        think=True,
        keep_alive="5m",
    )
    request = upstream.read()

    roles = [message.role for message in request.messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert any(isinstance(part, ImagePart) for part in request.messages[1].content)
    calls = [part for part in request.messages[2].content if isinstance(part, ToolCallPart)]
    answers = [message.content[0] for message in request.messages[3:]]
    assert [call.arguments for call in calls] == [{"city": "Zürich", "days": 2}, {}]
    assert all(isinstance(part, ToolResultPart) for part in answers)
    assert [part.tool_name for part in answers] == ["get_weather", "get_time"]  # type: ignore[attr-defined]
    assert request.tools[0].name == "get_weather"
    assert (request.sampling.max_output_tokens, request.sampling.stop, request.stream) == (64, ("END",), False)
    assert upstream.paths[-1] == upstream.adapter.to_http(request).path


@pytest.mark.spec("ADP-12")
def test_structured_output_that_the_sdk_asks_for_is_the_canonical_schema() -> None:
    upstream = upstream_of(ANSWERS["text"])

    client_of(upstream).chat(model="m", messages=HI, format=PERSON)

    assert upstream.read().response_schema == PERSON
