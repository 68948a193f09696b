"""One store per database file and process, and nothing that goes behind SQLite's back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.pipeline.run_records import made_record
from typer.testing import CliRunner

from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.verification import verify
from pipeline.cli.app import app
from pipeline.cli.stores import is_store, opened_store
from pipeline.decisions.errors import ConfigError, StoreError
from pipeline.store.database import Store
from pipeline.store.engine import check_can_write, is_database, open_any_schema, open_engine
from pipeline.store.evidence import StoreEvidence
from pipeline.store.records import stored_records

WHERE = Path("/proc/locks")
_watching: list[list[str]] = []
_hooked: list[bool] = []


def opened_files(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watching and isinstance(arguments[0], str | bytes | os.PathLike):
        _watching[-1].append(os.fsdecode(arguments[0]))


@contextmanager
def watched() -> Iterator[list[str]]:
    """The names of the files that Python opens meanwhile; SQLite opens its own without it."""
    if not _hooked:
        sys.addaudithook(opened_files)
        _hooked.append(True)
    _watching.append([])
    try:
        yield _watching[-1]
    finally:
        _watching.pop()


@pytest.mark.spec("REC-25")
def test_nothing_but_sqlite_opens_the_file_of_a_store_that_is_open(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as store, watched() as opened:
        store.put_on_record(made_record())
        Store.at(file).close()
        check_can_write(file)
        open_any_schema(file)[0].dispose()
        open_engine(f"sqlite:///{file}").dispose()
        with opened_store(str(file), None) as again:
            again.put_on_record(made_record())
        for words in ("verify FILE", "find FILE kind:decision", "head FILE", "tail FILE", "export FILE OUT"):
            known = {"FILE": str(file), "OUT": str(tmp_path / "b.zip")}
            done = CliRunner().invoke(app, ["audit", *(known.get(word, word) for word in words.split())])
            assert done.exit_code == 0, done.output
        assert is_store(str(file))
        CliRunner().invoke(app, ["impact", "--records", str(file)])

    assert [name for name in opened if Path(name).name in (file.name, f"{file.name}-wal", f"{file.name}-shm")] == []


@pytest.mark.spec("REC-25")
@pytest.mark.skipif(not WHERE.exists(), reason="only Linux lists locks")
def test_a_process_keeps_its_locks_whatever_else_it_does_with_the_store(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"

    def locks() -> set[str]:
        return {line.split()[-2] for line in WHERE.read_text().splitlines() if f" {os.getpid()} " in line}

    with Store.at(file) as store:
        store.put_on_record(made_record())
        before = locks()
        for _ in range(3):
            Store.at(file).close()
            check_can_write(file)
            assert is_database(file)
            CliRunner().invoke(app, ["audit", "verify", str(file)])
        assert before
        assert before <= locks()


@pytest.mark.spec("REC-25")
def test_stores_of_one_file_are_one_by_whatever_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, linked, other = (tmp_path / name for name in ("s.sqlite3", "linked", "other"))
    linked.symlink_to(file.name)
    monkeypatch.chdir(tmp_path)
    with Store.at(linked) as store:
        os.link(file, other)
        for again in (Store.at("s.sqlite3"), Store.named(f"sqlite:///{file}"), Store.at(other), Store.at(linked)):
            assert again.writer is store.writer
            assert again.engine is store.engine
            again.put_on_record(made_record())
            again.close()
            again.close()
        store.put_on_record(made_record())
        assert [one.records for one in verify(StoreEvidence(store.engine)).logs] == [6]
    other.unlink()

    assert not Path(f"{file}-wal").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"s.sqlite3", "s.sqlite3.key", "linked"}


@pytest.mark.spec("REC-25")
def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    file, other = tmp_path / "s.sqlite3", tmp_path / "other"
    Store.at(file).close()
    os.link(file, other)

    for name in (file, other):
        for use in (Store.at, check_can_write, open_any_schema):
            with pytest.raises(StoreError, match="2 names") as refused:
                use(name)
            assert refused.value.code == "store.linked"
    other.unlink()
    Store.at(file).close()


@pytest.mark.spec("REC-15")
@pytest.mark.parametrize("name", [":memory:", "sqlite://", "sqlite:///file::memory:?cache=shared&uri=true"])
def test_a_store_that_would_be_forgotten_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the store needs a file"):
        Store.named(name)
    with pytest.raises(ConfigError, match="takes no options"):
        Store.named("sqlite:////tmp/s.db?nolock=1")


@pytest.mark.spec("REC-25")
def test_a_second_store_may_not_ask_for_another_key_or_other_heads(tmp_path: Path) -> None:
    file, heads = tmp_path / "s.sqlite3", HeadFile(tmp_path / "heads")
    with Store.at(file) as store:
        with pytest.raises(ConfigError, match="`key`"):
            Store.at(file, key=tmp_path / "other.key")
        with Store.at(file, key=Path(f"{file}.key"), heads=heads) as second:
            with pytest.raises(ConfigError, match="`heads`"):
                Store.at(file, heads=HeadFile(tmp_path / "elsewhere"))
            with Store.at(file, heads=HeadFile(tmp_path / "heads")) as third:
                third.put_on_record(made_record())
            assert [head.size for head in read_heads(tmp_path / "heads")] == [2]
            second.put_on_record(made_record())
        assert [head.size for head in read_heads(tmp_path / "heads")][-1] == 3
        store.put_on_record(made_record())
    assert [head.size for head in read_heads(tmp_path / "heads")][-1] == 4


@pytest.mark.spec("REC-25")
@pytest.mark.parametrize("what", ["the file", "the journal", "another file"])
def test_nothing_is_released_once_the_file_is_gone(tmp_path: Path, what: str) -> None:
    file, other = tmp_path / "s.sqlite3", tmp_path / "other"
    Store.at(other).close()
    with Store.at(file) as store:
        store.put_on_record(made_record())
        if what == "the file":
            file.unlink()
        elif what == "the journal":
            Path(f"{file}-wal").unlink()
        else:
            shutil.move(other, file)

        for _ in range(2):
            with pytest.raises(StoreError, match="removed or replaced") as refused:
                store.put_on_record(made_record())
            assert refused.value.code == "store.removed"


@pytest.mark.spec("REC-25")
def test_a_file_that_was_made_anew_is_another_store(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as old:
        old.put_on_record(made_record())
        for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            name.unlink()
        with Store.at(file) as new:
            assert new.writer is not old.writer
            with pytest.raises(StoreError, match="removed or replaced"):
                old.put_on_record(made_record())
            new.put_on_record(made_record())
            assert len(list(stored_records(new.engine, kind="decision"))) == 1


@pytest.mark.spec("REC-25")
@pytest.mark.spec("REC-12")
def test_stores_are_opened_and_closed_from_many_threads(tmp_path: Path) -> None:
    file, made = tmp_path / "s.sqlite3", [made_record() for _ in range(200)]
    begin = threading.Barrier(8)

    def use(share: list[object]) -> None:
        begin.wait()
        for record in share:
            with Store.at(file) as store:
                store.put_on_record(record)  # type: ignore[arg-type]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, [made[at::8] for at in range(8)]))

    with Store.at(file) as store:
        assert {one.id for one in stored_records(store.engine, kind="decision")} == {one.id for one in made}
        assert verify(StoreEvidence(store.engine)).holds


FORKED = """
import os, sys, threading
from pathlib import Path
from tests.pipeline.run_records import made_record
from pipeline.decisions.errors import StoreError
from pipeline.store.database import Store
from pipeline.store.engine import open_any_schema
from pipeline.store.records import stored_records

