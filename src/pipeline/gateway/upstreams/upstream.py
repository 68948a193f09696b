"""What a judged request is sent to, and what its failures mean for the client. Spec: gateway.md [GW-40] ff."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from cmf.adapters.wire.stream import StreamEvent
from cmf.message.request import ErrorInfo, Request, Response
from pipeline.gateway.http.refusal import FINAL, Refusal, later, retry_after

_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"  # a host with several addresses refuses in a text alone
_PORTS: Final = {"http": 80, "https": 443}


_INTERNAL: Final = (".local", ".internal", ".lan", ".svc", ".localhost", ".home.arpa", ".test", ".example")


class ConnectionResult(NamedTuple):
    """The result in words; `hint` says what to do, and is empty if the connection was made."""

    message: str
    hint: str = ""


def is_plain_over_networks(url: str) -> bool:
    """Whether `url` is http to a host that, by name or address, is neither this machine nor in a private network."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    if parts.scheme != "http":
        return False
    try:
        return ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(_INTERNAL)


async def check_connection(url: str, *, seconds: float) -> ConnectionResult:
    """Connect to the host of `url`, without a proxy of the environment, as requests to it do."""
    parts = urlsplit(url)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, UnicodeError) as error:  # TimeoutError and those of TLS are among them
        return failure_of(error, seconds)
    secured = writer.get_extra_info("ssl_object")
    writer.transport.abort()
    version = "no TLS" if secured is None else secured.version()
    return ConnectionResult(f"connected in {(time.monotonic() - began) * 1000:.0f} ms, {version}")


def failure_of(error: Exception, seconds: float) -> ConnectionResult:
    """Why no connection was made within `seconds`, and what to check."""
    match error:
        case TimeoutError():
            return ConnectionResult(
                f"no connection within {seconds:g} seconds", "check firewalls between here and there"
            )
        case ssl.SSLCertVerificationError():
            why = f"its certificate is not trusted: {error.verify_message}"
            return ConnectionResult(why, "trust its issuer on this machine (SSL_CERT_FILE), or check the address")
        case ssl.SSLError():
            return ConnectionResult("the TLS handshake failed", "check that the port is one for https")
        case socket.gaierror():
            return ConnectionResult("its host name is unknown", "check the address, and this machine's DNS")
        case _ if _REFUSED in str(error):
            return ConnectionResult("nothing listens there", "check host and port, and that it runs")
        case _:
            return ConnectionResult(
                f"it cannot be reached ({type(error).__name__})", "check the address and the network"
            )


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


class UpstreamError(Refusal):
    """No usable reply, as the client sees it (502 to 504); `why` is for the operator's log."""

    def __init__(self, status: int, code: str, message: str, *, why: str = "", wait: int | None = None) -> None:
        headers = later() if wait is None and status == 503 else retry_after(wait)
        super().__init__(status, code, message, headers=headers)
        self.why = why


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


def retryable_error(response: Response) -> Refusal | None:
    """The refusal for an error that another upstream may not have (5xx, 429, an unknown model); None for any other."""
    error = response.error
    status = 0 if error is None else error.status or 502
    if status < 500 and status not in (404, 429):
        return None
    wait = None if error is None else error.retry_after_seconds
    if error is not None and error.code == ACCOUNT:
        return Refusal(status, ACCOUNT, _ACCOUNT_FAILED, headers=FINAL)
    return UpstreamError(status, _CODES.get(status, "upstream.error"), _FAILED, wait=wait)


def error_of(status: int, wire_error: ErrorInfo | None, wait: int | None = None) -> Response:
    """An upstream's error as a response, so that it is judged like everything else from there.

    Its message is kept where it is about the request. What it says of itself or of our key is not for clients. `wait`,
    the seconds after which to try again, is kept where the client gets 429 or 503.
    """
    ours = client_status(status)
    if status in _ACCOUNT_STATUSES:
        return Response(error=ErrorInfo(message=_ACCOUNT_FAILED, code=ACCOUNT, status=ours))
    message = (wire_error.message if wire_error is not None and ours < 500 else None) or _FAILED
    wait, code = wait if ours in (429, 503) else None, _CODES.get(ours, "upstream.error")
    return Response(error=ErrorInfo(message=message, code=code, status=ours, retry_after_seconds=wait))
