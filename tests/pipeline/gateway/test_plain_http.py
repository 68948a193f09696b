"""The short way of plain requests and answers: never another reading, or other bytes, than h11's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from pipeline.gateway.plain_http import Plain, plain_in, plain_out
from pipeline.gateway.server import StrictBuffer, server_of

BODY = b'{"a": 1}'
HEAD = b"POST /v1/x?y=%20 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\ncontent-length: 8\r\n"
ODD = [
    b"transfer-encoding: chunked", b"Expect: 100-continue", b"upgrade: h2c", b"connection: close", b"te: trailers",
    b"connection: keep-alive", b"content-length: 8", b"content-length: 9", b"content-length: 8, 8", b"host: h",
    b"x: y", b"x: y z ", b"x:y", b"x :y", b"x:", b" x: y", b"x: \ty", b"x: \xff", b"x\x00: y", b"x: y\x00", b"\xff: y",
    b"Content-Length : 8", b"", b"x", b"x: y\r", b"x: y\nz: 1",
]  # fmt: skip
requests = st.builds(
    lambda line, lines, end, body, behind: line + end + end.join([*lines, b""]) + end + body + behind,
    st.sampled_from([b"POST / HTTP/1.1", b"POST /a%2 HTTP/1.1", b"GET / HTTP/1.1", b"POST / HTTP/1.0",
                     b"post / HTTP/1.1", b"POST x HTTP/1.1", b"POST /  HTTP/1.1", b"POST /\xff HTTP/1.1"]),
    st.lists(st.sampled_from([b"host: h", b"content-length: 8", *ODD]), max_size=5).map(
        lambda some: [b"Host: h", b"Content-Length: 8", *some]
    )
    | st.permutations([b"host: h", b"content-length: 8", b"x: y"]),
    st.sampled_from([b"\r\n"] * 6 + [b"\n", b"\r"]),
    st.sampled_from([BODY] * 6 + [b"", BODY[:-1]]),
    st.sampled_from([b""] * 6 + [b"P", b"\r\n"]),
)  # fmt: skip


def read_by_h11(data: bytes) -> tuple[h11.Connection, list[Any]]:
    """What h11 says came, up to where it waits."""
    connection = h11.Connection(h11.SERVER, 32 * 1024)
    connection._receive_buffer = StrictBuffer()
    connection.receive_data(data)
    events: list[Any] = []
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        events.append(event)
    return connection, events


@pytest.mark.spec("GW-162")
@given(requests)
def test_what_is_read_the_short_way_h11_reads_alike(data: bytes) -> None:
    plain = plain_in(data)

    if plain is not None:
        connection, (head, *pieces, _) = read_by_h11(data)
        assert (head.method, head.target, head.http_version) == (b"POST", plain.target, b"1.1")
        assert list(head.headers) == plain.headers
        assert b"".join(piece.data for piece in pieces) == plain.body
        assert connection.trailing_data == (b"", False)
        assert not connection.they_are_waiting_for_100_continue


@pytest.mark.spec("GW-162")
def test_a_plain_request_goes_the_short_way() -> None:
    own = [(b"host", b"h"), (b"content-type", b"application/json"), (b"content-length", b"8")]

    assert plain_in(HEAD + b"\r\n" + BODY) == Plain(b"/v1/x?y=%20", own, BODY)
    assert plain_in(HEAD + b"Connection: keep-alive\r\n\r\n" + BODY) is not None


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize(
    "more",
    [*(each for each in ODD if each not in (b"connection: keep-alive", b"x: y", b"x:y")), b"x: " + b"y" * 33_000],
)
def test_what_could_mean_more_is_left_to_h11(more: bytes) -> None:
    assert plain_in(HEAD + more + b"\r\n\r\n" + BODY) is None


@pytest.mark.spec("GW-165")
@given(
    st.integers(200, 599),
    st.lists(
        st.sampled_from([(b"x", b"y"), (b"X-Y", b"a b"), (b"connection", b"close"), (b"x", b"y\r\nz: 1"), (b"y", b""),
                         (b"content-length", b"9"), (b"transfer-encoding", b"chunked"),
                         (b"a b", b"c"), (b"y", b" z"), (b"x: y", b"z"), (b"x", b"y:z")]),
        max_size=4,
    ),
)  # fmt: skip
def test_what_is_written_the_short_way_h11_writes_alike(status: int, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-length", b"8"), *more]
    written = plain_out(status, headers, BODY)

    if written is not None:
        connection, _ = read_by_h11(HEAD + b"\r\n" + BODY)
        head = h11.Response(status_code=status, headers=headers, reason=reason_of(written))
        pieces = [connection.send(event) or b"" for event in (head, h11.Data(BODY), h11.EndOfMessage())]
        assert written == b"".join(pieces)
        assert connection.our_state is h11.DONE


def reason_of(written: bytes) -> bytes:
    return written.split(b"\r\n")[0].split(b" ", 2)[2]


# -- on a connection ---------------------------------------------------------------------------------------------------


class Sock:
    family = 0

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    getpeername = getsockname


class Wire(asyncio.Transport):
    """A transport that keeps what is sent."""

    sent = b""
    closed = False

    def __init__(self) -> None:
        super().__init__({"socket": Sock()})

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected(application: Any) -> tuple[Any, Wire]:
    """A connection of a server for `application`, whose other end the test is."""
    server = server_of(application)
    server.config.load()
    protocol = server.config.http_protocol_class(config=server.config, server_state=ServerState(), app_state={})
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def answered(protocol: Any) -> None:
    while protocol.tasks:
        await asyncio.wait(protocol.tasks)


def answering(begun: asyncio.Event, go_on: asyncio.Event, send_all: Callable[[Any, bytes], Any]) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        begun.set()
        await go_on.wait()
        await send_all(send, scope["raw_path"] + event["body"])

    return application


async def whole(send: Any, body: bytes) -> None:
    length = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


async def in_pieces(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def said_long_in_pieces(send: Any, body: bytes) -> None:
    length = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body[:-3], "more_body": True})
    await send({"type": "http.response.body", "body": body[-3:]})


@pytest.mark.spec("GW-162")
@pytest.mark.parametrize("send_all", [whole, in_pieces, said_long_in_pieces])
async def test_what_comes_behind_a_request_in_work_is_answered_after_it(send_all: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    protocol, wire = connected(answering(begun, go_on, send_all))
    second = HEAD.replace(b"/v1/x", b"/second") + b"\r\n" + BODY

    protocol.data_received(HEAD + b"\r\n" + BODY)
    await begun.wait()
    protocol.data_received(second[:30])
    protocol.data_received(second[30:])
    protocol.data_received(b"rubbish\r\n\r\n")
    go_on.set()
    await answered(protocol)

    first, then, refused = wire.sent.split(b"HTTP/1.1 ")[1:]
    assert b"/v1/x" + BODY in first
    assert b"/second" + BODY in then
    assert refused.startswith(b"400 ")


@pytest.mark.spec("GW-161")
async def test_who_leaves_a_plain_request_is_told_to_be_gone() -> None:
    gone: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        gone.append((await receive())["type"])
        await whole(send, b"nobody hears it")

    protocol, wire = connected(application)
    protocol.data_received(HEAD + b"\r\n" + BODY)
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    await answered(protocol)

    assert gone == ["http.disconnect"]
    assert wire.sent == b""


@pytest.mark.spec("GW-165")
async def test_an_application_that_fails_after_the_head_has_none_of_it_sent() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        raise ValueError

    protocol, wire = connected(application)
    protocol.data_received(HEAD + b"\r\n" + BODY)
    await answered(protocol)

    assert (wire.sent, wire.closed) == (b"", True)


@pytest.mark.spec("GW-162")
async def test_a_server_that_ends_closes_behind_a_plain_answer() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    protocol, wire = connected(answering(begun, go_on, whole))

    protocol.data_received(HEAD + b"\r\n" + BODY)
    await begun.wait()
    protocol.shutdown()
    go_on.set()
    await answered(protocol)

    assert wire.closed
    assert wire.sent.endswith(BODY)
