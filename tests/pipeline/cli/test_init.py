"""`cmf init`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from pipeline.authoring.case import case_schema
from pipeline.cli.app import app
from pipeline.cli.init import Template

RUN = CliRunner()


@pytest.mark.spec("CLI-10")
def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")

    for place in (tmp_path, tmp_path / "mine", tmp_path / "mine" / "below"):
        result = RUN.invoke(app, ["init", str(place)])
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize("template", get_args(Template))
def test_a_new_project_is_green_and_every_rule_of_it_hits(template: str, tmp_path: Path) -> None:
    project = tmp_path / "new"

    written = RUN.invoke(app, ["init", str(project), "--template", template])
    tested = RUN.invoke(app, ["test", str(project), "--format", "json"])

    assert written.exit_code == 0
    assert tested.exit_code == 0, tested.stdout
    assert json.loads(tested.stdout)["coverage"]["never_hit"] == []
    assert (project / ".github" / "workflows" / "policy.yaml").exists()
    assert (project / ".regal" / "config.yaml").exists()
    schemas = json.loads((project / ".vscode" / "settings.json").read_text("utf-8"))["yaml.schemas"]
    (schema,) = [project / name for name in schemas]
    assert json.loads(schema.read_text("utf-8")) == case_schema()


@pytest.mark.spec("CLI-10")
def test_without_a_name_it_is_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert "next: cmf test" in RUN.invoke(app, ["init"]).stdout
    assert RUN.invoke(app, ["test"]).exit_code == 0
    assert RUN.invoke(app, ["init"]).exit_code == 2


@pytest.mark.opa
@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize("template", get_args(Template))
def test_its_rules_pass_their_own_tests_and_the_formatter(template: str, tmp_path: Path, opa_binary: Path) -> None:
    project = tmp_path / "new"
    RUN.invoke(app, ["init", str(project), "--template", template])

    for command in (["test", "--bundle"], ["fmt", "--diff", "--fail"], ["check", "--strict", "--bundle"]):
        done = subprocess.run([opa_binary, *command, project / "policy"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
