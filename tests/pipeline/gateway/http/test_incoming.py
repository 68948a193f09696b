"""What two readers of HTTP or JSON could take differently does not get in; sent as bytes, past every client library."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.pipeline.gateway.servers import script, serving, until

HELLO = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
CHAT = b"/v1/chat/completions"
JSON = b"content-type: application/json"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    home = tmp_path_factory.mktemp("intake")
    body = {
        "upstreams": {"up": script(home, {"text": "done"})},
        "limits": {"body_bytes": 4096, "body_seconds": 0.5},
        "listen": {"origins": ["http://localhost", "http://localhost:3000"]},
    }
    with serving(home, body) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


def sent(address: tuple[str, int], raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """The answer to these bytes; status 0 where the connection is closed without one."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(raw)
        got = b""
        while piece := connection.recv(65_536):
            got += piece
            head, found, body = got.partition(b"\r\n\r\n")
            if found:
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                if len(body) >= int(headers.get("content-length", 0)):
                    return int(first.split()[1]), headers, body
        return 0, {}, got


def post(path: bytes = CHAT, body: bytes = HELLO, *headers: bytes) -> bytes:
    own = headers or (JSON,)
    lines = [b"POST " + path + b" HTTP/1.1", b"host: localhost", *own, b"content-length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


def test_a_plain_request_gets_in(address: tuple[str, int]) -> None:
    assert sent(address, post())[0] == 200
    assert sent(address, post(CHAT, HELLO, b'Content-Type: Application/JSON; charset="UTF-8"'))[0] == 200


@pytest.mark.spec("GW-10")
@pytest.mark.parametrize(
    "path",
    [
        b"/", b"/v1", b"/v1/chat/completions/", b"//v1/chat/completions", b"/v1/../v1/chat/completions",
        b"/v1/chat/%63ompletions", b"/V1/chat/completions", b"/v1/chat/completions;x", b"/v1/chat\\completions",
        b"/v1beta/models/a%2f..%2fb%00:generateContent", b"/v1beta/models/m:batchGenerateContent",
        b"/v1/messages/batches", b"/v1/realtime", b"/v1/files", b"/v1/images/generations", b"/v1/responses/resp_1",
        b"/api/generate", b"/v1/models/", b"/v1/models/a%00", b"/v1/models/a/b", b"/v1/models/%2a",
        b"/v1beta/models/m:unknownMethod",
    ],
)  # fmt: skip
def test_nothing_is_served_at_another_path(address: tuple[str, int], path: bytes) -> None:
    status, headers, body = sent(address, post(path))

    assert status == 404
    assert headers["x-cmf-code"] in ("route.unknown", "route.not-served")
    assert b"error" in body


@pytest.mark.spec("GW-10")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        (b"/chat/completions", b"Did you mean /v1/chat/completions? Check the client's base URL"),
        (b"/v1/v1/messages", b"Did you mean /v1/messages?"),
        (b"/v1/models/a/b:generateContent", b"Did you mean /v1beta/models/<model>:generateContent?"),
        (b"/api/generate", b"Bare completions are not supported"),
        (b"/v1/models/m:embedContent", b'"NOT_FOUND"'),
        (b"/v1/responses/compact", b"Compaction without an answer is not supported"),
        (b"/v1/responses/resp_1", b"Responses that a provider keeps are not supported"),
        (b"/v1beta/models/m:batchGenerateContent", b"Batches are not supported"),
    ],
)
def test_a_path_that_is_nearly_one_says_which(address: tuple[str, int], path: bytes, says: bytes) -> None:
    status, _, body = sent(address, post(path))

    assert status == 404
    assert says in body


@pytest.mark.spec("GW-10")
def test_another_method_is_405_and_names_the_allowed_one(address: tuple[str, int]) -> None:
    status, headers, _ = sent(address, b"GET /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\r\n")

    assert (status, headers["allow"]) == (405, "POST")


@pytest.mark.spec("GW-12")
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ((b"x: y",), 415, "http.media-type"),
        ((b"content-type: text/json",), 415, "http.media-type"),
        ((b"content-type: application/json; charset=utf-16",), 415, "http.media-type"),
        ((b"content-type: application/json, text/plain",), 415, "http.media-type"),
        ((JSON, b"content-encoding: gzip"), 415, "http.content-encoding"),
        ((JSON, b"content-encoding: identity, gzip"), 415, "http.content-encoding"),
    ],
)
def test_only_plain_json_is_read(address: tuple[str, int], headers: tuple[bytes, ...], status: int, code: str) -> None:
    found, answered, _ = sent(address, post(CHAT, HELLO, *headers))

    assert (found, answered["x-cmf-code"]) == (status, code)


@pytest.mark.spec("GW-12")
@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (b"/api/chat", (b"x: y", b"origin: http://localhost:3000")),  # a page can send this without asking first
        (b"/api/chat", (b"content-type: application/x-www-form-urlencoded",)),
        (b"/api/chat", (b"content-type:",)),
        (b"/api/show", (b"x: y", b"origin: http://localhost")),
        (b"/v1/messages", (b"x: y",)),
    ],
)
def test_who_may_not_leave_the_media_type_out_is_told_which(
    address: tuple[str, int], path: bytes, headers: tuple[bytes, ...]
) -> None:
    status, _, body = sent(address, post(path, HELLO, *headers))

    assert status == 415
    assert b"content-type: application/json" in body


@pytest.mark.spec("GW-12")
@pytest.mark.parametrize("path", [b"/api/chat", b"/api/show"])
def test_clients_of_ollama_may_leave_the_media_type_out(address: tuple[str, int], path: bytes) -> None:
    assert sent(address, post(path, HELLO, b"x: y"))[0] == 200


