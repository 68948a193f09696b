"""One request and its reply, each read, judged and written anew. Spec: docs/spec/gateway.md [GW-11] ff.

Whole replies and streams share one path: a stream is folded into a response, and its events are written anew. In window
mode, what has already been judged goes out while the rest still arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from time import monotonic
from typing import Any, Final

from cmf import adapters
from cmf.adapters.wire.base import WireEvent
from cmf.errors import CmfError
from cmf.json.frozen import frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import RequestExtension
from cmf.message.request import ErrorInfo, Request, Response
from cmf.message.security import SubjectExtension
from pipeline.conversation.references import references
from pipeline.decisions.context import Context
from pipeline.decisions.errors import (
    ApprovalError,
    ApprovalRequired,
    DecisionError,
    EmissionError,
    StoreError,
    Unjudgeable,
)
from pipeline.decisions.timestamps import made_at
from pipeline.engines.circuit_breaker import Breaker
from pipeline.gateway.config.routing import WindowMode
from pipeline.gateway.config.settings import Route, RouteLimits
from pipeline.gateway.http.client_response import Answer, Reply, decision_headers, json_answer
from pipeline.gateway.http.dialects import streamed, without_usage_unless_asked
from pipeline.gateway.http.endpoints import Endpoint
from pipeline.gateway.http.incoming import Receive, until_disconnect
from pipeline.gateway.http.refusal import FINAL, Refusal, ending, later, of_decision, of_unreadable, retry_after
from pipeline.gateway.proxy.admission import Admission
from pipeline.gateway.proxy.held_replies import HeldReplies
from pipeline.gateway.proxy.response_sessions import Links, identified
from pipeline.gateway.proxy.window import Diverged, Sent, Window
from pipeline.gateway.upstreams.upstream import ACCOUNT, Upstream, UpstreamError, retryable_error
from pipeline.guard import Guard
from pipeline.run.emit import emit, emit_events, with_provider
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome, raised
from pipeline.sessions.base import MemorySessions

APPROVAL_HEADER: Final = "x-cmf-approval-id"
FORWARDED_HEADERS: Final = ("anthropic-version", "anthropic-beta")  # they change what a body means


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where a request may be sent: an upstream by its name in the settings, its breaker, and the model to ask for.

    `model` None asks for the one requested.
    """

    name: str
    upstream: Upstream
    breaker: Breaker
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRuntime:
    """A route and what serves it. `backends` are tried in order.

    What people have to approve waits `wait_seconds` for that, if there is a `held` to wait in.
    """

    route: Route
    guard: Guard
    backends: tuple[Backend, ...]
    links: Links = field(default_factory=lambda: Links(MemorySessions(), makes=False))
    admission: Admission = field(default_factory=lambda: Admission(RouteLimits()))
    held: HeldReplies | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """A request as it arrived, and who sent it; `request_id` is a ULID, `digest` the SHA-256 of its body, in hex."""

    endpoint: Endpoint
    body: Any
    headers: Mapping[str, str]
    request_id: str
    subject: SubjectExtension | None = None
    session: str | None = None
    environment: str | None = None
    digest: str = ""

    def context(self, route: str) -> Context:
        """The facts of the run; none of them is taken from the message."""
        # Not validated again: each of these was read strictly, or was made here.
        named, came = f"req_{self.request_id}", made_at(self.request_id)
        own = trusted(RequestExtension, environment=self.environment, request_id=named, timestamp=came)
        on_record = frozen_mapping({"route": route, "wire_in": self.digest})
        return trusted(Context, subject=self.subject, session=self.session, request=own, recorded=on_record)


def read_request(incoming: IncomingRequest) -> Request:
    """The canonical request. The path decides the model and whether it streams, if it names these.

    Raises:
        Refusal: 400, with the JSON path, for a body that is no request of this dialect or names no model.
    """
    endpoint = incoming.endpoint
    try:
        request = request_in(endpoint.dialect.name, incoming.body, incoming.headers, model=endpoint.model)
    except CmfError as error:
        raise of_unreadable(error) from None
    if not request.model:
        raise Refusal(400, "request.no-model", "The request names no model.")
    if not {".", ".."}.isdisjoint(request.model.split("/")):  # some dialects have the name in the path [GW-14]
        raise Refusal(400, "request.model", "A model's name has no `.` or `..` between slashes.", headers=FINAL)
    return request if endpoint.stream is None else replace(request, stream=endpoint.stream)


