"""The edges of MCP behind the gateway: too much at once, streams that break off, batches, clients that take nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.mcp_servers import Said, json_reply, polite, sse_reply
from tests.pipeline.gateway.servers import until
from tests.pipeline.gateway.test_mcp import BOTH, FINE, HELLO, PING, SECRET, begun, behind, code_of, messages, send

from pipeline.gateway.auth.identity import Identities
from pipeline.gateway.config.settings import Limits, McpServer
from pipeline.gateway.http.incoming import ClientDisconnected, SharedTimeout
from pipeline.gateway.mcp import Endpoint, McpGateway, McpReply
from pipeline.gateway.operations.metrics import Metrics
from pipeline.guard import Guard
from pipeline.mcp.http_server import Address
from pipeline.mcp.pins import Pins

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Policies that take no time to compile."""
    rules = {"unknown": 'deny contains {"code": "no.unknown", "reason": "No."} if input.kind == "opaque"'}
    return str(write_rules(tmp_path_factory.mktemp("small"), rules))


@pytest.mark.spec("MCPX-61")
def test_calls_beyond_the_concurrency_limit_are_503_with_retry_after(tmp_path: Path, small: str) -> None:
    server = polite(lambda said: sse_reply(30.0) if said.body and said.body.get("method") == "ping" else None)
    with server.running() as url, behind(tmp_path, url, policies=[small], limits={"concurrent": 1}) as gateway:
        session = begun(gateway)
        parts = urlsplit(gateway)
        first = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        own = {"accept": BOTH, "content-type": "application/json", "mcp-session-id": session}
        first.request("POST", "/mcp/all", body=json.dumps(PING), headers=own)
        until(lambda: any(said.body and said.body.get("method") == "ping" for said in server.heard))
        status, headers, raw = send(gateway, PING, mcp_session_id=session)
        first.close()
        until(server.left.is_set)

    assert (status, headers["retry-after"], code_of(raw)) == (503, "1", "gateway.busy")


_VALUE = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}'


@pytest.mark.spec("MCPX-64")
@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ((202, {}, []), 405, "mcp.no-stream"),
        ((202, {"content-type": "application/json"}, [_VALUE]), 405, "mcp.no-stream"),
        ((204, {}, []), 405, "mcp.no-stream"),
        ((405, {}, []), 405, "mcp.no-stream"),
        ((200, {"content-type": "application/json"}, [_VALUE]), 502, "mcp.unreadable"),
        ((200, {}, []), 502, "mcp.unreadable"),
        ((302, {"location": "/"}, []), 502, "mcp.unreadable"),
        ((404, {}, []), 502, "mcp.session-lost"),
        ((200, {"content-type": "text/event-stream"}, []), 200, None),
        ((200, {"content-type": "text/event-stream; charset=utf-8"}, [b": ping\r\n\r\nid: 1\ndata:\n\n"]), 200, None),
    ],
)  # fmt: skip
def test_no_answer_of_a_server_to_a_get_is_an_error_of_the_gateway(
    tmp_path: Path, small: str, answer: Any, status: int, code: str | None
) -> None:
    server = polite(lambda said: answer if said.method == "GET" else None)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        found, headers, raw = send(gateway, method="GET", mcp_session_id=session)
        again = send(gateway, method="GET", mcp_session_id=session)[0]
        alive = send(gateway, PING, mcp_session_id=session)[0]
        ended = send(gateway, method="DELETE", mcp_session_id=session)[0]

    assert (found, code_of(raw) if code else None) == (status, code)
    assert headers.get("allow") == ("POST, DELETE" if status == 405 else None)
    assert (again, alive, ended) == (status, 200, 204)


@pytest.mark.spec("MCPX-62", "MCPX-65")
@pytest.mark.parametrize("status", [200, 202, 204, 405, 404, 500])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", ""])
def test_no_answer_of_a_server_to_what_needs_none_is_an_error_of_the_gateway(
    tmp_path: Path, small: str, status: int, kind: str
) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    answer: Any = (status, {"content-type": kind} if kind else {}, [])

    def is_odd(said: Said) -> bool:
        return said.method == "DELETE" or bool(said.body and said.body.get("method") in (note["method"], "ping"))

    server = polite(lambda said: answer if is_odd(said) else None)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        noted = send(gateway, note, mcp_session_id=session)[0]
        called, _, raw = send(gateway, PING, mcp_session_id=session)
        ended = send(gateway, method="DELETE", mcp_session_id=session)[0]

    assert noted == (202 if status < 300 else 502)
    assert (called, "error" in json.loads(raw)) == (200, True)
    assert ended == 204


