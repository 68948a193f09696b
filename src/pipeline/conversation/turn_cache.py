"""What one turn of a conversation keeps for the next, so that unchanged messages are not judged again.

A verdict is a pure function of the view, the policies and their data. If all of these are the same as in the previous
turn, the verdict is carried over, with the edits and labels that followed from it. Everything else is judged.
Spec: docs/spec/pipeline.md [PIPE-16].
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from cmf.json.value import fields_of
from cmf.json.value import replace as changed
from cmf.message.message import Message, RequestExtension
from cmf.message.request import Request
from pipeline.conversation.intake import LabelSources, TakenIn
from pipeline.conversation.references import Reference, references
from pipeline.decisions.certificate import Digests, Written
from pipeline.decisions.decision import EDITS, ENGINE_RULE, Hit, ViewDecision
from pipeline.decisions.events import ToolInputInvalid
from pipeline.decisions.override import Override
from pipeline.decisions.stage import Traffic
from pipeline.decisions.traffic import identical_start
from pipeline.policy.exceptions import RuleException

PLACES: Final = "q"  # type code of an array of indices: 64-bit integers
WORK_PER_LINE: Final = 40  # memory of a view's line and its share of the rest, in words of text, about
_FAILED: Final = "data_policy.failed"
Labels: TypeAlias = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """Judged messages, or tools, with the decision on each of their views (its line).

    Attributes:
        items: the messages or tools.
        lines: the lines of all their views, in order.
        ends: for each item, the index in `lines` after its last one. An array, since copying one touches no objects.
        hit_places: the indices in `lines` of those with hits.
        unstable: the indices of items that are judged again in any case, because a line may not hold next time (an
            engine failed, say).
        kinds: for each kind of view that rules or origins look at, the indices of the items that have such views.
    """

    items: tuple[Any, ...] = ()
    lines: tuple[ViewDecision, ...] = ()
    ends: array[int] = field(default_factory=partial(array, PLACES))
    hit_places: tuple[int, ...] = ()
    unstable: tuple[int, ...] = ()
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def first(self, count: int) -> Section:
        """The section of the first `count` items."""
        if count == len(self.items):
            return self
        end = self.ends[count - 1] if count else 0
        return Section(
            self.items[:count],
            self.lines[:end],
            self.ends[:count],
            tuple(place for place in self.hit_places if place < end),
            tuple(item for item in self.unstable if item < count),
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
        unstable = {item for item in again if any(map(_is_unstable, held[self.start_of(item) : self.ends[item]]))}
        return replace(
            self,
            lines=tuple(held),
            hit_places=tuple(place for place, line in enumerate(held) if line.hits),
            unstable=tuple(sorted((set(self.unstable) - again) | unstable)),
        )

    def extended(
        self, items: tuple[Any, ...], lines: Sequence[Sequence[ViewDecision]], watched: Iterable[str]
    ) -> Section:
        """The section continued by new items.

        Args:
            items: all items, those of this section first.
            lines: for each new item, its lines.
            watched: the kinds of view to note in `kinds`.
        """
        if not lines:
            return replace(self, items=items)
        ends, unstable, new = list[int](), list[int](), list[ViewDecision]()
        kinds: dict[str, list[int]] = {kind: [] for kind in watched}
        for item, own in enumerate(lines, len(self.ends)):
            new += own
            ends.append(len(self.lines) + len(new))
            for kind in {line.kind for line in own} & kinds.keys():
                kinds[kind].append(item)
            if any(map(_is_unstable, own)):
                unstable.append(item)
        hit_places = tuple(place for place, line in enumerate(new, len(self.lines)) if line.hits)
        # A kind without new items keeps its tuple: adding () copies nothing.
        noted = {kind: self.kinds.get(kind, ()) + tuple(places) for kind, places in kinds.items()}
        lasting = self.lines + tuple(new)
        return Section(
            items,
            lasting,
            self.ends + array(PLACES, ends),
            self.hit_places + hit_places,
            self.unstable + tuple(unstable),
            noted,
        )

    def lines_with_hits(self) -> list[ViewDecision]:
        """The lines with hits."""
        return [self.lines[place] for place in self.hit_places]


EMPTY_SECTION: Final = Section()


def _is_unstable(line: ViewDecision) -> bool:
    """Whether the decision on the same view may be another one in the next turn.

    So it is after a failure, for a call that was just made and is held against its tool's schema (`fits`), and for one
    with arguments that are no object, which counts as told only as long as its result is there.
    """
    if any(hit.rule == ENGINE_RULE or hit.code in (_FAILED, ToolInputInvalid.type) for hit in line.hits):
        return True
    return line.origins is not None and "fits" in line.origins[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBasis:
    """What a pass depended on besides policies and messages. If it differs in the next turn, less is carried over.

    Attributes:
        session: for each kind of view whose rules read the session, what they read of it, as JSON bytes.
        excuses: the exceptions and overrides that were in force.
        lifted: the `(label, source event)` pairs that declassification grants lift.
        data: the state of the rule on data after the last message; compared, never read.
        makes_calls: whether the request makes calls itself, so that their views have other hooks.
    """

    session: Mapping[str, bytes]
    excuses: tuple[RuleException | Override, ...]
    lifted: LabelSources
    data: object
    makes_calls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledPass:
    """One pass over a request: the decisions on its tools and messages, and what followed from them.

    Attributes:
        trail: the `Trail` that gave the origins of the calls (`History.read`); None where no origins were needed.
        labels: the labels that rules added, by the path of the message.
        label_sources: the same labels as `(label, source event)`.
        edited: the messages after their edits; None if an edit depends on later messages.
        removed: the paths that edits removed from messages.
        retold: the fields of `extensions.request` that were others when this was judged (`KeptTurn.told`).
    """

    basis: PassBasis
    tools: Section
    messages: Section
    trail: object | None = None
    labels: Labels
    label_sources: LabelSources
    edited: tuple[Message, ...] | None = None
    removed: tuple[str, ...] = ()
    retold: frozenset[str] = frozenset()

    def was_retold(self, read: Iterable[Sequence[str]]) -> bool:
        """Whether one of these paths below `extensions.request` reads a field of `retold`."""
        return any(not path or path[0] in self.retold for path in read) if self.retold else False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurn:
    """What is kept of a turn that went out.

    Attributes:
        revision: the revision of the policy set that judged it.
        taken: how the request was taken in.
        passes: its passes, in order.
        referred: the references in its messages.
        written: the state of the hash after the last message that went out, to continue from.
    """

    revision: str
    taken: TakenIn
    passes: tuple[SettledPass, ...]
    referred: tuple[Reference, ...]
    written: Written | None

    def told(self, own: RequestExtension | None) -> KeptTurn | None:
        """The same turn as if `own`, the facts of the request in the context, had been those of it; None if it cannot.

        A gateway gives each request an id and a time, which its messages carry. What was judged by those that differ
        is judged again (`SettledPass.retold`).
        """
        before = self.taken.request
        if own == before:
            return self
        if own is None or before is None:  # facts that the traffic brings count instead
            return None
        is_now, was = fields_of(own), fields_of(before)
        retold = frozenset(name for name in is_now | was if is_now.get(name) != was.get(name))
        messages = _retelling(own)
        return replace(
            self,
            taken=replace(self.taken, messages=messages(self.taken.messages), request=own),
            passes=tuple(
                replace(
                    one,
                    messages=replace(one.messages, items=messages(one.messages.items)),
                    edited=None if one.edited is None else messages(one.edited),
                    retold=retold,
                )
                for one in self.passes
            ),
            written=None,
        )

    @property
    def work(self) -> int:
        """Roughly how much memory it takes, in the unit of `Trail.work` (words of text)."""
        lines = sum(len(one.messages.lines) + len(one.tools.lines) for one in self.passes)
        return WORK_PER_LINE * lines


def _retelling(own: RequestExtension) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    """What replaces the request facts of messages by `own`; the same object always gives the same new one."""
    new: dict[int, Any] = {}  # by the id of the old one, which the turn before holds

    def retold(message: Message) -> Message:
        if id(message) not in new:
            known = message.extensions
            if id(known) not in new:
                new[id(known)] = None if known is None else changed(known, request=own)
            new[id(message)] = changed(message, extensions=new[id(known)])
        made: Message = new[id(message)]
        return made

    def all_retold(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        if id(messages) not in new:
            new[id(messages)] = tuple(map(retold, messages))
        made: tuple[Message, ...] = new[id(messages)]
        return made

    return all_retold


class TurnMemory:
    """What a run carries over from the previous turn, and what it collects for the next."""

    def __init__(self, before: KeptTurn | None, revision: str, own: RequestExtension | None = None) -> None:
        is_same = before is not None and before.revision == revision
        self._before = before.told(own) if before is not None and is_same else None
        self._revision = revision
        self.passes: list[Callable[[], SettledPass]] = []
        """What makes the passes of this turn; only called if the run goes out (`turn`)."""
        self._referred: tuple[Reference, ...] = ()
        self.taken = None if self._before is None else self._before.taken
        """How the previous turn's request was taken in; once this run's request is, how that was."""
        self.digests = Digests(None if self._before is None else self._before.written)

    def before(self, number: int) -> SettledPass | None:
        """Pass `number` (from 0) of the previous turn; its last pass, if it had fewer."""
        if self._before is None:
            return None
        return self._before.passes[min(number, len(self._before.passes) - 1)]

    def same(self, value: Traffic) -> int | None:
        """How many messages at the beginning are those of the previous turn; None if that has to be found out.

        It is known from how they were taken in, unless a stage changed messages in either turn.
        """
        before = self._before
        if before is None or self.taken is None or not isinstance(value, Request):
            return None
        as_judged = value.messages is self.taken.messages and before.passes[0].messages.items is before.taken.messages
        return (self.taken.same or None) if as_judged else None

    def references(self, value: Traffic) -> tuple[Reference, ...]:
        """All references to content elsewhere in `value`; see `pipeline.conversation.references`."""
        settled = self.before(0)
        known = self._before.referred if self._before is not None else ()
        since = 0
        if settled is not None and not known and isinstance(value, Request):
            same = self.same(value)
            since = identical_start(settled.messages.items, value.messages) if same is None else same
        self._referred = references(value, since)
        return self._referred

    def turn(self) -> KeptTurn | None:
        """What the next turn can carry over from this run, which goes out; None if it judged no request."""
        if self.taken is None or not self.passes:
            return None
        return KeptTurn(
            revision=self._revision,
            taken=self.taken,
            passes=tuple(settle() for settle in self.passes),
            referred=self._referred,
            written=self.digests.written,
        )


def depends_on_later(hits: Iterable[Hit]) -> bool:
    """Whether an edit writes numbered tokens: their numbers depend on the edits of later messages too."""
    return any(hit.effect in EDITS and hit.enforced and hit.fields.get("replacement") == "token" for hit in hits)
