"""The weekly report: decisions, their reviews, and how long these took. Spec: review.md [REV-40]."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from pipeline.audit.query import Disposition
from pipeline.decisions.decision import OUTAGE_RULES, Action
from pipeline.decisions.timestamps import SECOND, instant_of
from pipeline.review.catalog import EDITS
from pipeline.review.lists import saved
from pipeline.review.site import Page, Site, Visit
from pipeline.review.summary import Json

MAX_WEEKS: Final = 104
_WEEK: Final = 7 * 86_400 * SECOND
_MONDAY: Final = 4 * 86_400 * SECOND  # the first one after the epoch
_WENT_ON: Final = (Action.FORWARD, Action.FORWARD_MODIFIED)


def report(site: Site, visit: Visit) -> Page:
    """The weeks of the query's results, newest first, and the rules that hit."""
    found = site.catalog.select(site.query(visit.q))
    weeks = _weeks(site, found)
    rules = [_rule(site, found, rule, count) for rule, count in site.catalog.values(found, "rule", limit=20)]
    data = {"q": visit.q, "decisions": found.bit_count(), "weeks": weeks, "rules": rules, "filters": saved(site)}
    return Page("report.html", data, rows=[{**week, "rules": _rule_list(week["rules"])} for week in weeks])


def _weeks(site: Site, found: int) -> list[Json]:
    span = site.catalog.span(found)
    if span is None:
        return []
    first, last = ((at - _MONDAY) // _WEEK * _WEEK + _MONDAY for at in span)
    starts = range(last, max(first, last - (MAX_WEEKS - 1) * _WEEK) - 1, -_WEEK)
    weeks = ((at, found & site.catalog.between(at, at + _WEEK)) for at in starts)
    return [_week(site, at, within) for at, within in weeks if within]


def _week(site: Site, at: int, within: int) -> Json:
    monday = instant_of(at)
    year, number, _ = monday.isocalendar()
    having = site.catalog.having
    outage = _any(having("rule", rule) for rule in OUTAGE_RULES)
    went_on = _any(having("action", action.value) for action in _WENT_ON)
    figures = {
        "denied": having("verdict", "deny"),
        "held": having("verdict", "require_approval"),
        "warned": having("verdict", "warn"),
        "edited": _any(having("effect", effect) for effect in EDITS),
        "not_judged": having("covered", "no"),
        "went_on_in_outage": outage & went_on,
        "overridden": site.catalog.having_some("override"),
        "open": having("needs", "review"),
    }
    return {
        "week": f"{year}-W{number:02d}",
        "from": monday.strftime("%Y-%m-%d"),
        "until": (monday + timedelta(days=7)).strftime("%Y-%m-%d"),
        "decisions": within.bit_count(),
        **{name: (those & within).bit_count() for name, those in figures.items()},
        **_reviewed(site, within),
        "rules": dict(site.catalog.values(within, "rule", limit=5)),
    }


def _reviewed(site: Site, within: int) -> Json:
    """How many were reviewed, how many of those were false positives, and the mean time to review in seconds."""
    dispositions = dict(site.catalog.values(within, "disposition"))
    disposed = sum(dispositions.values())
    false = dispositions.get(Disposition.FALSE_POSITIVE.value, 0)
    took = site.catalog.seconds_to_review(within)
    return {
        "reviewed": disposed,
        "false_positives": false,
        "false_positive_percent": None if not disposed else round(100 * false / disposed, 1),
        "mean_seconds_to_review": None if not took else round(sum(took) / len(took)),
    }


def _rule(site: Site, found: int, rule: str, count: int) -> Json:
    within = found & site.catalog.having("rule", rule)
    denied = (within & site.catalog.having("verdict", "deny")).bit_count()
    return {"rule": rule, "decisions": count, "denied": denied} | _reviewed(site, within)


def _any(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def _rule_list(rules: dict[str, int]) -> str:
    return " ".join(f"{rule}={count}" for rule, count in rules.items())
