"""The operators' port: probes, metrics, admin actions, the review site. Spec: [GW-150] ff."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pipeline.gateway.auth.identity import hash_of, is_own_name, presented_in
from pipeline.gateway.http.client_response import Answer, head, json_answer
from pipeline.gateway.http.incoming import Receive, Scope, Send, headers_of, lifespan, path_of
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.operations.metrics import MEDIA_TYPE
from pipeline.gateway.operations.operations import Operations

REVIEW: Final = "/review"
RELOAD: Final = "/admin/reload"
BY: Final = "x-cmf-by"
"""The header by which one process of a gateway tells another who asked: a percent-encoded id."""

App: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class AdminApp:
    """The operators' port, as an ASGI application.

    Args:
        admins: the admins, by the hashes of their keys; None if everybody who reaches the port may act, for whoever
            `BY` names.
        hosts: the host names under which it answers, besides IP addresses and `localhost`; None for any, on a socket
            that no browser reaches.

    Attributes:
        is_ending: whether the gateway is shutting down, so that no client should be sent to it.
    """

    def __init__(
        self,
        operations: Operations,
        admins: Mapping[str, str] | None,
        review: App | None = None,
        *,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._hosts = hosts
        self._operations = operations
        self._review = review
        self._admins = None if admins is None else dict(admins)
        self.is_ending: Callable[[], bool] = lambda: False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the server's startup and shutdown."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] == "http":
            is_review = self._review is not None and f"{scope['path']}/".startswith(f"{REVIEW}/")
            try:
                self._check_page(scope, is_review=is_review)
                if self._review is not None and is_review:
                    await self._review({**scope, "root_path": REVIEW}, receive, send)
                    return
                answer = await self._answer(scope)
            except Refusal as refusal:
                error = {"code": refusal.code, "message": refusal.message}
                answer = json_answer(refusal.status, {"error": error}, refusal.headers)
            size = str(len(answer.body))
            own = {"content-type": answer.media_type, "content-length": size, "cache-control": "no-store"}
            await send(head(answer.status, {**own, **answer.headers}))
            await send({"type": "http.response.body", "body": answer.body})

    def _check_page(self, scope: Scope, *, is_review: bool) -> None:
        """Refuse what pages in a browser send; the review site has pages of its own, and looks at `Origin` [GW-168]."""
        if self._hosts is None:
            return
        headers = headers_of(pair for pair in scope["headers"] if pair[0] in (b"host", b"origin"))
        if not is_own_name(headers, self._hosts, or_address=True):
            message = "This port is not served under this host name: list it in `admin.hosts`."
            raise Refusal(421, "http.host", message)
        if "origin" in headers and not is_review:
            raise Refusal(403, "http.origin", "Pages in a browser may not ask here.")

    async def _answer(self, scope: Scope) -> Answer:
        path, method = path_of(scope), scope["method"]
        wanted = _METHODS.get(path)
        if wanted is None:
            raise Refusal(404, "route.unknown", "Nothing is served at this path.")
        if method not in wanted:
            raise Refusal(405, "http.method", f"Use {wanted[0]}.", headers={"allow": ", ".join(wanted)})
        if path == "/readyz" and self.is_ending():
            return json_answer(503, {"status": "ending"})
        if path != RELOAD:
            return await probed(self._operations, path)
        by = self._admitted(headers_of(scope["headers"]))
        entries = await self._operations.reload(by=by)
        refused = any("refused" in entry for entry in entries)
        return json_answer(409 if refused else 200, {"policies": entries})

    def _admitted(self, headers: Mapping[str, str]) -> str | None:
        """The admin who asks; None if unknown."""
        if self._admins is None:
            return unquote(headers.get(BY, "")) or None
        presented = {hash_of(key) for key in presented_in(headers)}
        if len(presented) != 1:
            message = "Present an admin's key." if self._admins else "Nobody may: the settings have no `admin.keys`."
            raise Refusal(401, "auth.missing", message, headers={"www-authenticate": "Bearer"})
        own = presented.pop()
        admins = [who for admin, who in self._admins.items() if hmac.compare_digest(own, admin)]
        if not admins:
            raise Refusal(403, "auth.no-admin", "This is not an admin's key.")
        return admins[0]


_READ: Final = ("GET", "HEAD")
_METHODS: Final = {"/metrics": _READ, "/healthz": _READ, "/readyz": _READ, RELOAD: ("POST",)}


async def probed(operations: Operations, path: str, *, shown: Collection[str] | None = None) -> Answer:
    """The answer to a probe; of readiness with what is `shown`, or all of it."""
    if path == "/metrics":
        text = await operations.metrics()
        return Answer(status=200, media_type=MEDIA_TYPE, body=text.encode(), headers={})
    if path == "/healthz":
        return json_answer(200, {"status": "ok"})
    is_ready, report = await operations.ready()
    if shown is not None:
        report = {name: report[name] for name in shown if name in report}
    return json_answer(200 if is_ready else 503, report)
