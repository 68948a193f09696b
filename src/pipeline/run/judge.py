"""One pass of judgement: which views are evaluated, the decision on each, and what is carried over from the last turn.

Spec: docs/spec/pipeline.md [PIPE-1], [PIPE-16].
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from cmf.enums import ViewKind
from cmf.json.value import replace, to_bytes, trusted
from cmf.message.message import Message
from cmf.message.request import Request
from cmf.views.iterate import envelope_views, iter_views, makes_calls, views_at
from cmf.views.view import MessageView
from pipeline.conversation.history import History, Origins, Trail, may_call
from pipeline.conversation.labels import LabelSources, added_labels
from pipeline.conversation.turn_cache import EMPTY_SECTION, Labels, PassBasis, Section, SettledPass, depends_on_later
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
_NO_ORIGINS: Final[Origins] = {}


class Batch(NamedTuple):
    """The views that share one context, as `Engine.evaluate` takes them."""

    entrypoints: list[str]
    shared: bytes
    views: list[bytes]


Awaited: TypeAlias = Batch | Callable[[], Any]
"""What a run waits for: a batch for the engine, or a call that reads from a store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOver:
    """What a pass carries over from the previous turn, and which of it is judged again.

    Attributes:
        settled: the same pass of the previous turn; None if nothing is carried over.
        tools, messages: the unchanged tools and messages at the beginning of the request, with their decisions.
        again: the kinds of view whose rules read something that has changed since; such views are judged again.
    """

    settled: SettledPass | None = None
    tools: Section = EMPTY_SECTION
    messages: Section = EMPTY_SECTION
    again: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether all messages of the previous turn are carried over."""
        return self.settled is not None and len(self.messages.items) == len(self.settled.messages.items)


_NOTHING_CARRIED: Final = CarriedOver()


class _EditedMessages(NamedTuple):
    """The messages that are carried over, after their edits, and the paths that the edits removed."""

    messages: tuple[Message, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The result of one pass.

    Attributes:
        views: one decision per view, in order.
        hit: those of `views` with hits.
        new: those of `hit` whose edits are still to be applied.
        done: the messages whose edits were applied in an earlier turn; None if there are none.
        coverage: how many views were evaluated.
        labels: the labels that rules added, by the path of the message.
        label_sources: the same labels, each with its source event.
        settle: given the edited request and the paths that were removed, returns what the next turn can carry over;
            None if no request was judged.
    """

    views: tuple[ViewDecision, ...]
    hit: Sequence[ViewDecision]
    new: Sequence[ViewDecision]
    done: _EditedMessages | None = None
    coverage: Coverage
    labels: Labels
    label_sources: LabelSources
    settle: Callable[[Request, Sequence[str]], SettledPass] | None = None

    @property
    def stops(self) -> bool:
        """Whether the run ends here as a refusal."""
        # A rule that requires approval does not: a person is asked only about what went through all passes.
        return any(view.outcome is Action.REFUSE for view in self.hit) or not self.coverage.full

    def edited(self, value: Traffic, mode: Mode, replacer: Replacer, removed: list[str]) -> Traffic:
        """`value` with all edits applied; the paths that they removed are added to `removed`. See `apply_edits`."""
        if self.done is not None and isinstance(value, Request):
            count = len(self.done.messages)
            if identical_start(self.done.messages, value.messages) < count:
                value = replace(value, messages=(*self.done.messages, *value.messages[count:]))
            removed += self.done.removed
        return apply_edits(value, self.new, mode, replacer, removed)


@dataclass(slots=True)
class _PassViews:
    """The views that are judged in this pass.

    Attributes:
        head: those of the request itself and its new tools; all views of a message or response.
        again: those of carried-over messages, each with its index in `CarriedOver.messages.lines`.
        fresh: those of new messages, a list for each message.
    """

    head: list[MessageView]
    again: list[tuple[int, MessageView]]
    fresh: list[list[MessageView]]

    def all(self) -> list[MessageView]:
        return [*self.head, *(view for _, view in self.again), *chain.from_iterable(self.fresh)]


