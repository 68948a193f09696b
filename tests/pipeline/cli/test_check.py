"""`cmf check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli.app import app
from pipeline.cli.init import Template

RUN = CliRunner()
RULE = """\
# METADATA
# title: A rule
# custom: {code: test.rule, severity: high, kinds: [text], mode: MODE}
package cmf.rules.test.rule

deny contains {"code": "test.rule", "reason": "No."} if CONDITION
"""
PLACE = Path("cmf") / "rules" / "test" / "rule" / "rule.rego"


def project(folder: Path, condition: str = "input.content", mode: str = "enforce") -> Path:
    path = folder / "policy" / PLACE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RULE.replace("CONDITION", condition).replace("MODE", mode), encoding="utf-8")
    return folder


def check(*arguments: object) -> Result:
    return RUN.invoke(app, ["check", *map(str, arguments)])


@pytest.mark.spec("CLI-32")
def test_a_directory_that_is_not_there_and_programs_that_are_not_there_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    for arguments in ((tmp_path / "none",), (folder, "--with-opa"), (folder, "--with-regal")):
        result = check(*arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


@pytest.mark.spec("CLI-32")
def test_a_program_that_gives_no_report_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    program = tmp_path / "regal"
    program.write_text("#!/bin/sh\necho no\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    result = check(folder, "--with-regal")

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (5, "", 1)


@pytest.mark.spec("CLI-32")
def test_its_exit_code_says_what_it_found(tmp_path: Path) -> None:
    assert check(project(tmp_path)).exit_code == 0
    assert check(project(tmp_path, "input.contant")).exit_code == 1
    assert check(project(tmp_path, "input.contant"), "--ignore", "policy.unknown-field").exit_code == 0
    assert check(project(tmp_path, "input.content", "off")).exit_code == 0
    assert check(project(tmp_path, "input.content", "off"), "--fail-on-warn").exit_code == 1
    assert check(project(tmp_path, "http.send({})")).exit_code == 3
    assert check(project(tmp_path, ":=")).exit_code == 3


@pytest.mark.spec("CLI-32")
def test_a_project_on_top_of_the_shipped_policies_is_checked_with_them(tmp_path: Path) -> None:
    own = project(tmp_path) / "policy"
    (own / "cmf/modes").mkdir()
    (own / "cmf/modes/data.yaml").write_text("data/pii: observe", encoding="utf-8")
    (own / "cmf/defaults").mkdir()
    (own / "cmf/defaults/data.json").write_text('{"data": {"pii": {"max_masked": 3}}}', encoding="utf-8")

    alone = check(tmp_path)
    missing = check(tmp_path, "-p", "shipped", "-p", tmp_path / "none")
    both = check(tmp_path, "-p", "shipped", "-p", own)

    assert (alone.exit_code, alone.stdout.count("add `-p shipped`")) == (1, 2)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert (both.exit_code, both.stdout.splitlines()[-1]) == (0, "0 errors, 0 warnings")
    project(tmp_path, "input.contant")
    assert check(tmp_path, "-p", "shipped", "-p", own).exit_code == 1


@pytest.mark.spec("CLI-32")
def test_a_finding_names_the_file_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, "input.contant")
    monkeypatch.chdir(tmp_path)

    result = check()

    assert (result.stderr, result.stdout.splitlines()) == (
        "",
        [
            f"policy/{PLACE}:6:57: no view has input.contant; did you mean content? [policy.unknown-field]",
            "1 error, 0 warnings",
        ],
    )


@pytest.mark.spec("CLI-32")
def test_findings_can_be_read_by_machines(tmp_path: Path) -> None:
    folder = project(tmp_path, "input.contant", "off")
    file = str(folder / "policy" / PLACE)

    document = json.loads(check(folder, "--format", "json").stdout)
    report = ElementTree.fromstring(check(folder, "--format", "junit").stdout)
    annotations = check(folder, "--format", "github").stdout.splitlines()
    sarif = json.loads(check(folder, "--format", "sarif").stdout)

    assert {(one["file"], one["code"], one["severity"]) for one in document["findings"]} == {
        (file, "policy.unknown-field", "error"),
        (file, "check.rule-off", "warning"),
    }
    assert sorted(child.tag for case in report.iter("testcase") for child in case) == ["failure", "skipped"]
    assert {line.partition(" ")[0] for line in annotations} == {"::error", "::warning"}
    assert {one["ruleId"]: one["level"] for one in sarif["runs"][0]["results"]} == {
        "policy.unknown-field": "error",
        "check.rule-off": "warning",
    }
    clean = ElementTree.fromstring(check(project(tmp_path), "--format", "junit").stdout)
    assert (clean.attrib["tests"], clean.attrib["failures"]) == ("1", "0")


@pytest.mark.spec("CLI-32")
@pytest.mark.parametrize("template", get_args(Template))
def test_a_new_project_is_clean(template: str, tmp_path: Path) -> None:
    RUN.invoke(app, ["init", str(tmp_path / "new"), "--template", template])

    result = check(tmp_path / "new", "--fail-on-warn")

    assert (result.exit_code, result.stdout) == (0, "0 errors, 0 warnings\n")


@pytest.mark.spec("CLI-32")
def test_settings_over_the_shipped_rules_are_checked_with_them(tmp_path: Path) -> None:
    settings = {"cmf": {"defaults": {"data": {"egress": {"allowed_host": ["a.example"]}}}}}
    (tmp_path / "data.json").write_text(json.dumps(settings), encoding="utf-8")

    result = check(tmp_path)

    assert result.exit_code == 1
    assert "data.cmf.defaults.data.egress.allowed_host: unknown name; did you mean allowed_hosts?" in result.stdout
    assert "1 error, 0 warnings" in result.stdout  # of the shipped rules: nobody here can mend them


@pytest.mark.spec("CLI-32", "POL-37")
def test_a_field_that_is_absent_at_its_default_is_never_equal_to_it(tmp_path: Path) -> None:
    folder = project(tmp_path, "input.extensions.completion.tokens.input_tokens == 0")

    assert "left out in that case" in check(folder).stdout
    assert check(project(tmp_path, "input.extensions.completion.tokens.input_tokens == 1")).exit_code == 0


@pytest.mark.opa
@pytest.mark.spec("CLI-32")
def test_opa_adds_the_types_of_the_input(tmp_path: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(opa_binary.parent))

    wrong = check(project(tmp_path, "count(input.is_pre) > 1"), "--with-opa")
    right = check(project(tmp_path), "--with-opa")

    assert (wrong.exit_code, right.exit_code) == (1, 0)
    assert "rule.rego:6:57: count: invalid argument(s) [opa.rego-type-error]" in wrong.stdout
    assert check(project(tmp_path, "count(input.is_pre) > 1")).stdout == wrong.stdout
    assert check(project(tmp_path, "count(input.is_pre) > 1"), "--without-opa").exit_code == 0


@pytest.mark.opa
@pytest.mark.spec("CLI-32", "POL-52")
def test_opa_is_given_the_library(tmp_path: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(opa_binary.parent))
    condition = 'data.cmf.lib.uri_matches(input.content, "tool://*/send")'

    right = check(project(tmp_path, condition), "--with-opa")
    wrong = check(project(tmp_path, f"{{ {condition}; count(input.is_pre) > 1 }}"), "--with-opa")

    assert (right.exit_code, wrong.exit_code) == (0, 1), right.output
    assert "rule.rego:6:" in wrong.stdout
    assert str(tmp_path) in wrong.stdout


@pytest.mark.spec("CLI-32")
def test_regal_s_findings_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    violation = {
        "title": "line-length",
        "description": "Line too long",
        "level": "warning",
        "location": {"file": str(folder / "policy" / PLACE), "row": 6, "col": 2},
    }
    program = tmp_path / "regal"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'violations': [violation]})}'\nexit 3\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    result = check(folder, "--with-regal")

    assert result.exit_code == 0
    assert "rule.rego:6:2: warning: Line too long [regal.line-length]" in result.stdout
    violation["level"] = "error"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'violations': [violation]})}'\nexit 3\n", encoding="utf-8")
    codes = [check(folder, *options).exit_code for options in ((), ("--with-regal",), ("--without-regal",))]
    assert codes == [0, 1, 0]
    assert "warning: Line too long" in check(folder).stdout
    assert "Line too long" not in check(folder, "--without-regal").stdout


@pytest.mark.spec("CLI-32")
@pytest.mark.parametrize("own", ["", ".regal/config.yaml", ".regal.yaml"])
def test_regal_is_asked_as_in_a_new_project_where_the_project_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    folder = project(tmp_path)
    program = tmp_path / "regal"
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{{}}'\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    if own:
        (folder / own).parent.mkdir(exist_ok=True)
        (folder / own).touch()

    assert check(folder, "--with-regal", "--without-opa").exit_code == 0

    assert ("--config-file" in (tmp_path / "asked").read_text()) == (not own)
