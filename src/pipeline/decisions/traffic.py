"""What a stage is given: the traffic, with only the extensions that it may see. Spec: stages.md [STG-1], [STG-2].

Parts and slots are shared by identity; only the messages whose extensions had to be filtered are new objects.
"""

from __future__ import annotations

from typing import Any, TypeVar

from cmf.json.value import replace
from cmf.message.message import Extensions, Message
from cmf.message.request import Request, Response
from cmf.views.access import messages_inside, veil_for
from cmf.views.tiers import Grants

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
    veil = veil_for(grants)
    if not any(veil):
        return value
    known: dict[int, Extensions | None] = {}

    def seen(message: Message) -> Message:
        extensions = message.extensions
        key = id(extensions)
        if key not in known:
            known[key] = veil.extensions(extensions)
        return veil.message(message, known[key])

    return with_messages(value, tuple(map(seen, messages_of(value))))


def labels_of(message: Message) -> frozenset[str]:
    """The security labels of a message."""
    security = message.extensions.security if message.extensions is not None else None
    return frozenset(security.labels) if security is not None else frozenset()


def brought_labels(message: Message) -> frozenset[str]:
    """The labels of a message, and of all messages inside it, at any depth [PIPE-4]."""
    labels, inside = labels_of(message), messages_inside(message)
    return labels.union(*map(brought_labels, inside)) if inside else labels
