"""An upstream over HTTP, in its own dialect. None of its bytes are passed on [E1]. Spec: docs/spec/gateway.md."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from cmf import adapters
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.sse import NdjsonReader, SseReader
from cmf.adapters.wire.stream import CONTRADICTION, is_whole
from cmf.errors import CmfError
from cmf.json.codec import MAX_BRACKETS, dumps, loads
from cmf.message.model_ids import FORMAT_PROVIDERS
from cmf.message.request import Request, Response
from pipeline.gateway.config.settings import Upstream as UpstreamSettings
from pipeline.gateway.http.dialects import NDJSON, SSE
from pipeline.gateway.upstreams.upstream import (
    CONTRADICTORY,
    CONTRADICTS,
    REQUEST,
    StreamObserver,
    UpstreamError,
    client_status,
    error_of,
    failure_of,
)
from pipeline.media.fetch import bounded_body, plain_session
from pipeline.run.emit import with_wire_model
from pipeline.run.offload import LARGE_BYTES, apart, arrived

_log: Final = logging.getLogger("pipeline.gateway")
MAX_ERROR_BYTES: Final = 256 * 1024
PIECE_BYTES: Final = 16 * 1024  # of a stream: what is read in one go
_MAX_WAIT: Final = 86_400
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_USAGE_ON_REQUEST: Final = frozenset({"openai_chat", "openrouter"})  # these send usage in a stream only on request
_DROPPED: Final = {"gemini": "models/"}  # a prefix of model names that these ignore
_KEY_HEADERS: Final = {"anthropic_messages": "x-api-key", "gemini": "x-goog-api-key"}

_KEY_HINTS: Final = {
    401: ": it does not accept our key",
    402: ": the account of our key has to be paid",
    403: ": our key may not do that",
}


class _OneReplyEach(aiohttp.TCPConnector):
    """A pool that never reuses a connection on which something arrived unasked [GW-41]."""

    async def _get(self, *args: Any) -> Any:  # private in aiohttp; a test fails if it moves
        connection: Any = await super()._get(*args)
        while connection is not None and connection.protocol.should_close:
            connection.close()
            connection = await super()._get(*args)
        return connection


class _AllArrived(Exception):
    """A stream is over: what its decoder would make of the whole is made here, once, and off the event loop."""


class HttpUpstream:
    """One provider."""

    def __init__(self, name: str, settings: UpstreamSettings, key: str | None, *, reply_bytes: int) -> None:
        self._name = name
        self.target = str(settings.dialect)
        self.provider = FORMAT_PROVIDERS[self.target]
        self._adapter = adapters.get(self.target)
        base = urlsplit(str(settings.base_url))
        self._base = f"{base.scheme}://{base.netloc}{base.path}"
        self._settings = settings
        self._reply_bytes = reply_bytes
        self._headers = {"user-agent": "cmf-pipeline", "accept-encoding": "identity"}
        if key is not None:
            header = _KEY_HEADERS.get(self.target, "authorization")
            self._headers[header] = key if header != "authorization" else f"Bearer {key}"
        self._session: aiohttp.ClientSession | None = None

    def knows(self, model: str, /) -> bool:
        """See `Upstream`."""
        return self.target not in _DROPPED or not model.startswith(_DROPPED[self.target])

    async def open(self) -> None:
        """Open its pool, within the running event loop: no proxy from the environment, no cookies, no decompression."""
        timeout = aiohttp.ClientTimeout(
            total=self._settings.reply_seconds,
            sock_connect=self._settings.connect_seconds,
            sock_read=self._settings.silent_seconds,
        )
        skipped, connector = (
            ("user-agent", "accept", "content-type", "accept-encoding"),
            _OneReplyEach(limit=0, ttl_dns_cache=60),
        )
        self._session = plain_session(timeout=timeout, skip_auto_headers=skipped, connector=connector)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def ask(self, request: Request, body: Any, live: StreamObserver | None, /) -> Response:
        """The whole reply. A stream is folded and read by the same decoder, while `live` follows it."""
        if self._session is None:
            raise UpstreamError(503, "upstream.not-open", "The gateway is not open yet.")
        call = self._adapter.to_http(with_wire_model(request))
        if request.stream and self.target in _USAGE_ON_REQUEST:
            body = {**body, "stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}
        own = {"content-type": "application/json", "accept": f"application/json, {SSE}, {NDJSON}"}
        headers = {**call.headers, **self._headers, **own}
        try:
            async with self._session.request(
                call.method, URL(self._base + call.path, encoded=True), data=io.BytesIO(dumps(body)), headers=headers,
                allow_redirects=False,
            ) as reply:  # fmt: skip
                return await self._read(reply, request, live)
        except UpstreamError as error:
            self._note(error.code, error.why)
            raise
        except TimeoutError as error:
            self._note("upstream.timeout", self._why(error))
            raise UpstreamError(504, "upstream.timeout", "The upstream did not reply in time.") from None
        except (aiohttp.ClientError, OSError) as error:
            self._note("upstream.unreachable", self._why(error))
            message = "The upstream cannot be reached, or broke off its reply."
            raise UpstreamError(502, "upstream.unreachable", message) from None

    def _why(self, error: Exception) -> str:
        """The type of the error, and the reason in words where that is known."""
        settings = self._settings
        match error:
            case aiohttp.ConnectionTimeoutError():
                why = f"no connection within {settings.connect_seconds:g} seconds (connect_seconds)"
            case aiohttp.SocketTimeoutError():
                why = f"not a byte for {settings.silent_seconds:g} seconds (silent_seconds)"
            case TimeoutError():
                why = f"no whole reply within {settings.reply_seconds:g} seconds (reply_seconds)"
            case aiohttp.ClientPayloadError():
                why = "its reply broke off"
            case aiohttp.ServerDisconnectedError():
                why = "it closed the connection without a reply"
            case aiohttp.ClientResponseError():
                why = "what it sent is not HTTP"
            case _:
                cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
                why = "" if cause is None else failure_of(cause, settings.connect_seconds).message
        return f"{type(error).__name__}: {why}" if why else type(error).__name__

    def _note(self, event: str, why: str) -> None:
        """Log for the operator what the client does not see; without anything that the upstream sent."""
        line = {"event": event, "request": REQUEST.get(), "upstream": self._name, "address": self._base, "why": why}
        _log.warning("%s", dumps(line).decode())

    async def _read(self, reply: aiohttp.ClientResponse, request: Request, live: StreamObserver | None) -> Response:
        if any(coding.lower() != "identity" for coding in reply.headers.getall("content-encoding", [])):
            raise _unreadable("it is compressed")
        if reply.status != 200:
            return await self._error(reply)
        kind = reply.content_type
        try:
            if kind == SSE:
                return await self._stream(reply, SseReader(max_stream_bytes=self._reply_bytes), request, live)
            if kind == NDJSON:
                return await self._stream(reply, NdjsonReader(max_stream_bytes=self._reply_bytes), request, live)
            if kind == "application/json":
                body = await _body(reply, self._reply_bytes)
                arrived(len(body))
                wire = await apart(partial(loads, body, max_brackets=MAX_BRACKETS))
                return self._with_status(await apart(self._adapter.from_wire_response, wire, request))
        except CmfError as error:
            if error.code == CONTRADICTION:
                raise UpstreamError(502, CONTRADICTORY, CONTRADICTS, why=str(error)) from None
            raise _unreadable(error.code) from None
        raise _unreadable("its media type is not one of the dialect")

    async def _stream(
        self,
        reply: aiohttp.ClientResponse,
        reader: SseReader | NdjsonReader,
        request: Request,
        live: StreamObserver | None,
    ) -> Response:
        events: list[WireEvent] = []
        size = 0

        def so_far() -> Response:
            return self._adapter.from_wire_response(self._adapter.fold_events(events), request)

        async def arriving() -> AsyncGenerator[WireEvent, None]:
            nonlocal size
            pending = 0
            async for piece in _pieces(reply):
                size, pending = size + len(piece), pending + len(piece)
                arrived(size)
                for event in _with_data(
                    await apart(reader.feed, piece) if pending > LARGE_BYTES else reader.feed(piece)
                ):
                    pending = 0
                    events.append(event)
                    yield event
                if live is not None:
                    await live.pause(so_far)
            for event in _with_data(reader.close()):
                events.append(event)
                yield event
            if live is not None:
                raise _AllArrived

        if live is None:
            async for _ in arriving():
                pass
        else:
            with suppress(_AllArrived):
                async with aclosing(arriving()) as wire:
                    async for event in self._adapter.stream_response(wire, request):
                        live.observe(event)
        response = await apart(so_far)
        if response.error is None and not is_whole(response):
            message = "The upstream's stream ended before its answer was complete."
            raise UpstreamError(502, "upstream.cut", message, why="its stream ended before the answer did")
        return self._with_status(response)

    def _with_status(self, response: Response) -> Response:
        """The response; an error that came with status 200 gets the status it names, or counts as the upstream's."""
        if response.error is None:
            return response
        status = response.error.status or 500
        self._note("upstream.error", f"status 200 with an error of {status}")
        return error_of(status, response.error)

    async def _error(self, reply: aiohttp.ClientResponse) -> Response:
        """The upstream's error. Redirects are not followed: another address is another upstream."""
        if reply.status < 400:
            raise _unreadable(f"status {reply.status}; redirects are not followed")
        if client_status(reply.status) in (404, 429, *range(500, 600)):  # another target may be asked in its place
            self._note("upstream.error", f"status {reply.status}{_KEY_HINTS.get(reply.status, '')}")
        try:
            error = self._adapter.from_wire_response(loads(await _body(reply, MAX_ERROR_BYTES))).error
        except (CmfError, UpstreamError):
            error = None
        return error_of(reply.status, error, _wait(reply.headers.get("retry-after", "")))


async def _pieces(reply: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """What arrives, in pieces after each of which other clients have their turn: a burst may hold a thousand events."""
    async for chunk in reply.content.iter_any():
        for at in range(0, len(chunk), PIECE_BYTES):
            if at:
                await asyncio.sleep(0)
            yield chunk[at : at + PIECE_BYTES]


def _with_data(events: Iterable[WireEvent]) -> Iterable[WireEvent]:
    return (event for event in events if "data" in event)


def _wait(header: str) -> int | None:
    """The seconds in a Retry-After header, whole and a day at most; None for a date or anything else."""
    return min(int(header), _MAX_WAIT) if _SECONDS.fullmatch(header) else None


async def _body(reply: aiohttp.ClientResponse, limit: int) -> bytes:
    body = await bounded_body(reply, limit)
    if body is None:
        raise UpstreamError(502, "upstream.too-large", "The upstream's reply is too large.")
    return body


def _unreadable(why: str) -> UpstreamError:
    return UpstreamError(502, "upstream.unreadable", "The upstream's reply cannot be read.", why=why)
