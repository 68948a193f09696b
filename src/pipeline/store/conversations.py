"""Conversations in the database: runs that fork, commit and supersede one another. Spec: docs/spec/ledger.md [E4].

Each change is one transaction of the writer: a crash leaves the conversation as it was before or after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Select, delete, func, insert, or_, select, update

from cmf.errors import CmfError, UnknownPriceError
from cmf.interop.agent_threads import linearise
from cmf.json.codec import dumps, loads
from cmf.json.value import replace
from cmf.message.ids import TOOL_PREFIX, IdMap, Ids, is_ulid, stamp
from cmf.message.message import SCHEMA_VERSION, Message, Part, ToolCallPart, ToolResultPart
from cmf.models.pricing import PriceTable
from pipeline.decisions.errors import LedgerError
from pipeline.decisions.timestamps import instant_of, micros
from pipeline.sessions.base import wall_clock
from pipeline.store.engine import snapshot
from pipeline.store.tables import MESSAGES, RUNS, SESSION_NAMES, SESSIONS, TOOL_CALLS
from pipeline.store.writer import Writer, waited

_COLUMNS: Final = ("id", "session_id", "role", "content", "created_at", "schema_version", "parent_id")
_FIRST_VERSION: Final = 1  # it had one metadata field per message; now they are separate fields


@dataclass(frozen=True, slots=True)
class LedgerSession:
    """A conversation. `subject` and `session` are its owner and the client's id for it, if known."""

    id: str
    workspace_path: str
    active_model: str | None
    created_at: int
    updated_at: int
    subject: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """A part of a conversation that is committed as a unit; it continues from a message, or (None) starts over."""

    id: str
    session_id: str
    fork_from_message_id: str | None
    status: str
    created_at: int
    committed_at: int | None


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """A tool call, and the message with its result."""

    id: str
    session_id: str
    message_id: str
    result_message_id: str | None
    name: str
    status: str
    provider_id: str | None
    provider: str | None
    created_at: int
    completed_at: int | None


def row_of(message: Message, *, session_id: str, run_id: str) -> dict[str, Any]:
    """The row of a message that has an id and a time."""
    if message.id is None or message.created_at is None:
        hint = "`cmf.message.ids.stamp` sets both"
        raise LedgerError("a message needs an id and a time", code="ledger.unstamped", hint=hint)
    shown = message.model_dump()
    return {
        "id": message.id,
        "session_id": session_id,
        "role": shown["role"],
        "content_json": dumps(shown["content"]).decode(),
        "metadata_json": dumps({name: item for name, item in shown.items() if name not in _COLUMNS}).decode(),
        "created_at": micros(message.created_at),
        "schema_version": SCHEMA_VERSION,
        "parent_id": message.parent_id,
        "run_id": run_id,
    }


def message_of(row: Mapping[str, Any]) -> Message:
    """The message in a row of any supported version.

    Raises:
        LedgerError: the row is damaged (`ledger.damaged`), or of a newer version.
    """
    try:
        content, metadata = loads(row["content_json"]), loads(row["metadata_json"])
        at = instant_of(row["created_at"]).isoformat()
        shown = {"role": row["role"], "content": content, "id": row["id"], "session_id": row["session_id"]}
        shown |= {"created_at": at, "schema_version": row["schema_version"]}
        if row["schema_version"] == _FIRST_VERSION:
            shown["metadata"] = metadata
        else:
            shown |= metadata
        message = Message.model_validate(shown)
    except (CmfError, TypeError) as error:
        code, hint = (error.code, error.hint) if isinstance(error, CmfError) else ("shape", "")
        raise LedgerError(
            f"a message cannot be read ({code})",
            path=f"messages[{row['id']}]",
            code="ledger.damaged",
            hint=hint or "restore it from a backup",
        ) from None
    return message.model_copy(update={"parent_id": row["parent_id"]})


def calls_in(message: Message) -> Iterator[ToolCallPart]:
    """The tool calls in a message."""
    return (part for part in message.content if isinstance(part, ToolCallPart))


@dataclass(frozen=True, slots=True)
class Cost:
    """Exact US dollars. `unpriced` are messages with token usage whose model has no price."""

    total: Decimal
    by_model: dict[str, Decimal]
    unpriced: tuple[str, ...]


