"""The proxy between a client at standard input and output and one server: a process or HTTP. Spec: mcp-proxy.md."""

from __future__ import annotations

import asyncio
import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.errors import ConfigError
from pipeline.mcp.frames import (
    MAX_MESSAGE_BYTES,
    PARSE_ERROR,
    Batch,
    Frame,
    FrameError,
    Refused,
    error_body,
    frame_of,
    read,
)
from pipeline.mcp.link import Link, Side, note
from pipeline.run.offload import apart, arrived, arrived_bytes

if TYPE_CHECKING:
    from pipeline.mcp.http_server import HttpServer  # loads aiohttp, which process servers do not need

SEND_SECONDS: Final = 30.0  # a server that reads nothing for this long counts as stopped
GRACE_SECONDS: Final = 2.0
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class ServerDisconnected(Exception):
    """The server reads no more messages."""


class Process:
    """One server process. It inherits standard error."""

    def __init__(self, process: asyncio.subprocess.Process, message_bytes: int) -> None:
        self._process = process
        self._input: asyncio.StreamWriter = process.stdin  # type: ignore[assignment]  # both are pipes
        self._output: asyncio.StreamReader = process.stdout  # type: ignore[assignment]  # as above
        self._message_bytes = message_bytes

    @classmethod
    async def begin(cls, command: Sequence[str], environment: Mapping[str, str] | None, message_bytes: int) -> Process:
        """Start `command` in a process group of its own; ConfigError if there is no such command."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,
                preexec_fn=_stop_with_parent if _LIBC is not None else None,
            )
        except (OSError, ValueError):
            raise ConfigError("the server cannot be begun", code="mcp.no-command", hint="check the command") from None
        return cls(process, message_bytes)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._process.pid

    async def send(self, body: Mapping[str, Any]) -> None:
        """Write a message. ServerDisconnected if the server does not read it."""
        if self._input.is_closing():
            raise ServerDisconnected
        try:
            self._input.write(dumps(body) + b"\n")
            async with asyncio.timeout(SEND_SECONDS):
                await self._input.drain()
        except (OSError, TimeoutError):
            raise ServerDisconnected from None

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of its output until the end. FrameError if one is too long."""
        lines = Lines(self._message_bytes)
        while chunk := await self._output.read(_CHUNK):
            for line in lines.feed(chunk):
                yield line

    async def received(self) -> AsyncGenerator[FromServer, None]:
        """Its messages until it ends; lines that do not start like JSON are stray prints and skipped.

        Raises:
            FrameError: an invalid message: nothing after it is read.
        """
        async for line in self.lines():
            if line.lstrip()[:1] in (b"{", b"["):
                arrived(len(line), anew=True)
                yield await apart(read, line)
            else:
                note("mcp.stray-line", Side.SERVER)

    async def end(self) -> int:
        """Stop the process group and return the exit code: close standard input, then SIGTERM, then SIGKILL."""
        self._input.close()
        for number in (None, signal.SIGTERM):
            if number is not None:
                self._signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self._process.wait()
                break
        self._signal(signal.SIGKILL)  # also children that it left behind
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while await self._output.read(_CHUNK):
                    pass  # to its end: asyncio would keep a full pipe open
        return await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _stop_with_parent() -> None:
    """In the child process: ask Linux for a SIGTERM when the parent dies."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


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


TIMEOUT_CHECK_SECONDS: Final = 0.25  # how often timeouts of calls are checked
RETRY_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 10.0  # how long to wait for answers after the end of input, as when it is a file


@dataclass(frozen=True, slots=True)
class Cut:
    """The server will not answer this call."""

    minted: str


FromServer = Frame | Batch | Cut


class UrlServer:
    """A server over HTTP: merges the replies to requests and the server's own stream into one sequence."""

    def __init__(self, server: HttpServer, link: Link) -> None:
        self._server = server
        self._link = link
        self._received: asyncio.Queue[tuple[FromServer | FrameError, int]] = asyncio.Queue(maxsize=16)
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send a message; its failure is noted."""
        if self._link.version is not None and body.get("method") != "initialize":
            self._server.version = self._link.version
        post = self._post(dict(body))
        if "id" in body and "method" in body and body["method"] != "initialize":
            self._begin(post)
        else:  # later messages may depend on it
            await post
        if body.get("method") == "notifications/initialized":
            self._begin(self._listen())

    async def received(self) -> AsyncGenerator[FromServer, None]:
        """Its messages, as for a process."""
        while True:
            item, size = await self._received.get()
            arrived(size, anew=True)
            if isinstance(item, FrameError):
                raise item
            yield item

    async def end(self) -> None:
        """End the session."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._server.end()

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, body: dict[str, Any]) -> None:
        """Post a message and queue the reply."""
        try:
            async with aclosing(self._server.post(body)) as values:
                async for value in values:
                    await self._queue(value, body)
        except Refused as refused:
            note(refused.code, Side.SERVER, refused.decision_id)
        if "method" in body and "id" in body:
            await self._received.put((Cut(body["id"]), 0))  # ignored if the answer came

    async def _queue(self, value: Any, asked: Mapping[str, Any] | None = None) -> None:
        try:
            item: FromServer | FrameError = await apart(frame_of, owned(value, asked))
        except FrameError as error:
            item = error
        await self._received.put((item, arrived_bytes()))

    async def _listen(self) -> None:
        while True:
            try:
                async with aclosing(self._server.listen()) as values:
                    await anext(values)
                    async for value in values:
                        await self._queue(value)
            except Refused as refused:
                if refused.code == "mcp.no-stream":
                    return
                note(refused.code, Side.SERVER, refused.decision_id)
            await asyncio.sleep(RETRY_SECONDS)


