"""What answers requests that were let through, and what it means when it does not. Spec: gateway.md [GW-40] ff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from cmf.adapters.stream import StreamEvent
from cmf.request import ErrorInfo, Request, Response
from pipeline.gateway.refusal import Refusal, later


class Live(Protocol):
    """Who follows an answer while it arrives."""

    def hear(self, event: StreamEvent) -> None:
        """Take in what arrived."""
        ...

    async def pause(self, so_far: Callable[[], Response]) -> None:
        """All that arrived was heard: the time to do something about it. `so_far` is the answer as far as it came."""
        ...


class Upstream(Protocol):
    """A provider, or what plays one."""

    @property
    def target(self) -> str:
        """The format in which it takes requests, as for `pipeline.emission.emit`."""
        ...

    @property
    def provider(self) -> str:
        """The key before the ids of its models."""
        ...

    def knows(self, model: str, /) -> bool:
        """Whether that is what it calls the model, and no second name, of which no route or rule knows."""
        ...

    async def ask(self, request: Request, body: Any, live: Live | None, /) -> Response:
        """The answer to `body`, which is what was emitted of `request`; its error, where it says one, with a status.

        `live` is told of a stream while it arrives.

        Raises:
            UpstreamError: there is no answer, or none that can be read. What `live` raises ends the answer.
        """
        ...

    async def open(self) -> None:
        """Begin, within the running loop."""
        ...

    async def close(self) -> None:
        """Let go of its connections."""
        ...


class UpstreamError(Exception):
    """There is no answer: `status` is what the client is told, 502 to 504; `why` is for the log of whoever runs it."""

    def __init__(self, status: int, code: str, message: str, *, why: str = "") -> None:
        super().__init__(code)
        self.why = why
        self.status = status
        self.code = code
        self.message = message

    def refusal(self) -> Refusal:
        """What the client is told."""
        return Refusal(self.status, self.code, self.message, headers=later() if self.status == 503 else {})


_TROUBLE: Final = "The upstream gave an error instead of an answer."
# What an upstream's status is to the client. Its 401 is about our key and not the client's.
_STATUS: Final = {400: 400, 402: 502, 401: 502, 403: 502, 404: 404, 413: 413, 422: 400, 429: 429, 503: 503, 529: 503}

_CODES: Final = {
    400: "upstream.invalid",
    404: "upstream.not-found",
    413: "upstream.too-large",
    429: "upstream.rate-limit",
}


def client_status(status: int) -> int:
    """What the client is told where an upstream answered with `status`."""
    return _STATUS.get(status, 400 if 400 <= status < 500 else 502)


def error_code(status: int) -> str:
    """The stable code of an upstream's error, by what the client is told."""
    return _CODES.get(status, "upstream.error")


def is_trouble(response: Response) -> Refusal | None:
    """What the client is told where it is the upstream's own trouble, and another may do better; None where not."""
    error = response.error
    status = 0 if error is None else error.status or 502
    if status < 500 and status != 429:
        return None
    return UpstreamError(status, error_code(status), _TROUBLE).refusal()


def error_of(status: int, said: ErrorInfo | None) -> Response:
    """An upstream's error as a response, so that it is judged like everything else that comes from there.

    What it says of a request is kept; of its own trouble, and of our key, nothing: that is no client's business.
    """
    told = client_status(status)
    message = said.message if said is not None and told < 500 else None
    return Response(error=ErrorInfo(message=message or _TROUBLE, code=error_code(told), status=told))


__all__ = ["Live", "Upstream", "UpstreamError", "client_status", "error_code", "error_of", "is_trouble"]
