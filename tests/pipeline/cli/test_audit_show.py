"""`cmf audit` over hostile traffic: one record told to people, and nothing printed that would drive a terminal."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.pipeline.review.traffic import keep, record
from tests.pipeline.run_records import NOON
from typer.testing import CliRunner, Result

from cmf import Message, Role, TextPart, ToolCallPart
from pipeline import Config, Guard
from pipeline.audit.record import act_of
from pipeline.cli.app import app
from pipeline.decisions.display import visible
from pipeline.policy.shipped import shipped
from pipeline.store.database import Store
from pipeline.store.records import row_of
from pipeline.store.tables import RECORDS

RUN = CliRunner()
HOSTILE = "a\x1b[2J\x9b31m\u202eb\u2028\u200b\U000e0041<script>"
REASON = ("--as", "carol", "--second", "dan", "--reason", HOSTILE)


def cmf(*arguments: object) -> Result:
    return RUN.invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with decisions of the shipped policies about names and texts that would drive a terminal."""
    file = tmp_path_factory.mktemp("hostile") / "s.sqlite3"
    call = ToolCallPart(tool_call_id="c1", name=f"pay{HOSTILE}", arguments={"to": HOSTILE})
    with (
        Store.at(file) as opened,
        Guard(store=opened, config=Config(content="masked")) as guard,
        guard.session(f"s{HOSTILE}", subject={"id": HOSTILE}),
    ):
        guard.decide(Message(role=Role.TOOL, content=(TextPart(text=f"AKIAIOSFODNN7EXAMPLE {HOSTILE}"),)))
        guard.decide(Message(role=Role.ASSISTANT, content=(call,)))
        guard.decide(Message(role=Role.TOOL, content=(TextPart(text="The key is AKIAIOSFODNN7EXAMPLE"),)))
    return file


def ids(store: Path, query: str) -> list[str]:
    """The ids of what the query finds, newest first."""
    return [
        json.loads(line)["id"] for line in cmf("audit", "find", store, query, "--format", "json").stdout.splitlines()
    ]


@pytest.mark.spec("CLI-4")
@pytest.mark.parametrize(
    "asked",
    [
        "audit find STORE kind:decision",
        "audit find STORE kind:decision --format json",
        "audit tail STORE",
        "audit tail STORE --format json",
        "audit show STORE ID",
        "audit show STORE ID --format json",
        "audit reveal STORE ID REASON",
        "audit override STORE --rule data/secrets --subject HOSTILE REASON",
        "audit overrides STORE --format json",
        "audit break-glass STORE --subject HOSTILE REASON",
        "audit grants STORE --format json",
        "audit verify STORE --format json",
        "declassify STORE secret --subject HOSTILE --session sHOSTILE --for 30m REASON",
        "case from-record ID --records STORE --as carol --reason why",
        "impact --base shipped --head shipped --records STORE --format json",
    ],
)
def test_nothing_is_printed_that_would_drive_a_terminal(store: Path, asked: str) -> None:
    words = asked.replace("STORE", str(store)).replace("ID", ids(store, "verdict:deny")[-1]).split()
    given = [part for word in words for part in (REASON if word == "REASON" else (word.replace("HOSTILE", HOSTILE),))]

    done = cmf(*given)

    assert (done.exit_code, bool(done.stdout)) == (0, True), done.stderr
    assert [line for line in (done.stdout + done.stderr).split("\n") if not line.isprintable()] == []


@pytest.mark.spec("CLI-4")
def test_what_is_escaped_in_json_is_read_back_as_it_was(store: Path) -> None:
    (denied, *_) = ids(store, "verdict:deny")

    found = json.loads(cmf("audit", "find", store, f"id:{denied}", "--format", "json").stdout)
    shown = json.loads(cmf("audit", "show", store, denied, "--format", "json").stdout)
    revealed = json.loads(cmf("audit", "reveal", store, denied, "--as", "carol", "--reason", "why").stdout)

    assert (found["subject"], found["session"]) == (HOSTILE, f"s{HOSTILE}")
    assert shown["record"]["subject"]["id"] == HOSTILE
    assert revealed["context"]["subject"]["id"] == HOSTILE


