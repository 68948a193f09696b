"""Where a value occurs in a growing body of texts. Spec: docs/spec/provenance.md [PROV-4], [PROV-5], [PROV-10].

An inverted index of words and of pairs of neighbouring words, with their places, by group. Adding a text takes time
proportional to its length. Looking a value up takes time proportional to its length and to the number of places of its
rarest pair, whatever was added before. (With single words alone, a phrase of common words had to be compared with every
turn of a conversation.)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from enum import StrEnum
from heapq import nsmallest
from itertools import chain, islice, pairwise
from typing import Any, Final, NamedTuple

from pipeline.provenance import matching
from pipeline.provenance.normalize_values import keys_in, kind_of

MAX_PROBES: Final = 8  # pairs of words by which a value is looked up: its rarest ones
MAX_CANDIDATES: Final = 2_048  # places per group that are compared with a value; past them `complete` is False
MAX_OTHERWISE: Final = 8  # the same for other spellings of a value that was found as it is
MAX_GROUPS: Final = (
    64  # kinds of sources that a value is looked for in, the first and the last ones; the same past them
)
MAX_GRADED: Final = 4  # occurrences per group that are graded to report the best
_PLACE_BITS: Final = 32  # a place is text number << 32 | character offset


class Match(StrEnum):
    """How a value occurs in a text, the best match first."""

    EXACT = "exact"
    CONTAINED = "contained"
    NORMALISED = "normalised"


class Found(NamedTuple):
    """A value that occurs in the texts of a group: its best match and the first one, each with its origin."""

    match: Match
    origin: int
    first_match: Match
    first: int


class Answer(NamedTuple):
    """What was found, by group; `complete` is False if a limit ended the search early."""

    found: dict[int, Found]
    complete: bool


class _Places:
    """The places of a word, or of a pair of words, by group, in ascending order."""

    __slots__ = ("groups", "total")

    def __init__(self) -> None:
        self.total = 0
        self.groups: dict[int, array[int]] = {}


class Text(NamedTuple):
    """A text that was added."""

    group: int
    origin: int
    raw: str
    normal: str
    loose: bool = False
    """Whether it is a text with its accents taken off: addresses are not looked for in such a copy."""
    record: Hashable = None
    """The record of a result that the text is a field of; None if it is no field."""


_CHECKED: Final = 4_096  # words, between two looks at the clock
_GRADES: Final = list(Match)
_NOWHERE: Final = _Places()


class Occurrences:
    """Texts by group, each with its origin: the number of its message, which never decreases. `work` counts steps."""

    def __init__(self) -> None:
        self.work = 0
        self.check: Callable[[], None] | None = None
        """Called now and then while a text is read, if it is set; raises where the time for reading is over."""
        self.record: Hashable = None
        self._texts: list[Text] = []
        self._words: dict[str, _Places] = {}
        self._keys: dict[str, dict[int, list[int]]] = {}
        self._wordless: dict[str, dict[int, list[int]]] = {}
        self._read_for: dict[str, int] = {}
        self._records: dict[Hashable, list[int]] = {}
        self._by_group: dict[int, list[int]] = {}
        self._sorted = 0

    def add(self, group: int, origin: int, content: str | float) -> None:
        """Remember a text or a number, as a field of the `record` that is set."""
        raw = content if isinstance(content, str) else spelled(content)
        folded = matching.normal(raw)
        if not folded:
            return
        number = len(self._texts)
        words = self._read(Text(group, origin, raw, raw if folded == raw else folded, record=self.record))
        plain = matching.unmarked(folded)
        if plain != folded:
            words += self._read(Text(group, origin, raw, plain, loose=True))
        keys = matching.text_keys(raw)
        if not isinstance(content, str) and (key := matching.number_key(content)) is not None:
            keys |= {key}
        for key in keys:
            self._keys.setdefault(key, {}).setdefault(group, []).append(number)
        self.work += 1 + words + len(keys)

    def _read(self, text: Text) -> int:
        """Index the words of a text. Returns how many there are."""
        group, place = text.group, len(self._texts) << _PLACE_BITS
        words: list[tuple[str, int]] = []
        tokens = matching.tokens(text.normal)
        while batch := list(islice(tokens, _CHECKED)):
            words += batch
            if self.check is not None:
                self.check()
        if not words:
            self._wordless.setdefault(text.normal, {}).setdefault(group, []).append(len(self._texts))
        self._texts.append(text)
        held_by_word = self._words
        pairs = [(f"{word} {after}", offset) for (word, offset), (after, _) in pairwise(words)]
        for number, (word, offset) in enumerate(chain(words, pairs)):
            if number % _CHECKED == _CHECKED - 1 and self.check is not None:
                self.check()
            held = held_by_word.get(word)
            if held is None:
                held_by_word[word] = held = _Places()
            held.total += 1
            places = held.groups.get(group)
            if places is None:
                held.groups[group] = places = array("Q")
            places.append(place | offset)
        return len(words)

    def find(self, value: str | float) -> Answer:
        """Where `value` occurs as a whole value."""
        text = value if isinstance(value, str) else spelled(value)
        keys = matching.value_keys(text) if isinstance(value, str) else _key_of(value)
        search = _Search(self, text)
        for kind in {kind_of(key) for key in keys}:
            if kind is not None:
                self._read_equivalents(kind)
        for key in sorted(keys):
            search.take_all(self._keys.get(key, {}))
        if isinstance(value, str) or not keys:
            search.verbatim = matching.is_case_bound(text)
            folded = matching.normal(text)
            search.strict = matching.is_address(folded)
            self._look_up(search, folded)
            if not search.strict:
                plain = matching.unmarked(folded)
                for other in dict.fromkeys((plain, *matching.alternates(plain))):
                    if other != folded:
                        self._look_up(search, other, MAX_OTHERWISE)
        return Answer(search.found, search.complete)

    def find_part(self, value: str, *, folder: bool = False) -> Answer:
        """Where `value` is a piece of a link or path; with `folder`, where one begins with it."""
        self._read_equivalents("part")
        search = _Search(self, value)
        for kind in ("part", "folder") if folder else ("part",):
            search.take_all(self._keys.get(f"{kind}:{value}", {}))
        return Answer(search.found, search.complete)

    def texts_with(self, value: str | float, groups: Container[int]) -> Iterator[Text]:
        """The texts of these groups in which `value` occurs as a whole, in this or an equivalent spelling."""
        text = value if isinstance(value, str) else spelled(value)
        for key in sorted(matching.value_keys(text) if isinstance(value, str) else _key_of(value)):
            for group, numbers in self._keys.get(key, {}).items():
                yield from (self._texts[number] for number in numbers if group in groups)
        folded = matching.normal(text)
        probe = min(self._probes(folded), key=lambda probe: probe[0].total, default=(_NOWHERE, 0))
        for group, places in probe[0].groups.items():
            for place in places if group in groups else ():
                self.work += 1
                held, start = self._texts[place >> _PLACE_BITS], (place & ((1 << _PLACE_BITS) - 1)) - probe[1]
                stands = start >= 0 and not held.loose and held.normal.startswith(folded, start)
                if stands and matching.stands_at(held.normal, start, start + len(folded)):
                    yield held

    def fields_of(self, record: Hashable) -> Iterator[Text]:
        """The texts of a record, in order."""
        self._sort()
        return (self._texts[number] for number in self._records.get(record, ()))

    def texts_of(self, group: int) -> Iterator[Text]:
        """The texts of a group, in order."""
        self._sort()
        return (self._texts[number] for number in self._by_group.get(group, ()))

    def _sort(self) -> None:
        """Sort the added texts by record and by group, when that is first needed."""
        for number in range(self._sorted, len(self._texts)):
            text = self._texts[number]
            self.work += 1
            if text.record is not None and not text.loose:
                self._records.setdefault(text.record, []).append(number)
                self._by_group.setdefault(text.group, []).append(number)
        self._sorted = len(self._texts)

    def has_beside(self, first: str, second: str, groups: Container[int]) -> bool:
        """Whether `first` comes right before `second` in a text of these groups, with any signs between them."""
        self.work += 1
        return any(group in groups for group in self._words.get(f"{first} {second}", _NOWHERE).groups)

    def _read_equivalents(self, kind: str) -> None:
        """Search each text once for all equivalents of `kind` in it, when that is first needed."""
        first = self._read_for.get(kind, 0)
        self._read_for[kind] = len(self._texts)
        for number in range(first, len(self._texts)):
            text = self._texts[number]
            self.work += 1
            for key in () if text.loose else keys_in(kind, text.raw):
                self._keys.setdefault(key, {}).setdefault(text.group, []).append(number)

    def _look_up(self, search: _Search, folded: str, most: int = MAX_CANDIDATES) -> None:
        probes = self._probes(folded)
        if probes:
            self._compare(search, folded, probes, most)
        else:
            search.take_all(self._wordless.get(folded, {}))

    def _probes(self, folded: str) -> list[tuple[_Places, int]]:
        """The places of a value's rarest pairs of words (of its only word), each with the offset in the value."""
        found: list[tuple[str, int]] = list(matching.tokens(folded))
        self.work += 1 + len(found)
        if len(found) > 1:
            pairs = pairwise(found)
            found = [(f"{word} {after}", offset) for (word, offset), (after, _) in pairs]
        first: dict[str, int] = {}
        for word, offset in found:
            first.setdefault(word, offset)
        held = [(self._words.get(word, _NOWHERE), offset) for word, offset in first.items()]
        return nsmallest(MAX_PROBES, held, key=lambda item: item[0].total)

    def _compare(self, search: _Search, folded: str, probes: list[tuple[_Places, int]], most: int) -> None:
        for group in search.some(min((held.groups for held, _ in probes), key=len)):
            self.work += 1
            lists = [(held.groups[group], offset) for held, offset in probes if group in held.groups]
            if len(lists) == len(probes):
                places, offset = min(lists, key=lambda item: len(item[0]))
                search.compare(group, folded, islice(places, most + 1), offset)

    def text(self, number: int) -> Text:
        """A text that was added."""
        return self._texts[number]


