"""The actions of users: each is recorded in the log before it takes effect. Spec: docs/spec/review.md."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Final

from pipeline.audit.bundle import Selection, write_bundle
from pipeline.audit.query import Disposition
from pipeline.decisions.authority import is_legible, is_same_person
from pipeline.decisions.timestamps import micros
from pipeline.review import detail, oversight, revisions
from pipeline.review.access import Refused, Role
from pipeline.review.annotations import KINDS, ranges_of, sampled, set_hash
from pipeline.review.contents import Kept, kept_of
from pipeline.review.site import Answer, Download, Page, Redirect, Site, Visit, form_text, need
from pipeline.review.summary import Json
from pipeline.store.evidence import StoreEvidence
from pipeline.store.records import Placed

MAX_SAMPLE: Final = 1_000


def _in_turn(does: Callable[[Site, Visit], Answer]) -> Callable[[Site, Visit], Answer]:
    """The action, done by one person at a time, so that what it checks is still so when it is recorded [REV-45]."""

    @wraps(does)
    def in_turn(site: Site, visit: Visit) -> Answer:
        with site.turn:
            site.catalog.catch_up()
            return does(site, visit)

    return in_turn


def review_decision(site: Site, visit: Visit) -> Answer:
    """Review a decision: disposition, comment, assignee."""
    need(visit, Role.REVIEWER)
    row = detail.known(site, visit.path["id"])
    site.record(visit, "review", "review", {"decision": row.id, "digest": row.digest, **_review_details(visit)})
    return Redirect(f"/decisions/{row.id}")


def review_session(site: Site, visit: Visit) -> Answer:
    """Review a session. A disposition applies to all its decisions that still need review."""
    need(visit, Role.REVIEWER)
    subject, session = _session(visit)
    if site.catalog.session(subject, session) is None:
        raise Refused(404, "review.unknown", "There is no such session.")
    site.record(visit, "review", "review", {"session": {"subject": subject, "id": session}, **_review_details(visit)})
    return Redirect("/session", {"subject": subject, **({} if session is None else {"session": session})})


def review_found(site: Site, visit: Visit) -> Answer:
    """Review all results of a query that existed when the page was loaded."""
    need(visit, Role.REVIEWER)
    text, upto = form_text(visit, "q"), form_text(visit, "upto", needed=True)
    if not upto.isascii() or not upto.isdigit():
        raise Refused(422, "review.missing", "Send the form from the page.")
    rows = [row for row in site.catalog.all_of(site.catalog.select(site.query(text))) if row.seq <= int(upto)]
    if not 1 <= len(rows) <= MAX_SAMPLE:
        raise Refused(422, "review.many", f"Select 1 to {MAX_SAMPLE} decisions: narrow the filter down.")
    about = {"query": text, "decisions": [row.id for row in rows], "hash": set_hash(rows)}
    site.record(visit, "review", "review", {**about, **_review_details(visit)})
    return Redirect("/decisions", {"q": text} if text else {})


def _review_details(visit: Visit) -> Json:
    """The content of a review; Refused if it is empty."""
    details: Json = {}
    if (disposition := visit.form.get("disposition", "")) != "":
        if disposition not in [choice.value for choice in Disposition]:
            raise Refused(422, "review.disposition", "There is no such disposition.")
        details["disposition"] = disposition
    for name in ("comment", "assignee"):
        if is_legible(text := form_text(visit, name)):
            details[name] = text
    if not details:
        raise Refused(422, "review.empty", "Choose a disposition, write a comment, or name somebody.")
    return details


def sign_page(site: Site, visit: Visit) -> Page:
    """The set to sign: its size, its verdicts, its hash."""
    scope, what, rows = _to_sign(site, visit.params)
    counts = _counts(site, rows)
    needing = {row.id for row in site.catalog.all_of(site.catalog.having("needs", "review"))}
    return Page(
        "sign.html",
        {
            "scope": scope,
            "said": what,
            "records": len(rows),
            "counts": counts,
            "hash": set_hash(rows),
            "unreviewed": sum(row.id in needing for row in rows),
            "changed": len(site.changed(rows)),
            "two": takes_two(site, scope),
            "own": revisions.put_in_force(site, visit.person.name, rows) if takes_two(site, scope) else None,
            "fields": {name: value for name, value in visit.params.items() if name in ("q", "subject", "session")},
        },
    )


@_in_turn
def sign(site: Site, visit: Visit) -> Answer:
    """Sign exactly the set that was shown; Refused if it has changed since."""
    need(visit, Role.SIGNER)
    scope, what, rows = _to_sign(site, visit.form)
    digest = set_hash(rows)
    if visit.form.get("hash") != digest:
        raise Refused(409, "review.changed", "The set has changed since you saw it. Look at it again, then sign.")
    _need_unchanged(site, rows)
    if oversight.has_signed(site, visit.person.name, what, digest):
        raise Refused(409, "review.signed", "You have signed this set already; your signature is under Sign-offs.")
    body: Json = {
        "scope": scope,
        "said": what,
        "records": len(rows),
        "counts": _counts(site, rows),
        "set": ranges_of(rows, site.catalog.places()),
        "hash": digest,
        "comment": form_text(visit, "comment"),
    }
    if takes_two(site, scope):
        _need_no_author(site, visit, rows)
        body["needs"] = 2
    if scope == "session":
        subject, session = _session(visit)
        body["session"] = {"subject": subject, "id": session}
    return Redirect(f"/signoffs/{site.record(visit, 'signoff', 'sign', body)}")


def takes_two(site: Site, scope: str) -> bool:
    """Whether a signature of that scope takes effect only once a second person has signed."""
    return scope != "session" and site.contents.four_eyes.needed


@_in_turn
def second(site: Site, visit: Visit) -> Answer:
    """Add the second signature to a set that another person signed."""
    need(visit, Role.SIGNER)
    annotation = oversight.signature(site, visit.path["id"])
    if not oversight.waits(site, annotation):
        raise Refused(409, "review.no-second", "This signature does not need a second one.")
    if is_same_person(annotation.by, visit.person.name):
        raise Refused(409, "review.four-eyes", "You signed it first: another person has to be the second.")
    rows = oversight.signed_rows(site, annotation)
    if not oversight.stands(site, annotation, rows):
        raise Refused(409, "review.changed", "The set has changed since it was signed. Verify the log under Integrity.")
    _need_unchanged(site, rows)
    _need_no_author(site, visit, rows)
    details = {"of": annotation.id, "hash": annotation.body["hash"], "comment": form_text(visit, "comment")}
    site.record(visit, "signoff", "second", details)
    return Redirect(f"/signoffs/{annotation.id}")


def _need_unchanged(site: Site, rows: Sequence[Placed]) -> None:
    """Refuse to sign records that are not stored any more as the log signed them [REV-46]."""
    if changed := site.changed(rows):
        message = f"{len(changed)} of these were changed since they were recorded. Verify the log under Integrity."
        raise Refused(409, "review.changed", message)


def _need_no_author(site: Site, visit: Visit, rows: Sequence[Placed]) -> None:
    """Refuse a signer who activated policies that first ran in this set [REV-43]."""
    if (revision := revisions.put_in_force(site, visit.person.name, rows)) is not None:
        message = f"You put the policies {revision[:12]} into force: another person has to sign."
        raise Refused(409, "review.author", message)


def _to_sign(site: Site, params: Mapping[str, str]) -> tuple[str, str, list[Placed]]:
    """The scope, its wording, and its decisions that are in a log; Refused if there are none."""
    if "subject" in params:
        subject, session = params["subject"], params.get("session")
        stored = site.catalog.session(subject, session)
        scope, what, rows = "session", f"{subject} {session or '(no session)'}", [] if stored is None else stored[1]
    else:
        what = params.get("q", "").strip()
        query = site.query(what)
        scope = "period" if not query.terms and query.since is not None else "filter"
        rows = site.catalog.all_of(site.catalog.select(query))
    rows = [row for row in rows if row.log is not None]
    if not rows:
        raise Refused(422, "review.empty", "There is nothing to sign: no decision in the log matches.")
    return scope, what, rows


def _counts(site: Site, rows: Sequence[Placed]) -> dict[str, int]:
    counts = Counter(row.verdict for row in rows)
    counts.update(filter(None, (site.catalog.state(row.id)["disposition"] for row in rows)))
    return dict(sorted(counts.items()))


@_in_turn
def reopen(site: Site, visit: Visit) -> Answer:
    """Withdraw a signature with a record of its own: the signature stays in the log."""
    need(visit, Role.SIGNER)
    annotation = oversight.signature(site, visit.path["id"])
    if site.catalog.after(annotation)[0] is not None:
        raise Refused(409, "review.reopened", "This was already reopened.")
    details = {"of": annotation.id, "comment": form_text(visit, "comment", needed=True)}
    if annotation.subject_session is not None:
        details["session"] = annotation.body["session"]
    site.record(visit, "signoff", "reopen", details)
    return Redirect(f"/signoffs/{annotation.id}")


def reveal(site: Site, visit: Visit) -> Answer:
    """Show the content of a decision, after recording who asked and why."""
    need(visit, Role.REVIEWER)
    row = detail.known(site, visit.path["id"])
    reason = form_text(visit, "reason", needed=True)
    if kept_of(site.contents, row.id, site.bodies([row]).get(row.seq)) is not Kept.HERE:
        raise Refused(409, "review.no-content", "No content of this decision is stored.")
    line = site.contents.reveal(row.id, actor=visit.subject, reason=reason)
    site.catalog.catch_up()
    return detail.decision(site, visit, revealed=site.again.shown(line))


def ask(site: Site, visit: Visit) -> Answer:
    """Request a second person's agreement to showing content."""
    need(visit, Role.REVIEWER)
    row = detail.known(site, visit.path["id"])
    site.contents.four_eyes.ask(row.id, actor=visit.subject, reason=form_text(visit, "reason", needed=True))
    return Redirect(f"/decisions/{row.id}")


