"""Running stages: in order or together, within their time, and failing closed. Spec: stages.md [STG-10] ff."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from pipeline.context import Context
from pipeline.decision import Effect, Hit, Mode, StageRecord
from pipeline.draft import drafted, labels_of, messages_of
from pipeline.enforcement import TierViolationError, merged
from pipeline.errors import ConfigError
from pipeline.events import Events, LabelAdded
from pipeline.stage import MAY_REFUSE, Ask, OnError, Refuse, Stage, StageMode, StageResult, Traffic

_log: Final = logging.getLogger("pipeline.stages")
_RULE: Final = "stage"


@dataclass(slots=True)
class Staged:
    """What the stages made of the traffic: the value, and a record per stage."""

    value: Traffic
    mode: Mode
    records: list[StageRecord] = field(default_factory=list)

    @property
    def stopped(self) -> bool:
        """Whether a stage ended the run: by failing closed, or by a no that is enforced.

        A wish for approval does not end it: what a person is asked to approve is judged first.
        """
        enforced = self.mode is Mode.ENFORCE
        return any(
            record.closed or (enforced and record.hit is not None and record.hit.effect is Effect.DENY)
            for record in self.records
        )


class _Failure(Exception):
    """A stage that raised, overran its time, or returned nonsense: its code."""


class Stages:
    """A list of stages."""

    def __init__(self, stages: Sequence[Stage], events: Events, mode: Mode) -> None:
        names = [stage.name for stage in stages]
        if len(set(names)) != len(names):
            raise ConfigError("two stages have the same name", code="config.stage-names", hint="rename one")
        for stage in stages:
            if stage.on_error is OnError.ALLOW and stage.mode in (StageMode.SEQUENTIAL, StageMode.TRANSFORM):
                raise ConfigError(
                    f"stage {stage.name} can change content, so its failure cannot be allowed",
                    code="config.stage-on-error",
                    hint="use on_error deny, or a mode that only looks",
                )
        self._stages = [stage for stage in stages if stage.mode is not StageMode.FIRE_AND_FORGET]
        self._afterwards = [stage for stage in stages if stage.mode is StageMode.FIRE_AND_FORGET]
        self._events = events
        self._mode = mode
        self._background: set[asyncio.Task[None]] = set()

    def run(self, value: Traffic, context: Context) -> Staged:
        """The value after all stages, or up to the one that stopped it; coroutine stages are run to their end."""
        staged = Staged(value, self._mode)
        for group in _groups(self._stages):
            base = staged.value
            for stage in group:
                self._settle(staged, stage, base, *self._called(stage, base, context))
                if staged.stopped:
                    return staged
        return staged

    async def arun(self, value: Traffic, context: Context) -> Staged:
        """The same, awaiting; concurrent neighbours run together, and the first no cancels the others."""
        staged = Staged(value, self._mode)
        for group in _groups(self._stages):
            base = staged.value
            if len(group) == 1:
                self._settle(staged, group[0], base, *await self._acalled(group[0], base, context))
            else:
                await self._together(staged, group, base, context)
            if staged.stopped:
                return staged
        return staged

    # -- one stage -----------------------------------------------------------------------------------------------------

    def _called(self, stage: Stage, base: Traffic, context: Context) -> tuple[Traffic, StageResult | _Failure]:
        given = drafted(base, stage.capabilities)
        begin = time.monotonic()
        try:
            result = stage.call(given, context)
            if inspect.isawaitable(result):
                result = asyncio.run(_bounded(result, stage.timeout_seconds))
        except Exception as error:  # noqa: BLE001  (whatever a stage raises, it failed)
            return given, _failed(stage, error)
        return given, _late(stage, begin) or result

    async def _acalled(self, stage: Stage, base: Traffic, context: Context) -> tuple[Traffic, StageResult | _Failure]:
        given = drafted(base, stage.capabilities)
        begin = time.monotonic()
        try:
            result = stage.call(given, context)
            if inspect.isawaitable(result):
                result = await _bounded(result, stage.timeout_seconds)
        except Exception as error:  # noqa: BLE001  (whatever a stage raises, it failed)
            return given, _failed(stage, error)
        return given, _late(stage, begin) or result

    async def _together(self, staged: Staged, group: Sequence[Stage], base: Traffic, context: Context) -> None:
        tasks = {asyncio.create_task(self._acalled(stage, base, context)): stage for stage in group}
        waiting = set(tasks)
        try:
            while waiting and not staged.stopped:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda one: group.index(tasks[one])):
                    self._settle(staged, tasks[task], base, *task.result())
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _settle(
        self, staged: Staged, stage: Stage, base: Traffic, given: Traffic, result: StageResult | _Failure
    ) -> None:
        """Put what came back into `staged`: merged, or as the hit that stops everything."""
        if isinstance(result, _Failure):
            if stage.on_error is OnError.DENY:
                staged.records.append(_stopped(stage, str(result), "A processing step failed."))
            else:
                staged.records.append(StageRecord(stage=stage.name, mode=stage.mode.value, error=str(result)))
            return
        if isinstance(result, Refuse | Ask):
            self._said_no(staged, stage, result)
            return
        if result is None:
            staged.records.append(StageRecord(stage=stage.name, mode=stage.mode.value))
            return
        try:
            # Concurrent neighbours were all given the same base: what this one changed goes on top of theirs.
            value, headers = merged(stage, staged.value, given, result)
        except TierViolationError as violation:
            staged.records.append(_violated(stage, violation))
            return
        except Exception as error:  # noqa: BLE001  (a return that cannot even be compared is nonsense)
            self._settle(staged, stage, base, given, _failed(stage, error, "stage.bad-result"))
            return
        for change in headers:
            self._events.publish(change)
        self._publish_labels(stage, staged.value, value)
        changed = value is not staged.value
        staged.value = value
        staged.records.append(StageRecord(stage=stage.name, mode=stage.mode.value, changed=changed, headers=headers))

    def _said_no(self, staged: Staged, stage: Stage, result: Refuse | Ask) -> None:
        if stage.mode not in MAY_REFUSE:
            self._settle_misuse(staged, stage)
            return
        effect = Effect.DENY if isinstance(result, Refuse) else Effect.REQUIRE_APPROVAL
        hit = Hit(rule=f"{_RULE}/{stage.name}", code=result.code, effect=effect, reason=result.reason)
        staged.records.append(StageRecord(stage=stage.name, mode=stage.mode.value, hit=hit))

    def _settle_misuse(self, staged: Staged, stage: Stage) -> None:
        """A no from a stage that may only look or change is a mistake in the stage, and mistakes fail closed."""
        staged.records.append(_stopped(stage, "stage.may-not-refuse", "A processing step failed."))

    def _publish_labels(self, stage: Stage, before: Traffic, after: Traffic) -> None:
        for index, (old, new) in enumerate(zip(messages_of(before), messages_of(after), strict=True)):
            for label in sorted(labels_of(new) - labels_of(old)):
                self._events.publish(LabelAdded(label=label, path=f"messages[{index}]", by=stage.name))

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def afterwards(self, value: Traffic, context: Context) -> None:
        """Run the stages that nobody waits for, here and now; they can change and stop nothing."""
        for stage in self._afterwards:
            _, result = self._called(stage, value, context)
            _report(stage, result)

    def afterwards_in_background(self, value: Traffic, context: Context) -> None:
        """The same as tasks of the running loop; `aclose` ends them."""
        for stage in self._afterwards:
            task = asyncio.create_task(self._afterwards_one(stage, value, context))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _afterwards_one(self, stage: Stage, value: Traffic, context: Context) -> None:
        _, result = await self._acalled(stage, value, context)
        _report(stage, result)

    async def aclose(self) -> None:
        """Cancel what still runs in the background, and wait until it is gone."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _groups(stages: Iterable[Stage]) -> Iterator[list[Stage]]:
    """Stages one by one, but concurrent neighbours together."""
    for mode, neighbours in groupby(stages, key=lambda stage: stage.mode):
        if mode is StageMode.CONCURRENT:
            yield list(neighbours)
        else:
            yield from ([stage] for stage in neighbours)