@pytest.mark.spec("GW-12")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "json.syntax"),
        (b"[1]", ""),
        (b'"text"', ""),
        (HELLO + b"{}", "json.syntax"),
        (HELLO[:-1], "json.syntax"),
        (b'{"model":"m","model":"n","messages":[]}', "json.duplicate-key"),
        (b'{"model":"m","mod\\u0065l":"n","messages":[]}', "json.duplicate-key"),
        (b'{"model":"m","messages":[],"temperature":NaN}', "json."),
        (b'{"model":"m","messages":[],"temperature":1e999}', "json.not-finite"),
        (b'{"model":"\\ud800","messages":[]}', "json.lone-surrogate"),
        (b"\xef\xbb\xbf" + HELLO, "json."),
        (HELLO.decode().encode("utf-16"), "json."),
        (b'{"model":"\xed\xa0\x80"}', "json."),
        (b'{"model":"m","messages":' + b"[" * 2000 + b"]" * 2000 + b"}", "json.too-deep"),
        (b'{"model":"m","messages":{}}', "shape."),
        (b'{"model":"m","Model":"other","messages":[]}', "shape.ambiguous-key"),
        (b'{"messages":[]}', "request.no-model"),
        (b'{"model":"m","messages":[],"stream":"false"}', "request.stream"),
    ],
)
def test_what_is_not_strict_json_of_the_dialect_is_400(address: tuple[str, int], body: bytes, code: str) -> None:
    status, headers, answered = sent(address, post(CHAT, body))

    assert status == 400
    assert headers["x-cmf-code"].startswith(code)
    assert json.loads(answered)["error"]["type"] == "invalid_request_error"


@pytest.mark.spec("GW-12")
def test_a_large_body_is_refused_before_it_is_read(address: tuple[str, int]) -> None:
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\n%s\r\n" % (CHAT, JSON)

    said, headers, _ = sent(address, head + b"content-length: 1000000000\r\n\r\n")
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    chunked, _, _ = sent(address, head + b"transfer-encoding: chunked\r\n\r\n" + chunk + chunk)

    assert (said, chunked) == (413, 413)
    assert headers["x-should-retry"] == "false"


@pytest.mark.spec("GW-12", "CODEC-4")
@pytest.mark.parametrize("inside", [b"[[]],", b'"[[",', b'{"a":{}},'])
def test_a_body_that_would_stop_the_loop_to_be_read_is_413(tmp_path: Path, inside: bytes) -> None:
    body = HELLO[:-1] + b',"metadata":{"a":[' + inside * (1 << 18) + b"0]}}"

    with serving(tmp_path, {"upstreams": {"up": script(tmp_path, {"text": "done"})}}) as url:
        parts = urlsplit(url)
        status, headers, answered = sent((str(parts.hostname), int(parts.port or 0)), post(CHAT, body))

    assert (status, headers["x-cmf-code"], headers["x-should-retry"]) == (413, "json.too-many", "false")
    assert b"524288" in answered


@pytest.mark.spec("GW-12")
def test_a_body_that_does_not_come_is_408(address: tuple[str, int]) -> None:
    status, _, _ = sent(address, post(CHAT, HELLO)[:-5])

    assert status == 408


@pytest.mark.spec("GW-13")
@pytest.mark.parametrize(
    "headers",
    [
        (JSON, JSON),
        (JSON, b"authorization: Bearer a", b"authorization: Bearer b"),
        (JSON, b"x-cmf-session-id: a", b"X-CMF-Session-Id: b"),
        (JSON, b"anthropic-version: a", b"anthropic-version: b"),
        (JSON, b"content-length: 5"),
        (JSON, b"transfer-encoding: chunked"),
        (JSON, b"transfer-encoding: chunked, identity"),
        (JSON, b"x : y"),
        (JSON, b"x: a\x00b"),
        (JSON, b"host: other"),
    ],
)
def test_two_readings_of_the_headers_are_400(address: tuple[str, int], headers: tuple[bytes, ...]) -> None:
    status, _, _ = sent(address, post(CHAT, HELLO, *headers))

    assert status in (400, 501)


@pytest.mark.spec("GW-13")
@pytest.mark.parametrize("query", [b"?x=1", b"?api_base=http://h", b"?beta=true", b"?%ff", b"?=", b"?" + b"a=1&" * 40])
def test_a_query_that_is_not_known_is_400(address: tuple[str, int], query: bytes) -> None:
    status, headers, _ = sent(address, post(CHAT + query))

    assert (status, headers["x-cmf-code"]) == (400, "http.query")


@pytest.mark.spec("GW-13")
def test_what_a_query_may_say_it_says_once(address: tuple[str, int]) -> None:
    status, headers, _ = sent(address, post(b"/v1/messages?beta=true&beta=true"))

    assert (status, headers["x-cmf-code"]) == (400, "http.query")


@pytest.mark.spec("GW-13")
def test_a_list_header_may_be_sent_several_times(address: tuple[str, int]) -> None:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).encode()
    betas = (JSON, b"anthropic-version: 2023-06-01", b"anthropic-beta: a", b"anthropic-beta: b")

    assert sent(address, post(b"/v1/messages?beta=true", body, *betas))[0] == 200


@pytest.mark.spec("GW-61")
def test_no_log_line_holds_content(address: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    words = "canary-in-content"
    with caplog.at_level("DEBUG"):
        sent(address, post(CHAT, HELLO.replace(b"hi", words.encode())))
        sent(address, post(CHAT, b'{"model": "m", "messages": "%s"}' % words.encode()))
        sent(address, post(b"/" + words.encode()))
        until(lambda: len([line for line in caplog.messages if '"status"' in line]) == 3)

    assert words not in caplog.text
