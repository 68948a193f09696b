"""What the user refers to: records by a name that he says, values that he leaves to a text, acts that he asks for.

Spec: provenance.md [PROV-3], [PROV-20], [PROV-22].

A user seldom says an id. "Bello's claim" or "the mooring ropes" means the record that has this name in a trusted field;
the record's id, address and other fields then count as said by the user.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from pipeline.provenance.matching import addresses, normal, text_keys, tokens
from pipeline.provenance.negation import agrees, asked_in
from pipeline.provenance.occurrences import Occurrences, Text
from pipeline.provenance.profile import AskedFor
from pipeline.provenance.sources import MAX_SOURCES, TRUSTED, UNTRUSTED, Group, Origin
from pipeline.provenance.words import inferred_words

MAX_VALUE: Final = 512  # characters of an address
MAX_TEXTS: Final = 256  # texts that are read for one value
MAX_CHARACTERS: Final = 65_536  # of one text that are read, of the user or for its addresses
_MAIL: Final = re.compile(r"[^\s@]+@[^\s@]+")
_WEB: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+|[^\s@]+\.[a-z]{2,}(?:[/:?#]\S*)?", re.I)
_MAILTO: Final = re.compile(r"mailto:", re.I)


class Referral:
    """Answers which values the user's messages leave to texts that they name.

    `given` has, for each result of a call whose arguments the user wrote, its texts.
    """

    def __init__(
        self,
        texts: Occurrences,
        groups: Sequence[Group],
        user_texts: Sequence[tuple[int, str]],
        given: Mapping[Hashable, Sequence[str]],
        designation: Designation,
    ) -> None:
        self._texts = texts
        self._groups = groups
        self._said = [text[:MAX_CHARACTERS] for _, text in user_texts]
        self._given = given
        self._designation = designation

    def leaves(self, value: str, *, many: bool) -> bool:
        """Whether the user leaves `value` to the text that has it; with `many`, also one of several ("all links")."""
        kind = _kind(value)
        if kind is None or any(_of_kind(kind, text) for text in self._said):
            return False
        asked, several = _patterns(kind)
        if not any(asked.search(text) for text in self._said):
            return False
        plural = many and any(several.search(text) for text in self._said)
        others = {at for at, group in enumerate(self._groups) if group.trust == UNTRUSTED and group.tool is not None}
        held = self._texts.texts_with(value, others)
        return any(
            plural or len(_values(kind, scope)) == 1
            for text in islice(held, MAX_TEXTS)
            if isinstance(text.record, tuple)
            for scope in self._scopes(text.record)
        )

    def _scopes(self, record: tuple[Any, ...]) -> Iterator[Sequence[str]]:
        """The texts named by the user that a field of `record` is one of: a record with a name he says, or a result."""
        fields = list(self._texts.fields_of(record))
        known = (held.raw for held in fields if self._groups[held.group].trust == TRUSTED)
        if record[2] and any(map(self._designation.names, known)):
            yield [held.raw for held in fields]
        if record[:2] in self._given:
            yield self._given[record[:2]]


def _kind(value: str) -> str | None:
    """The kind of an address: `mail`, `web`, `account`; None for anything else."""
    if len(value) > MAX_VALUE:
        return None
    text = _MAILTO.sub("", value.strip())
    if _MAIL.fullmatch(text):
        return "mail"
    if any(key.startswith("account:") for key in text_keys(text)):
        return "account"
    return "web" if _WEB.fullmatch(text) and not any(map(str.isspace, text)) else None


def _of_kind(kind: str, text: str) -> set[str]:
    found = (text[start:end] for start, end in addresses(text[:MAX_CHARACTERS]))
    return {_plain(address) for address in found if _kind(address) == kind}


def _values(kind: str, texts: Sequence[str]) -> set[str]:
    return set[str]().union(*(_of_kind(kind, text) for text in texts))


def _plain(address: str) -> str:
    return re.sub(r"\A(?:https?://|mailto:)?(?:www\.)?|/\Z", "", normal(address))


@cache
def _patterns(kind: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Expressions for the kind in what the user says, and for several of it."""
    said = inferred_words()["kinds"][kind]
    one, many = (re.compile(rf"(?<!\w)(?:{'|'.join(said[of])})(?!\w)", re.I) for of in ("one", "many"))
    return one, many


