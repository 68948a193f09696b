"""An in-memory index of all records, built from the store and updated as it grows.

A page out of a hundred thousand records, with counts for each value, is found in milliseconds. The index is never
persisted: it is rebuilt from the records, the only source of truth. Spec: docs/spec/review.md [REV-3].
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import compress
from typing import Concatenate, Final, ParamSpec, TypeVar

from pipeline.audit.query import REVIEWS, Query, Value
from pipeline.decisions.timestamps import SECOND
from pipeline.review.annotations import KINDS, Annotation, annotation_of, needs_second, seconds
from pipeline.store.database import Store
from pipeline.store.records import Part, Placed, Search, is_behind, part_after, stored_value

SEVERITIES: Final = ("info", "warn", "high", "critical")
EDITS: Final = frozenset({"redact", "rewrite", "strip_tool"})
_EYES, _UNCOVERED, _DISPOSED, _SIGNED, _EDITED = 1, 2, 4, 8, 16
_DONE: Final = _DISPOSED | _SIGNED
_MEMBER: Final = bytes.maketrans(b"01", b"\x00\x01")
P = ParamSpec("P")
T = TypeVar("T")
_MANY: Final = 2_000  # names with more values than this are not shown as facets


@dataclass(slots=True)
class Session:
    """Totals over a session's decisions. `open`: how many still need review; `severity` indexes SEVERITIES."""

    number: int
    subject: str
    id: str | None
    positions: array[int] = field(default_factory=lambda: array("I"))
    verdicts: dict[str, int] = field(default_factory=dict)
    edited: int = 0
    uncovered: int = 0
    severity: int = -1
    open: int = 0
    disposed: int = 0
    signed: int = 0
    last_at: int = 0
    assignee: str = ""


