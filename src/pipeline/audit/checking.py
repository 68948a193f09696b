"""Complete checks of a store or bundle: its logs, policies and index. Spec: audit.md [AUD-85]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.audit.bundle import open_bundle
from pipeline.audit.bundle_verification import verify_bundle
from pipeline.audit.erasures import Problem
from pipeline.audit.heads import Head, PublicKey
from pipeline.audit.verification import Report, verify
from pipeline.errors import PolicyError
from pipeline.policy_set import revisions_of
from pipeline.store.evidence import StoreEvidence


def check_store(
    evidence: StoreEvidence, *, exported: Iterable[Head] = (), keys: Sequence[PublicKey] | None = None
) -> Report:
    """Everything that is wrong with a store: its logs (see `verify`), its policies and its search index.

    Raises:
        StoreError: the database failed.
    """
    report = verify(evidence, exported=exported, keys=keys)
    found = [*report.problems, *_misnamed(evidence.policies()), *_misindexed(evidence.misindexed())]
    found += _damaged(evidence.damage())
    return replace(report, problems=tuple(found))


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
    return replace(report, problems=(*report.problems, *_misnamed(open_bundle(file).policies())))


def _misnamed(policies: Mapping[str, bytes]) -> Iterator[Problem]:
    for revision, bundle in sorted(policies.items()):
        try:
            holds = revision in revisions_of(bundle)
        except PolicyError:
            holds = False
        if not holds:
            problem = f"the policies stored as revision {revision} have a different revision"
            yield Problem("policies.changed", "", None, None, problem)


def _misindexed(records: Iterable[str | None]) -> Iterator[Problem]:
    for record in records:
        problem = "its index entries do not match it" if record else "the index covers records that do not exist"
        yield Problem("index.changed", "", None, record, problem)


def _damaged(found: Iterable[tuple[str | None, str]]) -> Iterator[Problem]:
    for record, reported in found:
        problem = f"the database file is damaged, so searches may miss records: {reported}"
        yield Problem("index.changed", "", None, record, problem)


__all__ = ["check_bundle", "check_store"]
