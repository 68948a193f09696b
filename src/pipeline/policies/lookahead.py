"""How far rules must see behind a character of a stream before it may go out [D7]. Spec: policies.md [POL-63] ff.

What a rule finds in a text that is whole may still be cut off at the end of one that goes on. So the end of it waits:
as many characters as the longest find, or the word that is not over, or all since something began that may have blanks
in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pipeline.errors import PolicyError

_PLACE: Final = re.compile(r"data(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
_VISIBLE: Final = "".join(map(chr, range(0x21, 0x7F)))
"""What a word is made of: the characters of ASCII that are seen. Languages without blanks have no long words."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """What the end of a text is held for.

    Attributes:
        chars: whatever a rule finds is no longer than that, or else as the others say.
        chars_at: where `chars` stands in the data of the set: a number, or texts, of which the longest counts.
        word: how long a word may be that a rule finds; 0 where words matter no more than other text.
        opened_by: what may have blanks in it, and be as long as a word, has one of these in its first word.
    """

    chars: int = 0
    chars_at: str | None = None
    word: int = 0
    opened_by: tuple[str, ...] = ()

    def held(self, text: str) -> int:
        """How many of the last characters of `text`, which goes on, have to wait."""
        held = self.chars
        if self.word:
            tail = text[-self.word :]
            begun = [tail.find(opening) for opening in self.opened_by if opening in tail]
            start = min(begun, default=len(tail))
            held = max(held, len(tail) - start + open_word(tail[:start]))
        return min(held, len(text))

    def resolved(self, data: Mapping[str, Any], path: str) -> Lookahead:
        """This one with the number that `data` has at `chars_at`; `path` is the file that says so.

        Raises:
            PolicyError: nothing is there (code policy.no-setting), or neither a number nor texts (policy.bad-metadata).
        """
        if self.chars_at is None:
            return self
        found: Any = data
        for name in self.chars_at.split(".")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is None:
            message = f"custom.stream: no data file gives {self.chars_at}"
            hint = f"give {self.chars_at} in a data file"
            raise PolicyError(message, path=path, hint=hint, code="policy.no-setting")
        if isinstance(found, list | tuple) and all(isinstance(text, str) for text in found):
            found = max(map(len, found), default=0)
        if type(found) is not int or found < 0:
            message = f"custom.stream: {self.chars_at} is neither a number nor a list of texts"
            hint = "name a place in the data of the policies that is"
            raise PolicyError(message, path=path, hint=hint, code="policy.bad-metadata")
        return replace(self, chars=found, chars_at=None)


def longest(all_of: Iterable[Lookahead]) -> Lookahead:
    """What holds enough for each of them."""
    found = tuple(all_of)
    return Lookahead(
        chars=max((one.chars for one in found), default=0),
        word=max((one.word for one in found), default=0),
        opened_by=tuple(sorted({opening for one in found for opening in one.opened_by})),
    )


def open_word(text: str) -> int:
    """How many characters the word has at the end of `text`."""
    return len(text) - len(text.rstrip(_VISIBLE))


def said_lookahead(said: object) -> Lookahead | None:
    """The one that METADATA says as an object under `stream`; None where it says none."""
    if not isinstance(said, dict) or not said.keys() <= {"max_match", "max_word", "opened_by"}:
        return None
    match, word, openings = said.get("max_match"), said.get("max_word"), said.get("opened_by", [])
    chars_at = match if isinstance(match, str) and _PLACE.fullmatch(match) else None
    if (
        (match is None and word is None)
        or not (match is None or chars_at is not None or _is_length(match))
        or not (_is_length(word) if word is not None else not openings)
        or not (isinstance(openings, list) and all(map(_is_opening, openings)))
    ):
        return None
    chars = 0 if match is None or chars_at is not None else match
    return Lookahead(chars=chars, chars_at=chars_at, word=word or 0, opened_by=tuple(openings))


def _is_length(value: object) -> bool:
    return type(value) is int and value > 0


def _is_opening(text: object) -> bool:
    """A part of a word: its own beginning is held as the open word, blanks would let it go."""
    return isinstance(text, str) and bool(text) and open_word(text) == len(text)


__all__ = ["Lookahead", "longest", "open_word", "said_lookahead"]
