"""`cmf test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner, Result

from pipeline import policy_set
from pipeline.cli import app

SHIPPED = str(policy_set.shipped())
GOOD = {"name": "good", "conversation": [{"role": "user", "text": "hello"}], "expect": "allow"}
BAD = {**GOOD, "name": "bad\u202e", "expect": "deny"}
LATER = {**GOOD, "name": "later", "skip": "not <yet>"}


def project(folder: Path, *cases: Any) -> Path:
    (folder / "cases").mkdir(parents=True)
    (folder / "cases" / "a.yaml").write_text(yaml.safe_dump({"cases": list(cases)}), encoding="utf-8")
    return folder


def cmf_test(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["test", str(folder), "--policies", SHIPPED, *options])


@pytest.mark.spec("CLI-9")
def test_no_cases_and_bad_cases_and_bad_policies_are_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "a.rego").write_text("package a\nx :=", encoding="utf-8")
    nothing = cmf_test(tmp_path)
    broken = cmf_test(project(tmp_path / "broken", {"name": "a"}))
    policies = CliRunner().invoke(app, ["test", str(tmp_path)])

    assert (nothing.exit_code, broken.exit_code, policies.exit_code) == (2, 4, 3)
    assert all(result.stderr.count("\n") == 1 and not result.stdout for result in (nothing, broken, policies))


@pytest.mark.spec("CLI-9")
def test_a_failed_case_says_what_came_out_and_what_hit(tmp_path: Path) -> None:
    folder = project(tmp_path, GOOD, BAD, LATER)

    result = cmf_test(folder)

    assert result.exit_code == 1
    assert "FAIL bad\\u{202e}" in result.stdout
    assert "    verdict: expected deny, got allow\n    no rule hit" in result.stdout
    assert "1 passed, 1 failed, 1 skipped; 0 of" in result.stdout
    assert cmf_test(folder, "--run", "good").exit_code == 0


@pytest.mark.spec("CLI-9")
def test_rules_that_hit_in_no_case_are_named_and_counted(tmp_path: Path) -> None:
    card = {**GOOD, "conversation": [{"role": "user", "text": "4111 1111 1111 1111"}]}
    folder = project(tmp_path, card)

    assert "never hit" not in cmf_test(folder).stdout
    assert "never hit: data/secrets" in cmf_test(folder, "--coverage").stdout
    short = cmf_test(folder, "--threshold", "99")
    assert (short.exit_code, "never hit: data/secrets" in short.stdout) == (1, True)
    assert cmf_test(folder, "--threshold", "1").exit_code == 0


@pytest.mark.spec("CLI-9")
def test_results_can_be_read_by_machines(tmp_path: Path) -> None:
    folder = project(tmp_path, GOOD, BAD, LATER)

    document = json.loads(cmf_test(folder, "--format", "json").stdout)
    report = ElementTree.fromstring(cmf_test(folder, "--format", "junit").stdout)
    annotations = cmf_test(folder, "--format", "github").stdout.splitlines()

    assert [case["status"] for case in document["cases"]] == ["passed", "failed", "skipped"]
    assert "data/secrets" in document["coverage"]["never_hit"]
    assert [child.tag for case in report.iter("testcase") for child in case] == ["failure", "skipped"]
    assert report.attrib["failures"] == "1"
    (annotation,) = annotations
    assert annotation.startswith("::error file=")
    assert annotation.endswith("verdict: expected deny, got allow")
