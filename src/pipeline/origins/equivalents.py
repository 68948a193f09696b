"""Words and figures that say the same: numbers, currencies, dates, times of day, as keys. Spec: [PROV-13].

A date or time is read in English and ISO spellings, and where day and month can be told in two ways, in both. A year
that is not said is every year's, and so is one that is not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

_ONES: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_CURRENCIES: Final = {
    "USD": "$ us$ usd dollar dollars",
    "EUR": "\u20ac eur euro euros",
    "GBP": "\u00a3 gbp pound pounds",
    "JPY": "\u00a5 jpy yen",
    "INR": "\u20b9 inr rupee rupees",
    "CHF": "chf franc francs",
}
_WORD_KEYS: Final[dict[str, str]] = {
    **{word: f"number:{number}" for number, word in enumerate(_ONES.split(), 1)},
    **{word: f"number:{number * 10}" for number, word in enumerate(_TENS.split(), 2)},
    **{word: f"currency:{code}" for code, words in _CURRENCIES.items() for word in words.split()},
    "noon": "time:12:00",
    "midnight": "time:00:00",
}
_NUMBER_WORD: Final = re.compile(rf"(?<![\w-])(?:{'|'.join(f'{_ONES} {_TENS}'.split())})(?![\w-])", re.I)
_CURRENCY_NAMES: Final = [word for words in _CURRENCIES.values() for word in words.split() if word.isalpha()]
_CURRENCY_WORD: Final = re.compile(
    rf"[$\u20ac\u00a3\u00a5\u20b9]|(?<![^\W\d_])(?:{'|'.join(_CURRENCY_NAMES)})(?!\w)", re.I
)
_DECIMAL_COMMA: Final = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:\.\d{3}){1,4}|\d{1,12}),\d{1,2}(?![.,]?\w)")
_THOUSANDS: Final = re.compile(r"(?<![\w.,])(\d{1,9})(?:\.(\d{1,3}))?\s?k(?!\w)", re.I)

_TIME_WORD: Final = re.compile(r"(?<!\w)(?:noon|midnight)(?!\w)", re.I)
MAX_CHARACTERS: Final = 64  # of a value that is a date, a time or both
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH: Final = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![a-z])\.?"
)
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r"(?:,?\s{1,3}(?P<year>[12]\d{3})(?![\d:]))?"
_ISO_DATE: Final = re.compile(r"(?<![\w.-])(?P<year>[12]\d{3})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})(?!\d)")
_DAY_FIRST: Final = re.compile(rf"(?<![\w.,]){_DAY}(?:\s{{1,3}}of)?[\s-]{{1,3}}{_MONTH}{_YEAR}", re.I)
_MONTH_FIRST: Final = re.compile(rf"(?<!\w){_MONTH}[\s-]{{1,3}}{_DAY}(?![\w:]){_YEAR}", re.I)
_NUMERIC: Final = re.compile(r"(?<![\w./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\w/-])")
_SHORT: Final = re.compile(r"(?<![\w./-])(\d{1,2})/(\d{1,2})(?![\w/-])")
_TIME: Final = re.compile(
    r"(?<![\d:.,])(?P<hour>\d{1,2})(?:[:h](?P<minute>[0-5]\d)(?::[0-5]\d(?:\.\d{1,9})?)?)?"
    r"(?:\s{0,2}(?P<half>[ap])\.?m\b\.?)?(?![\d:])",
    re.I,
)
_BESIDE: Final = re.compile(r"(?:[T\s,]|at|on|Z|UTC|[+-]\d\d:?\d\d\Z)*", re.I)
"""What may stand around a date and a time that are one moment."""


class _Date(NamedTuple):
    start: int
    end: int
    year: int | None
    month: int
    day: int


class _Time(NamedTuple):
    start: int
    end: int
    hour: int
    minute: int


def kind_of(key: str) -> str | None:
    """The kind of equivalents that a key of a value is one of; None for any other."""
    kind = key.partition(":")[0]
    return kind if kind in _READERS else None


def keys_in(kind: str, text: str) -> set[str]:
    """The keys of all of one kind that stands in `text`; for numbers, those of spellings that are not plain figures."""
    return _READERS[kind](text)


def _numbers_in(text: str) -> set[str]:
    found = _words_in(_NUMBER_WORD, text)
    for match in _DECIMAL_COMMA.finditer(text) if "," in text else ():
        whole, _, rest = match[0].partition(",")
        found.add(_number(whole.replace(".", ""), rest))
    for match in _THOUSANDS.finditer(text):
        found.add(_number(match[1] + (match[2] or "").ljust(3, "0"), ""))
    return found


def _currencies_in(text: str) -> set[str]:
    return _words_in(_CURRENCY_WORD, text)


def _dates_in(text: str) -> set[str]:
    found: set[str] = set()
    for _, _, year, month, day in _dates(text):
        named = f"{month:02}-{day:02}"
        found |= {f"date:*-{named}", f"date:{year:04}-{named}" if year is not None else f"date:--{named}"}
    return found


def _times_in(text: str) -> set[str]:
    found = {f"time:{hour:02}:{minute:02}" for _, _, hour, minute in _times(text)}
    return found | _words_in(_TIME_WORD, text)


def _words_in(words: re.Pattern[str], text: str) -> set[str]:
    # An expression that ignores case takes letters for others (a dotless i) that folding them does not.
    found = (match[0].casefold() for match in words.finditer(text))
    return {_WORD_KEYS[word] for word in found if word in _WORD_KEYS}


_READERS: Final[Mapping[str, Callable[[str], set[str]]]] = {
    "number": _numbers_in,
    "currency": _currencies_in,
    "date": _dates_in,
    "time": _times_in,
}


def keys_of(value: str) -> set[str]:
    """The keys under which a whole value is looked up, but those of plain numbers."""
    if len(value) > MAX_CHARACTERS:
        return set()
    stripped = value.strip()
    word = _WORD_KEYS.get(stripped.lower())
    if word is not None:
        return {word}
    found: set[str] = set()
    if not any(map(str.isdigit, stripped)):
        return found
    for start, end, year, month, day in _dates(stripped):
        if (start, end) == (0, len(stripped)):
            named = f"{month:02}-{day:02}"
            found |= {f"date:{year:04}-{named}", f"date:--{named}"} if year is not None else {f"date:*-{named}"}
    for start, end, hour, minute in _times(stripped):
        if (start, end) == (0, len(stripped)):
            found.add(f"time:{hour:02}:{minute:02}")
    return found


def moment(value: str) -> list[tuple[int, int]]:
    """Where date and time stand in a value that is a moment, nothing else; only the date where it is its midnight."""
    if len(value) > MAX_CHARACTERS:
        return []
    for date in _dates(value):
        for time in _times(value):
            first, second = sorted(((date.start, date.end), (time.start, time.end)))
            around = (value[: first[0]], value[first[1] : second[0]], value[second[1] :])
            if first[1] <= second[0] and all(_BESIDE.fullmatch(piece) for piece in around):
                midnight = (time.hour, time.minute) == (0, 0) and value[time.start : time.end].startswith("00:00:00")
                return [(date.start, date.end)] if midnight else [first, second]
    return []


def _dates(text: str) -> Iterator[_Date]:
    for match in _ISO_DATE.finditer(text):
        yield from _valid(match, int(match["year"]), int(match["month"]), int(match["day"]))
    for expression in (_DAY_FIRST, _MONTH_FIRST):
        for match in expression.finditer(text):
            year = int(match["year"]) if match["year"] else None
            yield from _valid(match, year, _MONTHS.index(match["month"].casefold()[:3]) + 1, int(match["day"]))
    for match in _NUMERIC.finditer(text):
        year = int(match[4]) + (2000 if len(match[4]) == 2 else 0)
        yield from _valid(match, year, int(match[1]), int(match[3]))
        yield from _valid(match, year, int(match[3]), int(match[1]))
    for match in _SHORT.finditer(text):
        yield from _valid(match, None, int(match[1]), int(match[2]))
        yield from _valid(match, None, int(match[2]), int(match[1]))


def _valid(match: re.Match[str], year: int | None, month: int, day: int) -> Iterator[_Date]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        yield _Date(match.start(), match.end(), year, month, day)


def _times(text: str) -> Iterator[_Time]:
    for match in _TIME.finditer(text):
        hour, half = int(match["hour"]), (match["half"] or "").lower()
        if not half and match["minute"] is None:
            continue  # a bare number
        if half and not 1 <= hour <= 12:
            continue
        if half:
            hour = hour % 12 + (12 if half == "p" else 0)
        if hour < 24:
            yield _Time(match.start(), match.end(), hour, int(match["minute"] or 0))


def _number(whole: str, fraction: str) -> str:
    kept = fraction.rstrip("0")
    return f"number:{int(whole)}{'.' + kept if kept else ''}"


__all__ = ["keys_in", "keys_of", "kind_of", "moment"]