@_in_turn
def grant(site: Site, visit: Visit) -> Answer:
    """Grant somebody else's request to see content."""
    need(visit, Role.REVIEWER)
    reason = form_text(visit, "reason", needed=True)
    granted = site.contents.four_eyes.grant(visit.path["id"], actor=visit.subject, reason=reason)
    return Redirect(f"/decisions/{granted.record}")


def save_filter(site: Site, visit: Visit) -> Answer:
    """Save a query under a name; an empty query deletes the name."""
    need(visit, Role.REVIEWER)
    query = form_text(visit, "q")
    site.query(query)
    site.record(visit, "filter", "save", {"name": form_text(visit, "name", needed=True), "query": query})
    return Redirect("/sessions", {"q": query})


def sample(site: Site, visit: Visit) -> Answer:
    """Draw random decisions with a recorded seed, so that anybody can draw the same."""
    need(visit, Role.REVIEWER)
    text = form_text(visit, "q")
    size = visit.form.get("size", "")
    if re.fullmatch(r"[0-9]{1,4}", size) is None or not 1 <= int(size) <= MAX_SAMPLE:
        raise Refused(422, "review.sample", f"A sample has 1 to {MAX_SAMPLE} decisions.")
    seed = form_text(visit, "seed") or secrets.token_hex(8)
    matches = site.catalog.select(site.query(text))
    by_rule = visit.form.get("by_rule") == "yes"
    if by_rule:
        rows = _by_rule(site, matches, seed, int(size))
    else:
        rows = sampled(site.catalog.all_of(matches), seed, int(size))
    if not rows:
        raise Refused(422, "review.empty", "There is nothing to draw from.")
    details: Json = {"query": text, "seed": seed, "size": int(size), "by_rule": by_rule}
    details |= {"of": matches.bit_count(), "until": max(row.at for row in rows)}
    sample_id = site.record(visit, "sample", "draw", details | {"ids": [row.id for row in rows]})
    return Redirect("/decisions", {"q": f"sample:{sample_id}"})


