"""The protocol of session stores, and the store in memory. Spec: docs/spec/sessions.md.

A session's key is its subject and its id, so that two subjects never share one [C4]. The other stores are
`pipeline.store.sessions` (SQLite, PostgreSQL) and `pipeline.sessions.redis` (Redis, Valkey).
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, Protocol

from cmf.json.value import replace
from cmf.message.ids import Clock
from pipeline.decisions.approval import (
    Approval,
    ApprovalScope,
    ApprovalStatus,
    ApprovalUse,
    PersonsAnswer,
    already_requested,
)
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.decisions.errors import ApprovalError, StoreError
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.timestamps import micros, new_ulid
from pipeline.sessions.state import Budget, BudgetScope, Changes, Grant, SessionState, Taint, budget_id, budget_of
from pipeline.sessions.turns import SessionTurns

MAX_SESSIONS: Final = 100_000  # sessions in the memory of one process; as many budgets, and as many approvals
MAX_MARKS: Final = 1_000_000  # marks of all sessions of a process together; a mark takes some 150 bytes
NOTHING_KNOWN: Final = SessionFacts()


def wall_clock() -> datetime:
    """The time, in UTC: the default of the stores."""
    return datetime.now(UTC)  # noqa: TID251 - the one place where the stores' default clock is read


class Moments:
    """A clock in microseconds since the epoch that never goes back, so that what has expired stays expired."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        """The present time, or the last one returned if the clock has stepped back."""
        moment = micros(self._clock())
        with self._lock:
            self._latest = max(self._latest, moment)
            return self._latest


class SessionStore(Protocol):
    """Sessions, budgets and approvals. Safe to use from any thread; every method may raise StoreError.

    `waits` says that its methods may block, so that coroutines call them on a thread [PIPE-15]; and that sessions may
    outlive the process, so that a run is on record before it changes one [REC-22]. A store with `turns` has one line
    for each session, whatever guards use it; without them each guard has its own [SES-40].
    """

    waits: bool = True

    def read(self, context: Context) -> SessionFacts:
        """The facts of the context's session, with the version to commit against; empty facts without a session."""
        ...

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
        """Make all changes at once if the session is still at `expected_version`; None fits any version.

        Returns:
            False if the session has another version by now, and nothing was changed: read and judge again [C5]. For a
            run without a session it is always True; only its changes of budgets are kept.

        Raises:
            SessionError: a change cannot be made (also ApprovalError, BudgetExceeded); nothing was changed.
        """
        ...

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:
        """Those of `marks` that are on record for the context's session."""
        ...

    def budget(self, context: Context, scope: BudgetScope, name: str) -> Budget:
        """The budget: what was spent, and what is held."""
        ...

    def approval(self, approval_id: str) -> Approval | None:
        """The approval of that id, in any session; None if there is none."""
        ...

    def sealed(self, approval_id: str) -> bytes | None:
        """The ciphertext kept with that approval; None once the approval was used, was denied or has expired."""
        ...

    def grants(self, context: Context) -> tuple[Grant, ...]:
        """Every declassification of the context's session, also expired ones, the oldest first."""
        ...

    def pending_approvals(self) -> tuple[Approval, ...]:
        """The approvals that wait for a person and have not expired, the oldest first."""
        ...

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:
        """The approvals that stand for what comes later, the oldest first; with `owner`, those of values, for it."""
        ...

    def answer_approval(self, approval_id: str, answer: PersonsAnswer, *, by: str) -> Approval:
        """The approval after that answer; ApprovalError if it is unknown, or as `Approval.decided` says."""
        ...

    def decide_approval(self, approval_id: str, *, approver: str, approve: bool) -> Approval:
        """`answer_approval` with yes, once; or with no."""
        return self.answer_approval(approval_id, PersonsAnswer.of(approve=approve), by=approver)

    def close(self) -> None:
        """Let go of what the store holds."""
        ...

    def add_labels(self, context: Context, labels: frozenset[str]) -> None:
        """Put on the session those of `labels` that are not in force, each with a source event of its own."""
        missing = labels - self.read(context).labels
        if missing:
            source = f"evt_{new_ulid()}"
            self.commit(context, None, Changes(taints=frozenset(Taint(label, source) for label in missing)))


