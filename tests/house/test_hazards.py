"""Each known hazard of the wire formats has its row, and each row its proof."""

from __future__ import annotations

import ast
import re
from functools import cache

from cmf.adapters import FORMATS
from tests.house.test_spec import SPEC, clauses_of_spec
from tests.house.tree import ROOT, parsed

COUNT = 211
ROW = re.compile(r"^\| (\d+) \|(.+)\|(.+)\|(.+)\|(.+)\|$")
CITED = re.compile(r"`(test_\w+)`|([A-Z][A-Z0-9]*-[0-9]+[a-z]?)")


def test_every_hazard_has_one_row() -> None:
    assert [number for number, _ in _rows()] == list(range(1, COUNT + 1))


def test_every_row_says_what_for_which_format_is_done() -> None:
    for number, (hazard, format_name, done, shown) in _rows():
        assert format_name in (*FORMATS, "all"), number
        assert all((hazard, done, shown)), number


def test_what_a_row_cites_exists() -> None:
    clauses = {clause for clause, _ in clauses_of_spec()}

    missing = {
        number: cited
        for number, (*_, shown) in _rows()
        if not (cited := _cited(shown)) or not all(one in clauses or one in _tests() for one in cited)
    }

    assert missing == {}


def test_what_is_not_done_names_rows() -> None:
    """A limit that is told of belongs to a hazard of the table."""
    text = (SPEC / "hazards.md").read_text(encoding="utf-8").partition("## Not done")[2]
    told = [int(number) for line in text.splitlines() if line.startswith("- ") for number in _numbers(line)]

    assert told
    assert all(1 <= number <= COUNT for number in told)


def _numbers(line: str) -> list[str]:
    return re.findall(r"\d+", line.partition(":")[0])


def _rows() -> list[tuple[int, tuple[str, str, str, str]]]:
    lines = (SPEC / "hazards.md").read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := ROW.match(line))]
    return [(int(one[1]), (one[2].strip(), one[3].strip(), one[4].strip(), one[5].strip())) for one in found]


def _cited(shown: str) -> list[str]:
    parts = [CITED.fullmatch(part.strip()) for part in shown.split(",")]
    return [match[1] or match[2] for match in parts if match] if all(parts) else []


@cache
def _tests() -> frozenset[str]:
    """The names of all tests of adapters and of ids, which are what rows cite."""
    return frozenset(
        node.name
        for path in sorted((ROOT / "tests" / "cmf").rglob("test_*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
    )
