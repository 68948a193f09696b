"""Whoever changes what was recorded is found out, and the first bad record is named."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.run_records import made_record

from cmf.json.codec import dumps
from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.heads import Head, PublicKey, Signer
from pipeline.audit.verification import Report, verify
from pipeline.decisions.errors import PipelineError
from pipeline.store.database import Store
from pipeline.store.engine import open_engine, open_to_read
from pipeline.store.evidence import StoreEvidence
from pipeline.store.recorder import Recorder
from pipeline.store.records import row_of
from pipeline.store.tables import RECORDS as RECORDS_TABLE

RUNS = 1_000
RECORDS = 60


class Kept:
    """A store of two logs with its exported heads, an older copy of it, and its key."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "s.sqlite3"
        self.heads, self.key = folder / "heads.jsonl", folder / "audit.pem"
        for _ in range(2):
            with Store.at(self.file, key=self.key, heads=HeadFile(self.heads)) as store:
                recorder = Recorder(store)
                for start in range(0, RECORDS, 5):
                    futures = [recorder.submit(made_record()) for _ in range(start, start + 5)]
                    for future in futures:
                        future.result(10)
                    if start == RECORDS // 2:
                        self.older = self._copied("older.sqlite3")
        self.public = [Signer.at(self.key).public_key]

    def _copied(self, name: str) -> Path:
        copy = self.folder / name
        with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy

    def tampered(self, folder: Path, *changes: str) -> Path:
        """A copy of the store with these statements carried out in it."""
        copy = folder / "copy.sqlite3"
        shutil.copyfile(self.file, copy)
        with closing(sqlite3.connect(copy)) as connection, connection:
            for change in changes:
                assert connection.execute(change).rowcount != 0, change
        return copy

    def checked(
        self, file: Path, heads: Path | None = None, keys: list[PublicKey] | None = None, *, reading: bool = False
    ) -> Report:
        engine = open_to_read(file) if reading else open_engine(f"sqlite:///{file}")
        try:
            return verify(StoreEvidence(engine), exported=read_heads(heads or self.heads), keys=keys or self.public)
        finally:
            engine.dispose()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp("kept"))


def _other(value: Any, chance: random.Random) -> Any:
    """The value with one bit or character of it changed."""
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(20))
    if isinstance(value, bytes):
        at = chance.randrange(len(value))
        return value[:at] + bytes([value[at] ^ (1 << chance.randrange(8))]) + value[at + 1 :]
    if not value:
        return "x"
    at = chance.randrange(len(value))
    return value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]


Tamper = Callable[[sqlite3.Connection, random.Random], int | None]


def flip(connection: sqlite3.Connection, chance: random.Random) -> int | None:
    """A byte of any field of any table of the log; the place, where it is a record's."""
    connection.execute("DROP INDEX records_place")
    table = chance.choice(["records", "records", "records", "heads", "logs"])
    connection.row_factory = sqlite3.Row
    row = chance.choice(connection.execute(f"SELECT rowid AS _row, * FROM {table}").fetchall())
    # A record's number in the database may change as long as it stays in order: nothing depends on it.
    columns = [name for name in row.keys() if name not in ("_row", "seq")]  # noqa: SIM118
    column = chance.choice(columns)
    connection.execute(
        f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?", (_other(row[column], chance), row["_row"])
    )
    return row["place"] if table == "records" and column not in ("log", "place") else None


def drop(connection: sqlite3.Connection, chance: random.Random) -> int | None:
    row, place = chance.choice(connection.execute("SELECT seq, place FROM records").fetchall())
    connection.execute("DELETE FROM records WHERE seq = ?", (row,))
    return int(place)


def cut(connection: sqlite3.Connection, chance: random.Random) -> int | None:
    """The tail, heads and all."""
    log, size = connection.execute("SELECT log, max(size) FROM heads GROUP BY log ORDER BY random()").fetchone()
    left = chance.choice(
        [0, *(size for (size,) in connection.execute("SELECT size FROM heads WHERE log = ? AND size < ?", (log, size)))]
    )
    connection.execute("DELETE FROM records WHERE log = ? AND place >= ?", (log, left))
    connection.execute("DELETE FROM heads WHERE log = ? AND size > ?", (log, left))
    return int(left)