class MemorySessions(SessionStore):
    """Sessions in the memory of this process; bounded [SES-22].

    If there is no room, a session that has nothing but marks is dropped, the one that changed longest ago first; what
    was said in it then counts as never judged here. A session with a label, a count, an event, a tool id, a grant or an
    approval is never dropped. If no session can be dropped, the change is refused.

    Args:
        clock: the time, in UTC.
        max_sessions: the most sessions that are kept; also the most budgets, and the most approvals.
        max_marks: the most marks of all sessions together.
    """

    waits = False

    def __init__(
        self, clock: Clock = wall_clock, *, max_sessions: int = MAX_SESSIONS, max_marks: int = MAX_MARKS
    ) -> None:
        self.turns = SessionTurns()
        self._max_sessions, self._max_marks = max_sessions, max_marks
        self._light: OrderedDict[SessionKey, None] = OrderedDict()  # sessions that may be dropped, the oldest first
        self._mark_count = 0
        self._moments = Moments(clock)
        self._states: dict[SessionKey, SessionState] = {}
        self._marks: dict[SessionKey, set[str]] = {}
        self._budgets: dict[tuple[str, str, str, str], Budget] = {}
        self._asked: dict[str, SessionKey] = {}
        self._sealed: dict[str, tuple[int, bytes]] = {}
        self._lock = threading.Lock()

    def read(self, context: Context) -> SessionFacts:
        """See `SessionStore`."""
        with self._lock:
            state = self._states.get(session_key(context))
        now = self._moments.now()
        return replace(NOTHING_KNOWN, moment=now) if state is None else state.facts(now)

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
        """See `SessionStore`."""
        key = session_key(context)
        kept = changes.for_key(key)
        now = self._moments.now()
        with self._lock:
            state = self._states.get(key, SessionState())
            if key.session is not None and expected_version not in (None, state.version):
                return False
            # Everything is worked out before anything is put in place: a refusal leaves all as it was.
            if not all(one.id in self._asked and rests(self._approval(one.id), one, now) for one in kept.rests):
                return False
            budgets = {budget_of(change, key): Budget() for change in kept.of_budgets}
            budgets.update((name, self._budgets[name]) for name in budgets.keys() & self._budgets.keys())
            settle(budgets, kept, key)
            if any(asked.id in self._asked for asked in kept.asked):
                raise already_requested()
            after = None
            if kept.touch_session:
                marks = self._marks.get(key, set())
                after = state.after(kept, key, now, kept.count_marks & marks)
            self._make_room(key, kept, budgets)
            if after is not None:
                self._keep(key, after, kept.seen | kept.count_marks)
            self._budgets.update(budgets)
            self._asked.update((asked.id, key) for asked in kept.asked)
            self._seal(kept)
        return True

    def _make_room(self, key: SessionKey, changes: Changes, budgets: Collection[tuple[str, str, str, str]]) -> None:
        """Drop sessions until `changes` fit; StoreError if that is not enough, and nothing was changed."""
        new_session = changes.touch_session and key not in self._states
        fresh = len((changes.seen | changes.count_marks) - self._marks.get(key, set()))
        new_budgets = len(set(budgets) - self._budgets.keys())
        if len(self._budgets) + new_budgets > self._max_sessions and new_budgets:
            raise _full("budgets")
        if len(self._asked) + len(changes.asked) > self._max_sessions and changes.asked:
            raise _full("approvals")
        going: list[SessionKey] = []
        freed = 0
        spare = iter(self._light)
        while (len(self._states) - len(going) + new_session > self._max_sessions and new_session) or (
            fresh and self._mark_count - freed + fresh > self._max_marks
        ):
            one = next(spare, None)
            if one is None:
                raise _full("sessions")
            if one != key:
                going.append(one)
                freed += len(self._marks.get(one, ()))
        for one in going:
            del self._light[one], self._states[one]
            self._marks.pop(one, None)
        self._mark_count -= freed

    def _keep(self, key: SessionKey, state: SessionState, marks: Collection[str]) -> None:
        self._states[key] = state
        # In place: a session has a mark for each message, and copying all of them each time would be slow.
        own = self._marks.setdefault(key, set())
        before = len(own)
        own.update(marks)
        self._mark_count += len(own) - before
        self._light.pop(key, None)
        if _may_give_way(key, state):
            self._light[key] = None

    def _seal(self, changes: Changes) -> None:
        for approval_id in changes.unsealed:
            self._sealed.pop(approval_id, None)
        if changes.sealed:
            now = self._moments.now()
            self._sealed = {name: kept for name, kept in self._sealed.items() if now < kept[0]}
            self._sealed.update((one.id, (one.expires_at, body)) for one, body in changes.sealed_with())

    def sealed(self, approval_id: str) -> bytes | None:
        """See `SessionStore`."""
        with self._lock:
            expires_at, body = self._sealed.get(approval_id, (0, b""))
        return body if self._moments.now() < expires_at else None

    def grants(self, context: Context) -> tuple[Grant, ...]:
        """See `SessionStore`."""
        with self._lock:
            return in_order(self._states.get(session_key(context), SessionState()).grants)

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:
        """See `SessionStore`."""
        with self._lock:
            return frozenset(marks) & self._marks.get(session_key(context), set())

    def budget(self, context: Context, scope: BudgetScope, name: str) -> Budget:
        """See `SessionStore`."""
        with self._lock:
            return self._budgets.get(budget_id(scope, name, session_key(context)), Budget())

    def approval(self, approval_id: str) -> Approval | None:
        """See `SessionStore`."""
        with self._lock:
            return self._approval(approval_id) if approval_id in self._asked else None

    def _approval(self, approval_id: str) -> Approval:
        return self._states[self._asked[approval_id]].approvals[approval_id]

    def _approvals(self) -> list[Approval]:
        with self._lock:
            return [approval for state in self._states.values() for approval in state.approvals.values()]

    def pending_approvals(self) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        return waiting(self._approvals(), self._moments.now())

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        return standing(self._approvals(), self._moments.now(), owner)

    def answer_approval(self, approval_id: str, answer: PersonsAnswer, *, by: str) -> Approval:
        """See `SessionStore`."""
        with self._lock:
            key = self._asked.get(approval_id)
            if key is None:
                raise unknown_approval()
            self._states[key] = with_decision(self._states[key], approval_id, by, answer, self._moments.now())
            if answer.action == "deny":
                self._sealed.pop(approval_id, None)
            return self._states[key].approvals[approval_id]

    def close(self) -> None:
        """See `SessionStore`; nothing is held."""