def request_in(wire_format: str, body: Any, headers: Mapping[str, str], *, model: str | None = None) -> Request:
    """The canonical form of a request body and the headers that came with it.

    Raises:
        Refusal: 400, for a `stream` that is neither true nor false, or a header to send on that is not printable ASCII.
            CmfError: the body is no request of this format.
    """
    streams = body.get("stream") if isinstance(body, dict) else None
    if streams is not None and type(streams) is not bool:  # an upstream might read 1 as true
        raise Refusal(400, "request.stream", "`stream` is neither true nor false.")
    forwarded = {name: headers[name] for name in FORWARDED_HEADERS if name in headers}
    for name, value in forwarded.items():
        if not (value.isascii() and value.isprintable()):  # it would be sent in other bytes
            raise Refusal(400, "http.header", f"The header `{name}` has characters that a header cannot hold.")
    return adapters.get(wire_format).from_wire_request(body, model=model, headers=forwarded)


async def exchange(
    runtime: RouteRuntime, incoming: IncomingRequest, request: Request, receive: Receive, reply: Reply
) -> Answer | None:
    """The answer to a request on its route; None where it has been sent already.

    Raises:
        Refusal: policy refuses the request or the reply, or a person has to approve it; no upstream can be sent this
            request, or none gave a readable reply. Once part of the reply is out, the stream ends with it instead.
        ClientDisconnected: the client left; the upstream call was cancelled.
    """
    try:
        if (session := await runtime.links.session(incoming)) != incoming.session:
            incoming = replaced(incoming, session=session)
        context = incoming.context(runtime.route.name)
        approval = incoming.headers.get(APPROVAL_HEADER)
        if approval is None:
            return await _answer(runtime, incoming, request, context, receive, reply)
        released = raised(await runtime.guard.arelease(approval, context=context))
        await runtime.links.keep(incoming, released.response)
        return await apart(_written, incoming, request, released)
    except ApprovalError as error:
        status = 404 if error.code == "approval.unknown" else 403
        raise Refusal(status, error.code, error.message, headers=FINAL) from None
    except (DecisionError, StoreError, Refusal) as error:
        refusal = _refusal_for(error)
        # what the SDK of the client's dialect needs to go on
        refusal.details = incoming.endpoint.dialect.details(refusal.code, incoming.body)
        raise refusal from None


def _refusal_for(error: DecisionError | StoreError | Refusal | _TryNext) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, _TryNext):
        return error.refusal
    if isinstance(error, DecisionError):
        return of_decision(error, releases=True)
    return Refusal(503, error.code, "The store cannot be reached.", headers=later())


async def _answer(
    runtime: RouteRuntime,
    incoming: IncomingRequest,
    request: Request,
    context: Context,
    receive: Receive,
    reply: Reply,
) -> Answer | None:
    refusal: Refusal | None = None
    waits: list[float] = []
    used_approvals: set[str] = set()
    for backend in runtime.backends:
        if not backend.breaker.allows(monotonic()):
            waits.append(backend.breaker.wait_seconds(monotonic()))
            continue
        attempt = _Attempt(runtime, backend, incoming, request, context, receive, reply, used_approvals)
        try:
            return await attempt.answer(is_last=backend is runtime.backends[-1])
        except _TryNext as error:
            if refusal is None or (_may_pass(error.refusal) and not _may_pass(refusal)):
                refusal = error.refusal
    if refusal is None:
        wait = later(max(1, round(min(waits))))
        raise Refusal(503, "upstream.unwell", "No upstream of this route is healthy: try again.", headers=wait)
    raise refusal


