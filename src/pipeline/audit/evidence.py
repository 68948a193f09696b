"""The evidence to verify: records as leaves, heads, logs. Spec: docs/spec/audit.md.

Databases and exported bundles both provide it, so one verification serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from pipeline.audit.heads import Head, leaf_hash, leaf_hashes
from pipeline.decisions.context import stored_subject

ERASURE: Final = "erasure"  # kind of the record of an erasure
HOLD: Final = "hold"  # kind of the records of a hold
READ: Final = frozenset({ERASURE, HOLD})
_SKEW: Final = 3_600_000_000  # microseconds: tolerated clock difference between recording and erasing


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; `docs/spec/audit.md` lists the codes. The message is `said` in JSON.

    The log is empty for a record in none; the place counts from 0, and is None if there is no single one.
    """

    code: str
    log: str
    place: int | None
    record: str | None
    message: str

    def to_json(self) -> dict[str, Any]:
        """The problem as JSON objects."""
        fields = {name: getattr(self, name) for name in ("code", "log", "place", "record")}
        return {**fields, "said": self.message}


MALFORMED: Final = (DecodeError, KeyError, TypeError, ValueError, AttributeError)
"""What reading a record raises whose writer, known or not, gave it another form."""


def malformed(log: str, leaf: Leaf) -> Problem:
    """The problem of a record that has to be read, and has another form than this version knows."""
    problem = f"its form is unknown for the kind {leaf.kind}: verify it with the version that wrote it"
    return Problem("record.unreadable", log, leaf.place, leaf.id, problem)


def texts(values: Any) -> list[str]:
    """These values, a list of texts; TypeError if they are anything else."""
    if type(values) is not list or any(type(one) is not str for one in values):
        raise TypeError("not a list of texts")
    return values


class _Place(NamedTuple):
    """A record's id and place, without its possibly large body."""

    log: str
    place: int
    record: str


class _ErasedContent(NamedTuple):
    """Missing content: its record, whose it was, and the record's commitment."""

    at: _Place
    subject: str
    session: str | None
    committed: Committed


@dataclass(frozen=True, slots=True)
class _Erased:
    """An erasure: its number and time, and whether it was due to retention."""

    seq: int
    at: int
    by_age: bool


@dataclass(frozen=True, slots=True)
class _RecordedHold:
    """A hold according to the log, with the numbers of the records that set and released it."""

    held: Held
    since: int
    until: int | None = None

    def keeps(self, erased_content: _ErasedContent, seq: int) -> bool:
        """Whether it protected that content when the record with that number was made."""
        held = self.held
        whose = held.subject in (None, erased_content.subject) and held.session in (None, erased_content.session)
        return whose and self.since < seq and (self.until is None or seq < self.until)


class Erasures:
    """Compares missing record bodies and contents with the erasures in verified records.

    An erasure may come later, or be in another log, so the problems are reported at the end. Where the evidence has no
    contents, their absence is no problem.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._records: set[str] = set()
        self._contents: dict[str, _Erased] = {}
        self._holds: dict[str, _RecordedHold] = {}
        self._released: dict[str, int] = {}
        self._erased_bodies: list[_Place] = []
        self._erased_contents: list[_ErasedContent] = []
        self._contents_here: list[_Place] = []

    def read(self, log: str, leaf: Leaf, body: bytes) -> Sequence[Problem]:
        """Collect the content of an erasure record or a hold record; one that is malformed is a problem."""
        try:
            details = loads(body)
            if leaf.kind == HOLD:
                self._read_hold(leaf.seq, details)
            else:
                records, contents = texts(details["records"]), texts(details.get("contents", []))
                erased = _Erased(leaf.seq, int(leaf.row["at"]), details.get("actor") is None)
                self._records |= set(records)
                for record in contents:
                    self._contents.setdefault(record, erased)
        except MALFORMED:
            return (malformed(log, leaf),)
        return ()

    def _read_hold(self, seq: int, details: Mapping[str, Any]) -> None:
        if details["action"] == "release":
            self._released.setdefault(details["hold"], seq)
            return
        subject, session = details["subject"], details["session"]
        name, actor, reason, *_ = texts(
            [*(details[field] for field in ("hold", "actor", "reason")), subject or "", session or ""]
        )
        whose = None if subject is None else stored_subject(subject)
        self._holds[name] = _RecordedHold(Held(name, whose, session, actor, reason), seq)

    def see(self, log: str, leaf: Leaf) -> Sequence[Problem]:
        """Collect a verified record; content that does not match its commitment is a problem."""
        committed = committed_in(leaf.body)
        if committed is None and leaf.content is None and leaf.body is not None:
            return ()  # nearly all records, if no content is stored
        at = _Place(log, leaf.place, leaf.id)
        if leaf.body is None:
            self._erased_bodies.append(at)
        if leaf.content is None:
            if committed is not None and self._evidence.has_contents:
                whose = leaf.row["subject"], leaf.row["session"]
                self._erased_contents.append(_ErasedContent(at, *whose, committed))
            return ()
        if committed is None or leaf.content.commitment != committed.commitment:
            return (Problem("content.changed", *at, "its content does not match its commitment"),)
        self._contents_here.append(at)
        if leaf.content.filed is not None:
            subject, session, moment, until = leaf.content.filed
            if (subject, session, moment, until) != (
                *map(leaf.row.get, ("subject", "session", "at")),
                committed.expires_at,
            ):
                problem = (
                    "its content is stored under a subject, session, time or expiry that does not match the record"
                )
                return (Problem("content.filed", *at, problem),)
        return ()

    def problems(self) -> Iterator[Problem]:
        """Content that is missing without an erasure or present despite one, and holds that do not match the log."""
        holds = [replace(hold, until=self._released.get(name)) for name, hold in self._holds.items()]
        for at in self._erased_bodies:
            if at.record not in self._records:
                yield Problem("record.erased", *at, "its body is missing, and no erasure is recorded")
        for erased_content in self._erased_contents:
            yield from self._of_erased(erased_content, holds)
        for at in self._contents_here:
            if at.record in self._contents:
                yield Problem("content.erased", *at, "its content is present, although its erasure is recorded")
        # Erasing uses the holds in the store, so they have to match the recorded ones
        if (found := self._evidence.holds()) is None:
            return
        live = {hold.held for hold in holds if hold.until is None}
        for held in sorted(live ^ set(found), key=str):
            problem = "the stored hold does not match its record"
            yield Problem("hold.changed", "", None, held.id, problem)

    def _of_erased(self, erased_content: _ErasedContent, holds: Sequence[_RecordedHold]) -> Iterator[Problem]:
        erased = self._contents.get(erased_content.at.record)
        if erased is None:
            yield Problem("content.missing", *erased_content.at, "its content is missing, and no erasure is recorded")
            return
        for hold in holds:
            if hold.keeps(erased_content, erased.seq):
                yield Problem(
                    "content.held", *erased_content.at, f"its content was erased while under hold {hold.held.id}"
                )
        until = erased_content.committed.expires_at
        if erased.by_age and (until is None or erased.at + _SKEW < until):
            yield Problem("content.early", *erased_content.at, "retention erased its content too early")


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

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> StoredHead:
        """The head in a row of a store, which may hold anything."""
        return cls(Head(**{name: held for name, held in row.items() if name != "leaves"}), row["leaves"])


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
