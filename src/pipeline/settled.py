"""What one turn of a conversation leaves to the next, so that unchanged messages are not judged again.

A verdict is a pure function of the view, the policies and their data. Where all of these are the same as in the turn
before, the verdict is taken over, with the edits and labels that followed from it. Everything else is judged.
Spec: docs/spec/pipeline.md [PIPE-16].
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

PLACES: Final = "q"  # type code of an array of indices: 64-bit integers
WORK_PER_LINE: Final = 40  # memory of a view's line and its share of the rest, in words of text, about
_FAILED: Final = "data_policy.failed"
Labels: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """Messages, or tools, as they were judged, and the decision on each of their views (its line).

    Attributes:
        items: the messages or tools.
        lines: the lines of all their views, in order.
        ends: for each item, the index in `lines` after its last one. An array, since copying one touches no objects.
        struck: the indices in `lines` of those with hits.
        loose: the indices of items that are judged again in any case, because a line of theirs may not hold next time
            (an engine failed, say).
        kinds: for each kind of view that rules or origins look at, the indices of the items that have such views.
    """

    items: tuple[Any, ...] = ()
    lines: tuple[ViewDecision, ...] = ()
    ends: array[int] = field(default_factory=partial(array, PLACES))
    struck: tuple[int, ...] = ()
    loose: tuple[int, ...] = ()
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def upto(self, count: int) -> Section:
        """The section of the first `count` items."""
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
        """The index in `lines` of the item's first one."""
        return self.ends[item - 1] if item else 0

    def item_of(self, place: int) -> int:
        """The index of the item that the line at `place` belongs to."""
        return bisect_right(self.ends, place)

    def patched(self, lines: Mapping[int, ViewDecision]) -> Section:
        """The section with `lines` in place of those at the same indices."""
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
        """The section continued by new items.

        Args:
            items: all items, those of this section first.
            lines: for each new item, its lines.
            watched: the kinds of view to note in `kinds`.
        """
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
        # A kind without new items keeps its tuple: adding () copies nothing.
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
    """Whether the line may come out differently next time though its view is the same.

    So it is after a failure, and for a call that was just made and is held against its tool's schema (`fits`).
    """
    if any(hit.rule == ENGINE_RULE or hit.code == _FAILED for hit in line.hits):
        return True
    return line.origins is not None and "fits" in line.origins[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBasis:
    """What one pass was judged by, besides the policies and the messages. If it differs, less is taken over.

    Attributes:
        session: for each kind of view whose rules read the session, what they read of it, as JSON bytes.
        excuses: the exceptions and overrides that were in force.
        lifted: the `(label, source event)` pairs that declassification grants take away.
        data: the state of the data policy's rule at the end of the messages; compared, never read.
    """

    session: Mapping[str, bytes]
    excuses: tuple[RuleException | Override, ...]
    lifted: Brought
    data: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What one pass over a request found: the decisions on its tools and messages, and what followed from them.

    Attributes:
        trail: the `Trail` that gave the origins of the calls (`History.read`); None where no origins were needed.
        labels: the labels that rules added, by the path of the message.
        brought: the same labels as `(label, source event)`.
        edited: the messages as edits left them; None where an edit depends on messages that come later.
        gone: the paths of what edits removed from messages.
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
    """What is kept of a turn that went out.

    Attributes:
        revision: that of the policy set that judged.
        taken: how the request was taken in.
        passes: what each pass settled, in order.
        referred: what its messages refer to.
        written: the digest of what went out, up to the last of its messages, to go on from.
    """

    revision: str
    taken: TakenIn
    passes: tuple[Settled, ...]
    referred: tuple[Reference, ...]
    written: Written | None

    @property
    def work(self) -> int:
        """The memory that it takes, in the unit of `Trail.work`: words of text, about."""
        lines = sum(len(one.messages.lines) + len(one.tools.lines) for one in self.passes)
        return WORK_PER_LINE * lines


class Keeping:
    """What one run takes over from the turn before it, and gathers for the turn after it."""

    def __init__(self, before: Turn | None, revision: str) -> None:
        self._before = before if before is not None and before.revision == revision else None
        self._revision = revision
        self._passes: list[Callable[[], Settled]] = []
        self._referred: tuple[Reference, ...] = ()
        self.taken = None if self._before is None else self._before.taken
        """How the request of the turn before was taken in; once this run's request was, how that was."""
        self.digests = Digests(None if self._before is None else self._before.written)

    def before(self, number: int) -> Settled | None:
        """What pass `number` (from 0) settled in the turn before; what its last pass did, if it had fewer."""
        if self._before is None:
            return None
        return self._before.passes[min(number, len(self._before.passes) - 1)]

    def same(self, value: Traffic) -> int | None:
        """How many messages at the beginning are those of the turn before; None where that has to be found out.

        It is known from how they were taken in, unless a stage has changed messages since, then or now.
        """
        before = self._before
        if before is None or self.taken is None or not isinstance(value, Request):
            return None
        as_judged = value.messages is self.taken.messages and before.passes[0].messages.items is before.taken.messages
        return (self.taken.same or None) if as_judged else None

    def references(self, value: Traffic) -> tuple[Reference, ...]:
        """All references to content elsewhere in `value`; see `pipeline.references`."""
        settled = self.before(0)
        known = self._before.referred if self._before is not None else ()
        since = 0
        if settled is not None and not known and isinstance(value, Request):
            same = self.same(value)
            since = same_start(settled.messages.items, value.messages) if same is None else same
        self._referred = references(value, since)
        return self._referred

    def add(self, settle: Callable[[Request, Sequence[str]], Settled] | None, edited: Traffic, gone: list[str]) -> None:
        """Note a pass over a request. `settle` is called with its arguments only if the run goes out (`turn`)."""
        if settle is not None and isinstance(edited, Request):
            self._passes.append(partial(settle, edited, gone))

    def turn(self) -> Turn | None:
        """What the next turn can take over from this run, which goes out; None where it judged no request."""
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
    """Whether an edit writes numbered tokens: their numbers depend on the edits of later messages too."""
    return any(hit.effect in EDITS and hit.enforced and hit.fields.get("replacement") == "token" for hit in hits)


__all__ = ["NOTHING", "Keeping", "PassBasis", "Section", "Settled", "Turn", "depends_on_later"]
