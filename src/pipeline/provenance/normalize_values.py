"""Words and figures that say the same: numbers, currencies, dates, times of day, as keys. Spec: [PROV-13].

A date or time is read in English and ISO spellings, and where day and month, or morning and evening, can be told in two
ways, in both. A year that is not said is every year's, and so is one that is not asked for.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote

from pipeline.provenance.words import names_of, words

_CHUNK: Final = re.compile(r"[^\s<>\"'`(){}\[\],;|]+")
MAX_LINKS: Final = 256  # links and paths of one text that are taken apart
MAX_STEPS: Final = 12  # steps of one that is


def parts_in(text: str) -> set[str]:
    """What is told by links and paths: pieces of the path of a link, values of its query, the end of a file's path.

    Apart from these, as folders, where a path begins: what lies beside a file was not named by naming the file.
    """
    found: set[str] = set()
    chunks = (match[0] for match in _CHUNK.finditer(text)) if "/" in text else iter(())
    for chunk in islice((chunk for chunk in chunks if "/" in chunk), MAX_LINKS):
        link = chunk.rstrip(".,;:!?*_")
        path, _, rest = link.partition("?")
        path, _, fragment = path.partition("#")
        steps = path.partition("://")[2].split("/")[1:] if "://" in path else path.split("/")
        if ".." in steps or len(steps) > MAX_STEPS:
            continue
        for start in range(len(steps)):
            for end in range(start + 1, len(steps) + 1):
                kind = "part" if "://" in path or end == len(steps) else "folder"
                found.add(f"{kind}:{'/'.join(steps[start:end])}")
        values = [piece.partition("=")[2] for piece in rest.partition("#")[0].split("&")] if "://" in path else []
        found.update(f"part:{unquote(value)}" for value in values)
        if fragment.isdecimal() and "://" not in path:
            found |= {f"part:{path}", f"part:{fragment}"}  # owner/repository#1
    return found - {"part:", "folder:"}


def _bare(text: str) -> str:
    """Without the accents of its letters."""
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


def _table(rows: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What each word of a row says, with its accents or without."""
    return {form: meaning for meaning, names in rows.items() for name in names for form in (name, _bare(name))}


_MONTH_OF: Final = _table(names_of("months"))
_UNIT_OF: Final = _table(names_of("units"))
_COUNT_OF: Final = _table(words("foreign_counts"))
_FOREIGN_DATE: Final = re.compile(
    r"(?<![\w.,])(?P<day>\d{1,2})(?:\.|er|\u00ba)?\s{1,3}(?:de\s{1,3})?"
    rf"(?P<month>{'|'.join(_MONTH_OF)})(?!\w)(?:\s{{1,3}}(?:del?\s{{1,3}})?(?P<year>[12]\d{{3}})(?![\d:]))?",
    re.I,
)
"""A date with the name of its month, the day before it."""
_FOREIGN_SPAN: Final = re.compile(
    rf"(?<![\w.,])(?P<count>\d{{1,4}}|{'|'.join(_COUNT_OF)})\s{{1,3}}(?P<unit>{'|'.join(_UNIT_OF)})(?!\w)", re.I
)


def foreign_spans(text: str) -> Iterator[tuple[str, int, str]]:
    """The times in a text: the words of each, how many, and the unit in English."""
    for match in _FOREIGN_SPAN.finditer(text):
        number, unit = match["count"].casefold(), _UNIT_OF.get(match["unit"].casefold())
        count = _COUNT_OF.get(number, number)
        if unit is not None and count.isdecimal():  # no words that only fold to these
            yield match[0], int(count), unit


