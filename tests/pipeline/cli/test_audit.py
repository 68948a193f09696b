"""`cmf audit`: records found, proved, taken away; and what is wrong said with its own exit code."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from tests.pipeline.run_records import ANN, NOON, made_record
from typer.testing import CliRunner, Result

from cmf.json.codec import dumps
from pipeline.approvals import declassification
from pipeline.audit.exporting import HeadFile
from pipeline.audit.query import COLUMNS, FACTS, KINDS, REVIEWS, TIMES, parse
from pipeline.cli.app import app
from pipeline.decisions.context import Context
from pipeline.decisions.errors import AuditError
from pipeline.gateway.operations.operational_records import _PREFIX
from pipeline.review import annotations
from pipeline.store import four_eyes
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder
from pipeline.store.records import Search

RUN = CliRunner()
NAMES = (*COLUMNS, *FACTS, *REVIEWS, *TIMES)


def cmf(*arguments: object) -> Result:
    return RUN.invoke(app, ["audit", *map(str, arguments)])


class Kept:
    def __init__(self, folder: Path) -> None:
        self.store, self.key, self.heads = folder / "s.sqlite3", folder / "audit.pem", folder / "heads.jsonl"
        self.records = [made_record(ANN), made_record(Context()), made_record(ANN)]
        with Store.at(self.store, key=self.key, heads=HeadFile(self.heads)) as store:
            for record in self.records:
                Recorder(store).record(record)
        self.public = folder / "public.pem"
        self.public.write_text(cmf("key", self.key).stdout)

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.store)) as connection, connection:
            connection.execute(statement)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.spec("CLI-80")
@pytest.mark.parametrize(
    ("statement", "code", "named"),
    [
        ("UPDATE records SET verdict = 'allow' WHERE place = 2", 1, "record.changed"),
        ("DELETE FROM records WHERE place = 1", 2, "record.missing"),
        ("UPDATE heads SET signature = 'AAAA'", 3, "head.signature"),
    ],
)
def test_what_is_wrong_is_named_and_has_its_own_exit_code(kept: Kept, statement: str, code: int, named: str) -> None:
    kept.change(statement)

    result = cmf("verify", kept.store, "--public-key", kept.public)
    as_json = cmf("verify", kept.store, "--format", "json")

    assert result.exit_code == as_json.exit_code == code
    assert f"FAILS  {named}" in result.output
    assert "does not hold" in result.output
    assert named in {problem["code"] for problem in json.loads(as_json.stdout)["problems"]}


@pytest.mark.spec("CLI-80")
def test_a_changed_store_is_not_taken_for_the_bundle_behind_it(kept: Kept, tmp_path: Path) -> None:
    """A zip may have any bytes before it, and SQLite ignores what stands behind its pages."""
    bundle = tmp_path / "b.zip"
    assert cmf("export", kept.store, bundle, "--signing-key", kept.key).exit_code == 0
    kept.change("UPDATE records SET verdict = 'allow'")
    with kept.store.open("ab") as behind:
        behind.write(bundle.read_bytes())

    result = cmf("verify", kept.store, "--heads", kept.heads, "--public-key", kept.public)

    assert result.exit_code == 1
    assert "FAILS  record.changed" in result.output


@pytest.mark.spec("CLI-80")
def test_many_problems_are_counted_and_the_first_are_printed(kept: Kept) -> None:
    with Store.at(kept.store) as store:
        for _ in range(30):
            Recorder(store).record(made_record())
    kept.change("UPDATE records SET action = 'forward'")
    assert "and 16 more" in cmf("verify", kept.store).output


@pytest.mark.spec("CLI-81")
def test_help_names_all_that_can_be_looked_for(kept: Kept) -> None:
    shown = re.findall(r"\w+", cmf("find", "--help").stdout.partition("Names are")[2].partition(".")[0])

    assert [one for one in shown if one in NAMES] == [*NAMES]
    assert cmf("find", kept.store, "--", "-verdict:none").exit_code == 0
    assert cmf("find", kept.store, "-verdict:none kind:decision", "--limit", "1").stdout.count("dec_") == 1
    assert cmf("find", kept.store, "-verdict").exit_code == 2  # an option that there is not


@pytest.mark.spec("CLI-80")
def test_what_cannot_be_read_is_one_line(kept: Kept, tmp_path: Path) -> None:
    missing = tmp_path / "missing.sqlite3"
    (tmp_path / "no.pem").write_text("no key")
    for arguments in (
        ["verify", missing],
        ["find", missing, ""],
        ["show", missing, "x"],
        ["verify", kept.store, "--heads", missing],
        ["verify", kept.store, "--public-key", tmp_path / "no.pem"],
        ["find", kept.store, "wrong"],
        ["find", kept.store, "wrong:1"],
        ["find", kept.store, "since:soon"],
        ["find", kept.store, "since:999999w"],
        ["find", kept.store, "verdict:allow,denied"],
        ["find", kept.store, "covered:n"],
        ["find", kept.store, "kind:typo"],
        ["find", kept.store, "severity:hihg"],
        ["find", kept.store, "view:tool"],
        ["find", kept.store, "rule:'a"],
        ["show", kept.store, "dec_other"],
        ["export", kept.store, kept.heads],
        ["key", tmp_path / "no.pem"],
    ):
        result = cmf(*arguments)
        assert result.exit_code in ((4,) if arguments[0] == "verify" else (2, 4, 5)), arguments
        assert len(result.output.splitlines()) == 1, result.output
    assert not missing.exists()


@pytest.mark.spec("AUD-60")
def test_each_kind_of_record_that_is_written_can_be_looked_for() -> None:
    assert set(KINDS) == {
        "decision",
        "log",
        "sweep",
        declassification.KIND,
        *four_eyes.PREFIX,
        *_PREFIX,
        *annotations.KINDS,
    }


@pytest.mark.spec("CLI-80")
def test_an_untouched_store_verifies_and_verifying_does_not_change_it(kept: Kept) -> None:
    before = kept.store.read_bytes()

    result = cmf("verify", kept.store, "--heads", kept.heads, "--public-key", kept.public)

    assert result.exit_code == 0, result.output
    assert "4 records, 3 heads, 0 beyond the last exported head" in result.output
    assert result.output.endswith("holds: 4 records\n")
    assert kept.store.read_bytes() == before
    assert "not checked" in cmf("verify", kept.store).output


@pytest.mark.spec("CLI-81")
@pytest.mark.spec("AUD-60")
@pytest.mark.spec("AUD-61")
def test_records_are_found_listed_and_shown(kept: Kept) -> None:
    first, second, third = (record.id for record in kept.records)
    lines = cmf("find", kept.store, "verdict:deny subject:ann").stdout.splitlines()
    assert [line.split()[3] for line in lines] == [third, first]
    assert cmf("find", kept.store, "subject:anonymous kind:decision").stdout.split()[3] == second
    found = json.loads(cmf("find", kept.store, "rule:test/* -subject:ann", "--format", "json").stdout)
    assert (found["id"], found["at"]) == (second, NOON.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    nothing = cmf("find", kept.store, "rule:other")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "cmf: no record matches\n")
    assert cmf("find", kept.store, "until:2025-01-01").stdout == ""
    assert len(cmf("find", kept.store, "since:2026-01-01T12:00:00+00:00 kind:decision").stdout.splitlines()) == 3
    assert cmf("find", kept.store, "since:1m kind:decision").stdout == ""  # they are of another day
    assert [line.split()[3] for line in cmf("tail", kept.store, "-n", 2).stdout.splitlines()] == [second, third]
    shown = json.loads(cmf("show", kept.store, first, "--format", "json").stdout)
    assert (shown["place"], shown["record"]["decision_id"]) == (1, first)


@pytest.mark.spec("CLI-81")
@pytest.mark.spec("AUD-62")
def test_decisions_are_found_by_their_reviews(kept: Kept, tmp_path: Path) -> None:
    first, second, third = (record.id for record in kept.records)
    said = {"by": {"id": "eve"}, "decision": first, "disposition": "false_positive", "comment": "meant well"}
    word = replace(made_record(), id="review_1", kind="review", body=dumps(said))
    with Store.at(kept.store, key=kept.key) as store:
        Recorder(store).record(word)

    def ids(*words: object) -> list[str]:
        return [
            json.loads(line)["id"] for line in cmf("find", kept.store, *words, "--format", "json").stdout.splitlines()
        ]

    assert ids("reviewed:yes") == ids("disposition:false_positive") == ids("disposition:false_*") == [first]
    assert ids("reviewed:no") == ids("kind:decision -disposition:false_positive") == [third, second]
    assert ids("reviewed:no", "-n", 1) == ids("reviewed:no subject:ann") == [third]
    assert ids("disposition:incident") == []
    for typo, values in (("reviewed:maybe", "yes, no"), ("disposition:false", "ok, false_positive")):
        refused = cmf("find", kept.store, typo)
        assert (refused.exit_code, f"values of {typo.partition(':')[0]} are {values}" in refused.stderr) == (4, True)
    some = tmp_path / "some.zip"
    found = cmf("export", kept.store, some, "--query", "reviewed:yes", "--signing-key", kept.key)
    assert found.stdout.startswith("2 records written")
    assert cmf("verify", some).exit_code == 0
    with Store.at(kept.store, key=kept.key) as store, pytest.raises(AuditError):
        Search(store.engine, store.writer).page(parse("reviewed:yes", NOON))  # never a page of nothing instead


@pytest.mark.spec("CLI-81")
def test_a_writer_blocks_no_reader_and_an_exclusive_lock_is_one_line(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.store.engine.BUSY_SECONDS", 0.05)
    last = kept.records[-1].id
    with closing(sqlite3.connect(kept.store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert cmf("tail", kept.store, "-n", 1).stdout.split()[3] == last
        other.execute("ROLLBACK")
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        locked = cmf("tail", kept.store)

    assert (locked.exit_code, locked.stdout) == (5, "")
    assert locked.stderr.endswith("SQLITE_BUSY: another process has it locked [store.unavailable]\n")
    assert locked.stderr.count("\n") == 1
    assert cmf("tail", kept.store, "-n", 1).stdout.split()[3] == last


@pytest.mark.spec("CLI-81")
def test_the_newest_records_are_followed(kept: Kept) -> None:
    command = [
        sys.executable,
        "-c",
        "from pipeline.cli import main; main()",
        "audit",
        "tail",
        str(kept.store),
        "--follow",
        "-n",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert kept.records[-1].id in following.stdout.readline()
        record = made_record()
        with Store.at(kept.store) as store:
            sleep(0.1)
            Recorder(store).record(record)
        lines = [following.stdout.readline() for _ in range(2)]  # the new log's opening, and the record
        following.terminate()
    assert record.id in lines[1]


@pytest.mark.spec("CLI-82")
def test_what_was_exported_is_verified_anywhere(kept: Kept, tmp_path: Path) -> None:
    whole, some = tmp_path / "whole.zip", tmp_path / "some.zip"
    assert cmf("export", kept.store, whole, "--signing-key", kept.key).stdout == f"4 records written to {whole}\n"
    told = cmf(
        "export", kept.store, some, "--query", "subject:ann", "--heads", kept.heads, "--signing-key", kept.key
    ).stdout
    assert told == f"3 records written to {some}\n"
    for bundle in (whole, some):
        result = cmf("verify", bundle, "--heads", kept.heads, "--public-key", kept.public)
        assert result.exit_code == 0, result.output
    content = whole.read_bytes().replace(b'"verdict":"deny"', b'"verdict":"DENY"')
    whole.write_bytes(content)
    result = cmf("verify", whole)
    assert result.exit_code == 1
    assert kept.records[0].id in result.output


@pytest.mark.spec("CLI-82", "AUD-55")
def test_the_key_that_signs_there_signs_what_is_exported_and_no_other_is_made(kept: Kept, tmp_path: Path) -> None:
    other, query = tmp_path / "other.pem", ("--query", "subject:ann")
    cmf("key", other)
    usual = Path(f"{kept.store}.key")
    signer = json.loads(cmf("head", kept.store).stdout)["key"]

    told = cmf("export", kept.store, tmp_path / "a.zip", *query, "--signing-key", kept.key)
    assert told.stderr == ""
    for name, file in (("b.zip", other), ("b.zip", tmp_path / "missing.pem"), ("b.zip", kept.public)):
        refused = cmf("export", kept.store, tmp_path / name, "--signing-key", file)
        assert refused.exit_code == 2, refused.output
        assert not (tmp_path / name).exists()
    for number, found in enumerate((None, other.read_bytes(), b"no key")):
        if found is not None:
            usual.write_bytes(found)
        assert "the manifest is not signed" in cmf("export", kept.store, tmp_path / f"{number}.zip", *query).stderr
        assert usual.exists() == (found is not None)
    usual.write_bytes(kept.key.read_bytes())
    assert cmf("export", kept.store, tmp_path / "c.zip", *query).stderr == ""

    for name in ("a.zip", "c.zip"):
        said = cmf("verify", tmp_path / name, "--public-key", kept.public, "--heads", kept.heads).stdout
        assert "bundle  selection: subject:ann  3 records, made 20" in said
        assert f", signed by {signer}\n" in said
        assert "not checked" not in said
    refused = cmf("verify", tmp_path / "0.zip", "--public-key", kept.public, "--heads", kept.heads)
    assert (refused.exit_code, "the manifest is not signed" in refused.stdout) == (3, True)
    accepted = cmf("verify", tmp_path / "0.zip", "--public-key", kept.public, "--heads", kept.heads, "--unsigned")
    assert accepted.exit_code == 0
    said = accepted.stdout
    assert ", not signed\nnot checked: the selection, and whether records, policies or reviews" in said
    assert "bundle  everything  4 records" in (
        cmf("export", kept.store, tmp_path / "d.zip").stdout + cmf("verify", tmp_path / "d.zip").stdout
    )
    Path(tmp_path / "public.other").write_text(cmf("key", other).stdout)
    refused = cmf("verify", tmp_path / "a.zip", "--public-key", tmp_path / "public.other", "--format", "json")
    assert "bundle.signature" in {one["code"] for one in json.loads(refused.stdout)["problems"]}


@pytest.mark.spec("CLI-83")
def test_the_newest_heads_are_printed_to_be_kept_elsewhere(kept: Kept) -> None:
    printed = cmf("head", kept.store).stdout
    assert json.loads(printed) == json.loads(kept.heads.read_text().splitlines()[-1])
