"""Formats that are told by the shape of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cmf import adapters
from cmf.adapters import FORMATS
from cmf.errors import ShapeError
from cmf.message.request import Request, Response
from pipeline.cli.app import app
from pipeline.cli.format_detection import detected

ROOT = Path(__file__).resolve().parents[3]
RUN = CliRunner()


def golden(name: str) -> dict[str, Any]:
    cassette: dict[str, Any] = json.loads((ROOT / "tests" / "golden" / f"{name}.cassette.json").read_text("utf-8"))
    return cassette


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize(
    "body", [None, [], "messages", 1, {}, {"a": 1}, {"messages": {}}, {"message": {}}, {"model": "gpt-5"}]
)
def test_what_has_no_shape_is_not_guessed(body: object) -> None:
    with pytest.raises(ShapeError) as caught:
        detected(body)

    assert caught.value.code == "input.unknown-format"


@pytest.mark.spec("CLI-73")
def test_a_file_of_no_known_shape_is_one_line_that_names_the_option() -> None:
    for command in ("eval", "view", "why"):
        result = RUN.invoke(app, [command, "-"], input='{"a": 1}')
        assert (result.exit_code, result.stdout) == (4, "")
        assert "--from" in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize("name", FORMATS)
def test_recorded_bodies_of_every_format_are_recognised(name: str) -> None:
    cassette = golden(name)

    assert detected(cassette["request"]["body"]) == (name, "request")
    assert detected(cassette["response"]["body"]) == (name, "response")


@pytest.mark.spec("CLI-73")
def test_the_canonical_form_of_recorded_bodies_is_recognised() -> None:
    for name in FORMATS:
        adapter, cassette = adapters.get(name), golden(name)
        request = adapter.from_wire_request(cassette["request"]["body"]).model_dump()
        response = adapter.from_wire_response(cassette["response"]["body"]).model_dump()
        assert detected(request) == ("canonical", "request")
        assert detected(response) == ("canonical", "response")
        assert Request.model_validate(request)
        assert Response.model_validate(response)


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize(
    ("body", "format"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, "openai_chat"),
        ({"model": "gpt-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}, "openai_chat"),
        ({"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}, "anthropic_messages"),
        ({"system": "s", "messages": [{"role": "user", "content": "hi"}]}, "anthropic_messages"),
        ({"model": "claude-x", "messages": [{"role": "system", "content": "hi"}]}, "openai_chat"),
        ({"model": "anthropic/claude-x", "messages": [{"role": "user", "content": "hi"}]}, "openrouter"),
        ({"model": "llama3:8b", "messages": [], "options": {}}, "ollama"),
        ({"model": "gpt-5", "input": "hi"}, "openai_responses"),
        ({"role": "user", "content": [{"content_type": "text", "text": "hi"}]}, "canonical"),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f"}}, "mcp"),
    ],
)
def test_small_requests_are_recognised(body: dict[str, Any], format: str) -> None:
    assert detected(body) == (format, "request")


@pytest.mark.spec("CLI-73")
@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "requests").glob("*.json")), ids=lambda path: path.stem)
def test_eval_says_as_what_it_read_and_decides_alike(path: Path) -> None:
    told = next(name for name in FORMATS if path.name.startswith(name))

    seen = RUN.invoke(app, ["eval", str(path), "--format", "json"])
    said = RUN.invoke(app, ["eval", str(path), "--format", "json", "--from", told])

    assert seen.stderr == f"cmf: read as {told}, a request; --from and --kind override this\n"
    assert seen.exit_code == said.exit_code
    assert json.loads(seen.stdout)["views"] == json.loads(said.stdout)["views"]
    assert said.stderr == ""


@pytest.mark.spec("CLI-73")
def test_a_response_needs_no_kind(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text(json.dumps(golden("openai_chat")["response"]["body"]), encoding="utf-8")

    for options in ((), ("--from", "openai_chat")):
        result = RUN.invoke(app, ["view", str(tmp_path / "answer.json"), *options])
        assert result.exit_code == 0, result.output
        assert 'input.kind = "response"' in result.stdout


@pytest.mark.spec("CLI-74")
def test_a_project_is_judged_by_its_own_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RUN.invoke(app, ["init", str(tmp_path / "p"), "--template", "tools"])
    monkeypatch.chdir(tmp_path / "p")

    def judged(*options: str) -> tuple[list[str], str]:
        result = RUN.invoke(app, ["eval", "cases/mail.json", "--from", "openai_chat", "--format", "json", *options])
        views = json.loads(result.stdout)["views"]
        return sorted({hit["rule"] for view in views for hit in view["hits"]}), result.stderr

    own, said = judged()
    assert own == ["tools/ask_first", "tools/by_role"]
    assert said.startswith("cmf: using the project's own policies in policy")
    assert judged("-p", "policy") == (own, "")
    shipped, silent = judged("--policies", "shipped")
    assert not set(own) & set(shipped)
    assert silent == ""
