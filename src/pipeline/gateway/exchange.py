"""One request and its reply: read, judged, asked, read, judged, written anew. Spec: docs/spec/gateway.md [GW-11] ff.

Whole replies and streams take the same road: a stream is folded first, and its events are made anew at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ulid import ULID

from cmf import adapters
from cmf.codec import dumps
from cmf.errors import CmfError
from cmf.extensions import RequestExtension
from cmf.request import Request, Response
from cmf.security import SubjectExtension
from cmf.value import replace
from pipeline.context import Context
from pipeline.emission import emit, emit_events
from pipeline.errors import ApprovalError, DecisionError, EmissionError, StoreError
from pipeline.gateway.answer_ids import identified
from pipeline.gateway.dialects import JSON, Endpoint, streamed
from pipeline.gateway.intake import Receive, unless_gone
from pipeline.gateway.refusal import Refusal, of_decision, of_unreadable
from pipeline.gateway.settings import Route
from pipeline.gateway.upstream import Upstream, UpstreamError
from pipeline.guard import Guard, raised
from pipeline.runner import Outcome

APPROVAL_HEADER: Final = "x-cmf-approval-id"
_PASSED_HEADERS: Final = ("anthropic-version", "anthropic-beta")  # they change what a body means


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """A route with what it leads through."""

    route: Route
    guard: Guard
    upstream: Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it came, and who sent it."""

    endpoint: Endpoint
    body: Any
    headers: Mapping[str, str]
    request_id: ULID
    subject: SubjectExtension | None = None
    session: str | None = None
    environment: str | None = None

    def context(self) -> Context:
        """The facts of the run: none of them is the traffic's word."""
        own = RequestExtension(environment=self.environment, request_id=f"req_{self.request_id}")
        return Context(subject=self.subject, session=self.session, request=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the client gets: bytes that were made here."""

    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str]


def read_request(asked: Asked) -> Request:
    """The canonical request; whether it streams, and its model, as the path says where it says so.

    Raises:
        Refusal: 400, with the place, for what is no request of this dialect, or names no model.
    """
    endpoint = asked.endpoint
    streams = asked.body.get("stream") if isinstance(asked.body, dict) else None
    if streams is not None and type(streams) is not bool:  # what is not true to us may be true to an upstream
        raise Refusal(400, "request.stream", "`stream` is neither true nor false.")
    passed = {name: asked.headers[name] for name in _PASSED_HEADERS if name in asked.headers}
    try:
        adapter = adapters.get(endpoint.dialect.name)
        request = adapter.from_wire_request(asked.body, model=endpoint.model, headers=passed)
    except CmfError as error:
        raise of_unreadable(error) from None
    if not request.model:
        raise Refusal(400, "request.no-model", "The request names no model.")
    return request if endpoint.stream is None else replace(request, stream=endpoint.stream)


async def exchange(road: Road, asked: Asked, request: Request, receive: Receive) -> Answer:
    """The answer to a request on its road.

    Raises:
        Refusal: policy refuses the request or the reply, or a person must approve; the upstream cannot be asked this,
            or gave nothing that can be read. ClientGone: nobody waits any more, and the upstream was let go.
    """
    context = asked.context()
    approval = asked.headers.get(APPROVAL_HEADER)
    try:
        if approval is not None:
            outcome = raised(await road.guard.arelease(approval, context=context))
        else:
            outcome = await _asked(road, asked, request, context, receive)
        return _written(asked, request, outcome)
    except DecisionError as error:
        raise of_decision(error) from None
    except ApprovalError as error:
        status = 404 if error.code == "approval.unknown" else 403
        raise Refusal(status, error.code, error.message, headers={"x-should-retry": "false"}) from None
    except StoreError as error:
        raise Refusal(503, error.code, "The store cannot be reached.", headers={"retry-after": "5"}) from None


async def _asked(road: Road, asked: Asked, request: Request, context: Context, receive: Receive) -> Outcome:
    upstream = road.upstream
    model = f"{upstream.provider}:{road.route.model or request.model}"
    admitted = raised(await road.guard.arun(replace(request, model=model), context=context))
    sent = admitted.request
    if sent is None:
        raise Refusal(503, "pipeline.no-request", "What was judged is no request.")
    try:
        body = emit(admitted, upstream.target)
    except CmfError as error:  # the upstream's format cannot say it
        raise of_unreadable(error) from None
    try:
        response = await unless_gone(receive, upstream.ask(sent, body))
    except UpstreamError as error:
        raise error.refusal() from None
    known = replace(context, history=sent, labels=context.labels | admitted.labels)
    return raised(await road.guard.arun(_in_words_of(asked, response), context=known))


def _in_words_of(asked: Asked, response: Response) -> Response:
    """The response with an id; an error under the name that the client's dialect has for its status."""
    error = response.error
    if error is None:
        return identified(response, asked.endpoint.dialect.name, asked.request_id)
    return replace(response, error=replace(error, type=asked.endpoint.dialect.error_type(error.status or 502)))


def _written(asked: Asked, request: Request, outcome: Outcome) -> Answer:
    """What was judged, as the client's dialect says it."""
    dialect, response = asked.endpoint.dialect, outcome.response
    if response is None:
        raise Refusal(503, "pipeline.no-response", "What was judged is no response.")
    decision = outcome.decision
    headers = {"x-cmf-decision-id": decision.id, "x-cmf-verdict": decision.verdict.value}
    try:
        if response.error is not None:
            status = response.error.status or 502
            headers["x-cmf-code"] = response.error.code or "upstream.error"
            if status == 503:
                headers["retry-after"] = "5"
            return Answer(status=status, media_type=JSON, body=dumps(emit(outcome, dialect.name)), headers=headers)
        if request.stream:
            media_type, body = streamed(asked.endpoint, asked.body, emit_events(outcome, dialect.name))
        else:
            media_type, body = JSON, dumps(emit(outcome, dialect.name))
    except EmissionError as error:
        raise Refusal(503, error.code, error.message, headers=headers) from None
    except CmfError as error:  # the client's dialect cannot say what the upstream answered
        raise of_unreadable(error, 502) from None
    return Answer(status=200, media_type=media_type, body=body, headers=headers)


__all__ = ["APPROVAL_HEADER", "Answer", "Asked", "Road", "exchange", "read_request"]
