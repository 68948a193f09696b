"""The gateway as an ASGI application: paths, identities, limits, one answer per request. Spec: gateway.md."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from cmf.adapters import get
from cmf.json.codec import dumps
from pipeline.decisions.ids import new_ulid
from pipeline.gateway.auth.identity import Identities
from pipeline.gateway.config.settings import CHECK_ROUTE, Limits
from pipeline.gateway.config.settings import PATH as MCP_PATH
from pipeline.gateway.http import dialects, endpoints
from pipeline.gateway.http.client_response import Answer, Reply, json_answer
from pipeline.gateway.http.dialects import Dialect
from pipeline.gateway.http.endpoints import CHECKS, Endpoint, Operation
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
    model_in,
    path_of,
    query_of,
    session_of,
    size_of,
)
from pipeline.gateway.http.refusal import Refusal, ending, later
from pipeline.gateway.operations import metrics as measured
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


@dataclass(slots=True)
class _AccessLine:
    """What the access log and the counters say of a request."""

    route: str = "-"
    dialect: str = "-"
    status: int = 0
    code: str | None = None
    decision: str = "-"
    upstream: str = "-"


class Gateway:
    """Answers HTTP requests. `open` it within the running event loop, or by ASGI's lifespan.

    Args:
        runtimes: the routes; the first that fits a request serves it.
        identities: tells who sent a request.
        limits: bounds on what one client can cost.
        metrics: counts requests and decisions.
        operations: readiness and metrics, for the probes.
        environment: the name of the environment, as policy sees it.
        mcp: the MCP servers under `/mcp/`.
        checks: answers `/v1/check`, Envoy and LiteLLM.
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
        self._open = False
        self._beating: asyncio.Task[None] | None = None
        self._probes = frozenset(probes)
        self.end_waits = end_waits
        self._answers_of_people = answers

    @property
    def is_open(self) -> bool:
        """Whether it is open for requests."""
        return self._open

    async def open(self) -> None:
        """Open every upstream's connections."""
        for upstream in self._upstreams():
            await upstream.open()
        if self._mcp is not None:
            await self._mcp.open()
        self._beating = asyncio.create_task(self._metrics.beat())
        self._open = True

    async def close(self) -> None:
        """Close every connection."""
        self._open = False
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
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                await self.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = perf_counter()
        path = path_of(scope)
        if self._mcp is not None and path.startswith(MCP_PATH):
            await self._mcp(scope, path, receive, send)
            return
        if path in self._probes:
            probed = Reply(send, {}, timeout=self._stall_timeout)
            await probed.whole(await self._probe(path, scope))
            return
        ulid = new_ulid()
        request_id = f"req_{ulid}"
        REQUEST.set(request_id)
        ids = {"x-request-id": request_id, "request-id": request_id}
        reply = Reply(send, ids, timeout=self._stall_timeout)
        line = _AccessLine()
        self._metrics.in_flight += 1
        self._metrics.tally.begun(request_id)
        try:
            answer = await self._answer(scope, path, ulid, receive, reply, line)
            if answer is not None:
                await reply.whole(answer)
        except ClientDisconnected:
            line.status = CLIENT_CLOSED
        except asyncio.CancelledError:  # the time for requests in progress is over [GW-153]
            refusal = ending()
            line.status, line.code = refusal.status, refusal.code
            if reply.begun:
                raise
            await reply.whole(_refused(refusal, endpoints.dialect_near(path), request_id))
        finally:
            self._metrics.in_flight -= 1
            line.upstream = reply.upstream
            seconds = perf_counter() - begin
            self._metrics.count(line.route, line.dialect, line.status, line.code, seconds)
            self._metrics.tally.over(line.route, request_id, line.status)
            if _log.isEnabledFor(logging.INFO):
                _log.info("%s", dumps(_line(request_id, line, seconds)).decode())

    async def _answer(
        self, scope: Scope, path: str, ulid: str, receive: Receive, reply: Reply, line: _AccessLine
    ) -> Answer | None:
        dialect = endpoints.dialect_near(path)
        try:
            headers = headers_of(scope["headers"])
            query = query_of(scope.get("query_string", b""))
            if path == ANSWER_PATH and self._answers_of_people is not None and scope["method"] == "POST":
                return await self._answered(self._answers_of_people, headers, receive, line)
            endpoint = endpoints.endpoint_of(path, query, headers)
            if endpoint is None or (endpoint.operation in CHECKS and not self._answers(endpoint.operation)):
                raise endpoints.nothing_there(path)
            dialect = endpoint.dialect
            line.dialect = dialect.name
            line.route = CHECK_ROUTE if endpoint.operation in CHECKS else "-"
            if scope["method"] != endpoint.method:
                allow = {"allow": endpoint.method}
                raise Refusal(405, "http.method", f"This path takes {endpoint.method}.", headers=allow)
            if self._metrics.in_flight > self._limits.concurrent:
                raise Refusal(503, "gateway.busy", "Too many requests are in progress: try again.", headers=later(1))
            peer = (scope.get("client") or (None,))[0]
            relayed = endpoint.operation is Operation.ENVOY  # with the host that its own client named
            subject = await self._identities.subject(headers, peer, relayed=relayed)
            check_query(query, endpoint)
            if endpoint.operation in (Operation.MODELS, Operation.MODEL):
                answer: Answer | None = await self._about_models(endpoint, headers, receive)
            else:
                if endpoint.operation is Operation.ENVOY:
                    check_uncut(headers)
                raw = await self._body(endpoint, headers, receive)
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
                answer = await self._answer_incoming(incoming, receive, reply, line)
        except Refusal as refusal:
            answer = _refused(refusal, dialect, f"req_{ulid}")
        if answer is None:
            line.status, line.code, line.decision = 200, reply.code, reply.decision or "-"
            return None
        line.status = answer.status
        line.code = answer.headers.get("x-cmf-code")
        line.decision = answer.headers.get("x-cmf-decision-id", "-")
        return answer

    async def _answer_incoming(
        self, incoming: IncomingRequest, receive: Receive, reply: Reply, line: _AccessLine
    ) -> Answer | None:
        subject = None if incoming.subject is None else incoming.subject.id

        def size() -> int:
            return size_of(incoming.headers, incoming.body)

        if incoming.endpoint.operation in CHECKS and self._checks is not None:
            with self._checks.admission.entered(subject, size):
                return await self._checks.answer(incoming)
        request, dialect = await apart(read_request, incoming), incoming.endpoint.dialect
        runtime = self._runtime_for(dialect, str(request.model))
        line.route = runtime.route.name
        with runtime.admission.entered(subject, size):
            if incoming.endpoint.operation is Operation.COUNT:
                tokens = get(dialect.name).estimate_input_tokens(request)
                return json_answer(200, dialects.counted(dialect, tokens), {"x-cmf-estimated": "true"})
            return await exchange(runtime, incoming, request, receive, reply)

    async def _answered(
        self, answers: ApprovalAnswers, headers: Mapping[str, str], receive: Receive, line: _AccessLine
    ) -> Answer:
        """What became of an approval that somebody answered by the webhook [GW-216]."""
        body = await bytes_of(headers, receive, self._limits, self._body_timeout)
        line.route, line.dialect, line.status = "approvals", "webhook", 200
        return json_answer(200, await answers.answer(headers, body))

    def _answers(self, operation: Operation) -> bool:
        return self._checks is not None and operation in self._checks.operations

    def _runtime_for(self, dialect: Dialect, model: str) -> RouteRuntime:
        for runtime in self._runtimes:
            if runtime.route.fits(dialect.name, model):
                return runtime
        raise Refusal(404, "route.no-model", "No route serves this model to clients of this dialect.")

    async def _body(self, endpoint: Endpoint, headers: Mapping[str, str], receive: Receive) -> bytes:
        return await bytes_of(headers, receive, self._limits, self._body_timeout, untyped=endpoint.untyped)

    async def _about_models(self, endpoint: Endpoint, headers: Mapping[str, str], receive: Receive) -> Answer:
        """The list of models; or one that some route would serve, named by the path or in the body."""
        dialect, name = endpoint.dialect, endpoint.model
        if endpoint.operation is Operation.MODELS:
            return json_answer(200, dialects.listed_models(dialect, self._models()))
        if name is None:
            name = model_in(json_of(await self._body(endpoint, headers, receive), self._limits))
        if not any(runtime.route.fits(None, name) for runtime in self._runtimes):
            raise Refusal(404, "route.no-model", "No route serves this model.")
        return json_answer(200, dialects.described_model(dialect, name))

    def _models(self) -> list[str]:
        """The models that routes list by name; patterns are left out."""
        names = (name for runtime in self._runtimes for name in runtime.route.models)
        return sorted({name for name in names if not set(name) & set("*?[")})

    # -- for operators -------------------------------------------------------------------------------------------------

    async def _probe(self, path: str, scope: Scope) -> Answer:
        try:
            self._identities.check_host(headers_of(scope["headers"]), or_address=True)
        except Refusal as refusal:
            return json_answer(refusal.status, {"status": refusal.code, "reason": refusal.message}, refusal.headers)
        if scope["method"] not in ("GET", "HEAD"):
            return json_answer(405, {"status": "use GET"}, {"allow": "GET"})
        if path == "/metrics":
            text = await self._operations.metrics()
            return Answer(status=200, media_type=measured.MEDIA_TYPE, body=text.encode(), headers={})
        if path == "/healthz":
            return json_answer(200, {"status": "ok"})
        is_ready, report = await self._operations.ready()
        return json_answer(
            200 if is_ready else 503, {name: report[name] for name in _SHOWN_TO_CLIENTS if name in report}
        )


def _read(raw: bytes, limits: Limits) -> tuple[Any, str]:
    """The JSON value in a body, and the SHA-256 of the body, in hex. Refusal 400 where it is not strict JSON."""
    return json_of(raw, limits), hashlib.sha256(raw).hexdigest()


def _refused(refusal: Refusal, dialect: Dialect, request_id: str) -> Answer:
    headers = {"x-cmf-code": refusal.code, **refusal.headers}
    status = 200 if refusal.status in dialect.answers else refusal.status
    return json_answer(status, dialect.error(refusal, request_id), headers)


def _line(request_id: str, line: _AccessLine, seconds: float) -> dict[str, Any]:
    return {
        "request": request_id,
        "route": line.route,
        "dialect": line.dialect,
        "status": line.status,
        "code": line.code,
        "decision": line.decision,
        "upstream": line.upstream,
        "ms": round(seconds * 1000, 3),
    }
