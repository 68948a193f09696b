"""What a stage is given: the traffic, with only the extensions that it may see. Spec: stages.md [STG-1], [STG-2].

Parts and slots are shared by identity; only the messages whose extensions had to be filtered are new objects.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from cmf.extensions import Extensions
from cmf.message import Message
from cmf.request import Request, Response
from cmf.security import SecurityExtension, SubjectExtension
from cmf.tiers import SLOTS, SUBJECT_FIELDS, Grants, granted
from cmf.value import replace, trusted

_T = TypeVar("_T", bound=Message | Request | Response)


def messages_of(value: Message | Request | Response) -> tuple[Message, ...]:
    """The messages of traffic, in order."""
    if isinstance(value, Message):
        return (value,)
    if isinstance(value, Request):
        return tuple(value.messages)
    return tuple(choice.message for choice in value.choices)


def with_messages(value: _T, messages: tuple[Message, ...]) -> _T:
    """`value` with these messages in place of its own; `value` itself if they are the same objects."""
    if all(new is old for new, old in zip(messages, messages_of(value), strict=True)):
        return value
    made: Any
    if isinstance(value, Message):
        made = messages[0]
    elif isinstance(value, Request):
        made = replace(value, messages=messages)
    else:
        choices = zip(value.choices, messages, strict=True)
        made = replace(value, choices=tuple(replace(choice, message=message) for choice, message in choices))
    result: _T = made
    return result


def drafted(value: _T, grants: Grants) -> _T:
    """`value` as a stage with `grants` may see it; `value` itself where nothing has to be hidden."""
    hidden = _hidden(grants)
    if hidden is None:
        return value
    known: dict[int, Extensions | None] = {}

    def seen(message: Message) -> Message:
        extensions = message.extensions
        if extensions is None:
            return message
        key = id(extensions)
        if key not in known:
            known[key] = _visible(extensions, hidden)
        shown = known[key]
        return message if shown is extensions else replace(message, extensions=shown)

    return with_messages(value, tuple(map(seen, messages_of(value))))


def _visible(extensions: Extensions, rules: _Hidden) -> Extensions:
    """The extensions without what the rules hide; the same object if they hide nothing of it."""
    hidden: dict[str, Any] = {slot: None for slot in rules.slots if getattr(extensions, slot) is not None}
    security = extensions.security
    if security is not None:
        shown = _visible_security(security, rules)
        if shown is not security:
            hidden["security"] = shown
    return replace(extensions, **hidden) if hidden else extensions


class _Hidden(NamedTuple):
    """What a set of grants hides: slots; fields of `security`, each with what replaces it; fields of the subject."""

    slots: tuple[str, ...]
    security: tuple[tuple[str, Any], ...]
    subject: tuple[str, ...]


@lru_cache(maxsize=256)  # as many as an installation has stages and policy sets
def _hidden(grants: Grants) -> _Hidden | None:
    """What `grants` hide; None if they hide nothing."""
    empty = trusted(SecurityExtension)
    found = _Hidden(
        slots=tuple(slot for slot, rule in SLOTS.items() if "." not in slot and not granted(grants, rule.read)),
        security=tuple(
            (field, getattr(empty, field))
            for field in ("labels", "classification", "objects", "data")
            if not granted(grants, SLOTS[f"security.{field}"].read)
        ),
        subject=tuple(name for name, needs in SUBJECT_FIELDS.items() if not granted(grants, needs)),
    )
    return found if any(found) else None


def _visible_security(security: SecurityExtension, rules: _Hidden) -> SecurityExtension:
    changed: dict[str, Any] = {
        field: nothing for field, nothing in rules.security if getattr(security, field) != nothing
    }
    subject = _visible_subject(security.subject, rules)
    if subject is not security.subject:
        changed["subject"] = subject
    return replace(security, **changed) if changed else security


def _visible_subject(subject: SubjectExtension | None, rules: _Hidden) -> SubjectExtension | None:
    """The subject with only the granted fields; None where none of them is granted [C2]."""
    if subject is None:
        return None
    if len(rules.subject) == len(SUBJECT_FIELDS):
        return None
    hidden = {name: None for name in rules.subject if getattr(subject, name) is not None}
    return replace(subject, **hidden) if hidden else subject


def labels_of(message: Message) -> frozenset[str]:
    """The security labels of a message."""
    security = message.extensions.security if message.extensions is not None else None
    return frozenset(security.labels) if security is not None else frozenset()
