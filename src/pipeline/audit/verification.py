"""Checking a log against its heads, and its heads against those that were exported. Spec: docs/spec/audit.md.

Nothing that was found wrong ends the check: what the heads say under their signatures is gone on from, so that each bad
record is named, the first one first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import lt
from typing import Any, Final

from cmf.codec import loads
from pipeline.audit.erasures import READ, Erasures, Problem
from pipeline.audit.evidence import Evidence, Leaf, LogRow, StoredHead, leaves_of, strays_noted
from pipeline.audit.heads import Head, PublicKey, batch_digest
from pipeline.audit.manifest import Manifest
from pipeline.audit.tree import Tree

_HASH: Final = 32


@dataclass(frozen=True, slots=True)
class LogState:
    """How far one log is proved.

    Attributes:
        records: how many leaves it has. heads: how many of its heads hold.
        exported: up to which size an exported head vouches for it; what is beyond could be cut off unnoticed.
    """

    log: str
    records: int
    heads: int
    exported: int

    @property
    def unprotected(self) -> int:
        """The records at its end that no exported head vouches for."""
        return self.records - self.exported


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found. `anchored`: exported heads were given; without them only the inside is checked.

    `manifest` is what a bundle says of itself; a store has none.
    """

    logs: tuple[LogState, ...]
    problems: tuple[Problem, ...]
    anchored: bool
    trusted: bool
    manifest: Manifest | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def records(self) -> int:
        """All records in all logs."""
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
        } | ({} if self.manifest is None else {"manifest": self.manifest.to_json()})


def verify(evidence: Evidence, *, exported: Iterable[Head] = (), keys: Sequence[PublicKey] | None = None) -> Report:
    """Everything that is wrong with the logs in `evidence`, the first bad record of each log first.

    Args:
        evidence: a database or a bundle.
        exported: heads from the second place. Without them the newest records may be missing and nobody can tell.
        keys: who may have signed. None: whoever the logs themselves name, which proves nothing against somebody who
            rewrote all of it under a key of his own.
    """
    check = _Check(evidence, list(exported), keys)
    return check.report()


def by_id(keys: Sequence[PublicKey] | None) -> Mapping[str, PublicKey] | None:
    """The keys that count, by their ids; None where none were given."""
    return None if keys is None else {key.id: key for key in keys}


def key_of(row: LogRow, trusted: Mapping[str, PublicKey] | None) -> PublicKey | None:
    """The key that signs for a log: of those that count, or (None) whatever key the log itself names."""
    if trusted is not None:
        return trusted.get(row.key)
    try:
        return PublicKey.of(row.public_key)
    except ValueError:
        return None


@dataclass(slots=True)
class _Known:
    """What is known of one log before its records are read, and what was learnt from them."""

    row: LogRow
    anchors: dict[int, str] = field(default_factory=dict)  # size → root, as exported
    roots: dict[int, str] = field(default_factory=dict)  # size → root, as found: at each commit
    records: int = 0
    heads: int = 0
    claimed: int = 0  # how many records its heads cover, those that do not hold included
    seq: int = 0  # the number in the database of the record that was read last