DELEGATION: Final = AskedFor(
    patterns=(
        r"(?<!\w)(?:do|perform|follow|complete|execute|carry out|handle|process|finish|take care of|work through)"
        r"(?!\w)(?! (?:the )?(?:following|these))[^.?!]{0,60}?"
        r"(?<!\w)(?:actions?|tasks?|instructions?|steps?|to-?dos?|to-?do list|check ?list)(?!\w)",
    )
)
"""The words by which a user delegates to a text: "do the tasks on my list at …". Spec: [PROV-3]."""


class RequestedActs:
    """The user's messages, each with the model's question to which it agrees."""

    def __init__(self, texts: Occurrences) -> None:
        self.user_texts: list[tuple[int, str]] = []
        self._texts = texts
        self._found: dict[str, tuple[int, list[int]]] = {}
        self._question: str | None = None

    def read_user(self, number: int, text: str) -> None:
        """Read a text of the user. One that agrees to the model's question also asks for what the question names."""
        self.user_texts.append((number, text))
        if self._question is not None and agrees(text):
            self.user_texts.append((number, self._question))
        self._question = None

    def read_model(self, text: str | None) -> None:
        """Read a text of the model; None for one that is only claimed to be the model's."""
        self._question = asked_in(text) if text is not None else None

    def messages_with(self, words: AskedFor) -> list[int]:
        """The numbers of the user's messages that say `words`. Each message is searched once."""
        key = repr(words)
        read, found = self._found.get(key, (0, []))
        for number, text in self.user_texts[read:]:
            self._texts.work += 1
            if words.is_said_in(text):
                found.append(number)
        self._found[key] = (len(self.user_texts), found)
        return found

    def sources(self, acts: AskedFor) -> list[Origin]:
        """The sources of a call: the user's messages that ask for it by `acts`, or that delegate to a text."""
        asked = set(self.messages_with(acts))
        delegated = set(self.messages_with(DELEGATION)) - asked
        return as_sources([*((number, "asked") for number in asked), *((number, "delegated") for number in delegated)])


def as_sources(found: Iterable[tuple[int, str]]) -> list[Origin]:
    """Sources of a call as a whole, made of (message number, how it asks for the call)."""
    return [
        {"kind": "user", "trust": TRUSTED, "message": number, "match": match, "labels": []}
        for number, match in sorted(found)[-MAX_SOURCES:]
    ]


MAX_FIELD: Final = 128  # characters of a field whose words are looked for
MAX_FIELDS: Final = 64  # fields of one record whose words are looked for
MAX_RECORDS: Final = 16  # records that are looked at for one value
MAX_SHARED: Final = 2  # records of one kind that may share a name that still identifies them
MIN_LETTERS: Final = 3  # of a name
MIN_PAIRED: Final = 4  # letters of each word of a pair: shorter words are mostly function words
MAX_OTHERS: Final = 256  # values of a field that are looked for in what the user said
_WORD: Final = re.compile(r"(?<![^\W_])(?<!\d[-_.:/])[^\W\d_]+(?![^\W_]|[-_.:/]\d)")
"""A word, not the letters within a code."""
_NAME: Final = re.compile(r"\d|\w[@./:_]\w|\A[^\W\d_a-z]\w")
"""What a name has: a digit, words joined by a sign, or a capital letter at the beginning."""
_ENDED: Final = re.compile(r"(?:\A|[.!?:\n])[\s\"'(*-]*\Z")
_LAST_LABEL: Final = re.compile(r"\.[a-z]{2,24}\Z", re.I)


class _Words(NamedTuple):
    """The words of a user's message that can identify a record: names, first words of sentences, pairs of words."""

    names: frozenset[str]
    begins: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    text: str


