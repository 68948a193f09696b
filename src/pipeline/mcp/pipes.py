"""The client at standard input and output, one thread for each.

Threads, because making a descriptor non-blocking would affect every process that shares it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator
from typing import Final

from pipeline.mcp.lines import Lines

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
