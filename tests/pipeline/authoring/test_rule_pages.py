"""Pages of rules; that those of the shipped rules are up to date is tests/policies/test_library.py's business."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.pipeline.policy_files import GOOD, PLACE, Write, write

from pipeline.authoring import rule_pages
from pipeline.authoring.case import Case, read_cases
from pipeline.authoring.rule_pages import Settings, Source
from pipeline.policy import policy_set

__all__ = ["write"]  # a fixture

CASE = {"name": "marked\u202e *text*", "conversation": [{"role": "user", "text": "```\nhello"}]}


def cases(folder: Path, *spelled: dict[str, object]) -> list[Case]:
    path = folder / "a.yaml"
    path.write_text(yaml.safe_dump({"cases": list(spelled)}), encoding="utf-8")
    return read_cases(path)


def page(folder: Path, out: Path, found: list[Case], settings: object = None) -> str:
    source = Source(
        maker="nobody",
        title="Rules",
        folders=[folder],
        sections={},
        settings=[Settings(title="Settings", values={"test": settings}, file="data.json")],
        cases=found,
    )
    return rule_pages.pages(policy_set.load(folder).rules, source, out)[out / "test" / "rule.md"]


@pytest.mark.spec("CLI-30")
def test_only_the_cases_that_name_a_rule_are_its_examples(write: Write, tmp_path: Path) -> None:
    found = cases(
        tmp_path,
        {**CASE, "name": "other", "expect": "deny"},
        {**CASE, "name": "whole", "expect": {"rules": ["test/rule"]}},
        {**CASE, "name": "part", "expect": {"views": {"0": {"rules_include": ["test/rule"]}}}},
    )

    text = page(write({PLACE: GOOD}), tmp_path / "docs", found)

    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Case: whole", "## Case: part"]


@pytest.mark.spec("CLI-30")
def test_nothing_in_a_case_ends_its_block_or_starts_markup(write: Write, tmp_path: Path) -> None:
    found = cases(tmp_path, {**CASE, "expect": {"rules": ["test/rule"]}})

    text = page(write({PLACE: GOOD}), tmp_path / "docs", found)

    assert "\n````yaml\n" in text
    assert text.endswith("\n````\n")
    assert "\\*text\\*" in text


@pytest.mark.spec("CLI-30")
def test_samples_are_linked_from_the_page_and_long_settings_are_not_shown(write: Write, tmp_path: Path) -> None:
    folder = write({PLACE: GOOD, "cmf/rules/test/rule/samples/denied_a_b.json": "{}"})

    text = page(folder, tmp_path / "docs", [], {"rule": {"words": ["x" * 3000]}})

    assert "| [a b](../../policies/cmf/rules/test/rule/samples/denied_a_b.json) | refused |" in text
    assert (
        (tmp_path / "docs" / "test" / "../../policies/cmf/rules/test/rule/samples/denied_a_b.json").resolve().exists()
    )
    assert "See `data.json`." in text


def test_a_rule_without_settings_samples_and_cases_has_a_page(write: Write, tmp_path: Path) -> None:
    text = page(write({PLACE: GOOD}), tmp_path / "docs", [], settings="none")

    assert text.startswith("# test/rule\n\nMade by `nobody`: do not edit.\n\n**A rule.** It refuses what is marked.")
    assert text.endswith("| standards | OWASP-LLM01 |\n")
