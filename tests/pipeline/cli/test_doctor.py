"""`cmf doctor`: what it finds where all is well, and where each thing is not."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.pipeline.conftest import write_rules
from tests.pipeline.postgres_server import Postgres
from tests.pipeline.run_records import made_record
from typer.testing import CliRunner, Result

import cmf
from pipeline.audit.heads import Signer
from pipeline.cli import doctor
from pipeline.cli.app import app
from pipeline.decisions.engine import Undefined
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.gateway.config.config_file import load
from pipeline.gateway.config.settings import Settings
from pipeline.sessions.base import wall_clock
from pipeline.store.database import Store

KEY = "sk-canary-7f3a"
RULE = {"no": 'deny contains {"code": "test.no", "reason": "You may not."} if contains(input.content, "no")'}
SETTINGS: dict[str, Any] = {
    "upstreams": {"up": {"dialect": "ollama", "base_url": "http://127.0.0.1:9", "key": {"env": "UP_KEY"}}},
    "routes": [{"name": "all", "upstream": "up"}],
    "anonymous": True,
    "policies": ["policy"],
}
Doctor = Callable[..., Result]
Kept = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a gateway, which is its user's home too."""
    for name in [name for name in os.environ if name.startswith(("CMF_", "LLM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UP_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    write_rules(tmp_path / "policy", RULE, kinds="text")
    return tmp_path


@pytest.fixture
def run(home: Path) -> Doctor:
    """Write settings, SETTINGS with what a test changes, and look."""

    def looked(*options: str, **change: Any) -> Result:
        (home / "cmf.yaml").write_text(yaml.safe_dump(SETTINGS | change), encoding="utf-8")
        return CliRunner().invoke(app, ["doctor", *options])

    return looked


def _settings(home: Path, **change: Any) -> Settings:
    (home / "cmf.yaml").write_text(yaml.safe_dump(SETTINGS | change), encoding="utf-8")
    return load(home / "cmf.yaml").settings


@pytest.fixture
def kept(home: Path) -> Kept:
    """Look at what a gateway with such settings keeps: of one thing, status and message."""

    def looked(check: str, **change: Any) -> list[tuple[str, str]]:
        lines = map(doctor.pasteable, doctor.storage_checks(_settings(home, **change)))
        return [(one.status, f"{one.message}; {one.hint}") for one in lines if one.check == check]

    return looked


def found(result: Result, check: str) -> list[tuple[str, str]]:
    """The lines about one thing: status and message."""
    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    return [(line[1], line[2]) for line in lines if line[0] == check]


def record(file: Path) -> None:
    with Store.at(file) as store:
        store.put_on_record(made_record())


# -- where all is well -------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-78")
def test_a_gateway_that_works_has_a_line_for_each_thing_and_leaves_with_0(run: Doctor, home: Path) -> None:
    record(home / "cmf.db")
    before = sorted(one.name for one in home.iterdir())

    result = run()

    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert result.exit_code == 0, result.output
    assert [line[0] for line in lines[:-1]] == [
        *("python", "engine", "clock", "settings", "policies", "tools", "store", "audit", "upstreams")
    ]
    assert {line[1] for line in lines[:-1]} == {"ok"}
    assert result.stdout.endswith("\n0 problems, 0 warnings\n")
    assert "~/cmf.yaml: 1 route, 1 upstream" in result.stdout
    assert "route all: 1 rule, revision" in result.stdout
    assert "0 profiles; what they leave out is inferred from definitions: enforce for route all" in result.stdout
    assert "~/cmf.db: can be written, schema" in result.stdout
    assert "over 2 records" in result.stdout
    assert "up: connections not tested" in result.stdout
    assert sorted({*before, "cmf.yaml"}) == sorted({one.name for one in home.iterdir()})


@pytest.mark.spec("CLI-78")
def test_tools_of_which_nothing_is_known_are_a_warning(run: Doctor) -> None:
    result = run(inference="off")

    assert result.exit_code == 0
    assert "tools      warning  nothing is known of the tools of route all; set `inference: enforce`" in result.stdout


@pytest.mark.spec("CLI-78")
def test_without_settings_it_looks_at_what_the_library_needs(home: Path) -> None:
    own = CliRunner().invoke(app, ["doctor"])
    shutil.rmtree("policy")
    shipped = CliRunner().invoke(app, ["doctor"])

    assert (shipped.exit_code, own.exit_code) == (0, 0)
    assert "no cmf.yaml here" in shipped.stdout
    assert found(shipped, "policies")[0][1].startswith("shipped: ")
    assert found(own, "policies")[0][1].startswith("policy: 1 rule")
    assert found(own, "store") == []


@pytest.mark.spec("CLI-78")
def test_the_same_as_json(run: Doctor) -> None:
    ill = run("--format", "json", audit={"key_file": "missing/a.pem"})

    document = json.loads(ill.stdout)
    (bad,) = [one for one in document["checks"] if one["status"] == "problem"]
    assert (document["ok"], ill.exit_code, bad["check"]) == (False, 1, "audit")
    assert set(bad) == {"check", "status", "message", "hint", "code"}
    assert bad["hint"] == "mkdir -p ~/missing"


# -- where something is not --------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-78")
def test_what_is_wrong_with_one_thing_hides_nothing_of_the_others(run: Doctor, home: Path) -> None:
    (home / "policy" / "bad.rego").write_text("package cmf.rules.a.a\n\ndeny contains x if {", encoding="utf-8")
    (home / "cmf.db").write_bytes(b"no database" * 100)

    result = run(audit={"key_file": "cmf.yaml"})

    assert result.exit_code == 1
    assert [one[0] for one in found(result, "settings")] == ["ok"]
    for check, words in {
        "policies": "bad.rego",
        "store": "this file is not a database",
        "audit": "not an unencrypted private key",
    }.items():
        (line,) = found(result, check)
        assert line[0] == "problem"
        assert words in line[1]
    assert found(result, "upstreams")[0][0] == "ok"


@pytest.mark.spec("CLI-78")
def test_settings_that_cannot_be_used_are_a_line_too(run: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UP_KEY")
    no_secret, unknown = run(), run(rotues=[])
    missing = CliRunner().invoke(app, ["doctor", "-c", "other.yaml"])

    assert "set the variable UP_KEY [config.no-secret]" in found(no_secret, "settings")[0][1]
    assert found(no_secret, "policies")[0][0] == "ok"
    assert "did you mean `routes`?" in found(unknown, "settings")[0][1]
    assert "there is no such file" in found(missing, "settings")[0][1]
    assert found(unknown, "store") == [("warning", _containing("not checked, and neither are policies"))]
    assert (no_secret.exit_code, unknown.exit_code, missing.exit_code) == (1, 1, 1)


@pytest.mark.spec("CLI-78")
def test_policies_are_loaded_and_asked_and_their_tests_are_not_run(run: Doctor, home: Path) -> None:
    tests = "package cmf.rules.test.no_test\n\nimport rego.v1\n\ntest_fails if false\n"
    (home / "policy" / "no_test.rego").write_text(tests, encoding="utf-8")

    assert found(run(), "policies") == [("ok", _containing("tests not run (cmf test)"))]


@pytest.mark.spec("CLI-78")
def test_candidates_that_the_review_site_could_not_use_are_found(run: Doctor, home: Path) -> None:
    (home / "next").mkdir()

    result = run(admin={"port": 0}, review={"roles": {"a": "viewer"}, "policies": ["next"]}, anonymous=True, **_keys())

    assert [one[0] for one in found(result, "policies")] == ["ok", "problem"]


def _keys() -> dict[str, Any]:
    return {"keys": [{"name": "k", "hash": "sha256:" + "0" * 64, "subject": {"id": "a"}}]}


@pytest.mark.spec("CLI-78")
def test_the_engine_is_asked_for_two_decisions(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedEngine, "evaluate", lambda _, names, *__, **___: [Undefined()] * len(names))
        wrong = CliRunner().invoke(app, ["doctor"])
    monkeypatch.setitem(sys.modules, "cmf._native", None)
    monkeypatch.delattr(cmf, "_native")
    gone = CliRunner().invoke(app, ["doctor"])

    assert found(wrong, "engine")[0][0] == "problem"
    assert "decides wrongly" in found(wrong, "engine")[0][1]
    assert found(gone, "engine")[0][0] == "problem"
    assert "_native" in found(gone, "engine")[0][1]
    assert "install it again" in found(gone, "engine")[0][1]
    assert found(gone, "clock")[0][0] == "ok"
    assert (wrong.exit_code, gone.exit_code) == (1, 1)


@pytest.mark.spec("CLI-78")
def test_distributions_that_are_missing_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda _: ["orjson>=3", "no-such-thing>=1,<2", 'ray; extra == "ray"'])
    missing = CliRunner().invoke(app, ["doctor"])
    monkeypatch.setattr(doctor, "DISTRIBUTION", "no-such-thing")
    checkout = CliRunner().invoke(app, ["doctor"])

    assert "not installed: no-such-thing;" in found(missing, "python")[0][1]
    assert "not an installed distribution" in found(checkout, "python")[0][1]


# -- what it keeps -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-78")
def test_a_store_of_another_version_is_reported_and_not_changed(kept: Kept, home: Path) -> None:
    record(home / "cmf.db")
    with sqlite3.connect(home / "cmf.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()

    ((shown, line),) = kept("store")

    assert (shown, "install the version that wrote it" in line) == ("problem", True)


@pytest.mark.spec("CLI-78")
def test_a_locked_or_unwritable_store_is_a_problem(kept: Kept, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(home / "cmf.db")
    monkeypatch.setattr("pipeline.store.engine.BUSY_SECONDS", 0.01)
    holding = sqlite3.connect(home / "cmf.db", isolation_level=None)
    holding.execute("BEGIN IMMEDIATE")
    held = kept("store")
    holding.close()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "cmf.db")  # root may write anything
    closed = kept("store")

    assert "another process has it locked" in held[0][1]
    assert "this user cannot write `store` at ~/cmf.db" in closed[0][1]


@pytest.mark.spec("CLI-78")
@pytest.mark.parametrize(("left", "status"), [(500_000_000, "warning"), (10_000_000, "problem")])
def test_a_nearly_full_disk_is_reported(kept: Kept, monkeypatch: pytest.MonkeyPatch, left: int, status: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=left))

    _, (shown, line) = kept("store")

    assert (shown, line.partition(";")[0]) == (status, f"its disk has {left // 1_000_000} MB free")


@pytest.mark.spec("CLI-78")
def test_a_long_journal_is_a_warning(kept: Kept, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(home / "cmf.db")
    monkeypatch.setattr(doctor, "LONG_JOURNAL", -1)

    _, (shown, line) = kept("store")

    assert shown == "warning"
    assert "its journal (~/cmf.db-wal) has 0 B" in line


@pytest.mark.spec("CLI-78")
def test_sessions_of_their_own_are_looked_at(kept: Kept, home: Path) -> None:
    record(home / "s.db")
    own = kept("sessions", sessions={"store": "s.db"})
    redis = kept("sessions", sessions={"store": f"redis://:{KEY}@127.0.0.1:1/0"})

    assert [own[0][0], redis[0][0]] == ["ok", "problem"]
    assert KEY not in str(redis)


# -- what proves it ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-78")
def test_a_key_that_is_readable_by_others_missing_or_another_is_a_warning(kept: Kept, home: Path) -> None:
    record(home / "cmf.db")
    (home / "cmf.db.key").chmod(0o644)
    readable = kept("audit")
    (home / "cmf.db.key").unlink()
    gone = kept("audit")
    Signer.at(home / "cmf.db.key")
    other = kept("audit")

    assert readable[0] == ("warning", _containing("chmod 600 ~/cmf.db.key"))
    assert ("warning", _containing("no key; the newest head")) == gone[0]
    assert ("warning", _containing("is signed with key")) == other[0]


class _containing(str):  # noqa: N801 - reads as a word
    """Equal to any text that holds it."""

    def __eq__(self, other: object) -> bool:
        return str(self) in str(other)

    __hash__ = str.__hash__


@pytest.mark.spec("CLI-78")
def test_a_changed_or_missing_head_is_reported(kept: Kept, home: Path) -> None:
    record(home / "cmf.db")
    _change(home, "UPDATE heads SET root = 'ff'")
    changed = kept("audit")
    _change(home, "DELETE FROM heads")
    gone = kept("audit")
    _change(home, "DELETE FROM records")
    empty = kept("audit")

    assert changed == [("problem", _containing("has no valid signature"))]
    assert gone == [("warning", _containing("is not covered by a head"))]
    assert empty == [("ok", _containing("no record was read"))]


def _change(home: Path, statement: str) -> None:
    with sqlite3.connect(home / "cmf.db") as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.spec("CLI-78")
def test_a_clock_that_went_back_is_a_problem(kept: Kept, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(home / "cmf.db")
    monkeypatch.setattr(doctor, "_now", lambda: wall_clock() - timedelta(days=9_000))

    result = CliRunner().invoke(app, ["doctor"])

    assert found(result, "clock") == [("problem", _containing("before this program was installed"))]
    assert kept("clock") == [("problem", _containing("behind the newest record; set the clock"))]


# -- whom it asks ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-79")
def test_upstreams_are_connected_to_only_when_that_is_asked_for(home: Path) -> None:
    claims = {"name": "corp", "issuer": "i", "audience": ["a"], "algorithms": ["RS256"]}
    issuers = [claims | {"keys": {"url": "https://127.0.0.1:9/keys"}, "claims": {"id": "sub"}}]
    three = _settings(home, mcp={"zoo": {"url": "http://127.0.0.1:9/mcp"}}, issuers=issuers)
    scripted = _settings(home, upstreams={"up": {"script": "no.yaml"}})

    refused, (silent,) = list(doctor.remote_checks(three, connects=True)), doctor.remote_checks(three, connects=False)
    (here,) = doctor.remote_checks(scripted, connects=True)

    assert [one.message.partition(":")[0] for one in refused] == ["up", "mcp zoo", "keys of issuer corp"]
    assert {(one.status, one.hint) for one in refused} == {("problem", "check host and port, and that it runs")}
    assert (silent.status, silent.message) == (
        "ok",
        _containing("up, mcp zoo, keys of issuer corp: connections not tested"),
    )
    assert (here.status, here.message) == ("ok", "none configured")


@pytest.mark.spec("CLI-78")
def test_a_new_database_of_a_server_is_no_problem(kept: Kept, postgres: Postgres) -> None:
    empty, key = postgres.url(postgres.empty()), {"key_file": "a.pem"}

    assert kept("store", store=postgres.url("no_such_database"), audit=key)[0][0] == "problem"
    assert kept("store", store=empty, audit=key) == [("ok", _containing("creates them when it starts"))]
    assert kept("store", store=empty, audit=key) == kept("store", store=empty, audit=key), "nothing was created"
    assert kept("store", store=postgres.new(), audit=key) == [("ok", _containing("can be written"))]


# -- what may be shown -------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-78")
def test_what_is_printed_names_no_home_no_login_and_no_secret(run: Doctor, kept: Kept, home: Path) -> None:
    store = f"postgresql://ann@127.0.0.1:1/cmf?password={KEY}&connect_timeout=2"
    policies = run(policies=[f"/{root}/bob/policy" for root in ("home", "Users")])
    told = [
        policies.output,
        str(kept("store", store=store, audit={"key_file": "a.pem"})),
        str(kept("store", store="missing\u202e/cmf.db")),
    ]

    assert found(policies, "policies")[0][0] == "problem"
    assert all("'problem'" in one for one in told[1:])
    assert not [word for word in (KEY, str(home), "bob", "ann@", "\u202e") if word in "".join(told)]


@pytest.mark.spec("CLI-79")
@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://api.openai.com", True),
        ("http://api.openai.com.", True),
        ("http://8.8.8.8:8080", True),
        ("http://[2001:4860:4860::8888]", True),
        ("https://api.openai.com", False),
        ("http://127.0.0.1:11434", False),
        ("http://10.0.0.7", False),
        ("http://localhost:11434", False),
        ("http://ollama:11434", False),
        ("http://ollama.models.svc.cluster.local", False),
    ],
)
def test_plain_http_to_a_public_host_is_warned_of(home: Path, url: str, warns: bool) -> None:
    chosen = {"up": {"dialect": "openai_chat", "base_url": url}}
    found = list(doctor.remote_checks(_settings(home, upstreams=chosen), connects=False))
    pasted = list(doctor.remote_checks(_settings(home, mcp={"zoo": {"url": f"{url}/mcp"}}), connects=False))

    assert [one.status for one in found] == ["warning"] * warns + ["ok"]
    assert ["mcp zoo: http sends keys" in one.message for one in pasted] == [True] * warns + [False]


@pytest.mark.spec("CLI-79")
@pytest.mark.parametrize(("port", "warns"), [(4317, True), (4318, False)])
def test_telemetry_to_the_port_for_grpc_is_warned_of(home: Path, port: int, warns: bool) -> None:
    settings = _settings(home, telemetry={"endpoint": f"http://127.0.0.1:{port}"})
    found = list(doctor.remote_checks(settings, connects=False))

    assert [(one.check, one.status) for one in found] == [("telemetry", "warning")] * warns + [("upstreams", "ok")]
