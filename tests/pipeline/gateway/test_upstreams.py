"""What an upstream can do wrong, and what of it reaches a client: from a bare upstream that sends any bytes at all."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import Bare, asking, http_reply, script, serving, until
from tests.pipeline.gateway.test_crossing import CLIENTS, asks, post

from cmf.message.request import Request
from pipeline.gateway.config.settings import Upstream
from pipeline.gateway.upstreams.http_upstream import HttpUpstream
from pipeline.gateway.upstreams.upstream import UpstreamError

CHAT = "/v1/chat/completions"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = {
    "id": "chatcmpl-9",
    "object": "chat.completion",
    "created": 9,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 9, "model": "m"}
WHOLE = json.dumps(ANSWER).encode()


def chunks(*texts: str, end: bool = True, noise: bytes = b"") -> bytes:
    deltas: list[dict[str, Any]] = [{"index": 0, "delta": {"role": "assistant", "content": text}} for text in texts]
    if end:
        deltas.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [b"data: " + json.dumps(CHUNK | {"choices": [one]}).encode() + b"\n\n" for one in deltas]
    return noise.join(events) + (b"data: [DONE]\n\n" if end else b"")


@contextmanager
def before(home: Path, bare: Bare, **more: Any) -> Iterator[str]:
    """A gateway's address, whose upstream is the bare one."""
    policies = write_rules(home / "policy", {"none": 'deny contains {"code": "x", "reason": "x"} if false'})
    with bare.running() as address:
        settings = {"dialect": "openai_chat", "base_url": address, **more.pop("upstream", {})}
        body = {"upstreams": {"up": settings, **more.pop("more_upstreams", {})}, "policies": [str(policies)], **more}
        with serving(home, body, {"KEY": "sk-our-own-key"}) as url:
            yield url