def cost_of(messages: Iterable[Message], prices: PriceTable | None = None) -> Cost:
    """The cost of these messages, as recorded in them or recomputed under `prices`."""
    by_model: dict[str, Decimal] = {}
    unpriced: list[str] = []
    for message in messages:
        model, cost = _cost_of_one(message, prices)
        if cost is not None:
            by_model[model] = by_model.get(model, Decimal(0)) + cost
        elif _used_tokens(message):
            unpriced.append(message.id or "")
    return Cost(sum(by_model.values(), Decimal(0)), by_model, tuple(unpriced))


def _cost_of_one(message: Message, prices: PriceTable | None) -> tuple[str, Decimal | None]:
    if prices is not None:
        try:
            message = prices.price(message)
        except UnknownPriceError:
            return "", None
    extensions = message.extensions
    completion = None if extensions is None else extensions.completion
    llm = None if extensions is None else extensions.llm
    model = "" if llm is None or llm.model_id is None else llm.model_id
    return model, None if completion is None else completion.cost_usd


def _used_tokens(message: Message) -> bool:
    completion = None if message.extensions is None else message.extensions.completion
    return completion is not None and completion.tokens is not None


@dataclass(frozen=True, slots=True)
class Tally:
    """A conversation: its cost, its number of unanswered calls, and the failures of each tool."""

    session: LedgerSession
    cost: Cost
    unanswered: int
    failed: Mapping[str, int]


def tallies(ledger: Ledger, *, limit: int = 100, prices: PriceTable | None = None) -> list[Tally]:
    """The tallies of the `limit` conversations changed most recently; with `prices`, their cost under that table.

    Raises:
        LedgerError: a row cannot be read (`ledger.damaged`).
    """
    waiting = Counter(call.session_id for call in ledger.unanswered())
    failed = ledger.failed_tools()
    return [
        Tally(one, cost_of(ledger.messages(one.id), prices), waiting[one.id], failed.get(one.id, {}))
        for one in ledger.sessions(limit=limit)
    ]


OPEN, COMMITTED, SUPERSEDED, ABORTED = "open", "committed", "superseded", "aborted"
PENDING, SUCCEEDED, FAILED = "pending", "succeeded", "failed"
_SESSION_VERSION: Final = 1  # of a session's row
_LATEST: Final = object()
_CHUNK_SIZE: Final = 500  # ids in one statement
_T = TypeVar("_T")


