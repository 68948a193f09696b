"""Samples, and cases that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.pipeline.authoring.playground.states import PATH, RULE, state
from typer.testing import CliRunner

from cmf.json.value import replace
from pipeline.authoring.case import read_cases
from pipeline.authoring.playground.evaluation import Evaluator
from pipeline.authoring.playground.project import MAX_NAME, Project, samples, save
from pipeline.authoring.playground.state import State
from pipeline.cli.app import app
from pipeline.decisions.errors import ConfigError

pytestmark = pytest.mark.native


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of one rule, without cases."""
    (tmp_path / "policy" / PATH).parent.mkdir(parents=True)
    (tmp_path / "policy" / PATH).write_text(RULE)
    (tmp_path / "policy" / PATH.replace(".rego", "_test.rego")).write_text("package x_test\n")
    return Project.at(tmp_path)


@pytest.mark.spec("PLAY-7")
@pytest.mark.parametrize("name", ["", "  ", "x" * (MAX_NAME + 1), "a\u202eb", "a\nb"])
def test_what_is_no_name_is_refused_and_nothing_is_written(project: Project, name: str) -> None:
    with pytest.raises(ConfigError):
        save(project, name, state(), Evaluator())

    assert not (project.directory / "cases").exists()


@pytest.mark.spec("PLAY-7")
def test_what_does_not_run_is_not_saved(project: Project) -> None:
    with pytest.raises(ConfigError):
        save(project, "case", state(rule="package"), Evaluator())

    assert not (project.directory / "cases").exists()


@pytest.mark.spec("PLAY-7")
def test_a_saved_case_passes_and_lies_below_the_project_whatever_it_is_called(project: Project) -> None:
    evaluator = Evaluator()
    wire = '{"model": "gpt-5", "messages": [{"role": "user", "content": "xyzzy"}]}'

    for held in (state(context="subject: {id: ann, roles: [editor]}"), state("hi"), state("\u202e é\u200b xyzzy")):
        assert save(project, "../../Ünder é/..", held, evaluator)["problems"] == []
    saved = save(project, "wire", replace(state(), format="openai_chat", conversation=wire), evaluator)

    assert saved == {"file": "cases/wire.yaml", "problems": []}
    written = sorted(path.name for path in (project.directory / "cases").iterdir())
    assert written == ["nder-2.yaml", "nder-3.yaml", "nder.yaml", "wire.yaml"]
    tested = CliRunner().invoke(app, ["test", str(project.directory)])
    assert (tested.exit_code, "4 passed" in tested.stdout) == (0, True), tested.stdout


@pytest.mark.spec("PLAY-7")
def test_no_case_is_written_over_and_invisible_characters_are_escapes_in_it(project: Project) -> None:
    first = save(project, "same", state("a \u202e b"), Evaluator())["file"]
    text = (project.directory / first).read_text(encoding="utf-8")

    second = save(project, "same", state("other"), Evaluator())["file"]

    assert (first, second) == ("cases/same.yaml", "cases/same-2.yaml")
    assert (project.directory / first).read_text(encoding="utf-8") == text
    assert "\u202e" not in text
    assert yaml.safe_load(text)["cases"][0]["conversation"][0]["text"] == "a \u202e b"


@pytest.mark.spec("PLAY-7")
def test_a_case_under_other_policies_than_those_on_disk_says_that_it_will_fail(project: Project) -> None:
    edited = state("plugh", rule=RULE.replace('"xyzzy"', '"plugh"'))

    problems = save(project, "other", edited, Evaluator())["problems"]

    assert problems[0] == "verdict: expected deny, got allow"


@pytest.mark.spec("PLAY-7")
def test_a_directory_that_cannot_be_written_is_an_error(project: Project) -> None:
    (project.directory / "cases").write_text("a file is in the way")

    with pytest.raises(ConfigError, match="cannot be written"):
        save(project, "case", state(), Evaluator())


@pytest.mark.spec("PLAY-6")
def test_a_project_offers_its_rules_and_the_cases_that_the_page_can_hold(project: Project) -> None:
    cases = project.directory / "cases"
    cases.mkdir()
    (cases / "a.yaml").write_text(
        "cases:\n"
        "  - {name: short, conversation: [{role: user, text: hi}], reply: {text: ho}, session: {}, expect: allow}\n"
        "  - {name: wire, conversation: {from: openai_chat, file: wire.json}, expect: allow}\n"
        "  - {name: profiled, profiles: p.yaml, conversation: [{role: user, text: hi}], expect: allow}\n"
    )
    (cases / "wire.json").write_text('{"model": "m", "messages": [{"role": "user", "content": "hi"}]}')
    (cases / "broken.yaml").write_text("cases: 3")

    offered = [sample for sample in samples(project) if sample["group"] == "Project"]

    assert [sample["name"] for sample in offered][1:] == ["short", "wire"]
    for sample in offered:
        held = State.model_validate(sample["state"])
        assert [file.path for file in held.files] == [PATH]
        assert Evaluator().evaluate(held)["verdict"] == "allow"


@pytest.mark.spec("PLAY-6")
def test_every_sample_is_judged_and_templates_as_their_cases_expect() -> None:
    evaluator = Evaluator()
    offered = samples(None)

    answers = {sample["name"]: evaluator.evaluate(State.model_validate(sample["state"])) for sample in offered}

    assert {sample["group"] for sample in offered} >= {f"Template {name}" for name in ("tools", "pii", "mcp", "empty")}
    assert {name: answer["problems"] for name, answer in answers.items() if answer["problems"]} == {}
    templates = Path(__file__).parents[3] / "src" / "pipeline" / "templates"
    for path in templates.rglob("cases/*.yaml"):
        if "common" not in path.parts and path.stem != "tools":  # whose wire file is copied beside it
            for case in read_cases(path):
                wanted = case.expected.verdict or answers[case.name]["verdict"]
                assert (case.name, answers[case.name]["verdict"]) == (case.name, wanted)
    assert {answer["verdict"] for answer in answers.values()} >= {"allow", "deny", "require_approval"}


@pytest.mark.spec("CLI-11")
def test_a_directory_without_policies_is_no_project(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError):
            Project.at(directory).files()
    (tmp_path / "data.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError):
        Project.at(tmp_path).files()
