"""The lists: sessions, those to review first, and decisions; the query is in the URL. Spec: docs/spec/review.md."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from pipeline.audit.query import plain
from pipeline.decisions.context import shown_subject
from pipeline.decisions.timestamps import iso
from pipeline.review.access import Refused
from pipeline.review.catalog import SEVERITIES, Session
from pipeline.review.site import PAGE, Page, Site, Visit
from pipeline.review.summary import Json, hits, not_judged
from pipeline.store.records import Placed

FACETS: Final = (
    "verdict", "rule", "severity", "tool", "subject", "mode", "covered", "disposition", "environment", "revision"
)  # fmt: skip
NEEDS: Final = "needs:review"


def sessions(site: Site, visit: Visit) -> Page:
    """The sessions of the query's results, those that need review first."""
    matches = site.catalog.select(site.query(visit.q))
    every = site.catalog.sessions(matches)
    start = _place(every, visit.params.get("after", ""))
    shown = every[start : start + PAGE]
    last = shown[-1] if len(every) > start + PAGE else None
    data = {
        "rows": [session_row(session) for session in shown],
        "sessions": len(every),
        "needing": sum(bool(session.open) for session in every),
        "next": None if last is None else f"{int(not last.open)}-{last.last_at}-{last.number}",
    }
    return Page("sessions.html", data | _around(site, visit, matches), rows=map(session_row, every))


def _around(site: Site, visit: Visit, matches: int) -> Json:
    """What both lists show around their rows."""
    return {
        "q": visit.q,
        "decisions": matches.bit_count(),
        "upto": site.catalog.newest,
        "facets": facets(site, matches, visit.q),
        "tabs": _tabs(visit.q),
        "filters": saved(site),
    }


def session_row(session: Session) -> Json:
    """A row of the list of sessions."""
    decisions = len(session.positions)
    return {
        "subject": shown_subject(session.subject),
        "subject_key": session.subject,
        "session": session.id,
        "last": iso(session.last_at),
        "decisions": decisions,
        "denied": session.verdicts.get("deny", 0),
        "held": session.verdicts.get("require_approval", 0),
        "warned": session.verdicts.get("warn", 0),
        "edited": session.edited,
        "severity": SEVERITIES[session.severity] if session.severity >= 0 else "",
        "not_covered": session.uncovered,
        "open": session.open,
        "review": _review(session, decisions),
        "assignee": session.assignee,
    }


def _review(session: Session, decisions: int) -> str:
    if session.open:
        return "needs review"
    if session.signed == decisions:
        return "signed off"
    return "reviewed" if session.disposed or session.signed else "nothing to review"


def decisions(site: Site, visit: Visit) -> Page:
    """The query's results, newest first."""
    matches = site.catalog.select(site.query(visit.q))
    page = site.catalog.page(matches, before=_number(visit.params.get("before", "")), limit=PAGE + 1)
    shown = page[:PAGE]
    bodies, listed = site.bodies(shown), decision_rows(site, shown)
    for row, columns in zip(shown, listed, strict=True):
        body = bodies.get(row.seq)
        columns["rules"] = [] if body is None else sorted({hit["rule"] for _, hit in hits(body)})
        columns["not_evaluated"] = 0 if body is None else not_judged(body)
        columns["parts"] = 0 if body is None else body["result"]["coverage"]["produced"]
    data = {"rows": listed, "next": str(shown[-1].seq) if len(page) > PAGE else None}
    every = site.catalog.all_of(matches) if visit.params.get("as") in ("csv", "jsonl") else []
    return Page("decisions.html", data | _around(site, visit, matches), rows=decision_rows(site, every))


def decision_rows(site: Site, rows: Sequence[Placed]) -> list[Json]:
    """The columns of decisions, the state of their reviews, and whether each was changed since it was recorded."""
    changed = site.changed(rows)
    return [
        {
            "id": row.id,
            "at": iso(row.at),
            "subject": shown_subject(row.subject),
            "subject_key": row.subject,
            "session": row.session,
            "verdict": row.verdict,
            "action": row.action,
            "revision": row.revision,
            **site.catalog.state(row.id),
            "changed": row.id in changed,
        }
        for row in rows
    ]


def facets(site: Site, matches: int, q: str) -> list[Json]:
    """The values of each name in the results, with counts and the query behind a click."""
    words = _given(q)
    shown: list[Json] = []
    for name in FACETS:
        values = site.catalog.values(matches, name)
        rows = []
        for value, count in values:
            label = shown_subject(value) if name == "subject" else value
            term = plain(name, label)
            rows.append({"value": label, "count": count, "on": term in words, "q": toggled(q, name, label)})
        if rows and not (len(rows) == 1 and not rows[0]["on"] and name in ("mode", "environment", "covered")):
            shown.append({"name": name, "values": rows})
    return shown


def toggled(q: str, name: str, value: str) -> str:
    """The query with the term added, or removed if present."""
    words = _given(q)
    term = plain(name, value)
    return shlex.join([word for word in words if word != term] if term in words else [*words, term])


def _given(q: str) -> list[str]:
    try:
        return shlex.split(q)
    except ValueError:
        return []


def _tabs(q: str) -> list[Json]:
    tabs = {"Needs review": NEEDS, "Incidents": "disposition:incident", "Signed off": "signed:yes", "All": ""}
    words = _given(q)
    rest = [word for word in words if word not in tabs.values()]
    return [
        {
            "title": title,
            "q": shlex.join([term, *rest] if term else rest),
            "on": term in words if term else len(rest) == len(words),
        }
        for title, term in tabs.items()
    ]


def saved(site: Site) -> list[Json]:
    """The saved filters, by name; the newest of a name counts, and an empty one deletes it."""
    newest = {annotation.body["name"]: annotation for annotation in reversed(site.catalog.annotations_of("filter"))}
    listed = sorted((name, annotation) for name, annotation in newest.items() if annotation.body["query"])
    return [{"name": name, "q": annotation.body["query"], "by": annotation.by} for name, annotation in listed]


def _place(every: Sequence[Session], after: str) -> int:
    """The start of the page: after the session in the cursor, or after its former position."""
    if not after:
        return 0
    try:
        done, last_at, number = (int(part) for part in after.split("-"))
    except ValueError:
        raise Refused(422, "review.page", "There is no such page.") from None
    for at, session in enumerate(every):
        if session.number == number:
            return at + 1
        if (int(not session.open), -session.last_at) > (done, -last_at):
            return at
    return len(every)


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refused(422, "review.page", "There is no such page.")
    return int(text)
