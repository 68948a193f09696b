"""One pass of judgement: which views go to the engine, what policy says of each, and what an earlier turn settled.

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

from cmf.decomposition import envelope_views, iter_views, views_at
from cmf.enums import ViewKind
from cmf.errors import CmfError
from cmf.message import Message
from cmf.request import Request
from cmf.value import replace, to_bytes, trusted
from cmf.view import MessageView
from pipeline.data_policy import DataRule
from pipeline.decision import Action, Coverage, Hit, Mode, RuleFacts, Skipped, ViewDecision, hits_of, view_decision
from pipeline.effects import Replacer, apply_edits
from pipeline.engines.base import EngineResult
from pipeline.fitting import Fitting
from pipeline.history import History, Origins, Trail, may_call
from pipeline.origins.provenance import Origin
from pipeline.policies.rule_exceptions import Excuses
from pipeline.policy_input import SessionFacts, shared_bytes, view_bytes
from pipeline.policy_set import PolicySet
from pipeline.settled import NOTHING, Labels, PassBasis, Section, Settled, depends_on_later
from pipeline.stage import Traffic
from pipeline.stamping import Brought, added_labels
from pipeline.unchanged import same_start, unchanged

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


Asked: TypeAlias = Batch | Callable[[], Any]
"""What a run has to wait for: a batch for the engine, or a call that reads from a store."""


@dataclass(frozen=True, slots=True)
class Law:
    """What decides on a view besides the answer of the engine.

    Attributes:
        rules: what METADATA says of each rule.
        excuses: the exceptions and overrides in force. They excuse hits of the set's rules, never the pipeline's.
        data: the pipeline's own rule on what data may be used for.
    """

    rules: Mapping[str, RuleFacts]
    excuses: Excuses
    data: DataRule

    def hits(self, view: MessageView, result: EngineResult, origins: Sequence[Origin] | None) -> tuple[Hit, ...]:
        """The hits on one view."""
        said = hits_of(result, self.rules, view.kind)
        if said and self.excuses.active:
            said = self.excuses(said, view.uri)
        more = self.data(view, origins)
        return (*said, *more) if more else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a pass takes over from the turn before, and what of that is judged again.

    Attributes:
        settled: what the same pass settled in the turn before; None where nothing is taken over.
        tools, messages: those at the beginning of the request that are the same as then, with their decisions.
        again: the kinds of view whose rules read something that is different now; such views are judged again.
    """

    settled: Settled | None = None
    tools: Section = NOTHING
    messages: Section = NOTHING
    again: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether all messages of the turn before are taken over."""
        return self.settled is not None and len(self.messages.items) == len(self.settled.messages.items)


_ANEW: Final = Start()


class _Edited(NamedTuple):
    """The messages that are taken over, as edits left them, and the paths of what edits removed from them."""

    messages: tuple[Message, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of one pass.

    Attributes:
        views: a decision per view, in order.
        hit: those of `views` with hits.
        new: those of `hit` whose edits are still to be carried out.
        done: the messages whose edits were carried out in an earlier turn; None where no such edits are known.
        coverage: how many views were evaluated.
        labels: the labels that rules added, by the path of the message.
        brought: the same labels, each with its source event.
        settle: given the request as edits left it and the paths that they removed, what the next turn can take over;
            None where no request was judged.
    """

    views: tuple[ViewDecision, ...]
    hit: Sequence[ViewDecision]
    new: Sequence[ViewDecision]
    done: _Edited | None = None
    coverage: Coverage
    labels: Labels
    brought: Brought
    settle: Callable[[Request, Sequence[str]], Settled] | None = None

    @property
    def stops(self) -> bool:
        """Whether the run ends here as a refusal."""
        # A rule that wants approval does not end it: a person is asked only about what was judged to the last pass.
        return any(view.outcome is Action.REFUSE for view in self.hit) or not self.coverage.full

    def edited(self, value: Traffic, mode: Mode, replacer: Replacer, gone: list[str]) -> Traffic:
        """`value` with all edits carried out; the paths of what they removed are added to `gone`. See `apply_edits`."""
        if self.done is not None and isinstance(value, Request):
            count = len(self.done.messages)
            if same_start(self.done.messages, value.messages) < count:
                value = replace(value, messages=(*self.done.messages, *value.messages[count:]))
            gone += self.done.gone
        return apply_edits(value, self.new, mode, replacer, gone)


