"""`cmf profiles`: what is inferred, said with its reasons, and put to the pipeline that reads it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cmf import Message, Request, ToolCallPart, ToolDefinition, ToolResultPart
from pipeline import Config, Guard
from pipeline.cli.app import app
from pipeline.decisions.context import Context
from pipeline.decisions.policy_input import SessionFacts
from pipeline.provenance.profiles import Profiles
from pipeline.run.recorded_input import append, entry_of
from pipeline.store.database import Store

TEXT = {"type": "string"}
SEND: dict[str, Any] = {
    "name": "send_email",
    "inputSchema": {"type": "object", "properties": {"to": TEXT, "body": TEXT}},
}
LIST: dict[str, Any] = {"name": "list_mails", "inputSchema": {"type": "object"}}


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["profiles", *map(str, words)])


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps({"tools": [SEND, LIST]}))
    return file


def conversation() -> Request:
    call = ToolCallPart(tool_call_id="c1", name="send_email", arguments={"to": "ann@x.example"})
    result = ToolResultPart(tool_call_id="c1", tool_name="send_email", content={"id": "7", "items": [{"from": "bob"}]})
    return Request(
        messages=[Message(role="assistant", content=[call]), Message(role="tool", content=[result])],
        tools=[ToolDefinition(name="send_email", input_schema=SEND["inputSchema"])],
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "inputs.jsonl"
    value = conversation()
    with Guard() as guard:
        append(file, entry_of(value, Context(), SessionFacts(), guard.decide(value)))
    return file


@pytest.mark.spec("CLI-98")
def test_a_draft_says_why_and_is_a_file_of_profiles(listing: Path, tmp_path: Path) -> None:
    result = run("draft", listing)
    assert result.exit_code == 0, result.output
    assert '    sink: true # its name says "send"' in result.stdout.splitlines()
    assert '      - "to" # its name says "to"' in result.stdout.splitlines()

    file = tmp_path / "profiles.yaml"
    file.write_text(result.stdout)
    profiles = Profiles.load(file)
    send, reads = profiles.find("send_email"), profiles.find("list_mails")
    assert send is not None
    assert reads is not None
    assert (send.sink, send.control, send.content, reads.sink) == (True, ("to",), ("body",), False)
    shown = run("show", "send_email", listing, "--profiles", file).stdout
    assert [line.split("  ")[-1] for line in shown.splitlines() if line.startswith("sink")] == [
        "written in a file of profiles"
    ]


@pytest.mark.spec("CLI-98")
@pytest.mark.parametrize(
    "name", ["a\nsink: false #", 'x"} # y', "é: [z]", "**", "a # b"], ids=["line", "quote", "letters", "deep", "hash"]
)
def test_names_in_definitions_add_nothing_to_a_draft(tmp_path: Path, name: str) -> None:
    file = tmp_path / "tools.json"
    tool = {"name": "send_email", "inputSchema": {"type": "object", "properties": {name: TEXT, "to": TEXT}}}
    file.write_text(json.dumps({"tools": [tool]}))

    drafted = yaml.safe_load(run("draft", file).stdout)["profiles"]["tool://_/send_email"]

    assert drafted["sink"] is True
    assert drafted["control"]


@pytest.mark.spec("CLI-98")
def test_definitions_come_from_recorded_inputs_and_from_a_server(recorded: Path, tmp_path: Path) -> None:
    assert "tool://_/send_email" in run("draft", "--records", recorded).stdout

    pages = {"": {"tools": [SEND], "nextCursor": "2"}, "2": {"tools": [LIST]}}
    server = tmp_path / "server.py"
    server.write_text(
        "import json, sys\n"
        f"pages = {pages!r}\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if 'id' in asked:\n"
        "        print('starting', flush=True)\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/message'}), flush=True)\n"
        "        listed = asked['method'] == 'tools/list'\n"
        "        result = pages[asked['params'].get('cursor', '')] if listed else {}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': result}), flush=True)\n"
    )
    drafted = run("draft", "--server", f"{sys.executable} {server}", "--namespace", "mail")
    assert drafted.exit_code == 0, drafted.output
    assert {"tool://mail/send_email", "tool://mail/list_mails"} == yaml.safe_load(drafted.stdout)["profiles"].keys()

    silent = run("draft", "--server", f"{sys.executable} -c pass")
    assert (silent.exit_code, "does not list its tools" in silent.output) == (2, True)


@pytest.mark.spec("CLI-98")
def test_what_cannot_be_drafted_or_shown_is_said(listing: Path, recorded: Path, tmp_path: Path) -> None:
    both = run("draft", listing, "--records", recorded)
    none = run("draft")
    other = run("show", "nothing", listing)
    assert (both.exit_code, none.exit_code, other.exit_code) == (2, 4, 4)
    assert "give one of FILE, --records and --server" in both.output


@pytest.mark.spec("CLI-99")
def test_show_says_of_each_fact_where_it_comes_from(listing: Path, tmp_path: Path) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text("version: 1\nprofiles: {send_email: {irreversible: true}}\n")
    facts = {
        fact["field"]: fact
        for fact in json.loads(run("show", "send_email", listing, "--profiles", file, "--format", "json").stdout)
    }
    assert facts["irreversible"] == {
        "field": "irreversible",
        "value": True,
        "reason": "written in a file of profiles",
        "inferred": False,
    }
    assert facts["control.to"]["inferred"] is True

    by_name = run("show", "mail/delete_mailbox").stdout
    assert 'irreversible: true                        inferred: its name says "delete"' in by_name.splitlines()


@pytest.mark.spec("CLI-100")
def test_check_finds_the_patterns_that_name_no_field(recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text(
        "version: 1\nprofiles:\n"
        "  send_email:\n    control: [to, recipient]\n"
        '    result: {trust: metadata, fields: {"items[*].from": untrusted, "**.sender": untrusted}}\n'
        "  never_called: {control: [x]}\n"
    )
    result = run("check", file, "--records", recorded, "--format", "json")

    assert result.exit_code == 1
    assert [(each["field"], each["pattern"], each["seen"]) for each in json.loads(result.stdout)] == [
        ("control", "recipient", 1),
        ("result.fields", "**.sender", 1),
    ]
    file.write_text("version: 1\nprofiles: {send_email: {control: [to]}}\n")
    assert run("check", file, "--records", recorded).exit_code == 0


@pytest.mark.spec("CLI-100")
def test_reading_the_inputs_of_a_store_is_on_record(tmp_path: Path) -> None:
    place = tmp_path / "s.db"
    file = tmp_path / "profiles.yaml"
    file.write_text("version: 1\nprofiles: {send_email: {control: [nobody]}}\n")
    with Store.at(place) as store, Guard(store=store, config=Config(content="whole")) as guard:
        guard.run(conversation())
    checked = run("check", file, "--records", place)
    assert (checked.exit_code, "names nothing in 1 call" in checked.stdout) == (1, True)
    assert "cmf profiles" in CliRunner().invoke(app, ["audit", "find", str(place), "subject:cmf*"]).output
