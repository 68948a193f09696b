"""The HTTP server of a gateway: strict, silent about itself, limited in connections and time. Spec: [GW-160].

A slow client costs a file descriptor and memory; `Limits` say for how long it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from pipeline.decisions.errors import ConfigError, needs
from pipeline.gateway.config.settings import Limits
from pipeline.gateway.http.incoming import LASTS

with needs("gateway"):
    import h11
    import uvicorn
    from h11._receivebuffer import ReceiveBuffer
    from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG: Final = 1024
GRACE_SECONDS: Final = 20.0  # for requests in progress; then they are cancelled
MAX_HEAD_BYTES: Final = 32 * 1024
READ_BYTES: Final = 8 * 1024  # received in one step of the event loop: they may be 1,400 chunks of one byte
MAX_JOINED_BYTES: Final = 64 * 1024  # of the pieces of one step; more is written at once
SPARE_FILES: Final = 256  # besides two for each client: stores, policies, idle upstream connections


LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:", re.IGNORECASE)
REPEATED_LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:[^\r]*,", re.IGNORECASE)


CHUNK_LINE: Final = re.compile(rb"[0-9a-fA-F]{1,16}(?:;[\t -~]*)?\r\n")
MAX_CHUNK_LINE: Final = 1024  # bytes: the length of a chunk, and extensions that nothing here reads
VERSIONS: Final = (b" HTTP/1.1", b" HTTP/1.0")
LATE: Final = re.compile(rb"(?:^|\r\n)(?:content-[a-z]+|transfer-encoding|host)[ \t]*:", re.IGNORECASE)
CODED: Final = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)


class StrictBuffer(ReceiveBuffer):
    """Received bytes: a head of limited size, with one kind of line ending, no folded line and one length [GW-162]."""

    def __init__(self, connection: h11.Connection) -> None:
        super().__init__()
        self._connection = connection

    def maybe_extract_next_line(self) -> bytearray | None:
        """The line before a chunk; None until it is complete."""
        line: bytearray | None = super().maybe_extract_next_line()
        if len(self if line is None else line) > MAX_CHUNK_LINE:
            raise h11.LocalProtocolError("the line before a chunk is too long")
        if line is not None and not CHUNK_LINE.fullmatch(line):
            raise h11.LocalProtocolError("the line before a chunk is not valid")  # h11 takes a lone CR in it
        return line

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines of a head, or of a trailer; None until they are complete."""
        raw = bytes(self)
        end = raw.find(b"\r\n\r\n")
        head = raw if end < 0 else raw[:end]
        if len(head) > MAX_HEAD_BYTES:
            raise h11.LocalProtocolError("the head is too large", error_status_hint=431)
        if not ends_alike(head):
            raise h11.LocalProtocolError("line endings differ")
        if b"\r\n " in head or b"\r\n\t" in head:
            raise h11.LocalProtocolError("a header is folded")  # h11 unfolds it; a proxy may have read two headers
        if len(LENGTH.findall(head)) > 1 or REPEATED_LENGTH.search(head):
            raise h11.LocalProtocolError("two lengths")  # h11 takes equal ones for one
        first = head.partition(b"\r\n")[0]
        if first and self._connection.their_state is h11.SEND_BODY and LATE.search(head):
            raise h11.LocalProtocolError("headers about the body behind it")  # ignored here; a proxy may read them
        if end > 0 and self._connection.their_state is h11.IDLE:
            if not first.endswith(VERSIONS):
                raise h11.LocalProtocolError("not HTTP/1.1 or HTTP/1.0")
            if first.endswith(VERSIONS[1]) and CODED.search(head):
                raise h11.LocalProtocolError("a transfer coding in HTTP/1.0")  # it has none: others see another end
        lines: list[bytearray] | None = super().maybe_extract_lines()
        return lines


def ends_alike(head: bytes) -> bool:
    """Whether every line ends with CR LF; a CR at the very end may still get its LF.

    Both are counted, which is seven times as fast as a pattern for a lone one.
    """
    ends = head.count(b"\r\n")
    return head.count(b"\n") == ends == head.count(b"\r") - head.endswith(b"\r")


