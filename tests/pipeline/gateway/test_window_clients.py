"""Streams by window over sockets: the providers' SDKs, slow and lost clients, what is on record."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.proxy.test_window import DENY, MASK
from tests.pipeline.gateway.servers import ANN, KEY, Bare, asking, script, serving, until
from tests.pipeline.gateway.test_crossing import CLIENTS, asks, heard, post
from tests.pipeline.gateway.test_upstreams import CHAT, HELLO, chunks

anthropic = pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")
genai = pytest.importorskip("google.genai", reason="the provider's own SDK is a development dependency")
ollama = pytest.importorskip("ollama", reason="the provider's own SDK is a development dependency")
openai = pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")

BEARER = {"authorization": f"Bearer {KEY}"}
SAID = "The key is sk-abcdefgh, and that is all that there is to say about it."
SHOWN = SAID.replace("sk-abcdefgh", "[MASKED]")
PACE = {"pieces": 20, "pace_seconds": 0.02}
REPLIES = (
    {"when": {"says": "late"}, "text": "Many a word before it, and then the forbidden one comes.", **PACE},
    {"when": {"says": "long"}, "text": "word " * 400, "pieces": 100, "pace_seconds": 0.1},
    {"text": SAID, **PACE},
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    """A gateway by window, with a route to each dialect, before one that lets out what a script says as it comes."""
    none = 'deny contains {"code": "x", "reason": "x"} if false'
    lenient = write_rules(home / "lenient", {"none": none}, kinds="image")
    stream = "enforce\n#   stream: {max_match: 12}"
    policies = write_rules(home / "policy", {"key": MASK, "word": DENY}, kinds="text", mode=stream)
    window = {"stream": {"window": 4}}
    back = {
        "upstreams": {"up": script(home, *REPLIES)},
        "routes": [{"name": "all", "upstream": "up", **window}],
        "policies": [str(lenient)],
    }
    with serving(home, back, name="back") as behind:
        front = {
            "upstreams": {name: {"dialect": name, "base_url": behind} for name in CLIENTS},
            "routes": [
                *({"name": name, "upstream": name, "models": [f"to-{name}"], **window} for name in CLIENTS),
                {"name": "m", "upstream": "openai_chat", **window},
            ],
            "policies": [str(policies)],
            "keys": [ANN],
        }
        with serving(home, front, name="front") as address:
            yield address


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.spec("GW-70", "GW-11")
@pytest.mark.parametrize("upstream", CLIENTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_judged_text_from_every_upstream(url: str, client: str, upstream: str) -> None:
    status, headers, raw = post(url, *asks(client, f"to-{upstream}", "hi", stream=True), BEARER)

    response = heard(client, headers, raw)
    assert status == 200
    assert "".join(part.text for part in response.message.content) == SHOWN  # type: ignore[union-attr]
    assert b"sk-" not in raw
    assert headers["x-cmf-decision-id"].startswith("dec_")
    assert headers["transfer-encoding"] == "chunked"
    used = response.usage
    assert client == "openai_chat" or (used is not None and used.output_tokens), "a chat says it if it is asked to"


# -- the SDKs ----------------------------------------------------------------------------------------------------------


def _chat(url: str, text: str, model: str = "m") -> Iterator[str]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=2) as client:
        for chunk in client.chat.completions.create(model=model, messages=says(text), stream=True):
            yield chunk.choices[0].delta.content or ""


def _responses(url: str, text: str, model: str = "m") -> Iterator[str]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        for event in client.responses.create(model=model, input=text, store=False, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta


def _messages(url: str, text: str, model: str = "m") -> Iterator[str]:
    with (
        anthropic.Anthropic(base_url=url, api_key=KEY) as client,
        client.messages.stream(model=model, max_tokens=64, messages=says(text)) as stream,
    ):
        yield from stream.text_stream


def _gemini(url: str, text: str, model: str = "m") -> Iterator[str]:
    client = genai.Client(api_key=KEY, vertexai=False, http_options=genai.types.HttpOptions(base_url=url))
    try:
        for chunk in client.models.generate_content_stream(model=model, contents=text):
            yield chunk.text or ""
    finally:
        client.close()


def _ollama(url: str, text: str, model: str = "m") -> Iterator[str]:
    client = ollama.Client(host=url, headers=BEARER)
    try:
        for one in client.chat(model=model, messages=says(text), stream=True):
            yield one.message.content or ""
    finally:
        client._client.close()  # this SDK has no other way


SDKS = {
    "openai_chat": (_chat, openai.APIError),
    "openai_responses": (_responses, openai.APIError),
    "anthropic_messages": (_messages, anthropic.APIStatusError),
    "gemini": (_gemini, genai.errors.ClientError),
    "ollama": (_ollama, ollama.ResponseError),
}


@pytest.mark.spec("GW-70", "GW-71")
@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_gets_the_text_while_it_comes(url: str, sdk: str) -> None:
    began, pieces, moments = time.monotonic(), [], []
    for piece in SDKS[sdk][0](url, "hi"):
        pieces.append(piece)
        moments.append(time.monotonic() - began)

    assert "".join(pieces) == SHOWN
    assert len([piece for piece in pieces if piece]) >= 4
    assert moments[0] < moments[-1] - 0.1, "the first came long before the last"


@pytest.mark.spec("GW-73")
@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_raises_its_own_error_where_policy_refuses_late(url: str, sdk: str) -> None:
    pieces: list[str] = []
    with pytest.raises(SDKS[sdk][1], match="Not this word"):
        pieces.extend(SDKS[sdk][0](url, "late"))

    said = "".join(pieces)
    assert said.startswith("Many a word before")
    assert "forbidden" not in said


@pytest.mark.spec("GW-70", "GW-73")
async def test_the_async_sdks_stream_and_raise(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        stream = await client.chat.completions.create(model="m", messages=says("hi"), stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == SHOWN
        stream = await client.chat.completions.create(model="m", messages=says("late"), stream=True)
        with pytest.raises(openai.APIError, match="Not this word"):
            async for _ in stream:
                pass
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client:
        async with client.messages.stream(model="m", max_tokens=64, messages=says("hi")) as stream:
            assert "".join([text async for text in stream.text_stream]) == SHOWN
            final = await stream.get_final_message()
        assert final.usage.input_tokens > 0
        assert final.usage.output_tokens > 0


# -- clients that go, or are slow --------------------------------------------------------------------------------------


class _Dripping(Bare):
    """An upstream that goes on and on, until it is left alone."""

    sent = 0

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.heard.append(b"")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        piece = chunks("word " * 200, end=False)
        try:
            while True:
                writer.write(piece)
                await writer.drain()
                type(self).sent += len(piece)
                await asyncio.sleep(0.001)
                if reader.at_eof() or writer.is_closing():
                    break
        except ConnectionError:
            pass
        finally:
            self.left.set()
            writer.close()


@pytest.fixture
def dripping(tmp_path: Path) -> Iterator[tuple[str, _Dripping]]:
    upstream = _Dripping(b"")
    type(upstream).sent = 0
    stream = "enforce\n#   stream: {max_match: 12}"
    policies = write_rules(tmp_path / "policy", {"key": MASK}, kinds="text", mode=stream)
    with upstream.running() as address:
        body = {
            "upstreams": {"up": {"dialect": "openai_chat", "base_url": address}},
            "routes": [{"name": "r", "upstream": "up", "stream": {"window": 64}}],
            "policies": [str(policies)],
            "limits": {"stalled_seconds": 1},
        }
        with serving(tmp_path, body) as url:
            yield url, upstream


@pytest.mark.spec("GW-77", "GW-15")
def test_a_client_that_leaves_in_the_middle_lets_the_upstream_go_within_a_second(
    dripping: tuple[str, _Dripping],
) -> None:
    url, upstream = dripping
    client = asking(url, CHAT, json.dumps(HELLO | {"stream": True}).encode())
    assert b"word" in client.recv(65_536) + client.recv(65_536)
    began = time.monotonic()
    client.close()

    assert upstream.left.wait(5)
    assert time.monotonic() - began < 1


@pytest.mark.spec("GW-77")
def test_a_client_that_takes_nothing_holds_the_upstream_back_and_is_gone_then(
    dripping: tuple[str, _Dripping],
) -> None:
    url, upstream = dripping
    client = asking(url, CHAT, json.dumps(HELLO | {"stream": True}).encode(), takes=4096)

    assert upstream.left.wait(30), "it is let go after stalled_seconds"
    client.close()

    assert upstream.sent < 32 * 1024 * 1024


@pytest.mark.spec("GW-77")
def test_the_openai_sdk_closes_a_stream_that_it_does_not_want_any_more(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)
    stream = client.chat.completions.create(model="m", messages=says("long"), stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    began = time.monotonic()
    stream.close()

    def in_flight() -> float:
        return _gauge(url, "cmf_gateway_in_flight")

    until(lambda: in_flight() == 0)
    assert time.monotonic() - began < 2


def _gauge(url: str, name: str) -> float:
    import urllib.request

    with urllib.request.urlopen(f"{url}/metrics") as reply:
        text = reply.read().decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


# -- on record ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-71", "GW-72")
def test_each_judgement_is_on_record_and_a_late_one_says_how_much_was_out(tmp_path: Path) -> None:
    stream = "enforce\n#   stream: {max_match: 12}"
    policies = write_rules(tmp_path / "policy", {"word": DENY}, kinds="text", mode=stream)
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "x" * 40 + " forbidden " + "y" * 40, "pieces": 10})},
        "routes": [{"name": "r", "upstream": "up", "stream": {"window": 4}}],
        "policies": [str(policies)],
    }
    with serving(tmp_path, body) as url:
        _, _, raw = post(url, CHAT, HELLO | {"stream": True})
        with sqlite3.connect(tmp_path / "cmf.db") as found:
            rows = [json.loads(body) for (body,) in found.execute("SELECT body FROM records ORDER BY rowid")]
    kept = [row for row in rows if "result" in row]

    out = raw.count(b"x") - raw.count(b"index") - raw.count(b"text")
    assert [one["result"]["action"] for one in kept][-1] == "refuse"
    actions = [one["result"]["action"] for one in kept]
    assert actions == sorted(actions), "what was refused as far as it had come goes no further"
    assert actions[0] == "forward"
    released = [one.get("released_characters", 0) for one in kept]
    assert released == sorted(released)
    assert released[-1] > 0
    assert "x" * released[-1] not in json.dumps(kept)
    assert out >= released[-1]


@pytest.mark.spec("GW-71")
def test_labels_of_a_window_are_the_sessions_before_it_is_out(tmp_path: Path) -> None:
    label = 'label contains {"code": "l", "reason": "l", "label": "pii"} if contains(input.content, "private")'
    block = 'deny contains {"code": "no.more", "reason": "No more."} if "pii" in input.extensions.security.labels'
    mode = "enforce\n#   stream: {max_match: 8}"
    policies = write_rules(tmp_path / "policy", {"label": label}, kinds="text", mode=mode)
    write_rules(policies, {"block": block}, kinds="request")
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "private words, many", "pieces": 30, "pace_seconds": 0.05})},
        "routes": [{"name": "r", "upstream": "up", "stream": {"window": 1}}],
        "policies": [str(policies)],
        "keys": [],
    }
    with serving(tmp_path, body | {"anonymous": True}) as url:
        session = {"x-cmf-session-id": "s1"}
        with asking(url, CHAT, json.dumps(HELLO | {"stream": True}).encode(), session) as client:
            seen = b""
            while b"private" not in b"".join(re.findall(rb'"content":"([^"]*)"', seen)):
                more = client.recv(65536)
                assert more
                seen += more
            status, headers, _ = post(url, CHAT, HELLO, session)

    assert seen.startswith(b"HTTP/1.1 200")
    assert b"[DONE]" not in seen
    assert (status, headers["x-cmf-code"]) == (403, "no.more")
