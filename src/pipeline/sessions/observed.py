"""A session store that notes what judgement read of it, so that a run can be put on file. Spec: docs/spec/replay.md."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.decisions.approval import Approval
from pipeline.decisions.context import Context
from pipeline.decisions.policy_input import SessionFacts
from pipeline.sessions.base import SessionStore


@dataclass(slots=True)
class Noted:
    """What was read in a block: the facts of the last judgement, and the marks that were found on record."""

    session: SessionFacts = field(default_factory=SessionFacts)
    seen: frozenset[str] = frozenset()


class WatchedSessions:
    """A store that does what `store` does. Use it as a `SessionStore`, one run to a block of `watching`."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._noted: ContextVar[Noted | None] = ContextVar("noted", default=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def watching(self) -> Iterator[Noted]:
        """A block whose run is watched; other tasks and threads have blocks of their own."""
        noted = Noted()
        token = self._noted.set(noted)
        try:
            yield noted
        finally:
            self._noted.reset(token)

    def read(self, context: Context) -> SessionFacts:
        """See `SessionStore`."""
        facts = self._store.read(context)
        noted = self._noted.get()
        if noted is not None:
            noted.session = facts
        return facts

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:
        """See `SessionStore`."""
        found = self._store.seen(context, marks)
        noted = self._noted.get()
        if noted is not None:
            noted.seen |= found
        return found

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        found = self._store.standing_approvals(owner)
        noted = self._noted.get()
        if noted is not None:
            noted.session = replace(noted.session, standing=found)
        return found
