"""Pages across sessions: integrity, charts, signatures, samples, the weekly report. Spec: docs/spec/review.md.

A chart is a table with the geometry of its drawing.
"""

from __future__ import annotations

import functools
import operator
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from pipeline.audit.exporting import read_heads
from pipeline.audit.query import Disposition, Value
from pipeline.decisions.context import shown_subject
from pipeline.decisions.decision import OUTAGE_RULES, Action
from pipeline.decisions.timestamps import SECOND, instant_of, iso
from pipeline.review.access import Refused
from pipeline.review.annotations import Annotation, needs_second, set_hash
from pipeline.review.catalog import EDITS, Catalog
from pipeline.review.lists import decision_rows, saved
from pipeline.review.site import PAGE, Page, Site, Verified, Visit
from pipeline.review.summary import Json
from pipeline.store.evidence import StoreEvidence
from pipeline.store.full_check import check_store
from pipeline.store.records import Placed

WIDTH, HEIGHT = 640, 160  # of a chart
_STEPS: Final = (60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_BARS: Final = 48
_MEASURED: Final = 500  # newest decisions whose latency is read
_PROBLEMS: Final = 50
MAX_WEEKS: Final = 104
_WEEK: Final = 7 * 86_400 * SECOND
_MONDAY: Final = 4 * 86_400 * SECOND  # the first one after the epoch
_WENT_ON: Final = (Action.FORWARD, Action.FORWARD_MODIFIED)


def integrity(site: Site, _visit: Visit) -> Page:
    """The result of the last verification, the newest head of each log, and how to verify without this site."""
    checked = None
    if (verified := site.verified) is not None:
        checked = verified.report.to_json()
        problems = checked["problems"]
        checked |= {"at": f"{verified.at:%Y-%m-%dT%H:%M:%SZ}", "seconds": round(verified.seconds, 2)}
        checked |= {"problems": problems[:_PROBLEMS], "all_problems": len(problems)}
    evidence = StoreEvidence(site.store.engine)
    newest = [stored.head for log in evidence.logs() for stored in deque(evidence.heads(log.id), maxlen=1)]
    heads = [head.to_json() | {"when": iso(head.at)} for head in newest]
    return Page(
        "integrity.html",
        {
            "heads": sorted(heads, key=lambda head: str(head["when"]), reverse=True),
            "checked": checked,
            "exported": site.heads is not None,
            "keyed": site.keys is not None,
            "store": site.store.engine.url.database,
        },
    )


def check(site: Site) -> Verified:
    """Verify the whole log now. ConfigError: the exported heads cannot be read."""
    started = time.monotonic()
    exported = [] if site.heads is None else read_heads(site.heads)
    with StoreEvidence.at_one_moment(site.store.engine) as evidence:
        report = check_store(evidence, exported=exported, keys=site.keys)
    site.verified = Verified(report, site.clock(), time.monotonic() - started)
    return site.verified


def charts(site: Site, visit: Visit) -> Page:
    """Denials over time, by rule and by subject, and decision latency, for the query's results."""
    matches = site.catalog.select(site.query(visit.q))
    denied = matches & site.catalog.having("verdict", "deny")
    newest = site.catalog.page(matches, before=None, limit=_MEASURED)
    metrics = [body.get("metrics", {}) for body in site.bodies(newest).values() if body]
    took = [figures["run_ns"] / 1e6 for figures in metrics if "run_ns" in figures]
    subjects = site.catalog.values(denied, "subject", limit=10)
    time_chart = _over_time(site.catalog, matches)
    data = {
        "q": visit.q,
        "decisions": matches.bit_count(),
        "denied": denied.bit_count(),
        "time": time_chart,
        "rules": _shares(site.catalog.values(denied, "rule", limit=10)),
        "subjects": _shares((shown_subject(value), count) for value, count in subjects),
        "dispositions": _shares(site.catalog.values(matches, "disposition")),
        "latency": spread(took),
        "measured": len(took),
        "filters": saved(site),
    }
    return Page("charts.html", data, rows=time_chart["rows"])


def _over_time(catalog: Catalog, matches: int) -> Json:
    """The decisions in a set over time: how many per step, and how many of them were stopped."""
    spans = catalog.span(matches)
    if spans is None:
        return {"step": 0, "bars": [], "rows": []}
    first, last = spans
    step = next((size for size in _STEPS if (last - first) // SECOND <= size * _MOST_BARS), _STEPS[-1]) * SECOND
    denied, held = (matches & catalog.having("verdict", verdict) for verdict in ("deny", "require_approval"))
    rows: list[Json] = []
    for at in range(first // step * step, last + 1, step):
        within = catalog.between(at, at + step)
        counts = {"all": matches & within, "denied": denied & within, "held": held & within}
        shown = {name: those.bit_count() for name, those in counts.items()}
        rows.append({"from": iso(at), "until": iso(at + step), **shown})
    return {"step": step // SECOND, "rows": rows, "bars": _bars([row["denied"] for row in rows])}


def _bars(values: Sequence[int]) -> list[Json]:
    wide = WIDTH / max(len(values), 1)
    highest = max([*values, 1])
    return [
        {
            "x": round(number * wide + wide * 0.12, 2),
            "width": round(wide * 0.76, 2),
            "height": round(value / highest * (HEIGHT - 20), 2),
            "y": round(HEIGHT - value / highest * (HEIGHT - 20), 2),
        }
        for number, value in enumerate(values)
    ]


def _shares(counted: Iterable[tuple[str, float]]) -> list[Json]:
    """Values with their counts, and each count as a share of the highest."""
    rows = list(counted)
    highest = max([count for _, count in rows], default=1) or 1
    return [{"value": value, "count": count, "share": round(100 * count / highest, 1)} for value, count in rows]


def spread(values: Sequence[float]) -> list[Json]:
    """The percentiles of the values."""
    ordered = sorted(values)
    if not ordered:
        return []
    at = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
    rows = [(name, ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for name, share in at.items()]
    return [row | {"count": round(row["count"], 2)} for row in _shares(rows)]


def signoffs(site: Site, _visit: Visit) -> Page:
    """All signatures and reopenings, newest first; samples and saved filters."""
    signed = site.catalog.annotations_of("signoff")
    rows = [_signature(site, annotation) for annotation in signed if annotation.body["action"] == "sign"]
    samples = []
    for drawn in site.catalog.annotations_of("sample"):
        sample = {name: drawn.body[name] for name in ("query", "seed", "size", "by_rule")}
        sample |= {"id": drawn.id, "at": iso(drawn.at), "by": drawn.by, "drawn": len(drawn.body["ids"])}
        samples.append(sample | {"q": f"sample:{drawn.id}"})
    return Page("signoffs.html", {"rows": rows, "samples": samples, "filters": saved(site)})


def _signature(site: Site, annotation: Annotation) -> Json:
    reopened, second = site.catalog.after(annotation)
    return _comment(annotation) | {
        "id": annotation.id,
        **{name: annotation.body[name] for name in ("scope", "said", "records", "counts", "hash")},
        "reopened": None if reopened is None else _comment(reopened),
        "second": None if second is None else _comment(second),
        "waits": waits(site, annotation),
    }


def _comment(annotation: Annotation) -> Json:
    return {"at": iso(annotation.at), "by": annotation.by, "comment": annotation.body.get("comment", "")}


def waits(site: Site, signature: Annotation) -> bool:
    """Whether a signature needs a second one."""
    return needs_second(signature) and site.catalog.after(signature) == (None, None)


def has_signed(site: Site, name: str, words: str, hash: str) -> bool:
    """Whether that person's signature is on this set already, under these words, and was not withdrawn."""
    return any(
        (sign.body["action"], sign.by, sign.body.get("said"), sign.body.get("hash")) == ("sign", name, words, hash)
        and site.catalog.after(sign)[0] is None
        for sign in site.catalog.annotations_of("signoff")
    )


def signoff(site: Site, visit: Visit) -> Page:
    """One signature: the signed set, and whether it is unchanged."""
    annotation = signature(site, visit.path["id"])
    rows = signed_rows(site, annotation)
    changed = site.changed(rows)
    last = decision_rows(site, rows[-PAGE:])
    data = {"stands": stands(site, annotation, rows) and not changed, "changed": len(changed), "rows": last}
    return Page("signoff.html", _signature(site, annotation) | data | {"set": annotation.body["set"]})


def stands(site: Site, annotation: Annotation, rows: Sequence[Placed]) -> bool:
    """Whether these decisions are the signed ones, and the signatures are stored as the log signed them."""
    second = site.catalog.after(annotation)[1]
    words = [site.catalog.row(signature.id) for signature in (annotation, second) if signature is not None]
    is_same = set_hash(rows) == annotation.body["hash"] and len(rows) == annotation.body["records"]
    return is_same and not site.changed([row for row in words if row is not None])


def signature(site: Site, id: str) -> Annotation:
    """The signature with that id; Refused if there is none."""
    annotation = site.catalog.annotations.get(id)
    if annotation is None or annotation.kind != "signoff" or annotation.body["action"] != "sign":
        raise Refused(404, "review.unknown", "There is no such signature.")
    return annotation


def signed_rows(site: Site, annotation: Annotation) -> list[Placed]:
    """The decisions that a signature covers, as they are now."""
    return site.catalog.decisions_in(annotation.body["set"])


# -- the weekly report [REV-40] ----------------------------------------------------------------------------------------


def report(site: Site, visit: Visit) -> Page:
    """The weeks of the query's results, newest first, and the rules that hit."""
    matches = site.catalog.select(site.query(visit.q))
    weeks = _weeks(site, matches)
    rules, denied = [], site.catalog.having("verdict", "deny")
    for rule, count in site.catalog.values(matches, "rule", limit=20):
        within = matches & site.catalog.having("rule", rule)
        counts = {"decisions": count, "denied": (within & denied).bit_count()}
        rules.append({"rule": rule, **counts, **_reviewed(site, within)})
    lines = [week | {"rules": " ".join(f"{rule}={n}" for rule, n in week["rules"].items())} for week in weeks]
    data = {"q": visit.q, "decisions": matches.bit_count(), "weeks": weeks, "rules": rules, "filters": saved(site)}
    return Page("report.html", data, rows=lines)


def _weeks(site: Site, matches: int) -> list[Json]:
    span = site.catalog.span(matches)
    if span is None:
        return []
    first, last = ((at - _MONDAY) // _WEEK * _WEEK + _MONDAY for at in span)
    starts = range(last, max(first, last - (MAX_WEEKS - 1) * _WEEK) - 1, -_WEEK)
    weeks = ((at, matches & site.catalog.between(at, at + _WEEK)) for at in starts)
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
        "overridden": site.catalog.having("override", Value("", begins=True)),
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


def _any(sets: Iterable[int]) -> int:
    return functools.reduce(operator.or_, sets, 0)
