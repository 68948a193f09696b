"""Ways around a guard: a text in every corner of a request or an answer is seen by policy, or the whole is refused."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway import matrix_bodies
from tests.pipeline.gateway.matrix import Scope
from tests.pipeline.gateway.servers import running, serving
from tests.pipeline.gateway.test_refusals import post

from cmf.adapters import get
from cmf.adapters.wire.sse import sse_bytes

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
SEES = 'deny contains {"code": "saw.canary", "reason": "Seen."} if contains(json.marshal(input), "canary")'
HI: list[Any] = [{"role": "user", "content": "hi"}]
TOOL = {"name": "lookup", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}}


class Upstream:
    """Answers in OpenAI's dialect with what it is given, whole or streamed; keeps what it was asked."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.answer: Any = None

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw, more = b"", True
        while more:
            event = await receive()
            raw += event.get("body", b"")
            more = event.get("more_body", False)
        self.heard.append(raw)
        adapter, kind, body = get("openai_chat"), b"application/json", json.dumps(self.answer).encode()
        if json.loads(raw).get("stream"):
            events = adapter.to_wire_events(adapter.from_wire_response(self.answer))
            kind, body = b"text/event-stream", b"".join(map(sse_bytes, events))
        head = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Upstream]]:
    """A gateway, and the upstream behind it."""
    home, upstream = tmp_path_factory.mktemp("bypasses"), Upstream()
    policies = write_rules(home / "policy", {"sees": SEES})
    with running(upstream) as behind:
        body = {
            "upstreams": {"up": {"dialect": "openai_chat", "base_url": behind}},
            "policies": [str(policies)],
            "routes": [{"name": "all", "upstream": "up"}],
        }
        with serving(home, body) as url:
            yield url, upstream


def call(arguments: str, name: str = "lookup", id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def used(*calls: Any, result: Any = "fine") -> list[Any]:
    results = [{"role": "tool", "tool_call_id": one["id"], "content": result} for one in calls]
    return [*HI, {"role": "assistant", "tool_calls": list(calls)}, *results]


def chat(messages: Any = HI, **more: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"model": "m", "messages": messages, **more}


def anthropic(content: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return MESSAGES, {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}], **more}


def block(**fields: Any) -> list[Any]:
    return [{"type": "text", "text": "hi"}, fields]


@pytest.mark.spec("GW-166")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(*one, id=name)
        for name, one in {
            "first of many messages": chat([{"role": "user", "content": "canary"}, *HI * 60]),
            "another role": chat([*HI, {"role": "developer", "content": "canary"}, *HI]),
            "a name": chat([{"role": "user", "content": "hi", "name": "canary"}]),
            "a refusal": chat([*HI, {"role": "assistant", "content": None, "refusal": "canary"}, *HI]),
            "the second of two calls": chat(used(call("{}"), call('{"a": "canary"}', id="c2"))),
            "a call's name": chat(used(call("{}", name="canary"))),
            "arguments that are no JSON": chat(used(call('{"a": canary'))),
            "arguments with a key twice": chat(used(call('{"a": "canary", "a": "b"}'))),
            "arguments within arguments": chat(used(call(json.dumps({"a": json.dumps({"b": "canary"})})))),
            "a result in blocks": chat(used(call("{}"), result=[{"type": "text", "text": "canary"}])),
            "the old form of a call": chat(
                [*HI, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "canary"}}]
            ),
            "the old form of tools": chat(functions=[TOOL | {"description": "canary"}]),
            "a tool's default": chat(
                tools=[{"type": "function", "function": TOOL | {"parameters": {"default": "canary"}}}]
            ),
            "an answer's schema": chat(
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"type": "object", "description": "canary"}},
                }
            ),
            "a prediction": chat(prediction={"type": "content", "content": "canary"}),
            "where to stop": chat(stop=["canary"]),
            "metadata": chat(metadata={"a": "canary"}),
            "the user's name": chat(user="canary"),
            "a key that nobody knows": chat(api_base="http://canary.example"),
            "a key that nobody knows, within": chat([{"role": "user", "content": "hi", "zebra": "canary"}]),
            "a block that nobody knows": chat([{"role": "user", "content": block(type="zebra", zebra="canary")}]),
            "a picture's address": chat(
                [{"role": "user", "content": block(type="image_url", image_url={"url": "https://canary.example/a"})}]
            ),
            "a file's name": chat(
                [{"role": "user", "content": block(type="file", file={"filename": "canary", "file_data": "data:,x"})}]
            ),
            "a system prompt in blocks": anthropic("hi", system=[{"type": "text", "text": "canary"}]),
            "a result within": anthropic(
                block(type="tool_result", tool_use_id="c", content=[{"type": "text", "text": "canary"}])
            ),
            "a document's title": anthropic(
                block(type="document", title="canary", source={"type": "text", "media_type": "text/plain", "data": "x"})
            ),
            "a document beyond a megabyte": anthropic(
                block(
                    type="document",
                    source={
                        "type": "base64",
                        "media_type": "text/plain",
                        "data": base64.b64encode(b"long " * 220_000 + b"canary").decode(),
                    },
                )
            ),
            "bytes that are no base64": anthropic(
                block(type="image", source={"type": "base64", "media_type": "image/png", "data": "a canary!"})
            ),
            "a signature": anthropic(
                "hi",
                messages=[
                    *HI,
                    {"role": "assistant", "content": block(type="thinking", thinking="x", signature="a canary!")},
                    *HI,
                ],
            ),
            "a search result": anthropic(
                block(type="search_result", source="s", title="t", content=[{"type": "text", "text": "canary"}])
            ),
            "a citation": anthropic(
                [{"type": "text", "text": "hi", "citations": [{"type": "char_location", "cited_text": "canary"}]}]
            ),
            "a note for a cache": anthropic([{"type": "text", "text": "hi", "cache_control": {"type": "canary"}}]),
        }.items()
    ],
)
def test_a_text_in_any_corner_of_a_request_does_not_go_out_unseen(
    ends: tuple[str, Upstream], path: str, body: dict[str, Any]
) -> None:
    url, upstream = ends
    upstream.heard.clear()

    status, headers, _ = post(url, path, body)

    assert upstream.heard == []
    assert (status, headers["x-cmf-code"]) == (403, "saw.canary") or status == 400


