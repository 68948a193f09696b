"""Conversations as files, and what they cost."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from tests.pipeline.store.test_ledger import added, call, result, text
from typer.testing import CliRunner, Result

from cmf import Message
from cmf.errors import CmfError
from cmf.models.pricing import parse_table
from pipeline.cli.app import app
from pipeline.decisions.errors import LedgerError
from pipeline.store.conversation_formats import FORMATS, read_conversation, write_conversation
from pipeline.store.conversations import cost_of, row_of
from pipeline.store.database import Store

RUN = CliRunner()
CONVERSATION = [
    text("system", "Be brief."),
    text("user", "Find it."),
    call("call_1"),
    result("call_1"),
    text("user", "Thanks."),
]
PRICES = """
pricing_version: "1"
models:
  anthropic:claude: {input_per_mtok_usd: 3.00, output_per_mtok_usd: 15.00}
"""


def used(model: str, tokens: int) -> Message:
    extensions = {"llm": {"model_id": model}, "completion": {"tokens": {"input_tokens": tokens, "output_tokens": 0}}}
    part = {"content_type": "text", "text": "done"}
    return Message.model_validate({"role": "assistant", "content": [part], "extensions": extensions})


def cmf(*arguments: object, given: str | None = None) -> Result:
    return RUN.invoke(app, ["ledger", *map(str, arguments)], input=given)


@pytest.mark.spec("LED-12")
@pytest.mark.parametrize("name", FORMATS)
def test_a_conversation_comes_back_from_each_format(name: str) -> None:
    again = read_conversation(write_conversation(CONVERSATION, name), name)
    if name in ("canonical", "agent_threads"):
        assert [(one.role, one.content) for one in again] == [(one.role, one.content) for one in CONVERSATION]
    else:
        kinds = [part.content_type for message in again for part in message.content]
        assert kinds.count("tool_call") == kinds.count("tool_result") == 1
        assert [part.text for message in again for part in message.content if part.content_type == "text"][
            -1
        ] == "Thanks."


@pytest.mark.spec("LED-12")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("data", [b"{", b"3", b'{"messages":3}', b'[{"role":"SECRET"}]'])
def test_what_is_no_conversation_is_refused_without_quoting_it(name: str, data: bytes) -> None:
    with pytest.raises(CmfError) as refused:
        read_conversation(data, name)
    assert "SECRET" not in str(refused.value)


@pytest.mark.spec("LED-13")
def test_what_has_no_price_is_named_and_nothing_is_written(database: Store) -> None:
    ledger = database.ledger()
    session = ledger.open("anonymous", "s")
    messages = added(ledger, session, used("anthropic:claude", 1_000_000), used("other:model", 5))
    before = ledger.messages(session)
    with pytest.raises(LedgerError) as refused:
        ledger.reprice(session, parse_table(PRICES))
    assert refused.value.path == f"messages[{messages[1].id}]"
    assert ledger.messages(session) == before
    assert cost_of(before, parse_table(PRICES)).unpriced == (messages[1].id,)


@pytest.mark.spec("LED-13")
def test_a_conversation_is_priced_anew_for_good(database: Store) -> None:
    ledger = database.ledger()
    session = ledger.open("anonymous", "s")
    added(ledger, session, text("user", "x"), used("anthropic:claude", 1), used("anthropic:claude", 2))
    assert cost_of(ledger.messages(session)).unpriced
    cost = ledger.reprice(session, parse_table(PRICES))
    assert cost.total == Decimal("0.000009")
    kept = cost_of(ledger.messages(session))
    assert (kept.total, kept.unpriced) == (cost.total, ())
    dearer = parse_table(PRICES.replace(": 3.00", ": 30.00").replace('"1"', '"2"'))
    assert cost_of(ledger.messages(session), dearer).by_model == {"anthropic:claude": Decimal("0.00009")}


@pytest.mark.spec("CLI-84")
def test_the_commands_take_in_list_print_and_price(tmp_path: Path) -> None:
    store, prices = tmp_path / "s.sqlite3", tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    assert cmf("list", store).exit_code == 5
    assert not store.exists()
    lines = write_conversation([*CONVERSATION, call("call_2"), used("anthropic:claude", 2)], "canonical").decode()
    session = cmf(
        "import", store, "-", "--from", "canonical", "--session", "s", "--subject", "ann", given=lines
    ).stdout.strip()
    assert cmf("import", store, "-", "--from", "canonical", "--session", "t", given="{").exit_code == 4
    assert cmf("list", store).stdout.split()[0::5] == [session]
    assert json.loads(cmf("list", store, "--format", "json").stdout)["subject"] == "id:ann"
    exported = cmf("export", store, session, "--to", "openai_chat")
    assert [one["role"] for one in json.loads(exported.stdout)["messages"]][:3] == ["system", "user", "assistant"]
    assert cmf("export", store, "sess_other").exit_code == 4
    assert [line.split()[-1] for line in cmf("calls", store).stdout.splitlines()] == ["search"]
    assert json.loads(cmf("calls", store, "--format", "json").stdout)["provider_id"] == "call_2"
    none = cmf("calls", store, "--failed")
    assert (none.stdout, none.stderr) == ("", "cmf: no failed calls\n")
    assert json.loads(cmf("calls", store, "--failed", "--format", "json").stdout) == {}
    assert cmf("cost", store, session).exit_code == 1
    assert cmf("cost", store, session, "--write").exit_code == 2
    priced = cmf("cost", store, session, "--prices", prices, "--write")
    assert priced.exit_code == 0, priced.output
    assert priced.stdout.splitlines()[-1].split() == ["0.000006", "USD", "total"]
    assert json.loads(cmf("cost", store, session, "--format", "json").stdout)["total_usd"] == "0.000006"


@pytest.mark.spec("LED-12", "LED-9")
def test_an_import_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite3"
    into = ("import", store, "-", "--from", "canonical", "--session")
    known = cmf(*into, "s", given=write_conversation(CONVERSATION, "canonical").decode()).stdout.strip()
    kept = cmf("export", store, known).stdout

    refused = {
        "messages[0]": cmf(*into, "other", given=kept),
        "no messages": cmf(*into, "other", given="\n"),
        "line 6 is no message": cmf(*into, "other", given=f"{kept}{{"),
        "sess_other": cmf("export", store, "sess_other"),
        "none.yaml": cmf("cost", store, known, "--prices", tmp_path / "none.yaml"),
    }

    for named, done in refused.items():
        assert (done.exit_code, named in done.stderr) == (4, True), done.output
    assert len(cmf("list", store).stdout.splitlines()) == 1


@pytest.mark.spec("LED-12")
def test_a_conversation_can_be_imported_again_with_its_tool_calls(tmp_path: Path) -> None:
    store, chat = tmp_path / "s.sqlite3", write_conversation(CONVERSATION, "openai_chat").decode()
    into = ("import", store, "-", "--from", "openai_chat", "--session", "s")

    twice = {cmf(*into, given=chat).stdout.strip(), cmf(*into, given=chat).stdout.strip()}

    (session,) = twice
    assert cmf("export", store, session, "--to", "openai_chat").stdout.count("tool_call_id") == 2
    assert cmf("calls", store).stdout == ""


@pytest.mark.spec("CLI-84")
def test_failed_tools_are_counted(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite3"
    lines = write_conversation([call("a"), result("a", failed=True)], "canonical").decode()
    session = cmf("import", store, "-", "--from", "canonical", "--session", "s", given=lines).stdout.strip()
    assert cmf("calls", store, "--failed").stdout.split() == [session, "1", "search"]


@pytest.mark.spec("LED-14")
@pytest.mark.spec("CLI-84")
def test_tally_has_cost_and_calls_of_each_conversation(database: Store, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    ledger = database.ledger()
    busy, dear = ledger.open("id:ann", "busy"), ledger.open("id:bob", "dear")
    added(ledger, busy, call("a"), call("b"), call("c"), result("a", failed=True), result("b", failed=True))
    added(ledger, dear, used("anthropic:claude", 2), used("other:model", 1))
    place = database.engine.url.render_as_string(hide_password=False)

    told = [
        json.loads(line) for line in cmf("tally", place, "--prices", prices, "--format", "json").stdout.splitlines()
    ]
    lines = cmf("tally", place, "--prices", prices, "-n", 5).stdout.splitlines()

    by_name = {one["session"]["session"]: one for one in told}
    assert (by_name["busy"]["unanswered"], by_name["busy"]["failed"]) == (1, {"search": 2})
    assert by_name["busy"]["cost"] == {"total_usd": "0", "by_model": {}, "unpriced": []}
    assert by_name["dear"]["cost"]["total_usd"] == "0.000006"
    assert len(by_name["dear"]["cost"]["unpriced"]) == 1
    assert (by_name["dear"]["unanswered"], by_name["dear"]["failed"]) == (0, {})
    assert sorted(line.split("  ")[0] for line in lines) == sorted((busy, dear))
    assert {"+?" in line for line in lines if line.startswith(dear)} == {True}
    assert [line for line in lines if line.endswith("failed: search 2")]
    assert len(cmf("tally", place, "-n", 1).stdout.splitlines()) == 1
    assert cmf("tally", tmp_path / "missing").exit_code == 5


@pytest.mark.spec("CLI-84")
def test_losses_of_an_export_are_reported(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite3"
    image = {"content_type": "thinking", "text": "hm"}
    message = Message.model_validate({"role": "assistant", "content": [image, {"content_type": "text", "text": "x"}]})
    lines = write_conversation([text("user", "hello"), message], "canonical").decode()
    session = cmf("import", store, "-", "--from", "canonical", "--session", "s", given=lines).stdout.strip()

    exported = cmf("export", store, session, "--to", "openai_chat")

    assert exported.exit_code == 0
    assert "cmf: dropped thinking" in exported.stderr


@pytest.mark.spec("LED-4")
def test_only_what_has_an_id_and_a_time_is_a_row() -> None:
    with pytest.raises(LedgerError) as refused:
        row_of(text("user", "x"), session_id="s", run_id="r")
    assert refused.value.code == "ledger.unstamped"
