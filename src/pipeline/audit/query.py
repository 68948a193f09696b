"""The query language of records: `verdict:deny rule:tools/* since:7d -session:test`. Spec: docs/spec/audit.md.

A query is terms separated by spaces; a term is `name:value`, the value may end in `*`, and a leading `-` negates it. A
literal `*` or comma is escaped with a backslash. What is searched are names and values in a record, never content.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from cmf.enums import ViewKind
from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.decisions.decision import Effect, Mode, Severity, Verdict
from pipeline.decisions.errors import AuditError
from pipeline.decisions.timestamps import micros


def facts_of(kind: str, body: bytes | None) -> frozenset[tuple[str, str]]:
    """The facts to index for a record; none if its body is erased or not JSON."""
    if kind != "decision" or body is None:
        return frozenset()
    try:
        return frozenset(_facts(loads(body)))
    except (DecodeError, KeyError, TypeError, AttributeError):
        return frozenset()


def _facts(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    result = body["result"]
    yield "mode", result["mode"]
    coverage = result["coverage"]
    yield "covered", "yes" if coverage["evaluated"] == coverage["produced"] else "no"
    if (environment := body.get("environment")) is not None:
        yield "environment", environment
    for view in result["views"]:
        yield "view", view["kind"]
        if view["kind"] in _OF_TOOLS and "name" in view:
            yield "tool", view["name"]
        if "uri" in view and view["hits"]:
            yield "uri", view["uri"]
        for hit in view["hits"]:
            yield from _of_hit(hit)
    for stage in result.get("stages", ()):
        if "hit" in stage:
            yield "stage", stage["stage"]
            yield from _of_hit(stage["hit"])


def _of_hit(hit: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("rule", "code", "effect", "severity"):
        yield name, hit[name]
    if "excused" in hit:
        yield "excused", "override" if "override" in hit["excused"] else "exception"
    if "override" in hit.get("excused", {}):
        yield "override", hit["excused"]["override"]


_OF_TOOLS = frozenset({"tool_call", "tool_result", "tool_definition"})


class Disposition(StrEnum):
    """A person's verdict on a decision."""

    OK = "ok"
    FALSE_POSITIVE = "false_positive"
    FALSE_NEGATIVE = "false_negative"
    NEEDS_POLICY_CHANGE = "needs_policy_change"
    INCIDENT = "incident"


KINDS: Final = (
    "decision", "log", "config", "policy", "tally", "sweep", "review", "signoff", "sample", "filter", "export",
    "reveal", "ask", "grant", "rule", "hold", "erasure", "override", "declassify",
)  # fmt: skip
"""The kinds of records; a test compares them with those that the code writes."""

COLUMNS: Final = ("id", "kind", "verdict", "action", "subject", "session", "revision")
FACTS: Final = (
    "rule", "code", "effect", "severity", "tool", "uri", "view", "mode", "stage", "environment", "covered", "excused",
    "override",
)  # fmt: skip
REVIEWS: Final = ("needs", "reviewed", "disposition", "signed", "assignee", "sample")
"""The review state of a decision, which only a catalog of all records knows [REV-3]."""

TIMES: Final = ("since", "until")
_BOOLEAN: Final = ("yes", "no")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "kind": KINDS,
    "verdict": (*Verdict, "none"),  # for records other than decisions
    "effect": tuple(Effect),
    "severity": tuple(Severity),
    "view": tuple(ViewKind),
    "mode": tuple(Mode),
    "covered": _BOOLEAN,
    "excused": ("exception", "override"),
    "needs": ("review",),
    "reviewed": _BOOLEAN,
    "disposition": tuple(Disposition),
    "signed": _BOOLEAN,
}
"""Names with a fixed set of values: a typo such as `verdict:denied` must not look like an empty result."""
_DURATION: Final = re.compile(r"([1-9]\d{0,5})([smhdw])")
_VALUE: Final = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)  # one of the values separated by commas
_BEGINS: Final = re.compile(r"(?:[^\\]|\\.)*\*", re.DOTALL)  # ends in an unescaped `*`
_BACKSLASHED: Final = re.compile(r"\\(.?)", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\,*]")
_ESCAPED: Final = r"\\\g<0>"
_NOTHING: Final = "\\"  # the empty value
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Value(NamedTuple):
    """A value to match: exactly this text, or any that `begins` with it."""

    text: str
    begins: bool = False

    def fits(self, known: str) -> bool:
        """Whether it matches."""
        return known.startswith(self.text) if self.begins else known == self.text


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: `name` has one of `values` or, negated, none of them."""

    name: str
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunction of `terms`, from `since` up to but not including `until`, in microseconds since the epoch."""

    terms: tuple[Term, ...] = ()
    since: int | None = None
    until: int | None = None
    text: str = ""

    @property
    def of_reviews(self) -> bool:
        """Whether it uses review states."""
        return any(term.name in REVIEWS for term in self.terms)


def parse(text: str, now: datetime) -> Query:
    """The parsed query; an empty one matches everything.

    Raises:
        AuditError: a term cannot be understood; the hint lists what is possible.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise _not_understood(text, "close the quotation mark") from None
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
            known = _CHOICES.get(name)
            if known is not None and not all(any(map(one.fits, known)) for one in values):
                raise _not_understood(word, f"values of {name} are {', '.join(known)}")
            terms.append(Term(name, values, negated))
        else:
            raise _not_understood(word, f"names are {', '.join((*COLUMNS, *FACTS, *REVIEWS, *TIMES))}")
    return Query(tuple(terms), times.get("since"), times.get("until"), text)


def exactly(name: str, value: str) -> str:
    """A term that matches exactly this value, whatever it contains."""
    return shlex.quote(plain(name, value))


def plain(name: str, value: str) -> str:
    """As `exactly`, without quotation marks."""
    return f"{name}:{_SPECIAL.sub(_ESCAPED, value) or _NOTHING}"


def _value(word: str) -> Value:
    begins = _BEGINS.fullmatch(word) is not None
    return Value(_BACKSLASHED.sub(r"\1", word.removesuffix("*") if begins else word), begins)


def _moment(value: str, now: datetime) -> int:
    """A duration ago (`90m`, `7d`) or a moment (ISO 8601; UTC unless it has a zone)."""
    try:
        if (found := _DURATION.fullmatch(value)) is not None:
            moment = now - timedelta(**{_UNITS[found[2]]: int(found[1])})
        else:
            moment = datetime.fromisoformat(value)
    except (ValueError, OverflowError):  # OverflowError: more than 2,000 years ago
        raise _not_understood(value, "write a time as 90m, 12h, 7d, 2026-01-31 or 2026-01-31T09:00") from None
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return micros(at)


def _not_understood(word: str, hint: str) -> AuditError:
    return AuditError("the query is not valid", path=word, hint=hint, code="audit.query")
