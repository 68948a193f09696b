"""Events of a stream that tell of another call than its final response: refused, because clients act on each event.

Spec: docs/spec/adapters/openai_responses.md [RSP-17].
"""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.openai_responses.items import CALLS
from cmf.adapters.openai_responses.places import PIECES
from cmf.adapters.wire.stream import contradiction
from cmf.json.codec import loads_object
from cmf.json.frozen import same_json

CALL_PIECES: Final = frozenset(base for base, path in PIECES.items() if path[0] not in ("content", "summary"))
_CALLED: Final = frozenset(
    {"type", "name", "call_id", "namespace", "server_label"}
    | {key for call in CALLS.values() for key in (call.text, call.whole, *call.keys) if key is not None}
)
"""The fields of an item that say which call it is."""


class Finals:
    """The items of the final response, by place and, for servers that leave items out of it, by their ids."""

    def __init__(self, items: dict[int, Any]) -> None:
        self._items = items
        self._named = {(key, item[key]): item for item in items.values() for key in _ids(item)}

    def item(self, at: int, said: Any) -> Any:
        """The item that an event at index `at` tells of as `said`; None if there is none."""
        final = self._items.get(at)
        known = final if isinstance(final, dict) else {}
        if not isinstance(said, dict) or any(known.get(key) == said[key] for key in _ids(said)):
            return final
        return next((self._named[key, said[key]] for key in _ids(said) if (key, said[key]) in self._named), final)


def _ids(item: Any) -> tuple[str, ...]:
    return tuple(key for key in ("call_id", "id") if isinstance(item, dict) and isinstance(item.get(key), str))


def refuse_other_call(said: dict[str, Any], final: Any, path: str, *, begins: bool) -> None:
    """Refuse an item of a call that is another one in the final response, or missing there.

    Raises:
        ShapeError: it is.
    """
    if not _is_call(said):
        return
    held = final if isinstance(final, dict) else {}
    known = said.get("type") in CALLS and held.get("type") in CALLS
    for key, item in said.items():
        if key in _CALLED or (not known and key not in ("id", "status")):
            refuse_other(item, held.get(key), f"{path}.{key}", begins=begins)


def _is_call(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and (kind in CALLS or kind.endswith("_call"))


def refuse_other(said: Any, final: Any, path: str, *, begins: bool = False) -> None:
    """Refuse what is not what the final response has in its place; what `begins` may still grow.

    Raises:
        ShapeError: it is not.
    """
    if not _agrees(said, final, begins=begins):
        raise contradiction(path)


def _agrees(said: Any, final: Any, *, begins: bool) -> bool:
    if said is None or said == "" or said == [] or said == {}:
        return True  # nothing yet
    if isinstance(said, str) and isinstance(final, str):
        if said == final or (begins and (said == "{}" or final.startswith(said))):
            return True
        if len(final) > 10 * len(said):  # no other spelling is as much longer, and each would be read again
            return False
        spelt = loads_object(said)
        return spelt is not None and same_json(spelt, loads_object(final))
    if isinstance(said, dict) and isinstance(final, dict):
        return all(_agrees(item, final.get(key), begins=begins) for key, item in said.items())
    if isinstance(said, list) and isinstance(final, list):
        fits = len(said) <= len(final) if begins else len(said) == len(final)
        return fits and all(_agrees(item, other, begins=begins) for item, other in zip(said, final, strict=False))
    return same_json(said, final)