class Ledger:
    """The conversations in a store. Safe to use from any thread."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer
        self._ids = Ids(wall_clock)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def open(self, subject: str, session: str, *, workspace: str = "") -> str:
        """The id of the conversation that `subject` calls `session`, created if it is new.

        `subject` is written as in sessions, `id:<subject id>` or `anonymous`. Each subject has its own names.
        """
        return self._change(lambda connection: self._open(connection, subject, session, workspace))

    def _open(self, connection: Connection, subject: str, session: str, workspace: str) -> str:
        named = (SESSION_NAMES.c.subject == subject) & (SESSION_NAMES.c.session == session)
        found = connection.execute(select(SESSION_NAMES.c.id).where(named)).scalar()
        if found is not None:
            return str(found)
        made, now = f"sess_{self._ids.ulid()}", self._now()
        row = {"id": made, "workspace_path": workspace, "schema_version": _SESSION_VERSION}
        connection.execute(insert(SESSIONS), row | {"created_at": now, "updated_at": now})
        connection.execute(insert(SESSION_NAMES), {"subject": subject, "session": session, "id": made})
        return made

    def sessions(self, *, limit: int = 100) -> list[LedgerSession]:
        """The `limit` conversations changed most recently."""
        with snapshot(self._engine) as connection:
            rows = connection.execute(_SESSION.order_by(SESSIONS.c.updated_at.desc(), SESSIONS.c.id).limit(limit))
            return [LedgerSession(**row._asdict()) for row in rows]

    def session(self, session_id: str) -> LedgerSession:
        """The conversation of that id. Raises LedgerError: there is none (`ledger.unknown`)."""
        with snapshot(self._engine) as connection:
            row = connection.execute(_SESSION.where(SESSIONS.c.id == session_id)).first()
        if row is None:
            raise _unknown("session", session_id)
        return LedgerSession(**row._asdict())

    def add(self, subject: str, session: str, messages: Iterable[Message], *, provider: str = "") -> str:
        """The id of the conversation, as `open` gives it, with these messages in a run of their own: all or nothing."""
        given = tuple(messages)

        def add(connection: Connection) -> str:
            run = self._begin(connection, known := self._open(connection, subject, session, ""), _LATEST)
            self._append(connection, run, given, provider)
            self._commit(connection, run)
            return known

        return self._change(add)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def begin(self, session_id: str, *, fork_from: str | object | None = _LATEST) -> str:
        """The id of a new run that continues from a message, by default the conversation's last.

        `fork_from` is a committed message; None starts the conversation over.

        Raises:
            LedgerError: there is no such conversation, or no such committed message in it (`ledger.unknown`).
        """
        return self._change(lambda connection: self._begin(connection, session_id, fork_from))

    def _begin(self, connection: Connection, session_id: str, fork_from: str | object | None) -> str:
        if connection.execute(select(SESSIONS.c.id).where(SESSIONS.c.id == session_id)).first() is None:
            raise _unknown("session", session_id)
        branch = _branch(connection, session_id)
        if fork_from is _LATEST:
            fork_from = branch[-1].id if branch else None
        elif fork_from is not None and all(message.id != fork_from for message in branch):
            raise _unknown("message to fork from", str(fork_from))
        run = {"id": f"run_{self._ids.ulid()}", "session_id": session_id, "fork_from_message_id": fork_from}
        connection.execute(insert(RUNS), run | {"status": OPEN, "created_at": self._now()})
        return str(run["id"])

    def append(self, run_id: str, messages: Iterable[Message], *, provider: str = "") -> tuple[Message, ...]:
        """The messages as added to an open run: chained, with ids, times and canonical tool ids.

        `provider` names whose tool ids they carry, unless these are canonical.

        Raises:
            LedgerError: there is no such run, it is not open (`ledger.closed`), or a message or canonical tool call
                of that id is already in the ledger, in any conversation (`ledger.known`).
        """
        given = tuple(messages)
        return self._change(lambda connection: self._append(connection, run_id, given, provider))

    def _append(
        self, connection: Connection, run_id: str, messages: Sequence[Message], provider: str
    ) -> tuple[Message, ...]:
        run = self._open_run(connection, run_id)
        parent = _last_of(connection, run) or run.fork_from_message_id
        names = _names_of_calls(connection, run.session_id, messages)
        added: list[Message] = []
        for at, message in enumerate(messages):
            for call in calls_in(message):  # an id that the provider uses again means another call
                names.to_canonical.get(provider or "unknown", {}).pop(str(call.tool_call_id), None)
            stamped = stamp(
                _paired(connection, message, run.session_id),
                self._ids,
                wall_clock,
                names,
                provider=provider or "unknown",
                session_id=run.session_id,
            )
            stamped = replace(stamped, parent_id=parent, session_id=run.session_id)
            row = row_of(stamped, session_id=run.session_id, run_id=run.id)
            _check_new(connection, stamped, at)
            connection.execute(insert(MESSAGES), row)
            _keep_calls(connection, stamped, run.session_id, row["created_at"], names, provider)
            parent = stamped.id
            added.append(stamped)
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == run.session_id).values(updated_at=self._now()))
        return tuple(added)

    def commit(self, run_id: str) -> tuple[str, ...]:
        """Make the run the conversation from its fork point on; returns the ids of the messages that it replaces.

        Everything else after the fork point is removed, with its tool calls: its runs become superseded, and open runs
        that continue from it are aborted.

        Raises:
            LedgerError: there is no such run, or it is no longer open (`ledger.closed`).
        """
        return self._change(lambda connection: self._commit(connection, run_id))

    def _commit(self, connection: Connection, run_id: str) -> tuple[str, ...]:
        run = self._open_run(connection, run_id)
        removed = _descendants(connection, run)
        losers = set(_runs_of(connection, removed)) | set(_siblings(connection, run))
        for other in losers:
            _close(connection, other, SUPERSEDED)
        for other in _open_from(connection, run, removed):
            removed += _own_messages(connection, other)
            _close(connection, other, ABORTED)
        _forget(connection, removed)
        now = self._now()
        connection.execute(update(RUNS).where(RUNS.c.id == run.id).values(status=COMMITTED, committed_at=now))
        connection.execute(update(SESSIONS).where(SESSIONS.c.id == run.session_id).values(updated_at=now))
        return tuple(removed)

    def abort(self, run_id: str) -> None:
        """Discard an open run and everything in it.

        Raises:
            LedgerError: there is no such run, or it is no longer open (`ledger.closed`).
        """
        self._change(lambda connection: self._abort(connection, run_id))

    def _abort(self, connection: Connection, run_id: str) -> None:
        run = self._open_run(connection, run_id)
        _forget(connection, _own_messages(connection, run.id))
        _close(connection, run.id, ABORTED)

    def runs(self, session_id: str) -> list[LedgerRun]:
        """The runs of a conversation, oldest first."""
        with snapshot(self._engine) as connection:
            rows = connection.execute(select(RUNS).where(RUNS.c.session_id == session_id).order_by(RUNS.c.id)).all()
        return [LedgerRun(**row._asdict()) for row in rows]

    def reprice(self, session_id: str, prices: PriceTable) -> Cost:
        """Recompute the cost of each message under `prices`, all or none; returns the total.

        Raises:
            LedgerError: a model in it has no price (`ledger.unpriced`); counting it as free would be wrong.
        """
        return self._change(lambda connection: self._reprice(connection, session_id, prices))

    def _reprice(self, connection: Connection, session_id: str, prices: PriceTable) -> Cost:
        cost = cost_of(branch := _branch(connection, session_id), prices)
        if cost.unpriced:
            raise LedgerError(
                f"{len(cost.unpriced)} messages are of models without a price in table {prices.version}",
                path=f"messages[{cost.unpriced[0]}]",
                code="ledger.unpriced",
                hint="add the model to the table",
            )
        for message, priced in zip(branch, map(prices.price, branch), strict=True):
            if priced is not message:
                row = row_of(priced, session_id=session_id, run_id="")
                changed = update(MESSAGES).where(MESSAGES.c.id == message.id)
                connection.execute(
                    changed.values({name: row[name] for name in ("content_json", "metadata_json", "schema_version")})
                )
        return cost

    # -- reading -------------------------------------------------------------------------------------------------------

    def messages(self, session_id: str, *, run: str | None = None) -> tuple[Message, ...]:
        """The committed conversation; with `run`, the conversation if that open run were committed.

        Raises:
            LedgerError: a row cannot be read (`ledger.damaged`), or there is no such run.
        """
        with snapshot(self._engine) as connection:
            if run is None:
                return _branch(connection, session_id)
            found = self._open_run(connection, run)
            branch = _branch(connection, found.session_id)
            upto = (
                [message.id for message in branch].index(found.fork_from_message_id) + 1
                if (found.fork_from_message_id)
                else 0
            )
            own = _rows(connection, MESSAGES.c.run_id == run)
            return (*branch[:upto], *own)

    def unanswered(self, session_id: str | None = None) -> list[LedgerCall]:
        """The tool calls without a result, in one conversation or in all, oldest first."""
        wanted = _CALL.where(TOOL_CALLS.c.status == PENDING)
        return self._calls(wanted if session_id is None else wanted.where(TOOL_CALLS.c.session_id == session_id))

    def failed(self, session_id: str) -> list[LedgerCall]:
        """The failed tool calls of a conversation, oldest first."""
        return self._calls(_CALL.where((TOOL_CALLS.c.status == FAILED) & (TOOL_CALLS.c.session_id == session_id)))

    def failed_tools(self) -> dict[str, dict[str, int]]:
        """The number of failures of each tool, by conversation."""
        counted = select(TOOL_CALLS.c.session_id, TOOL_CALLS.c.name, func.count().label("times"))
        counted = counted.where(TOOL_CALLS.c.status == FAILED).group_by(TOOL_CALLS.c.session_id, TOOL_CALLS.c.name)
        found: dict[str, dict[str, int]] = {}
        with snapshot(self._engine) as connection:
            for row in connection.execute(counted.order_by(TOOL_CALLS.c.session_id, TOOL_CALLS.c.name)):
                found.setdefault(row.session_id, {})[row.name] = row.times
        return found

    def _calls(self, wanted: Select[Any]) -> list[LedgerCall]:
        with snapshot(self._engine) as connection:
            rows = connection.execute(wanted.order_by(TOOL_CALLS.c.created_at, TOOL_CALLS.c.id)).all()
        return [LedgerCall(**row._asdict()) for row in rows]

    # -- internals ---------------------------------------------------------------------------------------------------

    def _change(self, job: Callable[[Connection], _T]) -> _T:
        return waited(self._writer.call(job))

    def _now(self) -> int:
        return micros(wall_clock())

    def _open_run(self, connection: Connection, run_id: str) -> LedgerRun:
        row = connection.execute(select(RUNS).where(RUNS.c.id == run_id)).first()
        if row is None:
            raise _unknown("run", run_id)
        if row.status != OPEN:
            raise LedgerError(f"the run is {row.status}", code="ledger.closed", hint="begin another")
        return LedgerRun(**row._asdict())


_SESSION: Final = select(
    SESSIONS.c.id, SESSIONS.c.workspace_path, SESSIONS.c.active_model, SESSIONS.c.created_at, SESSIONS.c.updated_at,
    SESSION_NAMES.c.subject, SESSION_NAMES.c.session,
).select_from(SESSIONS.outerjoin(SESSION_NAMES, SESSION_NAMES.c.id == SESSIONS.c.id))  # fmt: skip
_CALL: Final = select(TOOL_CALLS)


def _unknown(what: str, name: str) -> LedgerError:
    hint = "`cmf ledger list` shows the ids of sessions; `Ledger.runs` and `Ledger.messages` those in a session"
    return LedgerError(f"the ledger has no such {what}", path=name, code="ledger.unknown", hint=hint)


def _check_new(connection: Connection, message: Message, at: int) -> None:
    """Refuse a message that is in the ledger already, or a tool call of it."""
    calls = [str(call.tool_call_id) for call in calls_in(message)]
    for what, column, names in (("message", MESSAGES.c.id, [message.id]), ("tool call", TOOL_CALLS.c.id, calls)):
        if len(set(names)) < len(names) or connection.execute(select(column).where(column.in_(names))).first():
            hint = f"each {what} is stored once; leave out its id to store it again"
            problem = f"this {what} is already in the ledger"
            raise LedgerError(problem, path=f"messages[{at}]", code="ledger.known", hint=hint)


def _rows(connection: Connection, condition: Any) -> list[Message]:
    ordered = select(MESSAGES).where(condition).order_by(MESSAGES.c.created_at, MESSAGES.c.id)
    return [message_of(dict(row)) for row in connection.execute(ordered).mappings()]


def _branch(connection: Connection, session_id: str) -> tuple[Message, ...]:
    """The committed conversation, in order."""
    committed = select(RUNS.c.id).where((RUNS.c.session_id == session_id) & (RUNS.c.status == COMMITTED))
    return tuple(linearise(_rows(connection, MESSAGES.c.run_id.in_(committed))))


def _last_of(connection: Connection, run: LedgerRun) -> str | None:
    own = select(MESSAGES.c.id).where(MESSAGES.c.run_id == run.id)
    parents = select(MESSAGES.c.parent_id).where((MESSAGES.c.run_id == run.id) & MESSAGES.c.parent_id.is_not(None))
    return connection.execute(own.where(MESSAGES.c.id.not_in(parents))).scalar()


def _own_messages(connection: Connection, run_id: str) -> list[str]:
    return list(connection.execute(select(MESSAGES.c.id).where(MESSAGES.c.run_id == run_id)).scalars())


def _descendants(connection: Connection, run: LedgerRun) -> list[str]:
    """The committed messages after the run's fork point that are not its own."""
    fork = run.fork_from_message_id
    roots = MESSAGES.c.parent_id.is_(None) if fork is None else MESSAGES.c.parent_id == fork
    first = select(MESSAGES.c.id).where(
        roots
        & (MESSAGES.c.session_id == run.session_id)
        & or_(MESSAGES.c.run_id.is_(None), MESSAGES.c.run_id != run.id)
    )
    tree = first.cte("after_fork", recursive=True)
    tree = tree.union(select(MESSAGES.c.id).where(MESSAGES.c.parent_id == tree.c.id))
    committed = select(RUNS.c.id).where(RUNS.c.status == COMMITTED)
    found = select(MESSAGES.c.id).where(MESSAGES.c.id.in_(select(tree.c.id)) & MESSAGES.c.run_id.in_(committed))
    return list(connection.execute(found).scalars())


