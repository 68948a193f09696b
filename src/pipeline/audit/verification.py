"""Verifying a log against its heads, and its heads against the exported ones. Spec: docs/spec/audit.md.

A problem does not end the verification: it continues from the signed hashes, so that every bad record is reported, in
order.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, pairwise
from operator import itemgetter, lt
from typing import Any, Final, NamedTuple

from cmf.json.codec import loads
from pipeline.audit.bundle import Manifest
from pipeline.audit.evidence import (
    MALFORMED,
    READ,
    Erasures,
    Evidence,
    Leaf,
    LogRow,
    Problem,
    StoredHead,
    leaves_of,
    malformed,
    texts,
)
from pipeline.audit.heads import Head, PublicKey, Tree, batch_digest


class Noted(NamedTuple):
    """The head of another log, as an opening notes it."""

    log: str
    root: str
    size: int


class Opening(NamedTuple):
    """The opening of a log: the number of its record, and `seen`, the heads that it notes.

    `named` has the log's id, key, public key and time, as in its `LogRow`.
    """

    seq: int
    log: str
    named: tuple[Any, ...]
    seen: tuple[Noted, ...]

    @classmethod
    def of(cls, log: str, leaf: Leaf, body: bytes) -> Opening:
        """What the record says; one of `MALFORMED` if it has another form."""
        details = loads(body)
        named = tuple(details[name] for name in ("log", "key", "public_key", "at"))
        heads = [(texts([head["log"], head["root"]]), int(head["size"])) for head in details["seen"]]
        seen = tuple(Noted(noted, root, size) for (noted, root), size in heads)
        return cls(leaf.seq, log, named, seen)


class Numbers(NamedTuple):
    """The numbers of a log's records, by place; and how many of them were committed with its opening."""

    every: Sequence[int]
    opening: int


def inserted(openings: Sequence[Opening]) -> Iterator[Problem]:
    """The logs whose opening does not note the log opened before: one of the two is from another store.

    `openings` are in the order of their numbers.
    """
    for before, opening in pairwise(openings):
        if all(head.log != before.log for head in opening.seen):
            problem = (
                f"its opening does not note {before.log}, which comes before it: one of them is from another store"
            )
            yield Problem("log.inserted", opening.log, 0, opening.log, problem)


def misnumbered(openings: Sequence[Opening], numbers: Mapping[str, Numbers]) -> Iterator[Problem]:
    """The records whose numbers do not fit the openings, which are in the order of theirs.

    What an opening notes has smaller numbers; whatever is later, greater ones than all that its commit wrote.
    """
    noted: dict[str, int] = {}  # log → its size at the last opening that noted it
    end = 0  # the last number of the commit of the opening before
    for opening in openings:
        for log, _, size in opening.seen:
            if log in numbers:
                yield from _outside(log, numbers[log], noted.get(log, 0), size, after=end, before=opening.seq)
                noted[log] = size
        every, committed = numbers[opening.log]
        end = max(every[:committed], default=end)
    for log, size in noted.items():
        yield from _outside(log, numbers[log], size, None, after=end, before=None)


def _outside(
    log: str, numbers: Numbers, first: int, size: int | None, *, after: int, before: int | None
) -> Iterator[Problem]:
    """The first or last of the places from `first` to `size` whose number is not between `after` and `before`."""
    found = numbers.every[first:size]
    if first and found and found[0] <= after:
        problem = "its number is not greater than that of a log's opening, after which it was written"
        yield Problem("record.moved", log, first, None, problem)
    if before is not None and found and found[-1] >= before:
        problem = "its number is not less than that of a log's opening, before which it was written"
        yield Problem("record.moved", log, first + len(found) - 1, None, problem)


_HASH: Final = 32


@dataclass(frozen=True, slots=True)
class LogState:
    """How far one log is verified: its number of leaves (`records`) and of valid heads.

    `exported` is the size covered by an exported head; records beyond it could be cut off unnoticed.
    """

    log: str
    records: int
    heads: int
    exported: int

    @property
    def unprotected(self) -> int:
        """The number of records at its end that no exported head covers."""
        return self.records - self.exported


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a verification. `anchored`: exported heads were given; `trusted`: so were public keys.

    `manifest` is a bundle's manifest; a store has none. `unchecked`: what no record vouches for.
    """

    logs: tuple[LogState, ...]
    problems: tuple[Problem, ...]
    anchored: bool
    trusted: bool
    manifest: Manifest | None = None
    unchecked: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    @property
    def records(self) -> int:
        """The number of records in all logs."""
        return sum(log.records for log in self.logs)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON objects."""
        return {
            "holds": self.holds,
            "records": self.records,
            "anchored": self.anchored,
            "key_given": self.trusted,
            "logs": [
                {"log": one.log, "records": one.records, "heads": one.heads, "unprotected": one.unprotected}
                for one in self.logs
            ],
            "problems": [problem.to_json() for problem in self.problems],
            "unchecked": list(self.unchecked),
        } | ({} if self.manifest is None else {"manifest": self.manifest.to_json()})


