"""Bytes and the events of a stream, both ways: server-sent events and newline-delimited JSON. Spec: streaming.md.

Reading takes any split of the bytes, any of the three line ends, a byte order mark and comments, and is bounded.
Writing makes every line itself: no text of an event can begin another field or another event.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cmf.adapters.wire.base import WireEvent
from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024  # one event; an inline image is the largest thing seen in one
MAX_STREAM_BYTES: Final = 64 * 1024 * 1024  # one answer

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_TEXT_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class _Lines:
    """Bytes as they come in, lines as they are complete. Each byte is looked at once."""

    __slots__ = ("_after_cr", "_max_event", "_max_stream", "_pending", "_pending_size", "_size")

    def __init__(self, max_event_bytes: int, max_stream_bytes: int) -> None:
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._size = 0
        self._after_cr = False
        self._max_event = max_event_bytes
        self._max_stream = max_stream_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self._size:
            chunk = self._without_mark(chunk)
        if not chunk:
            return []
        self._size += len(chunk)
        if self._size > self._max_stream:
            raise _too_large("stream", self._max_stream)
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a line end that was split
        self._after_cr = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(chunk)
        self._keep(first)
        if not others:
            return []
        lines = [self.rest(), *others[:-1]]
        self._keep(others[-1])
        return lines

    def _without_mark(self, chunk: bytes) -> bytes:
        """The first bytes without a byte order mark, which may itself come in pieces."""
        start = self.rest() + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._keep(start)
            return b""
        return start.removeprefix(_BOM)

    def _keep(self, piece: bytes) -> None:
        self._pending.append(piece)
        self._pending_size += len(piece)
        if self._pending_size > self._max_event:
            raise _too_large("event", self._max_event)

    def rest(self) -> bytes:
        line = b"".join(self._pending)
        self._pending = []
        self._pending_size = 0
        return line


class SseReader:
    """Server-sent events out of bytes: feed what arrives, in whatever pieces; close at the end.

    Raises (from both methods):
        DecodeError: json.not-utf8; stream.too-large; or data that is JSON to a lax reader only (a key twice, say).
    """

    __slots__ = ("_data", "_event", "_id", "_lines", "_max_event", "_size")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES, max_stream_bytes: int = MAX_STREAM_BYTES) -> None:
        self._lines = _Lines(max_event_bytes, max_stream_bytes)
        self._max_event = max_event_bytes
        self._start()

    def _start(self) -> None:
        self._data: list[str] = []
        self._event: str | None = None
        self._id: str | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """The events that these bytes complete."""
        events: list[WireEvent] = []
        for line in self._lines.feed(chunk):
            self._line(line, events)
        return events

    def close(self) -> list[WireEvent]:
        """What is left at the end: an event whose blank line never came, if any of it did."""
        events: list[WireEvent] = []
        if rest := self._lines.rest():
            self._line(rest, events)
        self._line(b"", events)
        return events

    def _line(self, raw: bytes, events: list[WireEvent]) -> None:
        if not raw:
            self._dispatch(events)
            return
        self._size += len(raw)
        if self._size > self._max_event:
            raise _too_large("event", self._max_event)
        line = _text(raw)
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            events.append({"comment": value})
        elif name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        # `retry` and unknown fields say nothing to a reader that does not reconnect.

    def _dispatch(self, events: list[WireEvent]) -> None:
        if self._data:
            event: WireEvent = {"data": _json_or_text("\n".join(self._data))}
            if self._event is not None:
                event["event"] = self._event
            if self._id is not None:
                event["id"] = self._id
            events.append(event)
        self._start()


class NdjsonReader:
    """Newline-delimited JSON out of bytes; blank lines are skipped. Raises DecodeError for a line that is no JSON."""

    __slots__ = ("_lines",)

    def __init__(self, *, max_stream_bytes: int = MAX_STREAM_BYTES) -> None:
        self._lines = _Lines(MAX_EVENT_BYTES, max_stream_bytes)

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """The events that these bytes complete."""
        return [{"data": loads(line)} for line in self._lines.feed(chunk) if line.strip()]

    def close(self) -> list[WireEvent]:
        """The last line, if it had no line end."""
        rest = self._lines.rest()
        return [{"data": loads(rest)}] if rest.strip() else []


def sse_bytes(event: WireEvent) -> bytes:
    """One event as it goes on the wire, with the blank line that ends it.

    Raises:
        DecodeError: code stream.bad-field, for an event name or id that has a line end or a NUL.
    """
    lines = [f": {line}" for line in _TEXT_LINE_END.split(event["comment"])] if "comment" in event else []
    for name in ("event", "id"):
        value = event.get(name)
        if isinstance(value, str):
            if _TEXT_LINE_END.search(value) or "\0" in value:
                hint = "take line ends and NUL out"
                raise DecodeError(f"`{name}` of an event must be one line", code="stream.bad-field", hint=hint)
            lines.append(f"{name}: {value}")
    if "data" in event:
        data = event["data"]
        text = data if isinstance(data, str) else dumps(data).decode()
        lines += [f"data: {line}" for line in _TEXT_LINE_END.split(text)]
    return "\n".join([*lines, "", ""]).encode()


def ndjson_bytes(event: WireEvent) -> bytes:
    """One event as a line of JSON; nothing for an event without data, which the format cannot say."""
    return dumps(event["data"]) + b"\n" if "data" in event else b""


def _json_or_text(text: str) -> Any:
    """The JSON value that the data is; else the text itself (`[DONE]`)."""
    try:
        return loads(text)
    except DecodeError as error:
        if error.code == "json.syntax":
            return text
        raise


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a line of the stream is not UTF-8", code="json.not-utf8", hint="encode as UTF-8") from None


def _too_large(what: str, limit: int) -> DecodeError:
    return DecodeError(f"the {what} has more than {limit} bytes", code="stream.too-large", hint="raise the limit")