_ONES: Final[list[str]] = words("ones")
_TENS: Final[list[str]] = words("tens")
_CURRENCIES: Final[dict[str, list[str]]] = words("currencies")
_NUMBERS: Final = dict(enumerate(_ONES, 1)) | {number * 10: word for number, word in enumerate(_TENS, 2)}
_WORD_KEYS: Final[dict[str, str]] = {
    **{word: f"number:{number}" for number, word in _NUMBERS.items()},
    **{word: f"currency:{code}" for code, names in _CURRENCIES.items() for word in names},
    **{word: f"number:{number}" for word, number in words("times_over").items()},
    "noon": "time:12:00",
    "midnight": "time:00:00",
}
_VALUES: Final[dict[str, Decimal]] = {
    **{word: Decimal(number) for number, word in _NUMBERS.items()},
    **{word: Decimal(number) for word, number in words("counts").items()},
}
_SCALES: Final[dict[str, int]] = words("scales")
_MOST: Final = Decimal(10) ** 15  # larger numbers are not read from words
_ONE_WORD: Final = rf"(?:{'|'.join([*_ONES, *_TENS, 'couple', 'pair'])})"
_NUMBER_WORDS: Final = re.compile(
    rf"(?<![\w.,-])(?:(?:half\s+a|an?|\d{{1,9}}(?:\.\d{{1,6}})?)(?=\s+(?:{'|'.join(_SCALES)})(?!\w))|{_ONE_WORD}|dozen)"
    rf"(?![\w])(?:[\s-]+(?:and\s+)?(?:{'|'.join(_SCALES)}|{_ONE_WORD})(?!\w))*",
    re.I,
)
_CURRENCY_NAMES: Final = [word for names in _CURRENCIES.values() for word in names if word.isalpha()]
_CURRENCY_WORD: Final = re.compile(
    rf"[$\u20ac\u00a3\u00a5\u20b9]|(?<![^\W\d_])(?:{'|'.join(_CURRENCY_NAMES)})(?!\w)", re.I
)
_AND_A_HALF: Final = re.compile(
    rf"(?<![\w.,-])(?P<count>\d{{1,9}}|an?|{_ONE_WORD})(?P<thing>\s+\w+)?\s+and\s+a\s+half(?!\w)"
    rf"(?:\s+(?P<scale>{'|'.join(_SCALES)})(?!\w))?",
    re.I,
)
_TIMES_OVER: Final = re.compile(rf"(?<!\w)(?:{'|'.join(words('times_over'))})(?!\w)", re.I)
_DECIMAL_COMMA: Final = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:\.\d{3}){1,4}|\d{1,12}),\d{1,2}(?![.,]?\w)")
_SPACED: Final = re.compile(
    r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u202f'\u2019]\d{3}){1,4}(?:[.,](?P<rest>\d{1,2}))?"
    r"(?![.,'\u2019]?\w)(?! \d{3}(?!\d))"
)
"""Thousands set apart by a space or an apostrophe."""
_THOUSANDS: Final = re.compile(r"(?<![\w.,])(\d{1,9})(?:\.(\d{1,3}))?\s?k(?!\w)", re.I)

_FACTORS: Final[dict[str, int]] = words("smaller_units")
_SPAN: Final = re.compile(
    rf"(?<![\w.,])(?:(?P<half>half)\s+an?[\s-](?P<thing>\w+)"
    rf"|(?P<count>an?|\d{{1,4}}(?:\.\d{{1,2}})?|{_ONE_WORD})[\s-](?P<unit>{'|'.join(_FACTORS)})s?(?!\w))",
    re.I,
)
"""Half of something, and a time, which is also said in the next smaller unit."""

