"""What is checked: records as leaves, heads, the logs they belong to. Spec: docs/spec/audit.md.

A database and an exported bundle both give this, so one check serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

from cmf.codec import dumps, loads
from cmf.errors import DecodeError
from pipeline.audit.heads import Head
from pipeline.audit.tree import leaf_hash, leaf_hashes

FIELDS: Final = ("id", "kind", "at", "subject", "session", "verdict", "action", "revision", "digest")
"""What of a record's row its leaf is over: all that is stored of it, the body by its digest, so that it can go."""
_COMMITMENT: Final = b'"commitment"'  # in the body of each record that content is kept to


fields_of: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*FIELDS)
"""What a row has of `FIELDS`, in their order."""


def leaf_of(row: Mapping[str, Any]) -> bytes:
    """The leaf hash of a record, from its row: `FIELDS` as a JSON array."""
    return leaf_hash(dumps(fields_of(row), _no_text))


def leaves_of(rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """The leaf hashes of many records, as `leaf_of`, from what their rows have of `FIELDS`."""
    return leaf_hashes([dumps(fields, _no_text) for fields in rows])


def _no_text(held: bytes) -> dict[str, str]:
    """Bytes, which a database without types of its own may hold in place of a text: no leaf is over such an object."""
    return {"bytes": held.hex()}


def strays_noted(leaves: Iterable[bytes]) -> dict[str, Any]:
    """What the opening of a log notes of the records that are in none: how many, and the digest of their leaves."""
    every = list(leaves)
    return {"records": len(every), "digest": sha256(b"".join(every)).hexdigest()}


def commitment_of(salt: bytes, body: bytes) -> str:
    """What a record says of content that is kept apart from it: SHA-256 of the salt and the bytes, as hex [AUD-70]."""
    return sha256(salt + body).hexdigest()


class Committed(NamedTuple):
    """What a record says of its content: the commitment, and the moment at which it has to be gone, if there is one.

    `says_when`: whether it says that at all. Records did not, once.
    """

    commitment: str
    expires_at: int | None
    says_when: bool


def committed_in(record: bytes | None) -> Committed | None:
    """What a record's body says of its content; None where it names no commitment."""
    if record is None or _COMMITMENT not in record:
        return None
    try:
        said = loads(record).get("content", {})
        commitment = said.get("commitment")
    except (DecodeError, AttributeError):
        return None
    if not isinstance(commitment, str):
        return None
    return Committed(commitment, said.get("expires_at"), "expires_at" in said)


class Kept(NamedTuple):
    """Content as it lies beside its record. A database without types of its own may hold anything here.

    `filed`: the subject, session and time that a database has it under, and when it is to go; None in a bundle.
    """

    salt: bytes
    body: bytes
    filed: tuple[str, str | None, int, int | None] | None = None

    @property
    def commitment(self) -> str:
        """What a record would say that is to be of this; empty for what is no content at all."""
        return commitment_of(self.salt, self.body) if type(self.salt) is type(self.body) is bytes else ""


class Leaf(NamedTuple):
    """A record in its place. `body` is None where it was erased; `seq` is its number in the database, if known.

    `fields` is what its row has of `FIELDS`. `content` is what was kept apart from it, where the evidence has contents
    and there is one.
    """

    place: int
    seq: int
    fields: tuple[Any, ...]
    body: bytes | None
    content: Kept | None = None

    @property
    def row(self) -> Mapping[str, Any]:
        """Its fields by their names."""
        return dict(zip(FIELDS, self.fields, strict=True))

    @property
    def id(self) -> str:
        """The record's id."""
        return str(self.fields[0])

    @property
    def kind(self) -> str:
        """What it is a record of."""
        return str(self.fields[1])

    @property
    def hash(self) -> bytes:
        """The hash of it as a leaf: `leaf_of` its row."""
        return leaf_hash(dumps(self.fields, _no_text))

    @property
    def whole(self) -> bool:
        """Whether the body, if it is there, is the one that the row's digest is of."""
        body = self.body
        return body is None or (type(body) is bytes and sha256(body).hexdigest() == self.fields[-1])

    @property
    def is_bare(self) -> bool:
        """Whether it has a body that speaks of no content, and none is kept beside it: true of most."""
        return self.content is None and self.body is not None and _COMMITMENT not in self.body


class Held(NamedTuple):
    """A hold that holds, as a store has it for whoever erases: whose content it is on, who put it there.

    `subject` and `session` are None for everybody's, or all of theirs.
    """

    id: str
    subject: str | None
    session: str | None
    actor: str
    reason: str


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

    @property
    def has_contents(self) -> bool:
        """Whether leaves come with what was kept apart from them, so that what is not there is missing."""
        ...

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

    def holds(self) -> Iterable[Held] | None:
        """The holds that hold, as whoever erases sees them; None where nobody erases here, as in a bundle."""
        ...

    def orphans(self) -> Iterable[str]:
        """The ids of records that are not there, and that content is kept to."""
        ...


__all__ = [
    "FIELDS",
    "Committed",
    "Evidence",
    "Held",
    "Kept",
    "Leaf",
    "LogRow",
    "StoredHead",
    "commitment_of",
    "committed_in",
    "fields_of",
    "leaf_of",
    "leaves_of",
    "strays_noted",
]