def reorder(connection: sqlite3.Connection, chance: random.Random) -> int | None:
    """Two records of one log change places."""
    (log,) = chance.choice(connection.execute("SELECT id FROM logs").fetchall())
    rows = connection.execute("SELECT seq, place FROM records WHERE log = ?", (log,)).fetchall()
    (one, first), (two, second) = chance.sample(rows, 2)
    for seq, place in ((one, -7), (two, first), (one, second)):
        connection.execute("UPDATE records SET place = ? WHERE seq = ?", (place, seq))
    return int(min(first, second))


def insert(connection: sqlite3.Connection, chance: random.Random) -> int | None:
    """A copy of a record under another id: at a place that is taken, at the end, or in no log."""
    connection.execute("DROP INDEX IF EXISTS records_place")
    rows = connection.execute("SELECT seq, log FROM records").fetchall()
    seq, log = chance.choice(rows)
    last = connection.execute("SELECT max(place) FROM records WHERE log = ?", (log,)).fetchone()[0]
    at, where = chance.choice([(last + 1, log), (chance.randrange(last), log), (None, None), (None, log), (0, "log_x")])
    connection.execute(
        "INSERT INTO records (id, kind, at, subject, session, verdict, action, revision, body, digest, log, place)"
        " SELECT 'dec_other', kind, at, subject, session, verdict, action, revision, body, digest, ?, ?"
        " FROM records WHERE seq = ?",
        (where, at, seq),
    )
    return None


def erase(connection: sqlite3.Connection, chance: random.Random) -> int | None:
    seq, place = chance.choice(connection.execute("SELECT seq, place FROM records").fetchall())
    connection.execute("UPDATE records SET body = NULL WHERE seq = ?", (seq,))
    return int(place)


@pytest.mark.spec("AUD-30")
def test_an_untouched_store_verifies(kept: Kept) -> None:
    report = kept.checked(kept.file)
    assert report.holds, report.problems
    assert [log.unprotected for log in report.logs] == [0, 0]
    assert report.records == 2 * (RECORDS + 1)
    with closing(sqlite3.connect(kept.file)) as connection:
        counted = dict(connection.execute("SELECT log, count(*) FROM heads GROUP BY log"))
    assert {log.log: log.heads for log in report.logs} == counted
    assert report.to_json()["holds"] is True


