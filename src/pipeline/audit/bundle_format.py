"""The parts of a bundle: their names, and reading their raw bytes. Spec: docs/spec/audit.md [AUD-50]."""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

from pipeline.decisions.errors import AuditError

MANIFEST: Final = "manifest.json"
LOGS, HEADS, RECORDS, WITNESSES = "logs.jsonl", "heads.jsonl", "records.jsonl", "witnesses.jsonl"
POLICIES, PACKED = "policies/", ".tar.gz"  # prefix and suffix around a revision in a part's name
_BLOCK: Final = 1 << 20
_FIRST: Final = b"PK\x03\x04"  # a part's own header begins with it, and so does a bundle
_HEADER: Final = struct.Struct("<4s4xH8xIIHH")  # it: signature, compression, two sizes, lengths of name and extra field
_LARGE: Final = struct.Struct("<HHQQ")  # extra field with the two sizes of a part that may be large
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
            if not is_same or not is_plain or len(sizes) > 1 or part.header_offset != end:
                yield part.filename
            end = part.header_offset + _HEADER.size + named + more + part.file_size
        if end != bundle.start_dir or bundle.comment:
            yield "the end of the file"


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
    "is_bundle",
    "lines_of",
    "misplaced_in",
    "names_in",
]
