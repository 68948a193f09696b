"""Links from the id of an answer to its session, for requests that go on from the answer (`previous_response_id`).

A link is kept as a session of its own, so that every store can keep it, for its subject alone. Its name is a digest of
the answer's id, and all it holds is the id of the session. No client can name it, since session ids of clients have no
`~`. Spec: docs/spec/gateway.md [GW-147] ff.
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
    """Finds the session that a request goes on in, and keeps that of each answer that goes out.

    Args:
        sessions: where links are kept.
        makes: whether a request that names no session gets a new one, so that its answer can be referred to.
    """

    def __init__(self, sessions: SessionStore, *, makes: bool) -> None:
        self._sessions = sessions
        self._makes = makes
        self._offload = Offload(waits=sessions.waits)

    async def session(self, asked: Asked) -> str | None:
        """The session that the request belongs to: the one its header names, else that of the answer it goes on from.

        That answer has to be on record in the session, or judgement refuses the request [REF-3]. An answer of another
        subject, or one that was never judged here, has no link.

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
        """Keep the link of an answer before the answer goes out.

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
            # A request that goes on from one of the two would get the labels of the other.
            message = "The upstream gave this answer the id of another one."
            raise Refusal(502, "upstream.reused-id", message) from None

    def close(self) -> None:
        """Let go of the threads."""
        self._offload.close()


def _can_refer(asked: Asked) -> bool:
    """Whether the request may go on from an answer: not without a subject, or strangers could use each other's."""
    known = asked.subject is not None and asked.subject.id is not None
    return known and asked.endpoint.dialect.name == DIALECT and isinstance(asked.body, dict)


def _is_kept(body: Any) -> bool:
    return body.get("store") is not False


def _goes_on_from(body: Any) -> str | None:
    """The id of the answer that the request goes on from; None if it names none, "" for what can be no id."""
    named = body.get("previous_response_id")
    if named is None:
        return None if body.get("conversation") is None else ""
    return named if isinstance(named, str) else ""


def _link(subject: SubjectExtension | None, named: str) -> Context:
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    return Context(subject=subject, session=f"~answer:{digest}")


__all__ = ["Links"]
