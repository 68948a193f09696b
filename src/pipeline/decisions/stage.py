"""A stage: a callable that sees what its capabilities allow, and may return a changed copy. Spec: stages.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from cmf.enums import Capability
from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ConfigError

Traffic: TypeAlias = Message | Request | Response


class StageMode(StrEnum):
    """What a stage may do, and when it runs."""

    SEQUENTIAL = "sequential"  # in order; may change and may refuse
    TRANSFORM = "transform"  # in order; may change
    AUDIT = "audit"  # in order; may only look
    CONCURRENT = "concurrent"  # together with its neighbours of the same mode; may refuse
    FIRE_AND_FORGET = "fire_and_forget"  # after the decision; may only look


MAY_CHANGE: Final = frozenset({StageMode.SEQUENTIAL, StageMode.TRANSFORM})
MAY_REFUSE: Final = frozenset({StageMode.SEQUENTIAL, StageMode.CONCURRENT})


class OnError(StrEnum):
    """The consequence of a stage's failure."""

    DENY = "deny"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Returned by a stage to refuse the traffic, like the deny of a rule."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Returned by a stage if a person must approve first, like the `require_approval` of a rule."""

    code: str
    reason: str


StageResult: TypeAlias = Traffic | Refuse | Ask | None
StageCall: TypeAlias = Callable[[Any, Context], StageResult | Awaitable[StageResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A callable `(value, context)` with its name, its capabilities and its limits.

    It gets copies of the traffic and of the context, with only what `capabilities` grant of either. It returns a
    changed copy, a `Refuse`, an `Ask`, or, if it changed nothing, None or the object it was given. A plain function
    runs inline and cannot be interrupted: if it takes longer than `timeout_seconds`, it has failed when it returns. A
    coroutine is cancelled.

    Attributes:
        on_error: the consequence if it raises, takes too long or returns something else; `allow` only for stages that
            cannot change content.
    """

    name: str
    call: StageCall
    capabilities: frozenset[Capability] = frozenset()
    mode: StageMode = StageMode.SEQUENTIAL
    on_error: OnError = OnError.DENY
    timeout_seconds: float = 5.0

    def __call__(self, value: Any, context: Context) -> StageResult | Awaitable[StageResult]:
        """Call the function, so that a stage can be tested like one."""
        return self.call(value, context)


def as_stage(
    name: str,
    *,
    capabilities: Iterable[Capability | str] = (),
    mode: StageMode | str = StageMode.SEQUENTIAL,
    on_error: OnError | str = OnError.DENY,
    timeout_seconds: float = 5.0,
) -> Callable[[StageCall], Stage]:
    """Make a function a stage: `@as_stage("mask-names", mode="transform")`.

    Raises:
        ConfigError: no name, or an unknown capability, mode or `on_error`.
    """
    if not isinstance(name, str):  # the function itself: `@as_stage` without parentheses
        raise ConfigError("a stage needs a name", code="config.stage", hint='write @as_stage("name")')
    try:
        granted, runs, failing = frozenset(map(Capability, capabilities)), StageMode(mode), OnError(on_error)
    except ValueError as error:
        raise ConfigError(f"stage {name}: {error}", code="config.stage-word", hint="see docs/spec/stages.md") from None

    def made(call: StageCall) -> Stage:
        return Stage(
            name=name, call=call, capabilities=granted, mode=runs, on_error=failing, timeout_seconds=timeout_seconds
        )

    return made


def stage_of(call: Stage | StageCall) -> Stage:
    """`call` itself if it is a stage, else a stage with its name, without capabilities, whose failure denies.

    Raises:
        ConfigError: it is not callable.
    """
    if isinstance(call, Stage):
        return call
    if not callable(call):
        raise ConfigError("a stage is a callable", code="config.stage", hint="write a function (value, context)")
    return Stage(name=getattr(call, "__name__", type(call).__name__), call=call)
