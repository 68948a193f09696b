"""MCP servers behind the gateway: streamable HTTP on both sides, each message judged. Spec: mcp-proxy.md."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from cmf.adapters.mcp.message import NAMED, VERSION_KEY
from cmf.adapters.wire.sse import sse_bytes
from cmf.json.codec import dumps
from cmf.message.security import SubjectExtension
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.decisions.decision import Mode
from pipeline.decisions.timestamps import new_ulid
from pipeline.gateway.auth.identity import Identities
from pipeline.gateway.config.access import KEY_HEADERS
from pipeline.gateway.config.config_file import secret_of
from pipeline.gateway.config.settings import PATH, Limits, McpServer, Settings
from pipeline.gateway.http import incoming
from pipeline.gateway.http.client_response import Reply
from pipeline.gateway.http.incoming import LASTS, ClientDisconnected, Receive, Scope, Send, SharedTimeout
from pipeline.gateway.http.refusal import Refusal, ending, later
from pipeline.gateway.operations.metrics import Metrics
from pipeline.guard import Guard
from pipeline.mcp.frames import (
    CLOSED,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    Batch,
    Frame,
    FrameError,
    Kind,
    Refused,
    error_body,
    frame_of,
    timed_out,
)
from pipeline.mcp.http_server import JSON, PREFIX, SESSION, SSE, VERSION, Address, HttpServer, ParamHeaders, connections
from pipeline.mcp.link import ALONE, VERSIONS, Link, Memory, Side, Step, note
from pipeline.mcp.pins import Pins
from pipeline.mcp.stdio import owned
from pipeline.run.offload import apart


@dataclass(slots=True)
class McpSession:
    """One client's session: its link, and the session with the server behind it."""

    link: Link
    server: HttpServer
    context: Context
    used: float = 0.0
    listens: bool = False
    id: str = ""


class McpSessions:
    """The sessions with one server, by the id given to the client."""

    def __init__(self, clock: Callable[[], float], settings: McpServer) -> None:
        self._clock = clock
        self._settings = settings
        self._sessions: dict[str, McpSession] = {}
        self._memories: OrderedDict[SessionKey, Memory] = OrderedDict()

    def begin(self, session: McpSession) -> str:
        """Keep a new session, and return its id: 256 random bits."""
        session.id = secrets.token_urlsafe(32)
        session.used = self._clock()
        self._sessions[session.id] = session
        return session.id

    def find(self, id: str | None, subject: SubjectExtension | None) -> McpSession:
        """The session with this id, now with the client's current subject.

        Raises:
            Refusal: 400 without an id; 404 for an unknown one, or another subject's.
        """
        if id is None:
            raise Refusal(400, "mcp.no-session", "Send the session's id in Mcp-Session-Id.")
        session = self._sessions.get(id)
        now = self._clock()
        if session is None or session.used + self._settings.idle_seconds < now or not _is_of(session, subject):
            raise Refusal(404, "mcp.unknown-session", "This session is not known: initialize a new one.")
        session.used = now
        session.context = session.context.model_copy(update={"subject": subject})
        session.link.renew(session.context)
        return session

    def memory(self, context: Context) -> Memory:
        """What this client's later requests depend on, where each request stands alone."""
        key = session_key(context)
        memory = self._memories.setdefault(key, Memory())
        self._memories.move_to_end(key)
        while len(self._memories) > self._settings.sessions:
            self._memories.popitem(last=False)
        return memory

    def check_room(self, subject: SubjectExtension | None) -> None:
        """Refusal 429 if the subject has its maximum of sessions, 503 if the server has its own."""
        own = self._settings.subject_sessions
        if sum(_is_of(session, subject) for session in self._sessions.values()) >= own:
            message = f"You have {own} sessions here, the most for one subject: end one of them (DELETE)."
            raise Refusal(429, "mcp.too-many-sessions", message, headers=later())
        if len(self._sessions) >= self._settings.sessions:
            raise Refusal(503, "mcp.busy", "Too many sessions: try again.", headers=later())

    def forget(self, id: str) -> None:
        """Drop a session."""
        self._sessions.pop(id, None)

    def idle(self, *, all_of_them: bool = False) -> list[McpSession]:
        """Drop the sessions that were idle too long, or all, and return them."""
        end = self._clock() - self._settings.idle_seconds
        left = list(self._sessions.values())
        old = [session for session in left if all_of_them or (session.used < end and not session.listens)]
        for session in old:
            self.forget(session.id)
        return old


