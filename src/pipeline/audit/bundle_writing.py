"""Writing evidence bundles of all records or of a selection. Spec: docs/spec/audit.md [AUD-50].

A bundle of all records of all logs is verified like a database. In a selection, each record has a proof that it is in
its log.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cmf.errors import DecodeError
from cmf.json.codec import dumps
from pipeline.audit.bundle import HEADS, LOGS, MANIFEST, PACKED, POLICIES, RECORDS, SCHEMA, WITNESSES, sealed_manifest
from pipeline.audit.erasures import READ
from pipeline.audit.evidence import Evidence, Leaf, LogRow
from pipeline.audit.heads import Head, Signer
from pipeline.audit.merkle import Proofs
from pipeline.decisions.errors import AuditError

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

    Args:
        file: the bundle; must not exist.
        evidence: a database.
        selection: by default everything.
        policies: revision → policy bundle, for the known ones.
        contents: whether to include content, as far as the evidence has it. Later erasures do not reach it there. The
            caller records the export beforehand (`Contents.taken`).
        exported: exported heads. A selection includes a proof that its log extends the newest of them; a complete
            bundle needs none.
        made_at: microseconds since the epoch, for the manifest.
        signer: signs the manifest. Best a key of one of the logs: it is trusted without naming it to the verifier.

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
