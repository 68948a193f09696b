"""`cmf fmt`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli.app import app

UGLY = "package a\n\nx   := 1\n"
GOOD = "package a\n\nx := 1\n"


def fmt(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["fmt", *map(str, arguments)])


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    (tmp_path / "a.rego").write_text(UGLY, encoding="utf-8")
    return tmp_path


@pytest.mark.spec("CLI-31")
def test_without_opa_it_says_so_in_one_line(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(policies))

    result = fmt(policies)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "opa" in result.stderr
    assert (policies / "a.rego").read_text(encoding="utf-8") == UGLY


@pytest.mark.spec("CLI-31")
def test_an_opa_that_does_not_run_is_one_line(policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = policies / ".tools" / "bin" / "opa"
    tool.parent.mkdir(parents=True)
    tool.write_text("no program", encoding="utf-8")
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(policies))

    result = fmt(policies / "below")

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    result = fmt(policies)
    assert (result.exit_code, result.stderr.count("\n")) == (5, 1)


@pytest.mark.opa
@pytest.mark.spec("CLI-31")
def test_rego_that_does_not_parse_is_named_with_its_line(
    policies: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(opa_binary.parent))
    (policies / "a.rego").write_text("package a\nx :=", encoding="utf-8")

    result = fmt(policies)

    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
    assert "a.rego:2" in result.stderr


@pytest.mark.opa
@pytest.mark.spec("CLI-31")
def test_check_and_diff_change_nothing_and_without_them_it_is_opa_s_format(
    policies: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(opa_binary.parent))
    path = policies / "a.rego"

    checked, shown = fmt(policies, "--check"), fmt(policies, "--diff")

    assert (checked.exit_code, checked.stdout) == (1, f"{path}\n")
    assert (shown.exit_code, "-x   := 1\n+x := 1\n" in shown.stdout, "\x1b" in shown.stdout) == (0, True, False)
    assert path.read_text(encoding="utf-8") == UGLY
    assert fmt(policies).stdout == f"formatted {path}\n"
    assert path.read_text(encoding="utf-8") == GOOD
    assert [fmt(policies, option).exit_code for option in ("--check", "--diff")] == [0, 0]