_TIME_WORD: Final = re.compile(r"(?<!\w)(?:noon|midnight)(?!\w)", re.I)
MAX_CHARACTERS: Final = 64  # of a value that is a date, a time or both
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH: Final = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![a-z])\.?"
)
MAX_DAYS: Final = 14  # between a day that is told by its name and one that is known
MAX_MONTH: Final = 31  # the same for one that is told by its number in the month, or as its end
_DAYS_AWAY: Final = {int(number): names for number, names in words("days_away").items()}
_SUFFIXES: Final = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
_WEEKDAYS: Final = names_of("weekdays")
_ORDINALS: Final[list[str]] = words("ordinals")
_ORDINAL_DAYS: Final = {
    **{word: day for day, word in enumerate(_ORDINALS, 1)},
    **{f"twenty-{word}": day for day, word in enumerate(_ORDINALS[:9], 21)},
    "thirtieth": 30,
    "thirty-first": 31,
}
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r"(?:,?\s{1,3}(?P<year>[12]\d{3})(?![\d:]))?"
_ISO_DATE: Final = re.compile(r"(?<![\w.-])(?P<year>[12]\d{3})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})(?!\d)")
_DAY_FIRST: Final = re.compile(rf"(?<![\w.,]){_DAY}(?:\s{{1,3}}of)?[\s-]{{1,3}}{_MONTH}{_YEAR}", re.I)
_ORDINAL_FIRST: Final = re.compile(
    rf"(?<![\w-])(?P<day>{'|'.join(_ORDINAL_DAYS)})(?:\s{{1,3}}of)?\s{{1,3}}{_MONTH}{_YEAR}", re.I
)
_MONTH_FIRST: Final = re.compile(rf"(?<!\w){_MONTH}[\s-]{{1,3}}{_DAY}(?![\w:]){_YEAR}", re.I)
_NUMERIC: Final = re.compile(r"(?<![\w./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\w/-])")
_SHORT: Final = re.compile(r"(?<![\w./-])(\d{1,2})/(\d{1,2})(?![\w/-])")
_DAY_DOT_MONTH: Final = re.compile(r"(?<![\w./-])(\d{1,2})\.\s?(\d{1,2})\.(?![\w/-])")
_TIME: Final = re.compile(
    r"(?<![\d:.,])(?P<hour>\d{1,2})"
    r"(?:(?:[:h]|\.(?=\d\d\s{0,2}(?:[ap]\.?m|uhr|hrs?|h)\b))(?P<minute>[0-5]\d)(?::[0-5]\d(?:\.\d{1,9})?)?)?"
    r"(?:\s{0,2}(?P<half>[ap])\.?m\b\.?)?(?![\d:])",
    re.I,
)
_HOUR: Final = rf"\d{{1,2}}|{'|'.join(_ONES[:12])}"
_CLOCK: Final = re.compile(
    rf"(?<!\w)(?:(?P<past>half\s+past|quarter\s+past|quarter\s+to)\s+(?P<hour>{_HOUR})|(?P<clock>{_HOUR})\s+o['\u2019]?clock"
    rf"|(?:at|by|from|until|till)\s+(?P<bare>{_HOUR})(?![:.,]\d|\s{{0,2}}[ap]\.?m\b|[%/-]))(?!\w)",
    re.I,
)
"""Times as they are told by the clock: whether in the morning or in the evening is not said."""
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
    found = {key for match in _NUMBER_WORDS.finditer(text) for key in _number_words(match[0])}
    for match in _DECIMAL_COMMA.finditer(text) if "," in text else ():
        whole, _, rest = match[0].partition(",")
        found.add(_number(whole.replace(".", ""), rest))
    for match in _SPACED.finditer(text):
        whole = match[0][: match.start("rest") - match.start() - 1] if match["rest"] else match[0]
        found.add(_number(re.sub(r"\D", "", whole), match["rest"] or ""))
    found |= {key for match in _SPAN.finditer(text) for key in _span_numbers(match)}
    found |= {_plain(Decimal(count * _FACTORS[unit])) for _, count, unit in foreign_spans(text) if unit in _FACTORS}
    for match in _AND_A_HALF.finditer(text):
        half = (_value_of(match["count"]) + _VALUES["half"]) * _SCALES.get((match["scale"] or "").casefold(), 1)
        found.add(_plain(half))
    found |= _words_in(_TIMES_OVER, text)
    for match in _THOUSANDS.finditer(text):
        found.add(_number(match[1] + (match[2] or "").ljust(3, "0"), ""))
    return found


def _span_numbers(span: re.Match[str]) -> Iterator[str]:
    """The number of "half a gigabyte", and the 120 of "two hours"."""
    count = _value_of(span["count"] or "half")
    if span["half"]:
        yield _plain(count)
    factor = _FACTORS.get((span["unit"] or span["thing"]).casefold())
    if factor is not None:
        yield _plain(count * factor)


def _value_of(word: str) -> Decimal:
    """What a number says, in figures or in one word; nothing for a word that only folds to one (a dotless i)."""
    said = word.casefold()
    return _VALUES[said] if said in _VALUES else Decimal(said) if said.isdecimal() or "." in said else Decimal(0)


def _number_words(phrase: str) -> Iterator[str]:
    """The numbers of a phrase that is made of number words: "two hundred and fifty", "half a dozen"."""
    total, current, said = Decimal(0), Decimal(0), False
    for word in phrase.casefold().replace("-", " ").split():
        scale = _SCALES.get(word)
        value = _VALUES.get(word, Decimal(word) if word[0].isdecimal() else None)
        if scale is not None:
            current = min((current if said else Decimal(1)) * scale, _MOST)
            if scale >= 1000:
                total, current = min(total + current, _MOST), Decimal(0)
        elif value is not None and not (said and word == "a"):
            if said and not _goes_on(current, value):
                yield _plain(total + current)
                total, current = Decimal(0), Decimal(0)
            current += value
        said = said or word != "and"
    if total + current < _MOST:
        yield _plain(total + current)


def _goes_on(current: Decimal, value: Decimal) -> bool:
    """Whether a word adds to the number so far: "twenty five", "two hundred and fifty"."""
    if current == 0:
        return value < 1000
    if value < 10:
        return current % 10 == 0 and current % 100 != 10
    return value < 100 and current % 100 == 0


def _plain(number: Decimal) -> str:
    return _number(*f"{number:f}".partition(".")[::2])


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
    for match in _TIME.finditer(text):
        if not match["half"] and match["minute"] and match["hour"][0] != "0":
            found |= _either_half(match["hour"], int(match["minute"]))
    for match in _CLOCK.finditer(text):
        past = (match["past"] or "").casefold()
        minute = 0 if not past else 30 if past.startswith("half") else -15 if past.endswith("to") else 15
        found |= _either_half(match["hour"] or match["clock"] or match["bare"], minute)
    return found | _words_in(_TIME_WORD, text)


