"""Standard input and output as the client's end, each with a thread: neither is made non-blocking for who shares it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
from collections.abc import AsyncIterator
from typing import Final

from pipeline.mcp_proxy.lines import Lines

_CHUNK: Final = 256 * 1024


class ClientGone(Exception):
    """Nobody reads what is written."""


class Pipes:
    """A client at two file descriptors. The threads are daemons: one that waits for the client holds nobody up."""

    def __init__(self, reads: int, writes: int, message_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._reads, self._writes = reads, writes
        self._bytes = message_bytes
        self._heard: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
        self._to_write: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True, name=f"mcp-client-{work.__name__}").start()

    async def lines(self) -> AsyncIterator[bytes]:
        """The client's lines, until it ends; also a last one without its end. FrameError for one that is too long."""
        lines = Lines(self._bytes)
        while chunk := await self._heard.get():
            for line in lines.feed(chunk):
                yield line
        if (rest := lines.rest()).strip():
            yield rest

    async def write(self, line: bytes) -> None:
        """Write a line, whole; ClientGone where nobody reads it."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._to_write.put((line + b"\n", done))
        await done

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = os.read(self._reads, _CHUNK)
            except OSError:
                chunk = b""
            heard = self._heard.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(heard, self._loop).result()
            except (RuntimeError, concurrent.futures.CancelledError):
                heard.close()
                return  # the loop is over

    def _write(self) -> None:
        while True:
            line, done = self._to_write.get()
            left = memoryview(line)
            error: Exception | None = None
            try:
                while left:
                    left = left[os.write(self._writes, left) :]
            except OSError:
                error = ClientGone()
            try:
                self._loop.call_soon_threadsafe(_settle, done, error)
            except RuntimeError:
                return  # the loop is over


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


__all__ = ["ClientGone", "Pipes"]
