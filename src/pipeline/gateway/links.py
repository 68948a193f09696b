"""To which session an answer belongs that a client refers to later. Spec: docs/spec/gateway.md [GW-147] ff.

A link is a session of its own, named by a digest of the answer's id, that holds nothing but where to go on: every store
keeps it, for its subject alone. No client can name it: no session id of a client has `~` in it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from cmf.request import Response
from cmf.security import SubjectExtension
from pipeline.context import Context
from pipeline.errors import SessionError
from pipeline.gateway.refusal import Refusal
from pipeline.offload import Offload
from pipeline.session_state import Changes
from pipeline.sessions import SessionStore

if TYPE_CHECKING:
    from pipeline.gateway.exchange import Asked

DIALECT: Final = "openai_responses"
_KEY: Final = "session"
_KEEPER: Final = "gateway"


class Links:
    """Finds the session of an answer that a request goes on from, and keeps it for answers that go out.

    Args:
        sessions: where they are kept.
        makes: whether a request that names no session gets a new one, so that its answer can be referred to.
    """

    def __init__(self, sessions: SessionStore, *, makes: bool) -> None:
        self._sessions = sessions
        self._makes = makes
        self._offload = Offload(waits=sessions.waits)

    async def session(self, asked: Asked) -> str | None:
        """The session that the request belongs to: that of a header before all, then that of what it goes on from.

        What it goes on from has to be on record in that very session, or judgement refuses it [REF-3]: an answer of
        another subject or session, or one that was never judged here, leads nowhere.

        Raises:
            StoreError: the store cannot be asked.
        """
        if asked.session is not None or not _can_refer(asked):
            return asked.session
        named = _goes_on_from(asked.body)
        if named is None:
            return f"sess_{asked.request_id}" if self._makes and _is_kept(asked.body) else None
        facts = await self._offload(self._sessions.read, _link(asked.subject, named))
        return facts.tool_ids.get(_KEY, {}).get(_KEEPER)

    async def keep(self, asked: Asked, response: Response | None) -> None:
        """Keep to which session an answer belongs, before it goes out.

        Raises:
            Refusal: the upstream gave it the id of another answer. StoreError: it cannot be kept.
        """
        if asked.session is None or response is None or not _can_refer(asked) or not _is_kept(asked.body):
            return
        own = (response.extra or {}).get(DIALECT)
        named = own.get("id") if isinstance(own, dict) else None
        if not isinstance(named, str) or not named:
            return
        changes = Changes(tool_ids={_KEY: {_KEEPER: asked.session}})
        try:
            await self._offload(self._sessions.commit, _link(asked.subject, named), None, changes)
        except SessionError:
            # Whoever refers to the one would get the labels of the other.
            message = "The upstream gave this answer the id of another one."
            raise Refusal(502, "upstream.reused-id", message) from None

    def close(self) -> None:
        """Let go of the threads."""
        self._offload.close()


def _can_refer(asked: Asked) -> bool:
    """Whether what it says can go on from an answer: strangers would go on from each other's."""
    known = asked.subject is not None and asked.subject.id is not None
    return known and asked.endpoint.dialect.name == DIALECT and isinstance(asked.body, dict)


def _is_kept(body: Any) -> bool:
    return body.get("store") is not False


def _goes_on_from(body: Any) -> str | None:
    """The id of the answer that the request goes on from; empty for what no answer has, and so leads nowhere."""
    named = body.get("previous_response_id")
    if named is None:
        return None if body.get("conversation") is None else ""
    return named if isinstance(named, str) else ""


def _link(subject: SubjectExtension | None, named: str) -> Context:
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    return Context(subject=subject, session=f"~answer:{digest}")


__all__ = ["Links"]
