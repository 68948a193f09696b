"""Exceptions to rules: for whom or what, until when, and who owns them. Spec: docs/spec/exceptions.md.

They are data of the policy set, `data.cmf.exceptions`, so its revision and signature cover them. An excused hit keeps
its verdict and is recorded, but not enforced. Nothing here reads a clock: the moment comes with the session's facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NoReturn

from cmf.views.uris import matches, name_matches
from pipeline.decisions.context import Context
from pipeline.decisions.decision import BAD_EFFECT, Excused, Hit
from pipeline.decisions.display import meant
from pipeline.decisions.errors import PolicyError
from pipeline.decisions.override import Override
from pipeline.decisions.timestamps import micros

PATH: Final = "data.cmf.exceptions"
PATTERNS: Final = ("subject", "uri", "session")
_REQUIRED: Final = ("rule", "until", "owner", "reason")
_KEYS: Final = frozenset({*_REQUIRED, *PATTERNS})
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleException:
    """One exception, in force to the end of `until` in UTC for whatever matches all its patterns."""

    rule: str
    until: date
    owner: str
    reason: str
    subject: str | None = None
    uri: str | None = None
    session: str | None = None

    @property
    def expires_at(self) -> int:
        """The first moment at which it is no longer in force, in microseconds since the epoch."""
        first = datetime(self.until.year, self.until.month, self.until.day, tzinfo=UTC) + _DAY
        return micros(first)

    def holds_for(self, subject: str | None, session: str | None, moment: int) -> bool:
        """Whether it applies to a run of that subject in that session at that moment; 0 is an unknown moment."""
        is_theirs = _fits(self.subject, subject, name_matches) and _fits(self.session, session, name_matches)
        return is_theirs and 0 < moment < self.expires_at

    def lifts(self, hit: Hit, uri: str | None) -> bool:
        """Whether it lifts that hit on a view with that URI."""
        return hit.rule == self.rule and _fits(self.uri, uri)

    @property
    def excused(self) -> Excused:
        """What is recorded with each hit that it lifts."""
        return Excused(owner=self.owner, until=self.until.isoformat())


def read(data: Mapping[str, Any], rules: Collection[str]) -> tuple[RuleException, ...]:
    """The exceptions in the data document of a set with these rule ids, including expired ones.

    Raises:
        PolicyError: one of them breaks [EXC-1] (`policy.bad-exception`); none is applied in part.
    """
    return tuple(_exception(place, entry, rules) for place, entry in enumerate(_entries(data)))


def problems(data: Mapping[str, Any], rules: Collection[str]) -> list[PolicyError]:
    """Every error in the exceptions of `data`, where `read` raises the first; empty if they are valid."""
    found: list[PolicyError] = []
    try:
        for place, entry in enumerate(_entries(data)):
            try:
                _exception(place, entry, rules)
            except PolicyError as error:
                found.append(error)
    except PolicyError as error:
        found.append(error)
    return found


def _entries(data: Mapping[str, Any]) -> Sequence[Any]:
    own = data.get("cmf")
    entries = own.get("exceptions") if isinstance(own, Mapping) else None
    if entries is None:
        return ()
    if not isinstance(entries, list):
        _refuse(PATH, "not a list", "write a list of {rule, subject or uri or session, until, owner, reason}")
    return entries


def _exception(place: int, entry: Any, rules: Collection[str]) -> RuleException:
    where = f"{PATH}[{place}]"
    if not isinstance(entry, Mapping):
        _refuse(where, "not an object", f"write {', '.join(_REQUIRED)}, and a subject, uri or session")
    for key in entry:
        if key not in _KEYS:
            _refuse(where, f"unknown key {key!r}", f"use one of {', '.join(sorted(_KEYS))}")
    for key in (*_REQUIRED, *(name for name in PATTERNS if name in entry)):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            _refuse(where, f"{key} is not a string" if key in entry else f"{key} is missing", f"write `{key}`")
    if not any(name in entry for name in PATTERNS):
        _refuse(
            where,
            "it would apply to everybody and everything",
            "name a subject, uri or session, or switch the rule off",
        )
    if entry["rule"] not in rules:
        hint = meant(entry["rule"], rules, "name a rule of this set, as <category>/<rule>")
        _refuse(where, f"there is no rule {entry['rule']}", hint)
    try:
        until = datetime.strptime(entry["until"], "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        _refuse(where, "until is not a date", "write the last day on which it is in force: 2026-12-31")
    if until == date.max:
        _refuse(where, "until is no real end date", "write the day on which it should be reviewed")
    return RuleException(**{**entry, "until": until})


def _refuse(where: str, message: str, hint: str) -> NoReturn:
    raise PolicyError(message, path=where, hint=hint, code="policy.bad-exception")


class Excuses:
    """The exceptions and overrides that apply to one run, by its subject, session and moment."""

    def __init__(self, known: Sequence[RuleException | Override], context: Context, moment: int) -> None:
        subject = context.subject.id if context.subject is not None else None
        self.active = tuple(one for one in known if one.holds_for(subject, context.session, moment))

    def __call__(self, hits: Iterable[Hit], uri: str | None) -> tuple[Hit, ...]:
        """The hits on a view with this URI; excused ones are marked with the owner of the exception."""
        return tuple(self._marked(hit, uri) for hit in hits) if self.active else tuple(hits)

    def _marked(self, hit: Hit, uri: str | None) -> Hit:
        # The denial of an effect that cannot be carried out is ours, not the rule's.
        if not hit.enforced or hit.code == BAD_EFFECT:
            return hit
        one = next((one for one in self.active if one.lifts(hit, uri)), None)
        return hit if one is None else replace(hit, excused=one.excused)


def _fits(pattern: str | None, value: str | None, match: Callable[[str, str], bool] = matches) -> bool:
    """Whether there is no pattern, or a value that matches it: an unknown value matches no pattern."""
    return pattern is None or (value is not None and match(value, pattern))
