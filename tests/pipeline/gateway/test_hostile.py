"""Clients that mean harm, over bare sockets: what they get is an answer or a closed door, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import product, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import pytest
from tests.pipeline.gateway.http.test_incoming import CHAT, HELLO, JSON, post, sent
from tests.pipeline.gateway.processes import asked
from tests.pipeline.gateway.servers import ANN, KEY, Bare, http_reply, running, script, serving, until

from pipeline.decisions.errors import ConfigError
from pipeline.gateway.auth.identity import Identities
from pipeline.gateway.config.settings import Limits, Listen
from pipeline.gateway.http import server
from pipeline.gateway.http.refusal import Refusal

LIMITS = {"head_seconds": 0.5, "body_seconds": 0.5, "stalled_seconds": 1.0, "connections": 24, "concurrent": 16}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    home = tmp_path_factory.mktemp("hostile")
    body = {
        "upstreams": {"up": script(home, {"text": "done"})},
        "limits": LIMITS,
        "keys": [ANN],
        "anonymous": True,
        "listen": {"origins": ["http://app.localhost:3000"]},
    }
    with serving(home, body) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


@pytest.fixture(autouse=True)
def _still_serves(address: tuple[str, int]) -> Iterator[None]:
    """Whatever a test did, the next client is answered, once the connections that it left are gone."""
    yield
    until(lambda: served(address))


def served(address: tuple[str, int]) -> bool:
    try:
        return sent(address, post())[0] == 200
    except ConnectionError:
        return False


def closed_after(connection: socket.socket) -> float:
    """Seconds until the other side closes it."""
    begun = time.monotonic()
    connection.settimeout(10)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - begun


def answered(connection: socket.socket, request: bytes) -> bytes:
    """The answer, on a connection that stays open."""
    connection.settimeout(10)
    connection.sendall(request)
    got = b""
    while True:
        head, found, body = got.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")), 0
        )
        if found and len(body) >= length:
            return got
        got += connection.recv(65_536)


HIDDEN = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-160")
@pytest.mark.parametrize("beginning", [b"", b"P", b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx: "])
def test_a_head_that_does_not_come_closes_the_connection(address: tuple[str, int], beginning: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(beginning)

        assert closed_after(connection) < 3


@pytest.mark.spec("GW-160")
def test_a_head_that_comes_drop_by_drop_gets_no_more_time_for_it(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        begun = time.monotonic()
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        with suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"x: y\r\n")
                time.sleep(0.05)

        assert time.monotonic() - begun < 3


@pytest.mark.spec("GW-160")
def test_the_next_request_of_a_connection_has_its_time_too(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in connection.recv(65_536)
            time.sleep(0.6)  # longer than a head may take, and no head was begun
        connection.sendall(b"GET /hea")

        assert closed_after(connection) < 3


@pytest.mark.spec("GW-160")
def test_a_head_behind_a_request_has_its_time_from_then(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea")

        assert closed_after(connection) < 3


@pytest.mark.spec("GW-160")
def test_a_client_that_takes_nothing_is_let_go() -> None:
    ended = threading.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        finally:
            ended.set()

    with running(application, Limits(stalled_seconds=0.5)) as url, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect((urlsplit(url).hostname, urlsplit(url).port))
        connection.sendall(HIDDEN)

        assert ended.wait(10)
        assert closed_after(connection) < 5


# -- how many ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-161")
def test_connections_beyond_the_bound_are_closed_and_the_others_served(address: tuple[str, int]) -> None:
    with ExitStack() as opened:
        first = [opened.enter_context(socket.create_connection(address)) for _ in range(LIMITS["connections"])]  # type: ignore[call-overload]
        assert all(b"200 OK" in answered(one, HIDDEN) for one in first)
        more = [opened.enter_context(socket.create_connection(address)) for _ in range(40)]
        assert all(closed_after(one) < 3 for one in more)
        assert b"200 OK" in answered(first[0], post())


@pytest.mark.spec("GW-161")
def test_no_file_descriptor_is_left_behind(address: tuple[str, int]) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    sent(address, post())
    before = open_files()
    for number in range(60):
        with socket.create_connection(address) as connection:
            connection.sendall(post()[: number * 3])
    until(lambda: open_files() <= before + 2)


@pytest.mark.spec("GW-161")
def test_it_does_not_begin_where_the_machine_forbids_as_many_files_as_it_may_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: asked_for.append(both))

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4_096))
    server.allow_files(Limits(connections=1_024))
    assert asked_for == [(2 * 1_024 + server.SPARE_FILES, 4_096)]
    with pytest.raises(ConfigError) as caught:
        server.allow_files(Limits(connections=4_096))
    assert caught.value.code == "config.open-files"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    server.allow_files(Limits(connections=65_536))
    for enough in (65_536, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, enough=enough: (enough, enough))
        server.allow_files(Limits(connections=1_024))
    assert len(asked_for) == 2


# -- smuggling ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize(
    "headers",
    [
        [b"content-length: 4", b"transfer-encoding: chunked"],
        [b"transfer-encoding: chunked", b"content-length: 4"],
        [b"transfer-encoding: chunked", b"transfer-encoding: identity"],
        [b"transfer-encoding: xchunked"],
        [b"transfer-encoding : chunked"],
        [b"transfer-encoding:\x0bchunked"],
        [b"transfer-encoding: chunked\r\n\t, identity"],
        [b"content-length: 4", b"content-length: 5"],
        [b"content-length: 5", b"Content-Length: 5"],
        [b"content-length: 5, 5"],
        [b"x: y\r\n z", b"content-length: 5"],
        [b"x: y\r\n\tz", b"content-length: 5"],
        [b"content-length: 4, 5"],
        [b"content-length: +4"],
        [b"content-length: 0x4"],
        [b"content-length: -1"],
        [b"content-length: 4 4"],
        [b"content-length: 99999999999999999999"],
        [b"content-length:"],
        [b"x: y\r\n content-length: 4"],
        [b"x: y\ncontent-length: 4"],
        [b"x\r: y"],
        [b"transfer-encoding: chunked,"],
        [b"transfer-encoding: , chunked"],
        [b"transfer-encoding: gzip, chunked"],
        [b'transfer-encoding: "chunked"'],
        [b"transfer-encoding: chunked;q=1"],
    ],
)
def test_a_request_with_two_ends_hides_none_behind_it(address: tuple[str, int], headers: list[bytes]) -> None:
    head = b"\r\n".join([b"POST " + CHAT + b" HTTP/1.1", b"host: localhost", JSON, *headers, b"", b""])
    with socket.create_connection(address) as connection:
        connection.settimeout(5)
        connection.sendall(head + b"0\r\n\r\n" + HIDDEN)
        got = b""
        try:
            while piece := connection.recv(65_536):
                got += piece
                if b'{"status":"ok"}' in got:
                    break
        except (TimeoutError, ConnectionError):
            pass

    assert b"HTTP/1.1 2" not in got
    assert b'"status":"ok"' not in got


@pytest.mark.spec("GW-167")
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([b"host: evil.example"], 421, "http.host"),
        ([b"host: localhost.evil.example:8600"], 421, "http.host"),
        ([b"host: 127.0.0.1.evil.example"], 421, "http.host"),
        ([b"host: 10.0.0.1"], 421, "http.host"),
        ([b"host: localhost@evil.example"], 421, "http.host"),
        ([b"host: localhost", b"origin: http://evil.example"], 403, "http.origin"),
        ([b"host: localhost", b"origin: null"], 403, "http.origin"),
        ([b"host: localhost", b"origin: http://localhost.evil.example:8600"], 403, "http.origin"),
        ([b"host: localhost", b"origin: http://localhost@evil.example"], 403, "http.origin"),
        ([b"host: localhost", b"origin: http://localhost:9999"], 403, "http.origin"),
        ([b"host: [::1]:8600", b"origin: http://LOCALHOST:3000"], 403, "http.origin"),
        ([b"host: localhost", b"origin: http://127.0.0.1"], 403, "http.origin"),
        ([b"host: localhost."], 200, None),
        ([b"host: app.localhost:80"], 200, None),
        ([b"host: 127.0.0.1:1"], 200, None),
        ([b"host: [::1]:8600", b"origin: http://app.localhost:3000"], 200, None),
        ([b"host: evil.example", b"origin: http://evil.example", b"x-api-key: " + KEY.encode()], 200, None),
    ],
)
def test_no_page_reaches_it_without_a_key_by_a_name_of_its_own(
    address: tuple[str, int], headers: list[bytes], status: int, code: str | None
) -> None:
    head = [b"POST " + CHAT + b" HTTP/1.1", *headers, JSON, b"content-length: %d" % len(HELLO), b"", HELLO]

    got, shown, _ = sent(address, b"\r\n".join(head))

    assert (got, shown.get("x-cmf-code")) == (status, code)


@pytest.mark.spec("GW-167")
def test_an_anonymous_gateway_is_served_under_the_names_of_its_settings() -> None:
    own, all_of_them = Listen(host="0.0.0.0", hosts=("gateway.internal",)), Listen(host="0.0.0.0")
    listed, any_name = (Identities((), anonymous=True, hosts=listen.names) for listen in (own, all_of_them))

    with pytest.raises(Refusal, match=r"http\.host"):
        asyncio.run(listed.subject({"host": "evil.example"}))
    assert asyncio.run(listed.subject({"host": "Gateway.Internal:8600"})) is None
    assert asyncio.run(any_name.subject({"host": "evil.example"})) is None
    assert asyncio.run(listed.subject({"host": "evil.example"}, relayed=True)) is None
    assert (
        asyncio.run(listed.subject({"host": "localhost", "origin": "https://a.example"}, pages=["https://a.example"]))
        is None
    )


@pytest.mark.spec("GW-167")
@pytest.mark.parametrize(
    ("host", "status"),
    [(b"evil.example", 421), (b"127.0.0.1.evil.example", 421), (b"10.0.0.1:8600", 200), (b"[fe80::1]", 200)],
)
@pytest.mark.parametrize("path", [b"/metrics", b"/readyz", b"/healthz"])
def test_probes_answer_under_addresses_and_names_of_this_machine_alone(
    address: tuple[str, int], path: bytes, host: bytes, status: int
) -> None:
    assert sent(address, b"GET %s HTTP/1.1\r\nhost: %s\r\n\r\n" % (path, host))[0] == status


@pytest.mark.spec("GW-167")
@pytest.mark.parametrize("origin", ["localhost:3000", "http://localhost:3000/", "null", "*", "http://a.example/page"])
def test_an_origin_that_no_browser_sends_is_no_setting(origin: str) -> None:
    with pytest.raises(ValueError, match="origins"):
        Listen.model_validate({"origins": [origin]})


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize(
    ("version", "headers", "body"),
    [
        (b"HTTP/1.0", [b"transfer-encoding: chunked"], b"%x\r\n%s\r\n0\r\n\r\n" % (len(HELLO), HELLO)),
        (b"HTTP/1.2", [b"content-length: %d" % len(HELLO)], HELLO),
        (b"HTTP/2.0", [b"content-length: %d" % len(HELLO)], HELLO),
    ],
)
def test_another_version_or_what_one_does_not_have_is_refused(
    address: tuple[str, int], version: bytes, headers: list[bytes], body: bytes
) -> None:
    head = b"\r\n".join([b"POST " + CHAT + b" " + version, b"host: localhost", JSON, *headers, b"", b""])

    assert sent(address, head + body)[0] == 400


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize("line", [b"%x", b"%x;ext=a", b'00%X; a="b c"'])
def test_chunks_with_extensions_are_read_and_the_next_request_too(address: tuple[str, int], line: bytes) -> None:
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\n%s\r\ntransfer-encoding: chunked\r\n\r\n" % (CHAT, JSON)
    with socket.create_connection(address) as connection:
        for _ in range(2):
            chunks = line % len(HELLO) + b"\r\n" + HELLO + b"\r\n0\r\n\r\n"

            assert b"200 OK" in answered(connection, head + chunks)


@pytest.mark.spec("GW-14")
@pytest.mark.parametrize(
    ("path", "headers", "model"),
    [
        (CHAT, [], "../m"),
        (CHAT, [], "models/../../m"),
        (b"/v1beta/models/%2e%2e%2fm:generateContent", [], None),
        (b"/v1beta/models/a%2f.%2fm:generateContent", [], None),
        (b"/v1/messages", [b"anthropic-version: \xe9"], "m"),
        (b"/v1/messages", [b"anthropic-beta: a\tb"], "m"),
    ],
)
def test_no_name_leads_out_of_a_path_and_no_header_changes_on_its_way(
    address: tuple[str, int], path: bytes, headers: list[bytes], model: str | None
) -> None:
    message = {"role": "user", "content": "hi"}
    chat = {"model": model, "max_tokens": 5, "messages": [message]}
    said = {"contents": [{"parts": [{"text": "hi"}]}]} if model is None else chat

    status, shown, _ = sent(address, post(path, json.dumps(said).encode(), JSON, *headers))

    assert (status, shown["x-cmf-code"]) == (400, "http.header" if headers else "request.model")


@pytest.mark.spec("GW-162")
def test_bare_line_feeds_and_returns_in_a_head_are_found() -> None:
    """All texts of up to seven returns, line feeds and others; where a return comes last, the next piece tells."""
    for size in range(8):
        for head in map(b"".join, product((b"\r", b"\n", b"x"), repeat=size)):
            rest = head.replace(b"\r\n", b"")
            alone = b"\n" in rest or b"\r" in (rest[:-1] if head.endswith(b"\r") else rest)

            assert server.ends_alike(head) is not alone


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize(
    "ending",
    [
        b"0\r\nx: y\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\nHost: evil\r\n\r\n",
        b"0\r\ncontent-length: 50\r\n\r\n", b"0\r\n\n", b"0;a\rb\r\n\r\n",
        b"0 \r\n\r\n", b"0;" + b"a" * 2_000 + b"\r\n\r\n", b"0;" + b"a" * 2_000,
        b"4\r\nabcdX0\r\n\r\n", b"g\r\n", b"-1\r\n", b"1;\x00\r\n", b"4\nabcd\n0\n\n", b"ffffffffffffffffff\r\n",
    ],
)  # fmt: skip
def test_chunks_that_are_none_end_the_connection(address: tuple[str, int], ending: bytes) -> None:
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\n%s\r\ntransfer-encoding: chunked\r\n\r\n" % (CHAT, JSON)

    status, _, rest = sent(address, head + ending + HIDDEN)

    assert status in (0, 400, 408, 413)
    assert b'"status":"ok"' not in rest


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize(
    "raw",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/10.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\nhost: h\n\n",
        b"GET /healthz HTTP/1.1\r\nhost: h\nx: y\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\rx: y\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /heal\xffthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://h/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT h:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"TRACE /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncookie: canary\r\n\r\n",
        b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"a" * 40_000),
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: %s\r\n\r\n" % (b"a" * 40_000),
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n%s\r\n" % (b"x: y\r\n" * 20_000),
    ],
)
def test_what_is_no_request_of_ours_is_not_served(address: tuple[str, int], raw: bytes) -> None:
    status, _, body = sent(address, raw)

    assert status == 0 or 400 <= status < 500
    assert b"canary" not in body


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize(
    "header",
    [
        b"upgrade: websocket\r\nconnection: upgrade",
        b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AA",
    ],
)
def test_no_other_protocol_is_spoken(address: tuple[str, int], header: bytes) -> None:
    assert sent(address, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n\r\n")[0] == 200
    assert sent(address, b"GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n\r\n")[0] == 404


@pytest.mark.spec("GW-68")
def test_a_body_of_tiny_chunks_is_read_in_pieces_between_which_others_have_their_turn(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, sizes = h11.Connection.receive_data, list[int]()

    def noted(connection: h11.Connection, data: bytes) -> None:
        sizes.append(len(data))
        read(connection, data)

    monkeypatch.setattr(h11.Connection, "receive_data", noted)
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\n%s\r\ntransfer-encoding: chunked\r\n\r\n" % (CHAT, JSON)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in HELLO + b" " * 5_000)

    status = sent(address, head + chunks + b"0\r\n\r\n")[0]

    assert status == 200
    assert sum(sizes) > len(chunks)
    assert max(sizes) <= server.READ_BYTES


@pytest.mark.spec("GW-162")
def test_requests_behind_each_other_are_answered_one_by_one(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(10)
        connection.sendall(post() + post(b"/nowhere") + HIDDEN)
        got = b""
        while b'"status":"ok"' not in got:
            got += connection.recv(65_536)

    assert [piece.split()[0] for piece in got.split(b"HTTP/1.1 ")[1:] if piece[:3].isdigit()] == [
        b"200",
        b"404",
        b"200",
    ]


# -- headers that mean something elsewhere -----------------------------------------------------------------------------


@pytest.mark.spec("GW-163")
@pytest.mark.parametrize(
    "header",
    [
        b"x-http-method-override: DELETE",
        b"x-method-override: PUT",
        b"x-original-url: /v1/files",
        b"x-rewrite-url: /admin/reload",
        b"x-forwarded-host: evil",
        b"connection: authorization, x-cmf-session-id",
        b"expect: 100-continue",
    ],
)
def test_headers_of_proxies_change_nothing(address: tuple[str, int], header: bytes) -> None:
    known = b"authorization: Bearer " + KEY.encode()
    wrong = b"authorization: Bearer cmf_nobody"

    assert sent(address, post(CHAT, HELLO, JSON, header, known))[0] in (100, 200)
    assert sent(address, post(CHAT, HELLO, JSON, header, wrong))[0] in (100, 401)
    assert sent(address, post(b"/v1/files", HELLO, JSON, header))[0] in (100, 404)


@pytest.mark.spec("GW-163")
@pytest.mark.parametrize(
    "value", ["", " ", "Bearer", "Bearer ", "Basic YTpi", "Bearer ' OR 1=1 --", "Bearer \xff\xfe", "Bearer a b",
              "Bearer " + "a" * 20_000, "Bearer a.b.c", "bearer\tx", "Bearer %s%n", "Bearer ../../etc/passwd"]
)  # fmt: skip
def test_whatever_is_presented_as_a_key_is_looked_up_and_nothing_else(address: tuple[str, int], value: str) -> None:
    status, headers, body = sent(address, post(CHAT, HELLO, JSON, b"authorization: " + value.encode("latin-1")))

    assert status == 401
    assert headers["x-cmf-code"].startswith("auth.")
    assert b"passwd" not in body


@pytest.mark.spec("GW-163")
@pytest.mark.parametrize(
    "session", [b"a b", b"../x", b"~beginnings", b"a\x7f", b"", b"a" * 129, b"a\xc3\xa9", b"a;b", b"a\tb"]
)
def test_a_session_s_id_is_one_or_the_request_is_refused(address: tuple[str, int], session: bytes) -> None:
    status, headers, _ = sent(address, post(CHAT, HELLO, JSON, b"x-cmf-session-id: " + session))

    assert status == 400 or session == b"../x"
    assert "set-cookie" not in headers


# -- toward an upstream ------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-164")
@pytest.mark.parametrize(
    "model",
    [
        "../../files",
        "m?key=x",
        "m#x",
        "m%2f..%2fx",
        "m:streamGenerateContent",
        "m\r\nx: y",
        "a b",
        "m/../x",
        "\u202em",
        "m\x00",
    ],
)
def test_a_model_s_name_is_no_path_of_the_upstream_s(tmp_path: Path, model: str) -> None:
    reply = {"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}, "finishReason": "STOP"}]}
    bare = Bare(http_reply(json.dumps(reply).encode()))
    with bare.running() as up:
        body = {"upstreams": {"up": {"dialect": "gemini", "base_url": up, "key": {"env": "K"}}}}
        with serving(tmp_path, body, {"K": "canary-key"}) as url:
            hello = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
            status, said = asked(url, "POST", CHAT.decode(), hello)

    assert status in (200, 400, 403)
    assert "canary-key" not in json.dumps(said)
    for heard in bare.heard:
        path = heard.split(b"\r\n")[0].split()[1]
        assert path.count(b"/") == 3
        assert path.startswith(b"/v1beta/models/")
        assert path.endswith(b":generateContent")
        assert b"?" not in path
        assert b"\r\nx: y" not in heard.lower()


@pytest.mark.spec("GW-164")
def test_nothing_that_a_request_names_is_ever_fetched(tmp_path: Path) -> None:
    watched = Bare(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    with watched.running() as elsewhere:
        picture = {"type": "image_url", "image_url": {"url": f"{elsewhere}/x.png"}}
        fields = dict.fromkeys(("api_base", "base_url", "proxy", "webhook", "callback_url"), elsewhere)
        hello = {
            "model": "m",
            "messages": [{"role": "user", "content": [picture, {"type": "text", "text": elsewhere}]}],
        }
        with serving(tmp_path, {"upstreams": {"up": script(tmp_path, {"text": f"see {elsewhere}"})}}) as url:
            for body in (hello, hello | fields):
                asked(url, "POST", CHAT.decode(), body)

        assert watched.heard == []


@pytest.mark.spec("GW-164")
def test_no_proxy_of_the_environment_hears_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, bare = Bare(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), Bare(http_reply(b'{"error": "x"}'))
    with proxy.running() as elsewhere, bare.running() as up:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, elsewhere)
        with serving(tmp_path, {"upstreams": {"up": {"dialect": "ollama", "base_url": up}}}) as url:
            asked(url, "POST", CHAT.decode(), json.loads(HELLO))

    assert proxy.heard == []
    assert len(bare.heard) == 1


@pytest.mark.spec("GW-165")
def test_no_piece_of_an_answer_waits_for_a_word_from_the_client(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        client.sendall(post())
        assert client.recv(1) == b"H"  # by now the other end is somebody's
        own = client.getsockname()
        assert [end for end in map(nodelay_towards, os.listdir("/proc/self/fd"), repeat(own)) if end is not None] == [1]


@pytest.mark.spec("GW-165")
def test_a_head_leaves_with_the_body_behind_it(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        for _ in range(20):
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert client.recv(65_536).endswith(b'{"status":"ok"}')


def nodelay_towards(file: str, peer: tuple[str, int]) -> int | None:
    """Whether the socket behind this descriptor sends at once, if it is one that is connected to `peer`."""
    with suppress(OSError), socket.socket(fileno=os.dup(int(file))) as copy:
        if copy.family == socket.AF_INET and copy.getpeername() == peer:
            return copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    return None
