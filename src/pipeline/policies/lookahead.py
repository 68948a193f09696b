"""How far rules must see behind a character of a stream before it may go out [D7]. Spec: policies.md [POL-63] ff.

What a rule finds in a text that is whole may still be cut off at the end of one that goes on. So the end of it waits:
as many characters as the longest find, or the word that is not over, or all since something began that may have blanks
in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_PLACE: Final = re.compile(r"data(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_VISIBLE: Final = "".join(map(chr, range(0x21, 0x7F)))
"""What a word is made of: the characters of ASCII that are seen. Languages without blanks have no long words."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """One kind of find, and what the end of a text is held for because of it: `chars`, or `word`.

    Attributes:
        chars: how long a find may be.
        where: a place in the data of the set; there is no such find while what stands there is empty.
        word: how long a find may be that is one word, or begins in a word with one of `opened_by`.
        opened_by: what makes a find of more than one word.
    """

    chars: int = 0
    where: str | None = None
    word: int = 0
    opened_by: tuple[str, ...] = ()

    def held(self, text: str) -> int:
        """How many of the last characters of `text`, which goes on, have to wait."""
        if not self.word:
            return min(self.chars, len(text))
        tail = text[-self.word :]
        begun = [tail.find(opening) for opening in self.opened_by if opening in tail]
        start = min(begun, default=len(tail))
        return len(tail) - start + open_word(tail[:start])

    def applies(self, data: Mapping[str, Any]) -> bool:
        """Whether there is such a find under these data: not where `where` is empty."""
        found: Any = data
        if self.where is None:
            return True
        for name in self.where.split(".")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found is None or bool(found)


Lookaheads = tuple[Lookahead, ...]


def held_at_end(text: str, lookaheads: Lookaheads) -> int:
    """How many of the last characters of `text` wait for one find or another."""
    return max((one.held(text) for one in lookaheads), default=0)


def least_held(word: int, lookaheads: Lookaheads) -> int:
    """How many of the last characters wait at least in a text at whose end stands a word of so many."""
    return max((min(word, one.word) if one.word else one.chars for one in lookaheads), default=0)


def open_word(text: str) -> int:
    """How many characters the word has at the end of `text`."""
    return len(text) - len(text.rstrip(_VISIBLE))


def said_lookaheads(said: object) -> Lookaheads | None:
    """Those that METADATA says under `stream`, an object or a list of such; None where it says none."""
    found = [_said(one) for one in (said if isinstance(said, list) else [said])]
    known = tuple(one for one in found if one is not None)
    return known if known and len(known) == len(found) else None


def _said(said: object) -> Lookahead | None:
    match said:
        case {"max_match": int(chars), **rest} if _is_length(chars) and rest.keys() <= {"where"}:
            where = rest.get("where")
            if where is None or (isinstance(where, str) and _PLACE.fullmatch(where)):
                return Lookahead(chars=chars, where=where)
        case {"max_word": int(word), **rest} if _is_length(word) and rest.keys() <= {"opened_by"}:
            openings = rest.get("opened_by", [])
            if isinstance(openings, list) and all(map(_is_opening, openings)):
                return Lookahead(word=word, opened_by=tuple(openings))
    return None


def _is_length(value: int) -> bool:
    return type(value) is int and value > 0


def _is_opening(text: object) -> bool:
    """A part of a word: its own beginning is held as the open word, blanks would let it go."""
    return isinstance(text, str) and bool(text) and open_word(text) == len(text)


__all__ = ["Lookahead", "Lookaheads", "held_at_end", "least_held", "open_word", "said_lookaheads"]
