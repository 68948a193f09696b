"""What the pipeline tells its host as it happens: typed, synchronous, and never content [C15]. Spec: events.md.

Dropped blocks of a lossy projection are WARN log records (`cmf.adapters.loss`) and no event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

_log: Final = logging.getLogger("pipeline.events")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderChanged:
    """A stage changed a header; `value` only where the header is not sensitive and was not removed."""

    type: ClassVar[str] = "header_changed"
    stage: str
    name: str
    value: str | None = None
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAdded:
    """A label came to a message, by a rule, a stage or a data policy."""

    type: ClassVar[str] = "label_added"
    label: str
    path: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputInvalid:
    """A tool call's arguments are not a strict JSON object, or do not fit the tool's schema."""

    type: ClassVar[str] = "tool_input_invalid"
    path: str
    tool: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """A guarded function raised: `called` is the tool's URI or the model's id, `error` the type's name."""

    type: ClassVar[str] = "call_failed"
    called: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """A run waits for a person: what it wants to reach, and the rules that ask."""

    type: ClassVar[str] = "approval_asked"
    id: str
    session: str | None
    target: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided:
    """A person said yes or no."""

    type: ClassVar[str] = "approval_decided"
    id: str
    approver: str
    approved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalUsed:
    """A run spent an approval."""

    type: ClassVar[str] = "approval_used"
    id: str
    session: str | None
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declassified:
    """A label was lifted for so many source events of a session, until `expires_at` (microseconds since the epoch)."""

    type: ClassVar[str] = "declassified"
    grant: str
    label: str
    session: str | None
    actor: str
    seconder: str | None
    sources: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUnavailable:
    """The record of a run could not be kept; `released` says whether its outcome was given out all the same."""

    type: ClassVar[str] = "record_unavailable"
    decision: str
    code: str
    released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDecided:
    """A turn was given its model; `policy` is the routing chain's own, finer word."""

    type: ClassVar[str] = "route.decided"
    session: str | None
    model: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConstraintFailure:
    """A model cannot take a session because it lacks a capability."""

    type: ClassVar[str] = "routing_constraint_failure"
    session: str | None
    model: str
    capability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesChanged:
    """Another policy set judges from now on; both are named by their revisions. `by` had it so, where that is known."""

    type: ClassVar[str] = "policies_changed"
    before: str
    after: str
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesRefused:
    """A policy set that was to take over was refused, and the one before goes on; `place` is `path:line:column`."""

    type: ClassVar[str] = "policies_refused"
    code: str
    message: str
    place: str


Event: TypeAlias = (
    HeaderChanged
    | LabelAdded
    | ToolInputInvalid
    | CallFailed
    | RecordUnavailable
    | ApprovalAsked
    | ApprovalDecided
    | ApprovalUsed
    | Declassified
    | PoliciesChanged
    | PoliciesRefused
    | RouteDecided
    | RoutingConstraintFailure
)
Subscriber = Callable[[Event], None]


class Events:
    """Subscribers in the order they came. One that raises is logged, and stops nobody else."""

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event from now on; the function that comes back ends that."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Tell every subscriber."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001  (an observer must not decide)
                _log.error("a subscriber failed on %s: %s", type(event).__name__, type(error).__name__)
