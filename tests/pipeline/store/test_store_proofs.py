"""What a store promises when clocks jump, power goes, a server stops, or two write at once."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import says
from tests.pipeline.postgres_server import Postgres
from tests.pipeline.run_records import made_record
from tests.pipeline.session_stores import ANN, Clock, asked, count, grant, taint, use

from cmf import SubjectExtension
from pipeline import Config, Context, Pipeline
from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.verification import verify
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import ApprovalError, ConfigError, StoreError
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import BREAK_GLASS
from pipeline.store.overrides import OVERRIDE
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_records

ROOT = Path(__file__).resolve().parents[3]
PAIRS = 10_000
SNAPSHOTS = 500
JUMPS = 10_000
FROM_JUMPS = 500
WORKERS = 16
DEADLINE_SECONDS = 0.5
SLACK_SECONDS = 1.0  # a machine with other things to do
LABEL = 'label contains {"code": "l", "reason": "x", "label": "tainted"} if contains(input.content, "salary")'
DENY = 'deny contains {"code": "t", "reason": "No."} if { input.content == "send"; "tainted" in input.session.labels }'


@pytest.mark.proof
@pytest.mark.spec("SES-3")
@pytest.mark.spec("REC-16")
def test_no_use_that_begins_after_a_taint_was_acknowledged_is_let_through(
    database: Store, tmp_path: Path, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    """Whole runs, each on record: one reads a secret and is answered; only then another sends."""
    rules = write_rules(tmp_path / "policy", {"l": LABEL, "t": DENY}, kinds="text", capabilities="read_labels")
    sessions = database.sessions(timeout_seconds=60)
    recorder = Recorder(database, timeout_seconds=60)
    two = [
        Pipeline(policies=rules, recorder=recorder, sessions=sessions, config=Config(timeout_seconds=60))
        for _ in range(2)
    ]
    pairs = int(PAIRS * proof_scale / 2)

    def pair(number: int) -> bool:
        context = Context(subject=SubjectExtension(id="ann"), session=f"s{number}")
        first, second = two if number % 2 else reversed(two)
        read = first.run(says("user", "the salary"), context)
        sent = second.run(says("user", "send"), context)
        assert read.decision.action is Action.FORWARD
        return sent.decision.action is not Action.REFUSE

    with ThreadPoolExecutor(WORKERS) as pool:
        missed = sum(pool.map(pair, range(pairs)))
    report = verify(StoreEvidence(database.engine))

    proof_row(
        f"taint then use, whole runs on record ({database.engine.dialect.name})",
        pairs=pairs, missed=missed, records=report.records, verifies=report.holds,
    )  # fmt: skip
    assert (missed, report.holds) == (0, True)
    assert report.records == 2 * pairs + 1


@pytest.mark.proof
@pytest.mark.spec("AUD-3")
def test_a_clock_that_jumps_moves_no_record(
    tmp_path: Path, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    dice = random.Random(proof_seed)
    now = [datetime(2026, 3, 29, tzinfo=UTC)]

    def clock() -> datetime:
        now[0] += timedelta(seconds=dice.choice((-86_400, -3_600, -0.001, 0, 0.001, 3_600, 86_400)))
        return now[0]

    jumps = int(JUMPS * proof_scale)
    with Store(f"sqlite:///{tmp_path / 's.db'}", clock=clock, heads=HeadFile(tmp_path / "heads")) as store:
        recorder = Recorder(store)
        told: list[str] = []
        for batch in range(jumps // 50):
            made = [made_record() for _ in range(50)]
            for record in made:
                object.__setattr__(record, "timestamp", clock())
            for future in [recorder.submit(record) for record in made]:
                future.result(10)
            told += [record.id for record in made]
            assert batch < jumps
    with Store.at(tmp_path / "s.db") as store:
        kept = [one.id for one in stored_records(store.engine, kind="decision")]
        report = verify(StoreEvidence(store.engine), exported=read_heads(tmp_path / "heads"))

    proof_row("a clock that jumps a day", records=len(kept), in_order=kept == told, verifies=report.holds)
    assert kept == told
    assert report.holds


@pytest.mark.spec("SES-13")
def test_no_approval_that_was_too_old_is_honoured_by_a_clock_set_back(database: Store, clock: Clock) -> None:
    sessions = database.sessions(clock=clock)
    sessions.commit(ANN, None, Changes(asked=(asked(clock),)))
    sessions.decide_approval("apr_1", approver="bob", approve=True)
    clock.now += timedelta(days=1)
    sessions.read(ANN)
    clock.now -= timedelta(days=1)

    assert sessions.read(ANN).approvals == ()
    with pytest.raises(ApprovalError):
        sessions.commit(ANN, None, use())


@pytest.mark.proof
@pytest.mark.spec("SES-13")
@pytest.mark.spec("EXC-12")
@pytest.mark.spec("AUD-82")
def test_however_a_clock_jumps_nothing_that_expired_is_honoured(
    tmp_path: Path, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    """Approvals, grants and overrides of an hour, while the clock goes to and fro by seconds, hours and days."""
    dice, clock = random.Random(proof_seed), Clock()
    clock.now = datetime.now(UTC)
    eve, bob = (SubjectExtension(id=name, permissions=frozenset({OVERRIDE, BREAK_GLASS})) for name in ("eve", "bob"))
    two: dict[str, Any] = {"actor": eve, "seconder": bob, "reason": "x", "subject": "ann"}
    rules = write_rules(tmp_path / "policy", {"no": DENY.replace('; "tainted" in input.session.labels', "")})
    steps, latest, wrong, tried, shortest = int(FROM_JUMPS * proof_scale), 0, 0, 0, 0
    with Store(f"sqlite:///{tmp_path / 's.db'}", clock=clock) as store:
        sessions, overrides, eyes = (
            store.sessions(clock=clock),
            store.overrides(clock=clock),
            store.contents(clock=clock).four_eyes,
        )
        pipeline = Pipeline(policies=rules, sessions=sessions, recorder=Recorder(store), overrides=overrides)
        ends: dict[str, int] = {}
        for step in range(steps):
            clock.now += timedelta(seconds=dice.choice((-86_400, -3_600, -0.001, 0, 0.001, 1_200, 3_600, 86_400)))
            facts = sessions.read(ANN)
            store.put_on_record(replace(made_record(), timestamp=clock.now))
            latest = max(latest, clock.moment)
            for name, end in list(ends.items()):
                if name.startswith("apr_") and dice.random() < 0.3:
                    tried += 1
                    wrong += _used(sessions, name) and end <= latest
                    del ends[name]
            held = [*overrides.read(), *overrides.holding(), *eyes.grants()]
            lifted = {source for _, source in facts.lifted}
            wrong += sum(one.expires_at <= latest for one in held) + sum(ends[one] <= latest for one in lifted)
            decision = pipeline.run(says("user", "send"), ANN).decision
            live = any(latest < one.expires_at for one in overrides.read())
            wrong += decision.action is not Action.REFUSE and not live
            tried += len(held) + len(lifted) + 1
            if step % 3 == 0:
                end = latest + 3_600_000_000
                one = replace(asked(clock, f"apr_{step}"), expires_at=end)
                sessions.commit(ANN, None, Changes(asked=(one,)))
                sessions.decide_approval(one.id, approver="bob", approve=True)
                sessions.commit(
                    ANN,
                    None,
                    replace(
                        taint("l", f"e{step}"), grants=grant("l", f"e{step}", expires_at=end, id=f"g{step}").grants
                    ),
                )
                ends |= {one.id: end, f"e{step}": end}
                overrides.open("test/no", **two)
                eyes.break_glass(**two)
        bodies = [json.loads(one.body or b"") for one in stored_records(store.engine, kind="decision")]
        shortest = min(value for body in bodies for value in body.get("metrics", {}).values())
        report = verify(StoreEvidence(store.engine))

    proof_row(
        "what expired, while a clock jumps", jumps=steps, asked_for=tried, honoured_expired=wrong,
        negative_durations=int(shortest < 0), verifies=report.holds,
    )  # fmt: skip
    assert (wrong, report.holds) == (0, True)
    assert shortest >= 0
    assert any(body["result"]["action"] == "forward" for body in bodies if "excused" in body["result"])


def _used(sessions: SessionStore, approval: str) -> bool:
    try:
        return sessions.commit(ANN, None, use(approval))
    except ApprovalError:
        return False


@pytest.mark.proof
@pytest.mark.spec("REC-6")
@pytest.mark.spec("AUD-3")
def test_whatever_of_the_journal_is_lost_with_the_power_what_was_acknowledged_is_there(
    tmp_path: Path, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    """Copies at commits, their journals cut at random beyond what was synced: what a power cut may take."""
    dice = random.Random(proof_seed)
    snapshots = max(20, int(SNAPSHOTS * proof_scale))
    home = tmp_path / "home"
    home.mkdir()
    opened = lost = broken = cut = 0
    with Store.at(home / "s.db") as store:
        recorder = Recorder(store)
        told: list[str] = []
        for number in range(snapshots):
            for record in [made_record() for _ in range(dice.randrange(1, 8))]:
                recorder.record(record)
                told.append(record.id)
            synced = (home / "s.db-wal").stat().st_size
            copy = tmp_path / f"copy{number}"
            if number % 2:  # another transaction had begun to be written
                future = recorder.submit(made_record())
                shutil.copytree(home, copy)
                future.result(10)
                told += [one.id for one in list(stored_records(store.engine, kind="decision"))[len(told) :]]
                safe = told[:-1]
            else:
                shutil.copytree(home, copy)
                safe = list(told)
            wal = copy / "s.db-wal"
            size = wal.stat().st_size
            if size > synced:
                cut += 1
                with wal.open("r+b") as journal:
                    journal.truncate(dice.randrange(synced, size + 1))
            with Store.at(copy / "s.db") as again:
                kept = [one.id for one in stored_records(again.engine, kind="decision")]
                report = verify(StoreEvidence(again.engine))
            opened += 1
            lost += kept[: len(safe)] != safe
            broken += not report.holds
            shutil.rmtree(copy)

    proof_row("power lost between and within commits", snapshots=opened, cut=cut, lost=lost, broken=broken)
    assert (lost, broken) == (0, 0)


@pytest.mark.proof
@pytest.mark.spec("REC-21")
def test_of_two_writers_on_postgresql_one_is_killed_and_nothing_is_lost(
    postgres: Postgres, tmp_path: Path, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    words = [postgres.new(), str(tmp_path / "key.pem"), str(max(1.0, 5.0 * proof_scale))]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.store.writers", *words],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)

    proof_row("two writers on PostgreSQL, one killed", **found)
    assert (found["lost"], found["numbers_twice"], found["problems"]) == (0, 0, [])
    assert found["after_the_kill"] > 0
    assert found["logs"] == 2


@pytest.mark.proof
@pytest.mark.spec("REC-9")
def test_while_another_process_holds_the_database_all_are_refused_in_time(
    tmp_path: Path, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    """64 runs at once, round after round, on a database that somebody else keeps locked."""
    rules = write_rules(tmp_path / "policy", {"l": LABEL}, kinds="text", capabilities="read_labels")
    rounds, took, threads = max(1, int(10 * proof_scale)), [], 0
    with Store(f"sqlite:///{tmp_path / 's.db'}", busy_seconds=0.2) as store:
        pipeline = Pipeline(policies=rules, recorder=Recorder(store, timeout_seconds=DEADLINE_SECONDS))

        def run(_: int) -> tuple[float, bool]:
            began = time.monotonic()
            action = pipeline.run(says("user", "hello"), Context()).decision.action
            return time.monotonic() - began, action is Action.REFUSE

        with sqlite3.connect(tmp_path / "s.db", isolation_level=None) as holder, ThreadPoolExecutor(64) as pool:
            before = threading.active_count()
            for _ in range(rounds):
                holder.execute("BEGIN EXCLUSIVE")
                answers = [pool.submit(run, number) for number in range(64)]
                threads = max(threads, threading.active_count() - before)
                answered = [answer.result(60) for answer in answers]
                holder.execute("ROLLBACK")
                took += [seconds for seconds, _ in answered]
                assert all(refused for _, refused in answered)
                # A busy machine may need longer than the deadline for the first: what counts is that it goes on.
                assert any(not run(0)[1] for _ in range(20))
        holder.close()
        report = verify(StoreEvidence(store.engine))

    proof_row(
        "the database is locked by somebody else", refused=len(took), deadline_seconds=DEADLINE_SECONDS,
        longest_seconds=round(max(took), 2), more_threads=max(0, threads - 64), verifies=report.holds,
    )  # fmt: skip
    assert max(took) < DEADLINE_SECONDS * 1.1 + SLACK_SECONDS
    assert threads <= 64  # those that asked: nothing waits in a thread of its own
    assert report.holds


@pytest.mark.spec("REC-21")
def test_while_the_server_is_down_nothing_is_acknowledged_and_afterwards_all_goes_on(
    postgres: Postgres, tmp_path: Path
) -> None:
    with Store(postgres.new(), key=tmp_path / "key.pem") as store:
        recorder = Recorder(store)
        sessions = store.sessions()
        recorder.record(made_record())
        postgres.control("-m", "immediate", "stop")
        try:
            for _ in range(3):
                with pytest.raises(StoreError):
                    recorder.record(made_record())
                with pytest.raises(StoreError):
                    sessions.read(ANN)
        finally:
            postgres.start()
        recorder.record(made_record())
        assert sessions.commit(ANN, None, count("calls"))
        report = verify(StoreEvidence(store.engine))
    assert report.holds
    assert report.records == 3


@pytest.mark.spec("REC-21")
def test_who_waits_for_the_lock_gives_up_in_time(postgres: Postgres, tmp_path: Path) -> None:
    url, key = postgres.new(), tmp_path / "key.pem"
    with Store(url, key=key) as holder, Store(url, key=key, busy_seconds=0.2) as store:
        with holder.engine.connect() as other, other.begin():
            other.exec_driver_sql("SELECT pg_advisory_xact_lock(27986309485457266)")
            with pytest.raises(StoreError):
                Recorder(store).record(made_record())
        Recorder(store).record(made_record())


@pytest.mark.spec("REC-21")
def test_a_text_that_cannot_be_stored_fails_only_its_own_record(database: Store) -> None:
    recorder, sessions = Recorder(database), database.sessions()
    record = made_record()
    object.__setattr__(record, "session", "a\x00b")
    if database.engine.dialect.name == "sqlite":
        recorder.record(record)
        assert sessions.commit(ANN, None, count("calls:\x00"))
        return
    with pytest.raises(StoreError) as caught:
        recorder.record(record)
    assert caught.value.code == "store.unstorable"
    beside = recorder.submit(made_record())
    with pytest.raises(StoreError) as caught:
        sessions.commit(ANN, None, count("calls:\x00"))
    assert caught.value.code == "store.unstorable"
    assert beside.result(10) is None


@pytest.mark.spec("REC-21")
def test_a_server_asks_for_a_key(postgres: Postgres) -> None:
    with pytest.raises(ConfigError):
        Store(postgres.new())
    with Store.named(postgres.new(), keyless=True) as store, pytest.raises(StoreError):
        Recorder(store).record(made_record())
