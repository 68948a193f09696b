"""Between a client at standard input and output and one server: a process, or one over HTTP. Spec: mcp-proxy.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from cmf.codec import dumps
from pipeline.mcp_proxy.frames import Batch, Frame, FrameError, frame_of, read
from pipeline.mcp_proxy.link import Link, Side, note
from pipeline.mcp_proxy.pipes import ClientGone, Pipes
from pipeline.mcp_proxy.process import GRACE_SECONDS, Process, ServerGone
from pipeline.mcp_proxy.refusals import Refused, of_frame

if TYPE_CHECKING:
    from pipeline.mcp_proxy.http_server import HttpServer  # HTTP is for who asks for it

LOOK_SECONDS: Final = 0.25  # how often it is looked for calls that were not answered
RETRY_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 10.0  # for answers to a client that has ended: to a file of messages, say


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer to this call will not come."""

    minted: str


Heard = Frame | Batch | Cut


class Server(Protocol):
    """What is behind the proxy."""

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send a message; ServerGone where nobody takes it."""
        ...

    def heard(self) -> AsyncGenerator[Heard, None]:
        """What it says, until it is gone. FrameError where what it says is no message: then it is not listened to."""
        ...

    async def end(self) -> None:
        """End it."""
        ...


class ProcessServer:
    """A process, as a server."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, body: Mapping[str, Any]) -> None:
        """See `Server`."""
        await self._process.send(body)

    async def heard(self) -> AsyncGenerator[Heard, None]:
        """See `Server`. A line that does not begin like a message is a print that went astray, and left out."""
        async for line in self._process.lines():
            if line.lstrip()[:1] in (b"{", b"["):
                yield read(line)
            else:
                note("mcp.stray-line", Side.SERVER)

    async def end(self) -> None:
        """See `Server`."""
        await self._process.end()


class UrlServer:
    """A server over HTTP, as one that speaks of its own accord: its streams are heard together."""

    def __init__(self, server: HttpServer, link: Link) -> None:
        self._server = server
        self._link = link
        self._heard: asyncio.Queue[Heard | FrameError] = asyncio.Queue(maxsize=16)
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, body: Mapping[str, Any]) -> None:
        """See `Server`."""
        if self._link.version is not None and body.get("method") != "initialize":
            self._server.version = self._link.version
        whole = self._whole(dict(body))
        if "id" in body and "method" in body and body["method"] != "initialize":
            self._begin(whole)
        else:  # what comes next may rest on it
            await whole
        if body.get("method") == "notifications/initialized":
            self._begin(self._listen())

    async def heard(self) -> AsyncGenerator[Heard, None]:
        """See `Server`."""
        while True:
            said = await self._heard.get()
            if isinstance(said, FrameError):
                raise said
            yield said

    async def end(self) -> None:
        """See `Server`."""
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

    async def _whole(self, body: dict[str, Any]) -> None:
        """Post a message, and hear what comes back."""
        try:
            async with aclosing(self._server.post(body)) as values:
                async for value in values:
                    await self._hear(value, body)
        except Refused as refused:
            note(refused.code, Side.SERVER)
        if "method" in body and "id" in body:
            await self._heard.put(Cut(body["id"]))  # nothing, where the answer came

    async def _hear(self, value: Any, asked: Mapping[str, Any] | None = None) -> None:
        try:
            await self._heard.put(frame_of(owned(value, asked)))
        except FrameError as error:
            await self._heard.put(error)

    async def _listen(self) -> None:
        while True:
            try:
                async with aclosing(self._server.listen()) as values:
                    await anext(values)
                    async for value in values:
                        await self._hear(value)
            except Refused as refused:
                if refused.code == "mcp.no-stream":
                    return
                note(refused.code, Side.SERVER)
            await asyncio.sleep(RETRY_SECONDS)


def owned(value: Any, asked: Mapping[str, Any] | None) -> Any:
    """The value; an error without an id, which says that the request could not be read, as that of `asked`."""
    if asked is None or not isinstance(value, dict) or "error" not in value or value.get("id") is not None:
        return value
    return {**value, "id": asked.get("id")}


class StdioProxy:
    """One client, one server."""

    def __init__(self, link: Link, client: Pipes, server: Server) -> None:
        self._link = link
        self._client = client
        self._server = server
        self._judging = False  # an answer that is judged, or on its way, is none that the link waits for

    async def run(self, stop: asyncio.Event) -> bool:
        """Until the client ends, or is told to, or the server is gone: whether it ended as it should."""
        hearing = asyncio.ensure_future(self._from_client())
        serving = asyncio.ensure_future(self._from_server())
        looking = asyncio.ensure_future(self._look())
        stopping = asyncio.ensure_future(stop.wait())
        tasks = (hearing, serving, looking, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done() and not stop.is_set() and not serving.done():
                await self._answers(serving, stopping)
            broken = serving.done() and (serving.exception() is not None or self._link.waiting > 0)
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            await self._server.end()
            with suppress(ClientGone, TimeoutError):
                for body in self._link.ended():
                    async with asyncio.timeout(GRACE_SECONDS):
                        await self._client.write(dumps(body))
        for error in done:
            if isinstance(error, Exception) and not isinstance(error, ClientGone | ServerGone | FrameError):
                raise error
        heard = hearing.done() and not hearing.cancelled() and hearing.exception() is None
        return stop.is_set() or (heard and not broken)

    async def _answers(self, *ends: asyncio.Future[Any]) -> None:
        """Give the server time to answer what it was asked before its client ended."""
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
                await self._client.write(dumps(of_frame(error)))
                raise
            try:
                heard = read(line)
            except FrameError as error:
                note(error.code, Side.CLIENT)
                await self._client.write(dumps(of_frame(error)))
                continue
            step = await self._link.hear(Side.CLIENT, heard)
            await self._pass(step.onward, step.back)

    async def _from_server(self) -> None:
        async with aclosing(self._server.heard()) as said:
            async for heard in said:
                self._judging = True
                if isinstance(heard, Cut):
                    await self._pass((), tuple(self._link.cut(heard.minted)))
                else:
                    step = await self._link.hear(Side.SERVER, heard)
                    await self._pass(step.back, step.onward)
                self._judging = False

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            of_client, of_server = self._link.expired(Side.CLIENT), self._link.expired(Side.SERVER)
            await self._pass((*of_client.onward, *of_server.back), (*of_client.back, *of_server.onward))

    async def _pass(self, to_server: tuple[dict[str, Any], ...], to_client: tuple[dict[str, Any], ...]) -> None:
        """Pass on what was judged: the link takes it for said. Where this is cancelled, it still has a while for it."""
        passing = asyncio.ensure_future(self._passed(to_server, to_client))
        try:
            await asyncio.shield(passing)
        except asyncio.CancelledError:
            await asyncio.wait([passing], timeout=GRACE_SECONDS)
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
            raise

    async def _passed(self, to_server: tuple[dict[str, Any], ...], to_client: tuple[dict[str, Any], ...]) -> None:
        for body in to_client:
            await self._client.write(dumps(body))
        for body in to_server:
            await self._server.send(body)


__all__ = ["Cut", "Heard", "ProcessServer", "Server", "StdioProxy", "UrlServer", "owned"]
