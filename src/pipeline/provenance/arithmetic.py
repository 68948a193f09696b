"""Values that the model derived from the user's words and a known value: "20 % off", "one more night". [PROV-19].

No text contains such a value. If the user's words contain the change, and trusted text the value that it changes, the
result counts as the user's.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Final, NamedTuple

from pipeline.provenance.normalize_values import count_of, day_of, foreign_spans, ordinal, time_of

MAX_CHARACTERS: Final = 65_536  # of one message of the user that are read for it
MAX_WORDS: Final = 16  # phrases of each kind that are remembered: the last ones
MAX_BASES: Final = 32  # known amounts from which one may have been computed
_SPAN: Final = re.compile(
    r"(?<![\w.,])(?:(?P<part>half|three[\s-]quarters\s+of|(?:a\s+)?quarter\s+of)\s+an?|(?P<count>\d{1,4}(?:\.\d{1,2})?|[a-z]+)"
    r"(?:\s+(?:more|extra|additional|further|full|whole))?)[\s-](?P<unit>minute|hour|day|night|week|fortnight|month|year)s?"
    r"(?P<half>\s+and\s+a\s+half)?(?!\w)",
    re.A | re.I,
)
_STEPS: Final = frozenset({"another", "extra", "next", "following", "previous", "last"})
"""Words before a unit of time that mean one of it."""
_BESIDE: Final = re.compile(r"\s+(?:after|afterwards|before|later|earlier)(?!\w)", re.A | re.I)
"""After "the day": one day from another."""
_PARTS: Final = {"half": Decimal("0.5"), "three": Decimal("0.75"), "quarter": Decimal("0.25"), "a": Decimal("0.25")}
_MINUTES: Final = {"minute": 1, "hour": 60, "day": 1440, "night": 1440, "week": 10_080, "fortnight": 20_160}
_MONTHS: Final = {"month": 1, "year": 12}
_PERCENT: Final = re.compile(
    r"(?<![\w.,-])(\d{1,3}(?:\.\d{1,2})?|five|ten|fifteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)"
    r"\s?(?:%|per\s?cent(?!\w))",
    re.A | re.I,
)
_ONE: Final = re.compile(r"(?<!\w)(?:an?|the|another)(?=\s+[a-z])", re.A | re.I)
"""An article: who asks for a thing means one of it."""
_FACTORS: Final = {
    "half": ("0.5",),
    "double": ("2",),
    "doubled": ("2",),
    "twice": ("2",),
    "triple": ("3",),
    "tripled": ("3",),
    "quarter": ("0.25", "0.75"),
    "three quarters": ("0.75",),
}
_FACTOR: Final = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(_FACTORS, key=len, reverse=True))})(?!\w)", re.A | re.I)
_AMOUNT: Final = re.compile(r"(?<![\w.,/:-])(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,9})(?:\.\d{1,2})?(?![\w/:-]|[.,]\d)", re.A)
_COUNT: Final = re.compile(
    r"(?<![\w-])(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty)(?![\w-])", re.A | re.I
)
_CHANGES: Final = re.compile(
    r"(?<!\w)(?:more|less|fewer|extra|another|additional|further|up|down|off|plus|minus|by|add|deduct|subtract|on\s+top)(?!\w)",
    re.A | re.I,
)
_SHARES: Final = re.compile(r"(?<!\w)(?:each|per|apiece|split|divide|share|between|among|times)(?!\w)", re.A | re.I)
MAX_AHEAD: Final = 366  # days from a known one to a month given by its name; half of it back
_RANGE: Final = re.compile(
    r"(?<![\w.,/-])(\d{1,2})(?:st|nd|rd|th)?\s?(?:-|\u2013|to|until|till|through)\s?(?:the\s+)?(\d{1,2})(?:st|nd|rd|th)(?!\w)",
    re.A | re.I,
)
_WEEK: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_RANGE: Final = re.compile(
    rf"(?<!\w)({'|'.join(_WEEK)})\s?(?:-|\u2013|to|until|till|through)\s?({'|'.join(_WEEK)})(?!\w)", re.A | re.I
)
_CODE: Final = re.compile(r"([a-z][a-z _/-]{0,15})?(\d{1,9})", re.A | re.I)
_CODE_RANGE: Final = re.compile(
    r"(?<![\w.,-])(?P<name>[a-z]{1,8}[_/-]?)?(?P<first>\d{1,9})\s?(?:-|\u2013|to|until|till|through)\s?(?P=name)?(?P<last>\d{1,9})"
    r"(?![\w/-]|[.,:]\d)",
    re.A | re.I,
)
MAX_RANGE: Final = 1_000  # codes in a range of which the user gives the first and the last
_MONTH: Final = re.compile(r"([12]\d{3})[-/](0[1-9]|1[0-2])", re.A)
_FIGURES: Final = re.compile(r"-?\d{1,12}(?:\.\d{1,4})?", re.A)


class Step(NamedTuple):
    """A change, and the words that say it."""

    words: str
    amount: Decimal
    unit: str = ""


class DerivedValues:
    """Derives values from the user's durations, amounts and counts. Messages are read when they are first needed."""

    def __init__(self) -> None:
        self._read = 0
        self._spans: deque[Step] = deque(maxlen=MAX_WORDS)
        self._factors: deque[Step] = deque(maxlen=MAX_WORDS)
        self._changes: deque[Step] = deque(maxlen=MAX_WORDS)
        self._shares: deque[Step] = deque(maxlen=MAX_WORDS)
        self._articles: deque[str] = deque(maxlen=1)
        self._ranges: deque[tuple[str, int, int]] = deque(maxlen=MAX_WORDS)
        self._day_ranges: deque[tuple[str, int, int]] = deque(maxlen=MAX_WORDS)
        self._code_ranges: deque[re.Match[str]] = deque(maxlen=MAX_WORDS)

    def read(self, messages: Sequence[tuple[int, str]]) -> None:
        """Read the messages that were not read before."""
        for _, text in messages[self._read :]:
            self._extend(text[:MAX_CHARACTERS])
        self._read = len(messages)

    def _extend(self, text: str) -> None:
        self._spans += [step for match in _SPAN.finditer(text) for step in _span(match)]
        self._spans += [Step(words, Decimal(count), unit) for words, count, unit in foreign_spans(text)]
        for match in _PERCENT.finditer(text):
            part = count_of(match[1].lower()) / 100
            self._factors += [Step(match[0], factor) for factor in (1 - part, 1 + part, part) if factor > 0]
        for match in _FACTOR.finditer(text):
            self._factors += [Step(match[0], Decimal(factor)) for factor in _FACTORS[match[0].lower()]]
        self._articles += [match[0] for match in _ONE.finditer(text)]
        amounts = [Step(match[0], Decimal(match[0].replace(",", ""))) for match in _AMOUNT.finditer(text)]
        amounts += [Step(match[0], count_of(match[0].lower())) for match in _COUNT.finditer(text)]
        self._changes += amounts if _CHANGES.search(text) else []
        self._shares += [step for step in amounts if step.amount > 1] if _SHARES.search(text) else []
        self._ranges += [(match[0], int(match[1]), int(match[2])) for match in _RANGE.finditer(text)]
        for match in _DAY_RANGE.finditer(text):
            self._day_ranges.append((match[0], _WEEK.index(match[1].lower()), _WEEK.index(match[2].lower())))
        self._code_ranges += _CODE_RANGE.finditer(text)

    def bases(self, content: str | float) -> Iterator[tuple[str, list[str]]]:
        """Pairs of the user's words for a change, and the values that this change would turn into `content`."""
        value = content.strip() if isinstance(content, str) else str(content)
        day, time, month = day_of(value), time_of(value), _MONTH.fullmatch(value)
        if day is not None:
            with suppress(OverflowError, ValueError):  # beyond what a calendar has
                yield from self._days(day)
        elif time is not None:
            yield from ((step.words, _moved_time(*time, step)) for step in self._spans)
        elif month is not None:
            with suppress(OverflowError, ValueError):
                first = datetime.date(int(month[1]), int(month[2]), 1)
                yield from _around_month(first)
                yield from ((name, [name]) for name in _month_names(first))
        else:
            yield from ((words, [words]) for words in self._codes(value))
            yield from self._numbers(Decimal(value)) if _FIGURES.fullmatch(value) else ()

    def one(self) -> str | None:
        """The words by which the user asks for one of a thing; None if he never does."""
        return self._articles[0] if self._articles else None

    def _days(self, day: datetime.date) -> Iterator[tuple[str, list[str]]]:
        yield from ((step.words, _moved_day(day, step)) for step in self._spans)
        if 1 in (day.day, (day + datetime.timedelta(days=1)).day):
            yield from _around_month(day)
            yield from _edges(day)
        for words, weeks in (("next week", 1), ("this week", 0)):
            first = day - datetime.timedelta(days=day.weekday(), weeks=weeks)
            yield words, [(first + datetime.timedelta(days=away)).isoformat() for away in range(7)]
        yield ordinal(day), _month_names(day)
        yield "yesterday", [(day + datetime.timedelta(days=1)).isoformat()]
        near = [(day + datetime.timedelta(days=away)).isoformat() for away in range(-31, 32)]
        yield from ((words, near) for words, first, last in self._ranges if first <= day.day <= last)
        for words, start, end in self._day_ranges:
            if (day.weekday() - start) % 7 <= (end - start) % 7:
                yield words, near

    def _codes(self, value: str) -> Iterator[str]:
        """The user's words for a range of codes ("A1 to A9") that the value lies in."""
        code = _CODE.fullmatch(value)
        if code is None:
            return
        for found in self._code_ranges:
            first, last = int(found["first"]), int(found["last"])
            alike = (found["name"] or "").lower() == (code[1] or "").lower() and len(code[2]) >= len(found["first"])
            if alike and first <= int(code[2]) <= last <= first + MAX_RANGE:
                yield found[0]

    def _numbers(self, value: Decimal) -> Iterator[tuple[str, list[str]]]:
        yield from ((step.words, [step.words]) for step in self._spans if value in _in_units(step))
        for step in self._factors:
            yield step.words, _plain(_before(value, step.amount))
        for step in self._changes:
            yield step.words, _plain([value - step.amount, value + step.amount])
        for step in self._shares:
            yield step.words, _plain([*_before(value, step.amount), *_before(value, 1 / step.amount)])


