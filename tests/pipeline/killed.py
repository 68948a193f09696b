"""Writers that are killed: `python -m tests.pipeline.killed MODE …` forks them, kills them, and says what was left.

    commit sqlite DIRECTORY | commit redis URL     one commit, killed before and after every operation in it
    records DIRECTORY KILLS SEED                   a recorder under load, killed at random moments
    runs beside|URL DIRECTORY POLICIES             a whole run, killed before and after each commit, of either store
    fork FILE POLICIES                             a run in a child of the process that opened the store
    at-most sqlite FILE | at-most redis URL        32 threads that count up to ten in one session

It is a process of its own because a process with threads cannot be forked safely.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import redis.connection
from sqlalchemy import Engine, event
from tests.pipeline.run_records import made_record
from tests.pipeline.session_stores import ANN
from ulid import ULID

from cmf.message.message import Message, ToolCallPart
from pipeline.audit.verification import verify
from pipeline.decisions.approval import ApprovalRequest, ApprovalUse
from pipeline.guard import Guard
from pipeline.sessions.base import SessionStore
from pipeline.sessions.redis import RedisSessions
from pipeline.sessions.state import BudgetScope, Changes, Count, Grant, Reservation, Settlement, Taint
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_records

MOST = 10
THREADS = 32
PATIENCE_SECONDS = 120.0
LATER = 4_000_000_000_000_000  # in the year 2096


def _asked(id: str) -> ApprovalRequest:
    return ApprovalRequest(id=id, digest="d", target="t", rules=("a/b",), revision="r", expires_at=LATER)


def _reservation(id: str) -> Reservation:
    return Reservation(id=id, scope=BudgetScope.SUBJECT, budget="cost", amount=Decimal(1), limit=Decimal(9))


def _prepare(store: SessionStore) -> None:
    store.commit(
        ANN,
        0,
        Changes(
            taints=frozenset({Taint("secret", "e1")}), asked=(_asked("apr_1"),), reservations=(_reservation("r1"),)
        ),
    )
    store.decide_approval("apr_1", approver="bob", approve=True)


def _commit(store: SessionStore) -> None:
    granted = Grant(
        id="g1",
        label="secret",
        sources=frozenset({"e1"}),
        actor="a",
        reason="b",
        scope="c",
        expires_at=LATER,
    )
    changes = Changes(
        taints=frozenset({Taint("pii", "e2")}),
        grants=(granted,),
        counts=(Count(name="calls", amount=Decimal(1), mark="c1"), Count(name="cost", amount=Decimal("0.5"))),
        events=({"n": 1}, {"n": 2}),
        tool_ids={"tu_1": {"openai": "call_1"}},
        seen=frozenset({"m1"}),
        asked=(_asked("apr_2"),),
        used=(ApprovalUse(id="apr_1", digest="d", target="t", revision="r"),),
        reservations=(_reservation("r2"),),
        settlements=(Settlement(id="r1", scope=BudgetScope.SUBJECT, budget="cost", amount=Decimal("0.25")),),
    )
    assert store.commit(ANN, 2, changes)


def _dump(store: SessionStore) -> str:
    """All that a commit could have changed."""
    facts = store.read(ANN)
    known = [sorted(facts.labels), facts.counters, facts.events, facts.tool_ids, facts.version]
    statuses = [one["status"] for one in facts.approvals]
    used = store.approval("apr_1")
    after = store.approval("apr_2")
    budget = store.budget(ANN, BudgetScope.SUBJECT, "cost")
    rest = [sorted(store.seen(ANN, {"m1", "c1"})), statuses, used and used.status, after and after.status]
    return json.dumps([known, rest, str(budget.spent), sorted(budget.held), len(store.pending_approvals())])


class _Fuse:
    """Kills this process when its n-th step begins."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def step(self, *_: object, **__: object) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _arm_engine(engine: Engine, fuse: _Fuse) -> None:
    for name in ("before_cursor_execute", "after_cursor_execute", "begin", "savepoint", "release_savepoint"):
        event.listen(engine, name, fuse.step, named=True)
    _arm_commits(engine, fuse)


def _arm_commits(engine: Engine, fuse: _Fuse) -> None:
    commit = engine.dialect.do_commit

    def armed(connection: Any) -> None:
        fuse.step()
        commit(connection)
        fuse.step()

    engine.dialect.do_commit = armed  # type: ignore[method-assign]


def _arm_redis(fuse: _Fuse, command: bytes = b"") -> None:
    send = redis.connection.Connection.send_packed_command

    def armed(connection: Any, packed: Any, **options: Any) -> None:
        is_meant = command in (packed if isinstance(packed, bytes) else b"".join(packed))
        if is_meant:
            fuse.step()
        send(connection, packed, **options)
        if is_meant:
            fuse.step()

    redis.connection.Connection.send_packed_command = armed  # type: ignore[assignment,method-assign]


@contextmanager
def _opened(kind: str, place: str, fuse: _Fuse | None = None) -> Iterator[SessionStore]:
    if kind == "redis":
        url, prefix = place.split("|")
        sessions = RedisSessions(url, prefix=prefix)
        sessions.read(ANN)  # connected before the fuse is lit
        if fuse is not None:
            _arm_redis(fuse)
        yield sessions
        sessions.close()
    else:
        with Store(f"sqlite:///{place}", busy_seconds=PATIENCE_SECONDS) as database:
            if fuse is not None:
                _arm_engine(database.engine, fuse)
            yield database.sessions(timeout_seconds=PATIENCE_SECONDS)


def _forked(job: Callable[[], None]) -> bool:
    """Whether the child that does `job` came to its end."""
    child = os.fork()
    if child == 0:
        failed = 3
        try:
            job()
            failed = 0
        finally:
            if failed:
                traceback.print_exc()
            os._exit(failed)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise AssertionError("a child failed by itself")
    return os.WIFEXITED(status)


