"""An HTTP transport that judges what a provider's SDK sends and receives. Spec: docs/spec/integrations.md.

client = openai.OpenAI(http_client=httpx2.Client(transport=transport(guard)))
client = wrap(anthropic.Anthropic(), guard)  # the same client type, with such a transport
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from cmf import adapters
from cmf.adapters.wire.sse import NdjsonReader, SseReader
from cmf.adapters.wire.stream import CONTRADICTION, is_whole
from cmf.errors import CmfError, DecodeError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import frozen_mapping
from cmf.json.value import replace
from cmf.message.model_ids import FORMAT_PROVIDERS
from cmf.message.request import ErrorInfo, Request, Response
from cmf.message.security import without_sensitive
from pipeline.decisions.context import Context
from pipeline.decisions.errors import (
    ApprovalError,
    ConfigError,
    DecisionError,
    EmissionError,
    PipelineError,
    StoreError,
    needs,
)
from pipeline.decisions.stage import Traffic
from pipeline.decisions.timestamps import new_ulid
from pipeline.gateway.http.client_response import Answer, decision_headers, json_answer
from pipeline.gateway.http.dialects import JSON, NDJSON, SSE, counted, streamed, without_usage_unless_asked
from pipeline.gateway.http.endpoints import Endpoint, Operation, dialect_near, endpoint_of, nothing_there
from pipeline.gateway.http.incoming import check_query, query_of
from pipeline.gateway.http.refusal import Refusal, of_decision, of_unreadable
from pipeline.gateway.proxy.proxy import APPROVAL_HEADER, FORWARDED_HEADERS, IncomingRequest, read_request
from pipeline.gateway.proxy.response_sessions import identified
from pipeline.gateway.upstreams.upstream import CONTRADICTORY, CONTRADICTS
from pipeline.guard import Guard
from pipeline.integrations.judged_calls import checked
from pipeline.run.emit import emit, emit_events, with_provider
from pipeline.run.offload import completed
from pipeline.run.outcome import Outcome, raised

MAX_REPLY_BYTES: Final = 32 * 1024 * 1024
_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,3})?")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEPT: Final[Mapping[str, re.Pattern[str]]] = {
    "retry-after": _SECONDS,
    "retry-after-ms": _SECONDS,
    "x-should-retry": re.compile("true|false"),
    "x-request-id": _ID,
    "request-id": _ID,
}
"""The provider's headers that the client gets, with their form: no policy judges them, so that they may say no more."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Step: judge this; the result is an Outcome."""

    value: Traffic
    context: Context


@dataclass(frozen=True, slots=True)
class Release:
    """Step: release a reply that was held for approval; the result is an Outcome."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """Step: send the request with this body instead of its own; the result is a `Got`.

    `headers` are the judged ones that affect the meaning of the body; they replace the request's own.
    """

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Got:
    """The provider's complete response: the raw, still encoded body, up to `MAX_REPLY_BYTES`."""

    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes


Step: TypeAlias = Judge | Release | Send
Turn: TypeAlias = Generator[Step, Any, Answer]


