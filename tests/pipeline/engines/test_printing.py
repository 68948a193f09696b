"""What policies print is shown to their authors, and is in nothing that serves them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from typer.testing import CliRunner

from pipeline.cli.app import app
from pipeline.engines.rego_tests import Printed, Printing, prints
from pipeline.policy import policy_set
from pipeline.policy.entrypoints import is_generated

RULE = 'deny contains {"code": "no", "reason": "x"} if {\n\tprint("saw", input.content)\n\tinput.content == "no"\n}'
ASKED = ("data.cmf.main.text.decision", {"kind": "text", "content": "canary-7391"})
HELLO = '{"role": "user", "content": [{"content_type": "text", "text": "canary-7391"}]}'
TEST = """\
package cmf.rules.test.no_test

import data.cmf.rules.test.no

test_no if count(no.deny) == 1 with input as {"content": "yes"}

test_yes if count(no.deny) == 1 with input as {"content": "no"}
"""
CASE = 'cases: [{name: one, conversation: [{role: user, text: "case-text"}], expect: deny}]'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = write_rules(tmp_path / "policy", {"no": RULE}, kinds="text")
    (place / "cmf/rules/test/no/no_test.rego").write_text(TEST, encoding="utf-8")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "a.yaml").write_text(CASE, encoding="utf-8")
    return tmp_path


@pytest.mark.spec("POL-62")
def test_nothing_that_serves_a_set_has_it(project: Path) -> None:
    loaded = policy_set.load(project / "policy")

    served = [module.text for module in loaded.modules] + [text.decode() for text in loaded.bundle().values()]
    assert not any("print" in text for text in served)
    assert any("print" in module.text for module in loaded.sources.modules)
    assert policy_set.load(loaded.bundle()).revision == loaded.revision


@pytest.mark.spec("POL-62")
def test_it_says_where_and_what_and_each_thing_once(project: Path) -> None:
    loaded = policy_set.load(project / "policy")
    line = next(at for at, text in enumerate(loaded.sources.modules[0].text.split("\n"), 1) if "print" in text)

    assert prints(loaded)
    assert Printing(loaded).lines([ASKED, ASKED]) == [Printed("cmf/rules/test/no/no.rego", line, "saw canary-7391")]
    assert Printing(loaded).lines([]) == []


def test_a_set_that_prints_nothing_says_so(tmp_path: Path) -> None:
    quiet = policy_set.load(write_rules(tmp_path, {"no": RULE.replace("print", "# print")}, kinds="text"))

    assert not prints(quiet)
    assert all(is_generated(module) for module in quiet.modules[len(quiet.sources.modules) :])


@pytest.mark.spec("POL-62")
def test_eval_says_it_on_stderr(project: Path) -> None:
    asked = ["eval", "-", "--from", "canonical", "--format", "json", "--policies", str(project / "policy")]

    result = CliRunner().invoke(app, asked, input=HELLO)

    assert result.exit_code == 0
    (line,) = result.stderr.strip().splitlines()
    assert line.endswith(": saw canary-7391")
    assert line.partition(":")[0].endswith("cmf/rules/test/no/no.rego")
    assert "saw" not in result.stdout


@pytest.mark.spec("POL-62")
def test_failed_cases_and_tests_say_it(project: Path) -> None:
    result = CliRunner().invoke(app, ["test", str(project)])

    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines if "no.rego:" in line and "saw" in line] == [
        "saw case-text",
        "saw yes",
    ]