def _runs_of(connection: Connection, messages: Sequence[str]) -> list[str]:
    """The committed runs whose messages are all among these."""
    found: set[str] = set()
    for at in range(0, len(messages), _CHUNK_SIZE):
        some = MESSAGES.c.id.in_(messages[at : at + _CHUNK_SIZE])
        found |= set(connection.execute(select(MESSAGES.c.run_id).where(some)).scalars())
    removed = set(messages)
    return [run for run in found if set(_own_messages(connection, run)) <= removed]


def _siblings(connection: Connection, run: LedgerRun) -> list[str]:
    """The other committed runs that continue from the same message."""
    fork = RUNS.c.fork_from_message_id
    same = fork.is_(None) if run.fork_from_message_id is None else fork == run.fork_from_message_id
    others = (RUNS.c.session_id == run.session_id) & (RUNS.c.status == COMMITTED) & (RUNS.c.id != run.id)
    return list(connection.execute(select(RUNS.c.id).where(same & others)).scalars())


def _open_from(connection: Connection, run: LedgerRun, removed: Sequence[str]) -> list[str]:
    """The open runs that continue from a removed message."""
    others = (RUNS.c.session_id == run.session_id) & (RUNS.c.status == OPEN) & (RUNS.c.id != run.id)
    rows = connection.execute(select(RUNS.c.id, RUNS.c.fork_from_message_id).where(others)).all()
    lost = set(removed)
    return [row.id for row in rows if row.fork_from_message_id in lost]


