"""A stage: a callable that sees what its capabilities allow, and returns what it made of it. Spec: stages.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from cmf.enums import Capability
from cmf.message import Message
from cmf.request import Request, Response
from pipeline.context import Context
from pipeline.errors import ConfigError

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
    """What follows from a stage's failure."""

    DENY = "deny"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """What a stage returns to refuse the traffic: as a rule's deny, with the same fields."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a stage returns where a person has to approve first: as a rule's `require_approval`."""

    code: str
    reason: str


StageResult: TypeAlias = Traffic | Refuse | Ask | None
StageCall: TypeAlias = Callable[[Any, Context], StageResult | Awaitable[StageResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A callable `(value, context)` with its name, its rights and its limits.

    It gets the traffic with only the extensions that `capabilities` grant, and returns a changed copy, a `Refuse`, an
    `Ask`, or None (or the very object it was given) where it changed nothing. A plain function runs inline; a coroutine
    function is awaited, at most `timeout_seconds`. A plain function cannot be interrupted: one that overran its time is
    a failure when it returns.

    Attributes:
        on_error: what follows if it raises, takes too long or returns nonsense. `allow` is for stages that only look.
    """

    name: str
    call: StageCall
    capabilities: frozenset[Capability] = frozenset()
    mode: StageMode = StageMode.SEQUENTIAL
    on_error: OnError = OnError.DENY
    timeout_seconds: float = 5.0

    def __call__(self, value: Any, context: Context) -> StageResult | Awaitable[StageResult]:
        """What the function returns: a stage can be called, and tested, like the function it was made of."""
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
        ConfigError: no name, or a capability, a mode or an `on_error` that there is not.
    """
    if not isinstance(name, str):  # the function itself: `@as_stage` without parentheses
        raise ConfigError("a stage made so has a name", code="config.stage", hint='write @as_stage("name")')
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
    """`call` itself if it is a stage, else a stage of its name, with no capabilities, whose failure denies.

    Raises:
        ConfigError: it cannot be called.
    """
    if isinstance(call, Stage):
        return call
    if not callable(call):
        raise ConfigError("a stage is a callable", code="config.stage", hint="write a function (value, context)")
    return Stage(name=getattr(call, "__name__", type(call).__name__), call=call)
