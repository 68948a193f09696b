"""All records at hand, sorted by what they are looked for by: made from the store, in memory, caught up as it grows.

A page of a hundred thousand records is found in milliseconds, with how many there are of each value. Nothing here is
kept: it is made again from the records, which alone count. Spec: docs/spec/review.md [REV-3].
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final

from pipeline.audit.query import REVIEWS, Query, Value
from pipeline.moments import SECOND
from pipeline.review import bits
from pipeline.review.words import KINDS, Word, needs_second, seconds, word_of
from pipeline.store.database import Store
from pipeline.store.overview import Part, Placed, is_behind, part_after
from pipeline.store.search import Search, stored_value

SEVERITIES: Final = ("info", "warn", "high", "critical")
EDITS: Final = frozenset({"redact", "rewrite", "strip_tool"})
_EYES, _UNCOVERED, _DISPOSED, _SIGNED = 1, 2, 4, 8
_DONE: Final = _DISPOSED | _SIGNED
_MANY: Final = 2_000  # more values than this are no facet


@dataclass(slots=True)
class Session:
    """What a session's decisions come to. `open`: how many of them still need eyes; `severity` indexes SEVERITIES."""

    number: int
    subject: str
    id: str | None
    positions: array[int] = field(default_factory=lambda: array("I"))
    verdicts: dict[str, int] = field(default_factory=dict)
    edited: int = 0
    uncovered: int = 0
    severity: int = -1
    eyes: int = 0
    open: int = 0
    disposed: int = 0
    signed: int = 0
    last_at: int = 0
    assignee: str = ""


