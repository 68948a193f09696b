"""Pending approvals, their content, and recent decisions on them. Spec: docs/spec/review.md [REV-26]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.decisions.approval import Approval, ApprovalScope, ApprovalStatus
from pipeline.decisions.context import shown_subject, subject_key
from pipeline.decisions.errors import ApprovalError
from pipeline.decisions.override import Override
from pipeline.decisions.timestamps import iso, micros
from pipeline.review.access import Refused, Role
from pipeline.review.detail import told
from pipeline.review.lists import decision_rows
from pipeline.review.site import Answer, Page, Redirect, Site, Visit, form_text, need
from pipeline.review.summary import Json
from pipeline.store.records import Placed

LATELY: Final = 50  # the newest decisions that asked for approval
_OF_SESSION: Final = 200  # decisions of a session to search


def approvals(site: Site, visit: Visit) -> Page:
    """Pending approvals, oldest first, and the outcome of recent ones."""
    waiting = site.approvals.pending()
    there = {one.asked.id for one in waiting}
    lately = [one for one in _asked_lately(site) if one.asked.id not in there]
    return Page(
        "approvals.html",
        {
            "rows": [_hit_details(site, visit, one) for one in waiting],
            "standing": [_hit_details(site, visit, one) for one in site.approvals.standing()],
            "lately": [_hit_details(site, visit, one) for one in lately],
            "asks": [told(one, visit) for one in site.contents.four_eyes.asks()],
            "overrides": [_overridden(site, one) for one in site.overrides.read()],
        },
    )


def _overridden(site: Site, one: Override) -> Json:
    q = f"override:{one.id}"
    return {
        "id": one.id,
        "rule": one.rule,
        "scope": {"subject": one.subject, "session": one.session, "uri": one.uri},
        "by": [one.actor, one.second],
        "until": iso(one.expires_at),
        "decisions": site.catalog.select(site.query(q)).bit_count(),
        "q": q,
    }


def end_override(site: Site, visit: Visit) -> Answer:
    """End an override: its rule's denials are enforced again."""
    need(visit, Role.SIGNER)
    reason = form_text(visit, "reason", needed=True)
    site.overrides.close(visit.path["id"], actor=visit.subject, reason=reason)
    return Redirect("/approvals")


def _asked_lately(site: Site) -> Iterator[Approval]:
    rows = site.catalog.page(site.catalog.having("verdict", "require_approval"), before=None, limit=LATELY)
    bodies = site.bodies(rows)
    ids = dict.fromkeys(named for row in rows for named in _named(bodies.get(row.seq)))
    return filter(None, (_found(site, named) for named in ids))


def _named(body: Mapping[str, Any] | None) -> dict[str, str]:
    """The approvals that a decision asked for or used: id → status at that time."""
    listed = [] if body is None else body["result"].get("approvals") or []
    return {str(one["id"]): str(one.get("status")) for one in listed if isinstance(one, dict) and "id" in one}


def _found(site: Site, approval_id: str) -> Approval | None:
    try:
        return site.approvals.get(approval_id)
    except ApprovalError:
        return None


def _hit_details(site: Site, visit: Visit, one: Approval) -> Json:
    now = micros(site.clock())
    open_still = one.status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED)
    moments = {"asked": one.requested_at, "until": one.scope_until, "decided": one.decided_at, "used": one.used_at}
    return {
        **{name: getattr(one.asked, name) for name in ("id", "target", "revision", "digest")},
        **{name: list(getattr(one.asked, name)) for name in ("rules", "arguments", "reasons", "scopes")},
        **{name: None if moment is None else iso(moment) for name, moment in moments.items()},
        "expires": iso(one.asked.expires_at),
        "subject": shown_subject(one.key.subject),
        "subject_key": one.key.subject,
        "session": one.key.session,
        "scope": one.scope.value,
        "owner": None if one.asked.owner is None else shown_subject(one.asked.owner),
        "stands": one.stands(now),
        "revoker": one.revoker,
        "status": one.status.value,
        "expired": open_still and now >= one.asked.expires_at,
        "approver": one.approver,
        "own": one.key.subject == subject_key(visit.person.name),
    }


def approval(site: Site, visit: Visit, *, about: Json | None = None, shown: bool = False) -> Page:
    """One approval: who asks for what, by which rules, its status, and the decisions that refer to it."""
    one = _known(site, visit)
    data = _hit_details(site, visit, one) | {
        "decisions": _decisions(site, one),
        "shown": shown,
        "about": about,
        "opens": site.opens_sealed,
        "words": [
            {"by": annotation.by, "at": iso(annotation.at), "action": annotation.body["action"]}
            for annotation in reversed(site.catalog.annotations_of("review"))
            if annotation.body.get("approval") == one.asked.id
        ],
    }
    return Page("approval.html", data)


def _known(site: Site, visit: Visit) -> Approval:
    if (asked := _found(site, visit.path["id"])) is None:
        raise Refused(404, "review.unknown", "There is no such approval.")
    return asked


def _decisions(site: Site, one: Approval) -> list[Json]:
    found = site.catalog.session(one.key.subject, one.key.session)
    rows: list[Placed] = [] if found is None else found[1][-_OF_SESSION:]
    bodies = site.bodies(rows)
    named = ((row, _named(bodies.get(row.seq)).get(one.asked.id)) for row in rows)
    kept = [(row, stood) for row, stood in named if stood is not None]
    shown = decision_rows(site, [row for row, _ in kept])
    return [columns | {"stood": stood} for columns, (_, stood) in zip(shown, kept, strict=True)]


def look(site: Site, visit: Visit) -> Answer:
    """Show an approver the content, after recording who looks."""
    need(visit, Role.SIGNER)
    one = _known(site, visit)
    if not site.opens_sealed:
        raise Refused(409, "review.sealed", "The content is sealed, and this site was started without the seal key.")
    site.record(visit, "review", "look", {"approval": one.asked.id})
    return approval(site, visit, about=site.approvals.shown(one.asked.id), shown=True)


def decide(site: Site, visit: Visit) -> Answer:
    """Approve or deny; the approver is recorded and stored with the approval."""
    need(visit, Role.SIGNER)
    match visit.form.get("answer"), visit.form.get("scope", ApprovalScope.ONCE):
        case "deny", _:
            site.approvals.deny(visit.path["id"], visit.subject)
        case "approve", scope if scope in set(ApprovalScope):
            site.approvals.approve(visit.path["id"], visit.subject, scope=ApprovalScope(scope))
        case "approve", _:
            raise Refused(422, "review.answer", "Choose for what the approval is to hold.")
        case _:
            raise Refused(422, "review.answer", "Choose approve or deny.")
    return Redirect("/approvals")


def revoke(site: Site, visit: Visit) -> Answer:
    """End an approval that stands; who did is recorded and stored with the approval."""
    need(visit, Role.SIGNER)
    site.approvals.revoke(visit.path["id"], visit.subject)
    return Redirect("/approvals")
