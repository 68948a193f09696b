"""The HTTP client for an MCP server over streamable HTTP. Spec: mcp-proxy.md.

It yields the JSON values that it received and parsed strictly; it forwards no raw bytes. `Link` checks whether they
are messages, and whether they may be forwarded.
"""

from __future__ import annotations

import io
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiohttp
from yarl import URL

from cmf import adapters
from cmf.adapters.mcp.message import header_value
from cmf.adapters.wire.sse import SseReader
from cmf.errors import CmfError
from cmf.json.codec import MAX_BRACKETS, dumps, loads
from pipeline.mcp.frames import CLOSED, MAX_MESSAGE_BYTES, REFUSED, Refused, timed_out
from pipeline.media.fetch import bounded_body, plain_session
from pipeline.run.offload import apart, arrived

PREFIX: Final = "mcp-param-"
MAX_TOOLS: Final = 4096  # whose headers are known; the oldest are forgotten first
_KEY: Final = "x-mcp-header"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_TYPES: Final = frozenset({"boolean", "integer", "number", "string"})

_Path = tuple[str, ...]


class ParamHeaders:
    """By tool of one server, the arguments that go in headers too. They are learned from the server's lists."""

    def __init__(self) -> None:
        self._by_tool: OrderedDict[str, Mapping[str, _Path]] = OrderedDict()

    def learn(self, answer: Any) -> None:
        """Take over what an answer to `tools/list` says of the tools in it."""
        result = answer.get("result") if isinstance(answer, Mapping) else None
        tools = result.get("tools") if isinstance(result, Mapping) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
                self._by_tool[tool["name"]] = _headers_of(tool.get("inputSchema"))
                self._by_tool.move_to_end(tool["name"])
        while len(self._by_tool) > MAX_TOOLS:
            self._by_tool.popitem(last=False)

    def of(self, body: Mapping[str, Any]) -> dict[str, str] | None:
        """The headers for a message, by lower-case name; None for the call of a tool that was in no list."""
        if body.get("method") != "tools/call":
            return {}
        params = body.get("params")
        known = self._by_tool.get(str(params.get("name"))) if isinstance(params, Mapping) else None
        if known is None or not isinstance(params, Mapping):
            return None
        headers = {}
        for name, path in known.items():
            value = params.get("arguments")
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if isinstance(value, str | int | float):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                headers[name] = header_value(text)
        return headers


def _headers_of(schema: Any) -> dict[str, _Path]:
    """By header the path of its argument; none at all if a declaration is invalid, as the tool is then for clients."""
    headers: dict[str, _Path] = {}
    for path, declared, kind in _declared(schema, ()):
        name = f"{PREFIX}{declared}".lower()
        is_valid = isinstance(declared, str) and _NAME.fullmatch(declared) and isinstance(kind, str) and kind in _TYPES
        if not is_valid or name in headers:
            return {}
        headers[name] = path
    return headers


def _declared(schema: Any, path: _Path) -> Iterator[tuple[_Path, Any, Any]]:
    """Each declaration under `properties`, at any depth: the path of its argument, what it declares, and the type."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for key, inner in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(inner, Mapping):
            if _KEY in inner:
                yield (*path, key), inner[_KEY], inner.get("type")
            yield from _declared(inner, (*path, key))


_log: Final = logging.getLogger("pipeline.mcp")
SESSION: Final = "mcp-session-id"
VERSION: Final = "mcp-protocol-version"
JSON: Final = "application/json"
SSE: Final = "text/event-stream"
MAX_STREAM_BYTES: Final = 1 << 40  # a notification stream may stay open forever; each event has its own limit
_NO_STREAM: Final = (202, 204, 405)  # 405 by the protocol; some servers accept a GET, and send nothing
_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server, the headers to send to it, and its time and size limits."""

    url: str
    headers: Mapping[str, str]
    connect_seconds: float = 10.0
    silent_seconds: float = 300.0
    message_bytes: int = MAX_MESSAGE_BYTES


