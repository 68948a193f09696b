"""Running stages: in order or together, within their time, and failing closed. Spec: stages.md [STG-10] ff.

A stage is given its own copies of what it may see [STG-16], [STG-17]. What is judged and sent are never these copies:
Python cannot keep a stage from changing a value that it holds (`object.__setattr__`, `dict.__setitem__`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Final, TypeAlias, TypeVar

from cmf.enums import Capability, Tier
from cmf.json.frozen import FrozenList, frozen_mapping
from cmf.json.value import Value, field_default, replace, trusted
from cmf.message.message import Message
from cmf.message.request import Request, Response
from cmf.message.security import HttpHeaders, exposed
from cmf.message.transform import messages_of
from cmf.views.access import veil_for
from cmf.views.tiers import SLOTS, Grants, granted
from pipeline.decisions.cancellation import PROCESS_EXITS, is_cancelled, runs_a_loop
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Effect, Hit, Mode, StageRecord
from pipeline.decisions.errors import ConfigError, where_from
from pipeline.decisions.events import Events, LabelAdded
from pipeline.decisions.stage import (
    MAY_CHANGE,
    MAY_REFUSE,
    Ask,
    OnError,
    Refuse,
    Stage,
    StageCall,
    StageMode,
    StageResult,
    Traffic,
    stage_of,
)
from pipeline.decisions.traffic import drafted, equal_start, labels_of
from pipeline.run.offload import Waiting
from pipeline.run.tier_checks import TierViolationError, merged

_T = TypeVar("_T")
_Steps: TypeAlias = tuple[str | int, ...]

_CONTEXT: Final = {
    "session": Capability.READ_AGENT,
    "agent": SLOTS["agent"].read,
    "headers": SLOTS["http"].read,
    "labels": SLOTS["security.labels"].read,
    "classification": SLOTS["security.classification"].read,
    "objects": SLOTS["security.objects"].read,
    "data": SLOTS["security.data"].read,
    "call_id": Capability.READ_AGENT,
    "spent": Capability.READ_AGENT,
}
"""What reads a field of the context; those of the traffic are read by what reads their slot."""

_NEVER: Final = ("history", "recorded")  # the conversation, and texts of the host that are for the record alone


class Given:
    """The value and the context as a stage with `grants` is given them. Stages with the same grants share them."""

    __slots__ = ("_before", "_prints", "context", "value")

    def __init__(self, value: Traffic, context: Context, grants: Grants) -> None:
        self._before = (drafted(value, grants), shown(context, grants))
        self.value: Traffic = isolated(self._before[0])
        self.context = isolated(self._before[1])
        self._prints = self._fingerprints()

    def change(self) -> tuple[str, str, str] | None:
        """Slot, tier and path of what was changed in place; None if nothing was."""
        if self._fingerprints() == self._prints:
            return None
        for root, given, before in zip(("", "context"), (self.value, self.context), self._before, strict=True):
            if (steps := _difference(given, before, ())) is not None:
                return _named(root, steps)
        return None  # something in it has no fingerprint

    def _fingerprints(self) -> bytes:
        return equal_start((), b"", (self.value, self.context))[1]


def shown(context: Context, grants: Grants) -> Context:
    """The context as far as `grants` show it, by the table that gates the traffic [STG-16]."""
    hidden = {name: default for name, default in _hidden(grants) if getattr(context, name) is not default}
    veil = veil_for(grants)
    if any(veil):
        hidden["subject"] = veil.subject_shown(context.subject)
        hidden.setdefault("agent", veil.agent(context.agent))
    return replace(context, **hidden) if hidden else context


@lru_cache(maxsize=256)  # as many as an installation has stages
def _hidden(grants: Grants) -> tuple[tuple[str, Any], ...]:
    """The fields that `grants` hide, each with what replaces it."""
    ungranted = [name for name, needs in _CONTEXT.items() if not granted(grants, needs)]
    defaults = {field.name: field_default(field) for field in dataclasses.fields(Context)}
    return tuple((name, defaults[name]) for name in (*_NEVER, *ungranted))


# -- copies ------------------------------------------------------------------------------------------------------------


def isolated(item: _T) -> _T:
    """An equal value that shares no object with `item` that could be changed, and has no wire layout."""
    cls = type(item)
    if cls not in _copiers:
        _copiers[cls] = _copier(cls)
    copied: _T = _copiers[cls](item)
    return copied


_LEAVES: Final = frozenset({str, int, float, bool, bytes, type(None), frozenset, datetime, Decimal})


_copiers: Final[dict[type, Callable[[Any], Any]]] = {}


def _copier(cls: type) -> Callable[[Any], Any]:
    """What copies a value of the type. For values it is generated; what no JSON form has is left at its default."""
    if issubclass(cls, Value):
        known: dict[str, Any] = {"cls": cls, "make": trusted, "leaves": _LEAVES, "isolated": isolated}
        given = ", ".join(f"{name}=(h if type(h := item.{name}) in leaves else isolated(h))" for name in _fields(cls))
        exec(f"def copied(item): return make(cls, {given})", known)  # noqa: S102 - the names are those of its fields
        copier: Callable[[Any], Any] = known["copied"]
        return copier
    if cls is HttpHeaders:
        return lambda held: HttpHeaders(exposed(held))
    if issubclass(cls, dict):
        return lambda held: frozen_mapping({key: _copied(item) for key, item in held.items()})
    if issubclass(cls, list):
        return _copied_array
    # All but tuples are texts, numbers, words of closed sets.
    return (lambda held: tuple([_copied(item) for item in held])) if cls is tuple else lambda item: item


def _copied(item: Any) -> Any:
    return item if type(item) in _LEAVES else isolated(item)


def _copied_array(held: list[Any]) -> FrozenList:
    made = list.__new__(FrozenList)
    list.extend(made, map(_copied, list.__iter__(held)))
    return made


def _fields(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.metadata.get("dump", True))


# -- what was changed --------------------------------------------------------------------------------------------------

_GONE: Final = object()


def _difference(given: Any, before: Any, steps: _Steps) -> _Steps | None:
    """The steps to the first place where the two differ; None if they do not."""
    if given is before:
        return None
    held, own = _inside(given), _inside(before)
    if held is None or own is None:
        return steps if type(given) is not type(before) or given != before else None
    if list(held) != list(own):
        return steps
    places = (_difference(held[key], item, (*steps, key)) for key, item in own.items())
    return next((place for place in places if place is not None), None)


def _inside(item: Any) -> dict[Any, Any] | None:
    if isinstance(item, Value):
        return {"__class__": type(item), **{name: getattr(item, name, _GONE) for name in _fields(type(item))}}
    if isinstance(item, dict):
        return dict(dict.items(item))
    return dict(enumerate(item)) if isinstance(item, list | tuple) else None


def _named(root: str, steps: _Steps) -> tuple[str, str, str]:
    """The slot that the steps lead to, its tier, and the steps as a path."""
    rooted = (root, *steps) if root else steps
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rooted)
    names = [step for step in steps if isinstance(step, str)]
    if "extensions" in names[:-1]:
        names = names[names.index("extensions") + 1 :]
        slot = ".".join(names[:2]) if names[0] == "security" else names[0]
    else:
        slot = next((name for name in names if name not in ("messages", "choices", "message")), "messages")
    slot = f"{root}.{slot}" if root else slot
    return slot, SLOTS[slot].tier if slot in SLOTS else Tier.IMMUTABLE, f"${path}"


_log: Final = logging.getLogger("pipeline.run.stages")
_RULE: Final = "stage"


@dataclass(slots=True)
class Staged:
    """What the stages made of the traffic: the value, and a record per stage.

    Attributes:
        stopped: whether a stage ended the run, by a failure or by a refusal that is enforced. A stage that asks for
            approval does not: policy judges first what a person is to approve.
    """

    value: Traffic
    mode: Mode
    records: list[StageRecord] = field(default_factory=list)
    stopped: bool = False
    _given: dict[Grants, tuple[Traffic, Given]] = field(default_factory=dict)

    def add(self, record: StageRecord) -> None:
        """Append a record, and note whether it stops the run."""
        self.records.append(record)
        refused = record.hit is not None and record.hit.effect is Effect.DENY
        if record.closed or (refused and self.mode is Mode.ENFORCE):
            self.stopped = True

    def give(self, base: Traffic, context: Context, grants: Grants) -> Given:
        """What a stage with `grants` is given. Consecutive stages with the same grants share it."""
        known = self._given.get(grants)
        if known is None or known[0] is not base:
            known = self._given[grants] = (base, Given(base, context, grants))
        return known[1]


class _Failure(Exception):
    """A stage that raised, overran its time, or returned nonsense: its code."""


_Finished: TypeAlias = StageResult | _Failure | KeyboardInterrupt | SystemExit  # what the task of a stage comes to
# What a stage can return that is certainly nothing to wait for: asking `inspect` takes longer than most stages.
_RETURNED: Final = frozenset({type(None), Message, Request, Response, Refuse, Ask, _Failure})


class Stages:
    """The stages of a pipeline, in the order in which they run."""

    def __init__(self, given: Sequence[Stage | StageCall], events: Events, mode: Mode) -> None:
        stages = [stage_of(one) for one in given]
        names = [stage.name for stage in stages]
        if len(set(names)) != len(names):
            raise ConfigError("two stages have the same name", code="config.stage-names", hint="rename one")
        for stage in stages:
            if stage.on_error is OnError.ALLOW and stage.mode in MAY_CHANGE:
                raise ConfigError(
                    f"stage {stage.name} can change content, so its failure cannot be allowed",
                    code="config.stage-on-error",
                    hint="use on_error deny, or a mode that only looks",
                )
        self._groups = tuple(_groups(stage for stage in stages if stage.mode is not StageMode.FIRE_AND_FORGET))
        self._afterwards = [stage for stage in stages if stage.mode is StageMode.FIRE_AND_FORGET]
        self._nothing = {
            name: StageRecord(stage=name, mode=stage.mode.value) for name, stage in zip(names, stages, strict=True)
        }
        self._events = events
        self._mode = mode
        self._background: set[asyncio.Task[None]] = set()

    async def run(self, value: Traffic, context: Context, waiting: Waiting) -> Staged:
        """The value after all stages, or after the one that stopped the run.

        If it awaits, concurrent stages in a row run together, and the first refusal cancels the others.
        """
        staged = Staged(value, self._mode)
        for group in self._groups:
            base = staged.value
            if len(group) > 1 and waiting.awaits:
                await self._together(staged, group, base, context)
            for stage in group if len(group) == 1 or not waiting.awaits else ():
                given = staged.give(base, context, stage.capabilities)
                result = await waiting.either(partial(_called, stage, given), partial(_acalled, stage, given))
                self._settle(staged, stage, given, result)
                if staged.stopped:
                    return staged
            if staged.stopped:
                return staged
        return staged

    async def _together(self, staged: Staged, group: Sequence[Stage], base: Traffic, context: Context) -> None:
        """Run a group of concurrent stages: plain functions one by one, coroutines at once, to the first refusal."""
        tasks: dict[asyncio.Task[_Finished], Stage] = {}
        pending: list[Any] = []
        waiting: set[asyncio.Task[_Finished]] = set()
        try:
            for stage in group:
                begin = time.monotonic()
                given = staged.give(base, context, stage.capabilities)
                result = _begun(stage, given)
                if _is_pending(result):
                    pending.append(result)
                    tasks[asyncio.create_task(_timed(stage, result, begin))] = stage
                    continue
                self._settle(staged, stage, given, _in_time(stage, result, begin))
                if staged.stopped:
                    break
            waiting = set(tasks)
            while waiting and not staged.stopped:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    result = _result(task)
                    if isinstance(result, Refuse | _Failure):
                        stage = tasks.pop(task)
                        self._settle(staged, stage, staged.give(base, context, stage.capabilities), result)
            if not staged.stopped:
                for task, stage in tasks.items():  # in the order of the stages, whichever was done first
                    self._settle(staged, stage, staged.give(base, context, stage.capabilities), _result(task))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in pending:
                if inspect.iscoroutine(one):
                    one.close()  # one whose task never began would say that nobody awaited it

    def _settle(self, staged: Staged, stage: Stage, given: Given, result: StageResult | _Failure) -> None:
        """Put what a stage returned into `staged`: merged into the value, or as the hit that stops the run."""
        if (change := given.change()) is not None:
            staged.add(_violated(stage, *change))
        elif result is None or result is given.value:
            staged.records.append(self._nothing[stage.name])
        elif isinstance(result, _Failure):
            self._settle_failure(staged, stage, str(result))
        elif isinstance(result, Refuse | Ask):
            self._note_refusal(staged, stage, result)
        else:
            self._settle_change(staged, stage, given.value, result)

    def _settle_change(self, staged: Staged, stage: Stage, given: Traffic, result: Traffic) -> None:
        try:
            # Concurrent neighbours were all given the same base: what this one changed goes on top of theirs.
            value, headers = merged(stage, staged.value, given, result)
        except TierViolationError as violation:
            staged.add(_violated(stage, violation.slot, violation.tier, violation.path))
            return
        except Exception as error:  # noqa: BLE001  (a return that cannot even be compared is nonsense)
            self._settle_failure(staged, stage, str(_failed(stage, error, "stage.bad-result")))
            return
        for change in headers:
            self._events.publish(change)
        changed = value is not staged.value
        if changed:
            self._publish_labels(stage, staged.value, value)
            staged.value = value
        staged.add(StageRecord(stage=stage.name, mode=stage.mode.value, changed=changed, headers=headers))

    def _settle_failure(self, staged: Staged, stage: Stage, code: str) -> None:
        denies = stage.on_error is OnError.DENY
        failed = StageRecord(stage=stage.name, mode=stage.mode.value, error=code)
        staged.add(_stopped(stage, code, "A processing step failed.") if denies else failed)

    def _note_refusal(self, staged: Staged, stage: Stage, result: Refuse | Ask) -> None:
        if stage.mode not in MAY_REFUSE:
            # A refusal by a stage whose mode does not allow one is a mistake in the stage, and mistakes fail closed.
            staged.add(_stopped(stage, "stage.may-not-refuse", "A processing step failed."))
            return
        if not (type(result.code) is str and type(result.reason) is str):
            staged.add(_stopped(stage, "stage.bad-result", "A processing step failed."))
            return
        effect = Effect.DENY if isinstance(result, Refuse) else Effect.REQUIRE_APPROVAL
        hit = Hit(rule=f"{_RULE}/{stage.name}", code=result.code, effect=effect, reason=result.reason)
        staged.add(StageRecord(stage=stage.name, mode=stage.mode.value, hit=hit))

    def _publish_labels(self, stage: Stage, before: Traffic, after: Traffic) -> None:
        for index, (old, new) in enumerate(zip(messages_of(before), messages_of(after), strict=True)):
            if old.extensions is not new.extensions:
                for label in sorted(labels_of(new) - labels_of(old)):
                    self._events.publish(LabelAdded(label=label, path=f"messages[{index}]", by=stage.name))

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def afterwards(self, value: Traffic, context: Context) -> None:
        """Run the fire-and-forget stages, which can change and stop nothing, before returning [STG-10]."""
        for stage in self._afterwards:
            given = Given(value, context, stage.capabilities)
            _report(stage, given, _called(stage, given))

    def afterwards_in_background(self, value: Traffic, context: Context) -> None:
        """Start the fire-and-forget stages as tasks of the running loop; `aclose` ends them."""
        for stage in self._afterwards:
            task = asyncio.create_task(_afterwards(stage, value, context))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def aclose(self) -> None:
        """Cancel the stages that still run in the background, and wait until they have ended."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _afterwards(stage: Stage, value: Traffic, context: Context) -> None:
    given = Given(value, context, stage.capabilities)
    _report(stage, given, await _acalled(stage, given))