class _Check:
    def __init__(self, evidence: Evidence, exported: list[Head], keys: Sequence[PublicKey] | None) -> None:
        self._evidence = evidence
        self._exported = exported
        self._keys = by_id(keys)
        self._problems: list[Problem] = []
        self._erasures = Erasures(evidence)
        self._noted: list[tuple[str, Mapping[str, Any]]] = []
        self._before: list[Mapping[str, Any]] = []

    def report(self) -> Report:
        logs = {
            row.id: _Known(row)
            for row in sorted(self._evidence.logs(), key=lambda row: (str(row.opened_at), str(row.id)))
        }
        self._take_anchors(logs)
        for known in logs.values():
            self._check_log(known)
        self._check_anchors(logs)
        self._check_notes(logs)
        self._check_strays()
        self._problems += self._erasures.problems()
        for record in self._evidence.orphans():
            self._found("content.stray", "", None, record, "content is kept to this record, and there is none")
        states = tuple(
            LogState(name, known.records, known.heads, max((s for s in known.anchors if s in known.roots), default=0))
            for name, known in logs.items()
        )
        return Report(states, tuple(self._problems), bool(self._exported), self._keys is not None)

    def _found(self, code: str, log: str, place: int | None, record: str | None, said: str) -> None:
        self._problems.append(Problem(code, log, place, record, said))

    # -- keys and heads ------------------------------------------------------------------------------------------------

    def _take_anchors(self, logs: Mapping[str, _Known]) -> None:
        for head in self._exported:
            known = logs.get(head.log)
            if known is None:
                self._found("log.missing", head.log, 0, None, f"the log is gone; it had {head.size} records or more")
                continue
            key = key_of(known.row, self._keys)
            if key is None or not key.signed(head):
                said = f"an exported head of {head.size} records is not signed by a key that counts"
                self._found("head.signature", head.log, head.size, None, said)
            elif known.anchors.setdefault(head.size, head.root) != head.root:
                said = f"two exported heads of {head.size} records differ: there were two logs of one name"
                self._found("head.fork", head.log, head.size, None, said)

    def _signed_heads(self, known: _Known) -> Iterator[StoredHead]:
        """The heads that hold; the others are problems. The next that holds vouches for what one of them covered."""
        key, size = key_of(known.row, self._keys), 0
        name = known.row.id
        if key is None:
            said = "it is signed by no key that counts" if self._keys is not None else "its public key is none"
            self._found("head.key", name, None, None, said)
        for stored in self._evidence.heads(name):
            head = stored.head
            if key is None or head.log != name or not key.signed(head):
                if key is not None:
                    said = f"the head of {head.size} records is not signed as it stands"
                    self._found("head.signature", name, head.first, None, said)
                known.claimed = max(known.claimed, head.size if type(head.size) is int else 0)
                continue
            if head.first != max(size, known.claimed):
                self._found("head.missing", name, size, None, f"no head covers the records from place {size}")
            known.heads += 1
            size = known.claimed = head.size
            yield stored

    # -- records -------------------------------------------------------------------------------------------------------

    def _check_log(self, known: _Known) -> None:
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
                said = "the records up to here are signed, and their root is not this one"
                self._found("head.root", name, head.first, None, said)
        for leaf in leaves.rest():
            if leaf.place >= known.claimed:
                said = "no head covers it: it was not written with one"
                self._found("record.inserted", name, leaf.place, leaf.id, said)
        known.records = tree.size

    def _take(self, known: _Known, tree: Tree, run: Sequence[Leaf], signed: bytes) -> None:
        """Go on from records that are all as they were signed, to which nothing was added."""
        tree.extend(_each(signed))
        for leaf in run:
            known.seq = leaf.seq
            if not leaf.is_bare:
                self._problems += self._erasures.see(known.row.id, leaf)
            if leaf.body is not None and leaf.kind in _READ:
                self._read(known, leaf, leaf.body)

    def _check_each(self, known: _Known, tree: Tree, leaves: _Places, vouching: StoredHead | None, size: int) -> None:
        """Ask of the record at each place up to `size` what is wrong with it; `vouching` has hashes to go by."""
        name = known.row.id
        first, signed = (0, []) if vouching is None else (vouching.head.first, _each(vouching.leaves))
        for place in range(tree.size, size):
            leaf = leaves.at(place)
            for extra in leaves.extra():
                self._found("record.inserted", name, extra.place, extra.id, "a second record for this place")
            # Where a head before this one does not hold, nothing is signed of what that one covered.
            expected = signed[place - first] if signed and place >= first else None
            tree.append(self._check_leaf(known, place, leaf, expected))
            if leaf is not None:
                if leaf.seq <= known.seq:
                    self._found("record.moved", name, place, leaf.id, "its number is not after the one before")
                known.seq = leaf.seq

    def _has_signed_leaves(self, log: str, stored: StoredHead) -> bool:
        """Whether the leaf hashes kept with the head are those it was signed with, so that it vouches for each."""
        head = stored.head
        leaves, count = stored.leaves, head.size - head.first
        # A database without types of its own may hold anything here.
        if type(leaves) is not bytes or len(leaves) != _HASH * count or batch_digest(leaves) != head.batch:
            said = f"the leaf hashes kept with the head of {head.size} records are not those that were signed"
            self._found("head.leaves", log, head.first, None, said)
            return False
        return True

    def _check_leaf(self, known: _Known, place: int, leaf: Leaf | None, expected: bytes | None) -> bytes:
        """The hash to go on with: the signed one, where there is one."""
        name = known.row.id
        if leaf is None:
            self._found("record.missing", name, place, None, "there is no record at this place")
            return expected or bytes(_HASH)
        found = leaf.hash
        if (expected is not None and found != expected) or not leaf.whole:
            self._found("record.changed", name, place, leaf.id, "it is not what was signed at this place")
        else:
            self._problems += self._erasures.see(name, leaf)
            # What is not vouched for is not believed either.
            if leaf.body is not None and expected is not None and leaf.kind in _READ:
                self._read(known, leaf, leaf.body)
        return expected or found

    def _read(self, known: _Known, leaf: Leaf, body: bytes) -> None:
        """Take note of what the log itself says of logs, and of what was erased."""
        if leaf.kind in READ:
            self._erasures.read(leaf, body)
            return
        said = loads(body)
        row = known.row
        if leaf.place or [said[name] for name in ("log", "key", "public_key", "at")] != [
            row.id, row.key, row.public_key, row.opened_at
        ]:  # fmt: skip
            self._found("log.changed", row.id, leaf.place, leaf.id, "the log is not as its opening describes it")
        self._noted += [(row.id, head) for head in said["seen"]]
        self._before.append(said["before"])

    # -- what others say of a log --------------------------------------------------------------------------------------

    def _check_anchors(self, logs: Mapping[str, _Known]) -> None:
        for name, known in logs.items():
            held = 0
            for size in sorted(known.anchors):
                if not self._holds(name, known, size, known.anchors[size], held, "an exported head"):
                    break
                held = size

    def _check_notes(self, logs: Mapping[str, _Known]) -> None:
        noted: dict[str, int] = {}
        for by, head in self._noted:
            known = logs.get(head["log"])
            if known is None:
                self._found("log.missing", head["log"], 0, None, f"the log is gone; the opening of {by} notes it")
            else:
                self._holds(head["log"], known, head["size"], head["root"], 0, f"the opening of {by}")
                noted[head["log"]] = max(noted.get(head["log"], 0), head["size"])
        for name, known in logs.items():
            if known.row.seen != noted.get(name, 0):
                self._found("log.changed", name, None, None, "later logs noted it at another size than it says")

    def _holds(self, log: str, known: _Known, size: int, root: str, held: int, source: str) -> bool:
        if size > known.records:
            said = f"{source} has {size} records: the end was cut off, or an older copy put back"
            self._found("log.cut", log, known.records, None, said)
            return False
        if known.roots.get(size) != root:
            said = (
                f"{source} of {size} records has another root: it was written anew, from place {held} at the earliest"
            )
            self._found("log.rewritten", log, held, None, said)
            return False
        return True

    def _check_strays(self) -> None:
        """The records of no log are those that the first opening noted, or they were put there since."""
        strays = list(self._evidence.strays())
        for leaf in strays:
            if not leaf.whole:
                self._found("record.changed", "", None, leaf.id, "its body is not what its digest is of")
            if leaf.content is not None:
                self._found("content.stray", "", None, leaf.id, "content is kept to this record, which is in no log")
        found = strays_noted(leaf.hash for leaf in strays)
        noted = self._before or ([found] if not strays else [])
        if any(one != found for one in noted) or not noted:
            first = strays[0].id if strays else None
            said = f"{found['records']} records are in no log, and the logs' openings noted others"
            self._found("record.stray", "", None, first, said)