def verify(evidence: Evidence, *, exported: Iterable[Head] = (), keys: Sequence[PublicKey] | None = None) -> Report:
    """Everything that is wrong with the logs in `evidence`, in the order of each log.

    Without exported heads, missing newest records cannot be detected. Without trusted keys, those that the logs name
    are trusted, which proves nothing against somebody who rewrote everything under a key of their own.
    """
    check = _Check(evidence, list(exported), keys)
    return check.report()


def by_id(keys: Sequence[PublicKey] | None) -> Mapping[str, PublicKey] | None:
    """The trusted keys by id; None if none were given."""
    return None if keys is None else {key.id: key for key in keys}


def key_of(row: LogRow, trusted: Mapping[str, PublicKey] | None) -> PublicKey | None:
    """The key of a log: one of the trusted ones or, if `trusted` is None, the one that the log names."""
    if trusted is not None:
        return trusted.get(row.key)
    try:
        return PublicKey.of(row.public_key)
    except (ValueError, AttributeError):  # a database or bundle may hold anything, such as a number
        return None


@dataclass(slots=True)
class _LogCheck:
    """The state of one log during verification."""

    row: LogRow
    anchors: dict[int, str] = field(default_factory=dict)  # size → root, as exported
    roots: dict[int, str] = field(default_factory=dict)  # size → computed root, at each commit
    records: int = 0
    heads: int = 0
    is_trusted: bool = True  # whether its key counts: otherwise nothing in it is read
    claimed: int = 0  # how many records its heads cover, including invalid heads
    seq: int = 0  # the database number of the last record read
    numbers: array[int] = field(default_factory=partial(array, "q"))  # that of each place; of a missing record, `seq`