file = Path(sys.argv[1])
Store.at(file).close()
before = Store.at(file)
before.put_on_record(made_record())

def refused(use):
    try:
        use()
    except StoreError as error:
        return error.code

def child():
    own = [refused(lambda: Store.at(file)), refused(lambda: before.put_on_record(made_record())),
           refused(lambda: list(stored_records(before.engine))), refused(lambda: open_any_schema(file))]
    before.close()
    with Store.at(file.with_name("other.sqlite3")) as other:
        other.put_on_record(made_record())
    print(*own, flush=True)

if os.fork() == 0:
    child()
    sys.exit()
os.wait()
before.put_on_record(made_record())
before.close()
if os.fork() == 0:
    with Store.at(file) as own:
        own.put_on_record(made_record())
    sys.exit()
os.wait()
with Store.at(file) as store:
    print(len(list(stored_records(store.engine, kind="decision"))))
"""


@pytest.mark.spec("REC-24")
def test_a_forked_process_uses_no_store_that_its_parent_had_open(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "s.sqlite3")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["store.forked store.forked store.forked store.forked", "3"]


@pytest.mark.spec("REC-25")
def test_what_is_no_database_is_told_apart_without_harm(tmp_path: Path) -> None:
    names = {"empty": b"", "short": b"\n", "text": b'{"a": 1}\n' * 900, "zip": b"PK\x03\x04" + b"\0" * 4096}
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "theirs")) as connection:
        connection.execute("CREATE TABLE a (b)")

    assert [name for name in (*names, "theirs", ".", "none") if is_database(tmp_path / name)] == ["theirs"]
    assert {name: (tmp_path / name).read_bytes() for name in names} == names
    assert {path.name for path in tmp_path.iterdir()} == {*names, "theirs"}
