"""Any client's dialect to any upstream's, over two real sockets: a gateway before a gateway with a script."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import script, serving

from cmf import TextPart, ThinkingPart, ToolCallPart
from cmf.adapters import get
from cmf.adapters.wire.sse import NdjsonReader, SseReader
from cmf.adapters.wire.stream import is_whole
from cmf.message.request import Response
from pipeline.gateway.http import endpoints

CLIENTS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama")
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = {"name": "get_weather", "arguments": {"city": "Zürich"}}
REPLIES = (
    {"when": {"says": "weather"}, "text": "I look.", "tool_calls": [CALL]},
    {"when": {"says": "think"}, "thinking": "two and two", "text": "4"},
    {"text": "said: {said}"},
)
MASK = """\
redact contains {"code": "no.pin", "reason": "A PIN.", "spans": [[at, at + 4]]} if {
    at := indexof(input.content, "1234")
    at >= 0
}"""
DENY = 'deny contains {"code": "no.forbidden", "reason": "Not this."} if contains(input.content, "forbidden")'


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One gateway with a route to each dialect (the model says which), before one with the script."""
    home = tmp_path_factory.mktemp("crossing")
    lenient = write_rules(home / "lenient", {"none": 'deny contains {"code": "x", "reason": "x"} if false'})
    policies = write_rules(home / "policy", {"pin": MASK, "forbidden": DENY}, kinds="text")
    back = {"upstreams": {"up": script(home, *REPLIES)}, "policies": [str(lenient)]}
    with serving(home, back, name="back") as behind:
        front = {
            "upstreams": {name: {"dialect": name, "base_url": behind} for name in CLIENTS},
            "routes": [{"name": name, "upstream": name, "models": [f"to-{name}"]} for name in CLIENTS],
            "policies": [str(policies)],
        }
        with serving(home, front, name="front") as url:
            yield url


def asks(dialect: str, model: str, text: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """The path and body of a request for a tool or an answer, as a client of that dialect sends it."""
    user = [{"role": "user", "content": text}]
    function = {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}
    body: dict[str, Any] = {"model": model, "messages": user, "stream": stream}
    match dialect:
        case "openai_chat":
            return "/v1/chat/completions", body | {"tools": [{"type": "function", "function": function}]}
        case "openai_responses":
            tools = [{"type": "function", "strict": False, **function}]
            return "/v1/responses", {"model": model, "input": user, "stream": stream, "tools": tools}
        case "anthropic_messages":
            tools = [{"name": "get_weather", "input_schema": PARAMETERS}]
            return "/v1/messages", body | {"max_tokens": 64, "tools": tools}
        case "ollama":
            return "/api/chat", body | {"tools": [{"type": "function", "function": function}]}
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    contents = [{"role": "user", "parts": [{"text": text}]}]
    tools = [{"functionDeclarations": [function]}]
    return f"/v1beta/models/{model}:{method}", {"contents": contents, "tools": tools}


def post(url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def heard(dialect: str, headers: Any, raw: bytes) -> Response:
    """What a client of that dialect makes of the reply."""
    adapter = get(dialect)
    kind = headers["content-type"]
    if kind == "application/json":
        return adapter.from_wire_response(json.loads(raw))
    reader = NdjsonReader() if kind == "application/x-ndjson" else SseReader()
    response = adapter.from_wire_response(adapter.fold_events([*reader.feed(raw), *reader.close()]))
    assert is_whole(response)
    return response


@pytest.mark.spec("GW-11", "GW-16")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("upstream", CLIENTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_text_thinking_and_calls_cross(fronts: str, client: str, upstream: str, stream: bool) -> None:
    def crossed(text: str) -> Response:
        status, headers, raw = post(fronts, *asks(client, f"to-{upstream}", text, stream=stream))
        assert status == 200, raw
        assert (headers["content-type"] != "application/json") is stream
        return heard(client, headers, raw)

    text, call, thought = crossed("hé 1234"), crossed("weather?"), crossed("think")

    assert [part.text for part in text.message.content if isinstance(part, TextPart)] == ["said: hé [MASKED]"]
    (called,) = (part for part in call.message.content if isinstance(part, ToolCallPart))
    assert (called.name, dict(called.arguments or {})) == (CALL["name"], CALL["arguments"])
    assert [part.text for part in thought.message.content if isinstance(part, TextPart)] == ["4"]
    thoughts = [part.text for part in thought.message.content if isinstance(part, ThinkingPart)]
    assert thoughts in ([], ["two and two"])
    if client == upstream and client in ("openai_chat", "gemini", "ollama"):  # the others take it with a signature only
        assert thoughts == ["two and two"]


@pytest.mark.spec("GW-30", "GW-31")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_deny_is_the_clients_own_403_whole_and_streamed(fronts: str, client: str, stream: bool) -> None:
    status, headers, raw = post(fronts, *asks(client, "to-ollama", "forbidden", stream=stream))

    assert status == 403
    assert headers["content-type"] == "application/json"
    assert (headers["x-should-retry"], headers["x-cmf-code"]) == ("false", "no.forbidden")
    assert headers["x-cmf-decision-id"].startswith("dec_")
    said = get(client).from_wire_response(json.loads(raw))
    assert said.error is not None
    assert "Not this." in str(said.error.message)
    assert b"forbidden" not in raw.replace(b"no.forbidden", b"")


@pytest.mark.spec("GW-11")
def test_what_the_upstream_cannot_be_asked_is_400_with_the_place(fronts: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}}
    body = {"model": "to-ollama", "messages": [{"role": "user", "content": [picture]}]}

    status, headers, raw = post(fronts, "/v1/chat/completions", body)

    assert status == 400, raw
    assert headers["x-cmf-code"] == "projection.unsupported"
    assert json.loads(raw)["error"]["message"].endswith(
        "at messages[0].content[0]; Ollama takes images, as base64: resolve them first"
    )


@pytest.mark.spec("GW-10")
def test_a_model_that_no_route_has_is_404(fronts: str) -> None:
    status, headers, _ = post(fronts, *asks("openai_chat", "elsewhere", "hi", stream=False))

    assert (status, headers["x-cmf-code"]) == (404, "route.no-model")


@pytest.mark.spec("GW-16")
def test_gemini_streams_in_an_array_where_it_is_asked_to(fronts: str) -> None:
    path, body = asks("gemini", "to-gemini", "hi", stream=True)

    status, headers, raw = post(fronts, path.removesuffix("?alt=sse"), body)

    assert (status, headers["content-type"]) == (200, "application/json")
    assert (
        "".join(part["text"] for one in json.loads(raw) for part in one["candidates"][0]["content"]["parts"])
        == "said: hi"
    )


def test_models_that_routes_name_are_listed_in_each_dialect(fronts: str) -> None:
    def listed(path: str, **headers: str) -> Any:
        connection = http.client.HTTPConnection(urlsplit(fronts).netloc, timeout=30)
        connection.request("GET", path, headers=headers)
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found

    names = sorted(f"to-{name}" for name in CLIENTS)
    assert [one["id"] for one in listed("/v1/models")["data"]] == names
    assert [one["id"] for one in listed("/v1/models", **{"anthropic-version": "2023-06-01"})["data"]] == names
    assert [one["name"] for one in listed("/v1beta/models")["models"]] == [f"models/{name}" for name in names]
    assert listed("/v1beta/models?pageSize=50") == listed("/v1beta/models")
    # Google's client asks at both.
    assert endpoints.endpoint_of("/v1/models", [], {"x-goog-api-key": "k"}) == endpoints.PATHS["/v1beta/models"]
    assert [one["name"] for one in listed("/api/tags")["models"]] == names
