"""Requests and answers of the plainest form, read and written in few steps; whatever else comes is h11's [GW-162].

A request is plain where it came whole, in one piece with nothing behind it, and each line of its head is one that no
two readers take differently. h11 reads every such request just so, and would write every plain answer just so: tests
hold both to it. What is not plain for certain, h11 reads from its first byte on, and refuses as ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

Headers = Sequence[tuple[bytes, bytes]]

MAX_HEAD_BYTES: Final = 32 * 1024
_NAME: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_VALUE: Final = rb"[!-~](?:[ -~]*[!-~])?"
_LINE: Final = re.compile(rb"(%s): ?(%s)\r\n" % (_NAME, _VALUE))
_HEAD: Final = re.compile(rb"POST (/[!-~]*) HTTP/1\.1\r\n((?:%s: ?%s\r\n)+)\r\n" % (_NAME, _VALUE))
_LINES: Final = re.compile(rb"(?:%s: %s\r\n)+" % (_NAME, _VALUE))
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")
# What changes how a message ends, or what is spoken behind it.
_ENDS: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"trailer", b"te"})
_STAYS: Final = (None, b"keep-alive")  # of `connection`: it says what is so anyway
_BODILESS: Final = frozenset({204, 304})


class Plain(NamedTuple):
    """A request that is plain: what h11 would say of it, and the body."""

    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


def plain_in(data: bytes) -> Plain | None:
    """The request that these bytes are; None where they are not one plain request, whole, and nothing else."""
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    found = _HEAD.fullmatch(data, 0, end)
    if found is None:
        return None
    headers = [(name.lower(), value) for name, value in _LINE.findall(found[2])]
    named = dict(headers)
    if len(named) < len(headers) or b"host" not in named or not _ENDS.isdisjoint(named):
        return None
    length = named.get(b"content-length", b"")
    if named.get(b"connection") not in _STAYS or not _LENGTH.fullmatch(length) or int(length) != len(data) - end:
        return None
    return Plain(found[1], headers, data[end:])


def plain_out(status: int, headers: Headers, body: bytes) -> bytes | None:
    """The bytes of a whole answer; None where it is not plain."""
    named = {name.lower(): value for name, value in headers}
    if len(named) < len(headers) or named.get(b"content-length") != b"%d" % len(body) or b"connection" in named:
        return None
    if not 200 <= status < 600 or status in _BODILESS or not _ENDS.isdisjoint(named):
        return None
    lines = b"".join([b"%s: %s\r\n" % each for each in headers])
    # As many lines as headers, and no name with a colon: so each line is one header, and no text made another.
    if not _LINES.fullmatch(lines) or lines.count(b"\r\n") != len(headers) or b":" in b"".join(named):
        return None
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, STATUS_PHRASES[status], lines, body)


class PlainCycle(RequestResponseCycle):
    """A plain request and its answer. h11 hears of neither, unless the answer is not plain: then of both."""

    raw: bytes | None = None  # the request as it came; None once h11 knows of it
    behind: bytes = b""  # what came behind it
    _body: bytes | None = None
    _held: Any = None  # how the answer begins, until it is known whether it is plain

    def begin(self, raw: bytes, body: bytes) -> None:
        """Take in the request: all of it is there."""
        self.raw, self._body = raw, body
        self.more_body = False

    async def receive(self) -> Any:
        """See ASGI."""
        body, self._body = self._body, None
        if body is None or self.disconnected:
            return await super().receive()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Any) -> None:
        """See ASGI. The head of an answer that says its length leaves with the body [GW-165]."""
        if (raw := self.raw) is None:
            await super().send(message)
            return
        held, self._held = self._held, None
        if held is None and message["type"] == "http.response.start" and _says_length(message["headers"]):
            self._held, self.response_started = message, True
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        written = None
        if held is not None and message["type"] == "http.response.body" and not message.get("more_body", False):
            headers = [*self.default_headers, *held["headers"]]
            written = plain_out(held["status"], headers, message.get("body", b""))
        if written is None:
            self._tell_h11(raw + self.behind)
            for each in (message,) if held is None else (held, message):
                await super().send(each)
        else:
            self._whole(written)

    def _whole(self, written: bytes) -> None:
        self.transport.writelines((written,))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.conn.send(h11.ConnectionClosed())
            self.transport.close()
        self.on_response()

    def _tell_h11(self, came: bytes) -> None:
        """Let h11 read the request too, since it is to write the answer."""
        self.raw, self.behind, self.response_started = None, b"", False
        self.conn.receive_data(came)
        while not isinstance(event := self.conn.next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Request | h11.Data):  # never so: head and body are there
                raise RuntimeError("h11 reads this request otherwise")


def _says_length(headers: Headers) -> bool:
    return any(name == b"content-length" for name, _ in headers)


__all__ = ["MAX_HEAD_BYTES", "Plain", "PlainCycle", "plain_in", "plain_out"]
