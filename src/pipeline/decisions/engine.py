"""What every engine promises, and the four things an evaluation can come to. Spec: docs/spec/engines.md [ENG-1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Decided:
    """The entrypoint has a value: JSON as Python values, sets as sorted lists. It may be null or false."""

    value: Any  # JSON, whatever the policy made; its shape is checked where it becomes a decision


@dataclass(frozen=True, slots=True)
class Undefined:
    """The entrypoint has no value for this view. Not null, and not false."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The evaluation failed. `detail` gives the place in the policy; neither field quotes the view."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The deadline of the batch passed before this view was judged."""


EngineResult: TypeAlias = Decided | Undefined | Failed | TimedOut


class Engine(Protocol):
    """A compiled policy set that judges views. Safe to use from any number of threads at once."""

    @property
    def revision(self) -> str:
        """SHA-256, in hex, of policies and data."""
        ...

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """One result per view, in order. Never raises because of a view, and never without a result for each.

        Args:
            entrypoints: for each view, the rule to evaluate: `data.<package>.<rule>`.
            shared: a JSON object {extensions, session?}, merged at every depth under each view; the view's keys win.
            views: JSON objects.
            timeout_seconds: for the whole batch, from the call.
        """
        ...

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """The same, without keeping the event loop from its other work."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. The engine may be used again, and opens new ones."""
        ...


class InlineEngine(Engine, Protocol):
    """An engine for tools and tests: `aevaluate` evaluates at once, and keeps the event loop waiting for so long."""

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """What `evaluate` gives."""
        return self.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)