@pytest.mark.spec("MCPX-64")
@pytest.mark.parametrize(
    ("answer", "status", "heard"),
    [
        ((500, {}, []), 502, []),
        (sse_reply({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
                   b"data: {\n\n"), 200, ["x"]),
    ],
)  # fmt: skip
def test_a_server_s_own_stream_that_breaks_is_an_error_or_the_end(
    tmp_path: Path, small: str, answer: Any, status: int, heard: list[str]
) -> None:
    server = polite(lambda said: answer if said.method == "GET" else None)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        try:
            found, _, raw = send(gateway, method="GET", mcp_session_id=session)
        except http.client.IncompleteRead as cut:
            found, raw = 200, cut.partial
        again = send(gateway, method="GET", mcp_session_id=session)[0] if status != 200 else 502

    assert found == status
    assert (code_of(raw) == "mcp.unreadable") if status == 502 else True
    assert [one["params"]["data"] for one in messages(raw)] == heard
    assert again == 502  # and not 409: nobody listens any more


@pytest.mark.spec("MCPX-65")
def test_where_a_server_does_not_begin_there_is_no_session(tmp_path: Path, small: str) -> None:
    error = {"code": -32602, "message": "not with you"}
    server = polite(lambda said: json_reply({"jsonrpc": "2.0", "id": said.body["id"], "error": error}))
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        status, headers, raw = send(gateway, HELLO)

    assert (status, json.loads(raw)) == (200, {"jsonrpc": "2.0", "id": 0, "error": error})
    assert "mcp-session-id" not in headers


def batching(said: Said) -> Any:
    """Of the one revision that knows batches."""
    if said.method == "POST" and said.body.get("method") == "initialize":
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}}
        return json_reply({"jsonrpc": "2.0", "id": said.body["id"], "result": hello}, mcp_session_id="theirs")
    return None


@pytest.mark.spec("MCPX-40")
def test_of_a_batch_refusals_come_back_and_the_rest_goes_on_one_by_one(tmp_path: Path, small: str) -> None:
    server = polite(batching)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        batch = [PING | {"id": 5}, {"jsonrpc": "2.0", "id": 6, "method": "made/up"}, INITIALIZED, PING | {"id": 7}]
        status, headers, raw = send(gateway, batch, mcp_session_id=session)

    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert [(one["id"], "error" in one) for one in messages(raw)] == [(6, True), (5, False), (7, False)]
    assert [said.body["method"] for said in server.heard if said.method == "POST"][2:] == [
        "ping", "notifications/initialized", "ping",
    ]  # fmt: skip


@pytest.mark.spec("MCPX-40")
def test_a_notification_of_a_batch_that_the_server_refuses_keeps_no_call_from_its_response(
    tmp_path: Path, small: str
) -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}

    def answers(said: Said) -> Any:
        refused = said.method == "POST" and said.body.get("method") == changed["method"]
        return (500, {}, []) if refused else batching(said)

    server = polite(answers)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        status, _, raw = send(gateway, [PING | {"id": 5}, changed, PING | {"id": 7}], mcp_session_id=session)

    assert (status, [(one["id"], "error" in one) for one in messages(raw)]) == (200, [(5, False), (7, False)])


@pytest.mark.spec("MCPX-64")
def test_of_a_batch_whose_client_left_no_call_stays_in_work(tmp_path: Path, small: str) -> None:
    silent = iter([True])

    def answers(said: Said) -> Any:
        is_first = said.method == "POST" and said.body.get("method") == "ping" and next(silent, False)
        return sse_reply(30.0) if is_first else batching(said)

    server = polite(answers)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        parts = urlsplit(gateway)
        leaves = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        own = {"accept": BOTH, "content-type": "application/json", "mcp-session-id": session}
        leaves.request("POST", "/mcp/all", body=json.dumps([PING | {"id": 5}, PING | {"id": 7}]), headers=own)
        until(lambda: any(said.body and said.body.get("method") == "ping" for said in server.heard))
        leaves.close()
        until(server.left.is_set)
        again = [json.loads(send(gateway, PING | {"id": number}, mcp_session_id=session)[2]) for number in (5, 7)]

    assert [(one["id"], "error" in one) for one in again] == [(5, False), (7, False)]