def _either_half(said: str, minute: int) -> set[str]:
    """A time of the clock, in the morning and in the evening; a negative minute is one before the hour."""
    hour = int(_VALUES[said]) if (said := said.casefold()) in _VALUES else int(said) if said.isdecimal() else 0
    if not 1 <= hour <= 12:
        return set()
    minutes = [(hour % 12 + half) * 60 + minute for half in (0, 12)]
    return {f"time:{at // 60 % 24:02}:{at % 60:02}" for at in minutes}


def _words_in(words: re.Pattern[str], text: str) -> set[str]:
    # An expression that ignores case takes letters for others (a dotless i) that folding them does not.
    found = (match[0].casefold() for match in words.finditer(text))
    return {_WORD_KEYS[word] for word in found if word in _WORD_KEYS}


_READERS: Final[Mapping[str, Callable[[str], set[str]]]] = {
    "number": _numbers_in,
    "currency": _currencies_in,
    "date": _dates_in,
    "time": _times_in,
    "part": parts_in,
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


def near_days(value: str, *, from_untrusted: bool) -> list[tuple[str, list[str]]]:
    """The words that mean this date, each with the days from which they mean it; empty if it is no date with a year.

    If the date stands in untrusted text too, a day of the week is only that of the same week, as that text could
    choose another week.
    """
    day = day_of(value)
    with suppress(OverflowError):  # the first and last days that there are
        return [] if day is None else list(_near(day, 6 if from_untrusted else MAX_DAYS))
    return []


def day_of(value: str) -> datetime.date | None:
    """The day that a value is, if it is a date with a year, nothing else, and there is such a day."""
    stripped = value.strip()
    for found in _dates(stripped) if len(value) <= MAX_CHARACTERS else ():
        if found.year is not None and (found.start, found.end) == (0, len(stripped)):
            with suppress(ValueError):  # no such day
                return datetime.date(found.year, found.month, found.day)
    return None


def time_of(value: str) -> tuple[int, int] | None:
    """Hour and minute of a value that is a time of day, nothing else."""
    stripped = value.strip()
    for found in _times(stripped) if len(value) <= MAX_CHARACTERS else ():
        if (found.start, found.end) == (0, len(stripped)):
            return found.hour, found.minute
    return None


def count_of(word: str) -> Decimal:
    """What a count says, in figures or in one word; 0 for what is none."""
    return Decimal(word) if word[:1].isdecimal() else _VALUES.get(word, Decimal(0))


def _near(day: datetime.date, most: int) -> Iterator[tuple[str, list[str]]]:
    for word in (*_WEEKDAYS[str(day.weekday())], *(["weekend"] if day.weekday() > 4 else [])):
        yield word, _around(day, most)
    for away, names in _DAYS_AWAY.items():
        known = [(day - datetime.timedelta(days=away)).isoformat()]
        yield from ((word, known) for word in names)
    month = _around(day, MAX_MONTH)
    yield ordinal(day), month
    if (day + datetime.timedelta(days=1)).day == 1:
        yield from ((f"{end} month", month) for end in ("end of the", "end of this", "last day of the", "last of the"))
        name = day.strftime("%B")
        yield from ((f"{end} {name}", month) for end in ("end of", "last day of"))


def ordinal(day: datetime.date) -> str:
    """How a day of the month is said: "the 9th"."""
    return f"the {day.day}{_SUFFIXES.get(day.day, 'th')}"


def _around(day: datetime.date, most: int) -> list[str]:
    return [(day + datetime.timedelta(days=away)).isoformat() for away in range(-most, most + 1)]


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
    for expression in (_DAY_FIRST, _ORDINAL_FIRST, _MONTH_FIRST):
        for match in expression.finditer(text):
            year = int(match["year"]) if match["year"] else None
            day = match["day"].casefold()
            day = int(day) if day.isdecimal() else _ORDINAL_DAYS.get(day, 0)
            yield from _valid(match, year, _MONTHS.index(match["month"].casefold()[:3]) + 1, day)
    for match in _NUMERIC.finditer(text):
        year = int(match[4]) + (2000 if len(match[4]) == 2 else 0)
        yield from _valid(match, year, int(match[1]), int(match[3]))
        yield from _valid(match, year, int(match[3]), int(match[1]))
    for match in _SHORT.finditer(text):
        yield from _valid(match, None, int(match[1]), int(match[2]))
        yield from _valid(match, None, int(match[2]), int(match[1]))
    for match in _DAY_DOT_MONTH.finditer(text):
        yield from _valid(match, None, int(match[2]), int(match[1]))
    for match in _FOREIGN_DATE.finditer(text):
        year = int(match["year"]) if match["year"] else None
        yield from _valid(match, year, int(_MONTH_OF.get(match["month"].casefold(), 0)), int(match["day"]))


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
