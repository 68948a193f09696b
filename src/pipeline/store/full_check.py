"""All checks of a store or bundle: its logs, and what they vouch for beside. Spec: audit.md [AUD-85] to [AUD-88]."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.audit.bundle import open_bundle
from pipeline.audit.bundle_verification import verify_bundle
from pipeline.audit.evidence import Problem
from pipeline.audit.heads import Head, PublicKey
from pipeline.audit.verification import Report, verify
from pipeline.decisions.context import shown_subject
from pipeline.decisions.errors import PolicyError
from pipeline.policy.policy_set import revisions_of
from pipeline.store.evidence import LiftedLabel, SessionId, SessionRows, StoredApproval, StoreEvidence, standing_of

STATE: Final = (
    "what sessions have that no decision on record gave them, their events, tool ids and marks, budgets, the session, "
    "target, rules, revision and expiry of approvals and whether any are gone, and the ledger"
)
_NOTHING: Final = Decimal(-1)  # less than any counter


def check_store(
    evidence: StoreEvidence, *, exported: Iterable[Head] = (), keys: Sequence[PublicKey] | None = None
) -> Report:
    """Everything that is wrong with a store: its logs (see `verify`), policies, approvals, search index and schema.

    Raises:
        StoreError: the database failed.
    """
    report = verify(evidence, exported=exported, keys=keys)
    policies = evidence.policies()
    found = [*report.problems, *_misnamed(policies), *_missing(evidence.acts("policy"), policies)]
    found += _forged(evidence)
    for name in evidence.foreign():
        problem = f"the database has a {name}, which no store has: it could change what is written, or shown"
        found.append(Problem("schema.changed", "", None, None, problem))
    found += [*_changed_sessions(evidence), *_forged_grants(evidence)]
    for record in evidence.misindexed():
        problem = "its index entries do not match it" if record else "the index covers records that do not exist"
        found.append(Problem("index.changed", "", None, record, problem))
    for record, reported in evidence.damage():
        problem = f"the database file is damaged, so searches may miss records: {reported}"
        found.append(Problem("index.changed", "", None, record, problem))
    unknown = len(evidence.revisions() - policies.keys() - {""})
    unchecked = (STATE,) if not unknown else (STATE, f"the policies of {unknown} of the revisions that decided")
    return replace(report, problems=tuple(found), unchecked=unchecked)


def check_bundle(
    file: Path,
    *,
    exported: Iterable[Head] = (),
    keys: Sequence[PublicKey] | None = None,
    unsigned: bool = False,
) -> Report:
    """Everything that is wrong with a bundle (see `verify_bundle`) and its policies.

    Raises:
        AuditError: the file is not a bundle, or cannot be read to its end.
    """
    report = verify_bundle(file, exported=exported, keys=keys, unsigned=unsigned)
    bundle = open_bundle(file)
    policies = bundle.policies()
    found = [*report.problems, *_misnamed(policies)]
    if bundle.manifest["selection"] is None:  # which policies come with a selection is the exporter's choice
        leaves = (leaf for row in bundle.logs() for leaf in bundle.leaves(row.id) if leaf.kind == "policy")
        acts = ((str(leaf.row["action"]), str(leaf.row["revision"]), leaf.body) for leaf in leaves)
        found += _missing(acts, policies)
    return replace(report, problems=tuple(found))


def _misnamed(policies: Mapping[str, bytes]) -> Iterator[Problem]:
    for revision, bundle in sorted(policies.items()):
        try:
            holds = revision in revisions_of(bundle)
        except PolicyError:
            holds = False
        if not holds:
            problem = f"the policies stored as revision {revision} have a different revision"
            yield Problem("policies.changed", "", None, None, problem)


def _missing(acts: Iterable[tuple[str, str, bytes | None]], policies: Mapping[str, bytes]) -> Iterator[Problem]:
    """The policies that a record says were put in force, and kept, and that are gone."""
    kept = {revision for action, revision, _ in acts if action in ("load", "change")}
    for revision in sorted(kept - policies.keys()):
        problem = f"the policies of revision {revision}, which were in force, are not stored any more"
        yield Problem("policies.missing", "", None, None, problem)


def _forged(evidence: StoreEvidence) -> Iterator[Problem]:
    """The approvals that were not decided as records say; nothing where there is no log."""
    if not list(evidence.logs()):
        return
    every = [made for action, _, body in evidence.acts("review") if (made := _decision_in(action, body)) is not None]
    said = {made for made in every if made.act != "revoke"}
    revoked = {(made.id, made.by) for made in every if made.act == "revoke"}
    decided = {made.id for made in said}
    for approval, revoker in evidence.approvals():
        is_known = approval in said or (approval.id not in decided and approval.act == "pending")
        ends = {by for name, by in revoked if name == approval.id}
        if not is_known or (revoker not in ends if revoker is not None else bool(ends)):
            problem = f"no record says that the approval {approval.id} was decided as it is stored"
            yield Problem("approval.forged", "", None, None, problem)


def _decision_in(action: str, body: bytes | None) -> StoredApproval | None:
    """The approval that a record says was decided, and how; None for another review."""
    try:
        match loads(body or b""):
            case {"by": {"id": str(by)}, "approval": str(id), "digest": str(digest)} as made:
                return StoredApproval(id, digest, by, action, standing_of(made))
    except DecodeError:
        return None
    return None


@dataclass(slots=True)
class _Told:
    """What decisions on record gave a session: how many changed it, and what that comes to."""

    changes: int = 0
    version: int = 0
    labels: set[tuple[str, str]] = field(default_factory=set)
    counters: dict[str, Decimal] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)

    def add(self, made: Any) -> None:
        match made:
            case {"version": int(version), "labels": list(labels), "counts": dict(counts)}:
                self.changes += 1
                self.version = max(self.version, version)
                self.labels |= {(str(label), str(source)) for label, source in labels}
                for name, amount in counts.items():
                    self.counters[name] = self.counters.get(name, Decimal(0)) + Decimal(str(amount))
                used = made.get("used")
                self.used += map(str, used if isinstance(used, list) else ())

    def differs(self, stored: SessionRows | None) -> str:
        """How the session as it is stored differs from it; empty if it does not."""
        if stored is None:
            return "it is gone"
        counters = {name: _amount(amount) for name, amount in stored.counters.items()}
        version = stored.version if type(stored.version) is int else -1
        lacks = {
            "a lower version": version < self.version,
            "fewer labels": not self.labels <= stored.labels,
            "lower counters": any(counters.get(name, _NOTHING) < amount for name, amount in self.counters.items()),
            "fewer used approvals": not stored.used.issuperset(self.used),
            "an approval that was used twice": len(set(self.used)) < len(self.used),
        }
        # Others may have changed it too. If nobody did, what is more than this was not put there by us.
        added = {
            "more labels": stored.labels > self.labels,
            "higher counters": counters != self.counters,
        }
        found = lacks if any(lacks.values()) or version != self.changes else added
        return f"it has {', '.join(what for what, holds in found.items() if holds)}" if any(found.values()) else ""


def _amount(stored: Any) -> Decimal:
    try:
        amount = Decimal(str(stored))
    except InvalidOperation:
        return _NOTHING
    return amount if amount.is_finite() else _NOTHING


def _changed_sessions(evidence: StoreEvidence) -> Iterator[Problem]:
    """The sessions that differ from what decisions on record gave them."""
    told: defaultdict[SessionId, _Told] = defaultdict(_Told)
    for key, made in evidence.session_changes():
        told[key].add(made)
    stored = evidence.sessions(told.keys())
    for key, given in sorted(told.items()):
        if differs := given.differs(stored.get(key)):
            subject, session = key
            problem = (
                f"the session {session} of {shown_subject(subject)} is not as decisions on record left it: {differs}"
            )
            yield Problem("session.changed", "", None, None, problem)


def _forged_grants(evidence: StoreEvidence) -> Iterator[Problem]:
    """The lifted labels of which no record says that they were lifted so; nothing where there is no log."""
    if not list(evidence.logs()):
        return
    said = {_grant_in(body) for _, _, body in evidence.acts("declassify")}
    for grant in evidence.grants():
        if grant not in said:
            problem = f"no record says that a label was lifted as the grant {grant[0]} has it"
            yield Problem("grant.forged", "", None, None, problem)


def _grant_in(body: bytes | None) -> LiftedLabel | None:
    """The grant that a record tells of."""
    try:
        match loads(body or b""):
            case {
                "grant": str(id),
                "label": str(label),
                "session": {"subject": str(subject), "id": str(session)},
                "sources": list(sources),
                "until": str(until),
            }:
                return LiftedLabel(id, label, (subject, session), frozenset(map(str, sources)), until)
    except DecodeError:
        return None
    return None
