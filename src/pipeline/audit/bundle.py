"""Evidence to take away: logs, heads, records and policies in one file, checked offline. Spec: docs/spec/audit.md.

A zip whose parts are stored uncompressed: any tool opens it, and one damaged byte damages one record. With all records
of all logs in it, it is checked as a database is; of a selection, each record brings the proof that it is in its log.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from cmf.codec import dumps, loads
from cmf.errors import DecodeError
from pipeline.audit import manifest as manifests
from pipeline.audit.erasures import READ, Erasures
from pipeline.audit.evidence import FIELDS, Evidence, Kept, Leaf, LogRow, StoredHead, fields_of
from pipeline.audit.heads import Head, PublicKey, Signer
from pipeline.audit.parts import blocks_of, digest_of, lines_of, names_in
from pipeline.audit.tree import Proofs, consistent, included
from pipeline.audit.verification import (
    LogState,
    Problem,
    Report,
    by_id,
    key_of,
    verify,
)
from pipeline.errors import AuditError

SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
_LOGS, _HEADS, _RECORDS, _WITNESSES = "logs.jsonl", "heads.jsonl", "records.jsonl", "witnesses.jsonl"
_POLICIES, _PACKED = "policies/", ".tar.gz"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")  # of a revision or key
_LINE: Final = frozenset({"log", "place", "seq", "body", "proof", "content", *FIELDS})
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # the same records give the same file
_UNSIGNED: Final = (
    "nobody signed the manifest, so records or policies may have been taken out since: export it again with the key"
    " that signs the store's records, or accept it as it is with --unsigned"
)
_HOW_TO: Final = """Evidence of what was decided.

  cmf audit verify FILE [--heads EXPORTED] [--public-key PUBLIC.pem]

