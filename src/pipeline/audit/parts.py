"""The parts of a bundle: their names, and reading their raw bytes. Spec: docs/spec/audit.md [AUD-50]."""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.errors import AuditError

MANIFEST: Final = "manifest.json"
LOGS, HEADS, RECORDS, WITNESSES = "logs.jsonl", "heads.jsonl", "records.jsonl", "witnesses.jsonl"
POLICIES, PACKED = "policies/", ".tar.gz"  # prefix and suffix around a revision in a part's name
_BLOCK: Final = 1 << 20
_HEADER: Final = 30  # bytes of a zip's local file header before the name
_LENGTHS: Final = struct.Struct("<HH")  # at its end: the lengths of the name and of the extra field


def names_in(file: Path) -> Counter[str]:
    """The names of the parts of a valid bundle, and how many parts have each name."""
    with zipfile.ZipFile(file) as bundle:
        return Counter(part.filename for part in bundle.infolist())


def digest_of(file: Path, name: str) -> str:
    """The SHA-256 of a part, as hex; AuditError as `blocks_of`."""
    digest = hashlib.sha256()
    for block in blocks_of(file, name):
        digest.update(block)
    return digest.hexdigest()


def lines_of(file: Path, name: str) -> Iterator[bytes]:
    """The lines of a part. A wrong checksum is ignored, so that damage is reported per record, not per archive."""
    rest = b""
    for block in blocks_of(file, name):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


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
            name_length, more = _LENGTHS.unpack_from(opened.read(_HEADER), _HEADER - _LENGTHS.size)
            opened.seek(name_length + more, os.SEEK_CUR)
            left = part.file_size
            while left and (block := opened.read(min(left, _BLOCK))):
                left -= len(block)
                yield block
    except (OSError, zipfile.BadZipFile, KeyError, struct.error):
        raise AuditError("a part of the bundle cannot be read", path=f"{file}!{name}", hint="export it again") from None


__all__ = [
    "HEADS",
    "LOGS",
    "MANIFEST",
    "PACKED",
    "POLICIES",
    "RECORDS",
    "WITNESSES",
    "blocks_of",
    "digest_of",
    "lines_of",
    "names_in",
]
