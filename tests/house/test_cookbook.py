"""The cookbook's policies do what their pages say, on both engines, and the pages show the files as they are."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from scripts.cookbook import PAGES, ROOT, pages, recipes, rules
from typer.testing import CliRunner

from pipeline.cli.app import app

RECIPES = recipes()
RUN = CliRunner()


def _name(recipe: Path) -> str:
    return recipe.name


def test_there_are_at_least_twenty() -> None:
    assert len(RECIPES) >= 20


def test_the_cookbook_s_pages_are_current() -> None:
    made = pages()

    assert {path: path.read_text(encoding="utf-8") for path in made if path.exists()} == made, "run `make docs`"
    assert set(PAGES.glob("*.md")) == set(made)


@pytest.mark.native
@pytest.mark.parametrize("recipe", RECIPES, ids=_name)
def test_its_cases_come_out_as_expected_and_every_rule_hits(recipe: Path) -> None:
    done = RUN.invoke(app, ["test", str(recipe), "--format", "json"])

    assert done.exit_code == 0, done.stdout
    assert json.loads(done.stdout)["coverage"]["never_hit"] == []


@pytest.mark.opa
@pytest.mark.parametrize("recipe", RECIPES, ids=_name)
def test_its_rules_pass_their_own_tests_the_formatter_and_the_strict_check(recipe: Path, opa_binary: Path) -> None:
    capabilities = ROOT / "policies" / "capabilities.json"
    check = ["check", "--strict", "--bundle", "--capabilities", str(capabilities)]

    for command in (["test", "--bundle"], ["fmt", "--diff", "--fail"], check):
        done = subprocess.run([opa_binary, *command, recipe / "policy"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("recipe", RECIPES, ids=_name)
def test_each_rule_says_what_becomes_of_a_fact_that_is_missing(recipe: Path) -> None:
    for rule in rules(recipe):
        path = recipe / "policy" / rule.path
        tests = path.with_name(f"{path.stem}_test.rego").read_text(encoding="utf-8")
        assert "_missing" in tests or "cannot_be_read" in tests, rule.id
        assert "test_allowed" in tests or "_nothing_" in tests, rule.id
