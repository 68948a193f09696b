"""The one writer of a process: who shares a commit, and what each hears."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, func, insert, select

from pipeline.audit.heads import Signer
from pipeline.decisions.errors import SessionError, StoreBusy, StoreError
from pipeline.sessions.base import wall_clock
from pipeline.store import writer as writing
from pipeline.store.engine import open_engine, snapshot
from pipeline.store.log import Log
from pipeline.store.tables import SESSION_MARKS, SESSION_STATE
from pipeline.store.writer import Writer, waited

SECONDS = 10


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 's.sqlite3'}")
    yield engine
    engine.dispose()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(lambda: Signer.at(tmp_path / "audit.pem"), clock=wall_clock, offer=lambda _: None)


@pytest.fixture
def writer(engine: Engine, log: Log) -> Iterator[Writer]:
    writer = Writer(engine, log)
    yield writer
    writer.close()


class Gate:
    """A job that keeps the writer busy until it is let go."""

    def __init__(self, writer: Writer) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        self.future = writer.call(self._wait)
        assert self._entered.wait(SECONDS)

    def _wait(self, _: Connection) -> None:
        self._entered.set()
        assert self._open.wait(SECONDS)

    def open(self) -> None:
        self._open.set()
        self.future.result(SECONDS)


def row(number: int) -> dict[str, object]:
    return {"subject": "id:ann", "session": f"s{number}", "version": 0, "updated_at": 0}


def rows(engine: Engine) -> int:
    with snapshot(engine) as connection:
        return connection.execute(select(func.count()).select_from(SESSION_STATE)).scalar_one()


def commits(engine: Engine) -> list[object]:
    seen: list[object] = []
    event.listen(engine, "commit", seen.append)
    return seen


@pytest.mark.spec("REC-8")
def test_a_full_queue_refuses_at_once(engine: Engine, log: Log) -> None:
    writer = Writer(engine, log, max_waiting=2)
    gate = Gate(writer)
    waiting = [writer.insert(SESSION_STATE, row(number)) for number in range(2)]

    with pytest.raises(StoreBusy) as refused:
        writer.insert(SESSION_STATE, row(9))
    with pytest.raises(StoreBusy):
        writer.call(lambda connection: None)

    assert refused.value.code == "store.busy"
    assert refused.value.retryable
    gate.open()
    for future in waiting:
        future.result(SECONDS)
    writer.close()
    assert rows(engine) == 2


@pytest.mark.spec("REC-12")
def test_a_closed_writer_finishes_what_waits_and_refuses_what_comes(engine: Engine, log: Log) -> None:
    writer = Writer(engine, log)
    waiting = [writer.insert(SESSION_STATE, row(number)) for number in range(50)]

    writer.close()
    writer.close()

    assert all(future.done() and future.exception() is None for future in waiting)
    assert rows(engine) == 50
    with pytest.raises(StoreError) as refused:
        writer.insert(SESSION_STATE, row(99))
    assert refused.value.code == "store.closed"


@pytest.mark.spec("REC-7")
def test_all_that_waits_shares_one_commit(engine: Engine, writer: Writer) -> None:
    gate = Gate(writer)
    waiting: list[Future[object]] = [writer.insert(SESSION_STATE, row(number)) for number in range(100)]  # type: ignore[misc]
    waiting += [writer.call(lambda connection: connection.exec_driver_sql("SELECT 1").scalar()) for _ in range(20)]
    seen = commits(engine)

    gate.open()
    results = [future.result(SECONDS) for future in waiting]

    assert results == [None] * 100 + [1] * 20
    assert len(seen) == 2, "the gate's own, and one for all the others"
    assert rows(engine) == 100


@pytest.mark.spec("REC-7")
def test_a_batch_is_bounded(engine: Engine, log: Log) -> None:
    writer = Writer(engine, log, max_batch=10)
    gate = Gate(writer)
    waiting = [writer.insert(SESSION_STATE, row(number)) for number in range(30)]
    seen = commits(engine)

    gate.open()
    for future in waiting:
        future.result(SECONDS)

    assert len(seen) == 4
    writer.close()


@pytest.mark.spec("REC-7")
def test_the_writer_waits_for_others_only_after_a_shared_commit(
    engine: Engine, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(writing, "sleep", slept.append)
    writer = Writer(engine, log)
    for number in range(3):
        writer.insert(SESSION_STATE, row(number)).result(SECONDS)
    gate = Gate(writer)
    assert slept == []

    waiting = [writer.insert(SESSION_STATE, row(number)) for number in range(3, 6)]
    gate.open()
    for future in waiting:
        future.result(SECONDS)
    writer.insert(SESSION_STATE, row(6)).result(SECONDS)
    writer.insert(SESSION_STATE, row(7)).result(SECONDS)
    writer.close()

    assert slept == [2 * writing.GATHER_SECONDS]


def share_a_commit(writer: Writer) -> None:
    """Have two jobs share one: then the writer waits for others to come."""
    gate = Gate(writer)
    waiting = [writer.insert(SESSION_STATE, row(number)) for number in range(2)]
    gate.open()
    for future in waiting:
        future.result(SECONDS)


@pytest.mark.spec("REC-7")
def test_where_it_is_known_how_many_are_in_work_most_of_them_share_a_commit(
    engine: Engine, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GATHER_SECONDS", SECONDS * 10)
    monkeypatch.setattr(writing, "MAX_EXPECTED_SECONDS", SECONDS * 10)
    writer = Writer(engine, log)
    writer.expect(lambda: 5)
    share_a_commit(writer)
    seen = commits(engine)

    waiting = [writer.insert(SESSION_STATE, row(number)) for number in range(2, 5)]
    for future in waiting:
        future.result(SECONDS)
    assert len(seen) == 1
    last = writer.insert(SESSION_STATE, row(5))
    writer.close()

    assert last.done(), "whoever closes the store waits for nobody else either"


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize(("late", "commits_of_two"), [(SECONDS, 1), (0.0, 2)])
def test_while_those_let_go_on_wait_for_their_turn_others_are_let_come_longer(
    engine: Engine, log: Log, monkeypatch: pytest.MonkeyPatch, late: float, commits_of_two: int
) -> None:
    monkeypatch.setattr(writing, "GATHER_SECONDS", SECONDS * 10)
    monkeypatch.setattr(writing, "MAX_EXPECTED_SECONDS", 0.0)
    monkeypatch.setattr(writing, "MAX_LATE_SECONDS", SECONDS * 10)
    writer = Writer(engine, log)
    writer.expect(lambda: 3)
    writer.late(late)
    share_a_commit(writer)
    seen = commits(engine)

    first = writer.insert(SESSION_STATE, row(2))
    if commits_of_two == 2:
        first.result(SECONDS)
    writer.insert(SESSION_STATE, row(3)).result(SECONDS)
    first.result(SECONDS)

    assert len(seen) == commits_of_two
    writer.close()


@pytest.mark.spec("REC-7")
def test_futures_are_done_only_after_the_commit(engine: Engine, writer: Writer) -> None:
    told: list[bool] = []
    gate = Gate(writer)
    future = writer.insert(SESSION_STATE, row(1))
    event.listen(engine, "commit", lambda _: told.append(future.done()))

    gate.open()
    future.result(SECONDS)

    assert told == [False, False]


@pytest.mark.spec("REC-11")
def test_a_refused_change_undoes_its_own_work_only(engine: Engine, writer: Writer) -> None:
    def refused(connection: Connection) -> None:
        connection.execute(insert(SESSION_STATE), [row(1)])
        raise SessionError("no")

    gate = Gate(writer)
    before = writer.insert(SESSION_STATE, row(0))
    bad = writer.call(refused)
    after = writer.call(lambda connection: connection.execute(insert(SESSION_STATE), [row(2)]).rowcount)

    gate.open()

    with pytest.raises(SessionError):
        bad.result(SECONDS)
    before.result(SECONDS)
    assert after.result(SECONDS) == 1
    assert rows(engine) == 2


@pytest.mark.spec("REC-9")
def test_a_row_that_cannot_be_kept_fails_all_that_share_its_commit(engine: Engine, writer: Writer) -> None:
    gate = Gate(writer)
    good = writer.insert(SESSION_STATE, row(1))
    orphan = writer.insert(SESSION_MARKS, {"subject": "id:SECRET", "session": "none", "mark": "m"})

    gate.open()

    for future in (good, orphan):
        error = future.exception(SECONDS)
        assert isinstance(error, StoreError)
        assert "SECRET" not in str(error)
    assert rows(engine) == 0
    writer.insert(SESSION_STATE, row(1)).result(SECONDS)
    assert rows(engine) == 1


@pytest.mark.spec("REC-9")
def test_a_database_that_fails_within_a_change_fails_all_that_share_its_commit(engine: Engine, writer: Writer) -> None:
    gate = Gate(writer)
    good = writer.insert(SESSION_STATE, row(1))
    broken = writer.call(lambda connection: connection.execute(insert(SESSION_STATE), [row(1)]).rowcount)

    gate.open()

    assert [type(future.exception(SECONDS)) for future in (good, broken)] == [StoreError, StoreError]
    assert rows(engine) == 0


@pytest.mark.spec("REC-10")
def test_what_did_not_begin_in_time_is_taken_back(engine: Engine, writer: Writer) -> None:
    gate = Gate(writer)
    late = writer.insert(SESSION_STATE, row(1))

    with pytest.raises(StoreError) as refused:
        waited(late, 0.01)

    assert refused.value.code == "store.timeout"
    gate.open()
    writer.call(lambda connection: None).result(SECONDS)
    with pytest.raises(CancelledError):
        late.result(0)
    assert rows(engine) == 0