checks it without a network or a server. records.jsonl has a record a line: its row, its bytes as they were stored,
in a selection the proof that it is in its log, and, where that was asked for, what was judged with its salt.
heads.jsonl has the signed tree heads, logs.jsonl the logs, policies/ the rules by revision, manifest.json what was
asked for, with the digest of each part. Trees are those of RFC 9162 with SHA-256, signatures are Ed25519;
docs/spec/audit.md describes the rest.
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records go into a bundle: those that `wanted` says, described to the reader as `said`."""

    said: str
    wanted: Callable[[Leaf], bool]


def write_bundle(
    file: Path,
    evidence: Evidence,
    *,
    selection: Selection | None = None,
    policies: Mapping[str, bytes] | None = None,
    contents: bool = False,
    exported: Iterable[Head] = (),
    made_at: int = 0,
    signer: Signer | None = None,
) -> int:
    """How many records were written; the file is new, or nothing is written.

    Args:
        file: where to; must not exist.
        evidence: a database.
        selection: by default everything.
        policies: revision → the bundle of it, for those that are known.
        contents: whether what was judged goes with its record, as far as the evidence has it. No erasure reaches it
            there; that it was taken is the caller's to put on record, before (`Contents.taken`).
        exported: heads from the second place. A selection brings the proof that its log grew out of the newest of them;
            everything needs none.
        made_at: microseconds since the epoch; said in the manifest.
        signer: signs the manifest. Best the key of one of the logs: without others' word, no other counts.

    Raises:
        AuditError: the file exists or cannot be written, or the database holds what no record or head is made of.
    """
    try:
        with file.open("xb") as opened, zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as bundle:
            writing = _Writing(bundle, evidence, selection, exported, contents=contents)
            return writing.run(policies or {}, made_at, signer)
    except FileExistsError:
        raise AuditError("there is such a file already", path=str(file), hint="choose another name") from None
    except OSError as error:
        with suppress(OSError):  # where none could be made, none can be taken away
            file.unlink()
        why = f"the bundle cannot be written: {error.strerror}"
        raise AuditError(why, path=str(file), hint="choose another place") from None
    except (DecodeError, AttributeError, TypeError):  # a database without types of its own may hold anything
        file.unlink(missing_ok=True)
        hint = "`cmf audit verify` says where"
        raise AuditError("the store holds what is no record or head", path=str(file), hint=hint) from None


class _Writing:
    def __init__(
        self,
        bundle: zipfile.ZipFile,
        evidence: Evidence,
        selection: Selection | None,
        exported: Iterable[Head],
        *,
        contents: bool,
    ) -> None:
        self._exported = list(exported)
        self._witnesses: list[bytes] = []
        self._bundle = bundle
        self._contents = contents and evidence.has_contents
        self._evidence = evidence
        self._selection = selection
        self._digests: dict[str, str] = {}

    def run(self, policies: Mapping[str, bytes], made_at: int, signer: Signer | None) -> int:
        logs = list(self._evidence.logs())
        self._write(_LOGS, (dumps(asdict(log)) for log in logs))
        self._write(_HEADS, (line for log in logs for line in self._heads(log.id)))
        count = self._write(_RECORDS, self._records(logs))
        if self._witnesses:
            self._write(_WITNESSES, self._witnesses)
        # What a store says of these is no place to write to where somebody unpacks the bundle.
        for revision, files in sorted(policies.items()):
            if _NAME.fullmatch(revision):
                self._put(f"{_POLICIES}{revision}{_PACKED}", files)
        for log in logs:
            if _NAME.fullmatch(log.key):
                self._put(f"keys/{log.key}.pem", log.public_key.encode())
        self._put("README.txt", _HOW_TO.encode())
        said = None if self._selection is None else self._selection.said
        manifest = {"schema": SCHEMA, "made_at": made_at, "selection": said, "records": count, "files": self._digests}
        manifest["contents"] = self._contents
        self._bundle.writestr(zipfile.ZipInfo(MANIFEST, _MOMENT), dumps(manifests.sealed(manifest, signer)))
        return count

    def _heads(self, log: str) -> Iterator[bytes]:
        heads = self._evidence.heads(log)
        if self._selection is None:
            for stored in heads:
                yield dumps(stored.head.to_json() | {"leaves": base64.b64encode(stored.leaves).decode()})
            return
        for newest in deque(heads, maxlen=1):  # proofs go up to the newest head, and need no other
            yield dumps(newest.head.to_json() | {"leaves": ""})

    def _records(self, logs: Sequence[LogRow]) -> Iterator[bytes]:
        for log in logs:
            if self._selection is None:
                yield from (self._line(log.id, leaf) for leaf in self._evidence.leaves(log.id))
            else:
                yield from self._selected(log.id, self._selection)
        if self._selection is None:
            yield from (self._line(None, leaf) for leaf in self._evidence.strays())

    def _selected(self, log: str, selection: Selection) -> Iterator[bytes]:
        chosen: list[Leaf] = []
        hashes: list[bytes] = []
        some = False
        for leaf in self._evidence.leaves(log):
            hashes.append(leaf.hash)
            # An erasure says which bytes may be gone, a hold which may not, in whatever log, and an opening whose log
            # it is: without them less would be proved.
            is_wanted = selection.wanted(leaf) or leaf.kind in READ
            some |= is_wanted
            if is_wanted or not leaf.place:
                chosen.append(leaf)
        proofs = Proofs(hashes)
        older = [head.size for head in self._exported if head.log == log and head.size < len(hashes)]
        if some and older:
            proof = [step.hex() for step in proofs.consistency(max(older))]
            self._witnesses.append(dumps({"log": log, "size": max(older), "proof": proof}))
        for leaf in chosen if some else ():
            yield self._line(log, leaf, proofs.inclusion(leaf.place))

    def _line(self, log: str | None, leaf: Leaf, proof: Sequence[bytes] | None = None) -> bytes:
        body = None if leaf.body is None else leaf.body.decode("utf-8", "replace")
        line: dict[str, Any] = {"log": log, "place": leaf.place, "seq": leaf.seq, **leaf.row, "body": body}
        if proof is not None:
            line["proof"] = [step.hex() for step in proof]
        if self._contents and leaf.content is not None:
            line["content"] = [base64.b64encode(one).decode() for one in (leaf.content.salt, leaf.content.body)]
        return dumps(line)

    def _write(self, name: str, lines: Iterable[bytes]) -> int:
        digest, count = hashlib.sha256(), 0
        with self._bundle.open(zipfile.ZipInfo(name, _MOMENT), "w", force_zip64=True) as part:
            for line in lines:
                part.write(line)
                part.write(b"\n")
                digest.update(line + b"\n")
                count += 1
        self._digests[name] = digest.hexdigest()
        return count

    def _put(self, name: str, content: bytes) -> None:
        if name not in self._digests:
            self._bundle.writestr(zipfile.ZipInfo(name, _MOMENT), content)
            self._digests[name] = hashlib.sha256(content).hexdigest()


_Line: TypeAlias = tuple[str | None, Leaf, list[bytes]]  # the log, the record, and the proof that it is in it


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was opened: what its manifest says, and its logs and heads. It is `Evidence`."""

    file: Path
    manifest: Mapping[str, Any]
    log_rows: tuple[LogRow, ...]
    stored_heads: Mapping[str, tuple[StoredHead, ...]]
    witnesses: Mapping[tuple[str, int], list[bytes]]

    @property
    def has_contents(self) -> bool:
        """Whether what was judged was taken with its records."""
        return self.manifest.get("contents") is True

    def logs(self) -> Iterable[LogRow]:
        """Every log."""
        return self.log_rows

    def heads(self, log: str) -> Iterable[StoredHead]:
        """The heads of a log, by size."""
        return self.stored_heads.get(log, ())

    def leaves(self, log: str) -> Iterator[Leaf]:
        """The records of a log, by place."""
        return (leaf for name, leaf, _ in self._lines() if name == log)

    def strays(self) -> Iterator[Leaf]:
        """The records of no log, or of one that is not among `logs`."""
        known = {row.id for row in self.log_rows}
        return (leaf for name, leaf, _ in self._lines() if name not in known)

    def holds(self) -> None:
        """Nobody erases here."""

    def orphans(self) -> Iterable[str]:
        """None: content stands in the line of its record."""
        return ()

    def policies(self) -> Mapping[str, bytes]:
        """The policies by the revision that they are to be of, each a `.tar.gz`."""
        names = (name for name in self.manifest["files"] if name.startswith(_POLICIES))
        return {
            name.removeprefix(_POLICIES).removesuffix(_PACKED): b"".join(blocks_of(self.file, name)) for name in names
        }

    def proved(self) -> Iterator[_Line]:
        """The records of a selection with their proofs."""
        return self._lines()

    def unreadable(self) -> Iterator[int]:
        """The numbers of the lines that hold no record any more, counted from 1."""
        return (number for number, found in self._numbered() if found is None)

    def _lines(self) -> Iterator[_Line]:
        return (found for _, found in self._numbered() if found is not None)

    def _numbered(self) -> Iterator[tuple[int, _Line | None]]:
        return ((number, _read_line(line)) for number, line in enumerate(lines_of(self.file, _RECORDS), start=1))