@dataclass(slots=True)
class _Asking:
    """The views that are judged in this pass."""

    head: list[MessageView]  # of the request itself and its new tools; of a message or response, all views
    again: list[tuple[int, MessageView]]  # of messages that are taken over, with the index in `Start.messages.lines`
    fresh: list[list[MessageView]]  # of the new messages, a list for each

    def all(self) -> list[MessageView]:
        return [*self.head, *(view for _, view in self.again), *chain.from_iterable(self.fresh)]


@dataclass(slots=True)
class _Lines:
    """The decisions on the views of an `_Asking`, in the same order; None where the engine gave no answer."""

    head: list[ViewDecision | None]
    again: dict[int, ViewDecision | None]
    fresh: list[list[ViewDecision | None]]

    @classmethod
    def of(cls, asking: _Asking, decided: Iterable[ViewDecision | None]) -> _Lines:
        each = iter(decided)
        head = [next(each) for _ in asking.head]
        again = {place: next(each) for place, _ in asking.again}
        return cls(head, again, [[next(each) for _ in views] for views in asking.fresh])


class _Pass(NamedTuple):
    """One pass: what was judged, by what, what it took over, its decisions, and the origins of calls (None: unread)."""

    value: Traffic
    basis: PassBasis
    start: Start
    lines: _Lines
    trail: Trail | None


