"""What is checked: records as leaves, heads, the logs they belong to. Spec: docs/spec/audit.md.

A database and an exported bundle both give this, so one check serves both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cmf.codec import dumps
from pipeline.audit.heads import Head
from pipeline.audit.tree import leaf_hash

FIELDS: Final = ("id", "kind", "at", "subject", "session", "verdict", "action", "revision", "digest")
"""What of a record's row its leaf is over: all that is stored of it, the body by its digest, so that it can go."""


def leaf_of(row: Mapping[str, Any]) -> bytes:
    """The leaf hash of a record, from its row: `FIELDS` as a JSON array."""
    return leaf_hash(dumps([row[name] for name in FIELDS]))


def strays_noted(leaves: Iterable[bytes]) -> dict[str, Any]:
    """What the opening of a log notes of the records that are in none: how many, and the digest of their leaves."""
    every = list(leaves)
    return {"records": len(every), "digest": hashlib.sha256(b"".join(every)).hexdigest()}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A record in its place. `body` is None where it was erased; `seq` is its number in the database, if known."""

    place: int
    seq: int
    row: Mapping[str, Any]
    body: bytes | None

    @property
    def id(self) -> str:
        """The record's id."""
        return str(self.row["id"])

    @property
    def kind(self) -> str:
        """What it is a record of."""
        return str(self.row["kind"])

    @property
    def whole(self) -> bool:
        """Whether the body, if it is there, is the one that the row's digest is of."""
        if self.body is None:
            return True
        return type(self.body) is bytes and hashlib.sha256(self.body).hexdigest() == self.row["digest"]


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A head with the leaf hashes that its `batch` is the digest of, one after the other."""

    head: Head
    leaves: bytes


@dataclass(frozen=True, slots=True)
class LogRow:
    """What a store says of a log; its first leaf says it under a signature. `seen`: a later log noted it so far."""

    id: str
    key: str
    public_key: str
    opened_at: int
    seen: int


class Evidence(Protocol):
    """Where records, heads and logs are read from; each call reads from the beginning."""

    def logs(self) -> Iterable[LogRow]:
        """Every log."""
        ...

    def heads(self, log: str) -> Iterable[StoredHead]:
        """The heads of a log, by size."""
        ...

    def leaves(self, log: str) -> Iterable[Leaf]:
        """The records of a log, by place."""
        ...

    def strays(self) -> Iterable[Leaf]:
        """The records of no log, or of one that is not among `logs`, by number."""
        ...


__all__ = ["FIELDS", "Evidence", "Leaf", "LogRow", "StoredHead", "leaf_of", "strays_noted"]
