"""Parts of a UI message as its chunks find and fill them. Spec: docs/spec/adapters/aisdk.md [AISDK-7], [AISDK-9]."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Generic, TypeVar

from cmf.json.codec import dumps

_Part = TypeVar("_Part")

ASKED_AS: Final = {"approvalDescriptor": "descriptor", "reason": "requestReason"}
"""What a chunk says of a call that waits for approval, and the names under which the message holds it."""


class OpenParts(Generic[_Part]):
    """The texts that may still go on, by kind and id."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[Any, _Part]] = {}

    def begin(self, kind: str, own_id: Any, part: _Part) -> None:
        """A part of this kind and id begins."""
        self._by_kind.setdefault(kind, {})[hashable(own_id)] = part

    def find(self, kind: str, own_id: Any) -> tuple[Any, _Part] | None:
        """The part that a delta or end belongs to, with its id: by id, else the only one of its kind; None if none."""
        found, key = self._by_kind.get(kind, {}), hashable(own_id)
        if key in found:
            return key, found[key]
        return next(iter(found.items())) if len(found) == 1 else None

    def end(self, kind: str, own_id: Any) -> None:
        """That part is whole."""
        if (found := self.find(kind, own_id)) is not None:
            del self._by_kind[kind][found[0]]


def is_tool(part: Mapping[str, Any]) -> bool:
    """Whether a part is a tool's call, with its result."""
    kind: str = part["type"]
    return kind.startswith("tool-") or kind == "dynamic-tool"


def renamed(fields: Mapping[str, Any], names: Mapping[str, str], *, leave: Collection[str]) -> dict[str, Any]:
    """The fields but those to leave, under other names where these are free."""
    found = ((names.get(key, key), key, item) for key, item in fields.items() if key not in leave)
    return {key if name != key and name in fields else name: item for name, key, item in found}


def hashable(raw: Any) -> Any:
    """An id as a key: text as it is, anything else by its JSON."""
    return raw if isinstance(raw, str) or raw is None else dumps(raw)


def take(part: dict[str, Any], key: str, chunk: dict[str, Any], source: str | None = None) -> None:
    """Give the part a field of the chunk, if the chunk has it."""
    item = chunk.get(source or key)
    if item is not None:
        part[key] = item


def merge(old: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Put the new fields into the old object, object by object. The new one is copied, so that none of it changes."""
    for key, item in new.items():
        held = old.get(key)
        if not isinstance(item, dict):
            old[key] = item
        elif isinstance(held, dict):
            merge(held, item)
        else:
            old[key] = {}
            merge(old[key], item)