@pytest.mark.spec("CLI-81")
def test_a_decision_is_shown_with_file_and_line_of_each_rule(store: Path) -> None:
    masked, denied = ids(store, "effect:redact")

    refused = cmf("audit", "show", store, denied).stdout.splitlines()
    changed = cmf("audit", "show", store, masked).stdout.splitlines()

    assert refused[0].startswith("Refused: rule content/invisible_unicode denied a text; ")
    (path, _, line) = next(one for one in refused if "invisible_unicode.rego:" in one).strip().rpartition(":")
    assert (shipped() / path).read_text().splitlines()[int(line) - 1].startswith("deny contains")
    assert changed[0] == "Let through after 1 edit: rule data/secrets masked 1 place in a text."
    assert "content       kept apart from the record, with secrets masked at 1 place" in changed
    assert changed[-2].startswith("log           log_")
    assert changed[-2].endswith(", place 3")


@pytest.mark.spec("CLI-81")
def test_what_became_of_the_content_is_told_with_who_erased_it(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as opened, Guard(store=opened, config=Config(content="masked")) as guard:
        for subject in ("ann", "bob"):
            guard.decide(Message(role=Role.USER, content=(TextPart(text="hello"),)), subject={"id": subject})
    kept, erased = ids(file, "kind:decision")

    cmf("audit", "erase", file, "--subject", "ann", *REASON[:2], "--reason", HOSTILE)
    told = [cmf("audit", "show", file, one).stdout for one in (erased, kept)]
    (act,) = [one for one in ids(file, "kind:erasure") if one in told[0]]
    with sqlite3.connect(file) as database:
        database.execute("DELETE FROM contents")
    lost = cmf("audit", "show", file, kept).stdout

    assert f" by carol: {visible(HOSTILE)} [{act}]\n" in told[0]
    assert "content       missing, and no erasure of it is on record: check the store with `cmf audit verify`\n" in lost
    assert "content       kept apart from the record\n" in told[1]


@pytest.mark.spec("CLI-81")
def test_a_rule_of_policies_that_are_not_in_the_store_has_no_place(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as opened:
        (denied,) = keep(opened, record("deny", subject=None, session=None, rule="tools/a"))
        (stopped,) = keep(opened, record("deny", rule="stage/mine", skipped=["content[1]"]))

    told = cmf("audit", "show", file, denied).stdout

    assert "subject       anonymous\n" in told
    assert "file and line of this rule are not known: the policies are not in the store\n" in told
    told = cmf("audit", "show", file, stopped).stdout
    assert "file and line" not in told
    assert "not judged    content[1]: stage.stopped\n" in told


@pytest.mark.spec("CLI-81")
def test_a_long_name_does_not_fill_the_terminal_and_is_whole_in_json(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as opened:
        (kept,) = keep(opened, record(subject="A" * 4_000, session="B" * 5_000))

    line = cmf("audit", "find", file, "kind:decision").stdout
    told = cmf("audit", "show", file, kept).stdout
    whole = json.loads(cmf("audit", "find", file, "kind:decision", "--format", "json").stdout)

    assert line.endswith(f" {'A' * 120}… (4,000 characters) in {'B' * 120}… (5,000 characters)\n")
    assert f"session       {'B' * 512}… (5,000 characters)\n" in told
    assert (len(whole["subject"]), len(whole["session"])) == (4_000, 5_000)


@pytest.mark.spec("CLI-81")
def test_other_records_are_shown_field_by_field(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    act = act_of("hold", "hold", "set", {"reason": HOSTILE, "expires_at": 0, "by": {"id": "eve"}}, NOON)
    with Store.at(file) as opened:
        opened.put_on_record(act)
        opened.writer.insert(RECORDS, row_of(record()) | {"body": None}).result(10)
        (erased,) = (one for one in ids(file, "kind:decision"))

    told = cmf("audit", "show", file, act.id).stdout

    assert told.startswith(f"hold {act.id}\nat            2026-01-01T12:00:00+00:00\naction        set\n")
    assert "reason        a\\u{1b}[2J" in told
    assert "expires_at    1970-01-01T00:00:00Z\n" in told
    assert 'by            {"id": "eve"}\n' in told
    assert cmf("audit", "show", file, erased).stdout.startswith(f"decision {erased}: its bytes were erased\nlog ")
