"""Google's SDK reads what the Gemini adapter writes, and writes what it reads; nothing leaves the process."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from cmf.enums import Role
from cmf.message.message import ImagePart, ToolCallPart, ToolResultPart
from cmf.message.request import ErrorInfo, Response
from tests.cmf.adapters.sdk.upstream import ANSWERS, PERSON, PNG, WEATHER, Heard, Upstream, meant, recorded

genai = pytest.importorskip("google.genai", reason="the provider's own SDK is a development dependency")
types = genai.types

FORMAT = "gemini"
MODEL = "gemini-test"


def client_of(upstream: Upstream) -> Any:
    options = types.HttpOptions(
        base_url="http://upstream.invalid", api_version="v1beta", httpx_client=upstream.client(httpx)
    )
    return genai.Client(api_key="none", vertexai=False, http_options=options)


def parts_of(answers: list[Any]) -> list[Any]:
    contents = [answer.candidates[0].content for answer in answers if answer.candidates]
    return [part for content in contents if content is not None for part in content.parts or []]


def heard(*answers: Any) -> Heard:
    parts = parts_of(list(answers))
    calls = [part.function_call for part in parts if part.function_call]
    return Heard(
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=tuple((call.name, call.args or {}) for call in calls),
    )


def whole_and_streamed(client: Any) -> tuple[Any, list[Any]]:
    whole = client.models.generate_content(model=MODEL, contents="hi")
    return whole, list(client.models.generate_content_stream(model=MODEL, contents="hi"))


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize("name", ANSWERS)
def test_the_sdk_reads_an_answer_whole_and_streamed(name: str) -> None:
    whole, streamed = whole_and_streamed(client_of(Upstream(FORMAT, ANSWERS[name])))

    assert heard(whole) == heard(*streamed) == meant(ANSWERS[name])
    assert whole.model_version == streamed[-1].model_version == "some-model"
    assert whole.usage_metadata.total_token_count == streamed[-1].usage_metadata.total_token_count == 8
    assert whole.candidates[0].finish_reason == streamed[-1].candidates[0].finish_reason


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(
    ("name", "reason"), [("text", "STOP"), ("calls", "STOP"), ("all", "STOP"), ("cut", "MAX_TOKENS")]
)
def test_the_reason_to_stop_is_one_that_the_sdk_knows(name: str, reason: str) -> None:
    whole, _ = whole_and_streamed(client_of(Upstream(FORMAT, ANSWERS[name])))

    assert whole.candidates[0].finish_reason is types.FinishReason[reason]


@pytest.mark.spec("ADP-12")
@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "INVALID_ARGUMENT", "ClientError"),
        (403, "PERMISSION_DENIED", "ClientError"),
        (429, "RESOURCE_EXHAUSTED", "ClientError"),
        (500, "INTERNAL", "ServerError"),
    ],
)
def test_an_error_is_the_sdks_own(status: int, kind: str, error: str) -> None:
    refused = Response(error=ErrorInfo(message="not today", type=kind, code=str(status), status=status))
    client = client_of(Upstream(FORMAT, refused, status=status))

    with pytest.raises(getattr(genai.errors, error), match="not today") as caught:
        client.models.generate_content(model=MODEL, contents="hi")

    assert (caught.value.code, caught.value.status) == (status, kind)


@pytest.mark.spec("ADP-12")
@pytest.mark.proof
def test_the_sdk_reads_what_other_providers_really_answered(
    proof_scale: float, proof_seed: int, proof_row: Any
) -> None:
    upstream = Upstream(FORMAT, ANSWERS["text"])
    client, count = client_of(upstream), 0  # one for all: making one takes fifty times as long as an answer
    for where, response in recorded(FORMAT, proof_scale, proof_seed):
        upstream.answer = response
        whole, streamed = whole_and_streamed(client)

        assert heard(whole) == heard(*streamed) == meant(response), where
        count += 1
    proof_row("Google's SDK reads other providers' answers", answers=count)
    assert count > 20


@pytest.mark.spec("ADP-12")
def test_a_conversation_with_tools_and_images_that_the_sdk_writes_is_read() -> None:
    upstream = Upstream(FORMAT, ANSWERS["all"])
    client = client_of(upstream)
    tool = types.Tool(
        function_declarations=[
            types.FunctionDeclaration(
                name="get_weather", description="Weather now", parameters_json_schema=WEATHER["parameters"]
            )
        ]
    )
    image = types.Part.from_bytes(data=base64.b64decode(PNG), mime_type="image/png")
    question = types.Content(role="user", parts=[image, types.Part(text="what is it?")])
    settings = {
        "system_instruction": "be brief",
        "tools": [tool],
        "tool_config": types.ToolConfig(
            function_calling_config=types.FunctionCallingConfig(mode="ANY", allowed_function_names=["get_weather"])
        ),
        "automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True),
        "temperature": 0.5,
        "max_output_tokens": 64,
        "stop_sequences": ["END"],
        "thinking_config": types.ThinkingConfig(include_thoughts=True),
    }
    first = client.models.generate_content(
        model=MODEL, contents=[question], config=types.GenerateContentConfig(**settings)
    )
    model_turn = first.candidates[0].content
    results = [
        types.Part.from_function_response(name=part.function_call.name, response={"result": "ok"})
        for part in model_turn.parts
        if part.function_call
    ]

    client.models.generate_content(
        model=MODEL,
        contents=[question, model_turn, types.Content(role="user", parts=results)],
        config=types.GenerateContentConfig(**settings),
    )
    request = upstream.read(model=MODEL)

    roles = [message.role for message in request.messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert isinstance(request.messages[1].content[0], ImagePart)
    calls = [part for part in request.messages[2].content if isinstance(part, ToolCallPart)]
    answers = [message.content[0] for message in request.messages[3:]]
    assert [call.arguments for call in calls] == [{"city": "Zürich", "days": 2}, {}]
    assert all(isinstance(part, ToolResultPart) for part in answers)
    assert [part.tool_name for part in answers] == ["get_weather", "get_time"]  # type: ignore[attr-defined]
    assert (request.tools[0].name, request.tool_choice.name) == ("get_weather", "get_weather")  # type: ignore[union-attr]
    assert (request.sampling.max_output_tokens, request.sampling.stop) == (64, ("END",))
    assert upstream.paths[-1] == upstream.adapter.to_http(request).path


@pytest.mark.spec("ADP-12")
def test_structured_output_that_the_sdk_asks_for_is_the_canonical_schema() -> None:
    upstream = Upstream(FORMAT, ANSWERS["text"])

    client_of(upstream).models.generate_content(
        model=MODEL,
        contents="hi",
        config=types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=PERSON),
    )

    assert upstream.read(model=MODEL).response_schema == PERSON
