"""What is gone, what says that it is, and what was not to go. Spec: audit.md [AUD-40], [AUD-78]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cmf.codec import loads
from pipeline.approval_state import stored_subject
from pipeline.audit.evidence import Committed, Evidence, Held, Leaf, committed_in

ERASURE: Final = "erasure"  # the kind of record that says whose bytes are gone
HOLD: Final = "hold"  # the kind of record that says what may not go, and until when
READ: Final = frozenset({ERASURE, HOLD})
_SKEW: Final = 3_600_000_000  # microseconds by which the clocks of those who record and erase may differ


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        code: what kind of thing; see `docs/spec/audit.md`.
        log: which log; empty for a record that is in none.
        place: where in the log, counted from 0; None where it is no one place.
        record: the id of the record that is there now, if one is.
        said: what is wrong, for a reader.
    """

    code: str
    log: str
    place: int | None
    record: str | None
    said: str

    def to_json(self) -> dict[str, Any]:
        """The problem as JSON objects."""
        return {name: getattr(self, name) for name in ("code", "log", "place", "record", "said")}


class _Place(NamedTuple):
    """Which record, and where; without its bytes, of which there may be many."""

    log: str
    place: int
    record: str


class _Gone(NamedTuple):
    """Content that is gone: of which record, whose it was, and what the record says of it."""

    at: _Place
    subject: str
    session: str | None
    committed: Committed


@dataclass(frozen=True, slots=True)
class _Erased:
    """What an erasure is known by: its number and time, and whether it was retention that erased."""

    seq: int
    at: int
    by_age: bool


@dataclass(frozen=True, slots=True)
class _Holding:
    """A hold as the log has it: whose content it is on, from which number on, up to which."""

    held: Held
    since: int
    until: int | None = None

    def keeps(self, gone: _Gone, seq: int) -> bool:
        """Whether that content was under it when the record of that number was made."""
        held = self.held
        whose = held.subject in (None, gone.subject) and held.session in (None, gone.session)
        return whose and self.since < seq and (self.until is None or seq < self.until)


class Erasures:
    """What is gone, and what erasures that are vouched for say is gone: records' bytes, and contents apart from them.

    What names it may come after it, or stand in another log: so all of it is said at the end.

    Args:
        evidence: what is checked. Without contents it says nothing that they are not there.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._records: set[str] = set()
        self._contents: dict[str, _Erased] = {}
        self._holds: dict[str, _Holding] = {}
        self._released: dict[str, int] = {}
        self._bodies_gone: list[_Place] = []
        self._contents_gone: list[_Gone] = []
        self._contents_here: list[_Place] = []

    def read(self, leaf: Leaf, body: bytes) -> None:
        """Take note of what the body of an erasure, or of a record of a hold, says."""
        said = loads(body)
        if leaf.kind == HOLD:
            self._read_hold(leaf.seq, said)
            return
        self._records |= set(said["records"])
        erased = _Erased(leaf.seq, leaf.row["at"], said.get("actor") is None)
        for record in said.get("contents", ()):
            self._contents.setdefault(record, erased)

    def _read_hold(self, seq: int, said: Mapping[str, Any]) -> None:
        if said["action"] == "release":
            self._released.setdefault(said["hold"], seq)
            return
        subject = said["subject"]
        whose = None if subject is None else stored_subject(subject)
        held = Held(said["hold"], whose, said["session"], said["actor"], said["reason"])
        self._holds[held.id] = _Holding(held, seq)

    def see(self, log: str, leaf: Leaf) -> Sequence[Problem]:
        """Take note of a record that is as it was signed; its content is a problem that is not what it commits to."""
        committed = committed_in(leaf.body)
        if committed is None and leaf.content is None and leaf.body is not None:
            return ()  # nearly all of them, where no content is kept
        at = _Place(log, leaf.place, leaf.id)
        if leaf.body is None:
            self._bodies_gone.append(at)
        if leaf.content is None:
            if committed is not None and self._evidence.has_contents:
                whose = leaf.row["subject"], leaf.row["session"]
                self._contents_gone.append(_Gone(at, *whose, committed))
            return ()
        if committed is None or leaf.content.commitment != committed.commitment:
            return (Problem("content.changed", *at, "what is kept of it is not what it commits to"),)
        self._contents_here.append(at)
        if leaf.content.filed is not None:
            subject, session, moment, until = leaf.content.filed
            # What was kept before records said until when says nothing of it.
            until = until if committed.says_when else None
            if (subject, session, moment, until) != (
                *map(leaf.row.get, ("subject", "session", "at")),
                committed.expires_at,
            ):
                said = "what is kept of it is filed under another subject, session, time or end than its record says"
                return (Problem("content.filed", *at, said),)
        return ()

    def problems(self) -> Iterator[Problem]:
        """What is gone and should not be, or is there and should be gone; holds that are not those on record."""
        holds = [replace(hold, until=self._released.get(name)) for name, hold in self._holds.items()]
        for at in self._bodies_gone:
            if at.record not in self._records:
                yield Problem("record.erased", *at, "its body is gone, and no record says why")
        for gone in self._contents_gone:
            yield from self._of_gone(gone, holds)
        for at in self._contents_here:
            if at.record in self._contents:
                yield Problem("content.erased", *at, "what was kept of it is there, and a record says that it is gone")
        yield from self._of_holds(holds)

    def _of_gone(self, gone: _Gone, holds: Sequence[_Holding]) -> Iterator[Problem]:
        erased = self._contents.get(gone.at.record)
        if erased is None:
            yield Problem("content.missing", *gone.at, "what was kept of it is gone, and no record says why")
            return
        for hold in holds:
            if hold.keeps(gone, erased.seq):
                yield Problem("content.held", *gone.at, f"what was kept of it was erased while {hold.held.id} held it")
        until = gone.committed.expires_at
        if erased.by_age and gone.committed.says_when and (until is None or erased.at + _SKEW < until):
            yield Problem("content.early", *gone.at, "retention erased what was kept of it before its time")

    def _of_holds(self, holds: Sequence[_Holding]) -> Iterator[Problem]:
        """Whoever erases goes by what the store says of holds; it is to say what is on record of them."""
        if (found := self._evidence.holds()) is None:
            return
        live = {hold.held for hold in holds if hold.until is None}
        for held in sorted(live ^ set(found), key=str):
            said = "what the store says of this hold is not what is on record of it"
            yield Problem("hold.changed", "", None, held.id, said)


__all__ = ["ERASURE", "HOLD", "READ", "Erasures", "Problem"]
