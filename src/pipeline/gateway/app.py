"""The gateway as an ASGI application: paths, people, limits, and one answer a request. Spec: docs/spec/gateway.md."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from ulid import ULID

from cmf.adapters import get
from cmf.codec import dumps
from pipeline.gateway import dialects, intake
from pipeline.gateway import metrics as measured
from pipeline.gateway.dialects import CHECKS, JSON, Dialect, Does
from pipeline.gateway.exchange import Asked, Road, exchange, read_request
from pipeline.gateway.identity import Identities
from pipeline.gateway.intake import ClientGone, Receive, Scope, Send
from pipeline.gateway.mcp_settings import PATH as MCP_PATH
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.operations import Operations
from pipeline.gateway.refusal import Refusal, later
from pipeline.gateway.reply import Answer, Reply
from pipeline.gateway.settings import CHECK_ROUTE, Limits
from pipeline.gateway.timeouts import SharedTimeout
from pipeline.gateway.upstream import Upstream

if TYPE_CHECKING:
    from pipeline.gateway.check import Checks
    from pipeline.gateway.mcp import McpGateway

_log: Final = logging.getLogger("pipeline.gateway")
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_CLIENTS_SEE: Final = ("status", "reason", "revisions")  # of readiness; figures of the log are for whoever runs it


@dataclass(slots=True)
class _Told:
    """What the log and the counters say of a request."""

    route: str = "-"
    dialect: str = "-"
    status: int = 0
    code: str | None = None
    decision: str = "-"


class Gateway:
    """Answers HTTP. Begin it (`open`) within the running loop, or by ASGI's lifespan.

    Args:
        roads: in the order in which they are looked at.
        identities: who may ask.
        limits: bounds on what one client can cost.
        metrics: where it counts.
        operations: what its probes ask.
        environment: what policy is told of where this runs.
        mcp: the MCP servers, under `/mcp/`.
        checks: what answers at `/v1/check`, and who asks the same in other ways.
        probes: those of `PROBES` that clients may see too.
    """

    def __init__(
        self,
        roads: Sequence[Road],
        identities: Identities,
        *,
        limits: Limits,
        metrics: Metrics,
        operations: Operations,
        environment: str | None = None,
        mcp: McpGateway | None = None,
        checks: Checks | None = None,
        probes: Collection[str] = PROBES,
    ) -> None:
        self._roads = tuple(roads)
        self._identities = identities
        self._limits = limits
        self._sending, self._taking = SharedTimeout(limits.body_seconds), SharedTimeout(limits.stalled_seconds)
        self._metrics = metrics
        self._operations = operations
        self._environment = environment
        self._mcp = mcp
        self._checks = checks
        self._open = False
        self._probes = frozenset(probes)

    @property
    def is_open(self) -> bool:
        """Whether it answers."""
        return self._open

    async def open(self) -> None:
        """Begin: every upstream gets its connections."""
        for upstream in self._upstreams():
            await upstream.open()
        if self._mcp is not None:
            await self._mcp.open()
        self._open = True

    async def close(self) -> None:
        """End: no connection is left."""
        self._open = False
        if self._mcp is not None:
            await self._mcp.close()
        for upstream in self._upstreams():
            await upstream.close()

    def _upstreams(self) -> Iterable[Upstream]:
        return {id(place.upstream): place.upstream for road in self._roads for place in road.places}.values()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's own beginning and end."""
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
        path = _path(scope)
        if self._mcp is not None and path.startswith(MCP_PATH):
            await self._mcp(scope, path, receive, send)
            return
        if path in self._probes:
            probed = Reply(send, {}, timeout=self._taking)
            await probed.whole(await self._probe(path, scope["method"]))
            return
        made = str(ULID())  # spelled once, which takes longer than making it
        request_id = f"req_{made}"
        ids = {"x-request-id": request_id, "request-id": request_id}
        reply = Reply(send, ids, timeout=self._taking)
        told = _Told()
        self._metrics.in_flight += 1
        self._metrics.tally.begun(request_id)
        try:
            answer = await self._answer(scope, path, made, receive, reply, told)
            if answer is not None:
                await reply.whole(answer)
        except ClientGone:
            told.status = intake.GONE
        except asyncio.CancelledError:  # the time of what is in work is over [GW-153]
            told.status, told.code = 503, "gateway.ending"
            if reply.begun:
                raise
            ending = Refusal(503, told.code, "This gateway is ending: try again.", headers=later(1))
            await reply.whole(_refused(ending, dialects.dialect_near(path), request_id))
        finally:
            self._metrics.in_flight -= 1
            seconds = perf_counter() - begin
            self._metrics.count(told.route, told.dialect, told.status, told.code, seconds)
            self._metrics.tally.over(told.route, request_id, told.status)
            if _log.isEnabledFor(logging.INFO):
                _log.info("%s", dumps(_line(request_id, told, seconds)).decode())

    async def _answer(
        self, scope: Scope, path: str, made: str, receive: Receive, reply: Reply, told: _Told
    ) -> Answer | None:
        dialect = dialects.dialect_near(path)
        try:
            headers = intake.headers_of(scope["headers"])
            query = intake.query_of(scope.get("query_string", b""))
            endpoint = dialects.endpoint_of(path, query, headers)
            if endpoint is None or (endpoint.does in CHECKS and not self._answers(endpoint.does)):
                raise dialects.nothing_there(path)
            dialect = endpoint.dialect
            told.dialect = dialect.name
            told.route = CHECK_ROUTE if endpoint.does in CHECKS else "-"
            if scope["method"] != endpoint.method:
                allow = {"allow": endpoint.method}
                raise Refusal(405, "http.method", f"This path takes {endpoint.method}.", headers=allow)
            if self._metrics.in_flight > self._limits.concurrent:
                raise Refusal(503, "gateway.busy", "Too much is in work: try again.", headers=later(1))
            subject = await self._identities.subject(headers, (scope.get("client") or (None,))[0])
            intake.check_query(query, endpoint)
            if endpoint.does is Does.MODELS:
                answer: Answer | None = _json(200, dialects.listed_models(dialect, self._models()))
            else:
                if endpoint.does is Does.ENVOY:
                    intake.check_uncut(headers)
                raw = await intake.bytes_of(headers, receive, self._limits, self._sending)
                asked = Asked(
                    endpoint=endpoint,
                    body=intake.json_of(raw, self._limits),
                    digest=hashlib.sha256(raw).hexdigest(),
                    headers=headers,
                    request_id=made,
                    subject=subject,
                    session=intake.session_of(headers),
                    environment=self._environment,
                )
                answer = await self._asked(asked, receive, reply, told)
        except Refusal as refusal:
            answer = _refused(refusal, dialect, f"req_{made}")
        if answer is None:
            told.status, told.code, told.decision = 200, reply.code, reply.decision or "-"
            return None
        told.status = answer.status
        told.code = answer.headers.get("x-cmf-code")
        told.decision = answer.headers.get("x-cmf-decision-id", "-")
        return answer

    async def _asked(self, asked: Asked, receive: Receive, reply: Reply, told: _Told) -> Answer | None:
        subject = None if asked.subject is None else asked.subject.id

        def size() -> int:
            return intake.size_of(asked.headers, asked.body)

        if asked.endpoint.does in CHECKS and self._checks is not None:
            with self._checks.admission.entered(subject, size):
                return await self._checks.answer(asked)
        request, dialect = read_request(asked), asked.endpoint.dialect
        road = self._road(dialect, str(request.model))
        told.route = road.route.name
        with road.admission.entered(subject, size):
            if asked.endpoint.does is Does.COUNT:
                tokens = get(dialect.name).estimate_input_tokens(request)
                return _json(200, dialects.counted(dialect, tokens), {"x-cmf-estimated": "true"})
            return await exchange(road, asked, request, receive, reply)

    def _answers(self, does: Does) -> bool:
        return self._checks is not None and does in self._checks.does

    def _road(self, dialect: Dialect, model: str) -> Road:
        for road in self._roads:
            if road.route.fits(dialect.name, model):
                return road
        raise Refusal(404, "route.no-model", "No route serves this model to this kind of client.")

    def _models(self) -> list[str]:
        """The models that routes name in full; a pattern names none."""
        names = (name for road in self._roads for name in road.route.models)
        return sorted({name for name in names if not set(name) & set("*?[")})

    # -- for whoever runs it -------------------------------------------------------------------------------------------

    async def _probe(self, path: str, method: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return _json(405, {"status": "use GET"}, {"allow": "GET"})
        if path == "/metrics":
            text = await self._operations.metrics()
            return Answer(status=200, media_type=measured.MEDIA_TYPE, body=text.encode(), headers={})
        if path == "/healthz":
            return _json(200, {"status": "ok"})
        is_ready, said = await self._operations.ready()
        return _json(200 if is_ready else 503, {name: said[name] for name in _CLIENTS_SEE if name in said})


def _path(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return str(raw.partition(b"?")[0].decode("latin-1"))


def _refused(refusal: Refusal, dialect: Dialect, request_id: str) -> Answer:
    headers = {"x-cmf-code": refusal.code, **refusal.headers}
    status = 200 if refusal.status in dialect.answers else refusal.status
    return _json(status, dialect.error(refusal, request_id), headers)


def _json(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status=status, media_type=JSON, body=dumps(body), headers=headers or {})


def _line(request_id: str, told: _Told, seconds: float) -> dict[str, Any]:
    return {
        "request": request_id,
        "route": told.route,
        "dialect": told.dialect,
        "status": told.status,
        "code": told.code,
        "decision": told.decision,
        "ms": round(seconds * 1000, 3),
    }


__all__ = ["PROBES", "Gateway"]
