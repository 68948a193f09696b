"""Sessions in the database: the rules of the memory store, applied row by row in one transaction [C5].

Spec: docs/spec/sessions.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Result,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from cmf.json.codec import dumps, loads
from cmf.json.value import replace
from cmf.message.ids import Clock
from pipeline.audit.record import act_of, plain
from pipeline.decisions.approval import LISTS, Approval, ApprovalScope, ApprovalStatus, PersonsAnswer
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.timestamps import instant_of
from pipeline.sessions.base import (
    NOTHING_KNOWN,
    Moments,
    SessionStore,
    in_order,
    rests,
    settle,
    standing,
    unknown_approval,
    waiting,
    wall_clock,
    with_decision,
)
from pipeline.sessions.state import (
    MAX_EVENTS,
    Budget,
    BudgetScope,
    Changes,
    Grant,
    SessionState,
    Taint,
    budget_id,
    budget_of,
)
from pipeline.sessions.turns import SessionTurns
from pipeline.store.engine import snapshot
from pipeline.store.records import recorded
from pipeline.store.tables import (
    APPROVALS,
    BUDGET_HOLDS,
    BUDGETS,
    SEALED,
    SESSION_COUNTERS,
    SESSION_EVENTS,
    SESSION_GRANT_SOURCES,
    SESSION_GRANTS,
    SESSION_LABELS,
    SESSION_MARKS,
    SESSION_STATE,
    SESSION_TOOL_IDS,
)
from pipeline.store.writer import TIMEOUT_SECONDS, Recorded, Writer, waited

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_UNNAMED: Final = ""  # the provider of a call whose provider is unknown
_GRANT_COLUMNS: Final = ("label", "actor", "seconder", "reason", "scope", "granted_at", "expires_at")
_CHUNK_SIZE: Final = 1_000  # values in one IN list; SQLite stops at 32,766 parameters
_BudgetId = tuple[str, str, str, str]


def _own(table: Table) -> ColumnElement[bool]:
    return and_(table.c.subject == bindparam("subject"), table.c.session == bindparam("session"))


@cache  # building a statement costs several times as much as running it
def _of_session(table: Table, columns: tuple[str, ...], *, some: bool = False) -> Select[Any]:
    """The session's rows; with `some`, those whose first column is one of the parameter `wanted`."""
    query = select(*(table.c[name] for name in columns)).where(_own(table))
    return query.where(table.c[columns[0]].in_(bindparam("wanted", expanding=True))) if some else query


_ADVANCE: Final = update(SESSION_STATE).where(
    SESSION_STATE.c.subject == bindparam("own_subject"), SESSION_STATE.c.session == bindparam("own_session")
)
_GRANT_SOURCES: Final = select(SESSION_GRANT_SOURCES).join(SESSION_GRANTS).where(_own(SESSION_GRANTS))
_LAST_EVENT: Final = select(func.max(SESSION_EVENTS.c.seq)).where(_own(SESSION_EVENTS))
_FORGET_EVENTS: Final = delete(SESSION_EVENTS).where(_own(SESSION_EVENTS), SESSION_EVENTS.c.seq <= bindparam("oldest"))
_APPROVALS_OF_SESSION: Final = select(APPROVALS).where(_own(APPROVALS))
_APPROVALS_BY_ID: Final = select(APPROVALS).where(APPROVALS.c.id.in_(bindparam("wanted", expanding=True)))


