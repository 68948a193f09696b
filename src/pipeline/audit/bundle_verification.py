"""Verifying an evidence bundle offline. Spec: docs/spec/audit.md [AUD-50].

A complete bundle is verified like a database. For a selection, each record is proved to be in its log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.audit.bundle import (
    MANIFEST,
    RECORDS,
    Bundle,
    digest_of,
    lines_of,
    misplaced_in,
    names_in,
    open_bundle,
    read_manifest,
)
from pipeline.audit.evidence import READ, Erasures, Problem
from pipeline.audit.heads import Head, PublicKey, consistent, included
from pipeline.audit.verification import LogState, Report, by_id, key_of, verify
from pipeline.decisions.errors import AuditError

_UNSIGNED: Final = (
    "the manifest is not signed, so records or policies may have been removed since: export it again with the key"
    " that signs the store's records, or accept it with --unsigned"
)


def verify_bundle(
    file: Path,
    *,
    exported: Iterable[Head] = (),
    keys: Sequence[PublicKey] | None = None,
    unsigned: bool = False,
) -> Report:
    """Everything that is wrong with a bundle; `exported` and `keys` are as for `verify`, the keys for the manifest too.

    For a selection, each record is proved to be in its log. That the selection is complete cannot be proved: it is a
    claim of whoever made it. `unsigned` accepts an unsigned manifest.

    Raises:
        AuditError: the file is not a bundle, or cannot be read to its end.
    """
    bundle = open_bundle(file)
    anchors = list(exported)
    if bundle.manifest["selection"] is None:
        report = verify(bundle, exported=anchors, keys=keys)
    else:
        report = _SelectionCheck(bundle, anchors, keys).report()
    own = (key_of(row, None) for row in bundle.logs())
    parsed_manifest, problem = read_manifest(bundle.manifest, [key for key in own if key] if keys is None else keys)
    unreadable = (
        Problem("record.unreadable", "", None, None, f"{RECORDS}, line {number}: not readable as a record")
        for number in bundle.unreadable()
    )
    found = [*report.problems, *unreadable, *_changed_files(bundle)]
    if problem is not None:
        found.append(Problem("bundle.signature", "", None, None, problem))
    elif parsed_manifest.signed_by is None and not unsigned and (keys is not None or bundle.stored_heads):
        found.append(Problem("bundle.unsigned", "", None, None, _UNSIGNED))
    return replace(report, problems=tuple(found), manifest=parsed_manifest)


class _SelectionCheck:
    """Verifies each record of a selection, and that its logs extend the exported heads."""

    def __init__(self, bundle: Bundle, exported: Sequence[Head], keys: Sequence[PublicKey] | None) -> None:
        self._bundle = bundle
        self._exported = exported
        self._has_keys = keys is not None
        trusted = by_id(keys)
        self._keys = [(row.id, key_of(row, trusted)) for row in bundle.logs()]  # a log may be listed twice
        self._problems: list[Problem] = []

    def report(self) -> Report:
        heads = self._signed_heads()
        places = self._check_records(heads)
        vouched = self._check_anchors(heads)
        states = tuple(
            LogState(log, len(found), 1, sum(place < vouched.get(log, 0) for place in found))
            for log, found in places.items()
        )
        return Report(states, tuple(self._problems), bool(self._exported), self._has_keys)

    def _signed_heads(self) -> dict[str, Head]:
        """Log → the head that its records are proved against. A head with an invalid signature is a problem."""
        heads: dict[str, Head] = {}
        for log, key in self._keys:
            for stored in self._bundle.heads(log):
                if key is not None and key.signed(stored.head):
                    heads[log] = stored.head
                else:
                    self._found("head.signature", log, "the signature of its head is not valid")
        return heads

    def _check_records(self, heads: Mapping[str, Head]) -> Mapping[str, list[int]]:
        """Log → the places of its records in the bundle. A record without a valid proof is a problem."""
        erasures = Erasures(self._bundle)
        places: dict[str, list[int]] = {log: [] for log in heads}
        for log, leaf, proof in self._bundle.proved():
            head = heads.get(log or "")
            if head is not None and (
                leaf.whole and included(leaf.hash, leaf.place, head.size, proof, _hash(head.root))
            ):
                self._problems += erasures.see(head.log, leaf)
                if leaf.body is not None and leaf.kind in READ:
                    self._problems += erasures.read(head.log, leaf, leaf.body)
            else:
                problem = "it does not match the hash signed for this place"
                self._problems.append(Problem("record.changed", log or "", leaf.place, leaf.id, problem))
            if log in places:
                places[log].append(leaf.place)
        self._problems += erasures.problems()
        return places

    def _check_anchors(self, heads: Mapping[str, Head]) -> Mapping[str, int]:
        """Log → the size covered by an exported head. A head that the log does not extend is a problem."""
        vouched: dict[str, int] = {}
        for anchor in self._exported:
            head = heads.get(anchor.log)
            if head is None:
                continue  # a log of which nothing is here
            if not any(log == anchor.log and key is not None and key.signed(anchor) for log, key in self._keys):
                problem = f"an exported head of {anchor.size} records is not signed by a trusted key"
                self._found("head.signature", anchor.log, problem)
                continue
            proof = [] if anchor.size == head.size else self._bundle.witnesses.get((anchor.log, anchor.size))
            if proof is None:
                continue  # nothing here to compare it with
            if consistent(anchor.size, _hash(anchor.root), head.size, _hash(head.root), proof):
                vouched[anchor.log] = max(vouched.get(anchor.log, 0), anchor.size)
            else:
                problem = f"the log does not extend the exported head of {anchor.size} records"
                self._found("log.rewritten", anchor.log, problem)
        return vouched

    def _found(self, code: str, log: str, problem: str) -> None:
        self._problems.append(Problem(code, log, None, None, problem))


def _hash(root: str) -> bytes:
    """The bytes of a root in hex; empty, and so equal to no root, if it is not hex."""
    try:
        return bytes.fromhex(root)
    except ValueError:
        return b""


def _changed_files(bundle: Bundle) -> Iterator[Problem]:
    lines = sum(1 for _ in lines_of(bundle.file, RECORDS))
    if lines != bundle.manifest["records"]:
        problem = f"{RECORDS} has {lines} lines, but the manifest lists {bundle.manifest['records']}"
        yield Problem("bundle.changed", "", None, None, problem)
    for name, digest in bundle.manifest["files"].items():
        try:
            found = digest_of(bundle.file, name)
        except AuditError:
            found = ""
        if found != digest:
            yield Problem("bundle.changed", "", None, None, f"{name} does not match the manifest")
    for name in names_in(bundle.file) - Counter([*bundle.manifest["files"], MANIFEST]):
        yield Problem("bundle.changed", "", None, None, f"{name} is not in the manifest")
    for name in misplaced_in(bundle.file):
        problem = f"{name}: the file is put together so that other tools may unpack something else"
        yield Problem("bundle.changed", "", None, None, problem)