class _Check:
    def __init__(self, evidence: Evidence, exported: list[Head], keys: Sequence[PublicKey] | None) -> None:
        self._evidence = evidence
        self._exported = exported
        self._keys = by_id(keys)
        self._problems: list[Problem] = []
        self._erasures = Erasures(evidence)
        self._openings: list[Opening] = []

    def report(self) -> Report:
        logs = {
            row.id: _LogCheck(row)
            for row in sorted(self._evidence.logs(), key=lambda row: (str(row.opened_at), str(row.id)))
        }
        self._take_anchors(logs)
        for known in logs.values():
            self._check_log(known)
        self._check_anchors(logs)
        self._check_notes(logs)
        self._check_openings(logs)
        for leaf in self._evidence.strays():
            self._found("record.stray", "", None, leaf.id, "it is in no log")
            if leaf.content is not None:
                self._found("content.stray", "", None, leaf.id, "content is stored for this record, which is in no log")
        self._problems += self._erasures.problems()
        for record in self._evidence.orphans():
            self._found("content.stray", "", None, record, "content is stored for this record, which does not exist")
        states = tuple(
            LogState(name, known.records, known.heads, max((s for s in known.anchors if s in known.roots), default=0))
            for name, known in logs.items()
        )
        return Report(states, tuple(self._problems), bool(self._exported), self._keys is not None)

    def _found(self, code: str, log: str, place: int | None, record: str | None, problem: str) -> None:
        self._problems.append(Problem(code, log, place, record, problem))

    # -- keys and heads ------------------------------------------------------------------------------------------------

    def _take_anchors(self, logs: Mapping[str, _LogCheck]) -> None:
        for head in self._exported:
            known = logs.get(head.log)
            if known is None:
                self._found(
                    "log.missing", head.log, 0, None, f"the log is missing; it had at least {head.size} records"
                )
                continue
            key = key_of(known.row, self._keys)
            if key is None or not key.signed(head):
                problem = f"an exported head of {head.size} records is not signed by a trusted key"
                self._found("head.signature", head.log, head.size, None, problem)
            elif known.anchors.setdefault(head.size, head.root) != head.root:
                problem = f"two exported heads of {head.size} records differ: there were two logs with the same id"
                self._found("head.fork", head.log, head.size, None, problem)

    def _signed_heads(self, known: _LogCheck) -> Iterator[StoredHead]:
        """The valid heads; the others are problems. The next valid head also covers the records of an invalid one."""
        key, size = key_of(known.row, self._keys), 0
        name = known.row.id
        if key is None:
            known.is_trusted = False
            problem = f"its key, {known.row.key}, is not one of the given ones" if self._keys else _MALFORMED_KEY
            self._found("head.key", name, None, None, problem)
        for stored in self._evidence.heads(name):
            head = stored.head
            if key is None or head.log != name or not key.signed(head):
                if key is not None:
                    problem = f"the signature of the head of {head.size} records is not valid"
                    self._found("head.signature", name, head.first, None, problem)
                known.claimed = max(known.claimed, head.size if type(head.size) is int else 0)
                continue
            if head.first != max(size, known.claimed):
                self._found("head.missing", name, size, None, f"no head covers the records from place {size}")
            known.heads += 1
            size = known.claimed = head.size
            yield stored

    # -- records -------------------------------------------------------------------------------------------------------

    def _check_log(self, known: _LogCheck) -> None:
        name, tree = known.row.id, Tree()
        leaves = _Places(self._evidence.leaves(name))
        for stored in self._signed_heads(known):
            head, is_signed = stored.head, self._has_signed_leaves(name, stored)
            run = leaves.run(head.first, head.size) if is_signed and head.first == tree.size else None
            if run is not None and _are_signed(run, stored.leaves, after=known.seq):
                leaves.skip(len(run))
                self._take(known, tree, run, stored.leaves)
            else:
                self._check_each(known, tree, leaves, stored if is_signed else None, head.size)
            root = tree.root().hex()
            known.roots[tree.size] = root
            if root != head.root and is_signed:
                problem = "the root of the records up to here does not match the signed one"
                self._found("head.root", name, head.first, None, problem)
        for leaf in leaves.rest():
            if leaf.place >= known.claimed:
                problem = "no head covers it"
                self._found("record.inserted", name, leaf.place, leaf.id, problem)
        known.records = tree.size

    def _take(self, known: _LogCheck, tree: Tree, run: Sequence[Leaf], signed: bytes) -> None:
        """Accept a run of records that match the signed hashes exactly."""
        tree.extend(_each(signed))
        known.numbers.extend([leaf.seq for leaf in run])
        for leaf in run:
            known.seq = leaf.seq
            if not leaf.is_bare:
                self._problems += self._erasures.see(known.row.id, leaf)
            if leaf.body is not None and leaf.kind in _READ:
                self._read(known, leaf, leaf.body)

    def _check_each(
        self, known: _LogCheck, tree: Tree, leaves: _Places, vouching: StoredHead | None, size: int
    ) -> None:
        """Check the record at each place up to `size`; `vouching` has the signed hashes."""
        name = known.row.id
        first, signed = (0, []) if vouching is None else (vouching.head.first, _each(vouching.leaves))
        for place in range(tree.size, size):
            leaf = leaves.at(place)
            for extra in leaves.extra():
                self._found("record.inserted", name, extra.place, extra.id, "a second record at this place")
            # Places covered only by an invalid head have no signed hash.
            expected = signed[place - first] if signed and place >= first else None
            tree.append(self._check_leaf(known, place, leaf, expected))
            if leaf is not None:
                if leaf.seq <= known.seq:
                    self._found("record.moved", name, place, leaf.id, "its number is not greater than the previous one")
                known.seq = leaf.seq
            known.numbers.append(known.seq)

    def _has_signed_leaves(self, log: str, stored: StoredHead) -> bool:
        """Whether the leaf hashes stored with the head match its signed batch, so that each of them is signed."""
        head = stored.head
        leaves, count = stored.leaves, head.size - head.first
        # SQLite does not enforce types: the column may hold anything.
        if type(leaves) is not bytes or len(leaves) != _HASH * count or batch_digest(leaves) != head.batch:
            problem = f"the leaf hashes stored with the head of {head.size} records do not match its signature"
            self._found("head.leaves", log, head.first, None, problem)
            return False
        return True

    def _check_leaf(self, known: _LogCheck, place: int, leaf: Leaf | None, expected: bytes | None) -> bytes:
        """The hash to continue with: the signed one, if there is one."""
        name = known.row.id
        if leaf is None:
            self._found("record.missing", name, place, None, "no record at this place")
            return expected or bytes(_HASH)
        found = leaf.hash
        if (expected is not None and found != expected) or not leaf.whole:
            self._found("record.changed", name, place, leaf.id, "it does not match the hash signed for this place")
        else:
            self._problems += self._erasures.see(name, leaf)
            # Unsigned records are not trusted.
            if leaf.body is not None and expected is not None and leaf.kind in _READ:
                self._read(known, leaf, leaf.body)
        return expected or found

    def _read(self, known: _LogCheck, leaf: Leaf, body: bytes) -> None:
        """Collect what a verified record contains about logs and erasures."""
        row = known.row
        if leaf.kind in READ:
            self._problems += self._erasures.read(row.id, leaf, body)
            return
        try:
            opening = Opening.of(row.id, leaf, body)
        except MALFORMED:
            self._problems.append(malformed(row.id, leaf))
            return
        if leaf.place or opening.named != (row.id, row.key, row.public_key, row.opened_at):
            self._found("log.changed", row.id, leaf.place, leaf.id, "the log does not match its opening")
        self._openings.append(opening)

    # -- anchors and notes ---------------------------------------------------------------------------------------------

    def _check_anchors(self, logs: Mapping[str, _LogCheck]) -> None:
        for name, known in logs.items():
            held = 0
            for size in sorted(known.anchors):
                if not self._holds(name, known, size, known.anchors[size], held, "an exported head"):
                    break
                held = size

    def _check_notes(self, logs: Mapping[str, _LogCheck]) -> None:
        noted: dict[str, int] = {}
        for by, head in ((opening.log, head) for opening in self._openings for head in opening.seen):
            known = logs.get(head.log)
            if known is None:
                self._found("log.missing", head.log, 0, None, f"the log is missing; the opening of {by} notes it")
            elif known.is_trusted:
                self._holds(head.log, known, head.size, head.root, 0, f"the opening of {by}")
                noted[head.log] = max(noted.get(head.log, 0), head.size)
        if not all(known.is_trusted for known in logs.values()):
            return  # what the opening of an untrusted log notes is unknown
        for name, known in logs.items():
            if known.row.seen != noted.get(name, 0):
                self._found("log.changed", name, None, None, "later logs noted a different size")

    def _check_openings(self, logs: Mapping[str, _LogCheck]) -> None:
        """Check the order of the logs, and that of their records to each other."""
        openings = sorted(self._openings, key=itemgetter(0, 1))
        if len(openings) != len(logs):
            return  # an opening that cannot be trusted is a problem already, and which one comes next is unknown
        self._problems += inserted(openings)
        numbers = {name: Numbers(known.numbers, next(iter(known.roots), 0)) for name, known in logs.items()}
        self._problems += misnumbered(openings, numbers)

    def _holds(self, log: str, known: _LogCheck, size: int, root: str, held: int, source: str) -> bool:
        if size > known.records:
            problem = f"{source} has {size} records: the log was truncated, or an older copy restored"
            self._found("log.cut", log, known.records, None, problem)
            return False
        if known.roots.get(size) != root:
            problem = (
                f"{source} of {size} records has another root: the log was rewritten, from place {held} at the earliest"
            )
            self._found("log.rewritten", log, held, None, problem)
            return False
        return True


