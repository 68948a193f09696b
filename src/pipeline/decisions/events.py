"""Events that the pipeline publishes to its host: typed, synchronous, without content [C15]. Spec: events.md.

Blocks that a lossy projection drops are WARN log records (`cmf.adapters.wire.loss`), not events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

_log: Final = logging.getLogger("pipeline.decisions.events")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderChanged:
    """A stage changed a header; `value` only if the header is not sensitive and was not removed."""

    type: ClassVar[str] = "header_changed"
    stage: str
    name: str
    value: str | None = None
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAdded:
    """A rule, a stage or a data policy added a label to a message."""

    type: ClassVar[str] = "label_added"
    label: str
    path: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputInvalid:
    """A tool call's arguments are not a strict JSON object, or do not match the tool's schema."""

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
    """A run waits for an approval: its target, and the rules that require it."""

    type: ClassVar[str] = "approval_asked"
    id: str
    session: str | None
    target: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided:
    """A person approved or denied a request."""

    type: ClassVar[str] = "approval_decided"
    id: str
    approver: str
    approved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalUsed:
    """A run used an approval."""

    type: ClassVar[str] = "approval_used"
    id: str
    session: str | None
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declassified:
    """A label was lifted for `sources` events of a session, until `expires_at` (microseconds since the epoch)."""

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
    """The record of a run could not be written; `released` says whether its outcome was returned anyway."""

    type: ClassVar[str] = "record_unavailable"
    decision: str
    code: str
    released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDecided:
    """A model was chosen for a turn; `policy` names the reason in the routing chain's own terms."""

    type: ClassVar[str] = "route.decided"
    session: str | None
    model: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConstraintFailure:
    """A model cannot continue a session because it lacks a capability."""

    type: ClassVar[str] = "routing_constraint_failure"
    session: str | None
    model: str
    capability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesChanged:
    """Another policy set is used from now on; both are named by revision. `by` is who asked for it, if known."""

    type: ClassVar[str] = "policies_changed"
    before: str
    after: str
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesRefused:
    """A new policy set cannot be used, and the current one stays; `place` is `path:line:column`."""

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
    """Subscribers, in the order of subscription. One that raises is logged; the others are called all the same."""

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event from now on, until the returned function is called."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Call every subscriber with `event`."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001  (a subscriber must not change the outcome)
                _log.error("a subscriber failed on %s: %s", type(event).__name__, type(error).__name__)
