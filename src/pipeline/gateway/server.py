"""The HTTP server under a gateway: strict, silent about itself, bounded in connections and in time. Spec: [GW-160].

A client that takes its time costs a file descriptor and memory: it may do so for as long as `Limits` say.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import h11
import uvicorn
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.errors import ConfigError
from pipeline.gateway.intake import LASTS
from pipeline.gateway.settings import Limits

BACKLOG: Final = 1024
GRACE_SECONDS: Final = 20.0  # what is in work may end, then it is ended
MAX_HEAD_BYTES: Final = 32 * 1024
MAX_JOINED_BYTES: Final = 64 * 1024  # of one step's pieces; what is beyond is not held back to be joined
SPARE_FILES: Final = 256  # beside two for each client: stores, policies, upstreams that wait for their next request


class StrictBuffer(ReceiveBuffer):
    """What came of a request: its head has a bound, and one kind of end of line [GW-162]."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines of a head, or of what follows the last chunk; None where they are not all there."""
        raw = bytes(self)
        end = raw.find(b"\r\n\r\n")
        head = raw if end < 0 else raw[:end]
        if len(head) > MAX_HEAD_BYTES:
            raise h11.LocalProtocolError("the head is too large", error_status_hint=431)
        if not ends_alike(head):
            raise h11.LocalProtocolError("a line ends in another way than the others")
        lines: list[bytearray] | None = super().maybe_extract_lines()
        return lines


def ends_alike(head: bytes) -> bool:
    """Whether each line ends with CR LF: no line feed is alone, and no return but the last, which may wait for its own.

    They are counted: to look for one that is alone, by a pattern, takes at least seven times as long.
    """
    ends = head.count(b"\r\n")
    return head.count(b"\n") == ends == head.count(b"\r") - head.endswith(b"\r")


class BoundedProtocol(H11Protocol):
    """A connection that is closed where its client keeps it for nothing."""

    limits = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; or end at once, where there are too many."""
        self._waiting: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        _send_at_once(transport)
        self.conn._receive_buffer = StrictBuffer()  # h11 has no door for it; a test says if it moves
        super().connection_made(Joining(transport, self.loop))
        if len(self.connections) > self.limits.connections:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._head_is_there()
        self._took_something()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The next bytes; the first of a head begin the time that it may take, unless all of it came with them."""
        super().data_received(data)
        if self._in_request():
            self._head_is_there()
        else:
            self._await_head()

    def on_response_complete(self) -> None:
        """The next request on this connection; what of it came already has its time from now."""
        super().on_response_complete()
        if not self._in_request() and self.conn.trailing_data[0]:
            self._await_head()

    def shutdown(self) -> None:
        """End with the server: what is in work may end, unless it has no end."""
        super().shutdown()
        if self._in_request() and self.cycle.scope.get(LASTS):
            self.transport.close()

    def pause_writing(self) -> None:
        """The client takes nothing just now: from here on its time runs."""
        super().pause_writing()
        self._took_something()
        self._stalled = self.loop.call_later(self.limits.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It took something."""
        super().resume_writing()
        self._took_something()

    def _in_request(self) -> bool:
        cycle: Any = self.cycle  # None before the first one
        return cycle is not None and not cycle.response_complete

    def _await_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.limits.head_seconds, self.transport.abort)

    def _head_is_there(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _took_something(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class Joining(asyncio.Transport):
    """A transport that sends what is written in one step of the loop as one: a head with the body behind it [GW-165].

    Args:
        transport: the one that sends.
        loop: what steps.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._size = 0
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = transport.pause_reading  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have it sent at the end of this step, or now where it is a lot."""
        if not data:
            return
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_JOINED_BYTES:
            self._send()

    def close(self) -> None:
        """Send what there is, and end."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """End; what was not sent is not sent."""
        self._pieces.clear()
        self._transport.abort()

    def _send(self) -> None:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces:
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _send_at_once(transport: asyncio.Transport) -> None:
    """Let no piece wait until the client has said that it has the one before [GW-165]."""
    # The loop does so itself only where the socket was made with the number of the protocol.
    made = transport.get_extra_info("socket")
    if made.family in (socket.AF_INET, socket.AF_INET6):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Server(uvicorn.Server):
    """A server that ends when it is told to, and whose process goes on to put its things in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A block in which SIGINT and SIGTERM end the server; a second SIGINT ends what is in work too."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


class BesideServer(Server):
    """A server in the loop of another one, which hears the signals for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A block in which nothing is heard."""
        yield


def server_of(
    app: Any, limits: Limits | None = None, *, grace_seconds: float = GRACE_SECONDS, beside: bool = False
) -> Server:
    """The HTTP server for `app`, an ASGI application.

    Args:
        app: with a lifespan of its own.
        limits: bounds on what a connection can cost.
        grace_seconds: how long what is in work may take when it is to end; then it is ended.
        beside: it runs in the loop of another server.
    """
    known = limits or Limits()
    _quiet()
    protocol = type("Protocol", (BoundedProtocol,), {"limits": known})
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        loop="asyncio",
        http=protocol,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(grace_seconds)),
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    return BesideServer(config) if beside else Server(config)


def _quiet() -> None:
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold paths, which are the client's words
    errors = logging.getLogger("uvicorn.error")
    if not any(isinstance(one, _TypesAlone) for one in errors.filters):
        errors.addFilter(_TypesAlone())


class _TypesAlone(logging.Filter):
    """What went wrong, by its type: the text of an exception may quote what a client sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always so; the record says less afterwards."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            record.msg, record.args = "a request could not be answered: %s", (type(error).__name__,)
            record.exc_info = record.exc_text = None
        return True


def listening(host: str, port: int) -> socket.socket:
    """A socket on which clients are waited for; OSError, OverflowError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def address_of(made: socket.socket) -> str:
    """`host:port` as a URL has it."""
    host, port = made.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def allow_files(limits: Limits) -> None:
    """Have as many open files as the clients need that may be connected; ConfigError where the machine forbids it."""
    try:
        import resource  # not on every platform
    except ImportError:  # pragma: no cover
        return
    wanted = 2 * limits.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        hint = f"set it below {max(1, (hard - SPARE_FILES) // 2)}, or raise the limit of open files above {wanted}"
        what = "so many connections need more open files than this process may have"
        raise ConfigError(what, path="limits.connections", code="config.open-files", hint=hint)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


__all__ = ["BACKLOG", "GRACE_SECONDS", "Server", "address_of", "allow_files", "listening", "server_of"]