def _span(match: re.Match[str]) -> Iterator[Step]:
    part, word = (match["part"] or "").lower(), (match["count"] or "").lower()
    one = word in _STEPS or (word == "the" and _BESIDE.match(match.string, match.end()) is not None)
    count = _PARTS[re.split(r"[\s-]", part)[0]] if part else Decimal(1) if one else count_of(word)
    if count:
        yield Step(match[0], count + (Decimal("0.5") if match["half"] else 0), match["unit"].lower())


def _in_units(step: Step) -> Iterator[Decimal]:
    """A duration in minutes, in hours and in days: 45 minutes are 45, 0.75 and 0.03125."""
    minutes = step.amount * _MINUTES.get(step.unit, 0)
    yield from (minutes / unit for unit in (1, 60, 1440) if minutes)


def _moved_day(day: datetime.date, step: Step) -> list[str]:
    months = _MONTHS.get(step.unit)
    if months is not None:
        count = int(step.amount) * months
        return [found.isoformat() for away in (-count, count) for found in _months_away(day, away)]
    days = int(step.amount * _MINUTES[step.unit]) // 1440
    return [(day + datetime.timedelta(days=away)).isoformat() for away in (-days, days) if days]


def _months_away(day: datetime.date, months: int) -> Iterator[datetime.date]:
    """The day so many months away; from the last day of a month, every day from there to the end of that month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    ends = day.day == calendar.monthrange(day.year, day.month)[1]
    for at in range(min(day.day, last), (last if ends else min(day.day, last)) + 1):
        yield datetime.date(year, month + 1, at)


def _moved_time(hour: int, minute: int, step: Step) -> list[str]:
    minutes = int(step.amount * _MINUTES.get(step.unit, 0))
    moved = [(hour * 60 + minute + away) % 1440 for away in (-minutes, minutes) if 0 < minutes < 1440]
    return [f"{at // 60:02}:{at % 60:02}" for at in moved]


def _around_month(day: datetime.date) -> Iterator[tuple[str, list[str]]]:
    """The phrases that mean the month of `day`, each with the days on which it means that."""
    for words, away in (("next month", -1), ("this month", 0), ("last month", 1)):
        first = next(_months_away(day.replace(day=1), away))
        yield (
            words,
            [first.replace(day=at + 1).isoformat() for at in range(calendar.monthrange(first.year, first.month)[1])],
        )


def _edges(day: datetime.date) -> Iterator[tuple[str, list[str]]]:
    """The phrases that mean the first or last day of a month, each with the known days from which it can be derived."""
    first = day.day == 1
    edges = ("beginning of", "start of", "first of", "first day of") if first else ("end of", "last day of")
    known = [(day - datetime.timedelta(days=away)).isoformat() for away in range(-MAX_AHEAD // 2, MAX_AHEAD)]
    yield from ((f"{edge} {name}", known) for edge in edges for name in _month_names(day))
    if (day.day, day.month) in ((1, 1), (31, 12)):
        days = [(day.replace(month=1, day=1) + datetime.timedelta(days=away)).isoformat() for away in range(366)]
        yield from ((f"{edge} {which} year", days) for edge in edges for which in ("the", "this"))


def _month_names(day: datetime.date) -> list[str]:
    return [day.strftime("%B"), day.strftime("%b")]


def _before(value: Decimal, factor: Decimal) -> list[Decimal]:
    """The amounts, in whole cents, that give `value` when multiplied by `factor` and rounded to cents."""
    first, last = (value - Decimal("0.005")) / factor, (value + Decimal("0.005")) / factor
    exact = (value / factor).quantize(Decimal("0.01"))
    around = [exact + Decimal(away) / 100 for away in range(-MAX_BASES // 2, MAX_BASES // 2)]
    return [amount for amount in around if first <= amount <= last and amount > 0]


def _plain(amounts: Sequence[Decimal]) -> list[str]:
    return [format(amount.normalize(), "f") for amount in amounts[:MAX_BASES] if amount > 0]
