"""An answer on its way to the client, whole or in pieces. Spec: docs/spec/gateway.md [GW-30], [GW-76]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.decision import Decision
from pipeline.gateway.http.dialects import JSON
from pipeline.gateway.http.incoming import ClientDisconnected, Event, Send, SharedTimeout

_UNFIT: Final = re.compile(r"[^ -~]")  # in a header; the code of a rule may be any text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer, as the gateway wrote it."""

    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str]


def json_answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer whose body is this value as JSON."""
    return Answer(status=status, media_type=JSON, body=dumps(body), headers=headers or {})


def decision_headers(decision: Decision) -> dict[str, str]:
    """The headers that name the decision behind an answer."""
    return {"x-cmf-decision-id": decision.id, "x-cmf-verdict": decision.verdict.value}


class Reply:
    """The client's side of one request.

    Args:
        timeout: how long a client may leave what was sent unread.

    Attributes:
        begun: whether the head of an answer was sent, so that there can be no other.
        over: whether its last piece was sent, or at least begun.
        status, code, decision: of the answer, or of the refusal that ended a stream, for the access log and counters.
        route, dialect: of the request, for the same. upstream: the name of the upstream asked last.
    """

    begun = over = False
    status = 0
    code: str | None = None
    route = dialect = upstream = decision = "-"

    def __init__(self, send: Send, headers: Mapping[str, str], *, timeout: SharedTimeout) -> None:
        self._send = send
        self._headers = dict(headers)
        self._timeout = timeout

    async def whole(self, answer: Answer) -> None:
        """Send a whole answer. Raises ClientDisconnected, as every method here does."""
        self.code = answer.headers.get("x-cmf-code", self.code)
        self.decision = answer.headers.get("x-cmf-decision-id", "-")
        length = {"content-length": str(len(answer.body))}
        start = self._start(answer.status, answer.media_type, {**answer.headers, **length})
        await self._sent(start, {"type": "http.response.body", "body": answer.body})

    async def piece(self, data: bytes, media_type: str, decision: Decision) -> None:
        """Send a piece; the first one sends status 200 and the headers too."""
        body: Event = {"type": "http.response.body", "body": data, "more_body": True}
        if self.begun:
            await self._sent(body)
            return
        self.decision = decision.id
        headers = {"x-accel-buffering": "no", **decision_headers(decision)}  # nginx would hold the pieces back
        await self._sent(self._start(200, media_type, headers), body)

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece."""
        self.over = True
        await self._sent({"type": "http.response.body", "body": data})

    def _start(self, status: int, media_type: str, headers: Mapping[str, str]) -> Event:
        return self._head(status, {"content-type": media_type, "cache-control": "no-store", **headers})

    def _head(self, status: int, headers: Mapping[str, str]) -> Event:
        self.status = status
        return head(status, {**headers, **self._headers})

    async def _sent(self, *events: Event) -> None:
        try:
            with self._timeout.block():
                for event in events:
                    await self._send(event)
                    self.begun = True
        except (TimeoutError, OSError):
            raise ClientDisconnected from None


def head(status: int, headers: Mapping[str, str]) -> Event:
    """What begins an answer."""
    raw = [(name.encode("latin-1"), _UNFIT.sub("?", text).encode("ascii")) for name, text in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": raw}