def commits(kind: str, where: str) -> dict[str, object]:
    """What was left by a commit that was killed at each of its steps in turn, until it was not."""
    left: list[str] = []
    finished = False
    while not finished:
        place = f"{where}|{ULID()}" if kind == "redis" else f"{where}/{len(left)}.sqlite3"
        if kind == "sqlite" and left:
            shutil.copy(f"{where}/prepared", place)
        else:
            with _opened(kind, place) as store:
                _prepare(store)
                before = _dump(store)
        if kind == "sqlite" and not left:
            shutil.copy(place, f"{where}/prepared")

        def job(place: str = place, steps: int = len(left)) -> None:
            with _opened(kind, place, _Fuse(steps)) as store:
                _commit(store)

        finished = _forked(job)
        with _opened(kind, place) as store:
            left.append(_dump(store))
    return {"before": before, "left": left}


def runs(sessions: str, directory: str, policies: str) -> dict[str, object]:
    """What was left by a run that was killed before and after each of its commits in turn: calls counted, records."""
    left: list[tuple[int, int]] = []
    finished = False
    while not finished:
        file, prefix = Path(directory) / f"{len(left)}.sqlite3", str(ULID())

        def sessions_of(store: Store, prefix: str = prefix) -> SessionStore:
            return store.sessions() if sessions == "beside" else RedisSessions(sessions, prefix=prefix)

        def job(file: Path = file, steps: int = len(left)) -> None:
            with Store.at(file) as store:
                known = sessions_of(store)
                with Guard(Path(policies), sessions=known, recorder=Recorder(store)) as guard:
                    fuse = _Fuse(steps)
                    _arm_commits(store.engine, fuse)
                    _arm_redis(fuse, b"EXEC")
                    call = ToolCallPart(tool_call_id="c", name="look")
                    asyncio.run(guard.arun(Message(role="assistant", content=[call]), context=ANN))

        finished = _forked(job)
        with Store.at(file) as store:
            counted = int(sum(sessions_of(store).read(ANN).counters.values()))
            left.append((counted, len(list(stored_records(store.engine, kind="decision")))))
    return {"left": left}


def fork(file: str, policies: str) -> dict[str, object]:
    """What came of a run before a fork, of one in each of both processes after it, and how many records there are."""
    call = Message(role="assistant", content=[ToolCallPart(tool_call_id="c", name="look")])
    reading, writing = os.pipe()
    with Store.at(Path(file)) as store, Guard(Path(policies), store=store) as guard:

        def ran() -> str:
            decision = asyncio.run(guard.arun(call, context=ANN)).decision
            return ",".join([decision.action, *(hit.code for hit in decision.hits)])

        parent = [ran()]

        def job() -> None:
            begin = time.monotonic()
            os.write(writing, ran().encode())
            assert time.monotonic() - begin < 4, "it waited for a thread that is not there"

        _forked(job)
        parent.append(ran())
        count = len(list(stored_records(store.engine, kind="decision")))
        is_sound = verify(StoreEvidence(store.engine)).holds
    return {"parent": parent, "child": os.read(reading, 99).decode(), "records": count, "verifies": is_sound}


def records(directory: str, kills: int, seed: int) -> dict[str, object]:
    """How many records were acknowledged, and how many of those were lost, over all kills."""
    dice = random.Random(seed)
    file = Path(directory) / "records.sqlite3"
    Store.at(file).close()
    acknowledged: set[str] = set()
    for _ in range(kills):
        acknowledged |= _killed_recorder(file, dice.uniform(0.05, 0.25))
    with Store.at(file) as store:
        present = [stored.id for stored in stored_records(store.engine, kind="decision")]
    with sqlite3.connect(file) as connection:
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
    lost = len(acknowledged - set(present))
    twice = len(present) - len(set(present))
    return {
        "kills": kills,
        "acknowledged": len(acknowledged),
        "rows": len(present),
        "lost": lost,
        "twice": twice,
        "integrity": integrity,
    }


def _killed_recorder(file: Path, seconds: float) -> set[str]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        store = Store.at(file)
        recorder = Recorder(store)

        def work() -> None:
            while True:
                record = made_record()
                recorder.record(record)
                os.write(writing, f"{record.id}\n".encode())

        for _ in range(8):
            threading.Thread(target=work).start()
        time.sleep(PATIENCE_SECONDS)
    os.close(writing)
    with os.fdopen(reading, "rb") as acknowledgements:
        first = acknowledgements.readline()
        killer = threading.Timer(seconds, os.kill, (child, signal.SIGKILL))
        killer.start()
        lines = [first, *acknowledgements.read().splitlines()]
        killer.join()
    os.waitpid(child, 0)
    return {line.decode().strip() for line in lines}


def at_most(kind: str, place: str) -> dict[str, object]:
    """How many of this process' threads got one of the ten calls that the session allows."""
    got: list[int] = []
    with _opened(kind, place) as store:

        def call() -> None:
            while True:
                facts = store.read(ANN)
                if facts.counters.get("calls", 0) >= MOST:
                    return
                if store.commit(ANN, facts.version, Changes(counts=(Count(name="calls", amount=Decimal(1)),))):
                    got.append(1)
                    return

        threads = [threading.Thread(target=call) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"got": len(got)}


def main(mode: str, *arguments: str) -> None:
    """Do what `mode` says and print the result as JSON."""
    if mode == "commit":
        result = commits(*arguments)
    elif mode == "runs":
        result = runs(*arguments)
    elif mode == "fork":
        result = fork(*arguments)
    elif mode == "records":
        result = records(arguments[0], int(arguments[1]), int(arguments[2]))
    else:
        result = at_most(*arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
