"""What a stage is given: the traffic, with only the extensions that it may see. Spec: stages.md [STG-1], [STG-2].

Parts and slots are shared by identity; only the messages whose extensions had to be filtered are new objects.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

from cmf import _native
from cmf.json.value import Entry, Value, is_discriminator
from cmf.message.message import Extensions, Layout, Message
from cmf.message.request import Request, Response
from cmf.message.transform import messages_of, with_messages
from cmf.views.access import messages_inside, veil_for
from cmf.views.tiers import Grants

_T = TypeVar("_T", bound=Message | Request | Response)


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

    return with_messages(veil.request(value), tuple(map(seen, messages_of(value))))


def labels_of(message: Message) -> frozenset[str]:
    """The security labels of a message."""
    security = message.extensions.security if message.extensions is not None else None
    return frozenset(security.labels) if security is not None else frozenset()


def brought_labels(message: Message) -> frozenset[str]:
    """The labels of a message, and of all messages inside it, at any depth [PIPE-4]."""
    labels, inside = labels_of(message), messages_inside(message)
    return labels.union(*map(brought_labels, inside)) if inside else labels


def _form_of(cls: type) -> str | tuple[Entry, ...] | None:
    """How the native module takes the fingerprint of a type: by its fields, as JSON or as text; None if not at all."""
    if issubclass(cls, Value) or cls is Layout:
        fields: Any = dataclasses.fields  # all values are dataclasses, which their base cannot say
        return tuple(Entry(field.name, None, "same") for field in fields(cls) if not is_discriminator(field))
    if issubclass(cls, dict | list):
        return "object" if issubclass(cls, dict) else "array"
    if cls is frozenset:
        return "set"
    return "text" if issubclass(cls, StrEnum) or cls is datetime else None


_equal_start: Final = _native.Fingerprints(_form_of).again
identical_start: Final = _native.same_start
"""How many items at the beginning of two sequences are identical objects."""


def equal_start(held: tuple[Value, ...], known: bytes, given: tuple[Value, ...]) -> tuple[int, bytes]:
    """How many items at the beginning of `given` equal those of `held`; and the fingerprints of all of `given`.

    `known` are the fingerprints of `held`, as an earlier call returned them.
    """
    return _equal_start(held, known, given)


def unchanged(held: tuple[Value, ...], given: tuple[Value, ...]) -> int:
    """How many items at the beginning of both are the same."""
    start = identical_start(held, given)
    old, new = held[start : len(given)], given[start : len(held)]
    # Often all items differ (a new label is on each): comparing the first one alone finds that out.
    if not old or not equal_start((), equal_start((), b"", old[:1])[1], new[:1])[0]:
        return start
    return start + equal_start((), equal_start((), b"", old)[1], new)[0]