_READ: Final = READ | {"log"}
_MALFORMED_KEY: Final = "its public key is malformed"


def _each(hashes: bytes) -> list[bytes]:
    return [hashes[at : at + _HASH] for at in range(0, len(hashes), _HASH)]


def _are_signed(run: Sequence[Leaf], signed: bytes, *, after: int) -> bool:
    """Whether the records have exactly these leaf hashes, and increasing numbers."""
    numbers = [after, *(leaf.seq for leaf in run)]
    return (
        b"".join(leaves_of(leaf.fields for leaf in run)) == signed
        and all(leaf.whole for leaf in run)
        and all(map(lt, numbers, numbers[1:]))
    )


class _Places:
    """Records by place; some places may be missing or occupied twice."""

    def __init__(self, leaves: Iterable[Leaf]) -> None:
        self._leaves = iter(leaves)
        self._ahead: deque[Leaf] = deque()  # looked ahead at, not yet consumed
        self._extra: list[Leaf] = []

    def run(self, first: int, size: int) -> Sequence[Leaf] | None:
        """The next records if they have exactly the places from `first` up to `size`; does not consume them.

        See `skip`.
        """
        count = size - first
        self._look(count + 1)
        run = list(islice(self._ahead, count))
        goes_on = len(self._ahead) <= count or self._ahead[count].place >= size
        return run if goes_on and [leaf.place for leaf in run] == list(range(first, size)) else None

    def skip(self, count: int) -> None:
        """Consume that many records that were looked ahead at."""
        for _ in range(count):
            self._ahead.popleft()

    def _look(self, count: int) -> deque[Leaf]:
        """Up to `count` next records, without consuming them."""
        if len(self._ahead) < count:
            self._ahead += islice(self._leaves, count - len(self._ahead))
        return self._ahead

    def at(self, place: int) -> Leaf | None:
        """The record at `place`; to be called with increasing places."""
        found: Leaf | None = None
        while self._look(1) and self._ahead[0].place <= place:
            leaf = self._ahead.popleft()
            if leaf.place == place and found is None:
                found = leaf
            else:
                self._extra.append(leaf)
        return found

    def extra(self) -> list[Leaf]:
        """Records at an occupied or invalid place."""
        extra, self._extra = self._extra, []
        return extra

    def rest(self) -> Iterator[Leaf]:
        """Records beyond the last place asked for."""
        return chain(self._ahead, self._leaves)
