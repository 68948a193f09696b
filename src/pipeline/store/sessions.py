"""Sessions in the database: the same rules as in memory, carried out row by row in one transaction [C5].

Spec: docs/spec/sessions.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, func, select, update
from sqlalchemy.dialects import sqlite

from cmf.codec import dumps, loads
from cmf.identity import Clock
from pipeline.context import Context
from pipeline.policy_input import SessionFacts
from pipeline.session_state import (
    MAX_EVENTS,
    Approval,
    ApprovalStatus,
    Budget,
    BudgetScope,
    Changes,
    Grant,
    SessionKey,
    SessionState,
    Taint,
    budget_id,
    budget_of,
    session_key,
)
from pipeline.sessions import Moments, SessionStore, settle, unknown_approval, waiting, wall_clock, with_decision
from pipeline.store.engine import snapshot
from pipeline.store.tables import (
    APPROVALS,
    BUDGET_HOLDS,
    BUDGETS,
    SESSION_COUNTERS,
    SESSION_EVENTS,
    SESSION_GRANT_SOURCES,
    SESSION_GRANTS,
    SESSION_LABELS,
    SESSION_MARKS,
    SESSION_STATE,
    SESSION_TOOL_IDS,
)
from pipeline.store.writer import TIMEOUT_SECONDS, Writer, waited

_UNNAMED: Final = ""  # the provider of a call that no provider named
_BudgetId = tuple[str, str, str, str]


class SqlSessions(SessionStore):
    """Sessions in a database. Reads take a connection of their own; changes go through the process' one writer."""

    def __init__(
        self, engine: Engine, writer: Writer, *, clock: Clock = wall_clock, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._moments = Moments(clock)
        self._timeout_seconds = timeout_seconds

    def read(self, context: Context) -> SessionFacts:
        """See `SessionStore`."""
        key = session_key(context)
        if key.session is None:
            return SessionFacts()
        with snapshot(self._engine) as connection:
            state = _Session(connection, key).whole()
        return state.facts(self._moments.now())

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
        """See `SessionStore`."""
        key = session_key(context)
        kept = changes.for_key(key)
        now = self._moments.now()
        job = self._writer.call(lambda connection: _commit(connection, key, expected_version, kept, now))
        return waited(job, self._timeout_seconds)

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
            return next(iter(_approvals(connection, APPROVALS.c.id == approval_id).values()), None)

    def pending_approvals(self) -> tuple[Approval, ...]:
        """See `SessionStore`."""
        with snapshot(self._engine) as connection:
            found = _approvals(connection, APPROVALS.c.status == ApprovalStatus.PENDING.value)
        return waiting(found.values(), self._moments.now())

    def decide_approval(self, approval_id: str, *, approver: str, approve: bool) -> Approval:
        """See `SessionStore`."""
        now = self._moments.now()

        def decide(connection: Connection) -> Approval:
            found = _approvals(connection, APPROVALS.c.id == approval_id)
            if not found:
                raise unknown_approval()
            session = _Session(connection, found[approval_id].key)
            before = session.locked(approvals=_approvals(connection, APPROVALS.c.id == approval_id))
            after = with_decision(before, approval_id, approver, approve, now)
            session.advance(after)
            _save_approval(connection, after.approvals[approval_id])
            return after.approvals[approval_id]

        return waited(self._writer.call(decide), self._timeout_seconds)

    def close(self) -> None:
        """See `SessionStore`; the engine and the writer belong to the store."""


def _commit(connection: Connection, key: SessionKey, expected_version: int | None, changes: Changes, now: int) -> bool:
    session = _Session(connection, key)
    if key.session is not None and not session.lock(expected_version, make=changes.touch_session):
        return False
    # Budgets are locked in one order, whatever the order of the changes: two processes never wait for each other.
    names = sorted({budget_of(change, key) for change in changes.of_budgets})
    budgets = {name: _locked_budget(connection, name) for name in names}
    before = dict(budgets)
    settle(budgets, changes, key)
    for name in names:
        _save_budget(connection, name, before[name], budgets[name])
    if changes.touch_session:
        session.save(changes, now)
    return True


class _Session:
    """The rows of one session, on one connection."""

    def __init__(self, connection: Connection, key: SessionKey) -> None:
        self._connection = connection
        self._key = key
        self._row = {"subject": key.subject, "session": key.session}

    def _own(self, table: Table) -> ColumnElement[bool]:
        return and_(table.c.subject == self._key.subject, table.c.session == self._key.session)

    def _rows(self, table: Table, *columns: str, where: ColumnElement[bool] | None = None) -> Sequence[Any]:
        query = select(*(table.c[name] for name in columns)).where(self._own(table))
        return self._connection.execute(query if where is None else query.where(where)).all()

    def whole(self) -> SessionState:
        """All that is on record of it."""
        row = self._connection.execute(
            select(SESSION_STATE.c.version, SESSION_STATE.c.updated_at).where(self._own(SESSION_STATE))
        ).first()
        if row is None:
            return SessionState()
        events = select(SESSION_EVENTS.c.body).where(self._own(SESSION_EVENTS)).order_by(SESSION_EVENTS.c.seq)
        return SessionState(
            version=row.version,
            updated_at=row.updated_at,
            taints=frozenset(Taint(*pair) for pair in self._rows(SESSION_LABELS, "label", "source")),
            grants=self._grants(),
            counters=self._counters(None),
            events=tuple(loads(body) for body in self._connection.execute(events).scalars()),
            tool_ids=self._tool_ids(),
            approvals=_approvals(self._connection, self._own(APPROVALS)),
        )

    def lock(self, expected_version: int | None, *, make: bool) -> bool:
        """Whether the session is at the version, held there until the transaction ends; made if it is new."""
        row = self._locked_row()
        found = row.version if row is not None else 0
        if expected_version not in (None, found):
            return False
        if row is None and make:
            insert_missing(self._connection, SESSION_STATE, [{**self._row, "version": 0, "updated_at": 0}])
            row = self._locked_row()
            return expected_version is None or (row is not None and row.version == expected_version)
        return True

    def _locked_row(self) -> Any:
        query = select(SESSION_STATE.c.version, SESSION_STATE.c.updated_at).where(self._own(SESSION_STATE))
        return self._connection.execute(query.with_for_update()).first()

    def locked(self, **parts: Any) -> SessionState:
        """The locked session with nothing of it but `parts`."""
        row = self._locked_row()
        return SessionState(version=row.version, updated_at=row.updated_at, **parts)

    def advance(self, after: SessionState) -> None:
        """The version and moment of `after` in place of those there."""
        values = {"version": after.version, "updated_at": after.updated_at}
        self._connection.execute(update(SESSION_STATE).where(self._own(SESSION_STATE)).values(values))

    def save(self, changes: Changes, now: int) -> None:
        """Make the changes. Only what they concern is read."""
        counted = self.marks(changes.count_marks)
        labels = sorted({grant.label for grant in changes.grants})
        named = SESSION_LABELS.c.label.in_(labels)
        ids = [*(use.id for use in changes.used), *(asked.id for asked in changes.asked)]
        before = self.locked(
            taints=frozenset(Taint(*pair) for pair in self._rows(SESSION_LABELS, "label", "source", where=named))
            if labels
            else frozenset(),
            counters=self._counters({count.name for count in changes.counts}),
            tool_ids=self._tool_ids() if changes.tool_ids else {},
            approvals=_approvals(self._connection, APPROVALS.c.id.in_(ids)) if ids else {},
        )
        after = before.after(changes, self._key, now, counted)
        self.advance(after)
        self._save_labels(changes, after.updated_at)
        self._upsert_counters({name: after.counters[name] for name in {count.name for count in changes.counts}})
        self._append_events(after.events)
        self._insert_missing(SESSION_TOOL_IDS, _tool_id_rows(changes.tool_ids))
        self._insert_missing(SESSION_MARKS, [{"mark": mark} for mark in sorted(changes.seen | changes.count_marks)])
        for approval_id in ids:
            _save_approval(self._connection, after.approvals[approval_id])

    def marks(self, wanted: Collection[str]) -> frozenset[str]:
        """Those on record."""
        found: set[str] = set()
        ordered = sorted(wanted)
        for start in range(0, len(ordered), _AT_ONCE):
            some = SESSION_MARKS.c.mark.in_(ordered[start : start + _AT_ONCE])
            found.update(row.mark for row in self._rows(SESSION_MARKS, "mark", where=some))
        return frozenset(found)

    def _grants(self) -> tuple[Grant, ...]:
        columns = ("id", "label", "actor", "reason", "scope", "expires_at")
        rows = self._rows(SESSION_GRANTS, *columns)
        if not rows:
            return ()
        named = select(SESSION_GRANT_SOURCES).join(SESSION_GRANTS).where(self._own(SESSION_GRANTS))
        sources: defaultdict[str, set[str]] = defaultdict(set)
        for grant_id, source in self._connection.execute(named):
            sources[grant_id].add(source)
        return tuple(Grant(**row._mapping, sources=frozenset(sources[row.id])) for row in rows)

    def _counters(self, names: Collection[str] | None) -> dict[str, Decimal]:
        if names is not None and not names:
            return {}
        where = SESSION_COUNTERS.c.name.in_(sorted(names)) if names is not None else None
        return {name: Decimal(amount) for name, amount in self._rows(SESSION_COUNTERS, "name", "amount", where=where)}

    def _tool_ids(self) -> Mapping[str, Mapping[str, str]]:
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for canonical, provider, name in self._rows(SESSION_TOOL_IDS, "canonical_id", "provider", "provider_id"):
            names = found[canonical]
            if provider != _UNNAMED:
                names[provider] = name
        return dict(found)

    def _insert_missing(self, table: Table, rows: list[dict[str, Any]]) -> None:
        insert_missing(self._connection, table, [{**self._row, **row} for row in rows])

    def _save_labels(self, changes: Changes, now: int) -> None:
        self._insert_missing(SESSION_LABELS, [{"label": one.label, "source": one.source} for one in changes.taints])
        for grant in changes.grants:
            columns = {name: getattr(grant, name) for name in ("id", "label", "actor", "reason", "scope", "expires_at")}
            row = {**self._row, **columns, "granted_at": now}
            self._connection.execute(SESSION_GRANTS.insert(), [row])
            sources = [{"grant_id": grant.id, "source": source} for source in sorted(grant.sources)]
            self._connection.execute(SESSION_GRANT_SOURCES.insert(), sources)

    def _upsert_counters(self, amounts: Mapping[str, Decimal]) -> None:
        for name, amount in amounts.items():
            at = and_(self._own(SESSION_COUNTERS), SESSION_COUNTERS.c.name == name)
            values = {"name": name, "amount": str(amount)}
            if not self._connection.execute(update(SESSION_COUNTERS).where(at).values(values)).rowcount:
                self._connection.execute(SESSION_COUNTERS.insert(), [{**self._row, **values}])

    def _append_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        if not events:
            return
        last = select(func.max(SESSION_EVENTS.c.seq)).where(self._own(SESSION_EVENTS))
        seq = (self._connection.execute(last).scalar() or 0) + len(events)
        rows = [
            {**self._row, "seq": seq - len(events) + place, "body": dumps(dict(event))}
            for place, event in enumerate(events, 1)
        ]
        self._connection.execute(SESSION_EVENTS.insert(), rows)
        old = and_(self._own(SESSION_EVENTS), SESSION_EVENTS.c.seq <= seq - MAX_EVENTS)
        self._connection.execute(delete(SESSION_EVENTS).where(old))


_AT_ONCE: Final = 1_000  # values in one IN list; SQLite stops at 32,766 parameters


def _tool_id_rows(links: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
    rows = []
    for canonical, names in links.items():
        for provider, name in {_UNNAMED: canonical, **names}.items():
            rows.append({"canonical_id": canonical, "provider": provider, "provider_id": name})
    return rows


def insert_missing(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert those rows that are not there; a row that is stays as it is."""
    if rows:
        connection.execute(sqlite.insert(table).on_conflict_do_nothing(), rows)


def _approvals(connection: Connection, where: ColumnElement[bool]) -> dict[str, Approval]:
    found = connection.execute(select(APPROVALS).where(where)).mappings()
    return {row["id"]: Approval.from_json({**row, "rules": loads(row["rules"])}) for row in found}


def _save_approval(connection: Connection, approval: Approval) -> None:
    row = approval.to_json()
    row["rules"] = dumps(row["rules"])
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


def _locked_budget(connection: Connection, name: _BudgetId) -> Budget:
    insert_missing(connection, BUDGETS, [{**_budget_columns(name), "spent": "0"}])
    connection.execute(select(BUDGETS.c.spent).where(_at(BUDGETS, name)).with_for_update())
    return _budget(connection, name)


def _save_budget(connection: Connection, name: _BudgetId, before: Budget, after: Budget) -> None:
    if after.spent != before.spent:
        connection.execute(update(BUDGETS).where(_at(BUDGETS, name)).values(spent=str(after.spent)))
    for hold in before.held.keys() - after.held.keys():
        connection.execute(delete(BUDGET_HOLDS).where(_at(BUDGET_HOLDS, name), BUDGET_HOLDS.c.id == hold))
    for hold in after.held.keys() - before.held.keys():
        row = {**_budget_columns(name), "id": hold, "amount": str(after.held[hold])}
        connection.execute(BUDGET_HOLDS.insert(), [row])