@pytest.mark.proof
@pytest.mark.spec("AUD-31")
@pytest.mark.spec("AUD-32")
def test_every_tampering_is_found_and_the_first_bad_record_named(
    kept: Kept, tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    chance = random.Random(proof_seed)
    ways: list[Tamper] = [flip, flip, flip, drop, cut, reorder, insert, erase]
    runs, found, named = int(RUNS * proof_scale), 0, 0
    for number in range(runs):
        copy = tmp_path / f"{number}.sqlite3"
        shutil.copyfile(kept.file, copy)
        with sqlite3.connect(copy) as connection:
            tamper = chance.choice(ways)
            place = tamper(connection, chance)
        connection.close()
        report = kept.checked(copy)
        assert not copy.with_name(f"{copy.name}-wal").exists()  # whoever looks lets go of the database
        copy.unlink()
        assert not report.holds, (number, tamper.__name__)
        found += 1
        if place is not None:
            places = [problem.place for problem in report.problems if problem.place is not None]
            assert place in places, (number, tamper.__name__, place, report.problems)
            named += 1
    proof_row("tamperings found, given the exported heads", tried=runs, found=found, first_bad_record_named=named)


@pytest.mark.spec("AUD-31")
def test_an_older_copy_put_back_is_found_by_the_exported_heads(kept: Kept) -> None:
    report = kept.checked(kept.older)
    assert [problem.code for problem in report.problems if problem.code == "log.cut"]


@pytest.mark.spec("AUD-31")
def test_a_log_that_is_gone_hides_nothing_of_the_others(kept: Kept, tmp_path: Path) -> None:
    first, *_ = kept.heads.read_text().splitlines()
    gone = first.replace(read_heads(kept.heads)[0].log, "log_gone")
    exported = tmp_path / "heads.jsonl"
    exported.write_text(f"{gone}\n{kept.heads.read_text()}")

    codes = {problem.code for problem in kept.checked(kept.older, exported).problems}

    assert {"log.missing", "log.cut"} <= codes


@pytest.mark.spec("AUD-31")
def test_a_log_rewritten_whole_with_the_right_key_is_found_by_the_exported_heads(kept: Kept, tmp_path: Path) -> None:
    (log,) = {head.log for head in read_heads(kept.heads)[:1]}
    with Store.at(tmp_path / "other.sqlite3", key=kept.key) as store:
        for _ in range(2 * RECORDS):
            Recorder(store).record(made_record())
    with closing(sqlite3.connect(tmp_path / "other.sqlite3")) as connection:
        own = connection.execute("SELECT id FROM logs").fetchone()[0]
    exported = tmp_path / "heads.jsonl"
    exported.write_text(kept.heads.read_text().replace(log, own))
    assert {problem.code for problem in kept.checked(tmp_path / "other.sqlite3", exported).problems} >= {
        "head.signature",  # the exported heads are of that other log's name only because we wrote it there
        "log.missing",
    }


@pytest.mark.spec("AUD-33")
def test_a_head_file_that_was_edited_is_found(kept: Kept, tmp_path: Path, proof_seed: int) -> None:
    chance = random.Random(proof_seed)
    whole = kept.heads.read_bytes()
    edited = tmp_path / "heads.jsonl"
    for _ in range(50):
        changed = _other(whole, chance)
        edited.write_bytes(changed)
        try:
            report = kept.checked(kept.file, edited)
        except PipelineError:
            continue
        assert not report.holds, changed


@pytest.mark.spec("AUD-34")
def test_another_key_than_the_one_given_proves_nothing(kept: Kept, tmp_path: Path) -> None:
    other = Signer.at(tmp_path / "other.pem").public_key
    codes = {problem.code for problem in kept.checked(kept.file, keys=[other]).problems}
    assert codes >= {"head.key", "head.signature"}


@pytest.mark.spec("AUD-34")
def test_a_key_that_was_not_given_is_named_and_nothing_else_is_said_of_its_log(tmp_path: Path) -> None:
    file, keys = tmp_path / "s.sqlite3", [tmp_path / "old.pem", tmp_path / "new.pem"]
    for key in keys:
        with Store.at(file, key=key) as store:
            Recorder(store).record(made_record())
    old, new = (Signer.at(key).public_key for key in keys)
    engine = open_to_read(file)

    for given, missing in ((old, new), (new, old)):
        (problem,) = verify(StoreEvidence(engine), keys=[given]).problems
        assert (problem.code, missing.id in problem.message) == ("head.key", True)
    assert verify(StoreEvidence(engine), keys=[old, new]).holds
    engine.dispose()


def codes(report: Report) -> set[str]:
    return {problem.code for problem in report.problems}


@pytest.mark.spec("AUD-33")
def test_exported_heads_that_contradict_each_other_or_the_log_are_problems(kept: Kept, tmp_path: Path) -> None:
    signer, whole = Signer.at(kept.key), read_heads(kept.heads)
    other = signer.sign(replace(whole[0], root="0" * 64))
    exported = tmp_path / "heads.jsonl"
    HeadFile(exported).put([other])
    (found,) = kept.checked(kept.file, exported).problems
    assert (found.code, found.place) == ("log.rewritten", 0)
    HeadFile(exported).put(whole)
    assert codes(kept.checked(kept.file, exported)) >= {"head.fork"}


@pytest.mark.spec("AUD-33")
def test_the_first_exported_head_that_the_log_contradicts_is_named(kept: Kept, tmp_path: Path) -> None:
    signer, engine = Signer.at(kept.key), open_to_read(kept.file)
    before, *others = [stored.head for stored in StoreEvidence(engine).heads(read_heads(kept.heads)[0].log)][:3]
    engine.dispose()
    exported = tmp_path / "heads.jsonl"
    HeadFile(exported).put([before, *(signer.sign(replace(head, root="0" * 64)) for head in others)])

    (found,) = kept.checked(kept.file, exported).problems

    assert (found.code, found.log, found.place) == ("log.rewritten", before.log, before.size)


@pytest.mark.spec("AUD-31")
def test_a_head_over_other_records_is_a_problem_even_under_the_right_key(kept: Kept, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite3"
    shutil.copyfile(kept.file, copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        names = ("log", "size", "root", "first", "batch", "at", "key", "signature")
        row = connection.execute(f"SELECT {', '.join(names)} FROM heads ORDER BY log, size DESC").fetchone()
        head = Head(**dict(zip(names, row, strict=True)))
        signed = Signer.at(kept.key).sign(replace(head, root="0" * 64))
        connection.execute(
            "UPDATE heads SET root = ?, signature = ? WHERE log = ? AND size = ?",
            (signed.root, signed.signature, head.log, head.size),
        )
    assert codes(kept.checked(copy)) >= {"head.root"}


@pytest.mark.spec("AUD-31")
def test_a_head_that_is_gone_or_names_another_key_leaves_what_it_covered_unproved(kept: Kept, tmp_path: Path) -> None:
    first = "log = (SELECT min(log) FROM heads) AND size = (SELECT min(size) FROM heads WHERE size > 10)"
    for what, found in (
        (f"DELETE FROM heads WHERE {first}", {"head.missing"}),
        (f"UPDATE heads SET key = 'another' WHERE {first}", {"head.signature"}),
        (f"UPDATE heads SET signature = 'no base64' WHERE {first}", {"head.signature"}),
    ):
        assert codes(kept.checked(kept.tampered(tmp_path, what))) >= found


@pytest.mark.spec("AUD-31")
def test_leaf_hashes_that_were_not_signed_are_a_problem_and_not_believed(kept: Kept, tmp_path: Path) -> None:
    copy = kept.tampered(tmp_path, "UPDATE heads SET leaves = x'00'")
    assert codes(kept.checked(copy)) >= {"head.leaves"}


@pytest.mark.spec("AUD-34")
def test_a_log_whose_public_key_is_none_proves_nothing(kept: Kept, tmp_path: Path) -> None:
    copy = kept.tampered(tmp_path, "UPDATE logs SET public_key = 'none'")
    engine = open_engine(f"sqlite:///{copy}")
    assert codes(verify(StoreEvidence(engine))) >= {"head.key"}
    engine.dispose()


@pytest.mark.spec("AUD-31")
def test_a_log_that_is_not_as_its_opening_says_is_a_problem(kept: Kept, tmp_path: Path) -> None:
    copy = kept.tampered(tmp_path, "UPDATE logs SET opened_at = opened_at + 1")
    assert codes(kept.checked(copy)) == {"log.changed"}


@pytest.mark.spec("AUD-31")
@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("UPDATE records SET seq = -seq WHERE place = 7", "record.moved"),
        (
            "INSERT INTO records SELECT seq + 900, id || 'x', kind, at, subject, session, verdict, action, revision,"
            " body, digest, log, place FROM records WHERE place = 7",
            "record.inserted",
        ),
        (  # of all that the newest head covers, the last
            "INSERT INTO records (id, kind, at, subject, session, verdict, action, revision, body, digest, log, place)"
            " SELECT id || 'x', kind, at, subject, session, verdict, action, revision, body, digest, log, place"
            " FROM records WHERE place = (SELECT max(size) - 1 FROM heads WHERE heads.log = records.log)",
            "record.inserted",
        ),
        (  # all that the newest head covers, in their order
            "UPDATE records SET seq = seq - 1000 WHERE place >="
            " (SELECT max(first) FROM heads WHERE heads.log = records.log)",
            "record.moved",
        ),
    ],
)
def test_a_record_in_another_order_or_twice_at_its_place_is_a_problem(
    kept: Kept, tmp_path: Path, what: str, found: str
) -> None:
    copy = kept.tampered(tmp_path, "DROP INDEX records_place", what)
    assert codes(kept.checked(copy)) >= {found}


@pytest.mark.spec("AUD-31")
@pytest.mark.spec("AUD-32")
@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("UPDATE records SET verdict = verdict || 'x' WHERE place = 7", "record.changed"),
        ("UPDATE records SET subject = 'id:eve' WHERE place = 7", "record.changed"),
        ("UPDATE records SET subject = x'69643a616e6e' WHERE place = 7", "record.changed"),  # the same bytes, no text
        ("UPDATE records SET subject = CAST(x'69643aff' AS TEXT) WHERE place = 7", "record.changed"),  # no UTF-8
        ("UPDATE records SET body = x'7b7d' WHERE place = 7", "record.changed"),
        ("UPDATE records SET body = NULL WHERE place = 7", "record.erased"),
        ("DELETE FROM records WHERE place = 7", "record.missing"),
    ],
)
def test_a_record_that_was_changed_is_named_and_nothing_else_is(
    kept: Kept, tmp_path: Path, what: str, found: str
) -> None:
    report = kept.checked(kept.tampered(tmp_path, what), reading=True)
    assert [(problem.code, problem.place) for problem in report.problems] == [(found, 7)] * 2  # one in each log


