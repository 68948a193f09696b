"""Parts of a UI message as its chunks find and fill them. Spec: docs/spec/adapters/aisdk.md [AISDK-7], [AISDK-9]."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from cmf.codec import dumps

ASKED_AS: Final = {"approvalDescriptor": "descriptor", "reason": "requestReason"}
"""What a chunk says of a call that waits for approval, and the names under which the message holds it."""


def open_key(found: Mapping[tuple[str, Any], Any], kind: str, own_id: Any) -> tuple[str, Any] | None:
    """The key of the open part that a delta or end belongs to: by id, else the only one of its kind; None if none."""
    key = (kind, hashable(own_id))
    if key in found:
        return key
    same = [one for one in found if one[0] == kind]
    return same[0] if len(same) == 1 else None


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


def merged(old: Any, new: Any) -> Any:
    """The new value, with what only the old one has, object by object."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old[key], item) if key in old else item for key, item in new.items()}}
