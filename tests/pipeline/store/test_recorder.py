"""The recorder: no acknowledged record is lost, and no failure is taken for success."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from tests.pipeline.new_store import apart, migrated
from tests.pipeline.run_records import made_record
from tests.pipeline.sessions.test_killed import finished, started

from pipeline.decisions.context import Context
from pipeline.decisions.errors import StoreBusy, StoreError
from pipeline.store import log, writer
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_record, stored_records

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 10
ALL = 1_500  # records of a reader's page and a half


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.at(migrated(tmp_path / "s.sqlite3")) as store:
        yield store


@pytest.mark.spec("REC-9")
@pytest.mark.parametrize("name", ["before_cursor_execute", "begin", "commit"])
def test_whatever_store_call_fails_nothing_is_acknowledged_and_the_next_works(store: Store, name: str) -> None:
    """Each call of its kind in turn, until the record goes through before the failing one comes."""
    recorder = Recorder(store)
    failed = 0
    while True:
        left = [failed]

        def fail(*_: Any, left: list[int] = left, **__: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OperationalError("SECRET", {}, Exception("SECRET"))

        event.listen(store.engine, name, fail, named=True)
        record = made_record()
        error = recorder.submit(record).exception(SECONDS)
        event.remove(store.engine, name, fail)
        if error is None:
            break
        assert isinstance(error, StoreError)
        assert "SECRET" not in str(error)
        assert stored_record(store.engine, record.id) is None
        recorder.record(record)
        assert stored_record(store.engine, record.id) is not None
        failed += 1
    assert failed > 0


@pytest.mark.spec("REC-9")
@pytest.mark.parametrize("place", [log, writer])
def test_rows_that_the_driver_refuses_are_not_acknowledged(store: Store, place: Any, monkeypatch: Any) -> None:
    recorder = Recorder(store)
    recorder.record(made_record())

    def refuse(*_: Any) -> None:
        raise sqlite3.OperationalError("SECRET")

    with monkeypatch.context() as patched:
        patched.setattr(place, "insert_rows", refuse)
        record = made_record()
        error = recorder.submit(record).exception(SECONDS)
    assert isinstance(error, StoreError)
    assert "SECRET" not in str(error)
    assert stored_record(store.engine, record.id) is None
    recorder.record(record)
    assert stored_record(store.engine, record.id) is not None


def test_a_record_durable_after_its_loop_ended_logs_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(store.writer, "insert_for", lambda told, _, wake: given.extend((told, wake)))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(Recorder(store).arecord(made_record()), 0.01))
    told, wake = given
    told.set_result(None)
    wake()
    assert caplog.records == []
    assert not told.set_running_or_notify_cancel(), "nor is it begun any more, where it had not been"


@pytest.mark.spec("REC-7")
async def test_a_loop_is_woken_once_for_all_that_a_commit_made_durable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(store)
    loop, woken = asyncio.get_running_loop(), []
    call = loop.call_soon_threadsafe
    with store.engine.connect() as other, other.begin():
        other.exec_driver_sql("CREATE TABLE held (a)")  # so that all of them wait
        waiting = [asyncio.ensure_future(recorder.arecord(made_record())) for _ in range(20)]
        await asyncio.sleep(0.01)
        # Noted first: once the loop is woken, it may be looked at before the writer goes on.
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda told, *at: (woken.append(told), call(told, *at)))
    await asyncio.gather(*waiting)

    assert 1 <= len(woken) <= 2, "the first of them may have had a commit of its own"


@pytest.mark.spec("REC-7")
async def test_the_writer_hears_how_long_those_let_go_on_waited_for_their_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    heard: list[float] = []
    monkeypatch.setattr(store.writer, "insert_for", lambda told, _, wake: given.extend((told, wake)))
    monkeypatch.setattr(store.writer, "late", heard.append)
    waiting = asyncio.ensure_future(Recorder(store).arecord(made_record()))
    await asyncio.sleep(0)
    told, wake = given

    told.set_result(None)
    wake()
    busy = monotonic() + 0.01
    while monotonic() < busy:
        pass
    await waiting

    assert 0.01 <= heard[0] < SECONDS


@pytest.mark.spec("REC-8")
async def test_a_record_refused_by_a_full_queue_leaves_no_pending_future(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(f"sqlite:///{tmp_path / 's.sqlite3'}", max_waiting=0) as store:
        with pytest.raises(StoreBusy):
            await Recorder(store, timeout_seconds=0.001).arecord(made_record())
        await asyncio.sleep(0.01)
        gc.collect()
    assert caplog.records == []


@pytest.mark.spec("REC-9")
def test_a_store_that_another_process_holds_fails_in_its_time(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with apart():
        holder = Store.at(file)
    with apart(), Store(f"sqlite:///{file}", busy_seconds=0.2) as store:
        recorder = Recorder(store)
        with holder.engine.connect() as other, other.begin():
            other.exec_driver_sql("CREATE TABLE held (a)")
            begun = perf_counter()
            with pytest.raises(StoreError):
                recorder.record(made_record())
            assert perf_counter() - begun < 2
        recorder.record(made_record())
    holder.close()


@pytest.mark.spec("REC-10")
async def test_an_answer_that_does_not_come_is_an_error(store: Store) -> None:
    recorder = Recorder(store, timeout_seconds=0.05)
    with store.engine.connect() as other, other.begin():
        other.exec_driver_sql("CREATE TABLE held (a)")

        with pytest.raises(StoreError) as refused:
            await recorder.arecord(made_record())
        with pytest.raises(StoreError) as as_well:
            recorder.record(made_record())

    assert {refused.value.code, as_well.value.code} == {"store.timeout"}


@pytest.mark.spec("REC-10")
async def test_each_of_many_is_given_its_whole_time(store: Store) -> None:
    recorder = Recorder(store, timeout_seconds=0.05)

    async def waited(after: float) -> float:
        await asyncio.sleep(after)
        begun = perf_counter()
        with pytest.raises(StoreError, match="in time"):
            await recorder.arecord(made_record())
        return perf_counter() - begun

    with store.engine.connect() as other, other.begin():
        other.exec_driver_sql("CREATE TABLE held (a)")
        times = await asyncio.gather(waited(0), waited(0.02), waited(0.02), waited(0.1))

    assert min(times) > 0.045


@pytest.mark.spec("REC-6")
def test_a_record_can_be_read_when_record_returns(store: Store) -> None:
    recorder = Recorder(store)
    for context in (Context(), Context(session="s2")):
        record = made_record(context)

        recorder.record(record)

        stored = stored_record(store.engine, record.id)
        assert stored is not None
        assert stored.body == record.body
    assert stored_record(store.engine, "dec_other") is None


@pytest.mark.spec("REC-5")
def test_bytes_that_were_changed_are_no_record(store: Store) -> None:
    record = made_record()
    Recorder(store).record(record)

    def damage(connection: Any) -> None:
        connection.exec_driver_sql(
            "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'deny', 'none') AS BLOB)"
        )

    store.writer.call(damage).result(5)

    for read in (
        lambda: stored_record(store.engine, record.id),
        lambda: list(stored_records(store.engine, kind="decision")),
    ):
        with pytest.raises(StoreError) as refused:
            read()
        assert refused.value.code == "record.damaged"


@pytest.mark.spec("REC-7")
async def test_concurrent_records_share_commits(store: Store, proof_row: Callable[..., None]) -> None:
    recorder = Recorder(store)
    made = [made_record() for _ in range(640)]
    seen: list[object] = []
    event.listen(store.engine, "commit", seen.append)

    async def client(first: int) -> None:
        for record in made[first::64]:
            await recorder.arecord(record)

    await asyncio.gather(*map(client, range(64)))

    assert {stored.id for stored in stored_records(store.engine, kind="decision")} == {one.id for one in made}
    # Reading commits its snapshots too, one per page.
    assert len(seen) - 1 < len(made) / 4
    proof_row("records share commits", records=len(made), concurrency=64, commits=len(seen) - 1)


@pytest.mark.spec("REC-7")
def test_records_come_back_in_order_page_after_page(store: Store) -> None:
    recorder = Recorder(store)
    made = [made_record() for _ in range(ALL)]
    with ThreadPoolExecutor(4) as pool:
        for future in [recorder.submit(record) for record in made]:
            pool.submit(future.result).result(10)

    stored = list(stored_records(store.engine, kind="decision"))

    assert [one.id for one in stored] == [one.id for one in made]
    assert [one.seq for one in stored] == sorted(one.seq for one in stored)
    assert [one.seq for one in stored_records(store.engine, after=stored[9].seq)] == [one.seq for one in stored[10:]]


@pytest.mark.spec("REC-6")
@pytest.mark.proof
def test_no_acknowledged_record_is_lost_by_kill(
    tmp_path: Path, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    kills = max(20, int(200 * proof_scale))

    result = finished(started("records", str(tmp_path), str(kills), str(proof_seed)))

    assert result["acknowledged"] >= kills
    assert (result["lost"], result["twice"], result["integrity"]) == (0, 0, "ok")
    proof_row("kill -9 of the recorder under load", **result)


@pytest.mark.spec("REC-9")
def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the write fails the same way."""
    script = """
import json, resource, sys
from pathlib import Path
from pipeline.decisions.errors import StoreBusy, StoreError
from pipeline.store.recorder import Recorder
from pipeline.store import log, writer
from pipeline.store.database import Store
from tests.pipeline.run_records import made_record

store = Store.at(Path(sys.argv[1]))
recorder = Recorder(store)
kept, refused = [], []
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
while len(refused) < 20:
    record = made_record()
    try:
        recorder.record(record)
        kept.append(record.id)
    except StoreError as error:
        refused.append(record.id)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
last = made_record()
recorder.record(last)
kept.append(last.id)
store.close()
print(json.dumps([kept, refused]))
"""
    file = tmp_path / "s.sqlite3"
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}

    printed = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
        timeout=120,
    )

    kept, refused = json.loads(printed.stdout)
    with Store.at(file) as store:
        present = [stored.id for stored in stored_records(store.engine, kind="decision")]
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    assert len(kept) > 1
    assert present == kept
    assert not set(refused) & set(present)
