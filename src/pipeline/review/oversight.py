"""What is over all sessions: integrity, charts, signatures, samples. Spec: docs/spec/review.md."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from pipeline.approval_state import shown_subject
from pipeline.audit.checking import check_store
from pipeline.audit.exporting import read_heads
from pipeline.audit.verification import Report
from pipeline.moments import iso
from pipeline.review.charts import over_time, shares, spread
from pipeline.review.lists import decision_row, saved
from pipeline.review.site import PAGE, Page, Refused, Site, Verified, Visit
from pipeline.review.telling import Json
from pipeline.review.words import Word, needs_second, set_hash
from pipeline.store.evidence import StoreEvidence
from pipeline.store.overview import Placed

_MEASURED: Final = 500  # decisions whose latency is read: the newest
_PROBLEMS: Final = 50


def integrity(site: Site, _visit: Visit) -> Page:
    """What the last check found, the newest head of each log, and how to check without this site."""
    heads = []
    evidence = StoreEvidence(site.store.engine)
    for log in evidence.logs():
        for newest in deque(evidence.heads(log.id), maxlen=1):
            heads.append(newest.head.to_json() | {"when": iso(newest.head.at)})
    checked = site.verified
    return Page(
        "integrity.html",
        {
            "heads": sorted(heads, key=lambda one: str(one["when"]), reverse=True),
            "checked": None if checked is None else _checked(checked),
            "exported": site.heads is not None,
            "keyed": site.keys is not None,
            "store": site.store.engine.url.database,
        },
    )


def check(site: Site) -> Verified:
    """Check the whole log now.

    Raises:
        ConfigError: the exported heads cannot be read.
    """
    started = time.monotonic()
    exported = [] if site.heads is None else read_heads(site.heads)
    with StoreEvidence.at_one_moment(site.store.engine) as evidence:
        report = check_store(evidence, exported=exported, keys=site.keys)
    site.verified = Verified(report, site.clock(), time.monotonic() - started)
    return site.verified


def _checked(one: Verified) -> Json:
    report: Report = one.report
    found = report.to_json()
    return found | {
        "at": one.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(one.seconds, 2),
        "problems": found["problems"][:_PROBLEMS],
        "all_problems": len(found["problems"]),
    }


def charts(site: Site, visit: Visit) -> Page:
    """Denies over time, by rule and by subject, and how long decisions take; of what the query finds."""
    found = site.catalog.select(site.query(visit.q))
    denied = found & site.catalog.having("verdict", "deny")
    newest = site.catalog.page(found, before=None, limit=_MEASURED)
    bodies = site.bodies(newest)
    took = [body["metrics"]["run_ns"] / 1e6 for body in bodies.values() if body and "run_ns" in body.get("metrics", {})]
    subjects = site.catalog.values(denied, "subject", limit=10)
    time_chart = over_time(site.catalog, found)
    data = {
        "q": visit.q,
        "decisions": found.bit_count(),
        "denied": denied.bit_count(),
        "time": time_chart,
        "rules": shares(site.catalog.values(denied, "rule", limit=10)),
        "subjects": shares((shown_subject(value), count) for value, count in subjects),
        "dispositions": shares(site.catalog.values(found, "disposition")),
        "latency": spread(took),
        "measured": len(took),
        "filters": saved(site),
    }
    return Page("charts.html", data, rows=time_chart["rows"])


def signoffs(site: Site, _visit: Visit) -> Page:
    """Every signature and every re-opening, the newest first; samples and saved filters."""
    signed = site.catalog.words_of("signoff")
    rows = [_signature(site, word) for word in signed if word.said["action"] == "sign"]
    samples = [_sample(word) for word in site.catalog.words_of("sample")]
    return Page("signoffs.html", {"rows": rows, "samples": samples, "filters": saved(site)})


def _signature(site: Site, word: Word) -> Json:
    said = word.said
    reopened, second = site.catalog.after(word)
    return {
        "id": word.id,
        "at": iso(word.at),
        "by": word.by,
        "scope": said["scope"],
        "said": said["said"],
        "records": said["records"],
        "counts": said["counts"],
        "hash": said["hash"],
        "comment": said.get("comment", ""),
        "reopened": None if reopened is None else _said_of(reopened),
        "second": None if second is None else _said_of(second),
        "waits": waits(site, word),
    }


def _said_of(word: Word) -> Json:
    return {"at": iso(word.at), "by": word.by, "comment": word.said.get("comment", "")}


def waits(site: Site, signature: Word) -> bool:
    """Whether a signature waits for a second one."""
    return needs_second(signature) and site.catalog.after(signature) == (None, None)


def _sample(word: Word) -> Json:
    said = word.said
    names = ("query", "seed", "size", "by_rule")
    return {
        "id": word.id,
        "at": iso(word.at),
        "by": word.by,
        "drawn": len(said["ids"]),
        "q": f"sample:{word.id}",
    } | {name: said[name] for name in names}


def signoff(site: Site, visit: Visit) -> Page:
    """One signature: what it is about, and whether that is still what was signed."""
    word = signature(site, visit.path["id"])
    rows = signed_rows(site, word)
    data = _signature(site, word) | {
        "stands": set_hash(rows) == word.said["hash"] and len(rows) == word.said["records"],
        "set": word.said["set"],
        "rows": [decision_row(site, row) for row in rows[-PAGE:]],
    }
    return Page("signoff.html", data)


def signature(site: Site, id: str) -> Word:
    """The signature with that id; Refused where there is none."""
    word = site.catalog.words.get(id)
    if word is None or word.kind != "signoff" or word.said["action"] != "sign":
        raise Refused(404, "review.unknown", "There is no such signature.")
    return word


def signed_rows(site: Site, word: Word) -> list[Placed]:
    """The decisions that a signature names, as they are now."""
    return site.catalog.decisions_in(word.said["set"])


__all__ = [
    "charts",
    "check",
    "integrity",
    "signature",
    "signed_rows",
    "signoff",
    "signoffs",
    "waits",
]