@dataclass(slots=True)
class _PassLines:
    """The decisions on the views of a `_PassViews`, in the same order; None where the engine gave no answer."""

    head: list[ViewDecision | None]
    again: dict[int, ViewDecision | None]
    fresh: list[list[ViewDecision | None]]

    @classmethod
    def of(cls, views: _PassViews, decided: Iterable[ViewDecision | None]) -> _PassLines:
        each = iter(decided)
        head = [next(each) for _ in views.head]
        again = {place: next(each) for place, _ in views.again}
        return cls(head, again, [[next(each) for _ in message] for message in views.fresh])


class _Pass(NamedTuple):
    """One pass: its value and basis, what was carried over, its decisions, and the origins of calls (None: unread)."""

    value: Traffic
    basis: PassBasis
    carried: CarriedOver
    lines: _PassLines
    trail: Trail | None


class Judge:
    """Judges traffic under one policy set. It does no I/O: it yields what to wait for, and is sent the results."""

    def __init__(self, policies: PolicySet, mode: Mode) -> None:
        self._capabilities = policies.capabilities
        self._entrypoints = {kind: policies.entrypoint(kind) for kind in ViewKind}
        self._reads = policies.session_reads
        self._reads_events = any(path[:1] in ((), ("events",)) for paths in self._reads.values() for path in paths)
        self._request_reads = policies.request_reads
        self._watched = frozenset({*_CALLS, *_HOLDING, *self._reads, *self._request_reads})
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
    ) -> Generator[Awaited, Any, PassResult]:
        """One pass over `value`.

        `previous` is the same pass of the previous turn, if there was one, and `same` how many messages at the
        beginning are those of that turn (None to find out). `keeps` says whether a later turn can continue from this.

        Raises:
            CmfError: the value has what no view can show.
        """
        basis = self._basis(value, session, finder, keeps=keeps)
        carried = self._carried_over(value, finder, basis, previous, same)
        to_judge = self._views_to_judge(value, carried)
        origins, trail = yield from self._origins(value, history, schemas, carried, to_judge)
        views = to_judge.all()
        hits: list[tuple[Hit, ...] | None] = [None] * len(views)
        for shared, places in _by_context(views, session, spelled=self._reads_context).items():
            group = [views[place] for place in places]
            group_origins = [origins.get(view.path) for view in group]
            entrypoints = [self._entrypoints[view.kind] for view in group]
            facts = [self._facts.get(view.kind) for view in group]
            documents = list(map(view_bytes, group, group_origins, facts))
            answers = yield Batch(entrypoints, shared, documents)
            # Not strict: views without an answer count as skipped, so that nothing is forwarded.
            for place, view, answer, known in zip(places, group, answers, group_origins, strict=False):
                hits[place] = finder.hits(view, answer, known) + schemas.unreadable(value, view)
        settle_joined(views, hits)
        decided = [
            None if found is None else view_decision(view, found, self._mode, origins.get(view.path))
            for view, found in zip(views, hits, strict=True)
        ]
        skipped = tuple(
            Skipped(path=view.path, reason="engine.no-answer")
            for view, line in zip(views, decided, strict=True)
            if line is None
        )
        return self._result(_Pass(value, basis, carried, _PassLines.of(to_judge, decided), trail), skipped)

    # -- what is carried over ------------------------------------------------------------------------------------------

    def _basis(self, value: Traffic, session: SessionFacts, finder: HitFinder, *, keeps: bool) -> PassBasis:
        if not (keeps and isinstance(value, Request)):  # no later turn continues from it
            return trusted(PassBasis, session={}, excuses=(), lifted=session.lifted, data=None, makes_calls=False)
        return PassBasis(
            session=self._read_of(session),
            excuses=finder.excuses.active,
            lifted=session.lifted,
            data=finder.data.upto(len(value.messages)),
            makes_calls=makes_calls(value),
        )

    def _read_of(self, session: SessionFacts) -> dict[str, bytes]:
        """For each kind of view whose rules read the session: what they read of it, as JSON bytes."""
        block = session.whole(events=self._reads_events) if self._reads else {}
        read = {paths: to_bytes([_at(block, path) for path in paths]) for paths in set(self._reads.values())}
        return {kind: read[paths] for kind, paths in self._reads.items()}

    def _carried_over(
        self, value: Traffic, finder: HitFinder, basis: PassBasis, previous: SettledPass | None, same: int | None
    ) -> CarriedOver:
        if previous is None or not isinstance(value, Request) or previous.basis.excuses != basis.excuses:
            return _NOTHING_CARRIED
        if previous.basis.makes_calls or basis.makes_calls:  # a call of MCP continues no conversation
            return _NOTHING_CARRIED
        before = previous.messages
        messages = before.first(unchanged(before.items, tuple(value.messages)) if same is None else same)
        changed = {kind for kind, read in basis.session.items() if previous.basis.session[kind] != read}
        changed |= {kind for kind, read in self._request_reads.items() if previous.was_retold(read)}
        if finder.data.upto(len(before.items)) != previous.basis.data:
            changed |= _CALLS
        # Tools are judged in the context of the first message: if that is new, so are they.
        is_same = messages.items and ViewKind.TOOL_DEFINITION.value not in changed and not previous.tools.unstable
        tools = previous.tools.first(unchanged(previous.tools.items, tuple(value.tools)) if is_same else 0)
        return CarriedOver(settled=previous, tools=tools, messages=messages, again=frozenset(changed))

    def _views_to_judge(self, value: Traffic, carried: CarriedOver) -> _PassViews:
        if not isinstance(value, Request):
            return _PassViews(list(iter_views(value, capabilities=self._capabilities)), [], [])
        messages = carried.messages
        tools = range(len(carried.tools.items), len(value.tools))
        head = list(envelope_views(value, tools, capabilities=self._capabilities))
        items = {item for kind in carried.again for item in messages.kinds.get(kind, ())}
        again = [
            (place, view)
            for item in sorted(items.union(messages.unstable))
            for place, view in self._settled_views(value, carried, item)
            if item in messages.unstable or view.kind.value in carried.again
        ]
        new = range(len(messages.items), len(value.messages))
        return _PassViews(head, again, [self._views(value, at) for at in new])

    def _views(self, value: Request, place: int) -> list[MessageView]:
        return list(views_at(value, place, capabilities=self._capabilities))

    def _settled_views(self, value: Request, carried: CarriedOver, item: int) -> Iterable[tuple[int, MessageView]]:
        """The views of a carried-over message, each with the index of its line in `carried.messages`."""
        return enumerate(self._views(value, item), carried.messages.start_of(item))

    # -- where the values of calls came from ---------------------------------------------------------------------------

    def _origins(
        self, value: Traffic, history: History, schemas: SchemaChecks, carried: CarriedOver, to_judge: _PassViews
    ) -> Generator[Awaited, Any, tuple[Origins, Trail | None]]:
        """The origins of the calls in `to_judge`, and the trail that they were read from.

        Carried-over calls whose origins have changed are added to `to_judge.again`.
        """
        kinds = carried.messages.kinds
        settled = kinds.get(_CALL, ())
        if not settled and not any(view.kind is ViewKind.TOOL_CALL for view in to_judge.all()):
            return _NO_ORIGINS, None
        if not isinstance(value, Request):
            return (yield lambda: schemas.look(value, history.origins(value))), None
        new = [at for at in range(len(carried.messages.items), len(value.messages)) if may_call(value.messages[at])]
        last = max((places[-1] for places in (*(kinds.get(kind, ()) for kind in _HOLDING), new) if places), default=-1)
        trail: Trail = yield partial(history.read, tuple(value.messages), last + 1)
        doubtful = settled[bisect_left(settled, _known_until(value, trail, schemas, carried)) :]
        already = dict(to_judge.again)
        again = {carried.messages.item_of(place) for place in already}
        wanted = (at for at in sorted({*doubtful, *again, *new}) if at <= last)
        found = {f"messages[{at}].{path}": known for at in wanted for path, known in trail.origins[at].items()}
        origins: Origins = yield partial(schemas.look, value, found)
        to_judge.again += [
            (place, view)
            for item in doubtful
            for place, view in self._settled_views(value, carried, item)
            if view.kind is ViewKind.TOOL_CALL
            and place not in already
            and origins.get(view.path) != carried.messages.lines[place].origins
        ]
        return origins, trail

    # -- the result ----------------------------------------------------------------------------------------------------

    def _result(self, made: _Pass, skipped: tuple[Skipped, ...]) -> PassResult:
        value, basis, carried, lines, _ = made
        head, fresh = _present(lines.head), _present(chain.from_iterable(lines.fresh))
        old, before = carried.messages.lines, carried.messages.lines_with_hits()
        if lines.again:
            old = tuple(_present(lines.again.get(place, line) for place, line in enumerate(old)))
            before = [line for line in old if line.hits]
        is_same = all(
            line is not None and line.hits == carried.messages.lines[place].hits for place, line in lines.again.items()
        )
        views = (*head[:1], *carried.tools.lines, *head[1:], *old, *fresh)
        of_rest = [line for line in (*head[:1], *carried.tools.lines_with_hits(), *head[1:]) if line.hits]
        of_new = [line for line in fresh if line.hits]
        labels, label_sources = self._labels(value, basis, carried, before, is_same=is_same)
        more, more_sources = added_labels(of_new, value, basis.lifted)
        others, other_sources = added_labels(of_rest, value, basis.lifted)
        labels, label_sources = {**labels, **more}, label_sources | more_sources
        done = _edits_of(carried) if is_same else None
        return trusted(
            PassResult,
            views=views,
            hit=[*of_rest, *before, *of_new],
            new=[*of_rest, *of_new] if done is not None else [*of_rest, *before, *of_new],
            done=done,
            coverage=trusted(
                Coverage,
                produced=len(views) + len(skipped),
                evaluated=len(views),
                skipped=skipped,
                reused=len(carried.tools.lines) + len(carried.messages.lines) - len(lines.again),
            ),
            labels={**labels, **others},
            label_sources=label_sources | other_sources,
            settle=partial(self._settled, made, value, labels, label_sources) if isinstance(value, Request) else None,
        )

    def _labels(
        self, value: Traffic, basis: PassBasis, carried: CarriedOver, hit: Sequence[ViewDecision], *, is_same: bool
    ) -> tuple[Labels, LabelSources]:
        """The labels that rules added to carried-over messages."""
        settled = carried.settled
        if settled is not None and carried.whole and is_same and settled.basis.lifted == basis.lifted:
            return settled.labels, settled.label_sources
        return added_labels(hit, value, basis.lifted)

    def _settled(
        self,
        made: _Pass,
        value: Request,
        labels: Labels,
        label_sources: LabelSources,
        edited: Request,
        removed: Sequence[str],
    ) -> SettledPass:
        """What the next turn can carry over from this pass over a request."""
        carried, lines = made.carried, made.lines
        tools = carried.tools.extended(
            tuple(value.tools), [[line] for line in _as_reused(lines.head[1:])], self._watched
        )
        again = dict(zip(lines.again, _as_reused(lines.again.values()), strict=True))
        messages = carried.messages.patched(again) if again else carried.messages
        messages = messages.extended(tuple(value.messages), list(map(_as_reused, lines.fresh)), self._watched)
        counted = any(depends_on_later(line.hits) for line in messages.lines_with_hits())
        return SettledPass(
            basis=made.basis,
            tools=tools,
            messages=messages,
            trail=made.trail,
            labels=labels,
            label_sources=label_sources,
            edited=None if counted else tuple(edited.messages),
            removed=tuple(path for path in removed if path.startswith("messages[")),
        )


