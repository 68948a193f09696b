"""How much of what was to be judged was judged. Spec: docs/spec/decisions.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A view that was not evaluated, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many views there were, how many were evaluated, which were not. "Not evaluated" never reads as allowed.

    Of the evaluated views, `reused` were evaluated in an earlier turn, under the same policies [PIPE-16].
    """

    produced: int
    evaluated: int
    skipped: tuple[Skipped, ...] = ()
    reused: int = 0

    @property
    def full(self) -> bool:
        """Whether every view was evaluated."""
        return self.evaluated == self.produced and not self.skipped

    def to_json(self) -> dict[str, Any]:
        """The coverage block of a decision; `reused` only where some were."""
        skipped = [{"path": one.path, "reason": one.reason} for one in self.skipped]
        shown: dict[str, Any] = {"produced": self.produced, "evaluated": self.evaluated, "skipped": skipped}
        return shown | ({"reused": self.reused} if self.reused else {})


__all__ = ["Coverage", "Skipped"]