@pytest.mark.spec("AUD-40")
def test_only_what_is_on_record_as_erased_may_be_gone(tmp_path: Path) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        recorder = Recorder(store)
        gone = made_record()
        recorder.record(gone)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE records SET body = NULL WHERE id = ?", (gone.id,))
        assert codes(verify(StoreEvidence(store.engine))) == {"record.erased"}

        body = dumps({"schema": 1, "records": [gone.id]})
        recorder.record(replace(made_record(), id="ers_1", kind="erasure", body=body))
        assert verify(StoreEvidence(store.engine)).holds

        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE heads SET leaves = x'00' WHERE size = (SELECT max(size) FROM heads)")
        assert codes(verify(StoreEvidence(store.engine))) == {"head.leaves", "record.erased"}  # it vouches for nothing


@pytest.mark.spec("AUD-40")
def test_an_erasure_that_was_forged_with_its_leaf_hash_is_not_believed(tmp_path: Path) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        recorder, gone = Recorder(store), made_record()
        recorder.record(gone)
        recorder.record(replace(made_record(), id="ers_1", kind="erasure", body=dumps({"schema": 1, "records": []})))
        ((log,),) = [(row.id,) for row in StoreEvidence(store.engine).logs()]
        forged = dumps({"schema": 1, "records": [gone.id]})
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE records SET body = NULL WHERE id = ?", (gone.id,))
            connection.exec_driver_sql(
                "UPDATE records SET body = ?, digest = ? WHERE id = 'ers_1'",
                (forged, hashlib.sha256(forged).hexdigest()),
            )
        leaf = list(StoreEvidence(store.engine).leaves(log))[-1]
        assert leaf.whole
        with store.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE heads SET leaves = ? WHERE size = (SELECT max(size) FROM heads)", (leaf.hash,)
            )

        assert codes(verify(StoreEvidence(store.engine))) == {"head.leaves", "record.erased"}


