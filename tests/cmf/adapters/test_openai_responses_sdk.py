"""The OpenAI SDK reads what the Responses adapter writes, and writes what it reads; nothing leaves the process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cmf.adapters.wire.sse import sse_bytes
from cmf.enums import Role
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.message.message import TextPart, ThinkingPart, TokenUsage, ToolCallPart
from cmf.message.request import ErrorInfo, Response
from tests.cmf.adapters.responses_bodies import (
    ADAPTER,
    ITEMS,
    answer_body,
    assert_lossless_request,
    foreign_answer,
    said,
)

openai = pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")


def client_of(answer: Response, seen: list[Any] | None = None, status: int = 200) -> Any:
    """A client whose every call is answered with `answer`, streamed if it asks for a stream."""

    def reply(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if seen is not None:
            seen.append(body)
        if body.get("stream"):
            chunks = b"".join(map(sse_bytes, ADAPTER.to_wire_events(answer)))
            return httpx.Response(status, content=chunks, headers={"content-type": "text/event-stream"})
        return httpx.Response(status, json=ADAPTER.to_wire_response(answer))

    http = httpx.Client(transport=httpx.MockTransport(reply))
    return openai.OpenAI(api_key="none", base_url="http://upstream.invalid/v1", http_client=http, max_retries=0)


def answers() -> Iterator[Response]:
    yield replace(
        foreign_answer(
            ThinkingPart(text="hm"),
            TextPart(text="hello"),
            ToolCallPart(name="add", tool_call_id="toolu_1", arguments=FrozenDict({"a": 1})),
        ),
        model="claude",
        usage=TokenUsage(input_tokens=1, output_tokens=2, total_tokens=3),
    )
    yield ADAPTER.from_wire_response(answer_body(ITEMS["reasoning"], said("hello"), ITEMS["call"]))


@pytest.mark.spec("RSP-15")
@pytest.mark.parametrize("answer", list(answers()), ids=["foreign", "own"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_reads_an_answer(answer: Response, stream: bool) -> None:
    client = client_of(answer)

    got = client.responses.create(model="m", input="hi", stream=stream)
    events = list(got) if stream else []
    final = events[-1].response if stream else got

    assert (final.output_text, final.status) == ("hello", "completed")
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    if stream:
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "hello"


@pytest.mark.spec("RSP-15")
@pytest.mark.parametrize("answer", list(answers()), ids=["foreign", "own"])
def test_the_sdks_own_accumulation_of_a_stream_is_the_whole_answer(answer: Response) -> None:
    with client_of(answer).responses.stream(model="m", input="hi") as stream:
        final = stream.get_final_response()

    assert final.output_text == "hello"


@pytest.mark.spec("RSP-12")
@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_raises_the_error_that_is_written(stream: bool) -> None:
    client = client_of(Response(error=ErrorInfo(message="no", code="c")), status=200 if stream else 403)

    with pytest.raises(openai.APIError) as caught:
        list(client.responses.create(model="m", input="hi", stream=stream))

    assert caught.value.code == "c"
    assert "no" in str(caught.value)


@pytest.mark.spec("RSP-1")
def test_what_the_sdk_sends_is_read_and_written_again() -> None:
    sent: list[Any] = []
    answer = next(answers())
    client = client_of(answer, sent)

    first = client.responses.create(
        model="m",
        instructions="be brief",
        input=[{"role": "user", "content": "add"}],
        tools=[{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}],
    )
    client.responses.create(
        model="m",
        input=[*first.output, {"type": "function_call_output", "call_id": "toolu_1", "output": "2"}],
        reasoning={"effort": "low"},
    )

    requests = [assert_lossless_request(body) for body in sent]
    assert [one.role for one in requests[1].messages] == [Role.ASSISTANT] * 3 + [Role.TOOL]
    assert requests[1].messages[-1].content[0].tool_name == "add"  # type: ignore[attr-defined]  # the result's part
