"""What a session is, and what a run may change in it: plain values, the same for every store. Spec: sessions.md.

Labels and grants are two sets that only grow [C3]; the labels in force are worked out when a session is read. Times
are integers: microseconds since the epoch, UTC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from cmf.codec import dumps
from pipeline.approval_ref import ApprovalStatus
from pipeline.approval_state import Approval, ApprovalUse, Asked, SessionKey, asked_before
from pipeline.errors import ApprovalError, BudgetExceeded, SessionError
from pipeline.policy_input import SessionFacts

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

    `seconder` is the second pair of eyes [E6], if there was one; `granted_at` is the store's word.
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
    """An amount to add to a counter; one with a `mark` is added once per session, however often it is presented.

    `event` is kept among the session's events when it is added, and only then.
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
    """An amount held in a budget before it is known what a run will cost; refused beyond `limit`."""

    id: str
    scope: BudgetScope
    budget: str
    amount: Decimal
    limit: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a reservation came to. Zero gives it back."""

    id: str
    scope: BudgetScope
    budget: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Budget:
    """What was spent, and what is held by reservation id. A hold that nobody settles stays: it counts in full."""

    spent: Decimal = Decimal(0)
    held: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def committed(self) -> Decimal:
        """Spent and held together."""
        return sum(self.held.values(), self.spent)

    def reserved(self, reservation: Reservation) -> Budget:
        """The budget with the amount held; BudgetExceeded where that is beyond the limit."""
        amount = _amount(reservation.amount)
        if reservation.id in self.held:
            raise SessionError("this reservation was made before", code="session.reserved-before", hint="mint a new id")
        if self.committed + amount > reservation.limit:
            raise BudgetExceeded("the budget does not allow this", path=reservation.budget, hint="wait, or raise it")
        return Budget(self.spent, {**self.held, reservation.id: amount})

    def settled(self, settlement: Settlement) -> Budget:
        """The budget with the hold gone and the amount spent; SessionError where there is no such hold."""
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
    """Scope, subject, session and name: what tells one budget from another. Empty where the scope does not ask."""
    return budget_id(change.scope, change.budget, key)


def budget_id(scope: BudgetScope, name: str, key: SessionKey) -> tuple[str, str, str, str]:
    """The same, from its parts; SessionError for a budget of a session where there is none."""
    if scope is BudgetScope.SESSION and key.session is None:
        raise no_session()
    subject = "" if scope is BudgetScope.EVERYONE else key.subject
    return (scope.value, subject, (key.session or "") if scope is BudgetScope.SESSION else "", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that one run changes, committed together or not at all [C5].

    Attributes:
        taints, grants: grow the two sets; a grant names sources that are on record.
        counts: added to the counters.
        events: JSON objects, the newest last; names and codes only, no content.
        tool_ids: canonical id → provider → its name (`IdMap.to_json()`); links that are on record already may be there.
        seen: marks to keep: content digests of what was judged, say [C4].
        asked, used: approvals asked for, and spent.
        sealed: what a person is asked about, as ciphertext, by the id of an approval in `asked`; gone once that is
            used, denied or too old.
        active_model: the model that the session goes on with; None leaves it as it is.
        reservations, settlements: of budgets; settled first.
    """

    taints: frozenset[Taint] = frozenset()
    grants: tuple[Grant, ...] = ()
    counts: tuple[Count, ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()
    tool_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    asked: tuple[Asked, ...] = ()
    used: tuple[ApprovalUse, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    settlements: tuple[Settlement, ...] = ()
    sealed: Mapping[str, bytes] = field(default_factory=dict)
    active_model: str | None = None

    @property
    def touch_session(self) -> bool:
        """Whether anything of the session itself changes; budgets stand beside it."""
        own = (self.taints, self.grants, self.counts, self.events, self.tool_ids, self.seen, self.asked, self.used)
        return any(own) or self.active_model is not None

    def sealed_with(self) -> Iterator[tuple[Asked, bytes]]:
        """Each ciphertext with the approval that it belongs to."""
        for asked in self.asked:
            if asked.id in self.sealed:
                yield asked, self.sealed[asked.id]

    @property
    def of_budgets(self) -> tuple[Settlement | Reservation, ...]:
        """What it changes in budgets, in the order in which that is done."""
        return (*self.settlements, *self.reservations)

    @property
    def count_marks(self) -> frozenset[str]:
        """The marks of its counts."""
        return frozenset(count.mark for count in self.counts if count.mark is not None)

    def for_key(self, key: SessionKey) -> Changes:
        """What of it can be kept under `key`: a run without a session keeps nothing, and can neither ask nor use.

        Raises:
            SessionError: a grant, an approval or an active model without a session (`session.none`).
        """
        if key.session is not None:
            return self
        if self.grants or self.asked or self.used or self.active_model is not None:
            raise no_session()
        return Changes(reservations=self.reservations, settlements=self.settlements)


NO_CHANGES: Final = Changes()


def no_session() -> SessionError:
    """The error where something is kept by session, and there is none."""
    return SessionError("this needs a session", code="session.none", hint="give the run a session id")


def unknown_source() -> SessionError:
    """The error for a grant that names what never brought its label."""
    hint = "name the events that brought the label"
    return SessionError("a grant for what is not on record", code="session.unknown-source", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """All that is on record of one session but its marks. No moment before `updated_at` counts as now."""

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
        """What policy may know: labels that no active grant lifts, approvals that still can be used."""
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
            asked=tuple(one for one in ordered if one.status is ApprovalStatus.USED or now < one.asked.expires_at),
            moment=now,
            active_model=self.active_model,
        )

    def after(self, changes: Changes, key: SessionKey, now: int, counted: frozenset[str]) -> SessionState:
        """The state with `changes` made and its version one up. `counted` are the count marks already on record.

        A store may hand in only the parts that `changes` concern.

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
                raise asked_before()
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
    """Those whose mark is not on record; of several with one mark the first."""
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
        mine = merged.setdefault(canonical, {})
        for provider, name in names.items():
            if mine.setdefault(provider, name) != name or taken.setdefault((provider, name), canonical) != canonical:
                hint = "read the session again: another run named this call"
                raise SessionError("a tool id would mean two calls", code="session.tool-id-conflict", hint=hint)
    return merged
