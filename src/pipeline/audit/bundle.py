"""Evidence bundles: logs, heads, records and policies in one file, and the signed manifest [AUD-50], [AUD-55].

A bundle is a zip with uncompressed parts: any tool opens it, and a damaged byte damages one record. The manifest has
the digest of every part, so one signature covers what the logs cannot prove: the selection, the number of records, and
that no part, policy or review was removed since. See `bundle_verification`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from pipeline.audit.evidence import FIELDS, READ, Evidence, Kept, Leaf, LogRow, StoredHead, fields_of
from pipeline.audit.heads import Head, Proofs, PublicKey, Signer
from pipeline.decisions.errors import AuditError
from pipeline.decisions.timestamps import iso

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")  # a revision or key id
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same records give the same file
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
    """The records of a bundle: those that `wanted` accepts, described in the manifest as `said`."""

    selected_by: str
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
    """Write a bundle to a new file, completely or not at all; returns the number of records.

    Contents are included as far as the evidence has them. Later erasures do not reach them there, and the caller
    records the export beforehand (`Contents.taken`). `policies` are bundles by revision; `made_at` is in microseconds
    since the epoch. A selection includes a proof that its log extends the newest of the `exported` heads; a complete
    bundle needs none. The signer is best a key of one of the logs: it is trusted without naming it to the verifier.

    Raises:
        AuditError: the file exists or cannot be written, or the database holds malformed records or heads.
    """
    try:
        with file.open("xb") as opened, zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as bundle:
            writing = _Writing(bundle, evidence, selection, exported, contents=contents)
            return writing.run(policies or {}, made_at, signer)
    except FileExistsError:
        raise AuditError("the file already exists", path=str(file), hint="choose another name") from None
    except OSError as error:
        with suppress(OSError):  # there may be no file to remove
            file.unlink()
        why = f"the bundle cannot be written: {error.strerror}"
        raise AuditError(why, path=str(file), hint="choose another place") from None
    except (DecodeError, AttributeError, TypeError):  # SQLite does not enforce types: a column may hold anything
        file.unlink(missing_ok=True)
        hint = "run `cmf audit verify` on the store to find them"
        raise AuditError("the store holds malformed records or heads", path=str(file), hint=hint) from None


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
        self._write(LOGS, (dumps(asdict(log)) for log in logs))
        self._write(HEADS, (line for log in logs for line in self._heads(log.id)))
        count = self._write(RECORDS, self._records(logs))
        if self._witnesses:
            self._write(WITNESSES, self._witnesses)
        # A revision from the store must not become a path to write to when somebody unpacks the bundle.
        for revision, files in sorted(policies.items()):
            if _NAME.fullmatch(revision):
                self._put(f"{POLICIES}{revision}{PACKED}", files)
        for log in logs:
            if _NAME.fullmatch(log.key):
                self._put(f"keys/{log.key}.pem", log.public_key.encode())
        self._put("README.txt", _HOW_TO.encode())
        selected_by = None if self._selection is None else self._selection.selected_by
        manifest = {
            "schema": SCHEMA,
            "made_at": made_at,
            "selection": selected_by,
            "records": count,
            "files": self._digests,
        }
        manifest["contents"] = self._contents
        self._bundle.writestr(zipfile.ZipInfo(MANIFEST, _MOMENT), dumps(sealed_manifest(manifest, signer)))
        return count

    def _heads(self, log: str) -> Iterator[bytes]:
        heads = self._evidence.heads(log)
        if self._selection is None:
            for stored in heads:
                yield dumps(stored.head.to_json() | {"leaves": base64.b64encode(stored.leaves).decode()})
            return
        for newest in deque(heads, maxlen=1):  # all proofs lead to the newest head, so no other is needed
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
            # Erasures (bytes that may be gone), holds (bytes that may not) and openings (whose log it is) are always
            # included: the verification needs them.
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


MANIFEST: Final = "manifest.json"
LOGS, HEADS, RECORDS, WITNESSES = "logs.jsonl", "heads.jsonl", "records.jsonl", "witnesses.jsonl"
POLICIES, PACKED = "policies/", ".tar.gz"  # prefix and suffix around a revision in a part's name
_BLOCK: Final = 1 << 20
_FIRST: Final = b"PK\x03\x04"  # a part's own header begins with it, and so does a bundle
_HEADER: Final = struct.Struct("<4s4xH8xIIHH")  # it: signature, compression, two sizes, lengths of name and extra field
_LARGE: Final = struct.Struct("<HHQQ")  # extra field with the two sizes of a part that may be large
_END: Final = struct.Struct("<4s4H2IH")  # signature, disks, counts, length and place of the directory, comment
_DIRECTORY_LINE: Final = 46  # bytes of the directory for a part, besides its name and extra field
_LARGE_END: Final = 76  # bytes before the end that say the same of a large bundle
_SIZES: Final = b"\x01\x00"  # how that extra field begins
_IN_EXTRA: Final = 0xFFFF_FFFF  # a size that is in the extra field
_PLAIN_TYPES: Final = frozenset({0, 0o10})  # of a file in Unix: none given, or a regular file


def names_in(file: Path) -> Counter[str]:
    """The names of the parts of a valid bundle, and how many parts have each name."""
    with zipfile.ZipFile(file) as bundle:
        return Counter(part.filename for part in bundle.infolist())


def is_bundle(place: str | Path) -> bool:
    """Whether there is a file that begins like a bundle. Zips may begin with other bytes, such as a whole database."""
    try:
        with Path(place).open("rb") as file:
            return file.read(len(_FIRST)) == _FIRST
    except OSError:
        return False


def misplaced_in(file: Path) -> Iterator[str]:
    """What another tool could take for other parts than those that are verified: the names of such parts.

    In a valid bundle each part is a plain file, not compressed, behind a header of its own that has the same name and
    size as the directory; and there are no bytes before, between or behind the parts.
    """
    end = 0
    with zipfile.ZipFile(file) as bundle, file.open("rb") as opened:
        for part in sorted(bundle.infolist(), key=attrgetter("header_offset")):
            opened.seek(part.header_offset)
            first, method, packed, size, named, more = _HEADER.unpack(opened.read(_HEADER.size).ljust(_HEADER.size))
            name, extra = opened.read(named), opened.read(more)
            if _IN_EXTRA in (packed, size) and len(extra) == _LARGE.size:
                *_, size, packed = _LARGE.unpack(extra)
            is_same = first == _FIRST and name == part.orig_filename.encode("utf-8", "replace")
            sizes = {packed, size, part.compress_size, part.file_size}
            is_plain = method == part.compress_type == zipfile.ZIP_STORED and part.external_attr >> 28 in _PLAIN_TYPES
            is_plain = is_plain and _has_only_sizes(extra) and _has_only_sizes(part.extra)
            if not is_same or not is_plain or len(sizes) > 1 or part.header_offset != end:
                yield part.filename
            end = part.header_offset + _HEADER.size + named + more + part.file_size
        if end != bundle.start_dir or not _ends_there(bundle, opened):
            yield "the end of the file"


def _ends_there(bundle: zipfile.ZipFile, opened: BinaryIO) -> bool:
    """Whether nothing but the records of its end is behind the directory, and they say of it what it is."""
    parts, start = bundle.infolist(), bundle.start_dir
    names = (part.orig_filename.encode("utf-8", "replace") for part in parts)
    length = sum(_DIRECTORY_LINE + len(name) + len(part.extra) for name, part in zip(names, parts, strict=True))
    opened.seek(start + length)
    is_large = start > zipfile.ZIP64_LIMIT or len(parts) > zipfile.ZIP_FILECOUNT_LIMIT
    ends = opened.read(_LARGE_END if is_large else 0)
    last = opened.read(_END.size + 1)
    counts = (min(len(parts), 0xFFFF),) * 2
    told = b"PK\5\6", 0, 0, *counts, min(length, 0xFFFFFFFF), min(start, 0xFFFFFFFF), 0
    return last == _END.pack(*told) and (not is_large or (ends[:4], ends[56:60]) == (b"PK\6\6", b"PK\6\7"))


def _has_only_sizes(extra: bytes) -> bool:
    """Whether this extra field has the sizes of a part at most: others give a part another name, say."""
    return not extra or (extra[:2] == _SIZES and len(extra) == 4 + int.from_bytes(extra[2:4], "little"))


def digest_of(file: Path, name: str) -> str:
    """The SHA-256 of a part, as hex; AuditError as `blocks_of`."""
    digest = hashlib.sha256()
    for block in blocks_of(file, name):
        digest.update(block)
    return digest.hexdigest()


def lines_of(file: Path, name: str) -> Iterator[bytes]:
    """The lines of a part. A wrong checksum is ignored, so that damage is reported per record, not per archive."""
    begun: list[bytes] = []  # of a line that may be longer than a block
    for block in blocks_of(file, name):
        *lines, rest = block.split(b"\n")
        for line in lines:
            yield b"".join([*begun, line])
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield last


def blocks_of(file: Path, name: str) -> Iterator[bytes]:
    """The raw bytes of a part.

    `zipfile` would fail on a wrong checksum without saying which record is damaged.

    Raises:
        AuditError: there is no such part, or it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as bundle, file.open("rb") as opened:
            part = bundle.getinfo(name)
            opened.seek(part.header_offset)
            *_, name_length, more = _HEADER.unpack(opened.read(_HEADER.size))
            opened.seek(name_length + more, os.SEEK_CUR)
            left = part.file_size
            while left and (block := opened.read(min(left, _BLOCK))):
                left -= len(block)
                yield block
    except zipfile.BadZipFile:
        raise AuditError("not a bundle, or truncated", path=str(file), hint="copy or export it again") from None
    except (OSError, KeyError, struct.error):
        raise AuditError("a part of the bundle cannot be read", path=f"{file}!{name}", hint="export it again") from None


