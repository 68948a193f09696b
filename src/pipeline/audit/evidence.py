"""The evidence to verify: records as leaves, heads, logs. Spec: docs/spec/audit.md.

Databases and exported bundles both provide it, so one verification serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from pipeline.audit.heads import Head
from pipeline.audit.merkle import leaf_hash, leaf_hashes

FIELDS: Final = ("id", "kind", "at", "subject", "session", "verdict", "action", "revision", "digest")
"""The fields of a record's row that its leaf covers: all of them, the body by its digest, so it can be erased."""
SALT_BYTES: Final = 32  # random bytes in front of content in what its commitment covers
_COMMITMENT: Final = b'"commitment"'  # in the body of every record with content


fields_of: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*FIELDS)
"""The values of `FIELDS` in a row, in order."""


def leaf_of(row: Mapping[str, Any]) -> bytes:
    """The leaf hash of a record, from its row: `FIELDS` as a JSON array."""
    return leaf_hash(dumps(fields_of(row), _tagged_bytes))


def leaves_of(rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """The leaf hashes of many records, as `leaf_of`, from their rows' values of `FIELDS`."""
    return leaf_hashes([dumps(fields, _tagged_bytes) for fields in rows])


def _tagged_bytes(held: bytes) -> dict[str, str]:
    """Encodes bytes, which SQLite may hold instead of text, as an object that no genuine leaf contains."""
    return {"bytes": held.hex()}


def commitment_of(salt: bytes, body: bytes) -> str:
    """A record's commitment to its content: SHA-256 of salt and bytes, as hex [AUD-70]."""
    return sha256(salt + body).hexdigest()


class Committed(NamedTuple):
    """A record's commitment to its content, and the moment when that expires, if it does."""

    commitment: str
    expires_at: int | None


def committed_in(record: bytes | None) -> Committed | None:
    """The commitment in a record's body; None if there is none."""
    if record is None or _COMMITMENT not in record:
        return None
    try:
        content_fields = loads(record).get("content", {})
        commitment, expires_at = content_fields.get("commitment"), content_fields.get("expires_at")
    except (DecodeError, AttributeError):
        return None
    if not isinstance(commitment, str) or type(expires_at) not in (int, NoneType):
        return None
    return Committed(commitment, expires_at)


class Kept(NamedTuple):
    """Content as stored. SQLite does not enforce types, so the fields may hold anything.

    `filed`: the subject, session, time and expiry that a database stores it under; None in a bundle.
    """

    salt: bytes
    body: bytes
    filed: tuple[str, str | None, int, int | None] | None = None

    @property
    def commitment(self) -> str:
        """The commitment of a record to this content; empty if it is malformed.

        A salt of another length is: bytes could be moved between the salt and the body without changing the digest.
        """
        is_whole = type(self.salt) is type(self.body) is bytes and len(self.salt) == SALT_BYTES
        return commitment_of(self.salt, self.body) if is_whole else ""


class Leaf(NamedTuple):
    """A record in its place. `body` is None if it was erased; `seq` is its number in the database, if known.

    `fields` are its row's values of `FIELDS`. `content` is its content, if there is any and the evidence includes it.
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
        """The record's kind."""
        return str(self.fields[1])

    @property
    def hash(self) -> bytes:
        """Its leaf hash: `leaf_of` its row."""
        return leaf_hash(dumps(self.fields, _tagged_bytes))

    @property
    def whole(self) -> bool:
        """Whether the body, if present, matches the row's digest."""
        body = self.body
        return body is None or (type(body) is bytes and sha256(body).hexdigest() == self.fields[-1])

    @property
    def is_bare(self) -> bool:
        """Whether it has a body without a commitment, and no content; true of most records."""
        return self.content is None and self.body is not None and _COMMITMENT not in self.body


class Held(NamedTuple):
    """A hold in force, as stored: whose content it protects, and who set it.

    `subject` and `session` are None for all subjects, or all sessions.
    """

    id: str
    subject: str | None
    session: str | None
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A head with the concatenated leaf hashes that its `batch` is the digest of."""

    head: Head
    leaves: bytes


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log's row in a store; its first leaf has the same, signed. `seen`: the size noted by a later log."""

    id: str
    key: str
    public_key: str
    opened_at: int
    seen: int


class Evidence(Protocol):
    """A source of records, heads and logs; each call reads from the beginning."""

    @property
    def has_contents(self) -> bool:
        """Whether leaves come with their content, so that absent content counts as missing."""
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
        """The records of no log, or of one that is not among `logs`, in order."""
        ...

    def holds(self) -> Iterable[Held] | None:
        """The holds in force, as an erasure sees them; None in a bundle, where nothing is erased."""
        ...

    def orphans(self) -> Iterable[str]:
        """The ids of missing records that content is still stored for."""
        ...
