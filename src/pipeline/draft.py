"""What a stage is given: the traffic, with only the extensions that it may see. Spec: stages.md [STG-1], [STG-2].

Parts and slots are shared by identity; only the messages whose extensions had to be filtered are new objects.
"""

from __future__ import annotations

from typing import Any, TypeVar

from cmf.enums import Capability
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
    """`value` with these messages in place of its own; `value` itself where they are the very same objects."""
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
    known: dict[int, Extensions | None] = {}

    def seen(message: Message) -> Message:
        extensions = message.extensions
        if extensions is None:
            return message
        key = id(extensions)
        if key not in known:
            known[key] = visible(extensions, grants)
        shown = known[key]
        return message if shown is extensions else replace(message, extensions=shown)

    return with_messages(value, tuple(map(seen, messages_of(value))))


def visible(extensions: Extensions, grants: Grants) -> Extensions:
    """The extensions with what was not granted taken out; the same object where that is nothing."""
    hidden = {
        slot: None
        for slot, rule in SLOTS.items()
        if "." not in slot and not granted(grants, rule.read) and getattr(extensions, slot) is not None
    }
    security = extensions.security
    shown = None if security is None else _visible_security(security, grants)
    if shown is not security:
        return replace(extensions, **hidden, security=shown)
    return replace(extensions, **hidden) if hidden else extensions


def _visible_security(security: SecurityExtension, grants: Grants) -> SecurityExtension:
    empty = trusted(SecurityExtension)
    changed: dict[str, Any] = {
        field: getattr(empty, field)
        for field in ("labels", "classification", "objects", "data")
        if not granted(grants, SLOTS[f"security.{field}"].read) and getattr(security, field) != getattr(empty, field)
    }
    subject = visible_subject(security.subject, grants)
    if subject is not security.subject:
        changed["subject"] = subject
    return replace(security, **changed) if changed else security


def visible_subject(subject: SubjectExtension | None, grants: Grants) -> SubjectExtension | None:
    """The subject with only the granted fields; None where none of them is granted [C2]."""
    if subject is None:
        return None
    fields = {
        name: getattr(subject, name) if granted(grants, needs) else None for name, needs in SUBJECT_FIELDS.items()
    }
    if all(fields[name] is getattr(subject, name) for name in fields):
        return subject
    return trusted(SubjectExtension, **fields) if any(map(_granted(grants), SUBJECT_FIELDS.values())) else None


def _granted(grants: Grants) -> Any:
    def holds(capability: Capability) -> bool:
        return granted(grants, capability)

    return holds


def labels_of(message: Message) -> frozenset[str]:
    """The security labels of a message."""
    security = message.extensions.security if message.extensions is not None else None
    return frozenset(security.labels) if security is not None else frozenset()
