"""Which session a run belongs to if its client names none [C4]. Spec: docs/spec/sessions.md [SES-30] ff.

It is that of the longest beginning of its conversation that the subject has sent before. A session's id is made of the
first beginning of its conversation, so that all gateways arrive at the same id without asking each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from cmf.json.value import replace
from cmf.message.message import Message
from cmf.message.request import Request
from pipeline.decisions.context import Context
from pipeline.decisions.errors import SessionError
from pipeline.decisions.stage import Traffic
from pipeline.provenance.claims import prefixes
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes

_HOME: Final = "~beginnings"  # each subject's session for the marks of beginnings; clients cannot name it


SessionMode: TypeAlias = Literal["by_id", "by_prefix", "required"]
"""What becomes of a run without a session id: it stands alone, gets one by how it begins, or is refused."""


class SessionChoice:
    """Gives each run its session."""

    def __init__(self, mode: SessionMode, sessions: SessionStore) -> None:
        self._mode = mode
        self._sessions = sessions

    def of(self, value: Traffic, context: Context) -> Context:
        """The context with its session.

        A reply, or a message judged by itself, belongs to the session of `context.history`. Without a subject no
        session is made up: strangers would share it.

        Raises:
            SessionError: `session.required`; `session.reserved`, an id that no client may have. StoreError.
        """
        if context.session is not None:
            if context.session == _HOME:
                raise SessionError("this session id is taken", code="session.reserved", hint="choose another")
            return context
        if self._mode == "required":
            raise SessionError("a session id is required", code="session.required", hint="send one with the request")
        known_subject = context.subject is not None and context.subject.id is not None
        prefix_digests = prefixes(_conversation(value, context)) if self._mode == "by_prefix" and known_subject else []
        return replace(context, session=f"sess_{self._root(prefix_digests, context)}") if prefix_digests else context

    def _root(self, prefix_digests: Sequence[str], context: Context) -> str:
        """The first beginning of the conversation that `said` continues; if it is new, the last one in `said`."""
        home = replace(context, session=_HOME)
        known = self._sessions.seen(home, set(prefix_digests))
        longest = next((prefix for prefix in reversed(prefix_digests) if prefix in known), None)
        root = prefix_digests[-1]
        if longest is not None:
            links = {_link(longest, first): first for first in prefix_digests}
            on_record = self._sessions.seen(home, links)
            root = next((first for link, first in links.items() if link in on_record), longest)
        if longest != prefix_digests[-1]:
            self._sessions.commit(
                home, None, Changes(seen=frozenset({prefix_digests[-1], _link(prefix_digests[-1], root)}))
            )
        return root


def _link(prefix: str, root: str) -> str:
    return f"{prefix}:{root}"


def _conversation(value: Traffic, context: Context) -> Iterable[Message]:
    if isinstance(value, Request):
        return value.messages
    history = context.history
    return history.messages if isinstance(history, Request) else history or ()
