"""The pages of one session, one decision and one rule. Spec: docs/spec/review.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.audit.evidence import FIELDS, leaf_of
from pipeline.audit.query import Disposition
from pipeline.decisions.timestamps import iso
from pipeline.review.access import Refused
from pipeline.review.annotations import Annotation
from pipeline.review.contents import Kept, kept_of
from pipeline.review.lists import decision_rows, session_row
from pipeline.review.site import Page, Site, Visit
from pipeline.review.summary import Json, hits, not_judged, sentence, skipped
from pipeline.store.four_eyes import Ask
from pipeline.store.records import Placed

MOST: Final = 200  # decisions shown of a session, the newest


def session(site: Site, visit: Visit) -> Page:
    """The timeline of a session."""
    key = visit.params.get("subject", "anonymous"), visit.params.get("session")
    stored = site.catalog.session(*key)
    if stored is None:
        raise Refused(404, "review.unknown", "There is no such session.")
    totals, rows = stored
    last = rows[-MOST:]
    bodies = site.bodies(last)
    data = {
        **session_row(totals),
        "timeline": [
            _entry(site, row, shown, bodies.get(row.seq))
            for row, shown in zip(last, decision_rows(site, last), strict=True)
        ],
        "earlier": len(rows) - len(last),
        "revisions": sorted({row.revision for row in rows}),
        "words": [_word(annotation) for annotation in site.catalog.about_session(*key)],
        "first": iso(rows[0].at),
        "dispositions": [choice.value for choice in Disposition],
        "query": {"subject": key[0], "session": key[1]},
    }
    return Page("session.html", data)


def _entry(site: Site, row: Placed, shown: Json, body: Mapping[str, Any] | None) -> Json:
    if body is None:
        return shown | {"erased": True, "said": "This record was erased or cannot be read.", "views": [], "hits": []}
    result = body["result"]
    nanoseconds = body.get("metrics", {}).get("run_ns")
    missing = {view["path"]: view["reason"] for view in skipped(body)}
    return shown | {
        "erased": False,
        "said": sentence(body),
        "views": [_view(view) for view in result["views"]],
        "hits": [hit | {"view": None if view is None else view["path"]} for view, hit in hits(body)],
        "never": [{"path": path, "reason": reason} for path, reason in missing.items()],
        "not_evaluated": not_judged(body),
        "labels": list(body.get("labels_gained", ())),
        "parts": result["coverage"]["produced"],
        "evaluated": result["coverage"]["evaluated"],
        "mode": result["mode"],
        "ms": None if nanoseconds is None else round(nanoseconds / 1e6, 2),
        "words": [_word(annotation) for annotation in site.catalog.about(row.id)],
    }


def _view(view: Mapping[str, Any]) -> Json:
    names = ("path", "kind", "role", "name", "uri", "action", "direction", "verdict", "outcome")
    shown = {name: view.get(name) for name in names}
    return shown | {"reused": bool(view.get("reused")), "hits": view["hits"], "origins": view.get("origins")}


def _word(annotation: Annotation) -> Json:
    fields = annotation.body
    names = ("action", "disposition", "comment", "assignee", "reason", "label", "scope", "grant", "until")
    shown: Json = {"id": annotation.id, "kind": annotation.kind, "at": iso(annotation.at), "by": annotation.by}
    shown |= {name: fields[name] for name in names if fields.get(name) is not None}
    if annotation.kind == "declassify":
        shown |= {"second": fields.get("second", {}).get("id"), "sources": len(fields["sources"])}
    return shown


def decision(site: Site, visit: Visit, *, revealed: Json | None = None) -> Page:
    """A decision: what happened, then why, then the full record."""
    row = known(site, visit.path["id"])
    body = site.bodies([row]).get(row.seq)
    kept = kept_of(site.contents, row.id, body)
    rules = []
    for view, hit in () if body is None else hits(body):
        place = site.policies.place(row.revision, hit["rule"], hit["effect"], hit["code"])
        rules.append(hit | {"view": None if view is None else view["path"], "place": place})
    leaf = leaf_of({name: getattr(row, name) for name in FIELDS})
    data: Json = {
        **_entry(site, row, decision_rows(site, [row])[0], body),
        "rules": rules,
        "record": body,
        "masked": [*(body or {}).get("masked", ())],
        "erased_pointers": [*(body or {}).get("erased", ())],
        "integrity": {name: getattr(row, name) for name in ("log", "place", "digest", "seq")} | {"leaf": leaf.hex()},
        "content": kept.value,
        "revealed": revealed,
        "eyes": _four_eyes(site, visit, row) if kept is Kept.HERE else None,
        "dispositions": [choice.value for choice in Disposition],
        "at_hand": site.policies.of(row.revision) is not None,
        "kept": Kept.HERE.value,
    }
    return Page("decision.html", data)


def _four_eyes(site: Site, visit: Visit, row: Placed) -> Json | None:
    """The state of a second person's agreement to showing content; None if none is required."""
    if not site.contents.four_eyes.needed:
        return None
    granted = site.contents.four_eyes.granted(row.id, visit.subject)
    return {
        "granted": None if granted is None else {"by": granted.second, "until": iso(granted.expires_at)},
        "asks": [told(request, visit) for request in site.contents.four_eyes.asks() if request.record == row.id],
    }


def told(request: Ask, visit: Visit) -> Json:
    """A request to see content, as shown on a page."""
    own = request.actor == visit.person.name
    asked = {"by": request.actor, "reason": request.reason, "at": iso(request.at), "own": own}
    return {"id": request.id, "decision": request.record, **asked}


def known(site: Site, id: str) -> Placed:
    """The decision with that id; Refused if there is none."""
    row = site.catalog.row(id)
    if row is None or row.kind != "decision":
        raise Refused(404, "review.unknown", "There is no such decision.")
    return row


def rule(site: Site, visit: Visit) -> Page:
    """A rule in one revision: its METADATA and its source."""
    revision = visit.params.get("revision", "")
    policy_rule = site.policies.rule(revision, visit.params.get("id", ""))
    if policy_rule is None:
        raise Refused(404, "review.unknown", "This rule is not among the policies of this site.")
    data = {
        "revision": revision,
        **{name: getattr(policy_rule, name) for name in ("id", "path", "title", "description", "code", "severity")},
        "mode": policy_rule.mode.value,
        "kinds": sorted(kind.value for kind in policy_rule.kinds),
        "standards": list(policy_rule.standards),
        "lines": site.policies.text(revision, policy_rule).splitlines(),
    }
    return Page("rule.html", data)