@pytest.mark.spec("GW-41", "GW-44", "GW-16")
@pytest.mark.parametrize(
    ("reply", "status", "code", "why"),
    [
        (http_reply(b"<html>", kind="text/html"), 502, "upstream.unreadable", "its media type"),
        (http_reply(WHOLE[:-1]), 502, "upstream.unreadable", "json.syntax"),
        (http_reply(WHOLE.replace(b'"created": 9', b'"created": 9, "id": "twice"')),
         502, "upstream.unreadable", "json.duplicate-key"),
        (http_reply(b"[]"), 502, "upstream.error", "status 200 with an error of 500"),
        (http_reply(WHOLE, more=b"content-encoding: gzip\r\n"), 502, "upstream.unreadable", "it is compressed"),
        (http_reply(WHOLE, more=b"content-encoding: identity\r\ncontent-encoding: gzip\r\n"),
         502, "upstream.unreadable", "it is compressed"),
        (http_reply(b"", status="302 Found", more=b"location: http://127.0.0.1:1/\r\n"),
         502, "upstream.unreadable", "status 302; redirects are not followed"),
        (http_reply(b"x" * 9000), 502, "upstream.too-large", ""),
        (http_reply(chunks("x" * 9000), kind="text/event-stream"), 502, "upstream.unreadable", ""),
        (http_reply(chunks("half", end=False), kind="text/event-stream"), 502, "upstream.cut", "before the answer did"),
        (http_reply(b"", kind="text/event-stream"), 502, "upstream.cut", ""),
        (http_reply(b'data: {"a":1,"a":2}\n\n', kind="text/event-stream"), 502, "upstream.unreadable", ""),
        (http_reply(WHOLE)[:-9], 502, "upstream.unreachable", "its reply broke off"),
        (b"rubbish\r\n\r\n", 502, "upstream.unreachable", "is not HTTP"),
        (b"", 502, "upstream.unreachable", "without a reply"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_502_and_quotes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reply: bytes, status: int, code: str, why: str
) -> None:
    with before(tmp_path, Bare(reply), limits={"reply_bytes": 8192}) as url:
        found, headers, raw = post(url, CHAT, HELLO)

    assert (found, headers["x-cmf-code"]) == (status, code)
    assert json.loads(raw)["error"]["type"] == "server_error"
    [noted] = [json.loads(one.message) for one in caplog.records if "why" in one.message]
    assert (noted["event"], noted["request"], noted["upstream"]) == (code, headers["x-request-id"], "up")
    assert noted["address"].startswith("http://127.0.0.1:")
    assert why in noted["why"]


@pytest.mark.spec("GW-172")
def test_a_log_line_names_the_upstream_asked_last_as_the_settings_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pipeline.gateway")
    fails = Bare(http_reply(b"{}", status="500 Oops"))
    with (
        fails.running() as bad,
        before(
            tmp_path,
            Bare(http_reply(WHOLE)),
            more_upstreams={"first": {"dialect": "openai_chat", "base_url": bad}},
            routes=[{"name": "all", "targets": ["first", "up"]}],
        ) as url,
    ):
        post(url, "/canary", HELLO)
        post(url, CHAT, HELLO)

    lines = [json.loads(one.message) for one in caplog.records if '"ms"' in one.message]
    assert [(line["status"], line["upstream"]) for line in lines] == [(404, "-"), (200, "up")]


@pytest.mark.spec("GW-40", "GW-44")
@pytest.mark.parametrize(
    ("upstream", "told"),
    [
        ("400 Bad Request", 400),
        ("401 Unauthorized", 502),
        ("402 Payment Required", 502),
        ("403 Forbidden", 502),
        ("404 Not Found", 404),
        ("422 Unprocessable", 400),
        ("429 Too Many", 429),
        ("500 Oops", 502),
        ("503 Busy", 503),
        ("529 Overloaded", 503),
    ],
)
def test_an_upstreams_error_is_the_clients_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, upstream: str, told: int
) -> None:
    body = json.dumps({"error": {"message": "it said this", "type": "odd_type", "code": "odd_code"}}).encode()

    with before(tmp_path, Bare(http_reply(body, status=upstream)), upstream={"health": {"failures": 100}}) as url:
        for client in CLIENTS:
            status, headers, raw = post(url, *asks(client, "m", "hi", stream=False))

            assert status == told
            assert headers["x-cmf-decision-id"].startswith("dec_")
            assert headers["x-cmf-code"].startswith("upstream.")
            assert (headers["x-cmf-code"] == "upstream.account") is (upstream[:3] in ("401", "402", "403"))
            assert (headers["x-should-retry"] == "false") is (headers["x-cmf-code"] == "upstream.account")
            assert (b"it said this" in raw) is (told < 500)
            assert b"odd_" not in raw
            assert (headers["retry-after"] is not None) is (told == 503)
    noted = [one.message for one in caplog.records if f'"why":"status {upstream.split()[0]}' in one.message]
    assert len(noted) == (len(CLIENTS) if told == 404 or told >= 429 else 0)
    assert sum("key" in one for one in noted) == (len(CLIENTS) if upstream[:3] in ("401", "402", "403") else 0)


@pytest.mark.spec("GW-40", "GW-83")
def test_a_rejected_key_of_every_target_is_not_tried_again_by_clients(tmp_path: Path) -> None:
    reply = http_reply(b'{"error": {"message": "sk-other is no key"}}', status="401 Unauthorized")

    with before(tmp_path, Bare(reply), routes=[{"name": "all", "targets": ["up", "up/other"]}]) as url:
        status, headers, raw = post(url, CHAT, HELLO)

    assert (status, headers["x-cmf-code"], headers["x-should-retry"]) == (502, "upstream.account", "false")
    assert (headers["retry-after"], b"sk-other" in raw) == (None, False)


@pytest.mark.spec("GW-40")
@pytest.mark.parametrize("upstreams", [1, 2])
@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        ("429 Too Many", "17", "17"),
        ("503 Busy", "0", "0"),
        ("503 Busy", "999999999", "86400"),
        ("429 Too Many", "Mon, 23 Nov 2026 00:00:00 GMT", None),
        ("429 Too Many", "-1", None),
        ("503 Busy", "soon", "5"),
        ("500 Oops", "17", None),
    ],
)
def test_when_to_try_again_is_passed_on_as_seconds(
    tmp_path: Path, status: str, said: str, told: str | None, upstreams: int
) -> None:
    reply = http_reply(b'{"error": {"message": "m"}}', status=status, more=f"retry-after: {said}\r\n".encode())
    chain = {"routes": [{"name": "all", "targets": ["up", "up/other"][:upstreams]}]}

    with before(tmp_path, Bare(reply), **chain) as url:
        _, headers, _ = post(url, CHAT, HELLO)

    assert headers["retry-after"] == told


@pytest.mark.spec("GW-40")
def test_what_an_upstream_says_of_an_error_is_judged(tmp_path: Path) -> None:
    rule = 'deny contains {"code": "no.secret", "reason": "No."} if contains(input.content, "s3cret")'
    policies = write_rules(tmp_path / "p2", {"secret": rule}, kinds="response")
    body = json.dumps({"error": {"message": "s3cret inside", "type": "t"}}).encode()

    with before(tmp_path, Bare(http_reply(body, status="400 Bad")), policies=[str(policies)]) as url:
        status, headers, raw = post(url, CHAT, HELLO)

    assert (status, headers["x-cmf-code"]) == (403, "no.secret")
    assert b"s3cret" not in raw


