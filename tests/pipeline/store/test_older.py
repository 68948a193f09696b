"""Stores that older code made, with what it kept in them: opened, migrated, judged by and verified.

In `older` are two stores as SQL, made by the code of their time from made-up runs: 0003 has records from before there
was a log, and 0006 a log with exported heads and a bundle of evidence. The keys that signed are gone, as they may be:
a store goes on under another one.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cmf import Message, Role, SubjectExtension, ToolCallPart
from pipeline.audit.exporting import read_heads
from pipeline.audit.heads import PublicKey, Signer
from pipeline.audit.verification import Report, verify
from pipeline.cli.commands import app
from pipeline.decisions.context import Context
from pipeline.guard import Guard
from pipeline.store.database import Store
from pipeline.store.engine import open_to_read
from pipeline.store.evidence import StoreEvidence

OLDER = Path(__file__).parent / "older"
ANN = Context(subject=SubjectExtension(id="ann"), session="s1")
MAIL = ToolCallPart(tool_call_id="c1", name="send_email", arguments={"to": "eve@example.org"})


def made(version: str, folder: Path) -> Path:
    """The store of that version, as a file."""
    file = folder / f"{version}.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        database.executescript((OLDER / f"{version}.sql").read_text(encoding="utf-8"))
    return file


def judged(file: Path) -> tuple[str, list[str]]:
    """The verdict on a mail in a session of the store, and the rules that hit; it goes on record."""
    with Store.at(file, key=file.with_suffix(".key")) as store, Guard(store=store) as guard:
        decision = guard.decide(Message(role=Role.ASSISTANT, content=[MAIL]), context=ANN)
        assert store.sessions().read(ANN).counters == {"calls:tool://_/pay": 2}
    return decision.verdict, [hit.rule for view in decision.views for hit in view.hits]


def verified(file: Path) -> Report:
    """What is found of a store of version 0006: its heads and key are kept elsewhere."""
    engine = open_to_read(file)
    own = Signer.at(file.with_suffix(".key")).public_key
    keys = [PublicKey.at(OLDER / "0006.pem"), own]
    try:
        return verify(StoreEvidence(engine), exported=read_heads(OLDER / "0006.heads.jsonl"), keys=keys)
    finally:
        engine.dispose()


@pytest.mark.spec("REC-13")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("DELETE FROM records WHERE place = 2", "record.missing"),
        ("UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'deny', 'warn') AS BLOB)", "record.changed"),
        ("DELETE FROM records WHERE place IS NULL OR place >= 1", "record.missing"),
    ],
)
def test_what_was_changed_before_a_migration_is_found_after_it(tmp_path: Path, change: str, code: str) -> None:
    file = made("0006", tmp_path)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(change)

    judged(file)

    assert code in {problem.code for problem in verified(file).problems}


@pytest.mark.spec("REC-13")
def test_a_store_with_a_log_goes_on_and_holds(tmp_path: Path) -> None:
    file = made("0006", tmp_path)

    assert judged(file) == ("deny", ["data/label_to_sink"])  # the label was put on by the code of then

    report = verified(file)
    assert (report.problems, report.records) == ((), 6)


@pytest.mark.spec("REC-13")
def test_records_from_before_the_log_are_noted_by_it_and_those_that_come_later_are_not(tmp_path: Path) -> None:
    file = made("0003", tmp_path)
    assert judged(file) == ("deny", ["data/label_to_sink"])
    command = ["audit", "verify", str(file)]

    honest = CliRunner().invoke(app, command)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM records WHERE seq = 2")
    cut = CliRunner().invoke(app, command)

    assert (honest.exit_code, "holds: 2 records" in honest.stdout) == (0, True)
    assert (cut.exit_code, "record.stray" in cut.stdout) == (1, True)


@pytest.mark.spec("AUD-51")
def test_evidence_of_older_code_holds_and_says_what_it_does_not_show() -> None:
    command = ["audit", "verify", str(OLDER / "0006.zip"), "--heads", str(OLDER / "0006.heads.jsonl")]
    command += ["--public-key", str(OLDER / "0006.pem")]

    unsigned = CliRunner().invoke(app, command)
    accepted = CliRunner().invoke(app, [*command, "--unsigned"])

    assert (unsigned.exit_code, "bundle.unsigned" in unsigned.stdout) == (3, True)
    assert (accepted.exit_code, "holds: 4 records" in accepted.stdout) == (0, True)