class BoundedProtocol(H11Protocol):
    """A connection that is closed if its client holds it too long."""

    limits = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of TCP, always
        """Set the connection up, or close it at once if there are too many."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        _send_at_once(transport)
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of asyncio's; a test fails if it moves
        self.conn._receive_buffer = StrictBuffer(self.conn)  # private in h11; a test fails if it moves
        super().connection_made(Joining(transport, self.loop))
        if len(self.connections) > self.limits.connections:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes. The first of a head start its timer, unless the whole head came with them."""
        super().data_received(data)
        if self._in_request():
            self._cancel_head_timer()
        else:
            self._await_head()

    def on_response_complete(self) -> None:
        """Make way for the next request; if some of it is here already, its timer starts."""
        super().on_response_complete()
        if not self._in_request() and self.conn.trailing_data[0]:
            self._await_head()

    def shutdown(self) -> None:
        """End with the server: a request in progress may end, unless its answer has no end."""
        super().shutdown()
        if self._in_request() and self.cycle.scope.get(LASTS):
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the timer: the client reads nothing at present."""
        super().pause_writing()
        self._cancel_stall_timer()
        self._stall_timer = self.loop.call_later(self.limits.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the timer: the client reads again."""
        super().resume_writing()
        self._cancel_stall_timer()

    def _in_request(self) -> bool:
        cycle: Any = self.cycle  # None before the first one
        return cycle is not None and not cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self.transport.abort)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


class Joining(asyncio.Transport):
    """A transport that joins what is written in one step of the event loop, as a head and its body [GW-165]."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._size = 0
        self.is_closing = transport.is_closing  # type: ignore[method-assign]  # passed on, as the next three
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]  # as above
        self.pause_reading = transport.pause_reading  # type: ignore[method-assign]  # as above
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]  # as above

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data` at the end of this step, or at once if it is much."""
        if not data:
            return
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MAX_JOINED_BYTES:
            self._send()

    def close(self) -> None:
        """Send what is left, and close."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending what is left."""
        self._pieces.clear()
        self._transport.abort()

    def _send(self) -> None:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces:
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _send_at_once(transport: asyncio.Transport) -> None:
    """Switch Nagle's algorithm off, so that no piece waits for an acknowledgement [GW-165]."""
    # asyncio does so itself only for sockets that were made with the protocol's number.
    made = transport.get_extra_info("socket")
    if made.family in (socket.AF_INET, socket.AF_INET6):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Server(uvicorn.Server):
    """A server that stops on signals without re-raising them, so that its process can clean up.

    Attributes:
        on_stop: called once it stops, before it waits for the requests in progress.
        beside: whether it runs in the event loop of another server, which handles the signals for both.
    """

    on_stop: Callable[[], None] = staticmethod(lambda: None)
    beside = False

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let requests in progress end, and end."""
        self.on_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A block in which SIGINT and SIGTERM stop the server; a second SIGINT cancels requests in progress too."""
        if self.beside or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def server_of(
    app: Any, limits: Limits | None = None, *, grace_seconds: float = GRACE_SECONDS, beside: bool = False
) -> Server:
    """The HTTP server for `app`, an ASGI application; requests in progress get `grace_seconds` once it is stopped."""
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold paths, which the client chose
    errors = logging.getLogger("uvicorn.error")
    if not any(isinstance(one, _TypesAlone) for one in errors.filters):
        errors.addFilter(_TypesAlone())
    protocol = type("Protocol", (BoundedProtocol,), {"limits": limits or Limits()})
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
    server = Server(config)
    server.beside = beside
    return server


class _TypesAlone(logging.Filter):
    """Reduces exceptions in log lines to their types: their texts may quote what a client sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; the record is changed."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            record.msg, record.args = "a request could not be answered: %s", (type(error).__name__,)
            record.exc_info = record.exc_text = None
        return True


def listening(host: str, port: int) -> socket.socket:
    """A listening socket. OSError or OverflowError if there cannot be one."""
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
    """`host:port`, as in a URL."""
    host, port = made.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def allow_files(limits: Limits) -> None:
    """Raise the limit of open files to what `limits` needs; ConfigError if the machine does not allow it."""
    try:
        import resource
    except ImportError:  # pragma: no cover - on Windows
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