class Designation:
    """Answers which of the records that were read the user's messages mean."""

    def __init__(self, texts: Occurrences, groups: Sequence[Group], user_texts: Sequence[tuple[int, str]]) -> None:
        self._texts = texts
        self._groups = groups
        self._user_texts = user_texts

    @cached_property
    def _values(self) -> frozenset[int]:
        """The groups of fields that are trusted, but for their names."""
        fields = ((at, group) for at, group in enumerate(self._groups) if group.trust == TRUSTED)
        return frozenset(at for at, group in fields if group.tool is not None and not group.field.endswith("~"))

    @cached_property
    def _words(self) -> list[_Words]:
        return [_words(text) for _, text in self._user_texts]

    def tells(self, value: str) -> bool:
        """Whether the user means a record that has `value` in a trusted field, and no other record of its kind."""
        seen: set[object] = set()
        for found in self._texts.texts_with(value, self._values):
            if found.record is None or found.record in seen or normal(found.raw) != normal(value):
                continue
            if len(seen) == MAX_RECORDS:
                return False
            seen.add(found.record)
            stated = self._stated_by(found)
            if stated:
                return not self._states_another(found, stated)
        return False

    def names(self, field: str) -> bool:
        """Whether the user says a name that a field has."""
        return bool(self._stated_of(field))

    def chooses(self, value: str) -> bool:
        """Whether the user says a different value out of those that the result has in fields of the same name."""
        own = self._stated_of(value)
        for found in self._texts.texts_with(value, self._values):
            if found.record is None or normal(found.raw) != normal(value):
                continue
            for raw in self._beside(found):
                if not self._stated_of(raw) <= own or any(_states(words.text, raw) for words in self._words):
                    return True
        return False

    def _beside(self, found: Text) -> Iterator[str]:
        """The values that the result of a text has in fields of the same name."""
        tool, name = self._groups[found.group].tool, _field_name(self._groups[found.group].field)
        for at in self._values:
            if self._groups[at].tool == tool and _field_name(self._groups[at].field) == name:
                texts = islice(self._texts.texts_of(at), MAX_OTHERS)
                yield from (text.raw for text in texts if text.origin == found.origin and text.raw != found.raw)

    def _stated_of(self, field: str) -> frozenset[str]:
        """The words of a field that the user says."""
        if len(field) > MAX_FIELD:
            return frozenset()
        return frozenset[str]().union(*(_values_named(words, field) for words in self._words))

    def _stated_by(self, found: Text) -> frozenset[str]:
        """The words of the user that identify the record that the text is a field of."""
        stated: set[str] = set()
        for text in islice(self._texts.fields_of(found.record), MAX_FIELDS):
            values = self._stated_of(text.raw) if text.group in self._values and text.raw != found.raw else frozenset()
            if values and not self._is_shared(text):
                stated |= values
        return frozenset(stated)

    def _is_shared(self, text: Text) -> bool:
        records = {found.record for found in self._texts.texts_with(text.raw, {text.group}) if found.raw == text.raw}
        return len(records) > MAX_SHARED

    def _states_another(self, found: Text, stated: frozenset[str]) -> bool:
        """Whether the user says the same field of another record, or words that identify only that one."""
        others = {text.raw: text for text in islice(self._texts.texts_of(found.group), MAX_OTHERS)}
        others.pop(found.raw, None)
        return any(
            any(_states(words.text, raw) for words in self._words) or not self._stated_by(text) <= stated
            for raw, text in others.items()
        )


def is_name(value: str) -> bool:
    """Whether a value can identify a thing: an id or a name, no ordinary word."""
    return _NAME.search(value.strip()) is not None


def _field_name(field: str) -> str:
    return "[*]" if field.endswith("[*]") else field.rpartition(".")[2]


def _states(text: str, value: str) -> bool:
    folded = normal(value)
    return bool(folded) and re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", text) is not None


@lru_cache(maxsize=64)
def _words(text: str) -> _Words:
    names: set[str] = set()
    begins: set[str] = set()
    text = text[:MAX_CHARACTERS]
    for match in _WORD.finditer(text):
        if match[0][0].isupper() and len(match[0]) >= MIN_LETTERS:
            first = _ENDED.search(text, max(0, match.start() - 8), match.start()) is not None
            (begins if first else names).add(normal(match[0]))
    return _Words(frozenset(names), frozenset(begins), frozenset(_pairs(text)), normal(text))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of neighbouring words, the second without an `s` at its end, so that singular and plural are alike."""
    for (first, _), (second, _) in pairwise(tokens(normal(text))):
        if min(len(first), len(second)) >= MIN_PAIRED and not (first + second).isdecimal():
            yield first, second.removesuffix("s")


def _values_named(words: _Words, field: str) -> Iterator[str]:
    """The words of a field that name it and are said."""
    address = "@" in field
    for match in _WORD.finditer(_LAST_LABEL.sub("", field) if address else field):
        name = normal(match[0])
        if name in words.names or (name in words.begins and match[0][0].isupper()):
            yield name
    if not address:
        yield from (" ".join(pair) for pair in words.pairs.intersection(_pairs(field)))
