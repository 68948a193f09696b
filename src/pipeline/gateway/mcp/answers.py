"""Answers to MCP clients over HTTP: one JSON value, or a stream of messages. Spec: mcp-proxy.md [MCPX-62]."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from cmf.adapters.wire.sse import sse_bytes
from cmf.json.codec import dumps
from pipeline.gateway.http.client_response import Reply
from pipeline.gateway.http.refusal import Refusal
from pipeline.mcp.frames import INVALID_REQUEST
from pipeline.mcp.http_server import JSON, SESSION, SSE
from pipeline.mcp.refusals import Refused, error_body
from pipeline.run.offload import apart

_UNSTORED: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class McpReply(Reply):
    """The client's side of one HTTP request. `status` is 0 until the headers are sent."""

    status = 0

    def allow(self, origin: str) -> None:
        """Let a page of this origin read the answer (CORS)."""
        exposed = f"{SESSION}, x-request-id, x-cmf-code"
        self._headers |= {
            "access-control-allow-origin": origin, "access-control-expose-headers": exposed, "vary": "origin"
        }  # fmt: skip

    async def value(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send one JSON value, or no body for None. Raises ClientDisconnected, as every method here does."""
        data = b"" if body is None else await apart(dumps, body)
        own = {"content-length": str(len(data)), **(headers or {})} | ({} if body is None else {"content-type": JSON})
        await self._begin(status, own)
        await self._sent({"type": "http.response.body", "body": data})

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, as a JSON-RPC error without an id."""
        refused = Refused(INVALID_REQUEST, refusal.code, refusal.message)
        await self.value(refusal.status, error_body(None, refused), refusal.headers)

    async def messages(self, messages: AsyncIterator[dict[str, Any]], *, waits: bool) -> None:
        """Send messages as they arrive: as a stream, or as one JSON value if there is only an answer.

        Args:
            messages: all messages; the last is the answer to a call.
            waits: whether to wait for the first one, to tell which of both it is.
        """
        if waits:
            first = await anext(messages, None)
            if first is None or "method" not in first:
                await self.value(200, first if first is not None else error_body(None, _NOTHING))
                return
            await self._begin(200, {"content-type": SSE})
            await self._message(first)
        else:
            await self._begin(200, {"content-type": SSE})
            await self._sent({"type": "http.response.body", "body": b"", "more_body": True})
        async for body in messages:
            await self._message(body)
        await self._sent({"type": "http.response.body", "body": b""})

    async def _message(self, body: dict[str, Any]) -> None:
        data = await apart(sse_bytes, {"event": "message", "data": body})
        await self._sent({"type": "http.response.body", "body": data, "more_body": True})

    async def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        await self._sent(self._head(status, {**_UNSTORED, **headers}))


_NOTHING: Final = Refused(INVALID_REQUEST, "mcp.nothing", "Policy passes nothing of this on.")
