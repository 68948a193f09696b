"""`cmf serve` and `cmf config`, as people use them by hand."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from tests.pipeline.gateway.servers import until
from tests.pipeline.gateway.test_crossing import post
from typer.testing import CliRunner, Result

from pipeline.cli.app import app
from pipeline.gateway.auth.identity import hash_of

UP = {"dialect": "anthropic_messages", "base_url": "https://h", "key": {"env": "NO_SUCH_KEY"}}
ISSUER = {
    "name": "a",
    "issuer": "i",
    "audience": ["b"],
    "algorithms": ["RS256"],
    "keys": {"file": "f"},
    "claims": {"id": "sub"},
}
SETTINGS = {"upstreams": {"up": UP}, "routes": [{"name": "all", "upstream": "up"}], "anonymous": True}


@pytest.fixture(autouse=True)
def _only_what_the_test_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs have variables of their own (tests/conftest.py), which no gateway knows."""
    for name in [name for name in os.environ if name.startswith("CMF_")]:
        monkeypatch.delenv(name)


def cmf(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "cmf.yaml"
    file.write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
    return str(file)


@pytest.mark.spec("CLI-60", "GW-2", "GW-3")
def test_show_prints_each_value_and_where_it_comes_from(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMF_LISTEN__PORT", "7001")
    monkeypatch.setenv("NO_SUCH_KEY", "sk-canary")

    text, document = cmf("config", "show", "-c", config), cmf("config", "show", "-c", config, "--format", "json")

    assert text.exit_code == document.exit_code == 0
    assert ["listen.port", "7001", "CMF_LISTEN__PORT"] in [line.split() for line in text.stdout.splitlines()]
    assert json.loads(document.stdout)["upstreams.up.key"] == {"value": "env:NO_SUCH_KEY", "source": "file"}
    assert "canary" not in text.output + document.output


@pytest.mark.spec("CLI-60", "GW-5")
def test_check_reads_all_that_serving_reads_and_changes_nothing(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = cmf("config", "check", "-c", config)
    monkeypatch.setenv("NO_SUCH_KEY", "sk-canary")
    found = cmf("config", "check", "-c", config)

    assert (missing.exit_code, found.exit_code) == (2, 0)
    assert "env:NO_SUCH_KEY" in missing.output
    assert found.stdout == "ok: 1 route, 1 upstream\n"
    assert [file.name for file in Path(config).parent.iterdir()] == ["cmf.yaml"]


@pytest.mark.spec("CLI-60", "GW-5")
def test_check_says_how_much_would_be_served(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"NO_SUCH_KEY": "sk-canary", "CMF_CHECK": "{}", "CMF_MCP": "{zoo: {url: 'http://127.0.0.1:9/mcp'}}"}
    for name, text in said.items():
        monkeypatch.setenv(name, text)

    assert cmf("config", "check", "-c", config).stdout == "ok: 1 route, 1 upstream, 1 MCP server, checks\n"


@pytest.mark.spec("CLI-60", "GW-5")
def test_check_compiles_every_policy_set(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_SUCH_KEY", "x")
    broken = tmp_path / "p"
    broken.mkdir()
    (broken / "a.rego").write_text("package cmf.rules.a.a\n\ndeny contains x if {", encoding="utf-8")
    Path(config).write_text(yaml.safe_dump(SETTINGS | {"policies": ["p"]}), encoding="utf-8")

    result = cmf("config", "check", "-c", config)

    assert result.exit_code == 3
    assert "a.rego" in result.output


@pytest.mark.slow
@pytest.mark.spec("POL-48", "CLI-60")
def test_what_a_reload_would_refuse_does_not_start(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_SUCH_KEY", "x")
    own = tmp_path / "p"
    own.mkdir()
    (own / "own_test.rego").write_text("package own_test\n\ntest_own if 1 == 2\n", encoding="utf-8")
    Path(config).write_text(yaml.safe_dump(SETTINGS | {"policies": ["shipped", "p"]}), encoding="utf-8")

    for result in (cmf("config", "check", "-c", config), cmf("serve", "-c", config, "--port", "0")):
        assert result.exit_code == 3
        assert "own_test.test_own failed" in result.output


@pytest.mark.spec("CLI-60", "GW-21")
def test_a_key_is_shown_once_and_kept_as_its_hash(config: str) -> None:
    made = cmf("config", "key", "ci", "--subject", "ci-runner", "--role", "agent")

    key = made.stderr.strip().rpartition(" ")[2]
    assert yaml.safe_load(made.stdout) == [
        {"name": "ci", "hash": hash_of(key), "subject": {"id": "ci-runner", "roles": ["agent"]}}
    ]
    assert key not in made.stdout
    assert len(key) > 40


@pytest.mark.spec("CLI-61")
@pytest.mark.parametrize("words", [["-c", "/no/such"], ["--demo", "--port", "TAKEN"], ["--demo", "-c", "/no/such"]])
def test_what_cannot_be_served_is_one_line_and_2(words: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        result = cmf("serve", *(port if word == "TAKEN" else word for word in words))

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.spec("CLI-61", "GW-50")
@pytest.mark.slow
def test_the_demo_serves_until_it_is_interrupted_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", "serve", "--demo", "--port", "0"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        url = served.stdout.readline().strip().removeprefix("gateway: ")
        body = {"model": "demo", "messages": [{"role": "user", "content": "AKIAIOSFODNN7EXAMPLE"}]}
        until(lambda: _answers(url))
        status, _, raw = post(url, "/v1/chat/completions", body, {"authorization": "Bearer demo"})
        served.send_signal(signal.SIGINT)
        _, errors = served.communicate(timeout=30)

    assert (status, served.returncode) == (200, 0)
    assert json.loads(raw)["choices"][0]["message"]["content"] == "You said: [MASKED]"
    assert '"status":200' in errors
    assert "Traceback" not in errors
    assert [one.name for one in scratch.iterdir()] == []


def _answers(url: str) -> bool:
    try:
        return post(url, "/healthz", None)[0] == 405
    except OSError:
        return False


@pytest.mark.spec("CLI-60")
def test_settings_to_begin_with_begin_and_hold_the_key_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cmf("config", "new")
    (tmp_path / "cmf.yaml").write_text(made.stdout, encoding="utf-8")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")

    found = cmf("config", "check", "-c", str(tmp_path / "cmf.yaml"))

    assert (found.exit_code, found.stdout) == (0, "ok: 1 route, 1 upstream\n"), found.stderr
    key = next(word for word in made.stderr.split() if word.startswith("cmf_"))
    assert yaml.safe_load(made.stdout)["keys"][0]["hash"] == hash_of(key)
    assert key not in made.stdout
    assert made.stdout != cmf("config", "new").stdout


@pytest.mark.spec("CLI-60")
@pytest.mark.parametrize("place", ["missing/cmf.db", "closed/cmf.db"])
def test_check_finds_a_store_that_cannot_be_written(
    config: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed")  # root may write anywhere
    Path(config).write_text(yaml.safe_dump(SETTINGS | {"store": place}), encoding="utf-8")
    monkeypatch.setenv("NO_SUCH_KEY", "sk-canary")

    found = cmf("config", "check", "-c", config)

    assert found.exit_code == 2
    assert str(tmp_path / place.split("/")[0]) in found.stderr


@pytest.mark.spec("CLI-60", "GW-5")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"audit": {"key_file": "missing/audit.pem"}}, "the directory of `audit.key_file` does not exist"),
        ({"audit": {"key_file": "cmf.yaml"}}, "the audit key cannot be used"),
        ({"audit": {"heads_file": "missing/heads"}}, "the directory of `audit.heads_file` does not exist"),
        ({"audit": {"key_file": "new.pem", "heads_file": "heads"}}, "ok: 1 route"),
        ({"store": "postgresql://host", "audit": {"key_file": "new.pem"}}, "the store needs a database"),
        ({"sessions": {"store": "missing/s.db"}}, "the directory of `sessions.store` does not exist"),
        ({"sessions": {"store": "postgresql://host"}}, "the store needs a database"),
        ({"sessions": {"store": "s.db"}}, "ok: 1 route"),
        ({"sessions": {"store": "redis://127.0.0.1:1/0"}}, "ok: 1 route"),
    ],
)
def test_check_finds_what_nothing_could_be_kept_in_or_signed_with_and_makes_none_of_it(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str
) -> None:
    Path(config).write_text(yaml.safe_dump(SETTINGS | change), encoding="utf-8")
    monkeypatch.setenv("NO_SUCH_KEY", "sk-canary")

    found = cmf("config", "check", "-c", config)

    assert words in found.output
    assert found.exit_code == (0 if words.startswith("ok") else 2)
    assert [file.name for file in tmp_path.iterdir()] == ["cmf.yaml"]


@pytest.mark.spec("CLI-60")
def test_the_schema_takes_what_is_settings_and_nothing_else() -> None:
    printed = json.loads(cmf("schema", "config").stdout)
    valid = jsonschema_rs.validator_for(printed).is_valid

    assert valid(yaml.safe_load(cmf("config", "new").stdout))
    assert valid({"aliases": {"a": "x,y/z"}, "issuers": [ISSUER]})
    assert not valid({"rotues": []})


@pytest.mark.spec("CLI-61")
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_SUCH_KEY", "sk-canary")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = cmf("serve", "-c", config, "--port", str(port))
        monkeypatch.setenv("CMF_ADMIN__PORT", str(port))
        beside = cmf("serve", "-c", config, "--port", "0")
        monkeypatch.delenv("CMF_ADMIN__PORT")
    monkeypatch.setenv("CMF_LISTEN__HOST", "192.0.2.1")
    other = cmf("serve", "-c", config)

    assert found.exit_code == other.exit_code == 2
    assert (
        "address already in use; stop the program that listens there, or give another port (--port, 0 for any)"
        in found.stderr
    )
    assert (
        "address already in use; stop the program that listens there, or give another port (admin.port)"
        in beside.stderr
    )
    assert "use an address of this machine" in other.stderr