class Judge:
    """Judges traffic under one policy set. It calls no engine: it yields what to ask, and is sent the answers."""

    def __init__(self, policies: PolicySet, mode: Mode) -> None:
        self._capabilities = policies.capabilities
        self._entrypoints = {kind: policies.entrypoint(kind) for kind in ViewKind}
        self._reads = policies.session_reads
        self._reads_events = any(path[:1] in ((), ("events",)) for paths in self._reads.values() for path in paths)
        self._watched = frozenset({*_CALLS, *_HOLDING, *self._reads})
        self._mode = mode

    def __call__(
        self,
        value: Traffic,
        session: SessionFacts,
        history: History,
        law: Law,
        fitting: Fitting,
        kept: Settled | None,
        same: int | None = None,
        *,
        keeps: bool = True,
    ) -> Generator[Asked, Any, Judged]:
        """One pass over `value`.

        `kept` is what the same pass settled in the turn before, if there was one, and `same` how many messages at the
        beginning are those of that turn (None to find out). `keeps` says whether a later turn can go on from this one.
        """
        basis = self._basis(value, session, law, keeps=keeps)
        start = self._start(value, law, basis, kept, same)
        try:
            asking = self._asking(value, start)
        except CmfError as error:
            coverage = Coverage(produced=1, evaluated=0, skipped=(Skipped(path=error.path, reason=error.code),))
            return Judged(views=(), hit=(), new=(), coverage=coverage, labels={}, brought=frozenset())
        origins, trail = yield from self._origins(value, history, fitting, start, asking)
        views = asking.all()
        decided: list[ViewDecision | None] = [None] * len(views)
        for shared, places in _by_context(views, session).items():
            some = [views[place] for place in places]
            came = [origins.get(view.path) for view in some]
            entrypoints = [self._entrypoints[view.kind] for view in some]
            answers = yield Batch(entrypoints, shared, list(map(view_bytes, some, came)))
            for place, view, answer, known in zip(places, some, answers, came, strict=False):
                decided[place] = view_decision(view, law.hits(view, answer, known), self._mode, known)
        skipped = tuple(
            Skipped(path=view.path, reason="engine.no-answer")
            for view, line in zip(views, decided, strict=True)
            if line is None
        )
        return self._judged(_Pass(value, basis, start, _Lines.of(asking, decided), trail), skipped)

    # -- what is taken over --------------------------------------------------------------------------------------------

    def _basis(self, value: Traffic, session: SessionFacts, law: Law, *, keeps: bool) -> PassBasis:
        if not (keeps and isinstance(value, Request)):  # nothing is taken over from it
            return trusted(PassBasis, session={}, excuses=(), lifted=session.lifted, data=None)
        count, read = len(value.messages), self._read_of(session)
        return PassBasis(session=read, excuses=law.excuses.active, lifted=session.lifted, data=law.data.upto(count))

    def _read_of(self, session: SessionFacts) -> dict[str, bytes]:
        """For each kind of view whose rules read the session: what they read of it, as JSON bytes."""
        block = session.whole(events=self._reads_events) if self._reads else {}
        read = {paths: to_bytes([_at(block, path) for path in paths]) for paths in set(self._reads.values())}
        return {kind: read[paths] for kind, paths in self._reads.items()}

    def _start(self, value: Traffic, law: Law, basis: PassBasis, kept: Settled | None, same: int | None) -> Start:
        if kept is None or not isinstance(value, Request) or kept.basis.excuses != basis.excuses:
            return _ANEW
        messages = kept.messages.upto(unchanged(kept.messages.items, tuple(value.messages)) if same is None else same)
        changed = {kind for kind, read in basis.session.items() if kept.basis.session[kind] != read}
        if law.data.upto(len(kept.messages.items)) != kept.basis.data:
            changed |= _CALLS
        # Tools are judged in the context of the first message: if that is new, so are they.
        is_same = messages.items and ViewKind.TOOL_DEFINITION.value not in changed and not kept.tools.loose
        tools = kept.tools.upto(unchanged(kept.tools.items, tuple(value.tools)) if is_same else 0)
        return Start(settled=kept, tools=tools, messages=messages, again=frozenset(changed))

    def _asking(self, value: Traffic, start: Start) -> _Asking:
        if not isinstance(value, Request):
            return _Asking(list(iter_views(value, capabilities=self._capabilities)), [], [])
        messages = start.messages
        tools = range(len(start.tools.items), len(value.tools))
        head = list(envelope_views(value, tools, capabilities=self._capabilities))
        items = {item for kind in start.again for item in messages.kinds.get(kind, ())}
        again = [
            (place, view)
            for item in sorted(items.union(messages.loose))
            for place, view in self._settled_views(value, start, item)
            if item in messages.loose or view.kind.value in start.again
        ]
        return _Asking(head, again, [self._views(value, at) for at in range(len(messages.items), len(value.messages))])

    def _views(self, value: Request, place: int) -> list[MessageView]:
        return list(views_at(value, place, capabilities=self._capabilities))

    def _settled_views(self, value: Request, start: Start, item: int) -> Iterable[tuple[int, MessageView]]:
        """The views of a message that is taken over, each with the index of its line in `start.messages`."""
        return enumerate(self._views(value, item), start.messages.start_of(item))

    # -- where the values of calls came from ---------------------------------------------------------------------------

    def _origins(
        self, value: Traffic, history: History, fitting: Fitting, start: Start, asking: _Asking
    ) -> Generator[Asked, Any, tuple[Origins, Trail | None]]:
        """The origins of the calls in `asking`, and what read them.

        Calls that are taken over but have other origins now are added to `asking.again`.
        """
        kinds = start.messages.kinds
        settled = kinds.get(_CALL, ())
        if not settled and not any(view.kind is ViewKind.TOOL_CALL for view in asking.all()):
            return _NO_ORIGINS, None
        if not isinstance(value, Request):
            return fitting.look(value, (yield partial(history.origins, value))), None
        new = [at for at in range(len(start.messages.items), len(value.messages)) if may_call(value.messages[at])]
        last = max((places[-1] for places in (*(kinds.get(kind, ()) for kind in _HOLDING), new) if places), default=-1)
        trail: Trail = yield partial(history.read, tuple(value.messages), last + 1)
        doubtful = settled[bisect_left(settled, _known_until(value, trail, fitting, start)) :]
        already = dict(asking.again)
        again = {start.messages.item_of(place) for place in already}
        wanted = (at for at in sorted({*doubtful, *again, *new}) if at <= last)
        found = {f"messages[{at}].{path}": known for at in wanted for path, known in trail.origins[at].items()}
        origins = fitting.look(value, found)
        asking.again += [
            (place, view)
            for item in doubtful
            for place, view in self._settled_views(value, start, item)
            if view.kind is ViewKind.TOOL_CALL
            and place not in already
            and origins.get(view.path) != start.messages.lines[place].origins
        ]
        return origins, trail

    # -- what came of it -----------------------------------------------------------------------------------------------

    def _judged(self, made: _Pass, skipped: tuple[Skipped, ...]) -> Judged:
        value, basis, start, lines, _ = made
        head, fresh = _given(lines.head), _given(chain.from_iterable(lines.fresh))
        old, before = start.messages.lines, start.messages.hit()
        if lines.again:
            old = tuple(_given(lines.again.get(place, line) for place, line in enumerate(old)))
            before = [line for line in old if line.hits]
        is_same = all(
            line is not None and line.hits == start.messages.lines[place].hits for place, line in lines.again.items()
        )
        views = (*head[:1], *start.tools.lines, *head[1:], *old, *fresh)
        of_rest = [line for line in (*head[:1], *start.tools.hit(), *head[1:]) if line.hits]
        of_new = [line for line in fresh if line.hits]
        labels, brought = self._labels(value, basis, start, before, is_same=is_same)
        more, brought_more = added_labels(of_new, value, basis.lifted)
        others, brought_others = added_labels(of_rest, value, basis.lifted)
        labels, brought = {**labels, **more}, brought | brought_more
        done = _edits_of(start) if is_same else None
        return trusted(
            Judged,
            views=views,
            hit=[*of_rest, *before, *of_new],
            new=[*of_rest, *of_new] if done is not None else [*of_rest, *before, *of_new],
            done=done,
            coverage=trusted(
                Coverage,
                produced=len(views) + len(skipped),
                evaluated=len(views),
                skipped=skipped,
                reused=len(start.tools.lines) + len(start.messages.lines) - len(lines.again),
            ),
            labels={**labels, **others},
            brought=brought | brought_others,
            settle=partial(self._settled, made, value, labels, brought) if isinstance(value, Request) else None,
        )

    def _labels(
        self, value: Traffic, basis: PassBasis, start: Start, hit: Sequence[ViewDecision], *, is_same: bool
    ) -> tuple[Labels, Brought]:
        """The labels that rules added to messages that are taken over."""
        settled = start.settled
        if settled is not None and start.whole and is_same and settled.basis.lifted == basis.lifted:
            return settled.labels, settled.brought
        return added_labels(hit, value, basis.lifted)

    def _settled(
        self, made: _Pass, value: Request, labels: Labels, brought: Brought, edited: Request, gone: Sequence[str]
    ) -> Settled:
        """What is kept of the pass over a request, for the next turn."""
        start, lines = made.start, made.lines
        tools = start.tools.then(tuple(value.tools), [[line] for line in _taken(lines.head[1:])], self._watched)
        again = dict(zip(lines.again, _taken(lines.again.values()), strict=True))
        messages = start.messages.patched(again) if again else start.messages
        messages = messages.then(tuple(value.messages), list(map(_taken, lines.fresh)), self._watched)
        counted = any(depends_on_later(line.hits) for line in messages.hit())
        return Settled(
            basis=made.basis,
            tools=tools,
            messages=messages,
            trail=made.trail,
            labels=labels,
            brought=brought,
            edited=None if counted else tuple(edited.messages),
            gone=tuple(path for path in gone if path.startswith("messages[")),
        )


