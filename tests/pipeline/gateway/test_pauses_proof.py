"""While something large is judged, a gateway goes on serving the small ones beside it, whichever door it came in at."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from tests.pipeline.gateway.mcp_servers import Said, polite
from tests.pipeline.gateway.processes import Serving, serving_process
from tests.pipeline.gateway.servers import Bare, http_reply

PAUSE = re.compile(r'cmf_loop_pause_seconds_(?:bucket\{le="([^"]+)"\}|(count)) (\d+)')
CHAT: Final = "/v1/chat/completions"
TOOLS: Final = "/mcp/tools"
BOTH: Final = "application/json, text/event-stream"
FULL: Final = 100_000  # values of a case at full size
SSN: Final = "123-45-6789"


def asked(url: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, bytes]:
    client = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(method, path, body, {"content-type": "application/json", "accept": BOTH, **named})
        answer = client.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        client.close()


def pauses(serving: Serving) -> dict[float, int]:
    """How many pauses of the event loop there were so far, up to each bound."""
    found = PAUSE.findall(asked(serving.operations, "GET", "/metrics")[2].decode())
    return {float("inf" if is_count else bound): int(number) for bound, is_count, number in found}


def longest(before: dict[float, int], after: dict[float, int]) -> float:
    """The bound of the bucket that the longest pause between two looks is in."""
    new = {bound: number - before[bound] for bound, number in after.items()}
    return min(bound for bound, number in new.items() if number == max(new.values()))


def said(content: object, **more: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **more}).encode()


def answered(content: str | None, **more: object) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}
    return http_reply(json.dumps(body).encode())


def stream_of(count: int, text: str = "word ") -> bytes:
    def chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    chunks = [chunk({"role": "assistant", "content": ""}), *[chunk({"content": text})] * count, chunk({}, "stop")]
    return http_reply(b"".join(chunks) + b"data: [DONE]\n\n", kind="text/event-stream")


def doubling(depth: int) -> dict[str, Any]:
    """A schema of 2**depth parts, in a few hundred bytes."""
    parts = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(depth)}
    return {"$defs": {**parts, f"d{depth}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def called(number: int) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


OK: Final = answered("ok")
HELLO: Final = said("hello")
# By name: what the client sends, and what the upstream answers.
CHATS: Final[dict[str, Callable[[int], tuple[bytes, bytes]]]] = {
    "text of a request": lambda n: (said(f"the quick brown fox {SSN} " * (n * 6 // 10)), OK),
    "messages of a request": lambda n: (
        json.dumps({"model": "m", "messages": [{"role": "user", "content": SSN}] * (n * 6 // 100)}).encode(),
        OK,
    ),
    "parts of a request": lambda n: (said([{"type": "text", "text": SSN}] * (n * 3 // 100)), OK),
    "numbers of a request": lambda n: (said("hello", series=list(range(n * 9))), OK),
    "calls whose schema multiplies": lambda n: (
        json.dumps(
            {
                "model": "m",
                "messages": [{"role": "assistant", "tool_calls": [called(at) for at in range(n // 1_000)]}],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": doubling(14)}}],
            }
        ).encode(),
        OK,
    ),
    "text of a reply": lambda n: (HELLO, answered("the quick brown fox " * (n * 4))),
    "numbers of a reply": lambda n: (HELLO, answered("ok", series=list(range(n * 9)))),
    "deltas of a stream": lambda n: (said("hello", stream=True), stream_of(n * 6 // 10)),
}
# By name: the arguments of the client's call, and the server's result.
CALLS: Final[dict[str, Callable[[int], tuple[object, object]]]] = {
    "blocks of a tool's result": lambda n: ({}, {"content": [{"type": "text", "text": "ok"}] * (n // 4)}),
    "numbers of a tool's result": lambda n: ({}, {"content": [], "structuredContent": {"series": list(range(n * 9))}}),
    "numbers of a tool's arguments": lambda n: ({"series": list(range(n // 4))}, {"content": []}),
}


@contextmanager
def chatting(home: Path, reply: bytes, window: int | None) -> Iterator[Serving]:
    with Bare(reply).running() as url:
        route = {"name": "all", "upstream": "up"} | ({} if window is None else {"stream": {"window": window}})
        body = {
            "upstreams": {"up": {"dialect": "openai_chat", "base_url": url}},
            "routes": [route],
            "policy_seconds": 60,
        }
        with serving_process(home, body, "--quiet") as serving:
            yield serving


@contextmanager
def calling(home: Path, result: object) -> Iterator[tuple[Serving, str]]:
    """A gateway in front of a server whose tool gives this result, and the id of a session with it."""
    written = json.dumps(result).encode()

    def answers(said: Said) -> tuple[int, dict[str, str], list[bytes | float]] | None:
        if not isinstance(said.body, dict) or said.body.get("method") != "tools/call":
            return None
        raw = b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(said.body["id"]).encode(), written)
        return 200, {"content-type": "application/json"}, [raw]

    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    with polite(answers).running() as url:
        body = {"routes": [], "mcp": {"tools": {"url": url}}, "policy_seconds": 60}
        with serving_process(home, body, "--quiet") as serving:
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin}
            session = asked(serving.url, "POST", TOOLS, json.dumps(hello).encode())[1]["mcp-session-id"]
            ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            asked(serving.url, "POST", TOOLS, ready, mcp_session_id=session)
            yield serving, session


def small_ones_beside(serving: Serving, large: Callable[[], tuple[int, Any, bytes]]) -> tuple[float, float, int]:
    """The longest pause of the loop at rest, and while the large one is answered; how many small ones were, too."""
    resting = pauses(serving)
    time.sleep(1)
    before = pauses(serving)
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(large()[0]))
    asking.start()
    beside = 0
    while asking.is_alive():
        assert asked(serving.url, "GET", "/healthz")[0] == 200
        beside += 1
        asking.join(0.01)
    assert statuses == [200]
    return longest(resting, before), longest(before, pauses(serving)), beside


def check(name: str, figures: tuple[float, float, int], scale: float, proof_row: Callable[..., None]) -> None:
    at_rest, pause, beside = figures
    proof_row(f"no client waits for the {name}", pause=f"<= {pause} s", small=beside)
    # A machine that is busy with other things pauses a loop that has nothing to do, too.
    assert pause <= max(0.1 if scale >= 1 else 0.5, at_rest)


@pytest.mark.proof
@pytest.mark.no_cover
@pytest.mark.spec("GW-68")
@pytest.mark.parametrize(("name", "window"), [*((name, None) for name in CHATS), ("deltas of a stream", 100)])
def test_no_client_waits_for_what_is_large_between_another_and_a_model(
    tmp_path: Path, name: str, window: int | None, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    request, reply = CHATS[name](int(FULL * proof_scale))
    with chatting(tmp_path, reply, window) as serving:
        asked(serving.url, "POST", CHAT, HELLO)

        figures = small_ones_beside(serving, lambda: asked(serving.url, "POST", CHAT, request))

    check(name if window is None else f"{name}, by window", figures, proof_scale, proof_row)


@pytest.mark.proof
@pytest.mark.no_cover
@pytest.mark.spec("GW-68")
@pytest.mark.parametrize("name", CALLS)
def test_no_client_waits_for_what_is_large_between_another_and_a_tool(
    tmp_path: Path, name: str, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    arguments, result = CALLS[name](int(FULL * proof_scale))
    params = {"name": "read", "arguments": arguments}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    with calling(tmp_path, result) as (serving, session):
        figures = small_ones_beside(serving, lambda: asked(serving.url, "POST", TOOLS, call, mcp_session_id=session))

    check(name, figures, proof_scale, proof_row)