def _groups(stages: Iterable[Stage]) -> Iterator[list[Stage]]:
    """Each stage as a group of its own, but concurrent stages in a row as one group."""
    for mode, neighbours in groupby(stages, key=lambda stage: stage.mode):
        if mode is StageMode.CONCURRENT:
            yield list(neighbours)
        else:
            yield from ([stage] for stage in neighbours)


def _called(stage: Stage, given: Given) -> StageResult | _Failure:
    begin = time.monotonic()
    result = _begun(stage, given)
    if _is_pending(result):
        result = _not_awaited(stage, result) if runs_a_loop() else asyncio.run(_finished(stage, result))
    return _in_time(stage, result, begin)


async def _acalled(stage: Stage, given: Given) -> StageResult | _Failure:
    begin = time.monotonic()
    result = _begun(stage, given)
    if _is_pending(result):
        result = await _finished(stage, result)
    return _in_time(stage, result, begin)


def _not_awaited(stage: Stage, result: Any) -> _Failure:
    """The failure of a coroutine stage in `run` under a running loop, where nobody can await it."""
    if inspect.iscoroutine(result):
        result.close()
    _log.error("stage %s has to be awaited: under a running loop use arun, acheck or adecide", stage.name)
    return _Failure("stage.not-awaited")


def _begun(stage: Stage, given: Given) -> Any:
    """What the stage returned, which may have to be awaited."""
    try:
        return stage.call(given.value, given.context)
    except PROCESS_EXITS:
        raise
    except BaseException as error:  # noqa: BLE001  (see above)
        return _failed(stage, error)


