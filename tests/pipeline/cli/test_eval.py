"""`cmf eval`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.pipeline.conftest import write_rules
from typer.testing import CliRunner, Result

from pipeline.cli.app import app
from pipeline.cli.schema import schema_of

Run = Callable[..., Result]
HELLO = {"role": "user", "content": [{"content_type": "text", "text": "hello"}]}
RULES = {
    "deny": 'deny contains {"code": "test.no", "reason": "You may not."} if contains(input.content, "no")',
    "ask": 'require_approval contains {"code": "test.ask", "reason": "Ask first."} if contains(input.content, "ask")',
    "mask": 'redact contains {"code": "m", "reason": "Masked.", "spans": [[0, 6]]} if contains(input.content, "secre")',
    "admin": 'deny contains {"code": "a", "reason": "x"} if "admin" in input.extensions.security.subject.roles',
}


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "policies", RULES, kinds="text")


@pytest.fixture
def run(policies: Path) -> Run:
    def invoke(body: Any, *options: str, directory: Path | None = policies) -> Result:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        given = [] if directory is None else ["--policies", str(directory)]
        return CliRunner().invoke(app, ["eval", "-", "--from", "canonical", *given, *options], input=text)

    return invoke


def says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"content_type": "text", "text": text}]}


def refuses(result: Result, code: int, *words: str) -> None:
    """One line on standard error, nothing on standard output, and no traceback."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", ("json.syntax", "line 1 column 2")),
        ("", ("json.syntax",)),
        ('{"role":"user","role":"tool"}', ("json.duplicate-key", "$.role")),
        ('{"a":[{"b":"\\ud800"}]}', ("json.lone-surrogate", "$.a[0].b")),
        (b'{"a":"\xed\xa0\x80"}', ("json.not-utf8",)),
        ("[" * 100_000, ("json.too-deep",)),
        ('{"a":NaN}', ("json.not-finite",)),
        ('{"a":1e999}', ("json.not-finite",)),
        ("[]", ("shape.invalid", "role")),
        ("7", ("shape.invalid",)),
        ('{"role":"bob","content":[]}', ("shape.unknown-role", "$.role")),
        ('{"role":"user","content":5}', ("$.content",)),
        ('{"role":"user","content":[{"content_type":"text","text":5}]}', ("$.content[0].text",)),
        ('{"role":"user","content":[],"schema_version":99}', ("99", "schema.too-new")),
        ('{"role":"user","content":[],"colour":1}', ("$.colour",)),
    ],
)
def test_bad_input_is_one_clear_line(run: Run, body: str | bytes, words: tuple[str, ...]) -> None:
    refuses(run(body), 4, *words)


@pytest.mark.spec("CLI-2")
def test_a_file_that_is_not_there_is_one_clear_line() -> None:
    refuses(
        CliRunner().invoke(app, ["eval", "/nowhere/x.json", "--from", "canonical"]), 4, "/nowhere/x.json", "No such"
    )


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("rego", "words"),
    [
        ("deny contains {", ("deny.rego:",)),
        ('deny contains {"code": "x", "reason": "y"} if http.send({}).x', ("policy.banned-builtin", "deny.rego:")),
        ('deny contains {"code": "x", "reason": "y"} if nosuch(input.x)', ("deny.rego:",)),
    ],
)
def test_a_policy_that_does_not_compile_is_one_clear_line(
    run: Run, tmp_path: Path, rego: str, words: tuple[str, ...]
) -> None:
    refuses(run(HELLO, directory=write_rules(tmp_path / "bad", {"deny": rego})), 3, *words)


@pytest.mark.spec("CLI-2")
def test_empty_policies_and_a_missing_entrypoint_are_one_clear_line(run: Run, tmp_path: Path, policies: Path) -> None:
    (tmp_path / "empty").mkdir()

    refuses(run(HELLO, directory=tmp_path / "empty"), 3, "policy.empty")
    refuses(run(HELLO, directory=tmp_path / "nowhere"), 3, "policy.no-directory")
    refuses(run(HELLO, "--entrypoint", "data.my.allow"), 3, "policy.no-entrypoint")


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.json", "{", ("c.json", "json.syntax")),
        ("c.yaml", "a: [", ("c.yaml", "yaml.syntax")),
        ("c.yaml", "subject: {id: ann}\nsubject: {id: bob}", ("line 2", "duplicate key")),
        ("c.yaml", "subject: {id: 2026-13-01}", ("line 1", "not a valid timestamp")),
        ("c.yaml", "subject: {id: \ud800}", ("c.yaml", "UTF-8")),
        ("c.json", "[]", ("c.json", "not an object")),
        ("c.json", '{"subjct": {}}', ("c.json", "$.subjct", "write `subject: {id: ann")),
        ("c.yaml", "subject: {roles: admin}", ("c.yaml", "$.subject.roles")),
    ],
)
def test_a_bad_context_is_one_clear_line(
    run: Run, tmp_path: Path, name: str, text: str, words: tuple[str, ...]
) -> None:
    (tmp_path / name).write_bytes(text.encode(errors="surrogatepass"))

    refuses(run(HELLO, "--context", str(tmp_path / name)), 4, *words)


@pytest.mark.spec("CLI-1")
def test_usage_is_two(run: Run) -> None:
    assert run(HELLO, "--format", "smoke").exit_code == 2
    assert run(HELLO, "--no-such-option").exit_code == 2
    refuses(run(HELLO, "--engine", "opa"), 2, "--opa-url")


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize(("text", "code"), [("hello", 0), ("no", 1), ("ask", 6), ("secret plan", 0)])
def test_the_exit_code_says_what_was_done(run: Run, text: str, code: int) -> None:
    assert run(says(text)).exit_code == code