class Catalog:
    """The records of a store, found by query. Safe to use from any thread; each call sees what was caught up last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._search = Search(store.engine, store.writer)
        self._lock = threading.RLock()
        self.rows: list[Placed] = []
        self._at = array("q")
        self._in_order = True
        self._by_time: list[int] = []
        self._flags = bytearray()
        self._by_id: dict[str, int] = {}
        self._values: dict[str, dict[str, array[int]]] = {}
        self._sessions: dict[tuple[str, str | None], Session] = {}
        self._session_list: list[Session] = []
        self._session_of = array("I")
        self._places: dict[str, array[int]] = {}  # of decisions, by log
        self._placed: dict[str, array[int]] = {}  # their positions
        self._dispositions: dict[int, str] = {}
        self._assignees: dict[int, str] = {}
        self._signed_by: dict[int, str] = {}
        self._disposed_at: dict[int, int] = {}  # when somebody first did
        self._after: dict[str, list[Word]] = {}  # what was said of a signature since
        self._edited: set[int] = set()
        self._made: dict[tuple[str, str], tuple[int, int]] = {}  # sets as integers, and how much they are of
        self.words: dict[str, Word] = {}
        self._about: dict[str, list[Word]] = {}
        self._about_session: dict[tuple[str, str | None], list[Word]] = {}

    def catch_up(self) -> None:
        """Take in what was recorded since.

        Raises:
            StoreError: the database failed.
        """
        if is_behind(self._store.engine):
            self._search.catch_up()
        with self._lock:
            while True:
                after = self.rows[-1].seq if self.rows else 0
                part = part_after(self._store.engine, after, kinds=KINDS)
                if not part.rows:
                    return
                self._take_in(part)

    def select(self, query: Query) -> int:
        """The decisions that the query finds, as a set of positions."""
        with self._lock:
            found = self._set("kind", "decision")
            for term in query.terms:
                having = 0
                for value in term.values:
                    having |= self._having(term.name, value)
                found &= ~having if term.negated else having
            if query.since is not None or query.until is not None:
                found &= self._between(query.since, query.until)
            return found

    def page(self, found: int, *, before: int | None, limit: int) -> list[Placed]:
        """The newest records in the set, those with a number below `before`, at most `limit`."""
        with self._lock:
            if before is not None:
                found &= bits.below(bisect.bisect_left(self.rows, before, key=lambda row: row.seq))
            return [self.rows[at] for _, at in zip(range(limit), bits.newest_first(found), strict=False)]

    def all_of(self, found: int) -> list[Placed]:
        """Every record in the set, the oldest first."""
        with self._lock:
            return list(compress(self.rows, bits.selectors(found)))

    def values(self, found: int, name: str, limit: int = 8) -> list[tuple[str, int]]:
        """The most frequent values of `name` in the set, and how many have each; none where they are too many."""
        with self._lock:
            if name == "disposition":
                every = {value: bits.of_positions(at, len(self.rows)) for value, at in self._disposed().items()}
                counted = [(value, (having & found).bit_count()) for value, having in every.items()]
            else:
                values = self._values.get(name, {})
                if len(values) > _MANY:
                    return []
                counted = [(value, (self._set(name, value) & found).bit_count()) for value in values]
        return sorted((one for one in counted if one[1]), key=lambda one: (-one[1], one[0]))[:limit]

    def having(self, name: str, value: str) -> int:
        """The records that have this value of `name`, as a set."""
        with self._lock:
            return self._having(name, Value(value))

    def having_some(self, name: str) -> int:
        """The records that have any value of `name`, as a set."""
        with self._lock:
            return self._having(name, Value("", begins=True))

    def between(self, since: int | None, until: int | None) -> int:
        """The records from `since` on and before `until`, in microseconds since the epoch, as a set."""
        with self._lock:
            return self._between(since, until)

    def seconds_to_review(self, found: int) -> list[float]:
        """How long after each decision in the set somebody first gave it a disposition, for those that have one."""
        with self._lock:
            chosen = bits.selectors(found)
            known = ((at, first) for at, first in self._disposed_at.items() if at < len(chosen) and chosen[at])
            return [max(0, first - self._at[at]) / SECOND for at, first in known]

    def span(self, found: int) -> tuple[int, int] | None:
        """The times of the first and the last record in the set; None where it is empty."""
        with self._lock:
            times = list(compress(self._at, bits.selectors(found)))
        return (min(times), max(times)) if times else None

    def sessions(self, found: int) -> list[Session]:
        """The sessions of the records in the set: those that need eyes first, then the newest."""
        with self._lock:
            numbers = set(compress(self._session_of, bits.selectors(found)))
            chosen = [self._session_list[number] for number in numbers]
        return sorted(chosen, key=lambda one: (not one.open, -one.last_at, one.subject, one.id or ""))

    def session(self, subject: str, session: str | None) -> tuple[Session, list[Placed]] | None:
        """A session and its decisions, the oldest first; None where there is none."""
        with self._lock:
            found = self._sessions.get((subject, session))
            return None if found is None else (found, [self.rows[at] for at in found.positions])

    def row(self, id: str) -> Placed | None:
        """The record with that id."""
        with self._lock:
            at = self._by_id.get(id)
            return None if at is None else self.rows[at]

    def state(self, id: str) -> dict[str, str]:
        """Where the review of a decision stands: `disposition`, `signed`, `assignee`; empty where there is none."""
        with self._lock:
            at = self._by_id.get(id, -1)
            of = {"disposition": self._dispositions, "signed": self._signed_by, "assignee": self._assignees}
            return {name: known.get(at, "") for name, known in of.items()}

    def about(self, id: str) -> list[Word]:
        """What was said of a decision, the oldest first."""
        with self._lock:
            return list(self._about.get(id, ()))

    def about_session(self, subject: str, session: str | None) -> list[Word]:
        """What was said of a session as a whole, the oldest first."""
        with self._lock:
            return list(self._about_session.get((subject, session), ()))

    def after(self, signature: Word) -> tuple[Word | None, Word | None]:
        """What took a signature back, and the second one under it; None where nobody did."""
        with self._lock:
            later = list(self._after.get(signature.id, ()))
        back = next((word for word in later if word.said["action"] == "reopen"), None)
        under = later if back is None else later[: later.index(back)]
        return back, next((word for word in under if seconds(word, signature)), None)

    def words_of(self, *kinds: str) -> list[Word]:
        """What was put on record of these kinds, the newest first."""
        with self._lock:
            return [word for word in reversed(self.words.values()) if word.kind in kinds]

    def places(self) -> dict[str, array[int]]:
        """Of every log the places of its decisions, in order."""
        with self._lock:
            return dict(self._places)

    def decisions_in(self, stretches: Mapping[str, Sequence[Sequence[int]]]) -> list[Placed]:
        """The decisions at these places: log → first and last place of each stretch."""
        with self._lock:
            return [self.rows[at] for at in self._in_places(stretches)]

    @property
    def newest(self) -> int:
        """The number of the newest record that was taken in."""
        with self._lock:
            return self.rows[-1].seq if self.rows else 0

    def needing(self) -> int:
        """How many decisions need eyes."""
        with self._lock:
            return self._having("needs", Value("review")).bit_count()

    # Taking in

    def _take_in(self, part: Part) -> None:
        first = len(self.rows)
        position = {row.seq: first + number for number, row in enumerate(part.rows)}
        for row in part.rows:
            self._take_row(row)
        for seq, name, value in part.facts:
            self._take_fact(position[seq], name, value)
        for row in part.rows:
            if row.kind == "decision":
                self._count(position[row.seq])
            elif row.kind in KINDS and (word := word_of(row, part.bodies.get(row.seq))) is not None:
                self._hear(word)

    def _take_row(self, row: Placed) -> None:
        at = len(self.rows)
        self._in_order = self._in_order and (not at or row.at >= self._at[-1])
        self.rows.append(row)
        self._at.append(row.at)
        self._flags.append(0)
        self._by_id[row.id] = at
        for name in ("kind", "verdict", "action", "subject", "session", "revision"):
            if (value := getattr(row, name)) is not None:
                self._note(name, value, at)
        if row.kind != "decision":
            self._session_of.append(0)  # never asked for: only decisions are looked up here
            return
        key = (row.subject, row.session)
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = Session(len(self._session_list), row.subject, row.session)
            self._session_list.append(session)
        self._session_of.append(session.number)
        session.positions.append(at)
        session.verdicts[row.verdict] = session.verdicts.get(row.verdict, 0) + 1
        session.last_at = max(session.last_at, row.at)
        if row.verdict != "allow":
            self._flags[at] |= _EYES
        if row.log is not None and row.place is not None:
            self._places.setdefault(row.log, array("q")).append(row.place)
            self._placed.setdefault(row.log, array("I")).append(at)

    def _take_fact(self, at: int, name: str, value: str) -> None:
        self._note(name, value, at)
        if name == "covered" and value == "no":
            self._flags[at] |= _EYES | _UNCOVERED
        elif name == "effect" and value in EDITS:
            self._flags[at] |= _EYES
            self._edited.add(at)
        elif name == "severity" and value in SEVERITIES:
            session = self._session_list[self._session_of[at]]
            session.severity = max(session.severity, SEVERITIES.index(value))

    def _count(self, at: int) -> None:
        """Add a decision, whose facts are known by now, to its session."""
        session = self._session_list[self._session_of[at]]
        flags = self._flags[at]
        session.edited += at in self._edited
        session.uncovered += bool(flags & _UNCOVERED)
        session.eyes += bool(flags & _EYES)
        session.open += bool(flags & _EYES)
        self._edited.discard(at)

    def _note(self, name: str, value: str, at: int) -> None:
        self._values.setdefault(name, {}).setdefault(value, array("I")).append(at)

    # What people said

    def _hear(self, word: Word) -> None:
        self.words[word.id] = word
        if word.kind in ("filter", "export"):  # about no one decision
            return
        if word.kind == "signoff":
            self._hear_signature(word)
        elif word.kind == "sample":
            for drawn in word.said["ids"]:
                if (at := self._by_id.get(drawn)) is not None:
                    self._note("sample", word.id, at)
        elif word.said.get("decisions"):
            for decision in word.said["decisions"]:
                self._about.setdefault(decision, []).append(word)
                if (at := self._by_id.get(decision)) is not None:
                    self._judge(at, word, only_open=True)
        elif (decision := word.said.get("decision")) is not None:
            self._about.setdefault(decision, []).append(word)
            if (at := self._by_id.get(decision)) is not None and word.kind == "review":
                self._judge(at, word)
        elif (key := word.subject_session) is not None:
            self._about_session.setdefault(key, []).append(word)
            session = self._sessions.get(key)
            for at in () if session is None or word.kind != "review" else session.positions:
                self._judge(at, word, only_open=True)
            if session is not None and "assignee" in word.said:
                session.assignee = word.said["assignee"]

    def _judge(self, at: int, word: Word, *, only_open: bool = False) -> None:
        if "assignee" in word.said:
            self._assignees[at] = word.said["assignee"]
        disposition = word.said.get("disposition")
        if disposition is None or (only_open and not (self._flags[at] & _EYES and not self._flags[at] & _DONE)):
            return
        self._dispositions[at] = disposition
        self._disposed_at.setdefault(at, word.at)
        self._mark(at, _DISPOSED, disposition != "")

    def _hear_signature(self, word: Word) -> None:
        if (key := word.subject_session) is not None:
            self._about_session.setdefault(key, []).append(word)
        of = word if word.said["action"] == "sign" else self.words.get(word.said["of"])
        if of is None or of.said.get("action") != "sign":
            return
        if word is not of:
            self._after.setdefault(of.id, []).append(word)
        back, second = self.after(of)
        if word is back or (word is second if needs_second(of) else word is of):
            for at in self._in_places(of.said["set"]):
                self._sign(at, of, on=word is not back)

    def _in_places(self, stretches: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[int]:
        for log, each in stretches.items():
            places, positions = self._places.get(log, ()), self._placed.get(log, ())
            for first, last in each:
                yield from positions[bisect.bisect_left(places, first) : bisect.bisect_right(places, last)]

    def _sign(self, at: int, of: Word, *, on: bool) -> None:
        if on:
            self._signed_by[at] = of.id
            self._mark(at, _SIGNED, on=True)
        elif self._signed_by.get(at) == of.id:  # somebody signed it again since: that stands
            del self._signed_by[at]
            self._mark(at, _SIGNED, on=False)

    def _mark(self, at: int, flag: int, on: bool) -> None:
        before = self._flags[at]
        after = before | flag if on else before & ~flag
        self._flags[at] = after
        session = self._session_list[self._session_of[at]]
        session.open += _is_open(after) - _is_open(before)
        session.disposed += bool(after & _DISPOSED) - bool(before & _DISPOSED)
        session.signed += bool(after & _SIGNED) - bool(before & _SIGNED)

    # Finding

    def _having(self, name: str, value: Value) -> int:
        if name in REVIEWS and name != "sample":
            return self._in_state(name, value)
        if name == "subject":
            value = stored_value(value)
        if name == "id":
            wanted = (at for known, at in self._by_id.items() if value.fits(known))
            return bits.of_positions(wanted, len(self.rows))
        found = 0
        for known in self._values.get(name, {}) if value.begins else (value.text,):
            if value.fits(known):
                found |= self._set(name, known)
        return found

    def _in_state(self, name: str, value: Value) -> int:
        every = self._set("kind", "decision")
        if name == "needs":
            needing = bits.of_flags(self._flags, _EYES) & ~bits.of_flags(self._flags, _DONE)
            return needing if value == Value("review") else 0
        if name in ("reviewed", "signed"):
            done = bits.of_flags(self._flags, _DONE if name == "reviewed" else _SIGNED)
            return done if value == Value("yes") else every & ~done if value == Value("no") else 0
        states = self._dispositions if name == "disposition" else self._assignees
        return bits.of_positions((at for at, one in states.items() if one and value.fits(one)), len(self.rows))

    def _disposed(self) -> dict[str, list[int]]:
        by_value: dict[str, list[int]] = {}
        for at, value in self._dispositions.items():
            if value:
                by_value.setdefault(value, []).append(at)
        return by_value

    def _set(self, name: str, value: str) -> int:
        """The records with a value, as a set: made once, and added to as records come."""
        positions = self._values.get(name, {}).get(value)
        if positions is None:
            return 0
        made, upto = self._made.get((name, value), (0, 0))
        if upto < len(positions):
            made |= bits.of_positions(positions[upto:], len(self.rows))
            self._made[name, value] = (made, len(positions))
        return made

    def _between(self, since: int | None, until: int | None) -> int:
        if self._in_order:
            end = len(self._at) if until is None else bisect.bisect_left(self._at, until)
            start = 0 if since is None else bisect.bisect_left(self._at, since)
            return bits.below(end) & ~bits.below(start)
        if len(self._by_time) < len(self._at):  # clocks of several writers, or one that was set back
            self._by_time = sorted(range(len(self._at)), key=self._at.__getitem__)
        at = self._at.__getitem__
        start = 0 if since is None else bisect.bisect_left(self._by_time, since, key=at)
        end = len(self._at) if until is None else bisect.bisect_left(self._by_time, until, key=at)
        return bits.of_positions(self._by_time[start:end], len(self._at))


def _is_open(flags: int) -> bool:
    return bool(flags & _EYES) and not flags & _DONE


__all__ = ["EDITS", "SEVERITIES", "Catalog", "Session"]