@asynccontextmanager
async def connections() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP session for MCP servers."""
    skipped = ("user-agent", "accept", "content-type", "accept-encoding")
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
    async with plain_session(skip_auto_headers=skipped, connector=connector) as session:
        yield session


class HttpServer:
    """One session with one server; `session` is the session id that the server assigned, if any.

    Args:
        params: what is known of arguments that go in headers; pass one to share it between sessions.
    """

    def __init__(self, http: aiohttp.ClientSession, address: Address, params: ParamHeaders | None = None) -> None:
        self._http = http
        self._address = address
        self._params = params or ParamHeaders()
        self._adapter = adapters.get("mcp")
        self.session: str | None = None
        self.version: str | None = None

    async def post(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Post a message; for a call, yield the values of the reply as they arrive.

        The reply to a notification or an answer is not read: it may be endless, and nobody waits for it.

        Raises:
            Refused: the server cannot be reached, its reply cannot be parsed, or it is an HTTP error without JSON-RPC.
        """
        call = self._adapter.to_http(self._adapter.from_wire_request(body)) if "method" in body else None
        own = {name.lower(): text for name, text in call.headers.items()} if call is not None else {}
        if "mcp-method" in own:  # revision 2026-07-28
            own |= self._params.of(body) or {}
        headers = {**own, **self._headers(), "content-type": JSON, "accept": f"{JSON}, {SSE}"}
        first, is_call = body.get("method") == "initialize", "method" in body and "id" in body
        if first:
            headers.pop(VERSION, None)
        async for value in self._request("POST", headers, await apart(dumps, body), first=first, reads=is_call):
            if body.get("method") == "tools/list":
                await apart(self._params.learn, value)
            yield value

    async def send(self, body: dict[str, Any]) -> None:
        """Post a message that has no answer, without reading the reply. Refused as for `post`."""
        async with aclosing(self.post(body)) as values:
            _ = [value async for value in values]

    async def listen(self) -> AsyncGenerator[Any, None]:
        """Listen to the server's own stream: yield None once it is open, then its values. Refused: mcp.no-stream."""
        async for value in self._request("GET", {**self._headers(), "accept": SSE}, None):
            yield value

    async def end(self) -> None:
        """End the session with a DELETE request; a server may ignore it."""
        if self.session is not None:
            with suppress(Refused):
                _ = [value async for value in self._request("DELETE", self._headers(), None, reads=False)]
            self.session = None

    def _headers(self) -> dict[str, str]:
        headers = {"user-agent": "cmf-pipeline", "accept-encoding": "identity", **self._address.headers}
        if self.session is not None:
            headers[SESSION] = self.session
        if self.version is not None:
            headers[VERSION] = self.version
        return headers

    async def _request(
        self, method: str, headers: Mapping[str, str], data: bytes | None, *, first: bool = False, reads: bool = True
    ) -> AsyncGenerator[Any, None]:
        where = self._address
        read_seconds = None if method == "GET" else where.silent_seconds
        total = None if reads else where.silent_seconds
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=where.connect_seconds, sock_read=read_seconds)
        try:
            body = None if data is None else io.BytesIO(data)  # sent in chunks: a large body does not block the loop
            async with self._http.request(
                method, URL(where.url, encoded=True), data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as reply:
                if first:
                    ids = reply.headers.getall(SESSION, [])
                    if len(ids) > 1 or any(not _SESSION_ID.fullmatch(id_) for id_ in ids):
                        raise _unreadable()
                    self.session = ids[0] if ids else None
                async for value in self._read(reply, method, reads=reads):
                    yield value
        except TimeoutError:
            raise timed_out() from None
        except (aiohttp.ClientError, OSError):
            raise _closed("mcp.unreachable", "The server cannot be reached, or broke off.") from None
        except CmfError:
            raise _unreadable() from None

    async def _read(self, reply: aiohttp.ClientResponse, method: str, *, reads: bool) -> AsyncGenerator[Any, None]:
        if any(coding.lower() != "identity" for coding in reply.headers.getall("content-encoding", [])):
            raise _unreadable()
        kind = reply.content_type
        if method == "GET" and reply.status in _NO_STREAM:
            raise Refused(REFUSED, "mcp.no-stream", "The server has no stream of its own.")
        if reply.status == 202 or (not reads and reply.status < 300):
            return
        if reply.status == 404 and self.session is not None:
            raise _closed("mcp.session-lost", "The server knows this session no more.")
        if kind == JSON and method == "POST" and reads and reply.status in (200, 400, 404):
            raw = await bounded_body(reply, self._address.message_bytes)
            if raw is None:
                raise _closed("mcp.too-large", "The server's message is too large.")
            arrived(len(raw))
            yield await apart(partial(loads, raw, max_bytes=self._address.message_bytes, max_brackets=MAX_BRACKETS))
        elif kind == SSE and reply.status == 200:
            if method == "GET":
                yield None
            async for value in self._streamed(reply, listens=method == "GET"):
                yield value
        else:
            _log.info('{"mcp":"mcp.http-status","status":%d}', reply.status)
            raise _unreadable()

    async def _streamed(self, reply: aiohttp.ClientResponse, *, listens: bool) -> AsyncGenerator[Any, None]:
        reader = SseReader(max_event_bytes=self._address.message_bytes, max_stream_bytes=MAX_STREAM_BYTES)
        size = 0
        async for chunk in reply.content.iter_any():
            size += len(chunk)
            arrived(size, anew=listens)
            for event in await apart(reader.feed, chunk):
                size = 0
                # One without data only sets the id to resume from.
                if event.get("data", "") != "" and event.get("event", "message") == "message":
                    yield event["data"]
        # An event without the blank line that ends it may be half of one: it is not read.


def _closed(code: str, message: str) -> Refused:
    return Refused(CLOSED, code, message, retryable=True)


def _unreadable() -> Refused:
    return _closed("mcp.unreadable", "What the server says cannot be read.")
