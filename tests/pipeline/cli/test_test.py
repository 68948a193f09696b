"""`cmf test`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.pipeline.conftest import write_rules
from typer.testing import CliRunner, Result

from pipeline.cli.app import app
from pipeline.cli.test import judge
from pipeline.policy import policy_set

GOOD = {"name": "good", "conversation": [{"role": "user", "text": "hello"}], "expect": "allow"}
BAD = {**GOOD, "name": "bad\u202e", "expect": "deny"}
LATER = {**GOOD, "name": "later", "skip": "not <yet>"}
NO = 'deny contains {"code": "no", "reason": "x"} if input.content == "no"'
TESTS = """\
test_no if count(no.deny) == 1 with input as {"content": "no"}

test_wrong if count(no.deny) == 2 with input as {"content": "no"}

todo_test_later if false
"""


def project(folder: Path, *cases: Any) -> Path:
    (folder / "cases").mkdir(parents=True)
    (folder / "cases" / "a.yaml").write_text(yaml.safe_dump({"cases": list(cases)}), encoding="utf-8")
    return folder


library: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _library(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The shipped policies without their hundreds of tests."""
    place = tmp_path_factory.mktemp("library") / "policies"
    shutil.copytree(policy_set.shipped(), place, ignore=shutil.ignore_patterns("*_test.rego"))
    library.append(place)


def cmf_test(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["test", str(folder), "--policies", str(library[-1]), *options])


def rego(folder: Path, tests: str) -> Path:
    """A project with one rule and its tests, which begin on line 5."""
    home = write_rules(folder / "policy", {"no": NO}, kinds="text") / "cmf" / "rules" / "test" / "no"
    head = "package cmf.rules.test.no_test\n\nimport data.cmf.rules.test.no\n\n"
    (home / "no_test.rego").write_text(head + tests, encoding="utf-8")
    return folder


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
    assert "no name contains 'gone'" in cmf_test(folder, "--run", "gone").stderr


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


# -- Rego tests --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-56")
def test_rego_tests_are_run_and_one_that_fails_is_named_with_its_place(tmp_path: Path) -> None:
    folder = rego(tmp_path, TESTS)

    result = CliRunner().invoke(app, ["test", str(folder)])
    good = CliRunner().invoke(app, ["test", str(folder), "--run", "test_no"])

    place = folder / "policy" / "cmf" / "rules" / "test" / "no" / "no_test.rego"
    assert result.exit_code == 1
    assert f"FAIL cmf.rules.test.no_test.test_wrong  {place}:7\n    the test is undefined or false\n" in result.stdout
    assert f"skip cmf.rules.test.no_test.todo_test_later  {place}:9\n" in result.stdout
    assert "Rego tests: 1 passed, 1 failed, 1 skipped\n" in result.stdout
    assert (good.exit_code, "Rego tests: 1 passed, 0 failed" in good.stdout) == (0, True)


@pytest.mark.spec("CLI-56")
def test_rego_tests_are_in_every_report(tmp_path: Path) -> None:
    folder = rego(project(tmp_path, GOOD), TESTS)

    def written(form: str) -> str:
        return CliRunner().invoke(app, ["test", str(folder), "--format", form]).stdout

    document = json.loads(written("json"))
    report = ElementTree.fromstring(written("junit"))
    (annotation,) = written("github").splitlines()

    assert [test["status"] for test in document["tests"]] == ["passed", "failed", "skipped"]
    assert document["tests"][1]["line"] == 7
    assert (report.attrib["tests"], report.attrib["failures"]) == ("4", "1")
    assert annotation.endswith(
        "no_test.rego,line=7,title=policy.test-failed::cmf.rules.test.no_test.test_wrong: "
        "the test is undefined or false"
    )


@pytest.mark.spec("CLI-56")
def test_the_tests_of_the_shipped_library_are_not_those_of_a_project_that_only_sets_it(tmp_path: Path) -> None:
    folder = project(tmp_path, GOOD)
    (folder / "policy" / "cmf" / "defaults").mkdir(parents=True)
    (folder / "policy" / "cmf" / "defaults" / "data.json").write_text("{}", encoding="utf-8")

    result = CliRunner().invoke(app, ["test", str(folder)])

    assert (result.exit_code, "Rego tests" in result.stdout) == (0, False)


# -- watching ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-56")
@pytest.mark.slow
def test_watching_goes_on_with_every_change_until_it_is_interrupted(tmp_path: Path) -> None:
    folder = rego(project(tmp_path / "p", GOOD), TESTS)
    rule = folder / "policy" / "cmf" / "rules" / "test" / "no" / "no.rego"
    good, log = rule.read_text(encoding="utf-8"), tmp_path / "log"
    command = [str(Path(sys.executable).with_name("cmf")), "test", str(folder), "--watch"]
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def after(words: str, times: int) -> str:
        deadline = time.monotonic() + 30
        while (text := log.read_text(encoding="utf-8")).count(words) < times and time.monotonic() < deadline:
            assert running.poll() is None, text
            time.sleep(0.05)
        return text

    try:
        assert "1 passed, 0 failed" in after("waiting for changes", 1)
        time.sleep(0.5)  # until the watch stands
        rule.write_text(good + "\ndeny contains", encoding="utf-8")
        assert "no.rego:" in after("waiting for changes", 2).partition("changed: ")[2]
        (folder / "cases" / "notes.txt").write_text("nobody waits for this", encoding="utf-8")
        rule.write_text(good.replace('"no"}', '"nein"}'), encoding="utf-8")
        shown = after("waiting for changes", 3)
    finally:
        running.send_signal(signal.SIGINT)
        code = running.wait(timeout=30)

    assert "notes.txt" not in shown
    assert shown.count("1 passed, 0 failed") == 2
    assert code == 130
    assert "Traceback" not in log.read_text(encoding="utf-8")


@pytest.mark.spec("CLI-56")
def test_a_project_is_judged_again_in_less_than_300_milliseconds(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["init", str(tmp_path / "p")])
    place = tmp_path / "p"
    judge(place, [place / "policy"])
    taken = []

    for _ in range(5):
        begin = time.process_time()
        judge(place, [place / "policy"])
        taken.append(time.process_time() - begin)

    assert min(taken) < 0.3