_CONTEXT: Final = b"cmf evidence manifest 1\n"  # domain separation from heads
_LAST: Final = 253_402_300_800_000_000  # microseconds: the end of the year 9999


class Manifest(NamedTuple):
    """The fields of a manifest that are shown to people; `selection` is the query, None for everything.

    `made_at` is in microseconds since the epoch, by the exporter's clock; `signed_by` the key with a valid signature.
    """

    selection: str | None
    records: int
    made_at: int
    signed_by: str | None

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON objects."""
        return self._asdict() | {"made_at": iso(self.made_at)}


def sealed_manifest(fields: Mapping[str, Any], signer: Signer | None) -> dict[str, Any]:
    """The manifest to write, signed if there is a signer."""
    if signer is None:
        return dict(fields)
    named = {**fields, "key": signer.public_key.id}
    return {**named, "signature": signer.signature(_bytes(named))}


def check_manifest(found: Mapping[str, Any]) -> None:
    """Check the required fields; ValueError, KeyError or TypeError if they are missing or malformed."""
    whole = type(found["records"]) is int and type(found["made_at"]) is int and isinstance(found["files"], dict)
    if not whole or not isinstance(found["selection"], str | None) or not 0 <= found["made_at"] < _LAST:
        raise ValueError("not a manifest")


def read_manifest(found: Mapping[str, Any], keys: Iterable[PublicKey]) -> tuple[Manifest, str | None]:
    """The manifest, and what is wrong with its signature unless it is missing or valid under one of `keys`."""
    fields = {name: item for name, item in found.items() if name != "signature"}
    by, wrong = None, None
    if "signature" in found or "key" in found:
        key = next((key for key in keys if key.id == found.get("key")), None)
        if key is None:
            wrong = "the manifest is not signed by a trusted key"
        elif not key.verifies(_bytes(fields), found.get("signature")):
            wrong = "the signature of the manifest is not valid"
        else:
            by = key.id
    return Manifest(found["selection"], found["records"], found["made_at"], by), wrong


def _bytes(fields: Mapping[str, Any]) -> bytes:
    return _CONTEXT + dumps(fields)


SCHEMA: Final = 1
_LINE: Final = frozenset({"log", "place", "seq", "body", "proof", "content", *FIELDS})

_Line: TypeAlias = tuple[str | None, Leaf, list[bytes]]  # log, record, inclusion proof


@dataclass(frozen=True, slots=True)
class Bundle:
    """An open bundle: its manifest, logs and heads. Implements `Evidence`."""

    file: Path
    manifest: Mapping[str, Any]
    log_rows: tuple[LogRow, ...]
    stored_heads: Mapping[str, tuple[StoredHead, ...]]
    witnesses: Mapping[tuple[str, int], list[bytes]]

    @property
    def has_contents(self) -> bool:
        """Whether content is included with the records."""
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
        """None: bundles have no holds, because nothing is erased from them."""

    def orphans(self) -> Iterable[str]:
        """Empty: content is in the line of its record."""
        return ()

    def policies(self) -> Mapping[str, bytes]:
        """The policy bundles (`.tar.gz`), by the revision that they claim to be."""
        names = (name for name in self.manifest["files"] if name.startswith(POLICIES))
        return {
            name.removeprefix(POLICIES).removesuffix(PACKED): b"".join(blocks_of(self.file, name)) for name in names
        }

    def proved(self) -> Iterator[_Line]:
        """The records of a selection with their inclusion proofs."""
        return self._lines()

    def unreadable(self) -> Iterator[int]:
        """The numbers, from 1, of lines that are not readable as a record."""
        return (number for number, found in self._numbered() if found is None)

    def _lines(self) -> Iterator[_Line]:
        return (found for _, found in self._numbered() if found is not None)

    def _numbered(self) -> Iterator[tuple[int, _Line | None]]:
        return ((number, _read_line(line)) for number, line in enumerate(lines_of(self.file, RECORDS), start=1))


def _read_line(line: bytes) -> _Line | None:
    try:
        found = loads(line)
        if not found.keys() <= _LINE or not type(found["place"]) is type(found["seq"]) is int:
            return None  # a field that nothing signs is not allowed
        if not 0 < found["seq"] < 1 << 63:
            return None  # no database numbers rows so
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
    """The bundle in `file`. Raises AuditError: it is not a bundle, or its logs and heads cannot be read."""
    try:
        manifest = loads(b"".join(blocks_of(file, MANIFEST)))
        if manifest["schema"] != SCHEMA:
            raise AuditError(
                "unsupported bundle version", path=str(file), hint="verify it with the version that made it"
            )
        logs = tuple(LogRow(**loads(line)) for line in lines_of(file, LOGS))
        check_manifest(manifest)
        if not all(type(row.id) is type(row.key) is str for row in logs):
            raise ValueError(file)
        heads: dict[str, list[StoredHead]] = {}
        for line in lines_of(file, HEADS):
            found = loads(line)
            leaves = base64.b64decode(found.pop("leaves"), validate=True)
            head = Head.from_json(found)
            heads.setdefault(head.log, []).append(StoredHead(head, leaves))
        witnesses: dict[tuple[str, int], list[bytes]] = {}
        for line in lines_of(file, WITNESSES) if WITNESSES in manifest["files"] else ():
            found = loads(line)
            witnesses[found["log"], found["size"]] = [bytes.fromhex(step) for step in found["proof"]]
    except AuditError:
        raise
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError, KeyError, TypeError, AttributeError):
        raise AuditError("not a bundle, or a damaged one", path=str(file), hint="export it again") from None
    return Bundle(file, manifest, logs, {log: tuple(found) for log, found in heads.items()}, witnesses)
