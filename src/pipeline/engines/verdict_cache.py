"""An engine around another one that remembers verdicts, so that judging turn N costs what is new in turn N [C14].

A verdict is remembered only of rules that read nothing that changes from turn to turn (local rules), under a digest of
all that they read. Spec: docs/spec/policies.md [POL-29].
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from cmf import _native
from cmf.enums import Capability
from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.decisions.decision import NO_EFFECTS, Effect
from pipeline.decisions.engine import Decided, Engine, EngineResult
from pipeline.policy.entrypoints import Parts

MAX_VERDICTS: Final = 16_384  # 2 MB; four times as many take 9 MB
LONG: Final = 512  # bytes of shared context from which on parsing only what is needed of it saves time
MAX_EMPTY: Final = 200  # bytes; a session block without any facts is shorter
MAX_EFFECTS: Final = 64  # a verdict with more is not kept: it would take as much memory as the part that it is about

Verdict: TypeAlias = Mapping[str, Sequence[Any]]
_Tree: TypeAlias = Mapping[str, Any] | None  # of such trees; None is everything

_EFFECTS: Final = tuple(effect.value for effect in Effect)
_NOTHING: Final = Decided(NO_EFFECTS)  # most answers


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters: views requested, evaluations by the engine, verdicts reused."""

    views: int
    evaluations: int
    reused: int


class _Way(NamedTuple):
    """How views are asked about at one entrypoint.

    Attributes:
        local: the ids of the local rules, whose verdicts are remembered.
        named: what a key begins with: engine, capabilities and entrypoint.
        fresh: the engine's entrypoints for a view of which no verdict is remembered.
        fast: how many of `fresh`, the first ones, ask the local rules.
        rest: the engine's entrypoints for a view whose verdict of the local rules is remembered.
        read: what the local rules read of the shared context, as a tree of keys; None if all of it counts.
    """

    local: frozenset[str]
    named: bytes
    fresh: tuple[str, ...]
    fast: int
    rest: tuple[str, ...]
    read: _Tree


class _View(NamedTuple):
    """One view of a batch: the key of its verdict, the verdict if remembered, and the indices of its answers."""

    way: _Way
    key: bytes | None
    known: Verdict | None
    asked: range


