"""The sessions of MCP clients with one server: found or refused, never guessed. Spec: mcp-proxy.md [MCPX-65] ff."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from cmf.message.security import SubjectExtension
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.gateway.config.mcp_settings import McpServer
from pipeline.gateway.http.refusal import Refusal, later
from pipeline.mcp.http_server import HttpServer
from pipeline.mcp.link import Link, Memory


@dataclass(slots=True)
class McpSession:
    """One client's session: its link, and the session with the server behind it."""

    link: Link
    server: HttpServer
    context: Context
    used: float = 0.0
    listens: bool = False
    id: str = ""


class McpSessions:
    """The sessions with one server, by the id given to the client.

    Args:
        clock: monotonic seconds. settings: how many there may be, and how long they may be idle.
    """

    def __init__(self, clock: Callable[[], float], settings: McpServer) -> None:
        self._clock = clock
        self._settings = settings
        self._sessions: dict[str, McpSession] = {}
        self._memories: OrderedDict[SessionKey, Memory] = OrderedDict()

    def begin(self, session: McpSession) -> str:
        """Keep a new session, and return its id: 256 random bits."""
        session.id = secrets.token_urlsafe(32)
        session.used = self._clock()
        self._sessions[session.id] = session
        return session.id

    def find(self, id: str | None, subject: SubjectExtension | None) -> McpSession:
        """The session with this id, now with the client's current subject.

        Raises:
            Refusal: 400 without an id; 404 for an unknown one, or another subject's.
        """
        if id is None:
            raise Refusal(400, "mcp.no-session", "Send the session's id in Mcp-Session-Id.")
        session = self._sessions.get(id)
        now = self._clock()
        if session is None or session.used + self._settings.idle_seconds < now or not _is_of(session, subject):
            raise Refusal(404, "mcp.unknown-session", "This session is not known: initialize a new one.")
        session.used = now
        session.context = session.context.model_copy(update={"subject": subject})
        session.link.renew(session.context)
        return session

    def memory(self, context: Context) -> Memory:
        """What this client's later requests depend on, where each request stands alone."""
        key = session_key(context)
        memory = self._memories.setdefault(key, Memory())
        self._memories.move_to_end(key)
        while len(self._memories) > self._settings.sessions:
            self._memories.popitem(last=False)
        return memory

    def check_room(self, subject: SubjectExtension | None) -> None:
        """Refusal 429 if the subject has its maximum of sessions, 503 if the server has its own."""
        own = self._settings.subject_sessions
        if sum(_is_of(session, subject) for session in self._sessions.values()) >= own:
            message = f"You have {own} sessions here, the most for one subject: end one of them (DELETE)."
            raise Refusal(429, "mcp.too-many-sessions", message, headers=later())
        if len(self._sessions) >= self._settings.sessions:
            raise Refusal(503, "mcp.busy", "Too many sessions: try again.", headers=later())

    def forget(self, id: str) -> None:
        """Drop a session."""
        self._sessions.pop(id, None)

    def idle(self) -> list[McpSession]:
        """Drop the sessions that were idle too long, and return them."""
        end = self._clock() - self._settings.idle_seconds
        old = [session for session in self._sessions.values() if session.used < end and not session.listens]
        for session in old:
            self.forget(session.id)
        return old

    def all(self) -> list[McpSession]:
        """Drop all sessions, and return them."""
        left = list(self._sessions.values())
        self._sessions.clear()
        return left


def _is_of(session: McpSession, subject: SubjectExtension | None) -> bool:
    return session_key(session.context).subject == session_key(Context(subject=subject)).subject
