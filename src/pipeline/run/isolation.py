"""What a stage is given: its own copies of what it may see; and whether it changed them. Spec: [STG-16], [STG-17].

What is judged and sent are never these copies. Python cannot keep a stage from changing a value that it holds
(`object.__setattr__`, `dict.__setitem__`), so a stage gets copies that nothing else uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from cmf.enums import Capability, Tier
from cmf.json.frozen import FrozenDict, FrozenList, frozen_mapping
from cmf.json.value import Value, field_default, replace, trusted
from cmf.message.security import HttpHeaders, exposed
from cmf.views.access import veil_for
from cmf.views.tiers import SLOTS, Grants, granted
from pipeline.decisions.context import Context
from pipeline.decisions.stage import Traffic
from pipeline.decisions.traffic import drafted, equal_start

_T = TypeVar("_T")
_Steps: TypeAlias = tuple[str | int, ...]

_CONTEXT: Final = {
    "session": Capability.READ_AGENT,
    "agent": SLOTS["agent"].read,
    "headers": SLOTS["http"].read,
    "labels": SLOTS["security.labels"].read,
    "classification": SLOTS["security.classification"].read,
    "objects": SLOTS["security.objects"].read,
    "data": SLOTS["security.data"].read,
    "call_id": Capability.READ_AGENT,
    "spent": Capability.READ_AGENT,
}
"""What reads a field of the context; those of the traffic are read by what reads their slot."""

_NEVER: Final = ("history", "recorded")  # the conversation, and texts of the host that are for the record alone


class Given:
    """The value and the context as a stage with `grants` is given them. Stages with the same grants share them."""

    __slots__ = ("_before", "_prints", "context", "value")

    def __init__(self, value: Traffic, context: Context, grants: Grants) -> None:
        self._before = (drafted(value, grants), shown(context, grants))
        self.value: Traffic = isolated(self._before[0])
        self.context = isolated(self._before[1])
        self._prints = self._fingerprints()

    def change(self) -> tuple[str, str, str] | None:
        """Slot, tier and path of what was changed in place; None if nothing was."""
        if self._fingerprints() == self._prints:
            return None
        for root, given, before in zip(("", "context"), (self.value, self.context), self._before, strict=True):
            if (steps := _difference(given, before, ())) is not None:
                return _named(root, steps)
        return None  # something in it has no fingerprint

    def _fingerprints(self) -> bytes:
        return equal_start((), b"", (self.value, self.context))[1]


def shown(context: Context, grants: Grants) -> Context:
    """The context as far as `grants` show it, by the table that gates the traffic [STG-16]."""
    hidden = {name: default for name, default in _hidden(grants) if getattr(context, name) is not default}
    veil = veil_for(grants)
    if any(veil):
        hidden["subject"] = veil.subject_shown(context.subject)
        hidden.setdefault("agent", veil.agent(context.agent))
    return replace(context, **hidden) if hidden else context


@lru_cache(maxsize=256)  # as many as an installation has stages
def _hidden(grants: Grants) -> tuple[tuple[str, Any], ...]:
    """The fields that `grants` hide, each with what replaces it."""
    ungranted = [name for name, needs in _CONTEXT.items() if not granted(grants, needs)]
    defaults = {field.name: field_default(field) for field in dataclasses.fields(Context)}
    return tuple((name, defaults[name]) for name in (*_NEVER, *ungranted))


# -- copies ------------------------------------------------------------------------------------------------------------


def isolated(item: _T) -> _T:
    """An equal value that shares no object with `item` that could be changed, and has no wire layout."""
    copied: _T = _copiers[type(item)](item)
    return copied


_LEAVES: Final = frozenset({str, int, float, bool, bytes, type(None), frozenset, datetime, Decimal})


def _same(item: Any) -> Any:
    return item


def _copied_object(held: dict[str, Any]) -> FrozenDict:
    return frozen_mapping({key: item if type(item) in _LEAVES else isolated(item) for key, item in held.items()})


def _copied_headers(held: HttpHeaders) -> HttpHeaders:
    return HttpHeaders(exposed(held))


def _copied_array(held: list[Any]) -> FrozenList:
    made = list.__new__(FrozenList)
    list.extend(made, [item if type(item) in _LEAVES else isolated(item) for item in list.__iter__(held)])
    return made


def _copied_tuple(held: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([item if type(item) in _LEAVES else isolated(item) for item in held])


def _copier(cls: type) -> Callable[[Any], Any]:
    """A function generated for the fields of a type of values; what no JSON form has is left at its default."""
    names = _fields(cls)
    known: dict[str, Any] = {"cls": cls, "make": trusted, "leaves": _LEAVES, "isolated": isolated}
    given = ", ".join(f"{name}=(h if type(h := item.{name}) in leaves else isolated(h))" for name in names)
    exec(f"def copied(item): return make(cls, {given})", known)  # noqa: S102 - the names are those of a class's fields
    copier: Callable[[Any], Any] = known["copied"]
    return copier


def _fields(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.metadata.get("dump", True))


class _Copiers(dict[type, Callable[[Any], Any]]):
    """Type → what copies it. Those of values are generated when they are first needed."""

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        if issubclass(cls, Value):
            made: Callable[[Any], Any] = _copier(cls)
        elif issubclass(cls, dict):
            made = _copied_headers if cls is HttpHeaders else _copied_object
        elif issubclass(cls, list):
            made = _copied_array
        else:
            made = _copied_tuple if cls is tuple else _same  # texts, numbers, words of closed sets
        self[cls] = made
        return made


_copiers: Final = _Copiers()

# -- what was changed --------------------------------------------------------------------------------------------------

_GONE: Final = object()


def _difference(given: Any, before: Any, steps: _Steps) -> _Steps | None:
    """The steps to the first place where the two differ; None if they do not."""
    if given is before:
        return None
    held, own = _inside(given), _inside(before)
    if held is None or own is None:
        return steps if type(given) is not type(before) or given != before else None
    if list(held) != list(own):
        return steps
    places = (_difference(held[key], item, (*steps, key)) for key, item in own.items())
    return next((place for place in places if place is not None), None)


def _inside(item: Any) -> dict[Any, Any] | None:
    if isinstance(item, Value):
        return {"__class__": type(item), **{name: getattr(item, name, _GONE) for name in _fields(type(item))}}
    if isinstance(item, dict):
        return dict(dict.items(item))
    return dict(enumerate(item)) if isinstance(item, list | tuple) else None


def _named(root: str, steps: _Steps) -> tuple[str, str, str]:
    """The slot that the steps lead to, its tier, and the steps as a path."""
    rooted = (root, *steps) if root else steps
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rooted)
    names = [step for step in steps if isinstance(step, str)]
    if "extensions" in names[:-1]:
        names = names[names.index("extensions") + 1 :]
        slot = ".".join(names[:2]) if names[0] == "security" else names[0]
    else:
        slot = next((name for name in names if name not in ("messages", "choices", "message")), "messages")
    slot = f"{root}.{slot}" if root else slot
    return slot, SLOTS[slot].tier if slot in SLOTS else Tier.IMMUTABLE, f"${path}"