def _may_give_way(key: SessionKey, state: SessionState) -> bool:
    """Whether the session can be dropped: it has marks alone, and is no internal one (`~…`), which lead to others."""
    held = (state.taints, state.grants, state.counters, state.events, state.tool_ids, state.approvals)
    return not any(held) and state.active_model is None and not (key.session or "").startswith("~")


def _full(what: str) -> StoreError:
    hint = "keep sessions in a database or on a Redis server"
    return StoreError(f"this process keeps no more {what}", code="store.full", hint=hint)


def settle(budgets: dict[tuple[str, str, str, str], Budget], changes: Changes, key: SessionKey) -> None:
    """Update `budgets` by `changes`; raises as `Budget.reserved` and `Budget.settled` do."""
    for settlement in changes.settlements:
        name = budget_of(settlement, key)
        budgets[name] = budgets[name].settled(settlement)
    for reservation in changes.reservations:
        name = budget_of(reservation, key)
        budgets[name] = budgets[name].reserved(reservation)


def with_decision(state: SessionState, approval_id: str, by: str, answer: PersonsAnswer, now: int) -> SessionState:
    """The state with one approval answered, and the next version."""
    moment = max(now, state.updated_at)
    decided = state.approvals[approval_id].decided(by, answer, moment)
    approvals = {**state.approvals, approval_id: decided}
    return dataclasses.replace(state, approvals=approvals, version=state.version + 1, updated_at=moment)


def in_order(grants: Collection[Grant]) -> tuple[Grant, ...]:
    """The grants in the order in which they were made."""
    return tuple(sorted(grants, key=lambda grant: (grant.granted_at, grant.id)))


def waiting(approvals: Collection[Approval], now: int) -> tuple[Approval, ...]:
    """The approvals that wait for a person and have not expired, the oldest first."""
    open_ones = (one for one in approvals if one.status is ApprovalStatus.PENDING and now < one.asked.expires_at)
    return tuple(sorted(open_ones, key=lambda one: (one.requested_at, one.asked.id)))


def standing(approvals: Collection[Approval], now: int, owner: str | None) -> tuple[Approval, ...]:
    """The approvals that stand, the oldest first; with `owner`, those of values, for it."""
    found = [one for one in approvals if one.stands(now)]
    if owner is not None:
        found = [one for one in found if one.scope is ApprovalScope.VALUE and one.asked.owner == owner]
    return tuple(sorted(found, key=lambda one: (one.requested_at, one.asked.id)))


def rests(approval: Approval, use: ApprovalUse, now: int) -> bool:
    """Whether a run may still rest on an approval that stood when it was judged."""
    return approval.stands(now) and (approval.asked.target, approval.asked.revision) == (use.target, use.revision)


def unknown_approval() -> ApprovalError:
    """The error for an id that names no approval."""
    return ApprovalError("there is no such approval", code="approval.unknown", hint="list those that wait")
