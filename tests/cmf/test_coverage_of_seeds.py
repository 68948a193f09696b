"""Nothing that the source texts ask for is left without a row, and no row names what is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, parsed

SPEC = ROOT / "docs" / "spec"
ROW = re.compile(r"^\| (\S+) \| (.+?) \| (\S+) \| (.+) \|$", re.MULTILINE)
CLAUSE = re.compile(r"^\*\*\[([A-Z]+-\d+)\]\*\*", re.MULTILINE)
TESTS = ROOT / "tests"

SECTIONS = {
    "s000": "1 2.1 2.2 3.1 3.2 3.3 4.1 4.2 4.2.2 4.3 4.4 5.1 5.2 5.3 5.4 6.1 6.2 6.3 6.4 6.5 7.1 7.2 7.3 7.4 "
    "8.1 8.2 8.3 8.4 9.1 9.2 10.1 10.2 10.3 11.1 11.2 12 13",
    "s001": "4.2.1 5.4 6.3 6.5 7.3 9.2",
    "s002": "message parts branching fork linear branched version decisions",
    "s003": " ".join(f"r{number}" for number in range(1, 15))
    + " 1 2 2.1 2.2 2.3 3 3.1 3.2 3.3 3.4 3.5 3.6 3.6.1 3.6.2 3.6.3 3.7 3.8 3.9 3.10 3.11 3.12"
    " 4 4.1 4.2 4.3 4.4 4.5 4.6 4.7 5.1 5.2",
    "s004": "roles images system options model-ids response streaming alternatives chains",
}
"""The sections of each text that ask for something. Texts 000 and 001 are one: the second fills lists of the first."""

MANY = {"s000-5.1": 5, "s000-5.2": 4, "s000-5.3": 5, "s000-2.1": 5, "s000-11.1": 7}
"""Sections with a numbered list, and how many points it has."""

ANSWERS = {"s000-13": 11, "s000-12": 5, "s002-decisions": 5, "s004-d": 6, "s004-a": 3, "s003-d": 12, "o": 10}
"""Groups of decisions and questions, and how many there are."""
STATUSES = {"kept", "changed", "answered", "open", "rejected", "taken"}


def rows() -> list[tuple[str, str, str, str]]:
    found = ROW.findall((SPEC / "coverage.md").read_text(encoding="utf-8"))
    return [row for row in found if row[0] not in ("clause", "---")]


def decisions() -> list[tuple[str, str, str, str]]:
    found = ROW.findall((SPEC / "decisions.md").read_text(encoding="utf-8"))
    return [row for row in found if row[0] not in ("id", "---")]


def clauses() -> set[str]:
    return {clause for path in SPEC.rglob("*.md") for clause in CLAUSE.findall(path.read_text(encoding="utf-8"))}


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_names_a_clause_and_a_test_that_exist() -> None:
    known = clauses()
    wrong = []
    for number, asked, clause, test in rows():
        path, _, name = test.strip("`").partition("::")
        if clause not in known | {"house"}:
            wrong.append((number, clause))
        if not (TESTS / path).is_file() or name not in functions(TESTS / path):
            wrong.append((number, test))
        assert asked

    assert wrong == []


@pytest.mark.parametrize("seed", SECTIONS)
def test_every_section_of_every_text_has_a_row(seed: str) -> None:
    numbers = {row[0] for row in rows()}

    missing = [
        section
        for section in SECTIONS[seed].split()
        if not any(number == f"{seed}-{section}" or number.startswith(f"{seed}-{section}-") for number in numbers)
    ]

    assert missing == []


@pytest.mark.parametrize("section", MANY)
def test_every_point_of_a_numbered_list_has_a_row(section: str) -> None:
    numbers = {row[0] for row in rows()}

    assert {f"{section}-{point}" for point in range(1, MANY[section] + 1)} - numbers == set()


def test_no_row_stands_twice_and_none_is_of_an_unknown_text() -> None:
    numbers = [row[0] for row in rows()]

    assert len(numbers) == len(set(numbers))
    assert {number.partition("-")[0] for number in numbers} == set(SECTIONS)


@pytest.mark.parametrize("group", ANSWERS)
def test_every_decision_and_open_question_has_its_answer(group: str) -> None:
    given = {row[0]: row for row in decisions()}

    for number in range(1, ANSWERS[group] + 1):
        _, asked, status, answer = given[f"{group}-{number}"]
        assert status in STATUSES
        assert asked
        assert len(answer) > 4
    assert len(given) == sum(ANSWERS.values())


def test_every_clause_that_a_decision_cites_exists() -> None:
    cited = re.findall(r"\[([A-Z]+-\d+)\]", (SPEC / "decisions.md").read_text(encoding="utf-8"))

    assert set(cited) - clauses() == set()
    assert len(cited) > 30
