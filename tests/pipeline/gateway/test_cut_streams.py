"""Upstreams that cut their stream or frame it oddly: a client gets the whole, a judged beginning of it, or nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import aiohttp
import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.proxy.test_window import MASK
from tests.pipeline.gateway.servers import Bare, script, serving
from tests.pipeline.gateway.test_crossing import CLIENTS
from tests.pipeline.gateway.test_upstreams import CHAT, HELLO, WHOLE
from tests.pipeline.gateway.windows import answer, events, served, spoken
from ulid import ULID

from cmf.adapters import get
from cmf.adapters.wire.base import WireEvent
from cmf.enums import MessageStatus
from cmf.message.message import TextPart
from cmf.message.request import Request
from pipeline.gateway.config.settings import Upstream
from pipeline.gateway.http.dialects import DIALECTS
from pipeline.gateway.proxy.response_sessions import identified
from pipeline.gateway.proxy.window import Sent
from pipeline.gateway.upstreams.http_upstream import HttpUpstream
from pipeline.gateway.upstreams.upstream import UpstreamError
from pipeline.guard import Guard
from pipeline.run.outcome import Outcome

TEXT = "Well, é it is sk-abcdef and more wörds 😀 to say here, and on"
MASKED = TEXT.replace("sk-abcdef", "[MASKED]")
PLACES = 24  # of each stream, evenly: every one would take minutes


class _Noting(Guard):
    """A guard that keeps what it left of the answers."""

    left: list[str]

    async def arun(self, *args: Any, **more: Any) -> Outcome:
        outcome = await super().arun(*args, **more)
        if outcome.response is not None and outcome.response.choices:
            parts = outcome.response.message.content
            self.left.append("".join(part.text for part in parts if isinstance(part, TextPart)))
        return outcome


class _NoHeaders:
    """The headers of a reply that has none."""

    def getall(self, _name: str, default: list[str]) -> list[str]:
        return default


class _Session:
    """A session whose only reply is a stream of these pieces, and then `error`, or a clean end."""

    status = 200

    def __init__(self, kind: str, pieces: Sequence[bytes], error: Exception | None) -> None:
        self.content_type, self.content, self.headers = kind, self, _NoHeaders()
        self._pieces, self._error = pieces, error

    def request(self, *_: Any, **__: Any) -> _Session:
        return self

    async def __aenter__(self) -> _Session:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in filter(None, self._pieces):
            yield piece
        if self._error is not None:
            raise self._error


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Noting]:
    mode = "enforce\n#   stream: {max_match: 12}"
    made = _Noting(write_rules(tmp_path_factory.mktemp("cut"), {"key": MASK}, kinds="text", mode=mode))
    made.left = []
    with made:
        yield made


def _upstream(dialect: str, pieces: Sequence[bytes], error: Exception | None = None) -> HttpUpstream:
    settings = Upstream.model_validate({"dialect": dialect, "base_url": "http://127.0.0.1:1"})
    made = HttpUpstream("up", settings, None, reply_bytes=1 << 20)
    made._session = cast(aiohttp.ClientSession, _Session(DIALECTS[dialect].stream_type, pieces, error))
    return made


def _stream(dialect: str) -> list[bytes]:
    """The text as a stream of many events."""
    whole = identified(answer([TextPart(text=TEXT)], MessageStatus.COMPLETE), dialect, str(ULID.from_int(7)))
    said, sent = get(dialect).to_wire_events(whole), Sent(DIALECTS[dialect])
    news = [event for at in range(3, len(TEXT), 9) for event in sent.partly(said, {TEXT: TEXT[:at]})]
    return [DIALECTS[dialect].frame(event) for event in (*news, *sent.rest(said))]


@pytest.mark.spec("GW-41", "GW-70", "GW-73")
@pytest.mark.parametrize("how", ["cut", "reset", "split"])
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_stream_that_is_cut_shows_what_was_judged_and_ends_in_an_error(
    guard: _Noting, dialect: str, how: str
) -> None:
    raw = b"".join(_stream(dialect))
    error = aiohttp.ClientPayloadError() if how == "reset" else None
    for at in range(1, len(raw), len(raw) // PLACES):
        for window in (None, 1):
            guard.left.clear()
            pieces = [raw[:at], raw[at:]] if how == "split" else [raw[i : min(at, i + 29)] for i in range(0, at, 29)]
            got = served(guard, _upstream(dialect, pieces, error), dialect, window=window)
            if got.refusal is not None:
                assert (got.raw, got.refusal.status, how != "split") == (b"", 502, True)
                continue
            shown = spoken(dialect, got)
            ended = not events(got)[-1].get("error")
            assert shown == MASKED if ended else MASKED.startswith(shown)
            assert any(left.startswith(shown) for left in guard.left) or not shown
            assert ended or how != "split"
            assert how != "reset" or not ended


_DENY: Final = 'deny contains {"code": "no.word", "reason": "No."} if contains(json.marshal(input), "forbidden")'
_STRANGE: Final[dict[str, Any]] = {  # in the middle of a stream: a delta of known place, saying what nobody knows
    "openai_chat": {"choices": [{"index": 0, "delta": {"brand_new": "forbidden"}}]},
    "openai_responses": {"type": "response.brand_new.delta", "output_index": 0, "delta": "forbidden"},
    "anthropic_messages": {"type": "content_block_delta", "index": 0, "delta": {"type": "new", "words": "forbidden"}},
    "gemini": {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"brandNew": "forbidden"}]}}]},
    "ollama": {"message": {"role": "assistant", "content": "", "brand_new": "forbidden"}, "done": False},
}


@pytest.mark.spec("GW-14", "GW-72", "GW-73")
@pytest.mark.parametrize("window", [None, 1])
@pytest.mark.parametrize("dialect", _STRANGE)
def test_unknown_events_of_a_stream_are_held_until_they_were_judged(
    tmp_path: Path, dialect: str, window: int | None
) -> None:
    kinds, mode = "text, opaque, response", "enforce\n#   stream: {max_match: 12}"
    frames = _stream(dialect)
    middle = len(frames) // 2
    with Guard(write_rules(tmp_path, {"word": _DENY}, kinds=kinds, mode=mode)) as guard:
        plain = served(guard, _upstream(dialect, frames), dialect, window=window)
        for strange in (_STRANGE[dialect], {"type": "brand.new", "brand_new": "forbidden"}):
            event: WireEvent = {"data": strange}
            pieces = [*frames[:middle], DIALECTS[dialect].frame(event), *frames[middle:]]
            got = served(guard, _upstream(dialect, pieces), dialect, window=window)

            assert b"forbidden" not in got.raw
            assert "no.word" in (got.refusal.code if got.refusal is not None else str(events(got)[-1]))
    assert spoken(dialect, plain) == TEXT


def _reply(*lines: bytes, body: bytes, before: bytes = b"") -> bytes:
    head = (b"HTTP/1.1 200 OK", b"content-type: application/json", *lines, b"", b"")
    return before + b"\r\n".join(head) + body


_SIZE = b"content-length: %d" % len(WHOLE)
_CHUNKED = b"transfer-encoding: chunked"
_CHUNK = b"%x;canary=1\r\n%s\r\n" % (len(WHOLE), WHOLE)


@pytest.mark.spec("GW-41")
@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (_reply(_SIZE, body=WHOLE, before=b"HTTP/1.1 100 Continue\r\n\r\n"), True),
        (_reply(_SIZE, body=WHOLE, before=b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n"), True),
        (_reply(_CHUNKED, b"trailer: x-a", body=_CHUNK + b"0\r\nx-a: canary\r\n\r\n"), True),
        (_reply(_CHUNKED, body=_CHUNK), False),
        (_reply(_CHUNKED, b"content-length: 5", body=_CHUNK + b"0\r\n\r\n"), False),
        (_reply(_SIZE, b"content-length: 7", body=WHOLE), False),
        (_reply(b"content-length: %d" % (len(WHOLE) + 5), body=WHOLE), False),
        (_reply(b"content-length: %d" % (len(WHOLE) - 3), body=WHOLE), False),
    ],
    ids=["100", "103", "trailer", "unended", "two-framings", "two-lengths", "too-long", "too-short"],
)
async def test_how_an_upstream_frames_its_reply_leaves_it_whole_or_unread(reply: bytes, read: bool) -> None:
    with Bare(reply).running() as address:
        settings = Upstream.model_validate({"dialect": "openai_chat", "base_url": address})
        upstream = HttpUpstream("up", settings, None, reply_bytes=8192)
        await upstream.open()
        try:
            if read:
                got = await upstream.ask(Request(model="openai:m"), {}, None)
                assert got.message.content == (TextPart(text="fine"),)
            else:
                with pytest.raises(UpstreamError) as caught:
                    await upstream.ask(Request(model="openai:m"), {}, None)
                assert caught.value.status == 502
        finally:
            await upstream.close()


@pytest.mark.spec("GW-41")
async def test_an_unsolicited_reply_on_a_connection_does_not_answer_the_next_request() -> None:
    stray, unasked = asyncio.Event(), _reply(_SIZE, body=WHOLE.replace(b"fine", b"evil"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(_reply(_SIZE, body=WHOLE))
        await stray.wait()
        writer.write(unasked)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        settings = Upstream.model_validate({"dialect": "openai_chat", "base_url": f"http://{host}:{port}"})
        upstream = HttpUpstream("up", settings, None, reply_bytes=8192)
        await upstream.open()
        for _ in range(2):
            got = await upstream.ask(Request(model="openai:m"), {}, None)
            assert got.message.content == (TextPart(text="fine"),)
            stray.set()
            await asyncio.sleep(0.02)
        await upstream.close()


def _request(text: str, path: str = CHAT) -> bytes:
    body = json.dumps(HELLO | {"messages": [{"role": "user", "content": text}]}).encode()
    fields = ("host: localhost", "content-type: application/json", "transfer-encoding: chunked")
    head = "\r\n".join([f"POST {path} HTTP/1.1", *fields, "", ""])
    return head.encode() + b"%x;e=1\r\n%s\r\n0\r\nx-cmf-session-id: a b\r\n\r\n" % (len(body), body)


@pytest.mark.spec("GW-162")
def test_a_refused_request_between_two_others_and_one_within_a_body_answer_for_themselves(tmp_path: Path) -> None:
    rule = 'deny contains {"code": "no.word", "reason": "No."} if contains(input.content, "forbidden")'
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "said: {said}"})},
        "policies": [str(write_rules(tmp_path / "policy", {"word": rule}, kinds="text"))],
    }
    hidden = _request("hidden")
    within = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(hidden) + hidden
    elsewhere = _request("elsewhere", f"http://evil{CHAT}")
    with serving(tmp_path, body) as url, socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as made:
        made.settimeout(10)
        made.sendall(_request("one") + _request("forbidden") + elsewhere + within + _request("last"))
        got = b""
        while b"said: last" not in got:
            got += made.recv(65_536)

    told = got.split(b"HTTP/1.1 ")[1:]
    assert [one[:3] for one in told] == [b"200", b"403", b"404", b"404", b"200"]
    assert b"said: one" in told[0]
    assert b"no.word" in told[1]
    assert b"hidden" not in got


@pytest.mark.spec("OLL-11", "GW-70")
@pytest.mark.parametrize("window", [None, 1, 16])
def test_a_text_that_a_service_cuts_into_parts_has_no_blank_lines_in_ollama(guard: _Noting, window: int | None) -> None:
    """Gemini signs the first chunk of a text, which makes it a part of its own."""
    parts = [
        {"text": "The quick brown fox jum", "thoughtSignature": "c2ln"},
        {"text": "ps over "},
        {"text": "hm", "thought": True},
        {"text": "the lazy dog, and then it sleeps."},
    ]
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"  # type: ignore[assignment]

    got = served(
        guard, _upstream("gemini", [f"data: {json.dumps(one)}\n\n".encode() for one in chunks]), "ollama", window=window
    )

    assert spoken("ollama", got) == "The quick brown fox jumps over the lazy dog, and then it sleeps."