def _is_pending(result: Any) -> bool:
    return type(result) not in _RETURNED and inspect.isawaitable(result)


async def _finished(stage: Stage, result: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(stage.timeout_seconds):
            return await result
    except PROCESS_EXITS:
        raise
    except BaseException as error:
        if is_cancelled(error):
            raise
        return _failed(stage, error)


def _result(task: asyncio.Task[_Finished]) -> StageResult | _Failure:
    """The result of a task that is done. A stage that cancelled its own task has failed."""
    finished = _Failure("stage.error") if task.cancelled() else task.result()
    if isinstance(finished, PROCESS_EXITS):
        raise finished
    return finished


async def _timed(stage: Stage, result: Awaitable[Any], begin: float) -> _Finished:
    try:
        return _in_time(stage, await _finished(stage, result), begin)
    except PROCESS_EXITS as error:
        return error  # raised in a task it would end the loop, and the run with it, before that is on record


def _in_time(stage: Stage, result: Any, begin: float) -> StageResult | _Failure:
    """`result`, or a failure if the stage took longer than its time."""
    if time.monotonic() - begin > stage.timeout_seconds and type(result) is not _Failure:
        return _Failure("stage.timeout")
    returned: StageResult | _Failure = result
    return returned


def _failed(stage: Stage, error: BaseException, code: str = "stage.error") -> _Failure:
    if isinstance(error, TimeoutError):
        code = "stage.timeout"
    _log.error("stage %s failed: %s", stage.name, where_from(error))
    return _Failure(code)


def _report(stage: Stage, given: Given, result: StageResult | _Failure) -> None:
    if given.change() is not None:
        result = _Failure("stage.tier-violation")
    if isinstance(result, _Failure):
        _log.error("stage %s failed afterwards: %s", stage.name, result)


def _stopped(stage: Stage, code: str, reason: str, **detail: str) -> StageRecord:
    hit = Hit(
        rule=f"{_RULE}/{stage.name}", code=code, effect=Effect.DENY, reason=reason, severity="critical", detail=detail
    )
    return StageRecord(stage=stage.name, mode=stage.mode.value, hit=hit, closed=True)


def _violated(stage: Stage, slot: str, tier: str, path: str) -> StageRecord:
    reason = "A processing step changed what it may not."
    return _stopped(stage, "stage.tier-violation", reason, slot=slot, tier=tier, path=path)