@pytest.mark.spec("GW-14")
@pytest.mark.parametrize("stream", [False, True])
def test_no_byte_of_an_upstream_gets_through(tmp_path: Path, stream: bool) -> None:
    noise = b": canary-comment\n\n"
    head = b"x-canary: canary-header\r\nset-cookie: canary=1\r\nx-request-id: canary-request\r\n"
    streamed = chunks("fi", "ne", noise=noise).replace(
        b"data: [DONE]", b"event: canary-event\nid: canary-id\ndata: [DONE]"
    )
    reply = http_reply(streamed, kind="text/event-stream", more=head) if stream else http_reply(WHOLE, more=head)

    with before(tmp_path, Bare(reply)) as url:
        status, headers, raw = post(url, CHAT, HELLO | {"stream": stream})

    assert status == 200
    assert b"fi" in raw
    assert b"canary" not in raw
    assert "canary" not in str(headers)


@pytest.mark.spec("GW-14", "GW-3")
def test_an_upstream_is_sent_its_key_and_nothing_of_the_clients_headers(tmp_path: Path) -> None:
    bare = Bare(http_reply(WHOLE))
    own = {"authorization": "Bearer none", "x-canary": "canary", "cookie": "canary=1", "user-agent": "canary"}

    with before(tmp_path, bare, upstream={"key": {"env": "KEY"}}) as url:
        post(url, CHAT, HELLO, {name: text for name, text in own.items() if name != "authorization"})

    (heard,) = bare.heard
    head, _, body = heard.partition(b"\r\n\r\n")
    names = {line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]}
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert b"authorization: bearer sk-our-own-key" in head.lower()
    assert names == {
        b"host",
        b"content-type",
        b"content-length",
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"user-agent",
    }
    assert b"canary" not in heard
    assert json.loads(body) == HELLO


@pytest.mark.spec("GW-14")
def test_a_request_of_megabytes_arrives_whole(tmp_path: Path) -> None:
    bare = Bare(http_reply(WHOLE))
    large = HELLO | {"messages": [{"role": "user", "content": "word " * 300_000}]}

    with before(tmp_path, bare) as url:
        status, *_ = post(url, CHAT, large)

    (heard,) = bare.heard
    assert status == 200
    assert json.loads(heard.partition(b"\r\n\r\n")[2]) == large


@pytest.mark.spec("GW-11")
def test_a_route_asks_for_the_model_that_it_names(tmp_path: Path) -> None:
    bare = Bare(http_reply(WHOLE))

    with before(
        tmp_path, bare, routes=[{"name": "a", "upstream": "up", "models": ["house"], "model": "real:7b"}]
    ) as url:
        status, _, _ = post(url, CHAT, HELLO | {"model": "house"})

    assert status == 200
    assert json.loads(bare.heard[0].partition(b"\r\n\r\n")[2])["model"] == "real:7b"


