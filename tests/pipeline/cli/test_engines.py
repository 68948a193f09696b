"""The example requests give the same decisions on the embedded engine and on a real OPA server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.opa_server import free_port, serving
from typer.testing import CliRunner

from pipeline.cli.app import app

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
CASES = [
    ("openai_chat_question.json", "openai_chat", 0),
    ("anthropic_messages_delete.json", "anthropic_messages", 1),
    ("anthropic_messages_secret.json", "anthropic_messages", 0),
    ("openai_chat_send.json", "openai_chat", 0),
]


@pytest.fixture(scope="module")
def opa_url(opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    out = tmp_path_factory.mktemp("opa") / "bundle"
    built = CliRunner().invoke(app, ["bundle", "build", str(out), "--policies", str(EXAMPLES / "policies")])
    assert built.exit_code == 0, built.output
    with serving(opa_binary, out) as url:
        yield url


def evaluated(name: str, wire: str, *options: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(
        app,
        [
            "eval",
            str(EXAMPLES / "requests" / name),
            *("--from", wire, "--to", "openai_chat", "--format", "json"),
            *("--policies", str(EXAMPLES / "policies"), "--context", str(EXAMPLES / "context.json")),
            *options,
        ],
    )
    document = json.loads(result.stdout)
    document.pop("decision_id")
    return result.exit_code, document


@pytest.mark.spec("CLI-7")
@pytest.mark.parametrize(("name", "wire", "code"), CASES)
def test_both_engines_decide_alike(opa_url: str, name: str, wire: str, code: int) -> None:
    embedded = evaluated(name, wire)
    server = evaluated(name, wire, "--engine", "opa", "--opa-url", opa_url)

    assert embedded == server
    assert embedded[0] == code
    assert embedded[1]["coverage"]["evaluated"] == embedded[1]["coverage"]["produced"] > 2


@pytest.mark.spec("CLI-1")
def test_a_server_that_is_not_there_is_five() -> None:
    name, wire, _ = CASES[0]
    place = ["--engine", "opa", "--opa-url", f"http://127.0.0.1:{free_port()}"]

    result = CliRunner().invoke(
        app, ["eval", str(EXAMPLES / "requests" / name), "--from", wire, "--format", "json", *place]
    )

    assert result.exit_code == 5
    assert result.stderr == (
        "cmf: the OPA server did not answer; check --opa-url, and that `opa run --server` is running\n"
    )
    document = json.loads(result.stdout)
    assert document["action"] == "refuse"
    assert document["request"] is None


@pytest.mark.spec("CLI-2")
def test_a_bundle_is_not_written_over_anything(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x", encoding="utf-8")

    result = CliRunner().invoke(app, ["bundle", "build", str(tmp_path)])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "not an empty directory" in result.stderr
