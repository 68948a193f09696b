"""Whose session it is, and which. Spec: docs/spec/sessions.md [SES-1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cmf.json.value import trusted
from pipeline.decisions.context import Context

_NOBODY: Final = "anonymous"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Whose session it is, and which: `subject` is `id:<subject id>` or `anonymous`; no session is None."""

    subject: str
    session: str | None


def session_key(context: Context) -> SessionKey:
    """The key of the context's session; equal session ids of two subjects give two keys."""
    subject = subject_key(None if context.subject is None else context.subject.id)
    return trusted(SessionKey, subject=subject, session=context.session)


def subject_key(subject: str | None) -> str:
    """A subject by its id, as keys and rows name it: `id:<subject id>`, or `anonymous`, which is nobody's."""
    return _NOBODY if subject is None else f"id:{subject}"


def stored_subject(subject: str) -> str:
    """A subject as rows name it, from what people write: its id, or `anonymous`."""
    return subject if subject == _NOBODY else subject_key(subject)


def shown_subject(key: str) -> str:
    """A subject as people write it, from what rows have."""
    return key.removeprefix("id:")