def _close(connection: Connection, run_id: str, status: str) -> None:
    connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(status=status))


def _forget(connection: Connection, messages: Sequence[str]) -> None:
    """Delete messages and their tool calls; calls that they answered elsewhere become unanswered."""
    for at in range(0, len(messages), _CHUNK_SIZE):
        some = messages[at : at + _CHUNK_SIZE]
        connection.execute(delete(TOOL_CALLS).where(TOOL_CALLS.c.message_id.in_(some)))
        answered = update(TOOL_CALLS).where(TOOL_CALLS.c.result_message_id.in_(some))
        connection.execute(answered.values(result_message_id=None, status=PENDING, completed_at=None))
        connection.execute(delete(MESSAGES).where(MESSAGES.c.id.in_(some)))


def _paired(connection: Connection, message: Message, session_id: str) -> Message:
    """The message with ids for results without one: each gets the oldest unanswered call of its tool's name."""
    taken: set[str] = set()
    parts: list[Part] = []
    for part in message.content:
        if isinstance(part, ToolResultPart) and part.tool_call_id is None:
            waiting = (TOOL_CALLS.c.session_id == session_id) & (TOOL_CALLS.c.status == PENDING)
            named = waiting if part.tool_name is None else waiting & (TOOL_CALLS.c.name == part.tool_name)
            oldest = select(TOOL_CALLS.c.id).where(named & TOOL_CALLS.c.id.not_in(taken))
            found = connection.execute(oldest.order_by(TOOL_CALLS.c.created_at, TOOL_CALLS.c.id)).scalar()
            taken |= {found} if found is not None else set()
            part = replace(part, tool_call_id=found)
        parts.append(part)
    return replace(message, content=tuple(parts)) if taken else message