@pytest.mark.spec("MCPX-64")
def test_what_a_server_asked_a_client_that_left_ends_in_an_error(tmp_path: Path, small: str) -> None:
    ask = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
    server = polite(lambda said: sse_reply(ask, 30.0) if said.body and said.body.get("method") == "ping" else None)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        session = begun(gateway)
        parts = urlsplit(gateway)
        leaves = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        own = {"accept": BOTH, "content-type": "application/json", "mcp-session-id": session}
        leaves.request("POST", "/mcp/all", body=json.dumps(PING), headers=own)
        reply = leaves.getresponse()
        line = next(line for line in reply if line.startswith(b"data:"))
        leaves.close()
        reply.close()
        until(lambda: any(said.body and "error" in said.body for said in server.heard))
        late = {"jsonrpc": "2.0", "id": json.loads(line[5:])["id"], "result": {"roots": []}}
        assert send(gateway, late, mcp_session_id=session)[0] == 400

    [told] = [said.body for said in server.heard if said.body and "error" in said.body]
    assert (told["id"], told["error"]["data"]["code"]) == ("q", "mcp.client-disconnected")


@pytest.mark.spec("MCPX-18")
def test_a_server_s_call_that_is_late_ends_when_the_server_says_something_else(tmp_path: Path, small: str) -> None:
    ask = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    server = polite(lambda said: sse_reply(ask, 0.5, log, 30.0) if said.method == "GET" else None)
    with server.running() as url, behind(tmp_path, url, policies=[small], answer_seconds=0.4) as gateway:
        session = begun(gateway)
        parts = urlsplit(gateway)
        listener = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        listener.request("GET", "/mcp/all", headers={"accept": "text/event-stream", "mcp-session-id": session})
        reply = listener.getresponse()
        lines = (json.loads(line[5:]) for line in reply if line.startswith(b"data:"))
        asked, cancelled = next(lines), next(lines)
        listener.close()
        reply.close()

    assert cancelled["params"] == {"requestId": asked["id"], "reason": "timeout"}
    [told] = [said.body for said in server.heard if said.body and "error" in said.body]
    assert (told["id"], told["error"]["data"]["code"]) == ("q", "mcp.timeout")


@pytest.mark.spec("MCPX-62")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((202, {}, []), (202, b"")),
        (json_reply(FINE | {"id": 9, "result": {"text": SECRET}}), (202, b"")),
        ((500, {}, [SECRET.encode()]), (502, "mcp.unreadable")),
        ((404, {}, []), (502, "mcp.session-lost")),
    ],
)
def test_a_notification_is_202_only_if_the_server_took_it_and_its_reply_is_not_passed_on(
    tmp_path: Path, small: str, answer: Any, expected: tuple[int, Any]
) -> None:
    server = polite(lambda said: answer if said.body and said.body.get("method") == INITIALIZED["method"] else None)
    with server.running() as url, behind(tmp_path, url, policies=[small]) as gateway:
        status, headers, _ = send(gateway, HELLO)
        told = send(gateway, INITIALIZED, mcp_session_id=headers["mcp-session-id"])

    assert status == 200
    assert SECRET.encode() not in told[2]
    assert (told[0], code_of(told[2]) if told[2] else told[2]) == expected


@pytest.mark.spec("MCPX-61")
async def test_a_gateway_that_is_not_open_is_503(small: str) -> None:
    where = Address(url="http://127.0.0.1:9/mcp", headers={})
    told = McpServer(url=where.url)
    with Guard(small) as guard:
        one = Endpoint(name="all", settings=told, guard=guard, address=where, pins=Pins(), enforce=True)
        gateway = McpGateway({"all": one}, Identities((), anonymous=True), limits=Limits(), metrics=Metrics(dict))
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(HELLO).encode(), "more_body": False}

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        headers = [(b"accept", BOTH.encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b"", "client": None}
        await gateway(scope, "/mcp/all", receive, send)

    assert sent[0]["status"] == 503
    assert code_of(sent[1]["body"]) == "upstream.not-open"


@pytest.mark.spec("MCPX-64")
@pytest.mark.parametrize("broken", [False, True])
async def test_a_client_that_takes_nothing_is_gone(broken: bool) -> None:
    async def send(event: dict[str, Any]) -> None:
        if broken:
            raise OSError
        await asyncio.Event().wait()

    reply = McpReply(send, {}, timeout=SharedTimeout(0.01))
    with pytest.raises(ClientDisconnected):
        await reply.value(200, {"a": 1})