class ReusingEngine:
    """An engine that asks another one only for what it does not know yet. As safe between threads as that one.

    Args:
        engine: what evaluates.
        parts: for each entrypoint how it can be asked in parts (`PolicySet.parts`).
        capabilities: what the views show; verdicts for other capabilities are others.
        max_verdicts: how many are remembered; the one that was not used for longest goes first. 0 remembers none.
    """

    def __init__(
        self,
        engine: Engine,
        parts: Mapping[str, Parts],
        capabilities: Iterable[Capability],
        *,
        max_verdicts: int = MAX_VERDICTS,
    ) -> None:
        self._engine = engine
        self._max = max_verdicts
        # Those that one evaluation answers: nothing is put together, and what it gives is what is given.
        self._whole = frozenset(name for name, one in parts.items() if one.slow is None and not one.fast)
        # What local rules read of what is shared; never the session, which holds more with each turn [SES-7].
        self._names = sorted({path[0] if path else "session" for one in parts.values() for path in one.reads})
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        seed = "\n".join([engine.revision, *sorted(capabilities)])
        self._ways = {name: _way(one, seed) for name, one in parts.items()}
        self._alone = {name: _way(one.alone, seed) for name, one in parts.items() if one.alone is not None}
        self._lock = threading.Lock()
        self._counts = [0, 0, 0]

    @property
    def revision(self) -> str:
        """That of the engine within."""
        return self._engine.revision

    @property
    def counts(self) -> Counts:
        """The counters since this engine was created."""
        with self._lock:
            return Counts(*self._counts)

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """One result per view, in order, equal to what the engine within gives; see `Engine.evaluate`."""
        plan, names, documents = self._plan(entrypoints, shared, views)
        answers = self._engine.evaluate(names, shared, documents, timeout_seconds=timeout_seconds) if names else []
        return self._results(plan, answers)

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """The same, without keeping the event loop from its other work."""
        plan, names, documents = self._plan(entrypoints, shared, views)
        ask = self._engine.aevaluate(names, shared, documents, timeout_seconds=timeout_seconds) if names else None
        answers = [] if ask is None else await ask
        return self._results(plan, answers)

    def close(self) -> None:
        """Let go of what the engine within holds."""
        self._engine.close()

    def _plan(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes]
    ) -> tuple[list[_View] | None, Sequence[str], Sequence[bytes]]:
        """A `_View` for each view, and what to ask the engine: entrypoints and views, of the same length.

        No `_View` where the answers are what the engine answers.
        """
        if not self._max and self._whole.issuperset(entrypoints):
            self._count(len(views), len(views), 0)
            return None, entrypoints, views
        value, is_alone = _read(shared, self._names) if self._max or self._alone else (None, False)
        ways = {name: self._way(name, is_alone=is_alone) for name in set(entrypoints)}
        begun = {name: _begun(way, value) if way.local and self._max else None for name, way in ways.items()}
        keys = [_key(begun[name], view) for name, view in zip(entrypoints, views, strict=True)]
        plan: list[_View] = []
        names: list[str] = []
        documents: list[bytes] = []
        verdicts, reused = self._verdicts, 0
        with self._lock:
            for entrypoint, view, key in zip(entrypoints, views, keys, strict=True):
                way, begin = ways[entrypoint], len(names)
                known = None if key is None else verdicts.get(key)
                if key is not None and known is not None:
                    verdicts.move_to_end(key)
                    reused += 1
                questions = way.fresh if known is None else way.rest
                names += questions
                documents += [view] * len(questions)
                plan.append(_View(way, key, known, range(begin, len(names))))
        self._count(len(plan), len(names), reused)
        return plan, names, documents

    def _count(self, views: int, evaluations: int, reused: int) -> None:
        with self._lock:
            counts = self._counts
            counts[0] += views
            counts[1] += evaluations
            counts[2] += reused

    def _way(self, entrypoint: str, *, is_alone: bool) -> _Way:
        """How views are asked about at `entrypoint`; one that cannot be asked in parts is asked as it is."""
        known = self._alone.get(entrypoint) if is_alone else None
        return known or self._ways.get(entrypoint) or _Way(frozenset(), b"", (entrypoint,), 0, (), None)

    def _results(self, plan: Sequence[_View] | None, answers: list[EngineResult]) -> list[EngineResult]:
        if plan is None:
            return answers
        learnt: dict[bytes, Verdict] = {}
        results = [_result(one, answers, learnt) for one in plan]
        if learnt:
            with self._lock:
                self._verdicts.update(learnt)
                while len(self._verdicts) > self._max:
                    self._verdicts.popitem(last=False)
        return results


def _way(parts: Parts, seed: str) -> _Way:
    slow = () if parts.slow is None else (parts.slow,)
    fast = parts.fast or (parts.whole,)
    # The count is part of it because more rules are local where the session is empty.
    named = f"{seed}\n{parts.whole}\n{len(parts.local)}\n".encode()
    return _Way(parts.local, named, (*fast, *slow), len(fast), (*parts.rest, *slow), _tree(parts.reads))


def _tree(paths: Iterable[tuple[str, ...]]) -> _Tree:
    """The paths as a tree of keys, without those below another one; None if one of them is the root."""
    tree: dict[str, Any] = {}
    for path in sorted(paths, key=len, reverse=True):
        if not path:
            return None
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = None
    return tree


def _key(begun: hashlib.blake2b | None, view: bytes) -> bytes | None:
    """The key of a verdict: a digest of the view and of all that the local rules read of its shared context.

    None if there is no such digest (`begun`). The whole view is digested, not only what the rules read of it: finding
    that out means parsing it, which takes as long as most rules. A view that only moved is therefore asked about again.
    """
    if begun is None:
        return None
    digest = begun.copy()
    digest.update(view)
    return digest.digest()


