"""One request and its reply: read, judged, asked, read, judged, written anew. Spec: docs/spec/gateway.md [GW-11] ff.

Whole replies and streams take the same road: a stream is folded, and its events are made anew. By window, what is
judged of it meanwhile goes out before its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, Final

from cmf import adapters
from cmf.adapters.base import WireEvent
from cmf.codec import dumps
from cmf.errors import CmfError
from cmf.extensions import RequestExtension
from cmf.frozen import frozen_mapping
from cmf.request import Request, Response
from cmf.security import SubjectExtension
from cmf.value import replace, trusted
from pipeline.context import Context
from pipeline.emission import emit, emit_events, with_provider
from pipeline.errors import ApprovalError, DecisionError, EmissionError, StoreError
from pipeline.gateway.admission import Admission
from pipeline.gateway.answer_ids import identified
from pipeline.gateway.dialects import JSON, Endpoint, streamed, without_unasked
from pipeline.gateway.health import Health
from pipeline.gateway.intake import Receive, unless_gone
from pipeline.gateway.links import Links
from pipeline.gateway.refusal import FINAL, Refusal, later, of_decision, of_unreadable
from pipeline.gateway.reply import Answer, Reply, decision_headers
from pipeline.gateway.routing import WindowMode
from pipeline.gateway.settings import Route, RouteLimits
from pipeline.gateway.upstream import Upstream, UpstreamError, is_trouble
from pipeline.gateway.window import Window
from pipeline.gateway.window_events import Diverged
from pipeline.guard import Guard, raised
from pipeline.outcome import Outcome
from pipeline.references import references
from pipeline.sessions import MemorySessions

APPROVAL_HEADER: Final = "x-cmf-approval-id"
PASSED_HEADERS: Final = ("anthropic-version", "anthropic-beta")  # they change what a body means


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place that a request may go to: an upstream, how it does, and the model to ask for (None: as said)."""

    upstream: Upstream
    health: Health
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """A route with what it leads through. `places` are tried in order."""

    route: Route
    guard: Guard
    places: tuple[Place, ...]
    links: Links = field(default_factory=lambda: Links(MemorySessions(), makes=False))
    admission: Admission = field(default_factory=lambda: Admission(RouteLimits()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it came, and who sent it; `request_id` is a ULID, `digest` the SHA-256 of its body, as hex."""

    endpoint: Endpoint
    body: Any
    headers: Mapping[str, str]
    request_id: str
    subject: SubjectExtension | None = None
    session: str | None = None
    environment: str | None = None
    digest: str = ""

    def context(self, route: str) -> Context:
        """The facts of the run: none of them is the traffic's word."""
        # Built as it is: each of these was read strictly, or was made here.
        own = trusted(RequestExtension, environment=self.environment, request_id=f"req_{self.request_id}")
        on_record = frozen_mapping({"route": route, "wire_in": self.digest})
        return trusted(Context, subject=self.subject, session=self.session, request=own, recorded=on_record)


def read_request(asked: Asked) -> Request:
    """The canonical request; whether it streams, and its model, as the path says where it says so.

    Raises:
        Refusal: 400, with the place, for what is no request of this dialect, or names no model.
    """
    endpoint = asked.endpoint
    try:
        request = request_in(endpoint.dialect.name, asked.body, asked.headers, model=endpoint.model)
    except CmfError as error:
        raise of_unreadable(error) from None
    if not request.model:
        raise Refusal(400, "request.no-model", "The request names no model.")
    return request if endpoint.stream is None else replace(request, stream=endpoint.stream)


def request_in(wire_format: str, body: Any, headers: Mapping[str, str], *, model: str | None = None) -> Request:
    """The canonical request that a body is; `headers` came with it.

    Raises:
        Refusal: 400, for a `stream` that is neither true nor false. CmfError: it is none of this format.
    """
    streams = body.get("stream") if isinstance(body, dict) else None
    if streams is not None and type(streams) is not bool:  # what is not true to us may be true to an upstream
        raise Refusal(400, "request.stream", "`stream` is neither true nor false.")
    passed = {name: headers[name] for name in PASSED_HEADERS if name in headers}
    return adapters.get(wire_format).from_wire_request(body, model=model, headers=passed)


async def exchange(road: Road, asked: Asked, request: Request, receive: Receive, reply: Reply) -> Answer | None:
    """The answer to a request on its road; None where it is out already.

    Raises:
        Refusal: policy refuses the request or the reply, or a person must approve; no upstream can be asked this, or
            gave anything that can be read. Once something is out, it is the last event instead.
        ClientGone: nobody waits any more, and the upstream was let go.
    """
    try:
        return await _answer(road, asked, request, receive, reply)
    except DecisionError as error:
        raise of_decision(error) from None
    except ApprovalError as error:
        status = 404 if error.code == "approval.unknown" else 403
        raise Refusal(status, error.code, error.message, headers=FINAL) from None
    except StoreError as error:
        raise Refusal(503, error.code, "The store cannot be reached.", headers=later()) from None


async def _answer(road: Road, asked: Asked, request: Request, receive: Receive, reply: Reply) -> Answer | None:
    if (session := await road.links.session(asked)) != asked.session:
        asked = replaced(asked, session=session)
    context = asked.context(road.route.name)
    approval = asked.headers.get(APPROVAL_HEADER)
    if approval is not None:
        released = raised(await road.guard.arelease(approval, context=context))
        await road.links.keep(asked, released.response)
        return _written(asked, request, released)
    refusal: Refusal | None = None
    unwell: list[float] = []
    spent: set[str] = set()
    for place in road.places:
        if not place.health.admits():
            unwell.append(place.health.wait_seconds)
            continue
        run = _Run(road, place, asked, request, context, reply, spent)
        try:
            return await run.answer(receive, is_last=place is road.places[-1])
        except _NextPlace as error:
            refusal = _worse(refusal, error.refusal)
    if refusal is None:
        wait = later(max(1, round(min(unwell))))
        raise Refusal(503, "upstream.unwell", "No upstream of this route is well.", headers=wait)
    raise refusal


class _NextPlace(Exception):
    """This place gave nothing, and nothing of it is out: `refusal` is what the client is told if it was the last."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def _worse(before: Refusal | None, now: Refusal) -> Refusal:
    """What is told of two places: trouble that may pass before what one of them cannot be asked at all."""
    return now if before is None or (before.status < 500 <= now.status) else before


class _Run:
    """One request at one place, judged as it goes there. `spent`: the approvals that let it through, here or before."""

    def __init__(
        self,
        road: Road,
        place: Place,
        asked: Asked,
        request: Request,
        context: Context,
        reply: Reply,
        spent: set[str],
    ) -> None:
        self._road = road
        self._place = place
        self._asked = asked
        self._request = request
        self._context = context
        self._reply = reply
        self._spent = spent

    async def answer(self, receive: Receive, *, is_last: bool) -> Answer | None:
        """As for `exchange`; _NextPlace where another place may do better."""
        sent, body = await self._admitted()
        known = replace(self._context, history=sent)
        window = self._window(known)
        try:
            return await self._asked_for(sent, body, known, window, receive, is_last=is_last)
        except (DecisionError, Refusal) as error:
            if window is None or not self._reply.begun:
                raise
            await self._broken(error if isinstance(error, Refusal) else of_decision(error), window)
        return None

    async def _admitted(self) -> tuple[Request, Any]:
        """The request as it goes out, and its body; on record, before anybody is asked."""
        upstream = self._place.upstream
        model = f"{upstream.provider}:{self._model()}"
        context = replace(self._context, spent=frozenset(self._spent)) if self._spent else self._context
        admitted = raised(await self._road.guard.arun(replace(self._request, model=model), context=context))
        if admitted.answer is not None:
            self._spent |= {use.id for use in admitted.answer.used}
        if admitted.request is None:
            raise Refusal(503, "pipeline.no-request", "What was judged is no request.")
        self._context = replace(self._context, labels=self._context.labels | admitted.labels)
        if upstream.target != self._asked.endpoint.dialect.name and references(admitted.request):
            message = "The request goes on from what another provider keeps."
            raise _NextPlace(Refusal(400, "request.reference", message, headers=FINAL))
        try:
            return admitted.request, emit(admitted, upstream.target)
        except CmfError as error:  # the upstream's format cannot say it
            raise _NextPlace(of_unreadable(error)) from None

    def _model(self) -> str:
        """What its upstream calls the model; _NextPlace where the request says another name of it."""
        named = self._place.model or str(self._request.model)
        if self._place.model is None and not self._place.upstream.knows(named):
            message = "This upstream's models are named without `models/`."
            raise _NextPlace(Refusal(400, "request.model", message, headers=FINAL))
        return named

    def _window(self, known: Context) -> Window | None:
        mode, endpoint = self._road.route.stream, self._asked.endpoint
        if not isinstance(mode, WindowMode) or not self._request.stream or endpoint.listed:
            return None
        return Window(self._road.guard, known, endpoint.dialect, self._reply, self._in_words, mode.window)

    def _in_words(self, response: Response) -> Response:
        """As it is judged: with an id and its model's provider; an error under the name that the dialect has for it."""
        error, dialect = response.error, self._asked.endpoint.dialect
        response = with_provider(response, self._place.upstream.provider)
        if error is None:
            return identified(response, dialect.name, self._asked.request_id)
        return replace(response, error=replace(error, type=dialect.error_type(error.status or 502)))

    async def _asked_for(
        self, sent: Request, body: Any, known: Context, window: Window | None, receive: Receive, *, is_last: bool
    ) -> Answer | None:
        health = self._place.health
        try:
            response = await unless_gone(receive, self._place.upstream.ask(sent, body, window))
        except UpstreamError as error:
            health.failed()
            if self._reply.begun:
                raise error.refusal() from None
            raise _NextPlace(error.refusal()) from None
        trouble = is_trouble(response)
        if trouble is not None and trouble.status >= 500:
            health.failed()
        else:
            health.answered()
        if trouble is not None and not is_last and not self._reply.begun:
            raise _NextPlace(trouble)
        facts = known if window is None else window.facts
        outcome = raised(await self._road.guard.arun(self._in_words(response), context=facts))
        await self._road.links.keep(self._asked, outcome.response)
        if window is None or not self._reply.begun:
            return _written(self._asked, self._request, outcome)
        await self._rest(outcome, window)
        return None

    async def _rest(self, outcome: Outcome, window: Window) -> None:
        """The last of an answer of which some is out."""
        response = outcome.response
        if response is None or response.error is not None:
            said = None if response is None else response.error
            code = (said.code if said is not None else None) or "upstream.error"
            message = (said.message if said is not None else None) or "The upstream broke off."
            raise Refusal(502, code, message)
        try:
            await window.end(outcome, _events(self._asked, outcome))
        except Diverged:
            message = "What policy left of the whole answer is not what had gone out of it."
            raise Refusal(403, "stream.diverged", message) from None
        await self._reply.end()

    async def _broken(self, refusal: Refusal, window: Window) -> None:
        """The refusal as the last event."""
        self._reply.code = refusal.code
        dialect = self._asked.endpoint.dialect
        event = window.sent.error(refusal, f"req_{self._asked.request_id}")
        await self._reply.end(dialect.frame(event))


def _written(asked: Asked, request: Request, outcome: Outcome) -> Answer:
    """What was judged, as the client's dialect says it."""
    response = outcome.response
    if response is None:
        raise Refusal(503, "pipeline.no-response", "What was judged is no response.")
    headers = decision_headers(outcome.decision)
    if response.error is not None:
        status = response.error.status or 502
        headers["x-cmf-code"] = response.error.code or "upstream.error"
        if status == 503:
            headers |= later()
        return Answer(status=status, media_type=JSON, body=dumps(_body(asked, outcome)), headers=headers)
    if request.stream:
        media_type, body = streamed(asked.endpoint, _events(asked, outcome))
    else:
        media_type, body = JSON, dumps(_body(asked, outcome))
    return Answer(status=200, media_type=media_type, body=body, headers=headers)


def _body(asked: Asked, outcome: Outcome) -> Any:
    with sayable(outcome):
        return emit(outcome, asked.endpoint.dialect.name)


def _events(asked: Asked, outcome: Outcome) -> list[WireEvent]:
    with sayable(outcome):
        return without_unasked(asked.endpoint, asked.body, emit_events(outcome, asked.endpoint.dialect.name))


@contextmanager
def sayable(outcome: Outcome, status: int = 502) -> Iterator[None]:
    """A block in which something goes out: a refusal where it may not, or where its wire format cannot say it."""
    try:
        yield
    except EmissionError as error:
        raise Refusal(503, error.code, error.message, headers=decision_headers(outcome.decision)) from None
    except CmfError as error:
        raise of_unreadable(error, status) from None


__all__ = [
    "APPROVAL_HEADER",
    "PASSED_HEADERS",
    "Answer",
    "Asked",
    "Place",
    "Road",
    "exchange",
    "read_request",
    "request_in",
    "sayable",
]