class _Search:
    """One look-up: the best match found so far, by group."""

    def __init__(self, index: Occurrences, value: str) -> None:
        self.found: dict[int, Found] = {}
        self.complete = True
        self.verbatim = False
        self.strict = False
        self._index = index
        self._value = value

    def take_all(self, groups: dict[int, list[int]]) -> None:
        """Take texts that are known to contain the value."""
        for group in self.some(groups):
            for number in groups[group][:MAX_GRADED]:
                if self._take(group, self._index.text(number)) is Match.EXACT:
                    break

    def some(self, groups: dict[int, Any]) -> Iterable[int]:
        """The groups to search: all of them, or the first and the last if they are too many."""
        if len(groups) <= MAX_GROUPS:
            return groups
        self.complete = False
        half = MAX_GROUPS // 2
        return (*islice(groups, half), *islice(reversed(groups), half))

    def compare(self, group: int, folded: str, places: Iterable[int], offset: int) -> None:
        """Compare the value with the text at `places`, where its word at `offset` (in characters) occurs."""
        taken = 0
        for tried, place in enumerate(places):
            if tried == MAX_CANDIDATES:
                self.complete = False
                return
            self._index.work += 1
            text = self._index.text(place >> _PLACE_BITS)
            start = (place & ((1 << _PLACE_BITS) - 1)) - offset
            if start < 0 or (text.loose and self.strict) or not text.normal.startswith(folded, start):
                continue
            if not matching.stands_at(text.normal, start, start + len(folded)):
                continue
            grade = self._take(group, text)
            taken += grade is not None
            if grade is Match.EXACT or taken == MAX_GRADED:
                return

    def _take(self, group: int, text: Text) -> Match | None:
        self._index.work += 1
        if text.raw == self._value:
            match = Match.EXACT
        elif matching.stands_in(text.raw, self._value):
            match = Match.CONTAINED
        elif self.verbatim:
            return None
        else:
            match = Match.NORMALISED
        held = self.found.get(group)
        here = (_GRADES.index(match), text.origin)
        if held is None:
            self.found[group] = Found(match, text.origin, match, text.origin)
            return match
        if here < (_GRADES.index(held.match), held.origin):
            held = held._replace(match=match, origin=text.origin)
        if (text.origin, here) < (held.first, (_GRADES.index(held.first_match), held.first)):
            held = held._replace(first_match=match, first=text.origin)
        self.found[group] = held
        return match


def spelled(number: float) -> str:
    """A JSON number as text."""
    try:
        return str(number)
    except ValueError:  # an integer of more digits than Python writes, which no view shows either
        return hex(int(number))


def _key_of(number: float) -> frozenset[str]:
    key = matching.number_key(number)
    return frozenset() if key is None else frozenset({key})
