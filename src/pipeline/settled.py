"""What a turn settled of its conversation, for the next turn, which begins with it. Spec: pipeline.md [PIPE-16].

Verdicts are pure functions of what is judged, of the policies and of their data. Where all of that is the same, they
are taken over, with what followed from them; all else is judged.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from cmf.message import Message
from cmf.request import Request
from pipeline.certificate import Digests, Written
from pipeline.decision import EDITS, ENGINE_RULE, Hit, ViewDecision
from pipeline.ingestion import TakenIn
from pipeline.policies.overrides import Override
from pipeline.policies.rule_exceptions import RuleException
from pipeline.references import Reference, references
from pipeline.stage import Traffic
from pipeline.stamping import Brought
from pipeline.unchanged import same_start

PLACES: Final = "q"  # as an array has them
WORK_PER_LINE: Final = 40  # words, about, that a view's line and its share of the rest take
_FAILED: Final = "data_policy.failed"
Labels: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """Messages, or tools, as they were judged, and the line of each of their views.

    Attributes:
        items: the messages or tools.
        lines: the lines of all their views, in order.
        ends: for each item, where its lines end; numbers alone, as there is no object to look at to copy them.
        struck: the places of lines with hits.
        loose: the items with a line that says nothing of the next turn (a failure, say), so that they are judged again.
        kinds: for each kind of view that is watched, the items that have such views.
    """

    items: tuple[Any, ...] = ()
    lines: tuple[ViewDecision, ...] = ()
    ends: array[int] = field(default_factory=partial(array, PLACES))
    struck: tuple[int, ...] = ()
    loose: tuple[int, ...] = ()
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def upto(self, count: int) -> Section:
        """The same for the first `count` items alone."""
        if count == len(self.items):
            return self
        end = self.ends[count - 1] if count else 0
        return Section(
            self.items[:count],
            self.lines[:end],
            self.ends[:count],
            tuple(place for place in self.struck if place < end),
            tuple(item for item in self.loose if item < count),
            {kind: tuple(item for item in items if item < count) for kind, items in self.kinds.items()},
        )

    def start_of(self, item: int) -> int:
        """Where the lines of an item begin."""
        return self.ends[item - 1] if item else 0

    def item_of(self, place: int) -> int:
        """The item whose line is at that place."""
        return bisect_right(self.ends, place)

    def patched(self, lines: Mapping[int, ViewDecision]) -> Section:
        """The same with other lines at some places."""
        held = list(self.lines)
        for place, line in lines.items():
            held[place] = line
        again = frozenset(map(self.item_of, lines))
        loose = {item for item in again if any(map(_is_loose, held[self.start_of(item) : self.ends[item]]))}
        return replace(
            self,
            lines=tuple(held),
            struck=tuple(place for place, line in enumerate(held) if line.hits),
            loose=tuple(sorted((set(self.loose) - again) | loose)),
        )

    def then(self, items: tuple[Any, ...], lines: Sequence[Sequence[ViewDecision]], watched: Iterable[str]) -> Section:
        """The same with more items after these, each with its lines; items of `watched` kinds are noted."""
        if not lines:
            return replace(self, items=items)
        ends, loose, new = list[int](), list[int](), list[ViewDecision]()
        kinds: dict[str, list[int]] = {kind: [] for kind in watched}
        for item, own in enumerate(lines, len(self.ends)):
            new += own
            ends.append(len(self.lines) + len(new))
            for kind in {line.kind for line in own} & kinds.keys():
                kinds[kind].append(item)
            if any(map(_is_loose, own)):
                loose.append(item)
        struck = tuple(place for place, line in enumerate(new, len(self.lines)) if line.hits)
        # What gets nothing new stays the very same object.
        noted = {kind: self.kinds.get(kind, ()) + tuple(places) for kind, places in kinds.items()}
        lasting = self.lines + tuple(new)
        return Section(
            items, lasting, self.ends + array(PLACES, ends), self.struck + struck, self.loose + tuple(loose), noted
        )

    def hit(self) -> list[ViewDecision]:
        """The lines with hits."""
        return [self.lines[place] for place in self.struck]


NOTHING: Final = Section()


def _is_loose(line: ViewDecision) -> bool:
    """Whether the line was made of something that may be over: a failure, or a look at a call that had just come."""
    if any(hit.rule == ENGINE_RULE or hit.code == _FAILED for hit in line.hits):
        return True
    return line.origins is not None and "fits" in line.origins[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBasis:
    """What one pass was judged by, besides the policies and the messages themselves.

    Attributes:
        session: for each kind of view whose rules read of the session, what they read, as bytes.
        excuses: the exceptions and overrides that held.
        lifted: the labels and events that grants lift.
        data: what the rule on data knew, of everything up to the end of the messages.
    """

    session: Mapping[str, bytes]
    excuses: tuple[RuleException | Override, ...]
    lifted: Brought
    data: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One pass: what was judged, what was said, and what followed for the messages.

    Attributes:
        trail: what knows the origins of the calls (`History.read`); None where there is none.
        labels, brought: those that rules added to messages.
        edited: the messages as edits left them; None where an edit depends on what comes after it.
        gone: what edits took out of messages.
    """

    basis: PassBasis
    tools: Section
    messages: Section
    trail: object | None = None
    labels: Labels
    brought: Brought
    edited: tuple[Message, ...] | None = None
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is kept of a turn that went out, in order of its passes.

    Attributes:
        revision: of the policies and data that judged.
        referred: what its messages refer to.
        written: the digest of what went out, as far as its messages go.
    """

    revision: str
    taken: TakenIn
    passes: tuple[Settled, ...]
    referred: tuple[Reference, ...]
    written: Written | None

    @property
    def work(self) -> int:
        """A measure of what it holds, as `Trail.work` is."""
        lines = sum(len(one.messages.lines) + len(one.tools.lines) for one in self.passes)
        return WORK_PER_LINE * lines


class Keeping:
    """What a run takes over from the turn before it, and what it leaves to the next. For one run."""

    def __init__(self, before: Turn | None, revision: str) -> None:
        self._before = before if before is not None and before.revision == revision else None
        self._revision = revision
        self._passes: list[Callable[[], Settled]] = []
        self._referred: tuple[Reference, ...] = ()
        self.taken = None if self._before is None else self._before.taken
        """How requests were taken in: in the turn before; then in this one."""
        self.digests = Digests(None if self._before is None else self._before.written)

    def before(self, number: int) -> Settled | None:
        """What the pass of that number settled in the turn before, or the last one, if it had fewer."""
        if self._before is None:
            return None
        return self._before.passes[min(number, len(self._before.passes) - 1)]

    def same(self, value: Traffic) -> int | None:
        """How many messages are there again, by how they were taken in; None where stages changed something."""
        before = self._before
        if before is None or self.taken is None or not isinstance(value, Request):
            return None
        as_judged = value.messages is self.taken.messages and before.passes[0].messages.items is before.taken.messages
        return (self.taken.same or None) if as_judged else None

    def references(self, value: Traffic) -> tuple[Reference, ...]:
        """All references in what is judged; see `pipeline.references`."""
        settled = self.before(0)
        known = self._before.referred if self._before is not None else ()
        since = 0
        if settled is not None and not known and isinstance(value, Request):
            same = self.same(value)
            since = same_start(settled.messages.items, value.messages) if same is None else same
        self._referred = references(value, since)
        return self._referred

    def add(self, settle: Callable[[Request, Sequence[str]], Settled] | None, edited: Traffic, gone: list[str]) -> None:
        """Note how a pass went: `settle` gives what it settled, where it was one over a request."""
        if settle is not None and isinstance(edited, Request):
            self._passes.append(partial(settle, edited, gone))

    def turn(self) -> Turn | None:
        """What this run settled, now that it goes out; None where it was no request."""
        if self.taken is None or not self._passes:
            return None
        return Turn(
            revision=self._revision,
            taken=self.taken,
            passes=tuple(settle() for settle in self._passes),
            referred=self._referred,
            written=self.digests.written,
        )


def depends_on_later(hits: Iterable[Hit]) -> bool:
    """Whether what an edit leaves is counted from the end of the conversation: tokens are numbered as they are met."""
    return any(hit.effect in EDITS and hit.enforced and hit.fields.get("replacement") == "token" for hit in hits)


__all__ = ["NOTHING", "Keeping", "PassBasis", "Section", "Settled", "Turn", "depends_on_later"]
