"""Names say what a file holds, and a file that outgrows a reader's patience has a reason on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.tree import ROOT, source_files, tracked_files

# Where unowned code goes to live. A helper belongs beside its user, or is a noun of its own.
BANNED_STEMS = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc", "shared"})
MAX_LINES = {"src": 450, "rust/src": 450, "tests": 700}  # a test file is a list, and read one entry at a time
# Path -> why this file is better whole. An entry that is no longer needed fails.
LONG_FILES: dict[str, str] = {}


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


def _line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
