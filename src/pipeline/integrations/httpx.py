"""An HTTP transport that judges what a provider's SDK sends and receives. Spec: docs/spec/integrations.md.

client = openai.OpenAI(http_client=httpx2.Client(transport=transport(guard)))
client = wrap(anthropic.Anthropic(), guard)  # the same client type, with such a transport
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

from pipeline.decisions.errors import ConfigError, PipelineError, needs
from pipeline.gateway.http.dialects import JSON
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.proxy.proxy import FORWARDED_HEADERS
from pipeline.guard import Guard
from pipeline.integrations.judged_calls import checked
from pipeline.integrations.turn import MAX_REPLY_BYTES, Answered, Got, Judge, Release, Send, Step, turn

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
    if not hasattr(inner, "handle_request"):
        raise ConfigError(
            "the inner transport has the wrong type", code="integration.transport", hint="use async_transport"
        )

    class CmfTransport(http.BaseTransport):  # type: ignore[misc, name-defined]  # of whichever library it is
        def handle_request(self, request: Any) -> Any:
            steps = turn(*_request_parts(request, request.read()))
            try:
                step = next(steps)
                while True:
                    try:
                        response = self._done(step, request)
                    except (PipelineError, Refusal) as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(response)
            except StopIteration as end:
                return _response(http, request, end.value)

        def _done(self, step: Step, request: Any) -> Any:
            if isinstance(step, Judge):
                return guard.run(step.value, context=step.context)
            if isinstance(step, Release):
                return guard.release(step.approval_id)
            reply = inner.handle_request(_outgoing(http, request, step))
            try:
                return _got(reply, b"".join(_bounded(reply.stream)))
            finally:
                reply.close()

        def close(self) -> None:
            inner.close()

    return CmfTransport()


def async_transport(guard: Guard, inner: Any = None, *, library: Library = "httpx2") -> Any:
    """`transport`, for an asyncio client."""
    http = _library(guard, library)
    inner = http.AsyncHTTPTransport() if inner is None else inner
    if not hasattr(inner, "handle_async_request"):
        raise ConfigError("the inner transport has the wrong type", code="integration.transport", hint="use transport")

    class CmfAsyncTransport(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]  # as above
        async def handle_async_request(self, request: Any) -> Any:
            steps = turn(*_request_parts(request, await request.aread()))
            try:
                step = next(steps)
                while True:
                    try:
                        response = await self._done(step, request)
                    except (PipelineError, Refusal) as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(response)
            except StopIteration as end:
                return _response(http, request, end.value)

        async def _done(self, step: Step, request: Any) -> Any:
            if isinstance(step, Judge):
                return await guard.arun(step.value, context=step.context)
            if isinstance(step, Release):
                return await guard.arelease(step.approval_id)
            reply = await inner.handle_async_request(_outgoing(http, request, step))
            try:
                return _got(reply, b"".join([piece async for piece in _abounded(reply.stream)]))
            finally:
                await reply.aclose()

        async def aclose(self) -> None:
            await inner.aclose()

    return CmfAsyncTransport()


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
    made: Callable[..., Any]
    if isinstance(own, http.AsyncClient):
        made = http.AsyncClient
        judging = async_transport(guard, library=library)
    else:
        made = http.Client
        judging = transport(guard, library=library)
    refused = {"websocket_base_url": NO_WEBSOCKETS} if hasattr(client, "websocket_base_url") else {}
    return with_options(http_client=made(transport=judging, timeout=own.timeout, trust_env=False), **refused)


def _library(guard: Guard, library: Library) -> Any:
    checked(guard)
    with needs("httpx"):
        return importlib.import_module(library)


def _request_parts(request: Any, body: bytes) -> tuple[str, str, str, dict[str, str], bytes]:
    target = request.extensions.get("target", request.url.raw_path)  # the extension replaces the URL's on the wire
    raw, _, query = (target if isinstance(target, str) else target.decode("latin-1")).partition("?")
    return request.method, raw, query, {name.lower(): text for name, text in request.headers.items()}, body


def _outgoing(http: Any, request: Any, step: Send) -> Any:
    headers = [(name, text) for name, text in request.headers.raw if not _is_own(name.lower().decode("ascii"))]
    judged = {**step.headers, "content-type": JSON, "accept-encoding": "identity"}  # the body is rewritten, in UTF-8
    headers += [(name.encode(), text.encode()) for name, text in judged.items()]
    return http.Request(request.method, request.url, headers=headers, content=step.body, extensions=request.extensions)


def _is_own(name: str) -> bool:
    """Whether the header is set here, or was meant for us only."""
    return name in _OWN or name.startswith("x-cmf-")


def _bounded(stream: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in stream:
        size += len(piece)
        _check(size)
        yield piece


async def _abounded(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for piece in stream:
        size += len(piece)
        _check(size)
        yield piece


def _check(size: int) -> None:
    if size > MAX_REPLY_BYTES:
        raise Refusal(502, "upstream.too-large", "The provider's response is too large.")


def _got(reply: Any, body: bytes) -> Got:
    return Got(reply.status_code, {name.lower(): text for name, text in reply.headers.items()}, body)


def _response(http: Any, request: Any, answered: Answered) -> Any:
    return http.Response(answered.status, headers=dict(answered.headers), content=answered.body, request=request)


__all__ = ["NO_WEBSOCKETS", "Library", "async_transport", "transport", "wrap"]
