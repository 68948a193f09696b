"""The providers' own SDKs against a gateway on a real socket: whole, streamed, sync, async, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import ANN, KEY, script, serving

anthropic = pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")
genai = pytest.importorskip("google.genai", reason="the provider's own SDK is a development dependency")
ollama = pytest.importorskip("ollama", reason="the provider's own SDK is a development dependency")
openai = pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")

DENY = 'deny contains {"code": "no.forbidden", "reason": "Not this."} if contains(input.content, "forbidden")'
CALL = {"name": "get_weather", "arguments": {"city": "Zürich"}}
REPLIES = (
    {"when": {"says": "weather"}, "text": "I look.", "tool_calls": [CALL]},
    {"when": {"says": "bad reply"}, "text": "this is forbidden"},
    {"text": "héllo {said}"},
)
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("gateway")
    policies = write_rules(home / "policy", {"forbidden": DENY}, kinds="text")
    routes = [{"name": "all", "upstream": "up", "models": ["m*"]}]
    body = {"upstreams": {"up": script(home, *REPLIES)}, "keys": [ANN], "policies": [str(policies)], "routes": routes}
    with serving(home, body) as address:
        yield address


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# -- OpenAI ------------------------------------------------------------------------------------------------------------


def chat_of(url: str, key: str = KEY) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key)


@pytest.mark.spec("GW-11", "GW-19")
def test_the_openai_sdk_chats_whole_and_streamed(url: str) -> None:
    client = chat_of(url)

    whole = client.chat.completions.create(model="m", messages=says("there"))
    chunks = list(client.chat.completions.create(model="m", messages=says("there"), stream=True))

    assert whole.choices[0].message.content == "héllo there"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "héllo there"
    assert all(chunk.choices for chunk in chunks), "a chunk without choices is for who asked for usage"
    assert whole.id.startswith("chatcmpl-01")
    assert chunks[0].id != whole.id


def test_the_openai_sdk_gets_usage_in_a_stream_where_it_asks(url: str) -> None:
    ask = {"model": "m", "messages": says("there"), "stream": True, "stream_options": {"include_usage": True}}

    *_, last = chat_of(url).chat.completions.create(**ask)

    assert (last.choices, last.usage.total_tokens > 0) == ([], True)


def test_the_openai_sdk_gets_a_tool_call_in_a_stream(url: str) -> None:
    tools = [{"type": "function", "function": TOOL}]

    with chat_of(url).chat.completions.stream(model="m", messages=says("weather?"), tools=tools) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls

    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Zürich"})


async def test_the_async_openai_sdk_streams(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        chunks = await client.chat.completions.create(model="m", messages=says("there"), stream=True)

        assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == "héllo there"


@pytest.mark.spec("GW-11", "GW-19")
def test_the_openai_sdk_uses_responses_whole_and_streamed(url: str) -> None:
    client = chat_of(url)

    whole = client.responses.create(model="m", input="there", store=False)
    with client.responses.stream(model="m", input="there", store=False) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_response()

    assert whole.output_text == streamed.output_text == "héllo there"
    assert whole.id.startswith("resp_01")


@pytest.mark.spec("GW-31")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["forbidden", "bad reply"])
def test_the_openai_sdk_raises_its_own_error_once_where_policy_refuses(url: str, stream: bool, text: str) -> None:
    with pytest.raises(openai.PermissionDeniedError) as caught:
        chat_of(url).chat.completions.create(model="m", messages=says(text), stream=stream)

    assert caught.value.code == "no.forbidden"
    assert caught.value.type == "policy_violation"
    assert caught.value.response.headers["x-cmf-decision-id"] in caught.value.message
    assert caught.value.request_id.startswith("req_")
    assert "x-stainless-retry-count" not in caught.value.request.headers or (
        caught.value.request.headers["x-stainless-retry-count"] == "0"
    )


@pytest.mark.spec("GW-20")
def test_the_openai_sdk_raises_its_own_error_where_the_key_is_wrong(url: str) -> None:
    with pytest.raises(openai.AuthenticationError):
        chat_of(url, key="another").chat.completions.create(model="m", messages=says("there"))


@pytest.mark.spec("GW-10")
def test_the_openai_sdk_gets_404_for_embeddings(url: str) -> None:
    with pytest.raises(openai.NotFoundError, match="Embeddings are not supported"):
        chat_of(url).embeddings.create(model="m", input="there")


@pytest.mark.spec("GW-29")
def test_the_openai_sdk_lists_models(url: str) -> None:
    assert list(chat_of(url).models.list()) == []  # the route names a pattern, and no model


@pytest.mark.spec("GW-29")
def test_a_model_that_no_route_serves_is_not_found_in_each_sdks_own_way(url: str) -> None:
    with chat_of(url) as client, pytest.raises(openai.NotFoundError, match="No route serves this model"):
        client.models.retrieve("another")
    with messages_of(url) as client, pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("another")
    with gemini_of(url) as client, pytest.raises(genai.errors.ClientError, match="NOT_FOUND"):
        client.models.get(model="another")
    with ollama_of(url) as client, pytest.raises(ollama.ResponseError, match="No route serves this model"):
        client.show("another")


@pytest.mark.spec("GW-29")
@pytest.mark.parametrize("model", ["m", "mine:8b"])
def test_each_sdk_finds_a_model_that_a_route_serves(url: str, model: str) -> None:
    with chat_of(url) as client:
        assert client.models.retrieve(model).id == model
        assert client.models.retrieve(f"my/{model}").id == f"my/{model}"
    with messages_of(url) as client:
        assert client.models.retrieve(model).id == model
    with gemini_of(url) as client:
        assert client.models.get(model=model).name == f"models/{model}"
    with ollama_of(url) as client:
        assert "tools" in client.show(model).capabilities


@pytest.mark.spec("GW-29")
def test_a_body_that_names_no_model_to_show_is_refused(url: str) -> None:
    answers = [
        httpx.post(f"{url}/api/show", json=body, headers={"authorization": f"Bearer {KEY}"})
        for body in ({}, [], {"model": 1}, {"name": "m"})
    ]

    assert [one.status_code for one in answers] == [400, 400, 400, 200]


@pytest.mark.spec("GW-20")
def test_who_has_no_key_is_told_of_no_model(url: str) -> None:
    assert httpx.get(f"{url}/v1/models/m").status_code == 401
    assert httpx.post(f"{url}/api/show", json={"model": "m"}).status_code == 401


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def messages_of(url: str, key: str = KEY) -> Any:
    return anthropic.Anthropic(base_url=url, api_key=key)


@pytest.mark.spec("GW-11", "GW-19")
def test_the_anthropic_sdk_whole_and_streamed(url: str) -> None:
    client = messages_of(url)

    whole = client.messages.create(model="m", max_tokens=64, messages=says("there"))
    with client.messages.stream(model="m", max_tokens=64, messages=says("there")) as stream:
        texts = "".join(stream.text_stream)

    assert whole.content[0].text == texts == "héllo there"
    assert whole.id.startswith("msg_01")


def test_the_anthropic_sdk_gets_a_tool_call_in_a_stream(url: str) -> None:
    tools = [{"name": TOOL["name"], "input_schema": TOOL["parameters"]}]

    with messages_of(url).messages.stream(model="m", max_tokens=64, messages=says("weather?"), tools=tools) as stream:
        final = stream.get_final_message()

    assert (final.content[1].name, final.content[1].input) == ("get_weather", {"city": "Zürich"})
    assert final.stop_reason == "tool_use"


async def test_the_async_anthropic_sdk_streams_and_counts(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client:
        async with client.messages.stream(model="m", max_tokens=64, messages=says("there")) as stream:
            texts = [text async for text in stream.text_stream]
        count = await client.messages.count_tokens(model="m", messages=says("there"))

    assert "".join(texts) == "héllo there"
    assert count.input_tokens > 0


@pytest.mark.spec("GW-39")
def test_the_anthropic_sdks_tool_runner_sends_the_whole_history_where_its_thread_is_not_known(url: str) -> None:
    def get_weather(city: str) -> str:
        """Weather."""
        return f"sunny in {city}"

    client = messages_of(url)
    tool = anthropic.beta_tool(get_weather)

    runner = client.beta.messages.tool_runner(model="m", max_tokens=64, messages=says("weather?"), tools=[tool])
    replies = [message.stop_reason for message in runner]

    assert replies == ["tool_use", "end_turn"]


@pytest.mark.spec("GW-39")
@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, {"error_code": "thread_not_found"}),
        ({"thread": {"type": "create"}, "previous_response_id": "resp_1"}, None),
        ({"previous_response_id": "resp_1"}, None),
    ],
)
def test_only_a_client_that_continues_a_thread_gets_thread_not_found(
    url: str, fields: dict[str, Any], details: dict[str, str] | None
) -> None:
    with pytest.raises(anthropic.PermissionDeniedError) as caught:
        messages_of(url).messages.create(model="m", max_tokens=64, messages=says("there"), extra_body=fields)

    assert caught.value.body["error"]["code"] == "reference.response"
    assert caught.value.body["error"].get("details") == details
    assert "(an earlier answer, at request): send the content itself." in caught.value.message


@pytest.mark.spec("GW-39")
def test_clients_of_other_formats_get_no_details_of_threads(url: str) -> None:
    with pytest.raises(openai.PermissionDeniedError) as caught:
        chat_of(url).responses.create(model="m", input="there", previous_response_id="resp_1")

    assert "details" not in caught.value.body


@pytest.mark.spec("GW-31")
@pytest.mark.parametrize("text", ["forbidden", "bad reply"])
def test_the_anthropic_sdk_raises_its_own_error_where_policy_refuses(url: str, text: str) -> None:
    client = messages_of(url)

    with pytest.raises(anthropic.PermissionDeniedError) as caught:
        client.messages.create(model="m", max_tokens=64, messages=says(text))
    with (
        pytest.raises(anthropic.PermissionDeniedError),
        client.messages.stream(model="m", max_tokens=64, messages=says(text)),
    ):
        pass

    assert caught.value.body["error"]["type"] == "permission_error"
    assert caught.value.body["error"]["code"] == "no.forbidden"
    assert caught.value.request_id.startswith("req_")


# -- Gemini ------------------------------------------------------------------------------------------------------------


def gemini_of(url: str, key: str = KEY) -> Any:
    return genai.Client(api_key=key, vertexai=False, http_options=genai.types.HttpOptions(base_url=url))


@pytest.mark.spec("GW-11", "GW-31")
def test_googles_sdk_whole_streamed_counted_and_refused(url: str) -> None:
    client = gemini_of(url)

    whole = client.models.generate_content(model="m", contents="there")
    streamed = list(client.models.generate_content_stream(model="m", contents="there"))
    with pytest.raises(genai.errors.ClientError) as caught:
        client.models.generate_content(model="m", contents="forbidden")

    assert whole.text == "".join(chunk.text or "" for chunk in streamed) == "héllo there"
    assert client.models.count_tokens(model="m", contents="there").total_tokens > 0
    assert (caught.value.code, caught.value.status) == (403, "PERMISSION_DENIED")


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # of aiohttp, about what this SDK does
async def test_googles_async_sdk_streams(url: str) -> None:
    client = gemini_of(url)

    stream = await client.aio.models.generate_content_stream(model="m", contents="there")
    texts = [chunk.text or "" async for chunk in stream]
    await client.aio.aclose()
    client.close()

    assert "".join(texts) == "héllo there"


# -- Ollama ------------------------------------------------------------------------------------------------------------


def ollama_of(url: str) -> Any:
    return ollama.Client(host=url, headers={"authorization": f"Bearer {KEY}"})


@pytest.mark.spec("GW-11", "GW-31")
def test_ollamas_sdk_whole_streamed_and_refused(url: str) -> None:
    client = ollama_of(url)

    whole = client.chat(model="m", messages=says("there"))
    streamed = list(client.chat(model="m", messages=says("there"), stream=True))
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat(model="m", messages=says("forbidden"))

    assert whole.message.content == "".join(one.message.content or "" for one in streamed) == "héllo there"
    client._client.close()  # this SDK has no other way

    assert caught.value.status_code == 403
    assert "no.forbidden" in caught.value.error


async def test_ollamas_async_sdk_streams(url: str) -> None:
    client = ollama.AsyncClient(host=url, headers={"authorization": f"Bearer {KEY}"})

    stream = await client.chat(model="m", messages=says("there"), stream=True)
    texts = [one.message.content or "" async for one in stream]
    await client._client.aclose()  # this SDK has no other way

    assert "".join(texts) == "héllo there"
