"""How much of a stream's end is held back until more of it is known [D7]. Spec: policies.md [POL-63] ff.

A match that a rule would find in the whole text may be cut off at the end of an unfinished one. So the end is held
back: as many characters as the longest match, or the last, unfinished word, or everything since the start of a match
that may contain blanks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cmf import _native

_DATA_PATH: Final = re.compile(r"data(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_VISIBLE: Final = "".join(map(chr, range(0x21, 0x7F)))
"""The characters of a word: printable ASCII. Text in languages written without blanks forms no long words."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """One kind of match that a rule looks for, bounded by `chars` or by `word`.

    Attributes:
        chars: the longest match.
        where: a path in the set's data; while the value there is empty, nothing can match.
        word: the longest match that is a single word, or that starts in a word containing one of `opened_by`.
        opened_by: texts that open a match of more than one word.
    """

    chars: int = 0
    where: str | None = None
    word: int = 0
    opened_by: tuple[str, ...] = ()

    def held(self, text: str) -> int:
        """How many characters at the end of `text`, which is unfinished, to hold back."""
        if not self.word:
            return min(self.chars, len(text))
        tail = text[-self.word :]
        begun = [tail.find(opening) for opening in self.opened_by if opening in tail]
        start = min(begun, default=len(tail))
        return len(tail) - start + open_word(tail[:start])

    def applies(self, data: Mapping[str, Any]) -> bool:
        """Whether anything can match with this data: not if the value at `where` is empty."""
        found: Any = data
        if self.where is None:
            return True
        for name in self.where.split(".")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found is None or bool(found)


Lookaheads = tuple[Lookahead, ...]


def held_at_end(text: str, lookaheads: Lookaheads) -> int:
    """How many characters at the end of `text` to hold back for any of these, in it or in its plain form [INP-7]."""
    held = max((one.held(text) for one in lookaheads), default=0)
    plain = plain_form(text)
    if plain is None:
        return held
    start = len(plain) - max((one.held(plain) for one in lookaheads), default=0)
    ((at, _),) = _native.in_content(text, False, [(start, start + 1)])
    return max(held, len(text) - at)


def plain_form(text: str) -> str | None:
    """The text in plain letters, as models and people read it; None if it is in them."""
    return _native.plain(text)


def least_held(word: int, lookaheads: Lookaheads) -> int:
    """How many characters to hold back at least, at the end of a text whose last word has `word` characters."""
    return max((min(word, one.word) if one.word else one.chars for one in lookaheads), default=0)


def open_word(text: str) -> int:
    """The length of the word at the end of `text`."""
    return len(text) - len(text.rstrip(_VISIBLE))


def lookaheads_of(stream: object) -> Lookaheads | None:
    """The value of `stream` in METADATA, an object or a list of objects; None if it is neither."""
    found = [_lookahead_of(entry) for entry in (stream if isinstance(stream, list) else [stream])]
    known = tuple(one for one in found if one is not None)
    return known if known and len(known) == len(found) else None


def _lookahead_of(entry: object) -> Lookahead | None:
    match entry:
        case {"max_match": int(chars), **rest} if _is_length(chars) and rest.keys() <= {"where"}:
            where = rest.get("where")
            if where is None or (isinstance(where, str) and _DATA_PATH.fullmatch(where)):
                return Lookahead(chars=chars, where=where)
        case {"max_word": int(word), **rest} if _is_length(word) and rest.keys() <= {"opened_by"}:
            openings = rest.get("opened_by", [])
            if isinstance(openings, list) and all(map(_is_opening, openings)):
                return Lookahead(word=word, opened_by=tuple(openings))
    return None


def _is_length(value: int) -> bool:
    return type(value) is int and value > 0


def _is_opening(text: object) -> bool:
    """Whether it fits in a word: the unfinished word is what is held back, so a blank would release its beginning."""
    return isinstance(text, str) and bool(text) and open_word(text) == len(text)