_READ: Final = READ | {"log"}


def _each(hashes: bytes) -> list[bytes]:
    return [hashes[at : at + _HASH] for at in range(0, len(hashes), _HASH)]


def _are_signed(run: Sequence[Leaf], signed: bytes, *, after: int) -> bool:
    """Whether records are those of which these are the leaf hashes, one after the other, numbered in order."""
    numbers = [after, *(leaf.seq for leaf in run)]
    return (
        b"".join(leaves_of(leaf.fields for leaf in run)) == signed
        and all(leaf.whole for leaf in run)
        and all(map(lt, numbers, numbers[1:]))
    )


class _Places:
    """Records by place, of which some may be missing and some be there twice."""

    def __init__(self, leaves: Iterable[Leaf]) -> None:
        self._leaves = iter(leaves)
        self._ahead: deque[Leaf] = deque()  # those that were looked at and are still to come
        self._extra: list[Leaf] = []

    def run(self, first: int, size: int) -> Sequence[Leaf] | None:
        """The next records if these have the places from `first` to before `size`, one for each and none beside it.

        They are still to come; see `skip`.
        """
        count = size - first
        self._look(count + 1)
        run = list(islice(self._ahead, count))
        goes_on = len(self._ahead) <= count or self._ahead[count].place >= size
        return run if goes_on and [leaf.place for leaf in run] == list(range(first, size)) else None

    def skip(self, count: int) -> None:
        """Pass over that many that were looked at."""
        for _ in range(count):
            self._ahead.popleft()

    def _look(self, count: int) -> deque[Leaf]:
        """The next records: as many, unless there are fewer."""
        if len(self._ahead) < count:
            self._ahead += islice(self._leaves, count - len(self._ahead))
        return self._ahead

    def at(self, place: int) -> Leaf | None:
        """The record at `place`; places are asked for in order."""
        found: Leaf | None = None
        while self._look(1) and self._ahead[0].place <= place:
            leaf = self._ahead.popleft()
            if leaf.place == place and found is None:
                found = leaf
            else:
                self._extra.append(leaf)
        return found

    def extra(self) -> list[Leaf]:
        """Those that came up for a place that was taken, or for none."""
        extra, self._extra = self._extra, []
        return extra

    def rest(self) -> Iterator[Leaf]:
        """Those beyond the places that were asked for."""
        return chain(self._ahead, self._leaves)


__all__ = ["LogState", "Problem", "Report", "by_id", "key_of", "verify"]