def _read_line(line: bytes) -> _Line | None:
    try:
        found = loads(line)
        if not found.keys() <= _LINE or not type(found["place"]) is type(found["seq"]) is int:
            return None  # what nothing vouches for is no part of a record
        body = None if found["body"] is None else found["body"].encode()
        proof = [bytes.fromhex(step) for step in found.get("proof", ())]
        kept = None
        if "content" in found:
            salt, content = (base64.b64decode(one, validate=True) for one in found["content"])
            kept = Kept(salt, content)
        leaf = Leaf(found["place"], found["seq"], fields_of(found), body, kept)
        log = found["log"]
        return None if not isinstance(log, str | None) else (log, leaf, proof)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def open_bundle(file: Path) -> Bundle:
    """The bundle in `file`.

    Raises:
        AuditError: it is none, or what it says of its logs and heads cannot be read.
    """
    try:
        manifest = loads(b"".join(blocks_of(file, MANIFEST)))
        if manifest["schema"] != SCHEMA:
            raise AuditError("a bundle of another version", path=str(file), hint="use the version that made it")
        logs = tuple(LogRow(**loads(line)) for line in lines_of(file, _LOGS))
        manifests.check_shape(manifest)
        if not all(type(row.id) is type(row.key) is str for row in logs):
            raise ValueError(file)
        heads: dict[str, list[StoredHead]] = {}
        for line in lines_of(file, _HEADS):
            found = loads(line)
            leaves = base64.b64decode(found.pop("leaves"), validate=True)
            head = Head.from_json(found)
            heads.setdefault(head.log, []).append(StoredHead(head, leaves))
        witnesses: dict[tuple[str, int], list[bytes]] = {}
        for line in lines_of(file, _WITNESSES) if _WITNESSES in manifest["files"] else ():
            found = loads(line)
            witnesses[found["log"], found["size"]] = [bytes.fromhex(step) for step in found["proof"]]
    except AuditError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError):
        raise AuditError("this is no bundle, or it was changed", path=str(file), hint="export it again") from None
    return Bundle(file, manifest, logs, {log: tuple(found) for log, found in heads.items()}, witnesses)


