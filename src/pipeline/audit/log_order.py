"""The openings of logs, and the order that they prove between records of different logs. Spec: audit.md [AUD-4].

Each opening notes how far the other logs had grown. A record's number is its database's word, and no signature covers
it; but the numbers of what an opening notes are smaller than its own, and those of all later records are greater.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cmf.json.codec import loads
from pipeline.audit.erasures import Problem, texts
from pipeline.audit.evidence import Leaf


class Noted(NamedTuple):
    """The head of another log, as an opening notes it."""

    log: str
    root: str
    size: int


class Opening(NamedTuple):
    """The opening of a log.

    Attributes:
        seq: the number of its record. log: the log's id.
        named: the log's id, key, public key and time, as in its `LogRow`.
        seen: the heads that it notes.
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
