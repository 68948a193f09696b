"""Further look-ups for a control value that no trusted text has as it is: its other forms, and its pieces.

Without a source, a person would have to approve the call; so only such calls pay for these look-ups.
Spec: docs/spec/provenance.md [PROV-14], [PROV-15].
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final, Protocol

from pipeline.provenance.arithmetic import DerivedValues
from pipeline.provenance.matching import cuts, pieces, word_spans
from pipeline.provenance.normalize_values import near_days
from pipeline.provenance.occurrences import Answer, Match, Occurrences
from pipeline.provenance.sources import TRUSTED, Origin, has_source, is_trusted
from pipeline.provenance.value_variants import readings

MAX_PIECES: Final = 64  # pieces of one value; one of more is looked up as a whole only
MAX_WORDS: Final = 6  # words of a value that are looked up as fields
_ONES: Final = frozenset({"1", "1.0"})
_QUANTITY: Final = re.compile(r"/(?:\w+_)?(?:quantity|qty|count|copies|pieces|units)\Z", re.I)
"""Names of arguments that are a number of things."""


class Entries(Protocol):
    """Makes the entry of a value; `others` are further look-ups whose sources count as its own."""

    def __call__(self, path: str, kind: str, use: str, content: object, /, *others: Answer) -> Origin:
        """The entry."""


class ControlValues:
    """Looks control values up in `texts`, in other forms, in pieces, and as values derived from them."""

    def __init__(self, texts: Occurrences, entry: Entries, derived: DerivedValues) -> None:
        self._texts = texts
        self._entry = entry
        self._derived = derived

    def entries(self, path: str, content: str | float, whole: Origin) -> list[Origin]:
        """The entries of a value: one that is trusted in another form; else `whole` and the entries of its pieces."""
        other = self._in_other_form(path, whole["type"], content)
        if other is not None:
            return [other]
        spans = pieces(content) if isinstance(content, str) else []
        if len(spans) > MAX_PIECES or not isinstance(content, str):
            return [whole]
        found = [entry for span in spans or [(0, len(content))] for entry in self._piece(path, content, span)]
        return [whole, *found] if spans or len(found) > 1 else [whole]

    def _in_other_form(self, path: str, kind: str, content: str | float, *, folder: bool = False) -> Origin | None:
        """The entry of a value that trusted text has in another form, or as a piece of a link; None if none has."""
        part = self._texts.find_part(str(content), folder=folder)
        forms = map(self._texts.find, readings(content)) if isinstance(content, str) else ()
        entry = self._entry(path, kind, "control", content, part, *forms)
        return entry if is_trusted(entry) else self._following(path, kind, content, from_untrusted=has_source(entry))

    def _following(self, path: str, kind: str, content: str | float, *, from_untrusted: bool) -> Origin | None:
        """The entry of the user's words by which a value follows from a known one: "tomorrow", "20 % off".

        A value that stands in untrusted text (`from_untrusted`) was not computed. Only a day near a known one may be
        both.
        """
        one = self._derived.one() if not from_untrusted and str(content) in _ONES and _QUANTITY.search(path) else None
        if one is not None:
            return self._entry(path, kind, "control", one)
        near = near_days(content, from_untrusted=from_untrusted) if isinstance(content, str) else []
        for words, bases in chain(near, () if from_untrusted else self._derived.bases(content)):
            entry = self._entry(path, kind, "control", words)
            if is_trusted(entry) and any(is_trusted(self._entry(path, kind, "control", base)) for base in bases):
                return entry
        return None

    def _piece(self, path: str, text: str, span: tuple[int, int]) -> list[Origin]:
        """The entry of one piece of a value; if only its own pieces have a source, the entries of those."""
        piece = text[slice(*span)]
        entry = self._entry(path, "piece", "control", piece) | {"span": list(span)}
        if is_trusted(entry):
            return [entry]
        other = self._in_other_form(path, "piece", piece, folder=text[span[1] :][:1] == "/")
        if other is not None:
            return [other | {"span": list(span)}]
        for cut in cuts(text, span):
            found = [self._step(path, text, end) for end in cut]
            if all(map(is_trusted, found)):
                return found
        return self._fields(path, text, span) or [entry]

    def _step(self, path: str, text: str, span: tuple[int, int]) -> Origin:
        """The entry of steps of a path."""
        step = text[slice(*span)]
        return self._entry(path, "piece", "control", step, self._texts.find_part(step, folder=True)) | {
            "span": list(span)
        }

    def _fields(self, path: str, text: str, span: tuple[int, int]) -> list[Origin]:
        """The entries of words that are whole trusted fields of one result: a first and a last name, say."""
        words = word_spans(text, span)
        found: list[Origin] = []
        messages: set[int] | None = None
        at = 0 if 1 < len(words) <= MAX_WORDS else len(words)
        while at < len(words):
            for end in range(len(words), at, -1):
                start, stop = words[at][0], words[end - 1][1]
                entry = self._entry(path, "piece", "control", text[start:stop])
                shared = set(_fields_of(entry)) & (messages or set(_fields_of(entry)))
                if shared:
                    break
            else:
                return []
            messages, at = shared, end
            found.append(entry | {"span": [start, stop]})
        return found


def _fields_of(entry: Origin) -> Iterable[int]:
    """The messages in which a value is the whole of a trusted field."""
    for source in entry["sources"]:
        if source["trust"] == TRUSTED and source["match"] == Match.EXACT.value and "tool" in source:
            yield source["message"]