@pytest.mark.spec("AUD-4")
def test_a_record_in_no_log_is_found_whether_or_not_a_log_is_opened_after_it(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as store:
        with store.engine.begin() as connection:
            connection.execute(RECORDS_TABLE.insert(), row_of(made_record()))
        assert codes(verify(StoreEvidence(store.engine))) == {"record.stray"}
    with Store.at(file) as store:
        Recorder(store).record(made_record())
        assert codes(verify(StoreEvidence(store.engine))) == {"record.stray"}


@pytest.mark.spec("AUD-31")
@pytest.mark.parametrize("logs", [1, 2])
def test_a_log_of_another_store_under_the_same_key_is_found(kept: Kept, tmp_path: Path, logs: int) -> None:
    for _ in range(logs):
        with Store.at(tmp_path / "other.sqlite3", key=kept.key) as other:
            Recorder(other).record(made_record())
    columns = ", ".join(column.name for column in RECORDS_TABLE.columns if column.name != "seq")
    merged = kept.tampered(
        tmp_path,
        f"ATTACH '{tmp_path / 'other.sqlite3'}' AS other",
        "INSERT INTO logs SELECT * FROM other.logs",
        "INSERT INTO heads SELECT * FROM other.heads",
        f"INSERT INTO records ({columns}) SELECT {columns} FROM other.records ORDER BY seq",
    )

    (found,) = kept.checked(merged).problems

    assert (found.code, found.place) == ("log.inserted", 0)
