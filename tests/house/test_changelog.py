"""Entries of the changelog are named and written so that the next release can gather them."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.changelog import CHANGES, ENTRIES, NAME, entries, section


def test_each_entry_has_a_valid_name_and_is_one_item_of_a_list() -> None:
    wrong = [file.name for file in entries() if not _is_entry(file)]

    assert wrong == [], f"see {ENTRIES.name}/README.md"


def test_the_changelog_has_releases_alone() -> None:
    headings = [line for line in CHANGES.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]

    assert [line for line in headings if not re.match(r"## \[\d+\.\d+\.\d+\] - ", line)] == []
    assert headings[-1] == "## [0.1.0] - first release"


def test_entries_are_gathered_by_kind(tmp_path: Path) -> None:
    (tmp_path / "fixed-b.md").write_text("* B is mended.\n", encoding="utf-8")
    (tmp_path / "added-a.md").write_text("- A is new.\n", encoding="utf-8")

    text = section("0.2.0", "2027-01-31", sorted(tmp_path.iterdir()))

    assert text == "## [0.2.0] - 2027-01-31\n\n### Added\n\n- A is new.\n\n### Fixed\n\n* B is mended.\n"


def _is_entry(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return (
        NAME.fullmatch(file.name) is not None and text[:2] in ("- ", "* ") and "\n- " not in text and "\n* " not in text
    )