class SqlSessions(SessionStore):
    """Sessions in a database. Each read uses its own connection; changes go through the process's one writer.

    `keeps_records`: whether what people decide is put on record.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        *,
        clock: Clock = wall_clock,
        timeout_seconds: float = TIMEOUT_SECONDS,
        keeps_records: bool = False,
    ) -> None:
        self.turns = SessionTurns()
        self._engine = engine
        self.writer = writer
        self._moments = Moments(clock)
        self._timeout_seconds = timeout_seconds
        self.keeps_records = keeps_records

    def read(self, context: Context) -> SessionFacts:
        """See `SessionStore`."""
        key = session_key(context)
        if key.session is None:
            return replace(NOTHING_KNOWN, moment=self._moments.now())
        with snapshot(self._engine) as connection:
            state = _Session(connection, key).whole()
        return state.facts(self._moments.now())

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
        """See `SessionStore`."""
        key = session_key(context)
        kept = changes.for_key(key)

        def job(connection: Connection) -> Recorded[bool]:
            # Now is when it is carried out, which may be long after it was asked for: what expired meanwhile has.
            made = _commit(connection, key, expected_version, kept, self._moments.now())
            if made is None or kept.record is None:
                return recorded(made is not None, None)
            return recorded(True, kept.record.with_session_changes(made))

        return waited(self.writer.recorded(job), self._timeout_seconds)

    def seen(self, context: Context, marks: Collection[str]) -> frozenset[str]:
        """See `SessionStore`."""
        key = session_key(context)
        if key.session is None or not marks:
            return frozenset()
        with snapshot(self._engine) as connection:
            return _Session(connection, key).marks(marks)

    def budget(self, context: Context, scope: BudgetScope, name: str) -> Budget:
        """See `SessionStore`."""
        wanted = budget_id(scope, name, session_key(context))
        with snapshot(self._engine) as connection:
            return _budget(connection, wanted)

    def approval(self, approval_id: str) -> Approval | None:
        """See `SessionStore`."""
        with snapshot(self._engine) as connection:
            return _approvals_by_id(connection, [approval_id]).get(approval_id)

    def sealed(self, approval_id: str) -> bytes | None:
        """See `SessionStore`."""
        live = and_(SEALED.c.approval_id == approval_id, SEALED.c.expires_at > self._moments.now())
        with snapshot(self._engine) as connection:
            body: bytes | None = connection.execute(select(SEALED.c.body).where(live)).scalar()
        return body

    def grants(self, context: Context) -> tuple[Grant, ...]:
        """See `SessionStore`."""
        key = session_key(context)
        if key.session is None:
            return ()
        with snapshot(self._engine) as connection:
            return in_order(_Session(connection, key).grants())

    def pending_approvals(self) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        with snapshot(self._engine) as connection:
            pending = select(APPROVALS).where(APPROVALS.c.status == ApprovalStatus.PENDING.value)
            found = _approvals(connection.execute(pending))
        return waiting(found.values(), self._moments.now())

    def standing_approvals(self, owner: str | None = None) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        wanted = [APPROVALS.c.scope_until > self._moments.now(), APPROVALS.c.revoker.is_(None)]
        wanted += [] if owner is None else [APPROVALS.c.scope == ApprovalScope.VALUE.value, APPROVALS.c.owner == owner]
        with snapshot(self._engine) as connection:
            found = _approvals(connection.execute(select(APPROVALS).where(*wanted)))
        return standing(found.values(), self._moments.now(), owner)

    def answer_approval(self, approval_id: str, answer: PersonsAnswer, *, by: str) -> Approval:
        """See `SessionStore`. The answer is on record with the id alone of who gave it."""
        return self.answer_on_record(approval_id, answer, by={"id": by})

    def answer_on_record(self, approval_id: str, answer: PersonsAnswer, *, by: Mapping[str, Any]) -> Approval:
        """See `pipeline.approvals.queue.OnRecord`."""
        approver = str(by["id"])

        def decide(connection: Connection) -> Recorded[Approval]:
            now = self._moments.now()
            found = _approvals_by_id(connection, [approval_id])
            if not found:
                raise unknown_approval()
            session = _Session(connection, found[approval_id].key)
            after = with_decision(session.locked(approvals=found), approval_id, approver, answer, now)
            session.advance(after)
            _save_approval(connection, after.approvals[approval_id])
            if answer.action == "deny":
                _unseal(connection, [approval_id])
            decided = after.approvals[approval_id]
            details = {"by": by, **decided.recorded()}
            made = act_of("review", "review", answer.action, details, instant_of(now), subject=approver)
            return recorded(decided, made if self.keeps_records else None)

        return waited(self.writer.recorded(decide), self._timeout_seconds)

    def close(self) -> None:
        """See `SessionStore`; the engine and the writer belong to the store."""


def _commit(
    connection: Connection, key: SessionKey, expected_version: int | None, changes: Changes, now: int
) -> dict[str, Any] | None:
    """What was changed in the session, for the record of the run; None if it has another version by now."""
    session = _Session(connection, key)
    if key.session is not None and not session.lock(expected_version, make=changes.touch_session):
        return None
    stood = _approvals_by_id(connection, [use.id for use in changes.rests])
    if not all(use.id in stood and rests(stood[use.id], use, now) for use in changes.rests):
        return None
    before = {name: _budget(connection, name) for name in {budget_of(change, key) for change in changes.of_budgets}}
    budgets = dict(before)
    settle(budgets, changes, key)
    for name, budget in budgets.items():
        _save_budget(connection, name, before[name], budget)
    return session.save(changes, now) if changes.touch_session else {}


class _Session:
    """The rows of one session, on one connection."""

    def __init__(self, connection: Connection, key: SessionKey) -> None:
        self._connection = connection
        self._key = key
        self._row = {"subject": key.subject, "session": key.session}

    def _rows(self, table: Table, *columns: str) -> Sequence[Any]:
        return self._connection.execute(_of_session(table, columns), self._row).all()

    def _some(self, table: Table, columns: tuple[str, ...], wanted: Collection[str]) -> Sequence[Any]:
        """Those rows whose first column is one of `wanted`."""
        found: list[Any] = []
        ordered = sorted(wanted)
        for start in range(0, len(ordered), _CHUNK_SIZE):
            values = {**self._row, "wanted": ordered[start : start + _CHUNK_SIZE]}
            found += self._connection.execute(_of_session(table, columns, some=True), values).all()
        return found

    def whole(self) -> SessionState:
        """The whole session."""
        row = self._state()
        if row is None:
            return SessionState()
        counters = self._rows(SESSION_COUNTERS, "name", "amount")
        return SessionState(
            version=row.version,
            active_model=row.active_model,
            updated_at=row.updated_at,
            taints=frozenset(Taint(*pair) for pair in self._rows(SESSION_LABELS, "label", "source")),
            grants=self.grants(),
            counters={name: Decimal(amount) for name, amount in counters},
            events=tuple(loads(row.body) for row in sorted(self._rows(SESSION_EVENTS, "seq", "body"))),
            tool_ids=self._tool_ids(),
            approvals=_approvals(self._connection.execute(_APPROVALS_OF_SESSION, self._row)),
        )

    def lock(self, expected_version: int | None, *, make: bool) -> bool:
        """Whether the session has that version, under the transaction's write lock; with `make`, creates a new one."""
        row = self._state()
        found = row.version if row is not None else 0
        if expected_version not in (None, found):
            return False
        if row is None and make:
            insert_missing(self._connection, SESSION_STATE, [{**self._row, "version": 0, "updated_at": 0}])
        return True

    def _state(self) -> Any:
        return next(iter(self._rows(SESSION_STATE, "version", "updated_at", "active_model")), None)

    def locked(self, **parts: Any) -> SessionState:
        """The locked session, with `parts` as its only content."""
        row = self._state()
        own = {"version": row.version, "updated_at": row.updated_at, "active_model": row.active_model}
        return SessionState(**own, **parts)

    def advance(self, after: SessionState) -> None:
        """Write the version and moment of `after`."""
        values = {"version": after.version, "updated_at": after.updated_at, "active_model": after.active_model}
        self._connection.execute(
            _ADVANCE, {"own_subject": self._key.subject, "own_session": self._key.session, **values}
        )

    def save(self, changes: Changes, now: int) -> dict[str, Any]:
        """Apply the changes, reading only the rows that they concern; gives them as a record has them [AUD-88]."""
        counted = self.marks(changes.count_marks)
        labels = self._some(SESSION_LABELS, ("label", "source"), {grant.label for grant in changes.grants})
        counters = self._some(SESSION_COUNTERS, ("name", "amount"), {count.name for count in changes.counts})
        ids = [*(use.id for use in changes.used), *(asked.id for asked in changes.asked)]
        before = self.locked(
            taints=frozenset(Taint(*pair) for pair in labels),
            counters={name: Decimal(amount) for name, amount in counters},
            tool_ids=self._tool_ids() if changes.tool_ids else {},
            approvals=_approvals_by_id(self._connection, ids),
        )
        after = before.after(changes, self._key, now, counted)
        self.advance(after)
        self._save_labels(changes, after)
        names = sorted({count.name for count in changes.counts} & after.counters.keys())
        if names:
            rows = [{**self._row, "name": name, "amount": str(after.counters[name])} for name in names]
            put = _insertion(self._connection, SESSION_COUNTERS)
            replacing = {"amount": put.excluded.amount}
            self._connection.execute(
                put.on_conflict_do_update(index_elements=["subject", "session", "name"], set_=replacing), rows
            )
        self._append_events(after.events)
        self._insert_missing(SESSION_TOOL_IDS, _tool_id_rows(changes.tool_ids))
        self._insert_missing(SESSION_MARKS, [{"mark": mark} for mark in sorted(changes.seen | changes.count_marks)])
        for approval_id in ids:
            _save_approval(self._connection, after.approvals[approval_id])
        if changes.unsealed:
            _unseal(self._connection, changes.unsealed)
        if changes.sealed:
            self._connection.execute(delete(SEALED).where(SEALED.c.expires_at <= now))
            for asked, body in changes.sealed_with():
                row = {"approval_id": asked.id, "expires_at": asked.expires_at, "body": body}
                self._connection.execute(SEALED.insert(), [row])
        grown = {name: amount - before.counters.get(name, 0) for name, amount in after.counters.items()}
        made = {
            "version": after.version,
            "labels": sorted([plain(taint.label), plain(taint.source)] for taint in changes.taints),
            "counts": {plain(name): str(amount) for name, amount in sorted(grown.items()) if amount},
        }
        return {**made, "used": [use.id for use in changes.used]} if changes.used else made

    def marks(self, wanted: Collection[str]) -> frozenset[str]:
        """Those of `wanted` that are stored."""
        return frozenset(row.mark for row in self._some(SESSION_MARKS, ("mark",), wanted))

    def grants(self) -> tuple[Grant, ...]:
        """The stored grants."""
        columns = ("id", *_GRANT_COLUMNS)
        rows = self._rows(SESSION_GRANTS, *columns)
        if not rows:
            return ()
        sources: defaultdict[str, set[str]] = defaultdict(set)
        for grant_id, source in self._connection.execute(_GRANT_SOURCES, self._row):
            sources[grant_id].add(source)
        return tuple(Grant(**row._mapping, sources=frozenset(sources[row.id])) for row in rows)

    def _tool_ids(self) -> Mapping[str, Mapping[str, str]]:
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for canonical, provider, name in self._rows(SESSION_TOOL_IDS, "canonical_id", "provider", "provider_id"):
            names = found[canonical]
            if provider != _UNNAMED:
                names[provider] = name
        return dict(found)

    def _insert_missing(self, table: Table, rows: list[dict[str, Any]]) -> None:
        insert_missing(self._connection, table, [{**self._row, **row} for row in rows])

    def _save_labels(self, changes: Changes, after: SessionState) -> None:
        self._insert_missing(SESSION_LABELS, [{"label": one.label, "source": one.source} for one in changes.taints])
        for grant in after.grants:
            row = {**self._row, "id": grant.id, **{name: getattr(grant, name) for name in _GRANT_COLUMNS}}
            self._connection.execute(SESSION_GRANTS.insert(), [row])
            sources = [{"grant_id": grant.id, "source": source} for source in sorted(grant.sources)]
            self._connection.execute(SESSION_GRANT_SOURCES.insert(), sources)

    def _append_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        if not events:
            return
        seq = (self._connection.execute(_LAST_EVENT, self._row).scalar() or 0) + len(events)
        rows = [
            {**self._row, "seq": seq - len(events) + place, "body": dumps(dict(event))}
            for place, event in enumerate(events, 1)
        ]
        self._connection.execute(SESSION_EVENTS.insert(), rows)
        self._connection.execute(_FORGET_EVENTS, {**self._row, "oldest": seq - MAX_EVENTS})


