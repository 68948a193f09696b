"""Complete checks of a store or bundle: its logs, and what they vouch for beside. Spec: audit.md [AUD-85], [AUD-87]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cmf.codec import loads
from cmf.errors import DecodeError
from pipeline.audit.bundle import open_bundle
from pipeline.audit.bundle_verification import verify_bundle
from pipeline.audit.erasures import Problem
from pipeline.audit.heads import Head, PublicKey
from pipeline.audit.verification import Report, verify
from pipeline.errors import PolicyError
from pipeline.policy_set import revisions_of
from pipeline.store.evidence import StoreEvidence

STATE: Final = (
    "the present state of sessions (labels, counters, budgets, versions), the session, rules and expiry of approvals "
    "and whether any are gone, and the ledger"
)


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
    found += [*_forged(evidence), *_foreign(evidence.foreign())]
    found += [*_misindexed(evidence.misindexed()), *_damaged(evidence.damage())]
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
    said = {_decision_in(action, body) for action, _, body in evidence.acts("review")}
    decided = {decision[0] for decision in said if decision is not None}
    for approval in evidence.approvals():
        if approval not in said and (approval[0] in decided or approval[3] != "pending"):
            problem = f"no record says that the approval {approval[0]} was decided as it is stored"
            yield Problem("approval.forged", "", None, None, problem)


def _decision_in(action: str, body: bytes | None) -> tuple[str, str, str, str] | None:
    """The approval that a record says was decided: its id and digest, who, and how; None for another review."""
    try:
        match loads(body or b""):
            case {"by": {"id": str(by)}, "approval": str(id), "digest": str(digest)}:
                return id, digest, by, action
    except DecodeError:
        return None
    return None


def _foreign(objects: Iterable[str]) -> Iterator[Problem]:
    for name in objects:
        problem = f"the database has a {name}, which no store has: it could change what is written, or shown"
        yield Problem("schema.changed", "", None, None, problem)


def _misindexed(records: Iterable[str | None]) -> Iterator[Problem]:
    for record in records:
        problem = "its index entries do not match it" if record else "the index covers records that do not exist"
        yield Problem("index.changed", "", None, record, problem)


def _damaged(found: Iterable[tuple[str | None, str]]) -> Iterator[Problem]:
    for record, reported in found:
        problem = f"the database file is damaged, so searches may miss records: {reported}"
        yield Problem("index.changed", "", None, record, problem)


__all__ = ["check_bundle", "check_store"]
