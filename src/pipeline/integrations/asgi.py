"""ASGI middleware: a guard session around each request, and refusals as responses. Spec: docs/spec/integrations.md.

app.add_middleware(CmfMiddleware, guard=guard, subject=lambda scope: scope["user"].claims)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from cmf.errors import CmfError
from cmf.json.codec import dumps
from cmf.message.security import SubjectExtension
from pipeline.decisions.context import as_subject
from pipeline.decisions.errors import ConfigError, DecisionError
from pipeline.gateway.http.client_response import head
from pipeline.gateway.http.incoming import SESSION_HEADER, Receive, Scope, Send, headers_of, session_of
from pipeline.gateway.http.refusal import Refusal, of_decision
from pipeline.guard import Guard, Subject
from pipeline.integrations.judged_calls import checked

_log: Final = logging.getLogger(__name__)
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Who = Callable[[Mapping[str, Any]], Subject | None]


class CmfMiddleware:
    """Everything that the guard judges during a request runs under the request's subject and session.

    Args:
        app: the application.
        guard: the guard that the application's tools, models or transport use.
        subject: maps the ASGI scope to the subject that the host authenticated; None is anonymous. If it raises, or
            returns anything else, the response is 401, the error is logged, and the application is not called.
        session: the session id for a request that names none; None for no session.

    Raises:
        ConfigError: no guard, or `subject` is missing.
    """

    def __init__(
        self,
        app: App,
        *,
        guard: Guard,
        subject: Who,
        session: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        if not callable(subject):
            raise ConfigError("`subject` is missing", code="integration.no-subject", hint="give `subject`")
        self._app = app
        self._guard = checked(guard)
        self._subject = subject
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; lifespan events pass through."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sent(event: Any) -> None:
            nonlocal begun
            begun = True
            await send(event)

        try:
            subject, session = self._subject_of(scope)
            async with self._guard.session(session, subject=subject):
                await self._app(scope, receive, sent)
        except DecisionError as error:
            if begun:
                raise
            await _refuse(scope, send, of_decision(error))
        except ExceptionGroup as group:  # from a task group: the application makes calls concurrently
            refused, others = group.split(DecisionError)
            if begun or refused is None or others is not None:
                raise
            await _refuse(scope, send, of_decision(_first(refused)))
        except Refusal as refusal:
            await _refuse(scope, send, refusal)

    def _subject_of(self, scope: Scope) -> tuple[SubjectExtension | None, str]:
        named = [(name, value) for name, value in scope["headers"] if name.lower() == SESSION_HEADER.encode()]
        session = session_of(headers_of(named))
        try:
            given = self._subject(scope)
            subject = None if given is None else as_subject(given)
        except Exception as error:  # noqa: BLE001  (whatever it raises, the subject is unknown)
            _log.warning(
                "the subject cannot be determined: %s", error if isinstance(error, CmfError) else type(error).__name__
            )
            raise Refusal(401, "auth.unknown", "The subject cannot be determined.") from None
        if session is None and self._session is not None:
            session = self._session(scope)
        if session is None:
            raise Refusal(400, "session.none", f"Name a session in {SESSION_HEADER}.")
        return subject, session


def _first(refused: ExceptionGroup[DecisionError]) -> DecisionError:
    first = refused.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


_WEBSOCKET_POLICY: Final = 1008


async def _refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _WEBSOCKET_POLICY, "reason": refusal.code})
        return
    body = dumps({"error": {"code": refusal.code, "message": refusal.message}})
    headers = {"content-type": "application/json", "x-cmf-code": refusal.code, **refusal.headers}
    await send(head(refusal.status, {**headers, "content-length": str(len(body))}))
    await send({"type": "http.response.body", "body": body})


__all__ = ["CmfMiddleware", "Who"]