async def _bounded(result: Awaitable[Any], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await result


def _late(stage: Stage, begin: float) -> _Failure | None:
    return _Failure("stage.timeout") if time.monotonic() - begin > stage.timeout_seconds else None


def _failed(stage: Stage, error: Exception, code: str = "stage.error") -> _Failure:
    if isinstance(error, TimeoutError):
        code = "stage.timeout"
    # The type alone: the text of somebody else's error may quote content.
    _log.error("stage %s failed: %s", stage.name, type(error).__name__)
    return _Failure(code)


def _report(stage: Stage, result: StageResult | _Failure) -> None:
    if isinstance(result, _Failure):
        _log.error("stage %s failed afterwards: %s", stage.name, result)


def _stopped(stage: Stage, code: str, reason: str, **detail: str) -> StageRecord:
    hit = Hit(
        rule=f"{_RULE}/{stage.name}", code=code, effect=Effect.DENY, reason=reason, severity="critical", detail=detail
    )
    return StageRecord(stage=stage.name, mode=stage.mode.value, hit=hit, closed=True)


def _violated(stage: Stage, violation: TierViolationError) -> StageRecord:
    return _stopped(
        stage,
        "stage.tier-violation",
        "A processing step changed what it may not.",
        slot=violation.slot,
        tier=violation.tier,
        path=violation.path,
    )