def verify_bundle(
    file: Path,
    *,
    exported: Iterable[Head] = (),
    keys: Sequence[PublicKey] | None = None,
    unsigned: bool = False,
) -> Report:
    """Everything that is wrong with a bundle; see `verify`.

    Of a selection it is checked that each record is in its log: that none is missing from the selection is the word of
    whoever made it.

    Args:
        file: the bundle.
        exported: see `verify`.
        keys: see `verify`. They count for the manifest too.
        unsigned: whether a manifest that nobody signed will do.

    Raises:
        AuditError: the file is no bundle, or cannot be read to its end.
    """
    bundle = open_bundle(file)
    anchors = list(exported)
    if bundle.manifest["selection"] is None:
        report = verify(bundle, exported=anchors, keys=keys)
    else:
        report = _verify_selection(bundle, anchors, keys)
    own = (key_of(row, None) for row in bundle.logs())
    said, wrong = manifests.read(bundle.manifest, [key for key in own if key] if keys is None else keys)
    found = [*report.problems, *_unreadable_lines(bundle), *_changed_files(bundle)]
    if wrong is not None:
        found.append(Problem("bundle.signature", "", None, None, wrong))
    elif said.signed_by is None and not unsigned and (keys is not None or bundle.stored_heads):
        found.append(Problem("bundle.unsigned", "", None, None, _UNSIGNED))
    return replace(report, problems=tuple(found), manifest=said)


def _verify_selection(bundle: Bundle, exported: Sequence[Head], keys: Sequence[PublicKey] | None) -> Report:
    problems: list[Problem] = []
    heads: dict[str, Head] = {}
    erasures = Erasures(bundle)
    trusted = by_id(keys)
    for row in bundle.logs():
        key = key_of(row, trusted)
        for stored in bundle.heads(row.id):
            if key is None or not key.signed(stored.head):
                problems.append(Problem("head.signature", row.id, None, None, "its head is not signed as it stands"))
            else:
                heads[row.id] = stored.head
    places: dict[str, list[int]] = {log: [] for log in heads}
    for log, leaf, proof in bundle.proved():
        head = heads.get(log or "")
        good = head is not None and leaf.whole
        if head is None or not good or not included(leaf.hash, leaf.place, head.size, proof, _hash(head.root)):
            said = "it is not what was signed at this place"
            problems.append(Problem("record.changed", log or "", leaf.place, leaf.id, said))
        else:
            problems += erasures.see(head.log, leaf)
            if leaf.body is not None and leaf.kind in READ:
                erasures.read(leaf, leaf.body)
        if log in places:
            places[log].append(leaf.place)
    problems += erasures.problems()
    vouched: dict[str, int] = {}
    for anchor in exported:
        grown = heads.get(anchor.log)
        if grown is None or (steps := _grown_from(bundle, anchor, grown)) is None:
            continue  # nothing here to hold it against
        if consistent(anchor.size, _hash(anchor.root), grown.size, _hash(grown.root), steps):
            vouched[anchor.log] = max(vouched.get(anchor.log, 0), anchor.size)
        else:
            keys_known = (key_of(row, trusted) for row in bundle.logs())
            code = (
                "log.rewritten"
                if any(key is not None and key.signed(anchor) for key in keys_known)
                else "head.signature"
            )
            said = f"the log did not grow out of the exported head of {anchor.size} records"
            problems.append(Problem(code, anchor.log, None, None, said))
    states = (
        LogState(log, len(found), 1, sum(place < vouched.get(log, 0) for place in found))
        for log, found in places.items()
    )
    return Report(tuple(states), tuple(problems), bool(exported), keys is not None)


def _grown_from(bundle: Bundle, anchor: Head, head: Head) -> list[bytes] | None:
    """The proof that the log of `head` was that of `anchor` once; None where the bundle brings none."""
    return [] if anchor.size == head.size else bundle.witnesses.get((anchor.log, anchor.size))


def _hash(root: str) -> bytes:
    """The bytes of a root; none of what is no root, which equals nothing."""
    try:
        return bytes.fromhex(root)
    except ValueError:
        return b""


def _unreadable_lines(bundle: Bundle) -> Iterator[Problem]:
    for number in bundle.unreadable():
        yield Problem("record.unreadable", "", None, None, f"{_RECORDS}, line {number} holds no record any more")


def _changed_files(bundle: Bundle) -> Iterator[Problem]:
    lines = sum(1 for _ in lines_of(bundle.file, _RECORDS))
    if lines != bundle.manifest["records"]:
        said = f"{_RECORDS} has {lines} lines, and the manifest speaks of {bundle.manifest['records']}"
        yield Problem("bundle.changed", "", None, None, said)
    for name, digest in bundle.manifest["files"].items():
        try:
            found = digest_of(bundle.file, name)
        except AuditError:
            found = ""
        if found != digest:
            yield Problem("bundle.changed", "", None, None, f"{name} is not what the manifest says")
    for name in names_in(bundle.file) - Counter([*bundle.manifest["files"], MANIFEST]):
        yield Problem("bundle.changed", "", None, None, f"{name} is more than the manifest says")


__all__ = ["Bundle", "Selection", "open_bundle", "verify_bundle", "write_bundle"]