def _result(one: _View, answers: Sequence[EngineResult], learnt: dict[bytes, Verdict]) -> EngineResult:
    """The result of one view: its answers and its remembered verdict together. A new verdict is put into `learnt`."""
    way, key, known, asked = one
    values: list[Verdict] = []
    for place in asked:
        answer = answers[place]
        if not isinstance(answer, Decided) or not _is_verdict(answer.value):
            return answer  # one part that is not decided leaves the view undecided
        values.append(answer.value)
    together = _together(values if known is None else [*values, known])
    if known is None and key is not None:
        verdict = together if together is NO_EFFECTS else _of_rules(_together(values[: way.fast]), way.local)
        if verdict is NO_EFFECTS or sum(map(len, verdict.values())) <= MAX_EFFECTS:
            learnt[key] = verdict
    return _NOTHING if together is NO_EFFECTS else Decided(together)


def _read(shared: bytes, names: list[str]) -> tuple[dict[str, Any] | None, bool]:
    """What the views of one question share, as far as it is read; and whether its session is empty [POL-29].

    Only the members `names` are parsed, unless it is short, or the session is among them or may be empty, which has to
    be told. None if it is no object, which the engine refuses.
    """
    cut = None
    if len(shared) > LONG and "session" not in names:
        held = _native.picked(shared, ["session"])
        cut = None if held is None or len(held) <= MAX_EMPTY else _native.picked(shared, names)
    try:
        value = loads(shared if cut is None else cut)
    except DecodeError:
        value = None
    if not isinstance(value, dict):
        return None, False
    session = value.get("session", {})
    return value, cut is None and isinstance(session, dict) and not any(session.values())


def _begun(way: _Way, value: dict[str, Any] | None) -> hashlib.blake2b | None:
    """A digest of the entrypoint and of what its local rules read of `value`, to be updated with the view.

    None if there is no such value, or if it holds a number that `orjson` cannot write.
    """
    if value is None:
        return None
    try:
        written = orjson.dumps(_taken(value, way.read), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None  # an integer beyond 64 bits
    return hashlib.blake2b(b"%b%b\n" % (way.named, written), digest_size=16)


def _taken(value: Any, tree: _Tree) -> Any:
    """The parts of `value` that the tree names. A missing one is left out and not null, since null is a value."""
    if tree is None or not isinstance(value, dict):
        return value
    return {name: _taken(value[name], tree[name]) for name in value.keys() & tree.keys()}


def _is_verdict(value: Any) -> bool:
    if value is NO_EFFECTS:
        return True
    return isinstance(value, dict) and all(isinstance(value.get(name), list) for name in _EFFECTS)


def _of_rules(value: Verdict, rules: frozenset[str]) -> Verdict:
    verdict = {
        name: tuple([effect for effect in effects if isinstance(effect, dict) and effect.get("rule") in rules])
        if (effects := value[name])
        else ()
        for name in _EFFECTS
    }
    return verdict if any(verdict.values()) else NO_EFFECTS


def _together(values: Sequence[Verdict]) -> Verdict:
    """The union of the parts' effects, each set in the order in which Rego lists sets."""
    if values.count(NO_EFFECTS) == len(values):  # most answers
        return NO_EFFECTS
    values = [value for value in values if value is not NO_EFFECTS]
    if len(values) == 1:
        return {name: list(effects) for name, effects in values[0].items()}
    together: dict[str, list[Any]] = {}
    for name in _EFFECTS:
        effects = [effect for value in values for effect in value[name]]
        together[name] = sorted(effects, key=_rank) if len(effects) > 1 else effects
    return together


def _rank(value: Any) -> Any:
    """A key that sorts JSON values as Rego does: by type, objects by their keys and values in turn."""
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int() | float():
            return (2, value)
        case str():
            return (3, value.encode())
        case list():
            return (4, [_rank(item) for item in value])
        case _:
            keys = sorted(value, key=str.encode)
            return (5, [(_rank(key), _rank(value[key])) for key in keys])
