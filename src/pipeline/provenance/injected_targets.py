"""Whether untrusted text, and not the user, picked the thing that a call acts on. Spec: [PROV-16].

An attacker who wants the model to act on one thing out of many has to name it. Such a name (an id, say) may also be in
a trusted field, since the service knows the thing; that does not make it the one that the user meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final

from pipeline.provenance.matching import number_key, text_keys
from pipeline.provenance.negation import inflected, says_any, with_alike
from pipeline.provenance.normalize_values import keys_in, keys_of, kind_of, moment
from pipeline.provenance.occurrences import Occurrences, Text, spelled
from pipeline.provenance.profile import AskedFor
from pipeline.provenance.sources import TRUSTED, UNTRUSTED, Group, Origin
from pipeline.provenance.user_references import MAX_TEXTS, Designation

_SPEAKERS: Final = frozenset({"user", "system"})
_DISTINCT: Final = re.compile(r"[^\W\d_][\W_]*\d|\d[\W_]*[^\W\d_]|\w[@./:_]\w|(?:\d[^\w]*){7}")
"""What only an id or address has: a letter beside a digit, words joined by a sign, or seven digits."""
_CONTACT: Final = re.compile(r"[^\s@]+@[^\s@]+|\+?[0-9()][0-9 ().-]{5,28}[0-9]")
_FIGURES: Final = re.compile(r"[-+\d.,' ]{1,12}")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_WORD_ONLY: Final = re.compile(r"[^\W\d_]{3,30}|[A-Z]{2}")
"""A word, or a code of two capitals (`FR`): other words of two letters are of the language."""
_TO_BE: Final = r"(?:(?:must|should|shall|to)\W+(?:be|stay|become)|as|to|into|with|use)"
_DAY_WORD: Final = re.compile(
    r"(?<!\w)(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|today|tomorrow|tonight|yesterday|weekend|the\s+\d{1,2}(?:st|nd|rd|th)"
    r"|(?:this|next|last|end\s+of(?:\s+(?:the|this|next))?)\s+(?:week|month|quarter|year)"
    r"|(?:in|for|by|within)\s+\w+\s+(?:day|night|week|fortnight|month|year)s?)(?!\w)",
    re.I,
)
"""Words that give a day without a date."""
_SENTENCE: Final = re.compile(r"[.!?]\s+|\n")
_ALL: Final = ("all", "every", "everything", "each", "both", "any", "the others", "the rest", "the remaining")
_MANY: Final = re.compile(
    r"(?<!\w)(?:all|every\w*|each|both|any\w*|others?|rest|remaining|whatever|many|several|some|them)(?!\w)", re.I
)
MIN_FIGURES: Final = 3  # digits of a number that two texts hardly have in common by chance
MAX_CHARACTERS: Final = 64  # of a value that can be one that the user gave
_NUMBERING: Final = frozenset({"id", "ids", "no", "nr", "num", "number"})


def requests_all(
    texts: Occurrences, groups: Sequence[Group], acts: AskedFor, user_texts: Sequence[tuple[int, str]]
) -> bool:
    """Whether untrusted text asks for the act on everything ("delete all"), and the user `said` nothing of many."""
    if any(_MANY.search(words) for _, words in user_texts):
        return False
    untrusted = _untrusted_groups(groups)
    asked = (f"{verb} {many}" for verb in with_alike(acts.verbs) for many in _ALL)
    return bool(untrusted) and any(True for words in asked for _ in texts.texts_with(words, untrusted))


class Naming:
    """Answers for one argument, at `path`, of a call that people ask for by the words `acts`."""

    def __init__(
        self,
        texts: Occurrences,
        groups: Sequence[Group],
        path: Sequence[str | int],
        acts: AskedFor | None,
        designation: Designation,
        chosen: Set[Hashable],
        echoed: Mapping[Hashable, Set[str]],
    ) -> None:
        self._texts = texts
        self._designation = designation
        self._chosen = chosen
        self._echoed = echoed
        self._untrusted_groups = _untrusted_groups(groups)
        self._known = {at for at, group in enumerate(groups) if group.trust == TRUSTED}
        self._argument = next((step for step in reversed(path) if isinstance(step, str)), "")
        self._acts = acts

    def names(self, entry: Origin, content: str | float) -> bool:
        """Whether untrusted text names a value that trusted results have, and neither the user nor the system says."""
        if not self._untrusted_groups:
            return False
        if isinstance(content, bool):
            return self._turns()
        trusted = {source["kind"] for source in entry["sources"] if source["trust"] == TRUSTED}
        if not trusted or not trusted.isdisjoint(_SPEAKERS):
            return False
        text = (content if isinstance(content, str) else spelled(content)).strip()
        return (self._is_named(text) or self.is_looked_up(entry, text)) and not self._designation.tells(text)

    def is_looked_up(self, entry: Origin, text: str) -> bool:
        """Whether a value is known only from results of calls that looked up what untrusted text named."""
        if not self._chosen or not {source["kind"] for source in entry["sources"]}.isdisjoint(_SPEAKERS):
            return False
        held = list(islice(self._with(text, self._known), MAX_TEXTS))
        return bool(held) and all(found.record in self._chosen for found in held) and not _is_figure(text)

    def _is_named(self, text: str) -> bool:
        """Whether untrusted text names a value that is no boolean."""
        if text.isdecimal():
            return self._is_cued(text)
        if _is_figure(text):
            return False
        own = {found.record for found in self._with(text, self._known)} if _CONTACT.fullmatch(text) else set()
        if _DISTINCT.search(text):
            return self._any(text, lambda found: found.record not in own or self._requests_at(found, text))
        return self._any(text, self._requests) or (self._any(text, _always) and self._designation.chooses(text))

    def _requests(self, found: Text) -> bool:
        return self._acts is not None and self._acts.is_said_in(found.raw)

    def _requests_at(self, found: Text, own: str) -> bool:
        """Whether one sentence of a text asks for the act and has the address `own`, which the user does not name."""
        if found.record is None or self._acts is None:
            return found.record is None
        asking = (says_any(self._acts.verbs, part, acts=True) for part in _SENTENCE.split(found.raw) if own in part)
        return not self._designation.names(own) and any(asking)

    def replacing(self, content: str | float, user_texts: Sequence[tuple[int, str]]) -> Iterator[str | float]:
        """What untrusted text wrote of a value that is no control value: all of it, or its date or time.

        A number, date or time counts only if the user gave another one (`said` are his messages): a user who gives none
        leaves it to the texts.
        """
        text = "" if isinstance(content, bool) else (content if isinstance(content, str) else spelled(content)).strip()
        if not self._untrusted_groups or not text or len(text) > MAX_CHARACTERS:
            return
        for part in [text[start:end] for start, end in moment(text)] or [text]:
            kind, sought = _kind(part), part if isinstance(content, str) else content
            if kind is None and _WORD_ONLY.fullmatch(part):
                steers = self._any(part, self._steered(part))
            elif kind is None:
                steers = _DISTINCT.search(part) is not None and self._any(part, _always)
            elif part.isdecimal() and len(part) < MIN_FIGURES:
                steers = self._is_cued(part)
            else:
                steers = self._any(sought, _always) and any(_gives(kind, words) for _, words in user_texts)
            if steers:
                yield sought

    def _steered(self, word: str) -> Callable[[Text], bool]:
        """A test of whether a text gives `word` for the argument: beside its name, or as what something is to be."""
        name = r"\W*".join(map(re.escape, _words(self._argument))) or r"(?!)"
        stated = re.compile(
            rf"(?<!\w)(?:{name}s?(?:\W+\w+){{0,4}}?\W+{word}|{word}\W+{name}|{_TO_BE}\W+(?:(?:an?|the)\W+)?{word}"
            rf"|{word}\W+(?:instead|rather|not))(?!\w)",
            re.I,
        )
        return lambda found: stated.search(found.raw) is not None

    def _turns(self) -> bool:
        """Whether untrusted text names a boolean argument of the call, and trusted text does not."""
        argument, name = self._argument, " ".join(_words(self._argument))
        if any(True for spelling in (argument, name) for _ in self._with(spelling, self._known)):
            return False
        if " " in name:
            return self._any(argument, _always) or self._any(name, _always)
        to = re.compile(rf"(?<!\w){re.escape(name)}(?:\W+\w+){{0,3}}?\W+(?:true|false|yes|no|on|off)(?!\w)", re.I)
        return self._any(argument, lambda found: to.search(found.raw) is not None)

    def _any(self, value: str | float, holds: Callable[[Text], bool]) -> bool:
        """Whether `holds` is true of an untrusted text that has the value; true if more than `MAX_TEXTS` have it."""
        found = (text for text in self._with(value, self._untrusted_groups) if not self._is_echo(text, value))
        return any(map(holds, islice(found, MAX_TEXTS))) or next(found, None) is not None

    def _is_echo(self, text: Text, value: str | float) -> bool:
        """Whether the text is of what an act returned that was given the value: "flight 12 is full"."""
        given = self._echoed.get(text.record[:2]) if isinstance(text.record, tuple) else None
        return given is not None and str(value) in given

    def _with(self, value: str | float, groups: set[int]) -> Iterator[Text]:
        return self._texts.texts_with(value, groups)

    def _is_cued(self, number: str) -> bool:
        """Whether untrusted text has the number right after a word that says what it is (the argument's name, say).

        After a verb of the act, two words may stand between ("merge PR 58").
        """
        words = _words(self._argument)
        verbs = [verb for verb in (self._acts.verbs if self._acts is not None else ()) if " " not in verb]
        stated = rf"(?:{'|'.join(map(inflected, verbs))})(?:\W{{1,3}}[^\W\d_]+){{1,2}}\W{{1,3}}{number}(?!\w)"
        asked = re.compile(stated if verbs else "(?!)", re.I)
        cues = _NUMBERING.union(verbs)
        if words and words[-1] in _NUMBERING:
            cues = cues.union(words)
        beside = any(self._texts.has_beside(cue, number, self._untrusted_groups) for cue in cues)
        return beside or self._any(number, lambda found: asked.search(found.raw) is not None)


def _is_figure(text: str) -> bool:
    """Whether a value is a number or a date, which texts repeat without asking for anything."""
    return not text.isdecimal() and (_FIGURES.fullmatch(text) is not None or bool(keys_of(text)))


def _untrusted_groups(groups: Sequence[Group]) -> set[int]:
    return {at for at, group in enumerate(groups) if group.trust == UNTRUSTED and group.kind in _RETURNED}


def _kind(text: str) -> str | None:
    """The kind of a value: number, date, time or currency; None for anything else."""
    if _FIGURES.fullmatch(text) and number_key(text.replace(",", "")) is not None:
        return "number"
    return next((kind for kind in map(kind_of, sorted(keys_of(text))) if kind in ("date", "time", "currency")), None)


def _gives(kind: str, text: str) -> bool:
    """Whether a text has a value of the kind."""
    if kind == "number" and any(key.startswith("number:") for key in text_keys(text)):
        return True
    return bool(keys_in(kind, text)) or (kind == "date" and _DAY_WORD.search(text) is not None)


def _always(_found: Text) -> bool:
    return True


def _words(argument: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(argument)]


_RETURNED: Final = frozenset({"tool_result", "resource"})
