"""Checking erased content against erasure records and holds. Spec: audit.md [AUD-40], [AUD-78]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.audit.evidence import Committed, Evidence, Held, Leaf, committed_in
from pipeline.decisions.context import stored_subject

ERASURE: Final = "erasure"  # kind of the record of an erasure
HOLD: Final = "hold"  # kind of the records of a hold
READ: Final = frozenset({ERASURE, HOLD})
_SKEW: Final = 3_600_000_000  # microseconds: tolerated clock difference between recording and erasing


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        code: the kind of problem; see `docs/spec/audit.md`.
        log: the log; empty for a record in no log.
        place: the place in the log, from 0; None if it has no single place.
        record: the id of the record that is there now, if any.
        message: what is wrong, in words; `said` in JSON.
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

    An erasure may come later, or be in another log, so the problems are reported at the end.

    Args:
        evidence: the evidence. If it has no contents, their absence is not a problem.
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
                self._read_erasure(leaf, details)
        except MALFORMED:
            return (malformed(log, leaf),)
        return ()

    def _read_erasure(self, leaf: Leaf, details: Mapping[str, Any]) -> None:
        records, contents = texts(details["records"]), texts(details.get("contents", []))
        erased = _Erased(leaf.seq, int(leaf.row["at"]), details.get("actor") is None)
        self._records |= set(records)
        for record in contents:
            self._contents.setdefault(record, erased)

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
        yield from self._of_holds(holds)

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

    def _of_holds(self, holds: Sequence[_RecordedHold]) -> Iterator[Problem]:
        """Erasing uses the holds in the store, so they have to match the recorded ones."""
        if (found := self._evidence.holds()) is None:
            return
        live = {hold.held for hold in holds if hold.until is None}
        for held in sorted(live ^ set(found), key=str):
            problem = "the stored hold does not match its record"
            yield Problem("hold.changed", "", None, held.id, problem)
