"""`cmf approvals`, `cmf declassify` and `cmf eval --store`, as people use them by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.session_stores import taint, who
from typer.testing import CliRunner, Result

from pipeline.audit.heads import Signer
from pipeline.cli.app import app
from pipeline.decisions.authority import holder
from pipeline.run.assembly import open_sessions
from pipeline.store.database import Store
from pipeline.store.four_eyes import TWO_PEOPLE
from pipeline.store.records import stored_records

Run = Callable[..., Result]
PAY = {"role": "assistant", "content": [{"content_type": "tool_call", "name": "pay", "arguments": {"amount": 7}}]}
RULE = 'require_approval contains {"code": "t.pay", "reason": "Ask."} if input.name == "pay"'


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.sqlite3'}"


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "key").write_text("ab" * 32 + "\n", encoding="ascii")
    return str(tmp_path / "key")


@pytest.fixture
def judge(tmp_path: Path, store: str, key: str) -> Run:
    policies = write_rules(tmp_path / "policies", {"pay": RULE})

    def run(body: Any = PAY, *options: str) -> Result:
        known = ["--policies", str(policies), "--store", store, "--session", "s", "--subject", "ann"]
        arguments = ["eval", "-", "--from", "canonical", "--seal-key", key, *known, *options]
        return CliRunner().invoke(app, arguments, input=json.dumps(body))

    return run


def cmf(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refuses(result: Result, code: int, *words: str) -> None:
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def asked(judge: Run) -> str:
    result = judge(PAY, "--format", "json")
    assert result.exit_code == 6, result.output
    (approval,) = json.loads(result.stdout)["approvals"]
    return str(approval["id"])


@pytest.mark.spec("CLI-21")
@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, ("config.invalid", "sqlite:////"), ("list", "mysql://x/y")),
        (2, ("redis://host",), ("list", "redis://x:port/0")),
        (5, ("store.unavailable",), ("list", "sqlite:////nowhere/x/y.sqlite3")),
        (5, ("store.unavailable",), ("list", "redis://127.0.0.1:1/0")),
        (1, ("approval.unknown",), ("show", "apr_1")),
        (1, ("approval.unknown",), ("approve", "apr_1", "--as", "bob")),
        (1, ("approval.unknown",), ("deny", "apr_1", "--as", "bob")),
        (2, ("config.seal-key",), ("show", "apr_1", "--seal-key", "/nowhere")),
    ],
)
def test_what_cannot_be_done_is_one_line(
    code: int, words: tuple[str, ...], arguments: tuple[str, ...], store: str
) -> None:
    command, *rest = arguments
    Store(store).close()

    refuses(cmf("approvals", command, *([] if command == "list" else [store]), *rest), code, *words)


@pytest.mark.spec("CLI-21")
def test_a_missing_store_is_an_error_and_none_is_made(store: str, tmp_path: Path) -> None:
    who = ["--session", "s", "--as", "bob", "--reason", "r", "--for", "1h"]

    for command in (["approvals", "list", store], ["declassify", store, "taint", *who]):
        refuses(cmf(*command), 5, "there is no store here")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("CLI-24")
def test_every_command_takes_a_store_by_its_path_and_by_its_url(database: Store, tmp_path: Path) -> None:
    url = database.engine.url.render_as_string(hide_password=False)
    file = tmp_path / "odd name?#%20é.sqlite3"
    places = [url]
    if database.engine.dialect.name == "sqlite":
        places = [url, str(file)]
        Store.at(file).close()

    for place in places:
        for command in ("verify", "holds", "overrides"):
            done = cmf("audit", command, place)
            assert done.exit_code == 0, (done.output, command)
        assert cmf("ledger", "list", place).exit_code == cmf("approvals", "list", place).exit_code == 0
        refuses(cmf("case", "from-record", "dec_1", "--records", place), 2, "--as and --reason")
    assert {one.name for one in tmp_path.iterdir() if one.name.startswith("odd")} <= {file.name}

    for command in (["audit", "tail"], ["ledger", "list"], ["approvals", "list"]):
        refuses(cmf(*command, "mysql://host/x"), 2, "config.invalid", "write a path")


@pytest.mark.spec("CLI-21", "CLI-23", "APR-7")
def test_own_requests_cannot_be_approved_and_decisions_are_final(judge: Run, store: str) -> None:
    first = asked(judge)

    refuses(cmf("approvals", "approve", store, first, "--as", "ann"), 1, "approval.own-request")
    assert cmf("approvals", "deny", store, first, "--as", "bob").stdout == f"{first}: denied by bob\n"
    refuses(cmf("approvals", "approve", store, first, "--as", "bob"), 1, "approval.decided")
    assert judge().exit_code == 1
    assert cmf("approvals", "approve", store, first).exit_code == 2
    with Store(store) as opened:
        (said,) = [json.loads(one.body or b"") for one in stored_records(opened.engine, kind="review")]
    assert (said["action"], said["by"], said["approval"]) == ("deny", {"id": "bob"}, first)


@pytest.mark.spec("CLI-20")
def test_the_whole_loop_by_hand(judge: Run, store: str, key: str) -> None:
    assert cmf("approvals", "list", store).stdout == ""
    first = asked(judge)
    assert f"approval  pending   {first}  content[0]" in judge().stdout

    (line,) = cmf("approvals", "list", store).stdout.splitlines()
    assert line.startswith(f"{first}  tool://_/pay  id:ann in s  by test/pay  until 20")
    (listed,) = json.loads(cmf("approvals", "list", store, "--format", "json").stdout)
    assert (listed["status"], listed["subject"], listed["used_at"]) == ("pending", "id:ann", None)
    shown = cmf("approvals", "show", store, first, "--seal-key", key, "--format", "json")
    assert json.loads(shown.stdout)["about"]["arguments"] == {"amount": 7}
    assert "about" not in cmf("approvals", "show", store, first).stdout
    assert cmf("approvals", "approve", store, first, "--as", "bob").stdout == f"{first}: approved by bob\n"

    assert judge().exit_code == 0
    assert asked(judge) != first


@pytest.mark.spec("CLI-20")
def test_a_key_that_is_none_and_another_key_are_one_line(judge: Run, store: str, tmp_path: Path) -> None:
    first = asked(judge)
    (tmp_path / "other").write_text("cd" * 32, encoding="ascii")
    (tmp_path / "short").write_text("cd", encoding="ascii")

    show = ("approvals", "show", store, first, "--seal-key")
    refuses(cmf(*show, str(tmp_path / "other")), 1, "approval.unreadable")
    refuses(cmf(*show, str(tmp_path / "short")), 2, "config.seal-key")


@pytest.mark.spec("CLI-22", "SES-23")
def test_a_label_is_lifted_by_hand(tmp_path: Path, store: str) -> None:
    with Store.at(tmp_path / "store.sqlite3") as opened:
        opened.sessions().commit(who("ann", "s"), None, taint("secret", "e1"))
    lift = ("declassify", store, "secret", "--subject", "ann", "--session", "s", "--as", "eve")
    given = (*lift, "--reason", "reviewed", "--for")

    refuses(cmf(*given, "soon"), 2, "--for")
    refuses(cmf(*given, "2d"), 1, "declassify.too-long")
    refuses(cmf(*given, "1h", "--source", "e9"), 1, "session.unknown-source")
    refuses(cmf(*given, "1h", "--second", "eve"), 1, "declassify.four-eyes")
    refuses(cmf("declassify", store, "pii", *given[3:], "1h"), 1, "declassify.nothing")
    done = cmf(*given, "30m", "--second", "dan", "--source", "e1")

    assert done.exit_code == 0
    assert "secret lifted for 1 event until 20" in done.stdout
    with Store.at(tmp_path / "store.sqlite3") as opened:
        sessions = opened.sessions()
        assert sessions.read(who("ann", "s")).labels == frozenset()
        (grant,) = sessions.grants(who("ann", "s"))
    assert (grant.actor, grant.seconder, grant.reason) == ("eve", "dan", "reviewed")
    (line,) = cmf("audit", "find", store, "kind:declassify session:s").stdout.splitlines()
    assert line.split()[1:3] == ["declassify", "lift"]
    assert line.endswith("  eve in s")
    shown = json.loads(cmf("audit", "show", store, line.split()[3], "--format", "json").stdout)["record"]
    assert (shown["by"], shown["second"], shown["grant"]) == ({"id": "eve"}, {"id": "dan"}, grant.id)
    assert (shown["label"], shown["sources"], shown["reason"]) == ("secret", ["e1"], "reviewed")
    assert cmf("audit", "verify", store).exit_code == 0
    anonymous = [word for word in given if word not in ("--subject", "ann")]
    refuses(cmf(*anonymous, "1h"), 1, "declassify.nothing")


@pytest.mark.spec("CLI-22", "AUD-80")
def test_where_the_store_asks_for_two_people_it_takes_two_to_lift_a_label(tmp_path: Path, store: str) -> None:
    with Store.at(tmp_path / "store.sqlite3") as opened:
        opened.sessions().commit(who("ann", "s"), None, taint("secret", "e1"))
        opened.contents().four_eyes.need_two(True, actor=holder("bob", TWO_PEOPLE), reason="a rule of the house")
    lift = ("declassify", store, "secret", "--subject", "ann", "--session", "s", "--as", "eve")
    given = (*lift, "--reason", "reviewed", "--for", "1h")

    refuses(cmf(*given), 1, "declassify.four-eyes")
    assert cmf(*given, "--second", "dan").exit_code == 0


@pytest.mark.spec("CLI-22", "SES-23")
def test_a_label_is_not_lifted_under_a_key_that_does_not_sign_there(tmp_path: Path, store: str) -> None:
    with Store.at(tmp_path / "store.sqlite3") as opened:
        opened.sessions().commit(who("ann", "s"), None, taint("secret", "e1"))
        opened.contents().four_eyes.need_two(False, actor=holder("bob", TWO_PEOPLE), reason="so that there is a log")
    lift = ("declassify", store, "secret", "--subject", "ann", "--session", "s", "--as", "eve")
    given = (*lift, "--reason", "reviewed", "--for", "1h", "--signing-key", str(tmp_path / "other.pem"))

    refuses(cmf(*given), 2, "no such key file")
    Signer.at(tmp_path / "other.pem")
    refuses(cmf(*given), 2, "signed with another key")
    with Store.at(tmp_path / "store.sqlite3") as opened:
        assert opened.sessions().grants(who("ann", "s")) == ()


@pytest.mark.spec("CLI-20", "CLI-22")
def test_a_redis_store_serves_as_well(redis_url: str) -> None:
    assert cmf("approvals", "list", redis_url).exit_code == 0
    with open_sessions(redis_url) as sessions:
        sessions.commit(who("ann", "s"), None, taint("secret", "e1"))
    lift = ("declassify", redis_url, "secret", "--subject", "ann", "--session", "s", "--as", "eve")
    done = cmf(*lift, "--reason", "reviewed", "--for", "1h")
    assert done.exit_code == 0
    assert "sessions in Redis have no log" in done.stderr


@pytest.mark.spec("CLI-20", "APR-13")
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--scope", "always"), 2, "always"),
        (("--scope", "session", "--for", "soon"), 2, "30m or 8h"),
        (("--scope", "session", "--for", "91d"), 1, "approval.too-long"),
    ],
)
def test_a_scope_or_a_time_that_there_is_not_approves_nothing(
    judge: Run, store: str, options: tuple[str, ...], code: int, words: str
) -> None:
    name = asked(judge)

    result = cmf("approvals", "approve", store, name, "--as", "bob", *options)

    assert (result.exit_code, words in result.output) == (code, True)
    assert json.loads(cmf("approvals", "show", store, name, "--format", "json").stdout)["status"] == "pending"


@pytest.mark.spec("CLI-20", "APR-11", "APR-13")
def test_what_was_approved_for_a_session_is_listed_holds_and_is_revoked(judge: Run, store: str) -> None:
    name = asked(judge)
    approved = cmf("approvals", "approve", store, name, "--as", "bob", "--scope", "session", "--for", "2h")
    assert "approved by bob, and for its session until" in approved.stdout

    assert [judge().exit_code for _ in range(3)] == [0, 0, 0]
    (line,) = cmf("approvals", "list", store, "--standing").stdout.splitlines()
    assert name in line
    assert "in this session, by bob" in line
    assert cmf("approvals", "revoke", store, name, "--as", "carol").stdout == f"{name}: revoked by carol\n"

    assert judge().exit_code == 6
    assert "no standing approvals" in cmf("approvals", "list", store, "--standing").stderr
    refuses(cmf("approvals", "revoke", store, name, "--as", "carol"), 1, "approval.not-standing")