@pytest.mark.spec("GW-12", "GW-166")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(chat(metadata={f"k{at}": "v" for at in range(60_000)}), id="many keys"),
        pytest.param(chat(used(call("[" * 100_000 + "]" * 100_000))), id="depth within arguments"),
        pytest.param(chat(used(call("9" * 10_000))), id="a number of many digits"),
    ],
)
def test_what_would_cost_more_than_it_says_is_answered_in_time(ends: tuple[str, Upstream], body: Any) -> None:
    url, upstream = ends
    upstream.answer = matrix_bodies.reply("openai_chat", "text", "fine")
    begun = time.process_time()

    status, _, _ = post(url, *body)

    assert status in (200, 400, 403)
    assert time.process_time() - begun < 10


@pytest.mark.spec("GW-166")
@pytest.mark.parametrize("flag", ["false", "true", 1, 0, "", [], {}])
def test_a_stream_flag_that_is_not_a_boolean_is_refused(ends: tuple[str, Upstream], flag: Any) -> None:
    url, upstream = ends
    upstream.heard.clear()

    status, _, _ = post(url, *chat(stream=flag))

    assert (status, upstream.heard) == (400, [])


def answers(*texts: str, **more: Any) -> dict[str, Any]:
    body = matrix_bodies.reply("openai_chat", "text", "x")
    own = [{"role": "assistant", "content": text} for text in texts]
    choices = [{"index": at, "finish_reason": "stop", "message": one} for at, one in enumerate(own)]
    choices[-1]["message"] = {**own[-1], **more}
    return {**body, "choices": choices}


@pytest.mark.spec("GW-166")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(one, id=name)
        for name, one in {
            "the last of three choices": answers("a", "b", "canary"),
            "a refusal": answers("a", refusal="canary"),
            "reasoning": answers("a", reasoning_content="canary"),
            "the second of two calls": answers("a", tool_calls=[call("{}"), call('{"a": "canary"}', id="c2")]),
            "arguments that are no JSON": answers("a", tool_calls=[call("{canary")]),
            "an annotation": answers(
                "a",
                annotations=[
                    {
                        "type": "url_citation",
                        "url_citation": {"url": "u", "title": "canary", "start_index": 0, "end_index": 1},
                    }
                ],
            ),
        }.items()
    ],
)
def test_a_text_in_any_corner_of_an_answer_does_not_come_in_unseen(
    ends: tuple[str, Upstream], answer: dict[str, Any], stream: bool
) -> None:
    url, upstream = ends
    upstream.answer = answer

    status, _, raw = post(url, *chat(n=3, stream=stream))

    assert b"canary" not in raw.replace(b"saw.canary", b"")
    assert status in (403, 502) or (status == 200 and b"canary" not in raw)


@pytest.mark.spec("GW-14")
@pytest.mark.parametrize("dialect", [CHAT, MESSAGES])
def test_a_text_makes_no_event_of_its_own_in_a_stream(ends: tuple[str, Upstream], dialect: str) -> None:
    url, upstream = ends
    upstream.answer = answers("a\n\nevent: error\ndata: {}\r\n\r\ndata: [DONE]\u2028\x85\n\n: x")
    _, body = chat(stream=True) if dialect == CHAT else anthropic("hi", stream=True)

    status, _, raw = post(url, dialect, body)

    assert status == 200
    for line in raw.decode().split("\n"):
        assert (
            line == ""
            or line.startswith(("data: {", "event: message", "event: content", "event: ping"))
            or (dialect == CHAT and line == "data: [DONE]")
        )
    assert raw.count(b"[DONE]") == (2 if dialect == CHAT else 1)
