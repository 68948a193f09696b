"""What a judged request is sent to, and what its failures mean for the client. Spec: gateway.md [GW-40] ff."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol

from cmf.adapters.wire.stream import StreamEvent
from cmf.message.request import ErrorInfo, Request, Response
from pipeline.gateway.http.refusal import FINAL, Refusal, later, retry_after

REQUEST: Final[ContextVar[str]] = ContextVar("request", default="-")
"""The id of the request that is being answered, for log lines about its upstream."""


class StreamObserver(Protocol):
    """Follows a reply while it arrives."""

    def observe(self, event: StreamEvent) -> None:
        """Take note of an event."""
        ...

    async def pause(self, so_far: Callable[[], Response]) -> None:
        """Act on what was received so far, before more is read. `so_far` gives the reply up to here."""
        ...


class Upstream(Protocol):
    """A provider, or a script in place of one."""

    @property
    def target(self) -> str:
        """The format in which it takes requests, as for `pipeline.run.emit.emit`."""
        ...

    @property
    def provider(self) -> str:
        """The prefix of its model ids, as in `openai:gpt-4o`."""
        ...

    def knows(self, model: str, /) -> bool:
        """Whether this is the upstream's own name of the model, and not a synonym that rules and routes would miss."""
        ...

    async def ask(self, request: Request, body: Any, live: StreamObserver | None, /) -> Response:
        """The reply to `body`, the emitted form of `request`; an error reply has a status.

        `live` follows a stream while it arrives.

        Raises:
            UpstreamError: no reply, or an unreadable one. What `live` raises is passed on, and ends the call.
        """
        ...

    async def open(self) -> None:
        """Open connections, within the running event loop."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class UpstreamError(Exception):
    """No usable reply: `status` (502 to 504) and `message` are for the client, `why` is for the operator's log."""

    def __init__(self, status: int, code: str, message: str, *, why: str = "", wait: int | None = None) -> None:
        super().__init__(code)
        self.wait = later() if wait is None and status == 503 else retry_after(wait)
        self.why = why
        self.status = status
        self.code = code
        self.message = message

    def refusal(self) -> Refusal:
        """The error as the client sees it."""
        return Refusal(self.status, self.code, self.message, headers=self.wait)


_FAILED: Final = "The upstream replied with an error."
ACCOUNT: Final = "upstream.account"
CONTRADICTORY: Final = "upstream.contradiction"
CONTRADICTS: Final = "The upstream's stream contradicts itself: an event tells of another tool call than its answer."
_ACCOUNT_STATUSES: Final = frozenset({401, 402, 403})
_ACCOUNT_FAILED: Final = "The upstream does not accept this gateway's key, or its account: its operator has to act."
# The client's status by the upstream's. An upstream's 401 is about our key, not about the client's.
# What is not here is 400 for any other 4xx, and 502 for the rest.
_STATUS: Final = {401: 502, 402: 502, 403: 502, 404: 404, 408: 502, 410: 404, 413: 413, 429: 429, 503: 503, 529: 503}

_CODES: Final = {
    400: "upstream.invalid",
    404: "upstream.not-found",
    413: "upstream.too-large",
    429: "upstream.rate-limit",
}


def client_status(status: int) -> int:
    """The status that the client gets where an upstream replied with `status`."""
    return _STATUS.get(status, 400 if 400 <= status < 500 else 502)


def error_code(status: int) -> str:
    """The stable code of an upstream's error, by the client's status."""
    return _CODES.get(status, "upstream.error")


def retryable_error(response: Response) -> Refusal | None:
    """The refusal for an error that another upstream may not have (5xx, 429, an unknown model); None for any other."""
    error = response.error
    status = 0 if error is None else error.status or 502
    if status < 500 and status not in (404, 429):
        return None
    wait = None if error is None else error.retry_after_seconds
    if error is not None and error.code == ACCOUNT:
        return Refusal(status, ACCOUNT, _ACCOUNT_FAILED, headers=FINAL)
    return UpstreamError(status, error_code(status), _FAILED, wait=wait).refusal()


def error_of(status: int, wire_error: ErrorInfo | None, wait: int | None = None) -> Response:
    """An upstream's error as a response, so that it is judged like everything else from there.

    Its message is kept where it is about the request. What it says of itself or of our key is not for clients. `wait`,
    the seconds after which to try again, is kept where the client gets 429 or 503.
    """
    our_status = client_status(status)
    if status in _ACCOUNT_STATUSES:
        return Response(error=ErrorInfo(message=_ACCOUNT_FAILED, code=ACCOUNT, status=our_status))
    message = wire_error.message if wire_error is not None and our_status < 500 else None
    wait = wait if our_status in (429, 503) else None
    return Response(
        error=ErrorInfo(
            message=message or _FAILED, code=error_code(our_status), status=our_status, retry_after_seconds=wait
        )
    )