def _edits_of(carried: CarriedOver) -> _EditedMessages | None:
    """The carried-over messages after their edits; None if the edits have to be applied again."""
    settled = carried.settled
    if settled is None or settled.edited is None or (settled.removed and not carried.whole):
        return None
    if settled.edited is settled.messages.items:
        return _EditedMessages((), ())
    return _EditedMessages(settled.edited[: len(carried.messages.items)], settled.removed)


def _known_until(value: Request, trail: Trail, schemas: SchemaChecks, carried: CarriedOver) -> int:
    """The index of the first message whose calls may have other origins now than when they were judged.

    It is 0 whenever the tools changed, since edited calls are then held against their tools' schemas again.
    """
    settled = carried.settled
    if settled is None or settled.trail is not trail:
        return 0
    is_same = len(carried.tools.items) == len(settled.tools.items) == len(value.tools)
    return schemas.first_new(value) if is_same else 0


def _present(lines: Iterable[ViewDecision | None]) -> list[ViewDecision]:
    return [line for line in lines if line is not None]


def _as_reused(lines: Iterable[ViewDecision | None]) -> list[ViewDecision]:
    """The lines, marked as reused, for the next turn to carry over."""
    return [dataclasses.replace(line, reused=True) for line in _present(lines)]


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


__all__ = ["Awaited", "Batch", "Judge", "PassResult"]
