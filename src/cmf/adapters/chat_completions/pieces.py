"""What a folded chat completion is gathered from: objects that come in pieces, and what holds where they differ.

Nothing that was said is lost: what has no place in the folded body is put aside, and shown. Spec: docs/spec/adapters/
openai_chat.md [OAC-21], [OAC-22].
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from cmf.json.codec import loads_object
from cmf.json.frozen import MAX_DEPTH, same_spelling, too_deep

_ABSENT: Final = object()
_FEW: Final = 4  # texts of more pieces are not asked whether they are whole: that would take a look at all, each time
_CALL_TEXTS: Final = {"function": ("arguments",), "custom": ("input",)}
_Held = TypeVar("_Held", dict[str, Any], list[Any])

Aside = dict[str, list[Any]]
"""By key, values that were sent and later replaced."""


class Pieces:
    """An object that comes in pieces: some of its texts are concatenated, other fields come once or repeatedly."""

    __slots__ = ("_aside", "_inner", "_texts", "_textual", "_value", "fields")

    def __init__(self, textual: tuple[str, ...], aside: Aside) -> None:
        self.fields: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._inner: dict[str, Pieces] = {}
        self._textual = textual
        self._aside = aside
        self._value: Any = _ABSENT

    @classmethod
    def of(cls, value: Any, aside: Aside) -> Pieces:
        """Something that is no object: whole as it is."""
        made = cls((), aside)
        made._value = value
        return made

    def add(self, raw: dict[str, Any]) -> None:
        """Take one more piece."""
        for key, item in raw.items():
            if isinstance(item, str) and key in self._textual:
                self._texts.setdefault(key, []).append(item)
            elif isinstance(item, str) and key == "name" and isinstance(self.fields.get(key), str):
                self._name(item)
            elif isinstance(item, dict) and key in _CALL_TEXTS and not self._textual:
                inner = self._inner.get(key)
                if inner is None:
                    inner = self._inner[key] = Pieces(_CALL_TEXTS[key], self._aside)
                inner.add(item)
            elif not (item is None and key in self._texts):
                snapshot(self.fields, key, item, self._aside)

    def _name(self, more: str) -> None:
        """A name comes once, repeatedly, or in pieces."""
        known = self.fields["name"]
        if more != known:
            self.fields["name"] = known + more

    def pieces(self, key: str) -> list[str]:
        """The pieces that the text under `key` came in."""
        return self._texts.get(key, [])

    def whole(self, position: int | None = None) -> Any:
        """All of it, once it is complete; without its number, if that is `position`."""
        if self._value is not _ABSENT:
            return self._value
        if position is not None and self.fields.get("index") == position:
            del self.fields["index"]  # chunks number calls, a whole body need not
        made = self.fields
        for key, pieces in self._inner.items():
            settle(made, key, pieces.whole(), self._aside)
        for key, texts in self._texts.items():
            settle(made, key, "".join(texts), self._aside)
        return made

    def is_whole_call(self) -> bool:
        """Whether it names a function and has its arguments, as an object or as the text of one in few pieces."""
        function = self._inner.get("function")
        if function is None or not function.fields.get("name"):
            return False
        texts = function.pieces("arguments")
        return isinstance(function.fields.get("arguments"), dict) or (
            len(texts) <= _FEW and loads_object("".join(texts)) is not None
        )


def gathering(holder: dict[str, Any], key: str, kind: type[_Held], aside: Aside) -> _Held:
    """The object or list under `key`, to be continued; a new one if there is none, with any other value put aside."""
    held = holder.get(key)
    if isinstance(held, kind):
        return held
    if held:
        aside.setdefault(key, []).append(held)
    made = holder[key] = kind()
    return made


def settle(holder: dict[str, Any], key: str, item: Any, aside: Aside) -> None:
    """Put what was gathered under `key`, and the previous value aside; it stays if nothing was gathered ("", [])."""
    held = holder.get(key)
    if held and not item:
        return
    if held:
        aside.setdefault(key, []).append(held)
    holder[key] = item


def snapshot(holder: dict[str, Any], key: str, item: Any, aside: Aside) -> None:
    """Take `item` as what holds now. An older value is forgotten if the new one contains it, else it is put aside."""
    known = holder.get(key, _ABSENT)
    if known is _ABSENT or known is None:
        holder[key] = copied(item)
    elif item is None or item == "" or same_spelling(known, item):
        pass
    elif isinstance(known, dict) and isinstance(item, dict):
        for name, inner in item.items():
            snapshot(known, name, inner, aside)
    else:
        if not adds_nothing(known, item):
            aside.setdefault(key, []).append(known)
        holder[key] = copied(item)


def adds_nothing(old: Any, new: Any) -> bool:
    """Whether every text and key of `old` is in `new`, at the same place; numbers and nulls do not count."""
    if isinstance(old, str):
        return not old or (isinstance(new, str) and new.startswith(old))
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and adds_nothing(item, new[key]) for key, item in old.items())
    if isinstance(old, list):
        fits = isinstance(new, list) and len(new) >= len(old)
        return not old or (fits and all(adds_nothing(before, after) for before, after in zip(old, new, strict=False)))
    return True


def copied(value: Any, _levels: int = MAX_DEPTH) -> Any:
    """A copy that the fold may go on with. Raises ShapeError where it is nested deeper than values may be."""
    if not isinstance(value, dict | list):
        return value
    if not _levels:
        raise too_deep()
    if isinstance(value, dict):
        return {key: copied(item, _levels - 1) for key, item in value.items()}
    return [copied(item, _levels - 1) for item in value]
