"""Dates and times in other languages than English. Spec: [PROV-13], [PROV-15], [PROV-19].

German, French, Spanish, Italian, Dutch and Portuguese: the names of months and of units of time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pipeline.provenance.words import names_of, words


def _bare(text: str) -> str:
    """Without the accents of its letters."""
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


def _table(rows: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What each word of a row says, with its accents or without."""
    return {form: meaning for meaning, names in rows.items() for name in names for form in (name, _bare(name))}


_MONTH_OF: Final = _table(names_of("months"))
_UNIT_OF: Final = _table(names_of("units"))
_COUNT_OF: Final = _table(words("foreign_counts"))
DATE: Final = re.compile(
    r"(?<![\w.,])(?P<day>\d{1,2})(?:\.|er|\u00ba)?\s{1,3}(?:de\s{1,3})?"
    rf"(?P<month>{'|'.join(_MONTH_OF)})(?!\w)(?:\s{{1,3}}(?:del?\s{{1,3}})?(?P<year>[12]\d{{3}})(?![\d:]))?",
    re.I,
)
"""A date with the name of its month, the day before it."""
_SPAN: Final = re.compile(
    rf"(?<![\w.,])(?P<count>\d{{1,4}}|{'|'.join(_COUNT_OF)})\s{{1,3}}(?P<unit>{'|'.join(_UNIT_OF)})(?!\w)", re.I
)


def month_of(name: str) -> int:
    """The number of a month that `DATE` found; 0 for a name that only folds to one (a dotless i)."""
    return int(_MONTH_OF.get(name.casefold(), 0))


def spans(text: str) -> Iterator[tuple[str, int, str]]:
    """The times in a text: the words of each, how many, and the unit in English."""
    for match in _SPAN.finditer(text):
        number, unit = match["count"].casefold(), _UNIT_OF.get(match["unit"].casefold())
        count = _COUNT_OF.get(number, number)
        if unit is not None and count.isdecimal():  # no words that only fold to these
            yield match[0], int(count), unit
