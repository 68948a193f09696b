"""Reading evidence bundles: logs, heads, records and policies in one file. Spec: docs/spec/audit.md [AUD-50].

A bundle is a zip with uncompressed parts: any tool opens it, and a damaged byte damages one record. See
`bundle_writing` and `bundle_verification`.
"""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from cmf.json.codec import loads
from pipeline.audit import manifest as manifests
from pipeline.audit.bundle_format import (
    HEADS,
    LOGS,
    MANIFEST,
    PACKED,
    POLICIES,
    RECORDS,
    WITNESSES,
    blocks_of,
    lines_of,
)
from pipeline.audit.evidence import FIELDS, Kept, Leaf, LogRow, StoredHead, fields_of
from pipeline.audit.heads import Head
from pipeline.decisions.errors import AuditError

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
    """The bundle in `file`.

    Raises:
        AuditError: it is not a bundle, or its logs and heads cannot be read.
    """
    try:
        manifest = loads(b"".join(blocks_of(file, MANIFEST)))
        if manifest["schema"] != SCHEMA:
            raise AuditError(
                "unsupported bundle version", path=str(file), hint="verify it with the version that made it"
            )
        logs = tuple(LogRow(**loads(line)) for line in lines_of(file, LOGS))
        manifests.check_shape(manifest)
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
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError):
        raise AuditError("not a bundle, or a damaged one", path=str(file), hint="export it again") from None
    return Bundle(file, manifest, logs, {log: tuple(found) for log, found in heads.items()}, witnesses)


__all__ = ["SCHEMA", "Bundle", "open_bundle"]
