"""An answer on its way to the client: at once, or piece by piece. Spec: docs/spec/gateway.md [GW-30], [GW-76]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.decision import Decision
from pipeline.gateway.intake import ClientGone, Event, Send
from pipeline.gateway.timeouts import SharedTimeout

_UNFIT: Final = re.compile(r"[^ -~]")  # in a header: the code that a rule gives may be any text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the client gets: bytes that were made here."""

    status: int
    media_type: str
    body: bytes
    headers: Mapping[str, str]


def decision_headers(decision: Decision) -> dict[str, str]:
    """What an answer's headers say of the decision behind it."""
    return {"x-cmf-decision-id": decision.id, "x-cmf-verdict": decision.verdict.value}


class Reply:
    """The client's end of one request.

    Args:
        send: the server's.
        headers: what every answer to this request has.
        timeout: how long a client may take nothing of what is there for it.
    """

    def __init__(self, send: Send, headers: Mapping[str, str], *, timeout: SharedTimeout) -> None:
        self._send = send
        self._headers = dict(headers)
        self._timeout = timeout
        self.begun = False
        self.decision: str | None = None
        self.code: str | None = None  # why it ended otherwise than it began

    async def whole(self, answer: Answer) -> None:
        """Send it, as a whole. Raises ClientGone, as all here do."""
        length = {"content-length": str(len(answer.body))}
        start = self._start(answer.status, answer.media_type, {**answer.headers, **length})
        await self._sent(start, {"type": "http.response.body", "body": answer.body})

    async def piece(self, data: bytes, media_type: str, decision: Decision) -> None:
        """Send some of it; with the first piece the status, which is 200, and the headers are out."""
        body: Event = {"type": "http.response.body", "body": data, "more_body": True}
        if self.begun:
            await self._sent(body)
            return
        self.begun = True
        self.decision = decision.id
        await self._sent(self._start(200, media_type, decision_headers(decision)), body)

    async def end(self, data: bytes = b"") -> None:
        """Send the last of it."""
        await self._sent({"type": "http.response.body", "body": data})

    def _start(self, status: int, media_type: str, headers: Mapping[str, str]) -> Event:
        return self._head(status, {"content-type": media_type, "cache-control": "no-store", **headers})

    def _head(self, status: int, headers: Mapping[str, str]) -> Event:
        own = {**headers, **self._headers}
        raw = [(name.encode("latin-1"), _UNFIT.sub("?", text).encode("ascii")) for name, text in own.items()]
        return {"type": "http.response.start", "status": status, "headers": raw}

    async def _sent(self, *events: Event) -> None:
        try:
            with self._timeout.block():
                for event in events:
                    await self._send(event)
        except (TimeoutError, OSError):
            raise ClientGone from None


__all__ = ["Answer", "Reply", "decision_headers"]
