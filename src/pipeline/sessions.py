"""What a session remembers between runs. Keyed by subject and session: two subjects never share one [C4].

Spec: docs/spec/sessions.md.
"""

from __future__ import annotations

import threading
from typing import Final

from pipeline.context import Context
from pipeline.policy_input import SessionFacts

_NOTHING: Final = SessionFacts()


class MemorySessions:
    """Sessions of this process, until it ends. Safe to use from any thread; labels only grow."""

    def __init__(self) -> None:
        self._labels: dict[tuple[str | None, str], frozenset[str]] = {}
        self._lock = threading.Lock()

    def read(self, context: Context) -> SessionFacts:
        """What is known of the context's session; a run without a session stands alone."""
        if context.session is None:
            return _NOTHING
        with self._lock:
            return SessionFacts(labels=self._labels.get(_key(context, context.session), frozenset()))

    def add_labels(self, context: Context, labels: frozenset[str]) -> None:
        """Unite `labels` with those of the context's session."""
        if context.session is None or not labels:
            return
        with self._lock:
            key = _key(context, context.session)
            self._labels[key] = self._labels.get(key, frozenset()) | labels


def _key(context: Context, session: str) -> tuple[str | None, str]:
    return (context.subject.id if context.subject is not None else None, session)
