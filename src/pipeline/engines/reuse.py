"""Verdicts on what did not change are remembered: judging turn N costs what is new in turn N [C14].

Spec: docs/spec/policies.md [POL-29]. Around an engine, and an engine itself. Only pure verdicts are kept, of rules that
read nothing that changes from turn to turn, under a digest of all that they read.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from cmf import _native
from cmf.codec import loads
from cmf.enums import Capability
from cmf.errors import DecodeError
from pipeline.decision import NO_EFFECTS, Effect
from pipeline.engines.base import Decided, Engine, EngineResult
from pipeline.policies.entrypoints import Parts

MAX_VERDICTS: Final = 16_384  # 2 MB; four times as many are 9
MAX_SHAPES: Final = 1_024  # of what is shared, by its kinds of views, of which the paths are kept that can be there
LONG: Final = 512  # bytes of what is shared, of which it is worth looking what has to be parsed
MAX_EMPTY: Final = 200  # bytes of a session that says nothing, and more
MAX_EFFECTS: Final = 64  # a verdict with more is not kept: it would hold as much as the part that it is about

Verdict: TypeAlias = Mapping[str, Sequence[Any]]

_EFFECTS: Final = tuple(effect.value for effect in Effect)
_ABSENT: Final = object()
_NOTHING: Final = Decided(NO_EFFECTS)  # most answers


@dataclass(frozen=True, slots=True)
class Counts:
    """What was asked so far: of views, of evaluations that the engine made, and of verdicts used again."""

    views: int
    evaluations: int
    reused: int


@dataclass(slots=True)
class _View:
    """One view on its way: what is still asked for it, by place, and what is known already."""

    entrypoint: str
    parts: Parts | None
    key: bytes | None = None
    known: Verdict | None = None
    asked: tuple[int, ...] = ()


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
        self._parts = parts
        self._seed = "\n".join([engine.revision, *sorted(capabilities)]).encode()
        self._max = max_verdicts
        # Those that one evaluation answers: nothing is put together, and what it gives is what is given.
        self._whole = frozenset(name for name, one in parts.items() if one.slow is None and not one.fast)
        # What local rules read of what is shared; never the session, which holds more with each turn [SES-7].
        self._names = sorted({path[0] if path else "session" for one in parts.values() for path in one.reads})
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        self._there: dict[tuple[str, int, tuple[str, ...]], tuple[tuple[str, ...], ...]] = {}
        self._lock = threading.Lock()
        self._counts = [0, 0, 0]

    @property
    def revision(self) -> str:
        """That of the engine within."""
        return self._engine.revision

    @property
    def counts(self) -> Counts:
        """How much was asked, evaluated and reused since this engine was made."""
        with self._lock:
            return Counts(*self._counts)

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """One result per view, in order, equal to what the engine within gives; see `Engine.evaluate`."""
        if not self._max and self._whole.issuperset(entrypoints):
            self._count(len(views), len(views), 0)
            return self._engine.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)
        plan, names, documents = self._plan(entrypoints, shared, views)
        answers = self._engine.evaluate(names, shared, documents, timeout_seconds=timeout_seconds) if names else []
        return self._results(plan, answers)

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """The same, without keeping the event loop from its other work."""
        if not self._max and self._whole.issuperset(entrypoints):
            self._count(len(views), len(views), 0)
            return await self._engine.aevaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)
        plan, names, documents = self._plan(entrypoints, shared, views)
        answers: list[EngineResult] = []
        if names:
            answers = await self._engine.aevaluate(names, shared, documents, timeout_seconds=timeout_seconds)
        return self._results(plan, answers)

    def close(self) -> None:
        """Let go of what the engine within holds."""
        self._engine.close()

    def _plan(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes]
    ) -> tuple[list[_View], list[str], list[bytes]]:
        """What to ask for each view, and the questions to the engine: entrypoints and views, side by side."""
        context = _Context(shared, self._seed, self._there, self._names)
        plan: list[_View] = []
        names: list[str] = []
        documents: list[bytes] = []
        reused = 0
        for entrypoint, view in zip(entrypoints, views, strict=True):
            parts = self._parts.get(entrypoint)
            if parts is not None and parts.alone is not None and context.stands_alone:
                parts = parts.alone
            one = _View(entrypoint, parts)
            if parts is not None and parts.local and self._max:
                one.key = self._key(parts, context, view)
                one.known = self._remembered(one.key)
            questions = _questions(one)
            reused += one.known is not None
            one.asked = tuple(range(len(names), len(names) + len(questions)))
            names += questions
            documents += [view] * len(questions)
            plan.append(one)
        self._count(len(plan), len(names), reused)
        return plan, names, documents

    def _count(self, views: int, evaluations: int, reused: int) -> None:
        with self._lock:
            counts = self._counts
            counts[0] += views
            counts[1] += evaluations
            counts[2] += reused

    def _key(self, parts: Parts, context: _Context, view: bytes) -> bytes | None:
        """A digest of the view, and of all that the local rules read of what it shares; None if that cannot be told.

        Of the view the whole is taken, not what the rules read of it: to find that, it would have to be parsed, which
        takes as long as most rules do. A view that only stands elsewhere is therefore asked about again.
        """
        begun = context.begun(parts)
        if begun is None:
            return None
        digest = begun.copy()
        digest.update(view)
        return digest.digest()

    def _remembered(self, key: bytes | None) -> Verdict | None:
        if key is None:
            return None
        with self._lock:
            verdict = self._verdicts.get(key)
            if verdict is not None:
                self._verdicts.move_to_end(key)
            return verdict

    def _remember(self, key: bytes, verdict: Verdict) -> None:
        with self._lock:
            self._verdicts[key] = verdict
            while len(self._verdicts) > self._max:
                self._verdicts.popitem(last=False)

    def _results(self, plan: Sequence[_View], answers: Sequence[EngineResult]) -> list[EngineResult]:
        return [self._result(one, [answers[place] for place in one.asked]) for one in plan]

    def _result(self, one: _View, answers: Sequence[EngineResult]) -> EngineResult:
        if not answers and one.known is NO_EFFECTS:
            return _NOTHING
        values: list[Verdict] = []
        for answer in answers:
            if not isinstance(answer, Decided) or not _is_verdict(answer.value):
                return answer  # one part that is not decided leaves the view undecided
            values.append(answer.value)
        if one.known is None and one.key is not None and one.parts is not None:
            fast = values[: max(1, len(one.parts.fast))]
            verdict = _of_rules(fast[0] if len(fast) == 1 else _together(fast), one.parts.local)
            if sum(map(len, verdict.values())) <= MAX_EFFECTS:
                self._remember(one.key, verdict)
        together = _together(values if one.known is None else [*values, one.known])
        return _NOTHING if together is NO_EFFECTS else Decided(together)


class _Context:
    """What the views of one question share; parsed only if a key needs it, and then as far as `names` have to be."""

    __slots__ = ("_alone", "_begun", "_bytes", "_names", "_seed", "_there", "_value")

    def __init__(
        self,
        shared: bytes,
        seed: bytes,
        there: dict[tuple[str, int, tuple[str, ...]], tuple[tuple[str, ...], ...]],
        names: list[str] | None = None,
    ) -> None:
        self._bytes = shared
        self._names = ["session"] if names is None else names
        self._there = there
        self._seed = seed
        self._value: Any = _ABSENT
        self._alone = False
        self._begun: dict[str, hashlib.blake2b | None] = {}

    @property
    def stands_alone(self) -> bool:
        """Whether the session says nothing: then it says the same the next time [POL-29]."""
        self._read()
        return self._alone

    def begun(self, parts: Parts) -> hashlib.blake2b | None:
        """A digest of the question, and of what stands at each path that its local rules read; the view is to follow.

        None if that cannot be told.
        """
        if parts.whole not in self._begun:
            self._begun[parts.whole] = self._begin(parts)
        return self._begun[parts.whole]

    def _read(self) -> dict[str, Any] | None:
        """The members that are read, and more; None where it is no object, which the engine refuses."""
        if self._value is _ABSENT:
            cut = self._cut()
            try:
                value = loads(self._bytes if cut is None else cut)
            except DecodeError:
                value = None
            self._value = value if isinstance(value, dict) else None
            if cut is None and self._value is not None:
                session = self._value.get("session", {})
                self._alone = isinstance(session, dict) and not any(session.values())
        held: dict[str, Any] | None = self._value
        return held

    def _cut(self) -> bytes | None:
        """The members that are read alone; None unless the session is among the others, and too long to say nothing."""
        if len(self._bytes) <= LONG or "session" in self._names:
            return None
        session = _native.picked(self._bytes, ["session"])
        return None if session is None or len(session) <= MAX_EMPTY else _native.picked(self._bytes, self._names)

    def _begin(self, parts: Parts) -> hashlib.blake2b | None:
        value = self._read()
        if value is None:
            return None
        # Of most paths even the first step is not there: what is shared is the extensions and the session.
        names, which = tuple(value), (parts.whole, len(parts.local))  # for an empty session more rules are local
        paths = self._there.get((*which, names))
        if paths is None:
            paths = tuple(path for path in parts.reads if not path or path[0] in value)
            if len(self._there) < MAX_SHAPES:
                self._there[*which, names] = paths
        try:
            written = orjson.dumps([*which, names, [_at(value, path) for path in paths]], option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            return None  # it holds more exactly than a key
        return hashlib.blake2b(b"%b%b\n" % (self._seed, written), digest_size=16)


def _at(document: Any, path: tuple[str, ...]) -> list[Any]:
    """[the value], or [] where there is none: null is a value."""
    for step in path:
        if not isinstance(document, dict) or step not in document:
            return []
        document = document[step]
    return [document]


def _questions(one: _View) -> list[str]:
    """The entrypoints to ask for a view, given what is known of it."""
    if one.parts is None:
        return [one.entrypoint]
    slow = [] if one.parts.slow is None else [one.parts.slow]
    if one.known is not None:
        return [*one.parts.rest, *slow]
    return [*(one.parts.fast or (one.parts.whole,)), *slow]


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
    values = [value for value in values if value is not NO_EFFECTS]
    if not values:
        return NO_EFFECTS
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


__all__ = ["MAX_VERDICTS", "Counts", "ReusingEngine"]