@pytest.mark.spec("CLI-1")
def test_an_evaluation_that_fails_is_five(run: Run, tmp_path: Path) -> None:
    broken = {"deny": 'deny contains {"code": "x", "reason": "y"} if input.content + 1 == 2'}

    result = run(HELLO, directory=write_rules(tmp_path / "broken", broken, kinds="text"))

    assert result.exit_code == 5
    assert "[engine.builtin-error]: arithmetic in data.cmf.rules.test.deny.deny" in result.stdout


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize("text", ["hello", "no", "ask", "secret plan"])
def test_json_is_one_valid_document_with_the_wire_form(run: Run, text: str) -> None:
    result = run(says(text), "--format", "json")

    document = json.loads(result.stdout)
    jsonschema.validate(document, schema_of("decision"))
    expected = {"hello": "hello", "secret plan": "[MASKED] plan"}.get(text)
    assert (document["request"] and document["request"]["content"][0]["text"]) == expected


def test_a_rule_that_matches_its_own_edits_is_named(run: Run, tmp_path: Path) -> None:
    again = {"again": 'redact contains {"code": "m", "reason": "x", "spans": [[0, 1]]} if input.kind == "text"'}

    printed = run(HELLO, directory=write_rules(tmp_path / "again", again, kinds="text")).stdout

    assert "matches its own edits, or masks one place at a time: change its pattern" in printed


@pytest.mark.spec("CLI-4")
def test_text_output_is_plain_in_a_pipe_and_shows_each_view(run: Run) -> None:
    output = run(says("secret plan")).stdout

    assert "\x1b" not in output
    assert "content[0]  text  send  pre" in output
    assert "redact  test/mask  " in output
    assert "mask.rego:12  Masked. [m]" in output
    assert "coverage  1 of 1 views evaluated" in output
    assert "goes out  canonical" in output
    assert "[MASKED] plan" in output
    assert "nothing goes out" in run(says("no")).stdout


@pytest.mark.spec("CLI-4")
def test_invisible_characters_of_the_traffic_are_escaped(run: Run) -> None:
    output = run({"role": "assistant", "content": [{"content_type": "tool_call", "name": "a\u202eb\x1b[31m"}]}).stdout

    assert "\u202e" not in output
    assert "\x1b" not in output
    assert "\\u202e" in output


@pytest.mark.spec("CLI-6")
def test_without_a_context_the_subject_is_anonymous(run: Run, tmp_path: Path) -> None:
    claims = {**HELLO, "extensions": {"security": {"subject": {"id": "eve", "roles": ["admin"]}}}}
    (tmp_path / "c.yaml").write_text("subject: {id: ann, roles: [admin]}\n", encoding="utf-8")

    assert run(claims).exit_code == 0
    assert run(HELLO, "--context", str(tmp_path / "c.yaml")).exit_code == 1


def test_requests_and_responses_are_distinguished(run: Run) -> None:
    assert run({"messages": [says("no")]}).exit_code == 1
    assert run({"choices": [{"message": says("no")}]}).exit_code == 1
    assert run({"error": {"message": "no"}, "choices": []}).exit_code == 0


def test_existing_rego_with_its_own_entrypoint_works_unchanged(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    rego = 'package my.app\n\nimport rego.v1\n\ndefault allow := false\n\nallow if input.content == "hello"\n'
    (tmp_path / "own" / "app.rego").write_text(rego, encoding="utf-8")

    assert run(HELLO, "--entrypoint", "data.my.app.allow", directory=tmp_path / "own").exit_code == 0
    assert run(says("bye"), "--entrypoint", "data.my.app.allow", directory=tmp_path / "own").exit_code == 1


def test_the_shipped_policies_are_used_by_default(run: Run) -> None:
    result = run(says("key AKIAIOSFODNN7EXAMPLE"), "--format", "json", directory=None)

    assert json.loads(result.stdout)["request"]["content"][0]["text"] == "key [MASKED]"


@pytest.mark.spec("CLI-4")
def test_the_command_itself_runs_honours_no_color_and_survives_a_closed_pipe(policies: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("cmf")),
        "eval",
        "-",
        "--from",
        "canonical",
        "--policies",
        str(policies),
    ]
    done = subprocess.run(
        command,
        input=json.dumps(HELLO),
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as closed:
        assert closed.stdin is not None
        assert closed.stdout is not None
        assert closed.stderr is not None
        closed.stdout.close()
        closed.stdin.write(json.dumps(HELLO).encode())
        closed.stdin.close()
        assert b"Traceback" not in closed.stderr.read()


@pytest.mark.spec("PIPE-13")
def test_the_json_says_where_the_values_of_a_call_came_from(run: Run) -> None:
    part = {"content_type": "tool_call", "name": "send", "arguments": {"to": "ann@x.com"}}
    call = {"role": "assistant", "content": [part]}

    result = run({"messages": [says("write to ann@x.com"), call]}, "--format", "json")

    decision = json.loads(result.stdout)
    jsonschema.validate(decision, schema_of("decision"))
    (origins,) = [view["origins"] for view in decision["views"] if "origins" in view]
    assert [source["kind"] for entry in origins if entry["path"] == "/to" for source in entry["sources"]] == ["user"]
