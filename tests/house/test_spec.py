"""Each clause of the specification has a test that proves it, and each mark names a clause that exists."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.tree import ROOT, parsed, tracked_files

CLAUSE = re.compile(r"^\*\*\[([A-Z][A-Z0-9]*(?:-[A-Z]+)*-[0-9]+[a-z]?)\]\*\*")
LOOKS_LIKE_A_CLAUSE = re.compile(r"^\W*\[[A-Z][A-Z0-9-]*-[0-9]+[a-z]?\]")
CITED = re.compile(r"\[([A-Z]{2,}-[0-9]+)\]")
CITING = ("src", "rust", "policies", "docs")
SPEC = ROOT / "docs" / "spec"


def test_every_clause_is_proved_by_a_test() -> None:
    marked = set(_marks())

    unproved = [f"{path.name}: {clause}" for clause, path in clauses_of_spec() if clause not in marked]

    assert unproved == [], 'write a test marked @pytest.mark.spec("...") for each'


def test_every_mark_names_an_existing_clause() -> None:
    known = {clause for clause, _ in clauses_of_spec()}

    unknown = {clause: sorted(tests) for clause, tests in _marks().items() if clause not in known}

    assert unknown == {}


def test_every_clause_that_is_cited_is_there() -> None:
    """A reader who follows a number to nowhere trusts the others less."""
    known = {clause for clause, _ in clauses_of_spec()}

    lost = [
        f"{path.relative_to(ROOT)}: {clause}"
        for path in tracked_files()
        if path.relative_to(ROOT).parts[0] in CITING and path.suffix in (".py", ".rs", ".rego", ".md")
        for clause in CITED.findall(path.read_text(encoding="utf-8"))
        if clause not in known
    ]

    assert lost == []


def test_no_clause_number_is_used_twice() -> None:
    counts = Counter(clause for clause, _ in clauses_of_spec())

    assert [clause for clause, count in counts.items() if count > 1] == []


def test_every_line_that_looks_like_a_clause_is_read_as_one() -> None:
    """A clause in a spelling that the reader does not know would need no test."""
    missed = [
        f"{path.name}:{number}: {line[:60]}"
        for path in SPEC.rglob("*.md")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if LOOKS_LIKE_A_CLAUSE.match(line) and not CLAUSE.match(line)
    ]

    assert missed == []


def test_there_are_clauses_and_marks_to_compare() -> None:
    assert len(list(clauses_of_spec())) > 0
    assert len(_marks()) > 0


def clauses_of_spec() -> Iterator[tuple[str, Path]]:
    for path in sorted(SPEC.rglob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := CLAUSE.match(line):
                yield match[1], path


@cache
def _marks() -> dict[str, set[str]]:
    """Clause -> the test files that carry its mark, read from the source so that a deselected test counts."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and _is_spec_mark(node.func):
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        found[argument.value].add(path.name)
    return dict(found)


def _is_spec_mark(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "spec" and ast.unparse(node).endswith("mark.spec")
