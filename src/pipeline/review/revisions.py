"""The pages of policy revisions: usage, content, and differences. Spec: [REV-11], [REV-14]."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

from cmf.json.codec import dumps
from pipeline.audit.query import exactly
from pipeline.decisions.context import subject_key
from pipeline.decisions.timestamps import iso
from pipeline.policy.entrypoints import is_generated
from pipeline.policy.policy_set import PolicySet
from pipeline.replay.impact import Change
from pipeline.review.access import Refused, Role
from pipeline.review.contents import differences
from pipeline.review.site import Answer, Page, Site, Visit, form_text, need
from pipeline.review.summary import Json
from pipeline.store.records import Placed

MOST: Final = 100  # revisions shown, those with most decisions
REPLAYED: Final = 500  # newest contents that are judged again
_MOST_LINES: Final = 4_000
_DATA: Final = "data.json"


def policies(site: Site, _visit: Visit) -> Page:
    """Each policy revision with its decisions, newest first."""
    counted = site.catalog.values(site.catalog.select(site.query("")), "revision", limit=MOST)
    there = site.policies.known(revision for revision, _ in counted)
    rows = [_ran(site, revision) | {"there": revision in there} for revision, _ in counted]
    rows.sort(key=lambda row: str(row["last"]), reverse=True)
    for row, older in zip_longest(rows, rows[1:]):
        both = older is not None and row["there"] and older["there"]
        row["before"] = older["revision"] if both and older is not None else None
    choices = [row for row in rows if row["there"]]
    ran = {row["revision"] for row in choices}
    never = [
        {"revision": revision, "name": site.policies.name(revision), "last": None}
        for revision in site.policies.given()
        if revision not in ran
    ]
    return Page("policies.html", {"rows": rows, "never": never, "choices": [*choices, *never]})


def _ran(site: Site, revision: str) -> Json:
    """The decisions made under a revision."""
    matches = site.catalog.select(site.query(exactly("revision", revision)))
    spans = site.catalog.span(matches)
    return {
        "revision": revision,
        "name": site.policies.name(revision),
        "decisions": matches.bit_count(),
        "denied": dict(site.catalog.values(matches, "verdict")).get("deny", 0),
        "sessions": len(site.catalog.sessions(matches)),
        "first": None if spans is None else iso(spans[0]),
        "last": None if spans is None else iso(spans[1]),
        "hit": site.catalog.values(matches, "rule", limit=5),
    }


def policy(site: Site, visit: Visit) -> Page:
    """One revision: its decisions, its rules, and its files."""
    revision = visit.path["revision"]
    ran = _ran(site, revision)
    loaded = site.policies.of(revision)
    if loaded is None and not ran["decisions"]:
        raise Refused(404, "review.unknown", "This site does not know that revision.")
    rules = [
        {"id": rule.id, "title": rule.title, "severity": rule.severity, "mode": rule.mode.value, "path": rule.path}
        for rule in (() if loaded is None else loaded.rules)
    ]
    files = {} if loaded is None else _files(loaded)
    listed = [{"path": path, "lines": len(text)} for path, text in files.items()]
    return Page("policy.html", ran | {"there": loaded is not None, "rules": rules, "files": listed})


def _files(policies: PolicySet) -> dict[str, list[str]]:
    """The authored modules and the data, by path; generated modules are left out."""
    files = {module.path: module.text.splitlines() for module in policies.modules if not is_generated(module)}
    data = json.dumps(json.loads(dumps(policies.data)), indent=2, sort_keys=True, ensure_ascii=False)
    return dict(sorted({**files, _DATA: data.splitlines()}.items()))


def put_in_force(site: Site, person: str, rows: Iterable[Placed]) -> str | None:
    """A revision that this person put into force, according to the log, and that first ran in `rows` [REV-43]."""
    changes = site.catalog.having("kind", "policy") & site.catalog.having("action", "change")
    brought = {row.revision for row in site.catalog.all_of(changes) if row.subject == subject_key(person)}
    ids = {row.id for row in rows} if brought else set()
    for revision in sorted(brought):
        ran = site.catalog.select(site.query(exactly("revision", revision)))
        if any(row.id in ids for row in site.catalog.all_of(ran & -ran)):  # the first decision under it
            return revision
    return None


def compare(site: Site, visit: Visit) -> Page:
    """The differences between two revisions, by file and line."""
    return _compared(site, visit.params.get("base", ""), visit.params.get("head", ""))


def _compared(site: Site, base: str, head: str, impact: Json | None = None) -> Page:
    before, after = (_at_hand(site, revision) for revision in (base, head))
    changed, same = _difference(_files(before), _files(after))
    changes = []
    for label, row in () if impact is None else [(label, impact[change.value]) for change, label in _CHANGES.items()]:
        why = row.get("rules", row.get("reasons", {}))
        changes.append({"change": label, "count": row["count"], "why": why, "ids": row.get("ids", [])})
    data: Json = {
        "base": _ran(site, base),
        "head": _ran(site, head),
        "files": changed,
        "counts": {status: sum(file["status"] == status for file in changed) for status in _STATUS},
        "same": same,
        "impact": None if impact is None else {"entries": impact["entries"], "rows": changes},
        "replayed": REPLAYED,
    }
    return Page("compare.html", data)


def _at_hand(site: Site, revision: str) -> PolicySet:
    policies = site.policies.of(revision)
    if policies is None:
        raise Refused(404, "review.unknown", "The policies of one of these revisions are not available here.")
    return policies


_STATUS: Final = ("added", "removed", "changed")


def _difference(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> tuple[list[Json], int]:
    """The files that differ, and the number of equal ones."""
    changed: list[Json] = []
    same = 0
    left = _MOST_LINES
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            same += 1
            continue
        every = differences(old or [], new or [])
        lines = [line for part in every for line in part]
        shown = []
        for part in every:
            shown.append(part[: max(left, 0)])
            left -= len(part)
        changed.append(
            {
                "path": path,
                "status": "added" if old is None else "removed" if new is None else "changed",
                "added": sum(line["change"] == "added" for line in lines),
                "removed": sum(line["change"] == "removed" for line in lines),
                "parts": [part for part in shown if part],
                "cut": sum(map(len, shown)) < len(lines),
            }
        )
    return changed, same


def impact(site: Site, visit: Visit) -> Answer:
    """What the other revision would have decided on stored content, after recording who asked and why."""
    need(visit, Role.REVIEWER)
    base, head = visit.form.get("base", ""), visit.form.get("head", "")
    for revision in (base, head):
        _at_hand(site, revision)
    reason = form_text(visit, "reason", needed=True)
    lines = deque(site.contents.lines(actor=visit.subject, reason=reason)(), maxlen=REPLAYED)
    site.catalog.catch_up()
    return _compared(site, base, head, site.again.impact(lines, base, head))


_CHANGES: Final = {
    Change.NEWLY_DENIED: "newly denied",
    Change.NEWLY_ALLOWED: "newly allowed",
    Change.CHANGED_EFFECT: "effect changed",
    Change.UNCHANGED: "the same",
    Change.NOT_REPLAYABLE: "uncertain",
}