def _locked(does: Callable[Concatenate[Catalog, P], T]) -> Callable[Concatenate[Catalog, P], T]:
    """The method, while no other thread is in one."""

    @wraps(does)
    def locked(self: Catalog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return does(self, *args, **kwargs)

    return locked


class Catalog:
    """The records of a store, found by query. Safe to use from any thread; calls see the last `catch_up`."""

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
        self._places: dict[str, array[int]] = {}  # log → places of its decisions
        self._placed: dict[str, array[int]] = {}  # and their positions
        self._dispositions: dict[int, str] = {}
        self._assignees: dict[int, str] = {}
        self._signed_by: dict[int, str] = {}
        self._disposed_at: dict[int, int] = {}  # time of the first disposition
        self._after: dict[str, list[Annotation]] = {}  # later annotations of a signature
        self._made: dict[tuple[str, str], tuple[int, int]] = {}  # cached bit sets, and how many records they cover
        self.annotations: dict[str, Annotation] = {}
        self._about: dict[str, list[Annotation]] = {}
        self._about_session: dict[tuple[str, str | None], list[Annotation]] = {}

    def catch_up(self) -> None:
        """Index the records added since the last call. StoreError: the database failed."""
        if is_behind(self._store.engine):
            self._search.catch_up()
        with self._lock:
            while (part := part_after(self._store.engine, self.newest, kinds=KINDS)).rows:
                self._add_part(part)

    @_locked
    def select(self, query: Query) -> int:
        """The decisions that match the query, as a set of positions."""
        matches = self._set("kind", "decision")
        for term in query.terms:
            having = 0
            for value in term.values:
                having |= self.having(term.name, value)
            matches &= ~having if term.negated else having
        if query.since is not None or query.until is not None:
            matches &= self.between(query.since, query.until)
        return matches

    @_locked
    def page(self, matches: int, *, before: int | None, limit: int) -> list[Placed]:
        """The newest `limit` records in the set with a number below `before`."""
        if before is not None:
            matches &= _below(bisect.bisect_left(self.rows, before, key=lambda row: row.seq))
        return [self.rows[at] for _, at in zip(range(limit), newest_first(matches), strict=False)]

    @_locked
    def all_of(self, matches: int) -> list[Placed]:
        """Every record in the set, oldest first."""
        return list(compress(self.rows, selectors(matches)))

    @_locked
    def values(self, matches: int, name: str, limit: int = 8) -> list[tuple[str, int]]:
        """The most frequent values of `name` in the set with their counts; empty if there are too many values."""
        if name == "disposition":
            every = {value: self.having(name, value) for value in set(self._dispositions.values()) if value}
        else:
            values = self._values.get(name, {})
            every = {value: self._set(name, value) for value in values} if len(values) <= _MANY else {}
        counted = ((value, (having & matches).bit_count()) for value, having in every.items())
        return sorted((entry for entry in counted if entry[1]), key=lambda entry: (-entry[1], entry[0]))[:limit]

    @_locked
    def seconds_to_review(self, matches: int) -> list[float]:
        """For each decision in the set with a disposition: the seconds until it first got one."""
        chosen = selectors(matches)
        first_times = ((at, first) for at, first in self._disposed_at.items() if at < len(chosen) and chosen[at])
        return [max(0, first - self._at[at]) / SECOND for at, first in first_times]

    @_locked
    def span(self, matches: int) -> tuple[int, int] | None:
        """The times of the first and last record in the set; None if it is empty."""
        times = list(compress(self._at, selectors(matches)))
        return (min(times), max(times)) if times else None

    @_locked
    def sessions(self, matches: int) -> list[Session]:
        """The sessions of the records in the set: those that need review first, then the newest."""
        numbers = set(compress(self._session_of, selectors(matches)))
        chosen = [self._session_list[number] for number in numbers]
        return sorted(chosen, key=lambda kept: (not kept.open, -kept.last_at, kept.subject, kept.id or ""))

    @_locked
    def session(self, subject: str, session: str | None) -> tuple[Session, list[Placed]] | None:
        """A session and its decisions, oldest first; None if there is none."""
        stored = self._sessions.get((subject, session))
        return None if stored is None else (stored, [self.rows[at] for at in stored.positions])

    @_locked
    def row(self, id: str) -> Placed | None:
        """The record with that id."""
        at = self._by_id.get(id)
        return None if at is None else self.rows[at]

    @_locked
    def state(self, id: str) -> dict[str, str]:
        """The review state of a decision: `disposition`, `signed`, `assignee`; empty if not set."""
        at = self._by_id.get(id, -1)
        of = {"disposition": self._dispositions, "signed": self._signed_by, "assignee": self._assignees}
        return {name: values.get(at, "") for name, values in of.items()}

    @_locked
    def about(self, id: str) -> list[Annotation]:
        """The annotations of a decision, oldest first."""
        return list(self._about.get(id, ()))

    @_locked
    def about_session(self, subject: str, session: str | None) -> list[Annotation]:
        """The annotations of a session as a whole, oldest first."""
        return list(self._about_session.get((subject, session), ()))

    @_locked
    def after(self, signature: Annotation) -> tuple[Annotation | None, Annotation | None]:
        """The annotation that withdrew a signature, and the second signature under it; None if there is none."""
        later = list(self._after.get(signature.id, ()))
        back = next((annotation for annotation in later if annotation.body["action"] == "reopen"), None)
        under = later if back is None else later[: later.index(back)]
        return back, next((annotation for annotation in under if seconds(annotation, signature)), None)

    @_locked
    def annotations_of(self, *kinds: str) -> list[Annotation]:
        """The annotations of these kinds, newest first."""
        return [annotation for annotation in reversed(self.annotations.values()) if annotation.kind in kinds]

    @_locked
    def places(self) -> dict[str, array[int]]:
        """Log → the places of its decisions, in order."""
        return dict(self._places)

    @_locked
    def decisions_in(self, stretches: Mapping[str, Sequence[Sequence[int]]]) -> list[Placed]:
        """The decisions at these places: log → first and last place of each run."""
        return [self.rows[at] for at in self._in_places(stretches)]

    @property
    @_locked
    def newest(self) -> int:
        """The number of the newest indexed record."""
        return self.rows[-1].seq if self.rows else 0

    @_locked
    def needing(self) -> int:
        """How many decisions need review."""
        return self.having("needs", "review").bit_count()

    # Indexing

    def _add_part(self, part: Part) -> None:
        first = len(self.rows)
        position = {row.seq: first + number for number, row in enumerate(part.rows)}
        for row in part.rows:
            self._add_row(row)
        for seq, name, value in part.facts:
            self._add_fact(position[seq], name, value)
        for row in part.rows:
            if row.kind == "decision":
                self._count(position[row.seq])
            elif row.kind in KINDS and (annotation := annotation_of(row, part.bodies.get(row.seq))) is not None:
                self._add_annotation(annotation)

    def _add_row(self, row: Placed) -> None:
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
            self._session_of.append(0)  # not needed: only decisions are looked up by it
            return
        key = (row.subject, row.session)
        if (session := self._sessions.get(key)) is None:
            session = self._sessions[key] = Session(len(self._session_list), *key)
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

    def _add_fact(self, at: int, name: str, value: str) -> None:
        self._note(name, value, at)
        if name == "covered" and value == "no":
            self._flags[at] |= _EYES | _UNCOVERED
        elif name == "excused":
            self._flags[at] |= _EYES
        elif name == "effect" and value in EDITS:
            self._flags[at] |= _EYES | _EDITED
        elif name == "severity" and value in SEVERITIES:
            session = self._session_list[self._session_of[at]]
            session.severity = max(session.severity, SEVERITIES.index(value))

    def _count(self, at: int) -> None:
        """Add a decision, whose facts are indexed by now, to its session."""
        session = self._session_list[self._session_of[at]]
        flags = self._flags[at]
        session.edited += bool(flags & _EDITED)
        session.uncovered += bool(flags & _UNCOVERED)
        session.open += bool(flags & _EYES)

    def _note(self, name: str, value: str, at: int) -> None:
        self._values.setdefault(name, {}).setdefault(value, array("I")).append(at)

    # Annotations

    def _add_annotation(self, annotation: Annotation) -> None:
        self.annotations[annotation.id] = annotation
        if annotation.kind in ("filter", "export"):  # not about a decision
            return
        if annotation.kind == "signoff":
            self._add_signature(annotation)
        elif annotation.kind == "sample":
            for drawn in annotation.body["ids"]:
                if (at := self._by_id.get(drawn)) is not None:
                    self._note("sample", annotation.id, at)
        elif annotation.body.get("decisions"):
            for decision in annotation.body["decisions"]:
                self._about.setdefault(decision, []).append(annotation)
                if (at := self._by_id.get(decision)) is not None:
                    self._judge(at, annotation, only_open=True)
        elif (decision := annotation.body.get("decision")) is not None:
            self._about.setdefault(decision, []).append(annotation)
            if (at := self._by_id.get(decision)) is not None and annotation.kind == "review":
                self._judge(at, annotation)
        elif (key := annotation.subject_session) is not None:
            self._about_session.setdefault(key, []).append(annotation)
            session = self._sessions.get(key)
            for at in () if session is None or annotation.kind != "review" else session.positions:
                self._judge(at, annotation, only_open=True)
            if session is not None and "assignee" in annotation.body:
                session.assignee = annotation.body["assignee"]

    def _judge(self, at: int, annotation: Annotation, *, only_open: bool = False) -> None:
        if "assignee" in annotation.body:
            self._assignees[at] = annotation.body["assignee"]
        disposition = annotation.body.get("disposition")
        if disposition is None or (only_open and not (self._flags[at] & _EYES and not self._flags[at] & _DONE)):
            return
        self._dispositions[at] = disposition
        self._disposed_at.setdefault(at, annotation.at)
        self._mark(at, _DISPOSED, disposition != "")

    def _add_signature(self, annotation: Annotation) -> None:
        if (key := annotation.subject_session) is not None:
            self._about_session.setdefault(key, []).append(annotation)
        of = annotation if annotation.body["action"] == "sign" else self.annotations.get(annotation.body["of"])
        if of is None or of.body.get("action") != "sign":
            return
        if annotation is not of:
            self._after.setdefault(of.id, []).append(annotation)
        back, second = self.after(of)
        if annotation is back or (annotation is second if needs_second(of) else annotation is of):
            for at in self._in_places(of.body["set"]):
                self._sign(at, of, on=annotation is not back)

    def _in_places(self, stretches: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[int]:
        for log, runs in stretches.items():
            places, positions = self._places.get(log, ()), self._placed.get(log, ())
            for first, last in runs:
                yield from positions[bisect.bisect_left(places, first) : bisect.bisect_right(places, last)]

    def _sign(self, at: int, of: Annotation, *, on: bool) -> None:
        if on:
            self._signed_by[at] = of.id
            self._mark(at, _SIGNED, on=True)
        elif self._signed_by.get(at) == of.id:  # signed again since: keep the newer signature
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

    # Searching

    @_locked
    def having(self, name: str, value: Value | str) -> int:
        """The set of records with this value of `name`, or with one that begins like it."""
        value = Value(value) if isinstance(value, str) else value
        if name in REVIEWS and name != "sample":
            return self._in_state(name, value)
        if name == "subject":
            value = stored_value(value)
        if name == "id":
            wanted = (at for stored, at in self._by_id.items() if value.fits(stored))
            return set_of(wanted, len(self.rows))
        positions = 0
        for stored in self._values.get(name, {}) if value.begins else (value.text,):
            if value.fits(stored):
                positions |= self._set(name, stored)
        return positions

    def _in_state(self, name: str, value: Value) -> int:
        every = self._set("kind", "decision")
        if name == "needs":
            needing = flagged(self._flags, _EYES) & ~flagged(self._flags, _DONE)
            return needing if value == Value("review") else 0
        if name in ("reviewed", "signed"):
            done = flagged(self._flags, _DONE if name == "reviewed" else _SIGNED)
            return done if value == Value("yes") else every & ~done if value == Value("no") else 0
        states = self._dispositions if name == "disposition" else self._assignees
        return set_of((at for at, state in states.items() if state and value.fits(state)), len(self.rows))

    def _set(self, name: str, value: str) -> int:
        """The set of records with a value: built once, then extended as records arrive."""
        positions = self._values.get(name, {}).get(value)
        if positions is None:
            return 0
        members, upto = self._made.get((name, value), (0, 0))
        if upto < len(positions):
            members |= set_of(positions[upto:], len(self.rows))
            self._made[name, value] = (members, len(positions))
        return members

    @_locked
    def between(self, since: int | None, until: int | None) -> int:
        """The set of records from `since` up to but not including `until`, in microseconds since the epoch."""
        size, at = len(self._at), self._at.__getitem__
        if not self._in_order and len(self._by_time) < size:  # several writers, or a clock set back
            self._by_time = sorted(range(size), key=at)
        by_time = range(size) if self._in_order else self._by_time
        start = 0 if since is None else bisect.bisect_left(by_time, since, key=at)
        end = size if until is None else bisect.bisect_left(by_time, until, key=at)
        return _below(end) & ~_below(start) if self._in_order else set_of(by_time[start:end], size)


def _is_open(flags: int) -> bool:
    return bool(flags & _EYES) and not flags & _DONE


# -- sets of record positions as integers: bit i stands for the i-th record; set operations take microseconds --------


def set_of(positions: Iterable[int], size: int) -> int:
    """The set of `positions`, each below `size`."""
    digits = bytearray(b"0") * size
    for position in positions:
        digits[size - 1 - position] = 49  # "1"
    return int(digits, 2) if size else 0


def flagged(flags: bytes | bytearray, wanted: int) -> int:
    """The set of positions whose flags include any of `wanted`."""
    table = bytes(49 if value & wanted else 48 for value in range(256))
    return int(bytes(flags).translate(table)[::-1], 2) if flags else 0


def newest_first(bits: int) -> Iterator[int]:
    """The positions in the set, highest first."""
    digits = format(bits, "b")
    at = digits.find("1")
    while at != -1:
        yield len(digits) - 1 - at
        at = digits.find("1", at + 1)


def selectors(bits: int) -> bytes:
    """A byte per position from 0 on, 1 for members of the set, as `itertools.compress` takes it."""
    return format(bits, "b")[::-1].encode().translate(_MEMBER)


def _below(size: int) -> int:
    """The set of all positions below `size`."""
    return (1 << size) - 1
