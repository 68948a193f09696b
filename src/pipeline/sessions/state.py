"""The state of a session and the changes that a run can make to it: plain values, the same for every store.

Spec: docs/spec/sessions.md. Labels and grants are sets that only grow [C3]; the labels in force follow from both. Times
are integers: microseconds since the epoch, UTC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.approval import Approval, ApprovalRequest, ApprovalStatus, ApprovalUse, already_requested
from pipeline.decisions.context import SessionKey
from pipeline.decisions.errors import ApprovalError, BudgetExceeded, SessionError
from pipeline.decisions.policy_input import SessionFacts

if TYPE_CHECKING:
    from pipeline.audit.record import Record

MAX_EVENTS: Final = 64  # the newest events that a session keeps [SES-7]
MAX_EVENT_BYTES: Final = 2_048  # one event as JSON: names and codes, never content


@dataclass(frozen=True, slots=True)
class Taint:
    """A label and the event that brought it."""

    label: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A declassification: until `expires_at` the label does not count for the sources named here, and for no others.

    `seconder` is the second person who agreed [E6], if there was one; `granted_at` is set by the store.
    """

    id: str
    label: str
    sources: frozenset[str]
    actor: str
    reason: str
    scope: str
    expires_at: int
    seconder: str | None = None
    granted_at: int = 0

    def to_json(self) -> dict[str, Any]:
        """The grant as JSON, sources sorted."""
        shown = {name: getattr(self, name) for name in Grant.__dataclass_fields__}
        return {**shown, "sources": sorted(self.sources)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Grant:
        """The grant that `to_json` gave."""
        return cls(**{**stored, "sources": frozenset(stored["sources"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """An amount to add to a counter. A count with a `mark` is added only if its session has none with that mark yet.

    `event` is added to the session's events if the count is.
    """

    name: str
    amount: Decimal
    mark: str | None = None
    event: Mapping[str, Any] | None = None


class BudgetScope(StrEnum):
    """Who shares a budget."""

    SESSION = "session"
    SUBJECT = "subject"
    EVERYONE = "everyone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An amount to hold in a budget until the cost of a run is known; refused if it would go beyond `limit`."""

    id: str
    scope: BudgetScope
    budget: str
    amount: Decimal
    limit: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What was really spent of a reservation; zero gives all of it back."""

    id: str
    scope: BudgetScope
    budget: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Budget:
    """What was spent, and what is held, by reservation id. A hold that is never settled counts in full for ever."""

    spent: Decimal = Decimal(0)
    held: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def committed(self) -> Decimal:
        """Spent and held together."""
        return sum(self.held.values(), self.spent)

    def reserved(self, reservation: Reservation) -> Budget:
        """The budget with the amount held; BudgetExceeded if that goes beyond the limit."""
        amount = _amount(reservation.amount)
        if reservation.id in self.held:
            raise SessionError("this reservation was made before", code="session.reserved-before", hint="mint a new id")
        if self.committed + amount > reservation.limit:
            raise BudgetExceeded("the budget does not allow this", path=reservation.budget, hint="wait, or raise it")
        return Budget(self.spent, {**self.held, reservation.id: amount})

    def settled(self, settlement: Settlement) -> Budget:
        """The budget without the hold and with the amount spent; SessionError if there is no such hold."""
        if settlement.id not in self.held:
            hint = "a reservation is settled once"
            raise SessionError("there is no such reservation", code="session.unknown-reservation", hint=hint)
        held = {name: amount for name, amount in self.held.items() if name != settlement.id}
        return Budget(self.spent + _amount(settlement.amount), held)


def _amount(amount: Decimal) -> Decimal:
    if not amount.is_finite() or amount < 0:
        raise SessionError("an amount is zero or more", code="session.bad-amount", hint="price the run first")
    return amount


def budget_of(change: Reservation | Settlement, key: SessionKey) -> tuple[str, str, str, str]:
    """The key of a budget: scope, subject, session and name; subject and session are "" where the scope has none."""
    return budget_id(change.scope, change.budget, key)


def budget_id(scope: BudgetScope, name: str, key: SessionKey) -> tuple[str, str, str, str]:
    """The key of a budget from its parts; SessionError for a budget of a session if `key` has none."""
    if scope is BudgetScope.SESSION and key.session is None:
        raise no_session()
    subject = "" if scope is BudgetScope.EVERYONE else key.subject
    return (scope.value, subject, (key.session or "") if scope is BudgetScope.SESSION else "", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that one run changes, committed together or not at all [C5].

    Attributes:
        taints, grants: to add to the two sets; a grant names sources that are on record.
        counts: to add to the counters.
        events: JSON objects, the newest last; names and codes only, no content.
        tool_ids: canonical id → provider → its name (`IdMap.to_json()`), also those that are on record already.
        seen: marks to keep: content digests of what was judged, say [C4].
        asked, used: approvals that are asked for, and that are used up.
        rests: approvals that the run rests on without using them up; if one stands no longer, nothing is changed.
        sealed: by the id of an approval in `asked`, ciphertext of what it is about; deleted once the approval is used,
            denied or expired.
        released: of a sealed reply that goes out, the approval that it was sealed with; its ciphertext is deleted.
        active_model: the model that the session goes on with; None leaves it as it is.
        reservations, settlements: of budgets; settled first.
        record: of the run, for a store that `Records.shares`; no other is given one.
    """

    taints: frozenset[Taint] = frozenset()
    grants: tuple[Grant, ...] = ()
    counts: tuple[Count, ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()
    tool_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    asked: tuple[ApprovalRequest, ...] = ()
    used: tuple[ApprovalUse, ...] = ()
    rests: tuple[ApprovalUse, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    sealed: Mapping[str, bytes] = field(default_factory=dict)
    released: str | None = None
    active_model: str | None = None
    record: Record | None = None

    @property
    def touch_session(self) -> bool:
        """Whether the session itself changes; budgets are kept apart from it."""
        own = (self.taints, self.grants, self.counts, self.events, self.tool_ids, self.seen, self.asked, self.used)
        return any(own) or bool(self.rests) or self.active_model is not None

    @property
    def unsealed(self) -> tuple[str, ...]:
        """The approvals whose ciphertext is deleted, if they have any."""
        used = tuple(use.id for use in self.used)
        return used if self.released is None or not used else (*used, self.released)

    def sealed_with(self) -> Iterator[tuple[ApprovalRequest, bytes]]:
        """Each ciphertext with the approval that it belongs to."""
        for asked in self.asked:
            if asked.id in self.sealed:
                yield asked, self.sealed[asked.id]

    @property
    def of_budgets(self) -> tuple[Settlement | Reservation, ...]:
        """The changes of budgets, in the order in which they are made."""
        return (*self.settlements, *self.reservations)

    @property
    def count_marks(self) -> frozenset[str]:
        """The marks of its counts."""
        return frozenset(count.mark for count in self.counts if count.mark is not None)

    def for_key(self, key: SessionKey) -> Changes:
        """The changes that can be kept under `key`: without a session, those of budgets alone.

        Raises:
            SessionError: a grant, an approval or an active model without a session (`session.none`).
        """
        if key.session is not None:
            return self
        if self.grants or self.asked or self.used or self.rests or self.active_model is not None:
            raise no_session()
        return Changes(reservations=self.reservations, settlements=self.settlements)


NO_CHANGES: Final = Changes()


def no_session() -> SessionError:
    """The error for a change that needs a session, in a run without one."""
    return SessionError("this needs a session", code="session.none", hint="give the run a session id")


def unknown_source() -> SessionError:
    """The error for a grant that names an event which did not bring its label."""
    hint = "name the events that brought the label"
    return SessionError("a grant for what is not on record", code="session.unknown-source", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """All that is on record of one session, except its marks. A time before `updated_at` never counts as now."""

    version: int = 0
    updated_at: int = 0
    taints: frozenset[Taint] = frozenset()
    grants: tuple[Grant, ...] = ()
    counters: Mapping[str, Decimal] = field(default_factory=dict)
    events: tuple[Mapping[str, Any], ...] = ()
    tool_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    active_model: str | None = None

    def facts(self, now: int) -> SessionFacts:
        """The facts at `now`: with the labels that no active grant lifts, and the approvals that can still be used."""
        now = max(now, self.updated_at)
        lifted = {(grant.label, source) for grant in self.grants if now < grant.expires_at for source in grant.sources}
        ordered = [approval for _, approval in sorted(self.approvals.items())]
        sources = _sources(taint for taint in self.taints if (taint.label, taint.source) not in lifted)
        return SessionFacts(
            labels=frozenset(sources),
            counters={name: _number(amount) for name, amount in sorted(self.counters.items())},
            events=self.events,
            approvals=tuple(approval.shown() for approval in ordered if approval.usable(now)),
            version=self.version,
            tool_ids=self.tool_ids,
            label_sources=sources,
            lifted=frozenset(lifted),
            asked=tuple(
                one
                for one in ordered
                if one.status is ApprovalStatus.USED or now < one.asked.expires_at or one.stands(now)
            ),
            moment=now,
            active_model=self.active_model,
        )

    def after(self, changes: Changes, key: SessionKey, now: int, counted: frozenset[str]) -> SessionState:
        """The state with `changes` made, and the next version. `counted` are the count marks already on record.

        A store may call it on a state that has only the parts which `changes` concern.

        Raises:
            SessionError: a grant for a source that is not on record, an event that is too large, a tool id that means
                two calls. ApprovalError: see `Approval`.
        """
        now = max(now, self.updated_at)
        taints = self.taints | changes.taints
        for grant in changes.grants:
            if not grant.sources or any(Taint(grant.label, source) not in taints for source in grant.sources):
                raise unknown_source()
        fresh = _fresh(changes.counts, counted)
        events = (*changes.events, *(count.event for count in fresh if count.event is not None))
        return dataclasses.replace(
            self,
            version=self.version + 1,
            updated_at=now,
            taints=taints,
            grants=self.grants + tuple(dataclasses.replace(grant, granted_at=now) for grant in changes.grants),
            counters=_counted(self.counters, fresh),
            events=(*self.events, *map(_event, events))[-MAX_EVENTS:],
            tool_ids=_linked(self.tool_ids, changes.tool_ids),
            approvals=self._approvals(changes, key, now),
            active_model=changes.active_model or self.active_model,
        )

    def _approvals(self, changes: Changes, key: SessionKey, now: int) -> Mapping[str, Approval]:
        approvals = dict(self.approvals)
        for use in changes.used:
            if use.id not in approvals or approvals[use.id].key != key:
                raise ApprovalError("this session has no such approval", code="approval.unknown", hint="ask again")
            approvals[use.id] = approvals[use.id].used(use, now)
        for asked in changes.asked:
            if asked.id in approvals:
                raise already_requested()
            approvals[asked.id] = Approval(asked=asked, key=key, requested_at=now)
        return approvals


def _sources(taints: Iterable[Taint]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for taint in taints:
        found.setdefault(taint.label, set()).add(taint.source)
    return {label: frozenset(sources) for label, sources in sorted(found.items())}


def _number(amount: Decimal) -> int | float:
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def _fresh(counts: Iterable[Count], counted: frozenset[str]) -> list[Count]:
    """The counts whose mark is not on record; of several with the same mark, the first."""
    met = set(counted)
    fresh = []
    for count in counts:
        if count.mark is None or count.mark not in met:
            fresh.append(count)
        if count.mark is not None:
            met.add(count.mark)
    return fresh


def _counted(counters: Mapping[str, Decimal], counts: Iterable[Count]) -> Mapping[str, Decimal]:
    grown = dict(counters)
    for count in counts:
        grown[count.name] = grown.get(count.name, Decimal(0)) + _amount(count.amount)
    return grown


def _event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(dumps(dict(event))) > MAX_EVENT_BYTES:
        hint = "an event holds names and codes, no content"
        raise SessionError("an event is too large", code="session.large-event", hint=hint)
    return event


def _linked(
    known: Mapping[str, Mapping[str, str]], added: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    merged = {canonical: dict(names) for canonical, names in known.items()}
    taken = {(provider, name): canonical for canonical, names in known.items() for provider, name in names.items()}
    for canonical, names in added.items():
        merged_one = merged.setdefault(canonical, {})
        for provider, name in names.items():
            if (
                merged_one.setdefault(provider, name) != name
                or taken.setdefault((provider, name), canonical) != canonical
            ):
                hint = "read the session again: another run named this call"
                raise SessionError("a tool id would mean two calls", code="session.tool-id-conflict", hint=hint)
    return merged
