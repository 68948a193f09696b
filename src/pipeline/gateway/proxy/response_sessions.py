"""Ids of answers that have none, and links from an answer's id to its session (`previous_response_id`).

A link is stored as a session of its own, so that every store can keep it, for its subject alone. Its name is a digest
of the answer's id; all it holds is the id of the session. No client can name it: session ids of clients have no `~`.
Spec: docs/spec/gateway.md [GW-147] ff.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ulid import ULID

from cmf.adapters.wire.call_ids import with_ids
from cmf.json.frozen import FrozenDict, freeze
from cmf.json.value import replace
from cmf.message.request import Response
from cmf.message.security import SubjectExtension
from pipeline.decisions.context import Context
from pipeline.decisions.errors import SessionError
from pipeline.gateway.http.refusal import Refusal
from pipeline.run.offload import Offload
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes

if TYPE_CHECKING:
    from pipeline.gateway.proxy.proxy import IncomingRequest

# The fields of an answer in the Responses format beside its id.
_RESPONSE: Final[Mapping[str, Any]] = {
    "object": "response",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
}


def identified(response: Response, dialect: str, request_id: str) -> Response:
    """The response with ids in `dialect` for itself and its calls, derived from the request's. Its own ids are kept.

    Plain numbers would repeat from turn to turn, and clients tell the calls of a conversation apart by their ids.
    """
    if response.error is not None or not response.choices or dialect == "ollama":
        return response
    if dialect == "anthropic_messages":
        first, *others = response.choices
        if first.message.id is not None:
            return response
        first = replace(first, message=replace(first.message, id=f"msg_{request_id}"))
        return _with_call_ids(replace(response, choices=(first, *others)), request_id)
    extra = response.extra or FrozenDict()
    if dialect in extra:
        return response  # it came in this very dialect
    named = replace(response, extra=freeze({**extra, dialect: _facts(dialect, request_id)}))
    return named if dialect == "gemini" else _with_call_ids(named, request_id)


def _with_call_ids(response: Response, request_id: str) -> Response:
    messages = with_ids([choice.message for choice in response.choices], prefix=f"call_{request_id}_")
    pairs = zip(response.choices, messages, strict=True)
    choices = (one if message is one.message else replace(one, message=message) for one, message in pairs)
    return replace(response, choices=tuple(choices))


def _facts(dialect: str, request_id: str) -> dict[str, Any]:
    created = int(ULID.from_str(request_id).timestamp)
    if dialect == "openai_chat":
        return {"id": f"chatcmpl-{request_id}", "created": created}
    if dialect == "openai_responses":
        return {**_RESPONSE, "id": f"resp_{request_id}", "created_at": created}
    return {"responseId": request_id}


DIALECT: Final = "openai_responses"
_KEY: Final = "session"
_KEEPER: Final = "gateway"


class Links:
    """Finds the session that a request continues, and keeps the session of each answer that goes out.

    Args:
        makes: whether a request that names no session gets a new one, so that others can continue from its answer.
    """

    def __init__(self, sessions: SessionStore, *, makes: bool) -> None:
        self._sessions = sessions
        self._makes = makes
        self._offload = Offload(waits=sessions.waits)

    async def session(self, incoming: IncomingRequest) -> str | None:
        """The session that the request belongs to: the one in its header, else that of the answer it continues.

        That answer has to be on record in the session, or the request is refused [REF-3]. Answers of other subjects,
        and answers that were never judged here, have no link.

        Raises:
            StoreError: the store cannot be read.
        """
        if incoming.session is not None or not _can_refer(incoming):
            return incoming.session
        named = incoming.body.get("previous_response_id")
        if named is None and incoming.body.get("conversation") is None:
            return f"sess_{incoming.request_id}" if self._makes and _is_kept(incoming.body) else None
        named = named if isinstance(named, str) else ""  # what is no id is the id of no answer
        facts = await self._offload(self._sessions.read, _link(incoming.subject, named))
        return facts.tool_ids.get(_KEY, {}).get(_KEEPER)

    async def keep(self, incoming: IncomingRequest, response: Response | None) -> None:
        """Store the link of an answer, before the answer goes out.

        Raises:
            Refusal: the upstream used the id of another answer. StoreError: the link cannot be stored.
        """
        if incoming.session is None or response is None or not _can_refer(incoming) or not _is_kept(incoming.body):
            return
        own = (response.extra or {}).get(DIALECT)
        named = own.get("id") if isinstance(own, dict) else None
        if not isinstance(named, str) or not named:
            return
        changes = Changes(tool_ids={_KEY: {_KEEPER: incoming.session}})
        try:
            await self._offload(self._sessions.commit, _link(incoming.subject, named), None, changes)
        except SessionError:
            # A request that continues one of the two would get the labels of the other.
            message = "The upstream gave this answer an id that it had used before."
            raise Refusal(502, "upstream.reused-id", message) from None

    def close(self) -> None:
        """Shut its threads down."""
        self._offload.close()


def _can_refer(incoming: IncomingRequest) -> bool:
    """Whether the request may continue an answer: not without a subject, or strangers could continue each other's."""
    known = incoming.subject is not None and incoming.subject.id is not None
    return known and incoming.endpoint.dialect.name == DIALECT and isinstance(incoming.body, dict)


def _is_kept(body: Any) -> bool:
    return body.get("store") is not False


def _link(subject: SubjectExtension | None, named: str) -> Context:
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    return Context(subject=subject, session=f"~answer:{digest}")
