"""One pass of judgement: which views are evaluated, the decision on each, and what is carried over from the last turn.

Spec: docs/spec/pipeline.md [PIPE-1], [PIPE-16].
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from cmf.enums import ViewKind
from cmf.json.value import replace, to_bytes, trusted
from cmf.message.request import Request
from cmf.views.iterate import envelope_views, iter_views, makes_calls, views_at
from cmf.views.view import MessageView
from pipeline.conversation.history import History, Origins, Trail, may_call
from pipeline.conversation.intake import LabelSources, added_labels
from pipeline.conversation.turn_cache import EMPTY_SECTION, Labels, PassBasis, SettledPass, depends_on_later
from pipeline.decisions.decision import Action, Coverage, Hit, Mode, Skipped, ViewDecision, view_decision
from pipeline.decisions.policy_input import SessionFacts, shared_bytes, view_bytes
from pipeline.decisions.stage import Traffic
from pipeline.decisions.traffic import identical_start, unchanged
from pipeline.policy.policy_set import PolicySet
from pipeline.run.effects import Replacer, apply_edits
from pipeline.run.hits import HitFinder, settle_joined
from pipeline.run.tool_schemas import SchemaChecks

_CALL: Final = ViewKind.TOOL_CALL.value
_CALLS: Final = frozenset({_CALL, ViewKind.PROMPT_REQUEST.value})
_HOLDING: Final = (_CALL, ViewKind.TOOL_RESULT.value, ViewKind.PROMPT_RESULT.value)
"""Kinds of view; every message that `may_call` has a view of one of them."""


class Batch(NamedTuple):
    """The views that share one context, as `Engine.evaluate` takes them."""

    entrypoints: list[str]
    shared: bytes
    views: list[bytes]


Awaited: TypeAlias = Batch | Callable[[], Any]
"""What a run waits for: a batch for the engine, or a call that reads from a store."""


class Judge:
    """Judges traffic under one policy set. It does no I/O: it yields what to wait for, and is sent the results."""

    def __init__(self, policies: PolicySet, mode: Mode) -> None:
        self.capabilities = policies.capabilities
        self.session_reads = policies.session_reads
        self.reads_events = any(
            path[:1] in ((), ("events",)) for paths in self.session_reads.values() for path in paths
        )
        self.request_reads = policies.request_reads
        self.watched = frozenset({*_CALLS, *_HOLDING, *self.session_reads, *self.request_reads})
        self._entrypoints = {kind: policies.entrypoint(kind) for kind in ViewKind}
        self._facts = policies.facts
        self._reads_context = policies.reads_context
        self._mode = mode

    def __call__(
        self,
        value: Traffic,
        session: SessionFacts,
        history: History,
        finder: HitFinder,
        schemas: SchemaChecks,
        previous: SettledPass | None,
        same: int | None = None,
        *,
        keeps: bool = True,
    ) -> Generator[Awaited, Any, Pass]:
        """One pass over `value`.

        `previous` is the same pass of the previous turn, if there was one, and `same` how many messages at the
        beginning are those of that turn (None to find out). `keeps` says whether a later turn can continue from this.

        Raises:
            CmfError: the value has what no view can show.
        """
        judged = Pass(self, value)
        if keeps and isinstance(value, Request):
            judged.carry_over(value, session, finder, previous, same)
        judged.find_views()
        origins = yield from judged.find_origins(history, schemas)
        views = judged.to_judge
        hits: list[tuple[Hit, ...] | None] = [None] * len(views)
        for shared, places in _by_context(views, session, spelled=self._reads_context).items():
            group = [views[place] for place in places]
            documents = [view_bytes(view, origins.get(view.path), self._facts.get(view.kind)) for view in group]
            answers = yield Batch([self._entrypoints[view.kind] for view in group], shared, documents)
            # Not strict: views without an answer count as skipped, so that nothing is forwarded.
            for place, view, answer in zip(places, group, answers, strict=False):
                hits[place] = finder.hits(view, answer, origins.get(view.path)) + schemas.unreadable(value, view)
        settle_joined(views, hits)
        judged.decide(hits, origins, session.lifted, self._mode)
        return judged


class Pass:
    """One pass over `value`: what is carried over, the views to judge, the decision on each, and what follows.

    Attributes:
        to_judge: the views: those of the request and its new tools (all, of a message or response), then those of
            carried-over messages, then those of new messages.
        views: one decision per view of the value, in order. hit: those with hits.
        coverage: how many views were evaluated.
        labels: the labels that rules added, by the path of the message. label_sources: each with its source event.
    """

    _request: Request  # this and the next only after `carry_over`
    _basis: PassBasis
    to_judge: list[MessageView]
    views: tuple[ViewDecision, ...]
    hit: Sequence[ViewDecision]
    coverage: Coverage
    labels: Labels
    label_sources: LabelSources
    _lasting: tuple[Labels, LabelSources]  # the labels that arose in messages, which the next turn can carry over
    _new: Sequence[ViewDecision]  # those of `hit` whose edits are still to be applied
    _done: SettledPass | None  # whose edits of the messages are taken over
    _lines: list[ViewDecision | None]  # the decision on each of `to_judge`

    def __init__(self, judge: Judge, value: Traffic) -> None:
        self._judge = judge
        self._value = value
        self._settled: SettledPass | None = None  # the same pass of the previous turn
        self._tools = self._messages = EMPTY_SECTION  # those at the beginning of which it is carried over
        self._changed: Collection[str] = ()  # the kinds of view whose rules read something else now
        self._trail: Trail | None = None  # that the origins of calls were read from
        self._head = 0  # how many of `to_judge` are no message's of a request
        self._again: list[int] = []  # the carried-over ones among them, by their index in `_messages.lines`
        self._fresh: list[int] = []  # how many each new message has

    @property
    def stops(self) -> bool:
        """Whether the run ends here as a refusal."""
        # A rule that requires approval does not: a person is asked only about what went through all passes.
        return any(view.outcome is Action.REFUSE for view in self.hit) or not self.coverage.full

    # -- what is carried over ------------------------------------------------------------------------------------------

    def carry_over(
        self, value: Request, session: SessionFacts, finder: HitFinder, previous: SettledPass | None, same: int | None
    ) -> None:
        """Find out what of `previous` holds in this pass."""
        reads = self._judge.session_reads
        block = session.whole(events=self._judge.reads_events) if reads else {}
        read = {paths: to_bytes([_at(block, path) for path in paths]) for paths in set(reads.values())}
        self._request = value
        self._basis = basis = PassBasis(
            session={kind: read[paths] for kind, paths in reads.items()},
            excuses=finder.excuses.active,
            lifted=session.lifted,
            data=finder.data.upto(len(value.messages)),
            makes_calls=makes_calls(value),
        )
        if previous is None or previous.basis.excuses != basis.excuses:
            return
        if previous.basis.makes_calls or basis.makes_calls:  # a call of MCP continues no conversation
            return
        before = previous.messages
        self._settled = previous
        self._messages = before.first(unchanged(before.items, tuple(value.messages)) if same is None else same)
        changed = {kind for kind, now in basis.session.items() if previous.basis.session[kind] != now}
        changed |= {kind for kind, paths in self._judge.request_reads.items() if previous.was_retold(paths)}
        if finder.data.upto(len(before.items)) != previous.basis.data:
            changed |= _CALLS
        self._changed = changed
        # Tools are judged in the context of the first message: if that is new, so are they.
        is_same = self._messages.items and ViewKind.TOOL_DEFINITION.value not in changed and not previous.tools.unstable
        self._tools = previous.tools.first(unchanged(previous.tools.items, tuple(value.tools)) if is_same else 0)

    @property
    def _is_whole(self) -> bool:
        """Whether all messages of the previous turn are carried over."""
        return self._settled is not None and len(self._messages.items) == len(self._settled.messages.items)

    def find_views(self) -> None:
        """Fill `to_judge` with all views that are to be judged, as far as origins do not matter."""
        value, messages, capabilities = self._value, self._messages, self._judge.capabilities
        if not isinstance(value, Request):
            self.to_judge = list(iter_views(value, capabilities=capabilities))
            self._head = len(self.to_judge)
            return
        tools = range(len(self._tools.items), len(value.tools))
        self.to_judge = list(envelope_views(value, tools, capabilities=capabilities))
        self._head = len(self.to_judge)
        items = {item for kind in self._changed for item in messages.kinds.get(kind, ())}
        for item in sorted(items.union(messages.unstable)):
            own = [
                (place, view)
                for place, view in self._settled_views(value, item)
                if item in messages.unstable or view.kind.value in self._changed
            ]
            self._again += [place for place, _ in own]
            self.to_judge += [view for _, view in own]
        for at in range(len(messages.items), len(value.messages)):
            views = list(views_at(value, at, capabilities=capabilities))
            self._fresh.append(len(views))
            self.to_judge += views

    def _settled_views(self, value: Request, item: int) -> Iterable[tuple[int, MessageView]]:
        """The views of a carried-over message, each with the index of its line in `_messages`."""
        views = views_at(value, item, capabilities=self._judge.capabilities)
        return enumerate(views, self._messages.start_of(item))

    # -- where the values of calls came from ---------------------------------------------------------------------------

    def find_origins(self, history: History, schemas: SchemaChecks) -> Generator[Awaited, Any, Origins]:
        """The origins of the calls in `to_judge`; carried-over calls whose origins have changed are added to it."""
        value, kinds = self._value, self._messages.kinds
        settled = kinds.get(_CALL, ())
        if not settled and not any(view.kind is ViewKind.TOOL_CALL for view in self.to_judge):
            return {}
        if not isinstance(value, Request):
            origins: Origins = yield lambda: schemas.look(value, history.origins(value))
            return origins
        new = [at for at in range(len(self._messages.items), len(value.messages)) if may_call(value.messages[at])]
        last = max((places[-1] for places in (*(kinds.get(kind, ()) for kind in _HOLDING), new) if places), default=-1)
        trail: Trail = yield partial(history.read, tuple(value.messages), last + 1)
        self._trail = trail
        doubtful = settled[bisect_left(settled, self._known_until(value, trail, schemas)) :]
        again = set(map(self._messages.item_of, self._again))
        wanted = (at for at in sorted({*doubtful, *again, *new}) if at <= last)
        found = {f"messages[{at}].{path}": known for at in wanted for path, known in trail.origins[at].items()}
        origins = yield partial(schemas.look, value, found)
        already, begin = set(self._again), self._head + len(self._again)
        moved = [
            (place, view)
            for item in doubtful
            for place, view in self._settled_views(value, item)
            if view.kind is ViewKind.TOOL_CALL
            and place not in already
            and origins.get(view.path) != self._messages.lines[place].origins
        ]
        self._again += [place for place, _ in moved]
        self.to_judge[begin:begin] = [view for _, view in moved]
        return origins

    def _known_until(self, value: Request, trail: Trail, schemas: SchemaChecks) -> int:
        """The index of the first message whose calls may have other origins now than when they were judged.

        It is 0 whenever the tools changed, since edited calls are then held against their tools' schemas again.
        """
        settled = self._settled
        if settled is None or settled.trail is not trail:
            return 0
        is_same = len(self._tools.items) == len(settled.tools.items) == len(value.tools)
        return schemas.first_new(value) if is_same else 0

    # -- the result ----------------------------------------------------------------------------------------------------

    def decide(
        self, hits: Sequence[tuple[Hit, ...] | None], origins: Origins, lifted: LabelSources, mode: Mode
    ) -> None:
        """Make the decisions of `hits`, which has those of each view of `to_judge`; None where it got no answer."""
        value, messages, tools = self._value, self._messages, self._tools
        skipped: tuple[Skipped, ...] = ()
        self._lines = lines = list[ViewDecision | None]()
        for view, known in zip(self.to_judge, hits, strict=True):
            if known is None:
                skipped += (Skipped(path=view.path, reason="engine.no-answer"),)
            lines.append(None if known is None else view_decision(view, known, mode, origins.get(view.path)))
        begin = self._head + len(self._again)
        head = [line for line in lines[: self._head] if line is not None]
        fresh = [line for line in lines[begin:] if line is not None]
        old, before, is_same = messages.lines, messages.lines_with_hits(), True
        if self._again:
            again = dict(zip(self._again, lines[self._head : begin], strict=True))
            is_same = all(line is not None and line.hits == old[place].hits for place, line in again.items())
            anew = (again.get(place, line) for place, line in enumerate(old))
            old = tuple(line for line in anew if line is not None)
            before = [line for line in old if line.hits]
        self.views = (*head[:1], *tools.lines, *head[1:], *old, *fresh)
        of_rest = [line for line in (*head[:1], *tools.lines_with_hits(), *head[1:]) if line.hits]
        of_new = [line for line in fresh if line.hits]
        self.hit = [*of_rest, *before, *of_new]
        self.coverage = trusted(
            Coverage,
            produced=len(self.views) + len(skipped),
            evaluated=len(self.views),
            skipped=skipped,
            reused=len(tools.lines) + len(messages.lines) - len(self._again),
        )
        settled = self._settled if is_same else None
        if settled is not None and self._is_whole and settled.basis.lifted == lifted:
            labels, label_sources = settled.labels, settled.label_sources
        else:
            labels, label_sources = added_labels(before, value, lifted)
        if self.hit:
            more, more_sources = added_labels(of_new, value, lifted)
            others, other_sources = added_labels(of_rest, value, lifted)
            self._lasting = labels, label_sources = {**labels, **more}, label_sources | more_sources
            labels, label_sources = {**labels, **others}, label_sources | other_sources
        else:
            self._lasting = labels, label_sources
        self.labels, self.label_sources = labels, label_sources
        if settled is None or settled.edited is None or (settled.removed and not self._is_whole):
            settled = None  # the edits of messages have to be applied again
        self._done, self._new = settled, self.hit if settled is None else [*of_rest, *of_new]

    def edited(self, mode: Mode, replacer: Replacer, removed: list[str]) -> Traffic:
        """The value with all edits applied; the paths that they removed are added to `removed`. See `apply_edits`."""
        value, done = self._value, self._done
        if done is not None and done.edited is not None and isinstance(value, Request):
            if done.edited is not done.messages.items:
                messages = done.edited[: len(self._messages.items)]
                if identical_start(messages, value.messages) < len(messages):
                    value = replace(value, messages=(*messages, *value.messages[len(messages) :]))
            removed += done.removed
        return apply_edits(value, self._new, mode, replacer, removed)

    def settle(self, edited: Request, removed: Sequence[str]) -> SettledPass:
        """What the next turn can carry over from this pass after `carry_over`, which had no view skipped."""
        value = self._request
        reused = [dataclasses.replace(line, reused=True) for line in self._lines if line is not None]
        watched, begin = self._judge.watched, self._head + len(self._again)
        tools = self._tools.extended(tuple(value.tools), [[line] for line in reused[1 : self._head]], watched)
        messages = self._messages
        if self._again:
            messages = messages.patched(dict(zip(self._again, reused[self._head : begin], strict=True)))
        ends = accumulate(self._fresh, initial=begin)
        messages = messages.extended(tuple(value.messages), [reused[at:end] for at, end in pairwise(ends)], watched)
        counted = any(depends_on_later(line.hits) for line in messages.lines_with_hits())
        labels, label_sources = self._lasting
        return SettledPass(
            basis=self._basis,
            tools=tools,
            messages=messages,
            trail=self._trail,
            labels=labels,
            label_sources=label_sources,
            edited=None if counted else tuple(edited.messages),
            removed=tuple(path for path in removed if path.startswith("messages[")),
        )


def _at(block: Mapping[str, Any], path: Sequence[str]) -> list[Any]:
    """A list of the one value at `path`; an empty list if there is none, so that null differs from absent."""
    found: Any = block
    for step in path:
        if not isinstance(found, Mapping) or step not in found:
            return []
        found = found[step]
    return [found]


def _by_context(views: Sequence[MessageView], session: SessionFacts, *, spelled: bool) -> dict[bytes, list[int]]:
    """The indices of the views by the JSON of the context that they share: each group is one batch for the engine."""
    batches: dict[bytes, list[int]] = {}
    places: dict[int, list[int]] = {}
    blocks: dict[tuple[bool, bool], bytes] = {}
    for index, view in enumerate(views):
        key = view.scope.context_id  # the same for all messages without extensions of their own: writes their JSON once
        if key not in places:
            places[key] = batches.setdefault(shared_bytes(view, session, blocks, spelled=spelled), [])
        places[key].append(index)
    return batches
