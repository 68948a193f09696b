"""Who may do what needs a permission of its own: approve, declassify. Spec: approvals.md, sessions.md [E6]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from cmf.security import SubjectExtension

Authorise: TypeAlias = Callable[[SubjectExtension], bool]
APPROVE: Final = "cmf:approve"
DECLASSIFY: Final = "cmf:declassify"
MAX_REASON: Final = 1_000  # characters of a person's reason, for the record


def holding(permission: str) -> Authorise:
    """A test of whether a subject has exactly that permission; one whose permissions are not known has none."""

    def holds(subject: SubjectExtension) -> bool:
        return permission in (subject.permissions or ())

    return holds


def holder(name: str, permission: str) -> SubjectExtension:
    """Somebody with that one permission: for a program whose user is taken to be who they say [CLI-23]."""
    return SubjectExtension(id=name, permissions=frozenset({permission}))


def as_recorded(subject: SubjectExtension) -> dict[str, str]:
    """Who somebody is, as records of what people do have it: the id, and the roles if there are any."""
    role = {"role": ", ".join(sorted(subject.roles))} if subject.roles else {}
    return {"id": name_of(subject), **role}


def name_of(subject: SubjectExtension) -> str:
    """The subject's id as it goes on record; empty for somebody without one, who can answer for nothing."""
    return (subject.id or "").strip()