def owned(value: Any, asked: Mapping[str, Any] | None) -> Any:
    """The value. An error without an id, for a request that the server could not parse, gets the id of `asked`."""
    if asked is None or not isinstance(value, dict) or "error" not in value or value.get("id") is not None:
        return value
    return {**value, "id": asked.get("id")}


class StdioProxy:
    """The proxy of one client and one server."""

    def __init__(self, link: Link, client: Pipes, server: Process | UrlServer) -> None:
        self._link = link
        self._client = client
        self._server = server
        self._judging = False  # an answer being evaluated or written no longer counts as waiting in the link

    async def run(self, stop: asyncio.Event) -> bool:
        """Run until the client ends, `stop` is set or the server ends. Returns whether it ended without a failure."""
        from_client = asyncio.ensure_future(self._from_client())
        from_server = asyncio.ensure_future(self._from_server())
        timeouts = asyncio.ensure_future(self._check_timeouts())
        stopping = asyncio.ensure_future(stop.wait())
        tasks = (from_client, from_server, timeouts, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if from_client.done() and not stop.is_set() and not from_server.done():
                await self._wait_for_answers(from_server, stopping)
            broken = from_server.done() and (from_server.exception() is not None or self._link.waiting > 0)
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            await self._server.end()
            with suppress(ClientDisconnected, TimeoutError):
                for body in self._link.ended():
                    async with asyncio.timeout(GRACE_SECONDS):
                        await self._client.write(dumps(body))
        for error in done:
            if isinstance(error, Exception) and not isinstance(
                error, ClientDisconnected | ServerDisconnected | FrameError
            ):
                raise error
        client_ended = from_client.done() and not from_client.cancelled() and from_client.exception() is None
        return stop.is_set() or (client_ended and not broken)

    async def _wait_for_answers(self, *ends: asyncio.Future[Any]) -> None:
        """Wait a while for the answers to open calls after the client ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while (self._link.waiting or self._judging) and not any(end.done() for end in ends):
                    await asyncio.wait(ends, timeout=0.02, return_when=asyncio.FIRST_COMPLETED)

    async def _from_client(self) -> None:
        lines = self._client.lines()
        while True:
            try:
                line = await anext(lines)
            except StopAsyncIteration:
                return
            except FrameError as error:
                await self._client.write(dumps(error_body(error.id, error)))
                raise
            arrived(len(line), anew=True)
            try:
                message = await apart(read, line)
            except FrameError as error:
                note(error.code, Side.CLIENT)
                await self._client.write(dumps(error_body(error.id, error)))
                continue
            step = await self._link.receive(Side.CLIENT, message)
            await self._send(step.onward, step.back)

    async def _from_server(self) -> None:
        async with aclosing(self._server.received()) as messages:
            async for message in messages:
                self._judging = True
                if isinstance(message, Cut):
                    await self._send((), tuple(self._link.cut(message.minted)))
                else:
                    step = await self._link.receive(Side.SERVER, message)
                    await self._send(step.back, step.onward)
                self._judging = False

    async def _check_timeouts(self) -> None:
        while True:
            await asyncio.sleep(TIMEOUT_CHECK_SECONDS)
            of_client, of_server = self._link.expired(Side.CLIENT), self._link.expired(Side.SERVER)
            await self._send((*of_client.onward, *of_server.back), (*of_client.back, *of_server.onward))

    async def _send(self, to_server: tuple[dict[str, Any], ...], to_client: tuple[dict[str, Any], ...]) -> None:
        """Send messages. If cancelled, finish within a grace period, because the link counts them as sent."""
        sending = asyncio.ensure_future(self._write(to_server, to_client))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait([sending], timeout=GRACE_SECONDS)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            raise

    async def _write(self, to_server: tuple[dict[str, Any], ...], to_client: tuple[dict[str, Any], ...]) -> None:
        for body in to_client:
            await self._client.write(await apart(dumps, body))
        for body in to_server:
            await self._server.send(body)
