"""Who may do what needs a permission of its own: approve, declassify. Spec: approvals.md, sessions.md [E6]."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final, TypeAlias

from cmf.message.security import SubjectExtension

Authorise: TypeAlias = Callable[[SubjectExtension], bool]
APPROVE: Final = "cmf:approve"
DECLASSIFY: Final = "cmf:declassify"
MAX_REASON: Final = 1_000  # characters of a person's reason, for the record
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and a symbol that show nothing


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
    name = (subject.id or "").strip()
    return name if is_legible(name) else ""


def is_same_person(one: str, other: str) -> bool:
    """Whether two ids may be one person's: letter case, width, spaces and invisible characters tell nobody apart."""
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(one for one in folded if unicodedata.category(one)[0] not in "CZ")


def is_legible(text: str) -> bool:
    """Whether a reader sees anything of it: a reason of spaces and invisible characters is none."""
    return any(unicodedata.category(one)[0] in "LNPS" and one not in _BLANK for one in text)