def turn(method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Turn:
    """The steps for one client request, and finally the response for the client.

    A refused request or response becomes an error response in the client's own format; nothing is raised.
    """
    request_id = new_ulid()
    dialect = dialect_near(path)
    try:
        endpoint = _endpoint(path, query, headers)
        dialect = endpoint.dialect
        if endpoint.operation in (Operation.MODELS, Operation.CHECK) or method != endpoint.method:
            raise nothing_there(path)
        check_query(query_of(query.encode("ascii", "replace")), endpoint)
        incoming = IncomingRequest(endpoint=endpoint, body=_json(headers, body), headers=headers, request_id=request_id)
        request = read_request(incoming)
        if endpoint.operation is Operation.COUNT:
            tokens = adapters.get(dialect.name).estimate_input_tokens(request)
            return json_answer(200, counted(dialect, tokens), {"x-cmf-estimated": "true"})
        return (yield from _answer(incoming, request))
    except DecisionError as error:
        refusal = of_decision(error)
    except Refusal as error:
        refusal = error
    except ApprovalError as error:
        refusal = Refusal(403, error.code, error.message)
    except (EmissionError, StoreError) as error:
        refusal = Refusal(503, error.code, error.message, headers={"x-should-retry": "true"})
    except CmfError as error:
        refusal = of_unreadable(error)
    reply_headers = {"x-should-retry": "false", **refusal.headers, "x-cmf-code": refusal.code}
    return json_answer(refusal.status, dialect.error(refusal, f"req_{request_id}"), reply_headers)


def _answer(incoming: IncomingRequest, request: Request) -> Turn:
    dialect = incoming.endpoint.dialect
    approval = incoming.headers.get(APPROVAL_HEADER)
    if approval is not None:
        return _written(incoming, request, raised((yield Release(approval))), {})
    provider = FORMAT_PROVIDERS[dialect.name]
    named = with_provider(request, provider)
    facts = Context(headers=frozen_mapping(without_sensitive(incoming.headers)))  # they are sent too
    admitted: Outcome = raised((yield Judge(named, facts)))
    if admitted.request is None:
        raise Refusal(503, "pipeline.no-request", "A stage replaced the request with something else.")
    sent = admitted.request
    if incoming.endpoint.model is not None and sent.model != named.model:
        raise Refusal(503, "integration.other-model", "Policy changed the model, which is part of the URL path.")
    headers = adapters.get(dialect.name).to_http(sent).headers
    judged = {name: headers[name] for name in FORWARDED_HEADERS if name in headers}
    got: Got = yield Send(dumps(emit(admitted, dialect.name)), judged)
    response = with_provider(identified(_read(got, incoming, sent), dialect.name, incoming.request_id), provider)
    outcome: Outcome = raised((yield Judge(response, Context(history=sent, labels=admitted.labels))))
    kept = {name: got.headers[name] for name, form in _KEPT.items() if form.fullmatch(got.headers.get(name, ""))}
    return _written(incoming, request, outcome, kept)


def _written(incoming: IncomingRequest, request: Request, outcome: Outcome, kept: Mapping[str, str]) -> Answer:
    """The judged response in the client's format."""
    dialect, response = incoming.endpoint.dialect, outcome.response
    if response is None:
        raise Refusal(503, "pipeline.no-response", "A stage replaced the response with something else.")
    headers = {**kept, **decision_headers(outcome.decision)}
    if response.error is None and request.stream:
        events = without_usage_unless_asked(dialect, incoming.body, emit_events(outcome, dialect.name))
        media_type, data = streamed(dialect, events, as_array=incoming.endpoint.as_array)
        return Answer(status=200, media_type=media_type, body=data, headers=headers)
    status = 200 if response.error is None else response.error.status or 502
    return json_answer(status, emit(outcome, dialect.name), headers)


def _endpoint(path: str, query: str, headers: Mapping[str, str]) -> Endpoint:
    """The endpoint of a path, below whatever prefix the provider uses; Refusal if it cannot be judged."""
    pairs = query_of(query.encode("ascii", "replace"))
    for at in (slash.start() for slash in re.finditer("/", path)):
        endpoint = endpoint_of(path[at:], pairs, headers)
        if endpoint is not None:
            return endpoint
    raise nothing_there(path)


def _json(headers: Mapping[str, str], body: bytes) -> Any:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON or "content-encoding" in headers:
        raise Refusal(415, "http.media-type", "Only plain JSON can be judged, so this is not sent.")
    try:
        return loads(body)
    except DecodeError as error:
        raise of_unreadable(error) from None


# -- the response ------------------------------------------------------------------------------------------------------


def _read(got: Got, incoming: IncomingRequest, request: Request) -> Response:
    """The response, folded if it was a stream, or the error that it carries. Refusal 502 if it cannot be read."""
    dialect = incoming.endpoint.dialect
    adapter = adapters.get(dialect.name)
    kind = got.headers.get("content-type", "").partition(";")[0].strip().lower()
    if got.headers.get("content-encoding", "identity").lower() != "identity" or 300 <= got.status < 400:
        raise _unreadable()
    try:
        if kind in (SSE, NDJSON) and got.status == 200:
            reader = NdjsonReader() if kind == NDJSON else SseReader()
            events = [event for event in [*reader.feed(got.body), *reader.close()] if "data" in event]
            response = adapter.from_wire_response(adapter.fold_events(events), request)
            if response.error is None and not is_whole(response):
                raise Refusal(502, "upstream.cut", "The stream ended early.")
            return response if response.error is None else _failed(response, response.error, 502)
        if kind == JSON:
            response = adapter.from_wire_response(loads(got.body), request)
            if response.error is not None:
                return _failed(response, response.error, got.status if got.status >= 400 else 502)
            if got.status == 200:
                return response
    except CmfError as error:
        if error.code == CONTRADICTION:
            raise Refusal(502, CONTRADICTORY, CONTRADICTS) from None
    if got.status == 200:
        raise _unreadable()
    message = "The provider returned an error."
    kind = dialect.error_type(got.status)
    return Response(error=ErrorInfo(message=message, code="upstream.error", status=got.status, type=kind))


def _failed(response: Response, error: ErrorInfo, status: int) -> Response:
    return replace(response, error=replace(error, status=status))


def _unreadable() -> Refusal:
    return Refusal(502, "upstream.unreadable", "The provider's response cannot be read.")


Library = Literal["httpx2", "httpx"]
_LIBRARIES: Final[Mapping[str, Library]] = {"httpx2": "httpx2", "httpx": "httpx"}
# For an SDK's `websocket_base_url`: WebSockets bypass the HTTP client, and this scheme cannot be connected to.
NO_WEBSOCKETS: Final = "refused://websockets.are.not.judged"
_C = TypeVar("_C")
_OWN: Final = frozenset(
    {"content-length", "content-type", "transfer-encoding", "content-encoding", "accept-encoding", "expect"}
) | {*FORWARDED_HEADERS}


def transport(guard: Guard, inner: Any = None, *, library: Library = "httpx2") -> Any:
    """A transport for a blocking client: requests are judged before they are sent, responses before they are returned.

    Streams are held back until they are judged as a whole. A refusal looks like the provider's own 403 error, which
    SDKs do not retry. A request to a path that cannot be judged is never sent.

    Args:
        guard: the guard; subject and session come from the block around the call (`guard.session(…)`).
        inner: the transport that sends; by default the library's own.
        library: the client's library: `httpx2` or `httpx`.

    Raises:
        ConfigError: no guard, an inner transport of the other kind, or the library is not installed.
    """
    http = _library(guard, library)
    inner = http.HTTPTransport() if inner is None else inner
    _check_inner(inner, "handle_request", "use async_transport")

    async def done(step: Step, request: Any) -> Any:
        if isinstance(step, Judge):
            return guard.run(step.value, context=step.context)
        if isinstance(step, Release):
            return guard.release(step.approval_id)
        reply = inner.handle_request(_outgoing(http, request, step))
        body = bytearray()
        try:
            for piece in reply.stream:
                _add(body, piece)
        finally:
            reply.close()
        return _got(reply, body)

    class CmfTransport(http.BaseTransport):  # type: ignore[misc, name-defined]  # of whichever library it is
        def handle_request(self, request: Any) -> Any:
            return completed(_handled(http, request, request.read(), done))

        def close(self) -> None:
            inner.close()

    return CmfTransport()


def async_transport(guard: Guard, inner: Any = None, *, library: Library = "httpx2") -> Any:
    """`transport`, for an asyncio client."""
    http = _library(guard, library)
    inner = http.AsyncHTTPTransport() if inner is None else inner
    _check_inner(inner, "handle_async_request", "use transport")

    async def done(step: Step, request: Any) -> Any:
        if isinstance(step, Judge):
            return await guard.arun(step.value, context=step.context)
        if isinstance(step, Release):
            return await guard.arelease(step.approval_id)
        reply = await inner.handle_async_request(_outgoing(http, request, step))
        body = bytearray()
        try:
            async for piece in reply.stream:
                _add(body, piece)
        finally:
            await reply.aclose()
        return _got(reply, body)

    class CmfAsyncTransport(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]  # as above
        async def handle_async_request(self, request: Any) -> Any:
            return await _handled(http, request, await request.aread(), done)

        async def aclose(self) -> None:
            await inner.aclose()

    return CmfAsyncTransport()


async def _handled(http: Any, request: Any, body: bytes, done: Callable[[Step, Any], Awaitable[Any]]) -> Any:
    """The response to the client, once `done` has done all steps of the turn."""
    target = request.extensions.get("target", request.url.raw_path)  # the extension replaces the URL's on the wire
    raw, _, query = (target if isinstance(target, str) else target.decode("latin-1")).partition("?")
    headers = {name.lower(): text for name, text in request.headers.items()}
    steps = turn(request.method, raw, query, headers, body)
    try:
        step = next(steps)
        while True:
            try:
                result = await done(step, request)
            except (PipelineError, Refusal) as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        answer: Answer = end.value
        given = {**answer.headers, "content-type": answer.media_type}
        return http.Response(answer.status, headers=given, content=answer.body, request=request)


def wrap(client: _C, guard: Guard) -> _C:
    """A copy of the client, of the same type, that sends through a judging transport.

    For clients with `with_options(http_client=…)`: those of `openai` and `anthropic`, blocking and asyncio. It cannot
    open WebSockets. The configuration of the client's own HTTP client (proxies, hooks, certificates) is not copied:
    pass an inner transport to `transport` for that.

    Raises:
        ConfigError: another kind of client, or as `transport`.
    """
    own: Any = getattr(client, "_client", None)
    library = _LIBRARIES.get(type(own).__mro__[-2].__module__.partition(".")[0]) if own is not None else None
    with_options: Callable[..., _C] | None = getattr(client, "with_options", None)
    if library is None or with_options is None:
        raise ConfigError("not a client of a supported SDK", code="integration.client", hint="use transport")
    http = _library(guard, library)
    is_async = isinstance(own, http.AsyncClient)
    judging = (async_transport if is_async else transport)(guard, library=library)
    made = (http.AsyncClient if is_async else http.Client)(transport=judging, timeout=own.timeout, trust_env=False)
    refused = {"websocket_base_url": NO_WEBSOCKETS} if hasattr(client, "websocket_base_url") else {}
    return with_options(http_client=made, **refused)


def _library(guard: Guard, library: Library) -> Any:
    checked(guard)
    with needs("httpx"):
        return importlib.import_module(library)


def _check_inner(inner: Any, method: str, hint: str) -> None:
    if not hasattr(inner, method):
        raise ConfigError("the inner transport has the wrong type", code="integration.transport", hint=hint)


def _outgoing(http: Any, request: Any, step: Send) -> Any:
    """The request to send; without the headers that are set here, or were meant for us only."""
    headers = []
    for raw, text in request.headers.raw:
        name = raw.lower().decode("ascii")
        if name not in _OWN and not name.startswith("x-cmf-"):
            headers.append((raw, text))
    judged = {**step.headers, "content-type": JSON, "accept-encoding": "identity"}  # the body is rewritten, in UTF-8
    headers += [(name.encode(), text.encode()) for name, text in judged.items()]
    return http.Request(request.method, request.url, headers=headers, content=step.body, extensions=request.extensions)


def _add(body: bytearray, piece: bytes) -> None:
    body += piece
    if len(body) > MAX_REPLY_BYTES:
        raise Refusal(502, "upstream.too-large", "The provider's response is too large.")


def _got(reply: Any, body: bytearray) -> Got:
    return Got(reply.status_code, {name.lower(): text for name, text in reply.headers.items()}, bytes(body))


__all__ = ["NO_WEBSOCKETS", "Library", "async_transport", "transport", "wrap"]