@pytest.mark.spec("GW-41")
def test_an_upstream_that_is_not_there_is_502(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    silent = Bare(b"", hangs=True)

    with before(tmp_path, silent, upstream={"base_url": nobody}) as url:
        absent, _, _ = post(url, CHAT, HELLO)

    assert absent == 502


@pytest.mark.spec("GW-41", "GW-44")
@pytest.mark.parametrize("setting", ["silent_seconds", "reply_seconds", "connect_seconds"])
def test_an_upstream_that_takes_too_long_is_504_and_the_log_names_the_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        # Who says nothing at all does not finish a handshake of TLS either.
        tls = {"base_url": f"https://127.0.0.1:{deaf.getsockname()[1]}"} if setting == "connect_seconds" else {}
        with before(tmp_path, Bare(b"", hangs=True), upstream={setting: 0.2, **tls}) as url:
            status, headers, _ = post(url, CHAT, HELLO)

    assert (status, headers["x-cmf-code"]) == (504, "upstream.timeout")
    [noted] = [json.loads(one.message)["why"] for one in caplog.records if "why" in one.message]
    assert noted.endswith((f"within 0.2 seconds ({setting})", f"for 0.2 seconds ({setting})"))


@pytest.mark.spec("GW-15")
def test_a_client_that_goes_away_lets_the_upstream_go(tmp_path: Path) -> None:
    bare = Bare(b"", hangs=True)

    with before(tmp_path, bare) as url:
        client = asking(url, CHAT, json.dumps(HELLO).encode())
        until(lambda: bare.heard)
        began = time.monotonic()
        client.close()

        assert bare.left.wait(5)
        assert time.monotonic() - began < 1


@pytest.mark.spec("GW-34")
def test_requests_beyond_the_concurrency_limit_are_503_with_retry_after(tmp_path: Path) -> None:
    bare = Bare(b"", hangs=True)

    with before(tmp_path, bare, limits={"concurrent": 1}, upstream={"silent_seconds": 30}) as url:
        client = asking(url, CHAT, json.dumps(HELLO).encode())
        until(lambda: bare.heard)

        status, headers, _ = post(url, CHAT, HELLO)
        client.close()

    assert (status, headers["x-cmf-code"], headers["retry-after"]) == (503, "gateway.busy", "1")


@pytest.mark.spec("GW-50")
def test_a_script_gives_the_first_reply_that_fits(tmp_path: Path) -> None:
    replies = (
        {"when": {"says": "ONCE"}, "text": "first", "times": 1},
        {"when": {"says": "once", "model": "a*"}, "text": "for a"},
        {"when": {"result_of": "fetch"}, "text": "after fetch"},
        {"when": {"says": "wrong"}, "error": {"status": 429, "message": "slow down"}},
        {"when": {"says": "cut"}, "cut": True},
        {"when": {"says": "late"}, "text": "late", "delay_seconds": 0.2},
    )
    policies = write_rules(tmp_path / "policy", {"none": 'deny contains {"code": "x", "reason": "x"} if false'})
    with serving(tmp_path, {"upstreams": {"up": script(tmp_path, *replies)}, "policies": [str(policies)]}) as url:

        def reply(text: str, model: str = "m", **message: Any) -> Any:
            messages = [{"role": "user", "content": text}, *message.get("more", ())]
            status, headers, raw = post(url, CHAT, {"model": model, "messages": messages})
            return (
                json.loads(raw)["choices"][0]["message"]["content"]
                if status == 200
                else (status, headers["x-cmf-code"])
            )

        call = {"id": "c1", "type": "function", "function": {"name": "fetch", "arguments": "{}"}}
        results = ({"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "x"})
        assert reply("once") == "first"
        assert reply("once", "ab") == "for a"
        assert reply("once") == (502, "upstream.no-reply")
        assert reply("go", more=results) == "after fetch"
        of_ollama = (
            {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "fetch", "arguments": {}}}]},
        )
        of_ollama += ({"role": "tool", "tool_name": "fetch", "content": "x"},)
        asked = {"model": "m", "stream": False, "messages": [{"role": "user", "content": "go"}, *of_ollama]}
        assert json.loads(post(url, "/api/chat", asked)[2])["message"]["content"] == "after fetch"
        assert reply("wrong") == (429, "upstream.rate-limit")
        assert reply("cut") == (502, "upstream.cut")
        began = time.monotonic()
        assert reply("late") == "late"
        assert time.monotonic() - began >= 0.2


@pytest.mark.spec("GW-41")
async def test_an_upstream_that_was_not_opened_is_503() -> None:
    settings = Upstream.model_validate({"dialect": "openai_chat", "base_url": "http://127.0.0.1:1"})
    upstream = HttpUpstream("up", settings, None, reply_bytes=1024)

    with pytest.raises(UpstreamError) as caught:
        await upstream.ask(Request(model="openai:m"), {}, None)
    await upstream.close()

    assert (caught.value.status, caught.value.code) == (503, "upstream.not-open")


@pytest.mark.spec("GW-40")
@pytest.mark.parametrize("body", [b"not JSON", b"x" * 300_000])
def test_an_error_that_cannot_be_read_is_still_one(tmp_path: Path, body: bytes) -> None:
    with before(tmp_path, Bare(http_reply(body, status="400 Bad"))) as url:
        status, headers, raw = post(url, CHAT, HELLO)

    assert (status, headers["x-cmf-code"]) == (400, "upstream.invalid")
    assert b"xxx" not in raw


@pytest.mark.spec("GW-70", "GW-78")
def test_a_stream_whose_last_line_is_not_ended_is_read_to_its_end(tmp_path: Path) -> None:
    bare = Bare(http_reply(chunks("a few", " words")[:-2], kind="text/event-stream"))
    routes = [{"name": "r", "upstream": "up", "stream": {"window": 1}}]

    with before(tmp_path, bare, routes=routes) as url:
        status, _, raw = post(url, CHAT, HELLO | {"stream": True})

    assert status == 200
    assert b"words" in raw
    assert json.loads(bare.heard[0].partition(b"\r\n\r\n")[2])["stream_options"] == {"include_usage": True}
