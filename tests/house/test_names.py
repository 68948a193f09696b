"""Names say what a file holds, and a file that outgrows a reader's patience has a reason on record."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, SRC, parsed, source_files, tracked_files

# Where unowned code goes to live. A helper belongs beside its user, or is a noun of its own.
BANNED_STEMS = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc", "shared"})
MAX_LINES = {"src": 700, "rust/src": 700, "tests": 700}
# Path -> why this file is better whole. An entry that is no longer needed fails.
LONG_FILES: dict[str, str] = {}
MAX_BODY = 50  # lines of a function between its docstring and its end; what is defined inside counts for itself
# Module and function -> why it is better whole.
LONG_FUNCTIONS: dict[str, str] = {
    "pipeline/gateway/service.py assembled": "the parts of a gateway, each made once, in the order of their needs",
    "pipeline/audit/record.py record_of": "one object, in the order of the fields of a record",
}
# What silences a tool, with nothing behind it.
WAIVER = re.compile(r"(?:type: ignore(?:\[[a-z, -]+\])?|noqa(?:: [A-Z0-9, ]+)?|pragma: no [a-z]+)$")


def test_no_module_is_named_after_nothing_in_particular() -> None:
    code = [path for path in tracked_files() if path.suffix in {".py", ".rs", ".rego"}]
    offenders = [path.relative_to(ROOT) for path in code if path.stem.strip("_") in BANNED_STEMS]

    assert offenders == []


def test_no_package_is_named_after_nothing_in_particular() -> None:
    folders = {parent.name for path in source_files() for parent in path.parents}

    assert folders & BANNED_STEMS == set()


@pytest.mark.parametrize(("folder", "limit"), MAX_LINES.items())
def test_files_over_the_limit_are_on_the_reasoned_list(folder: str, limit: int) -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in tracked_files()
        if path.suffix in {".py", ".rs"} and path.is_relative_to(ROOT / folder)
        if (lines := _line_count(path)) > limit
    }

    assert {path: lines for path, lines in long.items() if path not in LONG_FILES} == {}


def test_the_reasoned_list_holds_only_files_that_need_it() -> None:
    assert [path for path in LONG_FILES if _line_count(ROOT / path) <= min(MAX_LINES.values())] == []
    assert [path for path, reason in LONG_FILES.items() if len(reason.split()) < 5] == []


def test_functions_over_the_limit_are_on_the_reasoned_list() -> None:
    long = {
        f"{path.relative_to(SRC)} {function.name}": length
        for path in source_files()
        if "migrations" not in path.parts and _may_hold_a_long_one(path.read_text(encoding="utf-8").splitlines())
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and (length := _body_lines(function)) > MAX_BODY
    }

    assert {name: length for name, length in long.items() if name not in LONG_FUNCTIONS} == {}


def _may_hold_a_long_one(lines: list[str]) -> bool:
    """Whether a function goes on for so long, by its indentation: reading all modules as Python takes seconds."""
    for at, line in enumerate(lines[:-MAX_BODY]):
        indent = len(line) - len(line.lstrip())
        if line.startswith(("def ", "async def "), indent):
            after = (one for one in lines[at + 1 : at + MAX_BODY] if one.strip())
            if all(one.startswith(" " * (indent + 1)) or one.lstrip().startswith(")") for one in after):
                return True
    return False


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    own = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if not own:
        return 0
    whole = (own[-1].end_lineno or 0) - own[0].lineno + 1
    return whole - sum((one.end_lineno or 0) - one.lineno + 1 for one in _defined_in(own))


def _defined_in(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return (one for one in statements if isinstance(one, kinds))


def _line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_every_waiver_in_the_sources_has_its_reason() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in source_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if WAIVER.search(line.rstrip())
    ]

    assert bare == [], "say why behind it"