class _TryNext(Exception):
    """This backend gave nothing, and nothing was sent; the client gets `refusal` if there is no other backend."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def _may_pass(refusal: Refusal) -> bool:
    """Whether it is an outage or a limit; of several refusals, the client rather gets such a one."""
    return refusal.status >= 500 or refusal.status == 429


@dataclass(slots=True)
class _Attempt:
    """One request tried at one backend. `used_approvals` are those that let it through, here or at a backend before."""

    runtime: RouteRuntime
    backend: Backend
    incoming: IncomingRequest
    request: Request
    context: Context
    receive: Receive
    reply: Reply
    used_approvals: set[str]

    async def answer(self, *, is_last: bool) -> Answer | None:
        """As for `exchange`; _TryNext where another backend may do better."""
        window: Window | None = None
        mode, endpoint = self.runtime.route.stream, self.incoming.endpoint
        try:
            sent, body = await self._admitted()
            known = replace(self.context, history=sent)
            if isinstance(mode, WindowMode) and self.request.stream and not endpoint.as_array:
                judged, dialect = self._as_judged, endpoint.dialect
                window = Window(self.runtime.guard, known, dialect, self.reply, judged, mode.window)
            return await self._ask_upstream(sent, body, known, window, is_last=is_last)
        except (DecisionError, StoreError, Refusal, _TryNext) as error:
            if not self.reply.begun:
                raise
            await self._end_with_refusal(_refusal_for(error), window)
        except asyncio.CancelledError:  # the time for requests in progress is over [GW-153]
            if not self.reply.begun or self.reply.over:
                raise
            await self._end_with_refusal(ending(), window)
        return None

    async def _run(self, value: Request | Response, context: Context) -> Outcome:
        """The outcome for `value`, which may go out; it waits for people's answers if this route does [GW-87].

        Raises:
            DecisionError: it may not. Refusal: nobody answered in time. ClientDisconnected: the client left meanwhile.
        """
        until = monotonic() + self.runtime.wait_seconds
        while True:
            outcome = await self.runtime.guard.arun(value, context=context)
            try:
                return raised(outcome)
            except ApprovalRequired as error:
                held = self.runtime.held
                if held is None or not (self.runtime.wait_seconds and error.approval_ids):
                    raise
                waiting = held.wait(error.approval_ids, max(0.0, until - monotonic()))
                why = await until_disconnect(self.receive, self._kept_alive(waiting, held.ping_seconds, outcome))
                if why:
                    raise of_decision(error, releases=True, waited=why) from None

    async def _kept_alive(self, waiting: Coroutine[Any, Any, str], seconds: float, outcome: Outcome) -> str:
        """What `waiting` gives; meanwhile a stream is kept alive, if its dialect has something that does so."""
        endpoint = self.incoming.endpoint
        if not self.request.stream or endpoint.as_array or not endpoint.dialect.ping:
            return await waiting
        task = asyncio.ensure_future(waiting)
        try:
            while not (await asyncio.wait({task}, timeout=seconds))[0]:
                await self.reply.piece(endpoint.dialect.ping, endpoint.dialect.stream_type, outcome.decision)
            return task.result()
        finally:
            task.cancel()

    async def _admitted(self) -> tuple[Request, Any]:
        """The request as policy admits it, and its body for the upstream; the decision is on record by then."""
        upstream = self.backend.upstream
        name = self.backend.model or str(self.request.model)
        if self.backend.model is None and not upstream.knows(name):
            message = "Name this upstream's models without `models/`."
            raise _TryNext(Refusal(400, "request.model", message, headers=FINAL))
        context = self.context = replace(self.context, custom=frozen_mapping({"upstream": self.backend.name}))
        if self.used_approvals:
            context = replace(context, spent=frozenset(self.used_approvals))
        admitted = await self._run(replace(self.request, model=f"{upstream.provider}:{name}"), context)
        if admitted.answer is not None:
            self.used_approvals |= {use.id for use in admitted.answer.used}
        if admitted.request is None:
            raise Refusal(503, "pipeline.no-request", "Policy was asked, but no request came back from the pipeline.")
        self.context = replace(self.context, labels=self.context.labels | admitted.labels)
        if upstream.target != self.incoming.endpoint.dialect.name and references(admitted.request):
            message = "The request refers to a conversation that another provider keeps: send its messages instead."
            raise _TryNext(Refusal(400, "request.reference", message, headers=FINAL))
        try:
            return admitted.request, await apart(emit, admitted, upstream.target)
        except CmfError as error:  # the upstream's format cannot express it
            raise _TryNext(of_unreadable(error)) from None

    async def _judged(self, response: Response, facts: Context) -> Outcome:
        """The outcome for the response; judged again as it is joined, if an edit took a text out of its own place."""
        try:
            outcome = await self._run(response, facts)
        except Unjudgeable as error:  # it was not the client that sent too much
            raise Refusal(502, error.code, error.user_message, headers=of_decision(error).headers) from None
        if (left := outcome.response) is None or (whole := self._in_one_text(left)) is left:
            return outcome
        return await self._run(whole, facts)

    def _in_one_text(self, response: Response) -> Response:
        adapter = adapters.get(self.incoming.endpoint.dialect.name)
        return adapter.in_one_text(response, streamed=bool(self.request.stream))

    def _as_judged(self, response: Response) -> Response:
        """The response as the client will see it: one text if the dialect has one, ids, provider, type of an error."""
        error, dialect = response.error, self.incoming.endpoint.dialect
        response = with_provider(self._in_one_text(response), self.backend.upstream.provider)
        if error is None:
            return identified(response, dialect.name, self.incoming.request_id)
        return replace(response, error=replace(error, type=dialect.error_type(error.status or 502)))

    async def _ask_upstream(
        self, sent: Request, body: Any, known: Context, window: Window | None, *, is_last: bool
    ) -> Answer | None:
        breaker = self.backend.breaker
        self.reply.upstream = self.backend.name
        try:
            response = await until_disconnect(self.receive, self.backend.upstream.ask(sent, body, window))
        except UpstreamError as error:
            breaker.note(monotonic(), fault=True)
            if self.reply.begun:
                raise
            raise _TryNext(error) from None
        retryable = retryable_error(response)
        breaker.note(monotonic(), fault=retryable is not None and retryable.status >= 500)
        if retryable is not None and not is_last and not self.reply.begun:
            raise _TryNext(retryable)
        facts = known
        if window is not None:
            facts, response = window.facts, window.as_arrived(response)
        outcome = await self._judged(self._as_judged(response), facts)
        await self.runtime.links.keep(self.incoming, outcome.response)
        if not self.reply.begun:
            return await apart(_written, self.incoming, self.request, outcome)
        await self._finish_stream(outcome, window)
        return None

    async def _finish_stream(self, outcome: Outcome, window: Window | None) -> None:
        """Send what is left of an answer whose beginning is out, or at least the head of a stream."""
        response = outcome.response
        if response is None or response.error is not None:
            error = ErrorInfo() if response is None or response.error is None else response.error
            raise Refusal(502, error.code or "upstream.error", error.message or "The upstream broke off its reply.")
        events = await apart(_events, self.incoming, outcome)
        if window is None:
            dialect = self.incoming.endpoint.dialect
            await self.reply.end(await apart(lambda: b"".join(map(dialect.frame, events))))
            return
        try:
            await window.end(outcome, events)
        except Diverged:
            message = "Policy changed a part of the answer that had already been sent."
            raise Refusal(403, "stream.diverged", message) from None
        await self.reply.end()

    async def _end_with_refusal(self, refusal: Refusal, window: Window | None) -> None:
        """End the stream with the refusal as its last event."""
        self.reply.code = refusal.code
        dialect = self.incoming.endpoint.dialect
        sent = Sent(dialect) if window is None else window.sent
        event = sent.error(refusal, f"req_{self.incoming.request_id}")
        await self.reply.end(dialect.frame(event))


def _written(incoming: IncomingRequest, request: Request, outcome: Outcome) -> Answer:
    """The judged response in the client's dialect."""
    response, endpoint, status = outcome.response, incoming.endpoint, 200
    if response is None:
        raise Refusal(503, "pipeline.no-response", "Policy was asked, but no response came back from the pipeline.")
    headers, error = decision_headers(outcome.decision), response.error
    if error is not None:
        status = error.status or 502
        headers["x-cmf-code"] = error.code or "upstream.error"
        wait = error.retry_after_seconds
        headers |= later() if wait is None and status == 503 else retry_after(wait)
        headers |= FINAL if error.code == ACCOUNT else {}
    elif request.stream:
        media_type, body = streamed(endpoint.dialect, _events(incoming, outcome), as_array=endpoint.as_array)
        return Answer(status=status, media_type=media_type, body=body, headers=headers)
    with refusing_unemittable(outcome):
        wire = emit(outcome, endpoint.dialect.name)
    return json_answer(status, wire, headers)


def _events(incoming: IncomingRequest, outcome: Outcome) -> list[WireEvent]:
    with refusing_unemittable(outcome):
        dialect = incoming.endpoint.dialect
        return without_usage_unless_asked(dialect, incoming.body, emit_events(outcome, dialect.name))


@contextmanager
def refusing_unemittable(outcome: Outcome, status: int = 502) -> Iterator[None]:
    """A block that emits `outcome`: Refusal where it may not be emitted, or the wire format cannot express it."""
    try:
        yield
    except EmissionError as error:
        raise Refusal(503, error.code, error.message, headers=decision_headers(outcome.decision)) from None
    except CmfError as error:
        raise of_unreadable(error, status) from None