def _names_of_calls(connection: Connection, session_id: str, messages: Sequence[Message]) -> IdMap:
    """The ids of a conversation's calls, with their providers' ids, and of new calls with canonical ids."""
    names = IdMap()
    own = select(TOOL_CALLS).where(TOOL_CALLS.c.session_id == session_id)
    for row in connection.execute(own.order_by(TOOL_CALLS.c.created_at, TOOL_CALLS.c.id)):  # the newest name holds
        names.to_provider.setdefault(row.id, {})
        if row.provider_id is not None:
            names.link(row.id, row.provider, row.provider_id)
    stamped = {str(call.tool_call_id) for message in messages for call in calls_in(message)}
    stamped = {name for name in stamped if name.startswith(TOOL_PREFIX) and is_ulid(name.removeprefix(TOOL_PREFIX))}
    elsewhere = select(TOOL_CALLS.c.id).where(TOOL_CALLS.c.id.in_(stamped) & (TOOL_CALLS.c.session_id != session_id))
    for name in stamped - set(connection.execute(elsewhere).scalars()):
        names.to_provider.setdefault(name, {})
    return names


def _keep_calls(
    connection: Connection, message: Message, session_id: str, at: int, names: IdMap, provider: str
) -> None:
    for call in calls_in(message):
        of_provider = names.to_provider.get(str(call.tool_call_id), {}).get(provider)
        row: dict[str, Any] = {"id": call.tool_call_id, "session_id": session_id, "message_id": message.id}
        row |= {"name": call.name, "status": PENDING, "created_at": at, "provider_id": of_provider}
        connection.execute(insert(TOOL_CALLS), row | {"provider": provider if of_provider else None})
    for result in (part for part in message.content if isinstance(part, ToolResultPart)):
        of_call = (TOOL_CALLS.c.id == result.tool_call_id) & (TOOL_CALLS.c.session_id == session_id)
        status = FAILED if result.is_error else SUCCEEDED
        answered = {"result_message_id": message.id, "status": status, "completed_at": at}
        connection.execute(update(TOOL_CALLS).where(of_call).values(**answered))