def _tool_id_rows(links: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
    rows = []
    for canonical, names in links.items():
        for provider, name in {_UNNAMED: canonical, **names}.items():
            rows.append({"canonical_id": canonical, "provider": provider, "provider_id": name})
    return rows


def insert_missing(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert the rows that are missing; existing rows stay as they are."""
    if rows:
        connection.execute(_insertion(connection, table).on_conflict_do_nothing(), rows)


def _insertion(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    # Not in the SQL standard: each dialect has its own insert with ON CONFLICT, with the same methods.
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # costs 2 MB, which a store in a file does not need

    return postgresql.insert(table)


def _approvals(found: Result[Any]) -> dict[str, Approval]:
    rows = (row | {name: loads(row[name]) for name in LISTS} for row in map(dict, found.mappings()))
    return {row["id"]: Approval.from_json(row) for row in rows}


def _approvals_by_id(connection: Connection, ids: Collection[str]) -> dict[str, Approval]:
    return _approvals(connection.execute(_APPROVALS_BY_ID, {"wanted": list(ids)})) if ids else {}


def _unseal(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(delete(SEALED).where(SEALED.c.approval_id.in_(ids)))


def _save_approval(connection: Connection, approval: Approval) -> None:
    row = approval.to_json()
    row |= {name: dumps(row[name]) for name in LISTS}
    at = APPROVALS.c.id == approval.asked.id
    if not connection.execute(update(APPROVALS).where(at).values(row)).rowcount:
        connection.execute(APPROVALS.insert(), [row])


def _budget_columns(name: _BudgetId) -> dict[str, str]:
    return dict(zip(("scope", "subject", "session", "name"), name, strict=True))


def _at(table: Table, name: _BudgetId) -> ColumnElement[bool]:
    return and_(*(table.c[column] == part for column, part in _budget_columns(name).items()))


def _budget(connection: Connection, name: _BudgetId) -> Budget:
    spent = connection.execute(select(BUDGETS.c.spent).where(_at(BUDGETS, name))).scalar()
    held = connection.execute(select(BUDGET_HOLDS.c.id, BUDGET_HOLDS.c.amount).where(_at(BUDGET_HOLDS, name)))
    return Budget(Decimal(spent or 0), {hold: Decimal(amount) for hold, amount in held})


def _save_budget(connection: Connection, name: _BudgetId, before: Budget, after: Budget) -> None:
    insert_missing(connection, BUDGETS, [{**_budget_columns(name), "spent": "0"}])
    if after.spent != before.spent:
        connection.execute(update(BUDGETS).where(_at(BUDGETS, name)).values(spent=str(after.spent)))
    for hold in before.held.keys() - after.held.keys():
        connection.execute(delete(BUDGET_HOLDS).where(_at(BUDGET_HOLDS, name), BUDGET_HOLDS.c.id == hold))
    for hold in after.held.keys() - before.held.keys():
        row = {**_budget_columns(name), "id": hold, "amount": str(after.held[hold])}
        connection.execute(BUDGET_HOLDS.insert(), [row])