def _by_rule(site: Site, matches: int, seed: str, size: int) -> list[Placed]:
    """An even sample over rules; a decision of two rules is drawn once."""
    rules = site.catalog.values(matches, "rule", limit=MAX_SAMPLE)
    share = -(-size // max(len(rules), 1))
    drawn: dict[str, Placed] = {}
    for rule, _ in reversed(rules):  # rarest first: frequent rules have enough decisions to fill up with
        having = matches & site.catalog.having("rule", rule)
        fresh = [row for row in site.catalog.all_of(having) if row.id not in drawn]
        drawn |= {row.id: row for row in sampled(fresh, seed, share)}
    return sorted(list(drawn.values())[:size], key=lambda row: row.seq, reverse=True)


def export(site: Site, visit: Visit) -> Answer:
    """An evidence bundle: the query's results and what people recorded about them, with proofs."""
    need(visit, Role.REVIEWER)
    text = form_text(visit, "q")
    rows = site.catalog.all_of(site.catalog.select(site.query(text)))
    site.record(visit, "export", "export", {"query": text, "records": len(rows), "hash": set_hash(rows)})
    wanted = {row.id for row in rows}
    wanted |= {annotation.id for annotation in site.catalog.annotations_of(*KINDS - {"filter"})}
    wanted |= {row.id for row in site.catalog.all_of(site.catalog.having("kind", "override"))}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "evidence.zip"
        selection = Selection(text or "every decision", lambda leaf: leaf.id in wanted)
        now = micros(site.clock())
        with StoreEvidence.at_one_moment(site.store.engine) as evidence:
            write_bundle(file, evidence, selection=selection, made_at=now, signer=site.store.signer())
        content = file.read_bytes()
    return Download(content, f"evidence-{site.clock().strftime('%Y%m%dT%H%M%SZ')}.zip", "application/zip")


def check(site: Site, _visit: Visit) -> Answer:
    """Verify the whole log now."""
    oversight.check(site)
    return Redirect("/integrity")


def _session(visit: Visit) -> tuple[str, str | None]:
    return visit.form.get("subject", "anonymous"), visit.form.get("session")
