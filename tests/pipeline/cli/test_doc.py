"""`cmf doc`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli.app import app

RUN = CliRunner()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    RUN.invoke(app, ["init", str(tmp_path / "p"), "--template", "tools"])
    return tmp_path / "p"


def doc(*arguments: object) -> Result:
    return RUN.invoke(app, ["doc", *map(str, arguments)])


@pytest.mark.spec("CLI-30")
def test_what_it_did_not_make_is_never_written_over(project: Path, tmp_path: Path) -> None:
    mine = tmp_path / "docs"
    (mine / "tools").mkdir(parents=True)
    (mine / "tools" / "by_role.md").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")

    for out in (mine, tmp_path / "file" / "below"):
        refused = doc(project, "-o", out)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert [path.name for path in mine.rglob("*.md")] == ["by_role.md"]


@pytest.mark.spec("CLI-30")
def test_a_directory_without_rules_and_cases_that_cannot_be_read_are_one_line(project: Path, tmp_path: Path) -> None:
    (project / "cases" / "z.yaml").write_text("cases: 1", encoding="utf-8")

    assert [doc(place).exit_code for place in (tmp_path / "nowhere", project)] == [3, 4]


@pytest.mark.spec("CLI-30")
def test_each_rule_has_a_page_with_its_cases_and_pages_of_rules_that_are_gone_go(project: Path) -> None:
    folder = project / "docs" / "rules"

    first = doc(project)
    shown = (folder / "tools" / "ask_first.md").read_text(encoding="utf-8")
    (folder / "notes.md").write_text("mine", encoding="utf-8")
    for path in (project / "policy" / "cmf" / "rules" / "tools" / "ask_first").iterdir():
        path.unlink()
    left = '{"tools": {"by_role": {"delete_draft": ["editor"]}}}'  # settings that no rule has are refused [POL-69]
    (project / "policy" / "cmf" / "defaults" / "data.json").write_text(left, encoding="utf-8")
    for path in (project / "cases").glob("*.yaml"):
        path.unlink()
    second = doc(project)

    assert (first.exit_code, first.stdout) == (0, f"{folder}: 2 rules\n")
    assert "## Case: mail is sent without a question" in shown
    assert '"beginnings": [' in shown
    assert second.stdout == f"{folder}: 1 rule\n"
    assert sorted(path.name for path in folder.rglob("*.md")) == ["README.md", "by_role.md", "notes.md"]


@pytest.mark.spec("CLI-30")
def test_the_shipped_rules_are_written_about_where_a_project_only_sets_them(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}", encoding="utf-8")

    result = doc(tmp_path, "--out", tmp_path / "docs")

    assert result.exit_code == 0
    assert "## Samples" in (tmp_path / "docs" / "data" / "pii.md").read_text(encoding="utf-8")
