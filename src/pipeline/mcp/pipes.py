"""The client at standard input and output, one thread for each; and lines, the framing of MCP over stdio.

Threads, because making a descriptor non-blocking would affect every process that shares it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator
from typing import Final

from pipeline.mcp.frames import MAX_MESSAGE_BYTES, PARSE_ERROR, FrameError


class Lines:
    """An incremental line splitter. Lines come without their newline; blank lines are left out."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max = max_bytes
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in `chunk`.

        Raises:
            FrameError: mcp.too-large, for a line that is too long; the splitter cannot be used after it.
        """
        first, *others = chunk.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [b"".join(self._pending), *others[:-1]]
        self._pending, self._size = [], 0
        self._keep(others[-1])
        if max(map(len, lines)) > self._max:
            raise _too_large(self._max)
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """The last line, if the stream ended without a newline."""
        return b"".join(self._pending)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            raise _too_large(self._max)
        self._pending.append(piece)


def _too_large(limit: int) -> FrameError:
    return FrameError(PARSE_ERROR, "mcp.too-large", f"The message has more than {limit} bytes.")


_CHUNK: Final = 256 * 1024
_CHUNKS: Final = 4  # how many are read ahead of whoever takes the lines


class ClientDisconnected(Exception):
    """The client closed its end of the pipe."""


class Pipes:
    """A client at two file descriptors. The threads are daemons, so none that waits delays the exit."""

    def __init__(self, reads: int, writes: int, message_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_fd, self._write_fd = reads, writes
        self._message_bytes = message_bytes
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(_CHUNKS)
        self._to_write: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True, name=f"mcp-client-{work.__name__}").start()

    async def lines(self) -> AsyncIterator[bytes]:
        """The client's lines until the end of input, with or without a final newline. FrameError if one is too long."""
        lines = Lines(self._message_bytes)
        while chunk := await self._chunks.get():
            self._room.release()
            for line in lines.feed(chunk):
                yield line
        if (rest := lines.rest()).strip():
            yield rest

    async def write(self, line: bytes) -> None:
        """Write a whole line. ClientDisconnected if the client closed the pipe."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._to_write.put((line + b"\n", done))
        await done

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = os.read(self._read_fd, _CHUNK)
            except OSError:
                chunk = b""
            self._room.acquire()
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the event loop was closed

    def _write(self) -> None:
        while True:
            line, done = self._to_write.get()
            left = memoryview(line)
            error: Exception | None = None
            try:
                while left:
                    left = left[os.write(self._write_fd, left) :]
            except OSError:
                error = ClientDisconnected()
            try:
                self._loop.call_soon_threadsafe(_settle, done, error)
            except RuntimeError:
                return  # the event loop was closed


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
