"""What a reader looks for among records: `verdict:deny rule:tools/* since:7d -session:test`. Spec: docs/spec/audit.md.

Words are told apart by spaces; a word is `name:value`, where the value may end in `*`, and a `-` before it is a no. A
`*` or a comma of the value's own has a backslash before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from pipeline.decision import Effect, Mode, Verdict
from pipeline.errors import AuditError
from pipeline.moments import micros

COLUMNS: Final = ("id", "kind", "verdict", "action", "subject", "session", "revision")
FACTS: Final = (
    "rule", "code", "effect", "severity", "tool", "uri", "view", "mode", "stage", "environment", "covered", "override"
)  # fmt: skip
REVIEWS: Final = ("needs", "reviewed", "disposition", "signed", "assignee", "sample")
"""What came of a decision since: by what people said later, which only a catalogue of all records knows [REV-3]."""

TIMES: Final = ("since", "until")
_EITHER: Final = ("yes", "no")
_CLOSED: Final[Mapping[str, tuple[str, ...]]] = {
    "verdict": (*Verdict, "none"),  # of what is no decision
    "effect": tuple(Effect),
    "mode": tuple(Mode),
    "covered": _EITHER,
    "needs": ("review",),
    "reviewed": _EITHER,
    "signed": _EITHER,
}
"""All values that these can have: `verdict:denied` finds nothing, and is not to look as if nothing were denied."""
_DURATION: Final = re.compile(r"([1-9]\d{0,5})([smhdw])")
_VALUE: Final = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)  # of those that stand between commas
_BEGINS: Final = re.compile(r"(?:[^\\]|\\.)*\*", re.DOTALL)  # one that ends in a `*` without a backslash
_BACKSLASHED: Final = re.compile(r"\\(.?)", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\,*]")
_ESCAPED: Final = r"\\\g<0>"
_NOTHING: Final = "\\"  # a value without a character
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Value(NamedTuple):
    """What is looked for: this text, or whatever `begins` with it."""

    text: str
    begins: bool = False

    def fits(self, known: str) -> bool:
        """Whether that is it."""
        return known.startswith(self.text) if self.begins else known == self.text


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: `name` has one of `values`; or, negated, has none of them."""

    name: str
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """All of `terms`, from `since` on and before `until`, in microseconds since the epoch."""

    terms: tuple[Term, ...] = ()
    since: int | None = None
    until: int | None = None
    text: str = ""

    @property
    def of_reviews(self) -> bool:
        """Whether it asks what people said of decisions."""
        return any(term.name in REVIEWS for term in self.terms)


def parse(text: str, now: datetime) -> Query:
    """The query that `text` says; an empty one finds everything.

    Raises:
        AuditError: a word that says nothing, with the words that would.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise _not_understood(text, "a quotation mark has no second one") from None
    terms: list[Term] = []
    times: dict[str, int] = {}
    for word in words:
        negated = word.startswith("-")
        name, colon, value = word.removeprefix("-").partition(":")
        values = tuple(map(_value, _VALUE.findall(value)))
        if not colon or not values:
            raise _not_understood(word, "write name:value")
        if name in TIMES and not negated:
            times[name] = _moment(value, now)
        elif name in COLUMNS or name in FACTS or name in REVIEWS:
            known = _CLOSED.get(name)
            if known is not None and not all(any(map(one.fits, known)) for one in values):
                raise _not_understood(word, f"{name} is {', '.join(known)}")
            terms.append(Term(name, values, negated))
        else:
            raise _not_understood(word, f"names are {', '.join((*COLUMNS, *FACTS, *REVIEWS, *TIMES))}")
    return Query(tuple(terms), times.get("since"), times.get("until"), text)


def exactly(name: str, value: str) -> str:
    """The word of a query that finds what has exactly this value, whatever is in it."""
    return shlex.quote(plain(name, value))


def plain(name: str, value: str) -> str:
    """As `exactly`, without quotation marks."""
    return f"{name}:{_SPECIAL.sub(_ESCAPED, value) or _NOTHING}"


def _value(word: str) -> Value:
    begins = _BEGINS.fullmatch(word) is not None
    return Value(_BACKSLASHED.sub(r"\1", word.removesuffix("*") if begins else word), begins)


def _moment(value: str, now: datetime) -> int:
    """A time ago (`90m`, `7d`) or a moment (ISO 8601; without a zone it is UTC)."""
    if (found := _DURATION.fullmatch(value)) is not None:
        moment = now - timedelta(**{_UNITS[found[2]]: int(found[1])})
    else:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise _not_understood(value, "a time is like 90m, 12h, 7d, 2026-01-31 or 2026-01-31T09:00") from None
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return micros(at)


def _not_understood(word: str, hint: str) -> AuditError:
    return AuditError("this part of the query says nothing", path=word, hint=hint, code="audit.query")


__all__ = ["COLUMNS", "FACTS", "REVIEWS", "TIMES", "Query", "Term", "Value", "exactly", "parse", "plain"]
