"""The gateway as an ASGI application: paths, identities, limits, one answer per request. Spec: gateway.md."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from cmf.adapters import get
from cmf.json.codec import dumps
from pipeline.decisions.timestamps import new_ulid
from pipeline.gateway.auth.identity import Identities
from pipeline.gateway.config.settings import CHECK_ROUTE, Limits
from pipeline.gateway.config.settings import PATH as MCP_PATH
from pipeline.gateway.http import dialects, endpoints
from pipeline.gateway.http.client_response import Answer, Reply, json_answer
from pipeline.gateway.http.dialects import Dialect
from pipeline.gateway.http.endpoints import CHECKS, Operation
from pipeline.gateway.http.incoming import (
    CLIENT_CLOSED,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    SharedTimeout,
    bytes_of,
    check_query,
    check_uncut,
    headers_of,
    json_of,
    lifespan,
    model_in,
    path_of,
    query_of,
    session_of,
    size_of,
)
from pipeline.gateway.http.refusal import Refusal, ending, later
from pipeline.gateway.operations.admin import probed
from pipeline.gateway.operations.metrics import Metrics
from pipeline.gateway.operations.operations import Operations
from pipeline.gateway.proxy.proxy import IncomingRequest, RouteRuntime, exchange, read_request
from pipeline.gateway.upstreams.upstream import REQUEST, Upstream
from pipeline.run.offload import apart, arrived, close_threads

if TYPE_CHECKING:
    from pipeline.gateway.checks import Checks
    from pipeline.gateway.mcp import McpGateway
    from pipeline.gateway.operations.approval_webhook import ApprovalAnswers

_log: Final = logging.getLogger("pipeline.gateway")
ANSWER_PATH: Final = "/approvals/answer"
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_SHOWN_TO_CLIENTS: Final = ("status", "reason", "revisions")  # of readiness; the rest is for operators
_LOGGED: Final = ("route", "dialect", "status", "code", "decision", "upstream")


class Gateway:
    """Answers HTTP requests. `open` it within the running event loop, or by ASGI's lifespan.

    Args:
        probes: those of `PROBES` that are served on this port too.
        end_waits: ends what waits for people's answers; for a server to call once it stops [GW-88].
        answers: takes people's answers that a webhook signed; None for nobody's.
    """

    def __init__(
        self,
        runtimes: Sequence[RouteRuntime],
        identities: Identities,
        *,
        limits: Limits,
        metrics: Metrics,
        operations: Operations,
        environment: str | None = None,
        mcp: McpGateway | None = None,
        checks: Checks | None = None,
        probes: Collection[str] = PROBES,
        end_waits: Callable[[], None] = lambda: None,
        answers: ApprovalAnswers | None = None,
    ) -> None:
        self._runtimes = tuple(runtimes)
        self._identities = identities
        self._limits = limits
        self._body_timeout = SharedTimeout(limits.body_seconds)
        self._stall_timeout = SharedTimeout(limits.stalled_seconds)
        self._metrics = metrics
        self._operations = operations
        self._environment = environment
        self._mcp = mcp
        self._checks = checks
        self.is_open = False
        self._beating: asyncio.Task[None] | None = None
        self._probes = frozenset(probes)
        self.end_waits = end_waits
        self._answers_of_people = answers
        # What routes list by name; patterns are left out.
        names = {name for runtime in self._runtimes for name in runtime.route.models if not set(name) & set("*?[")}
        self._models = sorted(names)

    async def open(self) -> None:
        """Open every upstream's connections."""
        for upstream in self._upstreams():
            await upstream.open()
        if self._mcp is not None:
            await self._mcp.open()
        self._beating = asyncio.create_task(self._metrics.beat())
        self.is_open = True

    async def close(self) -> None:
        """Close every connection."""
        self.is_open = False
        if self._beating is not None:
            self._beating.cancel()
        if self._mcp is not None:
            await self._mcp.close()
        for upstream in self._upstreams():
            await upstream.close()
        close_threads()

    def _upstreams(self) -> Iterable[Upstream]:
        return {
            id(backend.upstream): backend.upstream for runtime in self._runtimes for backend in runtime.backends
        }.values()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the server's own startup and shutdown."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send, startup=self.open, shutdown=self.close)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = perf_counter()
        path = path_of(scope)
        if self._mcp is not None and path.startswith(MCP_PATH):
            await self._mcp(scope, path, receive, send)
            return
        if path in self._probes:
            await Reply(send, {}, timeout=self._stall_timeout).whole(await self._probe(path, scope))
            return
        ulid = new_ulid()
        request_id = f"req_{ulid}"
        REQUEST.set(request_id)
        reply = Reply(send, {"x-request-id": request_id, "request-id": request_id}, timeout=self._stall_timeout)
        self._metrics.in_flight += 1
        self._metrics.tally.begun(request_id)
        try:
            answer = await self._answer(scope, path, ulid, receive, reply)
            if answer is not None:
                await reply.whole(answer)
        except ClientDisconnected:
            reply.status = CLIENT_CLOSED
        except asyncio.CancelledError:  # the time for requests in progress is over [GW-153]
            refusal = ending()
            reply.status, reply.code = refusal.status, refusal.code
            if reply.begun:
                raise
            await reply.whole(_refused(refusal, endpoints.dialect_near(path), request_id))
        finally:
            self._metrics.in_flight -= 1
            seconds = perf_counter() - begin
            self._metrics.count(reply.route, reply.dialect, reply.status, reply.code, seconds)
            self._metrics.tally.over(reply.route, request_id, reply.status)
            if _log.isEnabledFor(logging.INFO):
                line = {name: getattr(reply, name) for name in _LOGGED}
                _log.info("%s", dumps({"request": request_id, **line, "ms": round(seconds * 1000, 3)}).decode())

    async def _answer(self, scope: Scope, path: str, ulid: str, receive: Receive, reply: Reply) -> Answer | None:
        dialect = endpoints.dialect_near(path)
        try:
            headers = headers_of(scope["headers"])
            query = query_of(scope.get("query_string", b""))
            if path == ANSWER_PATH and self._answers_of_people is not None and scope["method"] == "POST":
                body = await bytes_of(headers, receive, self._limits, self._body_timeout)
                reply.route, reply.dialect = "approvals", "webhook"
                return json_answer(200, await self._answers_of_people.answer(headers, body))  # [GW-216]
            endpoint = endpoints.endpoint_of(path, query, headers)
            operation = None if endpoint is None else endpoint.operation
            unserved = operation in CHECKS and (self._checks is None or operation not in self._checks.operations)
            if endpoint is None or unserved:
                raise endpoints.nothing_there(path)
            dialect = endpoint.dialect
            reply.dialect = dialect.name
            reply.route = CHECK_ROUTE if operation in CHECKS else "-"
            if scope["method"] != endpoint.method:
                allow = {"allow": endpoint.method}
                raise Refusal(405, "http.method", f"This path takes {endpoint.method}.", headers=allow)
            if self._metrics.in_flight > self._limits.concurrent:
                raise Refusal(503, "gateway.busy", "Too many requests are in progress: try again.", headers=later(1))
            peer = (scope.get("client") or (None,))[0]
            relayed = operation is Operation.ENVOY  # with the host that its own client named
            subject = await self._identities.subject(headers, peer, relayed=relayed)
            check_query(query, endpoint)
            if operation is Operation.MODELS:
                return json_answer(200, dialects.listed_models(dialect, self._models))
            if operation is Operation.MODEL and endpoint.model is not None:
                return self._described(dialect, endpoint.model)
            if operation is Operation.ENVOY:
                check_uncut(headers)
            raw = await bytes_of(headers, receive, self._limits, self._body_timeout, untyped=endpoint.untyped)
            if operation is Operation.MODEL:
                return self._described(dialect, model_in(json_of(raw, self._limits)))
            arrived(len(raw), anew=True)
            body, digest = await apart(_read, raw, self._limits)
            incoming = IncomingRequest(
                endpoint=endpoint,
                body=body,
                digest=digest,
                headers=headers,
                request_id=ulid,
                subject=subject,
                session=session_of(headers),
                environment=self._environment,
            )
            return await self._answer_incoming(incoming, receive, reply)
        except Refusal as refusal:
            return _refused(refusal, dialect, f"req_{ulid}")

    async def _answer_incoming(self, incoming: IncomingRequest, receive: Receive, reply: Reply) -> Answer | None:
        subject = None if incoming.subject is None else incoming.subject.id

        def size() -> int:
            return size_of(incoming.headers, incoming.body)

        if incoming.endpoint.operation in CHECKS and self._checks is not None:
            with self._checks.admission.entered(subject, size):
                return await self._checks.answer(incoming)
        request, dialect = await apart(read_request, incoming), incoming.endpoint.dialect
        fitting = (runtime for runtime in self._runtimes if runtime.route.fits(dialect.name, str(request.model)))
        runtime = next(fitting, None)
        if runtime is None:
            raise Refusal(404, "route.no-model", "No route serves this model to clients of this dialect.")
        reply.route = runtime.route.name
        with runtime.admission.entered(subject, size):
            if incoming.endpoint.operation is Operation.COUNT:
                tokens = get(dialect.name).estimate_input_tokens(request)
                return json_answer(200, dialects.counted(dialect, tokens), {"x-cmf-estimated": "true"})
            return await exchange(runtime, incoming, request, receive, reply)

    def _described(self, dialect: Dialect, name: str) -> Answer:
        """What is said of a model that some route would serve."""
        if not any(runtime.route.fits(None, name) for runtime in self._runtimes):
            raise Refusal(404, "route.no-model", "No route serves this model.")
        return json_answer(200, dialects.described_model(dialect, name))

    async def _probe(self, path: str, scope: Scope) -> Answer:
        try:
            self._identities.check_host(headers_of(scope["headers"]), or_address=True)
        except Refusal as refusal:
            return json_answer(refusal.status, {"status": refusal.code, "reason": refusal.message}, refusal.headers)
        if scope["method"] not in ("GET", "HEAD"):
            return json_answer(405, {"status": "use GET"}, {"allow": "GET"})
        return await probed(self._operations, path, shown=_SHOWN_TO_CLIENTS)


def _read(raw: bytes, limits: Limits) -> tuple[Any, str]:
    """The JSON value in a body, and the SHA-256 of the body, in hex. Refusal 400 where it is not strict JSON."""
    return json_of(raw, limits), hashlib.sha256(raw).hexdigest()


def _refused(refusal: Refusal, dialect: Dialect, request_id: str) -> Answer:
    headers = {"x-cmf-code": refusal.code, **refusal.headers}
    status = 200 if refusal.status in dialect.answers else refusal.status
    return json_answer(status, dialect.error(refusal, request_id), headers)