def _is_of(session: McpSession, subject: SubjectExtension | None) -> bool:
    return session_key(session.context).subject == session_key(Context(subject=subject)).subject


_UNSTORED: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class McpReply(Reply):
    """The client's side of one HTTP request."""

    def allow(self, origin: str) -> None:
        """Let a page of this origin read the answer (CORS)."""
        exposed = f"{SESSION}, x-request-id, x-cmf-code"
        self._headers |= {
            "access-control-allow-origin": origin, "access-control-expose-headers": exposed, "vary": "origin"
        }  # fmt: skip

    async def value(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send one JSON value, or no body for None. Raises ClientDisconnected, as every method here does."""
        data = b"" if body is None else await apart(dumps, body)
        own = {"content-length": str(len(data)), **(headers or {})} | ({} if body is None else {"content-type": JSON})
        await self._sent(self._head(status, {**_UNSTORED, **own}))
        await self.end(data)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, as a JSON-RPC error without an id."""
        refused = Refused(INVALID_REQUEST, refusal.code, refusal.message)
        await self.value(refusal.status, error_body(None, refused), refusal.headers)

    async def messages(self, messages: AsyncIterator[dict[str, Any]], *, waits: bool) -> None:
        """Send messages as they arrive: as a stream, or as one JSON value if there is only an answer.

        The last is the answer to a call. `waits`: whether to wait for the first one, to tell which of both it is.
        """
        first = await anext(messages, None) if waits else None
        if waits and (first is None or "method" not in first):
            await self.value(200, first if first is not None else error_body(None, _NOTHING))
            return
        data = b"" if first is None else await apart(sse_bytes, {"event": "message", "data": first})
        begin = self._head(200, {**_UNSTORED, "content-type": SSE})
        await self._sent(begin, {"type": "http.response.body", "body": data, "more_body": True})
        async for body in messages:
            data = await apart(sse_bytes, {"event": "message", "data": body})
            await self._sent({"type": "http.response.body", "body": data, "more_body": True})
        await self.end()


_NOTHING: Final = Refused(INVALID_REQUEST, "mcp.nothing", "Policy passes nothing of this on.")


_BASE64: Final = re.compile(r"=\?base64\?([A-Za-z0-9+/=]*)\?=")


def check_accepts(headers: Mapping[str, str], *kinds: str) -> None:
    """Refusal 406 unless `Accept` includes each of these media types."""
    accepted = {media_type.partition(";")[0].strip().lower() for media_type in headers.get("accept", "").split(",")}
    if not all({kind, f"{kind.partition('/')[0]}/*", "*/*"} & accepted for kind in kinds):
        raise Refusal(406, "http.accept", f"Accept {' and '.join(kinds)}.")


def check_routing(headers: Mapping[str, str], frame: Frame, version: Any, params: ParamHeaders) -> None:
    """Raise Refused if headers contradict the message: whoever routes by headers would be misled.

    Those of arguments are compared where the tool is known from a list.
    """
    if version != ALONE:
        data: dict[str, Any] = {"supported": list(VERSIONS), "requested": version if isinstance(version, str) else ""}
        raise Refused(UNSUPPORTED_VERSION, "mcp.version", "No message of this revision stands alone.", **data)
    if headers.get(VERSION) != version:
        raise _mismatch("The headers name another revision than the body, or none.")
    if SESSION in headers or frame.method == "initialize":
        raise Refused(INVALID_REQUEST, "mcp.session-begun", "This revision has no sessions.")
    named = frame.params.get(NAMED[frame.method]) if frame.method in NAMED else None
    if headers.get("mcp-method", frame.method) != frame.method or (
        named is not None and "mcp-name" in headers and _decoded(headers["mcp-name"]) != named
    ):
        raise _mismatch("The headers name another method or target than the body.")
    own = params.of(frame.body)
    claimed = {name: text for name, text in headers.items() if name.startswith(PREFIX)}
    if own is not None and any(_decoded(text) != _decoded(own.get(name, "")) for name, text in claimed.items()):
        raise _mismatch("A header names another value of an argument than the body.")


def _mismatch(message: str) -> Refused:
    return Refused(HEADER_MISMATCH, "mcp.header-mismatch", message)


def _decoded(text: str) -> str | None:
    match = _BASE64.fullmatch(text)
    try:
        return text if match is None else base64.b64decode(match[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


_log: Final = logging.getLogger("pipeline.gateway")
DIALECT: Final = "mcp"
END_SECONDS: Final = 2.0
_LASTING: Final = "subscriptions/listen"
_SENT: Final = ("accept", "content-type", SESSION, VERSION, "mcp-method", "mcp-name", incoming.SESSION_HEADER)
_PREFLIGHT: Final = {
    "access-control-allow-methods": "POST, GET, DELETE",
    "access-control-allow-headers": ", ".join((*KEY_HEADERS, *_SENT)),
    "access-control-max-age": "600",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One MCP server, and the guard for its traffic."""

    name: str
    settings: McpServer
    guard: Guard
    address: Address
    pins: Pins
    enforce: bool
    params: ParamHeaders = field(default_factory=ParamHeaders)


def endpoints_of(
    settings: Settings, guard_of: Callable[[McpServer], Guard], environment: Mapping[str, str] | None
) -> dict[str, Endpoint]:
    """The MCP servers in the settings, each with its guard, key and pins.

    Raises:
        ConfigError: a key is missing, or pins cannot be read.
    """
    endpoints = {}
    for name, server in settings.mcp.items():
        key = None if server.key is None else secret_of(server.key, environment, setting=f"mcp.{name}.key")
        address = Address(
            url=server.url,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            connect_seconds=server.connect_seconds,
            silent_seconds=server.answer_seconds,
            message_bytes=settings.limits.reply_bytes,
        )
        enforce = (server.mode or settings.mode) is Mode.ENFORCE
        endpoints[name] = Endpoint(name, server, guard_of(server), address, Pins(server.pins), enforce)
    return endpoints


@dataclass(frozen=True, slots=True)
class _Request:
    """One HTTP request, and who sent it."""

    scope: Scope
    endpoint: Endpoint
    sessions: McpSessions
    headers: Mapping[str, str]
    subject: SubjectExtension | None
    receive: Receive
    reply: McpReply


class McpGateway:
    """All MCP servers of a gateway."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        identities: Identities,
        *,
        limits: Limits,
        metrics: Metrics,
        environment: str | None = None,
    ) -> None:
        self._endpoints = dict(endpoints)
        self._identities = identities
        self._limits = limits
        self._body_timeout = SharedTimeout(limits.body_seconds)
        self._stall_timeout = SharedTimeout(limits.stalled_seconds)
        self._metrics = metrics
        self._environment = environment
        self._sessions = {name: McpSessions(time.monotonic, one.settings) for name, one in self._endpoints.items()}
        self._ending: set[asyncio.Future[None]] = set()
        self._opened = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open its connections, within the running event loop."""
        self._http = await self._opened.enter_async_context(connections())

    async def close(self) -> None:
        """End all sessions, and close all connections."""
        left = [session for sessions in self._sessions.values() for session in sessions.idle(all_of_them=True)]
        await asyncio.gather(*map(_ended, left), *self._ending)
        await self._opened.aclose()
        self._http = None

    async def __call__(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        """Answer one HTTP request at a path under `/mcp/`."""
        begin = time.perf_counter()
        request_id = f"req_{new_ulid()}"
        reply = McpReply(send, {"x-request-id": request_id}, timeout=self._stall_timeout)
        name, code, status = path.removeprefix(PATH), None, 0
        self._metrics.in_flight += 1
        try:
            await self._answer(scope, name, receive, reply)
            status = reply.status
        except Refusal as refusal:
            code, status = refusal.code, refusal.status
            with suppress(ClientDisconnected):
                await reply.refuse(refusal)
        except ClientDisconnected:
            status = incoming.CLIENT_CLOSED
        except asyncio.CancelledError:  # the time for requests in progress is over [GW-153]
            over = ending()
            code, status = over.code, over.status
            if reply.begun:
                raise
            with suppress(ClientDisconnected):
                await reply.refuse(over)
        finally:
            self._metrics.in_flight -= not scope.get(LASTS)
            seconds = time.perf_counter() - begin
            route = name if name in self._endpoints else "-"
            self._metrics.count(route, DIALECT, status, code, seconds)
            line = {"request": request_id, "route": route, "dialect": DIALECT, "status": status, "code": code}
            _log.info("%s", dumps({**line, "ms": round(seconds * 1000, 3)}).decode())

    async def _answer(self, scope: Scope, name: str, receive: Receive, reply: McpReply) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise Refusal(404, "route.unknown", "No MCP server is served at this path.")
        headers = incoming.headers_of(scope["headers"])
        if scope.get("query_string"):
            raise Refusal(400, "http.query", "MCP takes no query parameters.")
        origin = headers.get("origin")
        if origin is not None:
            if origin not in endpoint.settings.origins:
                raise Refusal(403, "mcp.origin", "Pages of this origin are not allowed (`origins`).")
            reply.allow(origin)
            if scope["method"] == "OPTIONS":  # a preflight, which has no key yet
                await reply.value(204, None, _PREFLIGHT)
                return
        if self._metrics.in_flight > self._limits.concurrent:
            raise Refusal(503, "gateway.busy", "Too many requests are in progress: try again.", headers=later(1))
        peer = (scope.get("client") or (None,))[0]
        subject = await self._identities.subject(headers, peer, pages=endpoint.settings.origins)
        if "last-event-id" in headers:
            raise Refusal(400, "mcp.no-resume", "Streams cannot be resumed: send the request again.")
        request = _Request(scope, endpoint, self._sessions[name], headers, subject, receive, reply)
        for session in request.sessions.idle():
            self._in_background(_ended(session))
        work = {"POST": self._post, "GET": self._listen, "DELETE": self._delete}.get(scope["method"])
        if work is None:
            raise Refusal(405, "http.method", "MCP takes POST, GET and DELETE.", headers={"allow": "POST, GET, DELETE"})
        await work(request)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work`, for which no request waits; the gateway's end does."""
        ending = asyncio.ensure_future(work)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _lasts(self, request: _Request) -> None:
        """Stop counting a request that only listens: it has no answer in progress, and must delay no shutdown."""
        request.scope[LASTS] = True
        self._metrics.in_flight -= 1

    # -- POST ----------------------------------------------------------------------------------------------------------

    async def _post(self, request: _Request) -> None:
        check_accepts(request.headers, JSON, SSE)
        body = await incoming.body_of(request.headers, request.receive, self._limits, self._body_timeout)
        try:
            received = await apart(frame_of, body)
        except FrameError as error:
            await request.reply.value(400, error_body(error.id, error), {"x-cmf-code": error.code})
            return
        try:
            session = self._session(request, received)
        except Refused as error:
            call_id = received.id if isinstance(received, Frame) else None
            await request.reply.value(400, error_body(call_id, error), {"x-cmf-code": error.code})
            return
        step = await session.link.receive(Side.CLIENT, received)
        calls = [call for call in step.onward if "id" in call and "method" in call]
        if any(call["method"] == _LASTING for call in calls):
            self._lasts(request)
        if not calls and not step.back:
            await self._pass_on(request, session, step)
        elif not calls and len(step.back) == 1 and not step.onward:
            await request.reply.value(200, step.back[0])
        else:
            asked: list[str] = []
            exchanged = _exchanged(request.endpoint, session, step, asked)
            try:
                if isinstance(received, Frame) and received.method == "initialize":
                    await self._initialize(request, session, exchanged)
                else:
                    await _streamed(request, exchanged, waits=len(calls) + len(step.back) == 1)
            except ClientDisconnected:  # it will not answer what the server asked meanwhile
                message = "The client left before it answered."
                refused = Refused(CLOSED, "mcp.client-disconnected", message, retryable=False)
                answers = [
                    answer for call_id in asked for answer in session.link.cut(call_id, refused, side=Side.SERVER)
                ]
                self._in_background(_ended(session, answers))
                raise
            finally:  # a client that left waits for no call, sent or not
                for call in calls:
                    list(session.link.cut(str(call["id"])))

    async def _pass_on(self, request: _Request, session: McpSession, step: Step) -> None:
        """Pass on what needs no answer, and acknowledge it; refuse what is not passed on, or not taken."""
        if not step.onward:
            raise Refusal(400, "mcp.not-passed", "Policy does not pass this message on.")
        try:
            for body in step.onward:
                await session.server.send(body)
        except Refused as refused:
            raise Refusal(502, refused.code, refused.message) from None
        await request.reply.value(202, None)

    async def _initialize(
        self, request: _Request, session: McpSession, messages: AsyncIterator[dict[str, Any]]
    ) -> None:
        """Send the answer to `initialize` and, if it succeeded, the new session's id."""
        bodies = [body async for body in messages]
        answer = next((body for body in bodies if "method" not in body), None)
        if answer is None or "result" not in answer:
            await request.reply.value(200, answer)
            return
        session.server.version = session.link.version
        await request.reply.value(200, answer, {SESSION: request.sessions.begin(session)})

    def _session(self, request: _Request, received: Frame | Batch) -> McpSession:
        """The session of a message: the one it names, a new one, or, without sessions, one for itself."""
        headers = request.headers
        meta = received.params.get("_meta") if isinstance(received, Frame) else None
        if isinstance(received, Frame) and isinstance(meta, dict) and VERSION_KEY in meta:
            check_routing(headers, received, meta[VERSION_KEY], request.endpoint.params)
            context = self._context(request, None)
            session = self._new(request, context, request.sessions.memory(context))
            session.link.version = meta[VERSION_KEY]
            return session
        if isinstance(received, Frame) and received.kind is Kind.CALL and received.method == "initialize":
            if SESSION in headers:
                raise Refusal(400, "mcp.session-begun", "This session is initialized already: end it first.")
            request.sessions.check_room(request.subject)
            return self._new(request, self._context(request, f"mcp_{new_ulid()}"))
        return self._found(request)

    def _found(self, request: _Request) -> McpSession:
        session = request.sessions.find(request.headers.get(SESSION), request.subject)
        version, named = request.headers.get(VERSION), incoming.session_of(request.headers)
        if version not in (None, session.link.version):
            raise Refusal(400, "mcp.version", "This is not the protocol version that the session negotiated.")
        if named not in (None, session.context.session):
            raise Refusal(400, "mcp.session-named", "The connection belongs to another session: name that, or none.")
        return session

    def _context(self, request: _Request, session: str | None) -> Context:
        named = incoming.session_of(request.headers) or session
        return Context(subject=request.subject, session=named, environment=self._environment)

    def _new(self, request: _Request, context: Context, memory: Memory | None = None) -> McpSession:
        if self._http is None:
            raise Refusal(503, "upstream.not-open", "The gateway is not open.")
        endpoint = request.endpoint
        link = Link(
            endpoint.guard,
            context,
            server=endpoint.name,
            pins=endpoint.pins,
            clock=time.monotonic,
            answer_seconds=endpoint.settings.answer_seconds,
            enforce=endpoint.enforce,
            memory=memory,
        )
        return McpSession(link=link, server=HttpServer(self._http, endpoint.address, endpoint.params), context=context)

    # -- GET and DELETE ------------------------------------------------------------------------------------------------

    async def _listen(self, request: _Request) -> None:
        check_accepts(request.headers, SSE)
        session = self._found(request)
        if session.listens:
            raise Refusal(409, "mcp.listening", "This session has a listening stream already.")
        session.listens = True
        self._lasts(request)
        try:
            async with aclosing(session.server.listen()) as values:
                await anext(values)
                messages = (body async for value in values async for body in _passed(session, value))
                await _streamed(request, messages, waits=False)
        except Refused as refused:
            if refused.code == "mcp.no-stream":
                raise Refusal(405, refused.code, refused.message, headers={"allow": "POST, DELETE"}) from None
            if not request.reply.status:
                raise Refusal(502, refused.code, refused.message) from None
        finally:
            session.listens = False

    async def _delete(self, request: _Request) -> None:
        session = self._found(request)
        request.sessions.forget(session.id)
        await _ended(session)
        await request.reply.value(204, None)


# -- one exchange ------------------------------------------------------------------------------------------------------


async def _exchanged(
    endpoint: Endpoint, session: McpSession, step: Step, asked: list[str]
) -> AsyncGenerator[dict[str, Any], None]:
    """What the client gets: refusals, then for each message passed on what the server sends and its answer.

    The ids of calls that the server makes meanwhile are put into `asked`.
    """
    for body in step.back:
        yield body
    for body in step.onward:
        if "method" not in body or "id" not in body:
            await _deliver(session.server, body)
            continue
        minted, why = str(body["id"]), None
        lasts = body["method"] == _LASTING
        try:
            async with aclosing(session.server.post(body)) as values:
                while session.link.is_open(minted):
                    async with asyncio.timeout(None if lasts else endpoint.settings.answer_seconds):
                        value = await anext(values)
                    async for body_to_client in _passed(session, owned(value, body)):
                        if "method" in body_to_client and "id" in body_to_client:
                            asked.append(str(body_to_client["id"]))
                        yield body_to_client
        except StopAsyncIteration:
            pass  # the stream ended before the answer
        except TimeoutError:
            why = timed_out()
        except Refused as refused:
            why = refused
        for body_to_client in session.link.cut(minted, why):
            yield body_to_client


async def _passed(session: McpSession, value: Any) -> AsyncIterator[dict[str, Any]]:
    """What goes to the client of a server's message. Refused if it is not a valid message."""
    try:
        received = await apart(frame_of, value)
    except FrameError as error:
        raise Refused(CLOSED, error.code, "The server's message cannot be read.", retryable=True) from None
    late = session.link.expired(Side.SERVER)
    step = await session.link.receive(Side.SERVER, received)
    for body in (*late.back, *step.back):
        await _deliver(session.server, body)
    for body in (*late.onward, *step.onward):
        yield body


async def _deliver(server: HttpServer, body: dict[str, Any]) -> None:
    """Post what needs no answer; a failure is only logged, as nobody waits."""
    try:
        await server.send(body)
    except Refused as refused:
        note(refused.code, Side.SERVER, refused.decision_id)


async def _streamed(request: _Request, messages: AsyncGenerator[dict[str, Any], None], *, waits: bool) -> None:
    async with aclosing(messages):
        await incoming.until_disconnect(request.receive, request.reply.messages(messages, waits=waits))


async def _ended(session: McpSession, bodies: Sequence[dict[str, Any]] | None = None) -> None:
    """Within bounded time, post `bodies` to the session's server; without any, end the session there."""
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            if bodies is None:
                await session.server.end()
            for body in bodies or ():
                await _deliver(session.server, body)