def _edits_of(start: Start) -> _Edited | None:
    """The messages that are taken over, as edits left them; None where the edits have to be carried out again."""
    settled = start.settled
    if settled is None or settled.edited is None or (settled.gone and not start.whole):
        return None
    if settled.edited is settled.messages.items:
        return _Edited((), ())
    return _Edited(settled.edited[: len(start.messages.items)], settled.gone)


def _known_until(value: Request, trail: Trail, fitting: Fitting, start: Start) -> int:
    """The index of the first message whose calls may have other origins now than when they were judged.

    It is 0 whenever the tools changed, since edited calls are then held against their tools' schemas again.
    """
    settled = start.settled
    if settled is None or settled.trail is not trail:
        return 0
    is_same = len(start.tools.items) == len(settled.tools.items) == len(value.tools)
    return fitting.first_new(value) if is_same else 0


def _given(lines: Iterable[ViewDecision | None]) -> list[ViewDecision]:
    return [line for line in lines if line is not None]


def _taken(lines: Iterable[ViewDecision | None]) -> list[ViewDecision]:
    """The lines, marked as reused: as the next turn has them if it takes them over."""
    return [dataclasses.replace(line, reused=True) for line in _given(lines)]


def _at(block: Mapping[str, Any], path: Sequence[str]) -> list[Any]:
    """A list of the one value at `path`; an empty list where there is none, so that null is told from absent."""
    found: Any = block
    for step in path:
        if not isinstance(found, Mapping) or step not in found:
            return []
        found = found[step]
    return [found]


def _by_context(views: Sequence[MessageView], session: SessionFacts) -> dict[bytes, list[int]]:
    """The indices of the views by the JSON of the context that they share: each group is one batch for the engine."""
    batches: dict[bytes, list[int]] = {}
    places: dict[int, list[int]] = {}
    blocks: dict[tuple[bool, bool], bytes] = {}
    for index, view in enumerate(views):
        key = view.scope.context_id  # the same for all messages without extensions of their own: writes their JSON once
        if key not in places:
            places[key] = batches.setdefault(shared_bytes(view, session, blocks), [])
        places[key].append(index)
    return batches


__all__ = ["Asked", "Batch", "Judge", "Judged", "Law"]
