"""`cmf eval --trace`: what it tells, how much of it, and what it keeps to itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from typer.testing import CliRunner, Result

from pipeline.cli.app import app

Run = Callable[..., Result]
RULES = {
    "deny": """deny contains {"code": "test.no", "reason": "You may not."} if {
	input.role == "user"
	print("looked at", input.kind)
	contains(input.content, "forbidden")
}

warn contains {"code": "test.long", "reason": "Long."} if count(input.content) > 9000""",
    "mask": 'redact contains {"code": "m", "reason": "x", "spans": [[3, 9]]} if contains(input.content, "secret")',
    "late": 'warn contains {"code": "w", "reason": "x"} if upper(input.content) == "SECRET"',
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    policies = write_rules(tmp_path / "policies", RULES, kinds="text")

    def judged(text: str, *options: str, given: Path = policies) -> Result:
        body: Any = {"role": "user", "content": [{"content_type": "text", "text": text}]}
        command = ["eval", "-", "--from", "canonical", "--policies", str(given), *options]
        return CliRunner().invoke(app, command, input=json.dumps(body))

    return judged


def told(result: Result) -> list[str]:
    """The lines, without the place of each rule."""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("cmf: ")]
    return [" ".join(word for word in line.split() if ".rego:" not in word) for line in lines]


@pytest.mark.spec("CLI-57")
def test_fails_tells_of_each_rule_that_did_not_hit_where_it_stopped(run: Run) -> None:
    plain, traced = run("hello"), run("hello", "--trace", "fails")

    assert told(traced) == [
        "trace content[0] text allow",
        "near test/deny deny 2 of 4 hold",
        'line 15: contains(input.content, "forbidden")',
        'input.content = "hello"',
        "no test/late warn 0 of 2 hold",
        'line 12: upper(input.content) == "SECRET"',
        'upper(input.content) = "<5 characters>"',
        "no test/mask redact 0 of 2 hold",
        'line 12: contains(input.content, "secret")',
        'input.content = "hello"',
    ]
    assert traced.exit_code == plain.exit_code == 0
    assert _without_ids(traced) == _without_ids(plain)


def _without_ids(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if "dec_" not in line]


@pytest.mark.spec("CLI-57")
def test_notes_are_what_policies_print_and_full_is_everything(run: Run) -> None:
    notes, full = told(run("hello", "--trace", "notes")), told(run("forbidden", "--trace", "full"))

    assert notes == ["trace content[0] text allow", "note looked at text"]
    assert full[:3] == ["trace content[0] text deny", "note looked at text", "hit test/deny deny"]
    assert [line.partition(" hold")[0] for line in full if line.startswith(("no", "near"))][1:] == [
        *("no test/deny warn 0 of 2", "no test/late warn 0 of 2", "no test/mask redact 0 of 2")
    ]


@pytest.mark.spec("CLI-57")
def test_traces_show_only_the_length_of_content_that_does_not_go_out(run: Run) -> None:
    refused, masked = run("forbidden word 4711", "--trace", "full"), run("my secret 4711", "--trace", "full")
    open_ = run("see 4711", "--trace", "full")

    assert "4711" not in refused.output
    assert 'input.content = "<19 characters>"' in told(refused)
    assert "secret 4711" not in masked.output
    assert 'input.content = "<14 characters>"' in told(masked)
    assert 'input.content = "see 4711"' in told(open_)
    assert "count(input.content) = 8" in told(open_)


@pytest.mark.spec("CLI-57")
def test_numbers_and_keys_of_what_is_refused_are_content_too(tmp_path: Path) -> None:
    rules = {
        "pay": 'deny contains {"code": "p", "reason": "x"} if input.arguments.amount > 5000',
        "low": 'deny contains {"code": "l", "reason": "x"} if input.arguments.amount < 7',
        "who": 'deny contains {"code": "w", "reason": "x"} if input.arguments == input.extensions.security.subject.id',
    }
    call = {
        "content_type": "tool_call",
        "tool_call_id": "c",
        "name": "pay",
        "arguments": {"amount": 12345, "acct": "y"},
    }
    file = tmp_path / "call.json"
    file.write_text(json.dumps({"role": "assistant", "content": [call]}), encoding="utf-8")
    policies = write_rules(tmp_path / "policies", rules, kinds="tool_call")

    options = ["--trace", "fails", "--subject", "ann", "--policies", str(policies)]
    result = CliRunner().invoke(app, ["eval", str(file), "--from", "canonical", *options])

    lines = told(result)
    assert result.exit_code == 1
    assert "input.arguments.amount = <number>" in [line.replace('"', "") for line in lines]
    assert 'input.arguments = {"<4 characters>": "<1 character>", "<6 characters>": "<number>"}' in lines
    assert 'input.extensions.security.subject.id = "ann"' in lines


@pytest.mark.spec("CLI-57")
def test_it_ends_after_so_many_lines_and_a_file_has_all(run: Run, tmp_path: Path) -> None:
    cut = run("hello", "--trace", "fails", "--trace-lines", "2")
    file = tmp_path / "trace.txt"
    filed = run("hello", "--trace", "fails", "--trace-lines", "2", "--trace-out", str(file), "--format", "json")

    assert told(cut)[2:] == ["… cut after 2 lines; see more with --trace-lines, all with --trace-out"]
    assert len(file.read_text(encoding="utf-8").splitlines()) == 10
    assert f"cmf: the trace is in {file}, 10 lines" in filed.stderr
    assert json.loads(filed.stdout)["action"] == "forward"


@pytest.mark.spec("CLI-57")
@pytest.mark.parametrize(
    ("options", "code"), [(["--trace", "full", "--trace-out", "/no/such/file"], 4), (["--trace-out", "f"], 2)]
)
def test_a_trace_that_cannot_be_kept_is_one_line_and_nothing_else(run: Run, options: list[str], code: int) -> None:
    result = run("hello", *options)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)


@pytest.mark.spec("CLI-57")
def test_traces_of_policies_without_rules_show_the_bodies_of_the_entrypoint(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    text = 'package own\n\nimport rego.v1\n\nallow if input.role == "user"\n\nallow if input.role == "system"\n'
    (tmp_path / "own" / "own.rego").write_text(text, encoding="utf-8")

    fails = told(run("hi", "--trace", "fails", "--entrypoint", "data.own.allow", given=tmp_path / "own"))
    full = told(run("hi", "--trace", "full", "--entrypoint", "data.own.allow", given=tmp_path / "own"))

    assert fails[1:] == ["no own.allow 0 of 1 hold", 'line 7: input.role == "system"', 'input.role = "user"']
    assert full[1] == "true own.allow"
    silent = run("hi", "--trace", "notes", "--entrypoint", "data.own.allow", given=tmp_path / "own")
    assert silent.stderr == "cmf: the trace is empty\n"
