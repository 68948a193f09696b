"""Puts the entries in `changelog.d` under a new heading of CHANGELOG.md, and deletes them: at a release.

python -m scripts.changelog 0.2.0 2027-01-31
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGES = ROOT / "CHANGELOG.md"
ENTRIES = ROOT / "changelog.d"
KINDS = ("security", "added", "changed", "fixed", "removed")
NAME = re.compile(rf"({'|'.join(KINDS)})-[a-z0-9]+(-[a-z0-9]+)*\.md")


def main(version: str, date: str) -> None:
    """Write the section of the release, above the one before it."""
    files = entries()
    text = CHANGES.read_text(encoding="utf-8")
    head, _, releases = text.partition("\n## ")
    CHANGES.write_text(f"{head}\n{section(version, date, files)}\n## {releases}", encoding="utf-8")
    for file in files:
        file.unlink()


def entries() -> list[Path]:
    """The files of changes, by name."""
    return sorted(file for file in ENTRIES.iterdir() if file.name != "README.md")


def section(version: str, date: str, files: Iterable[Path]) -> str:
    """The section of a release: a heading for each kind that has entries."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for file in files:
        by_kind[file.name.partition("-")[0]].append(file.read_text(encoding="utf-8").rstrip())
    parts = [f"### {kind.capitalize()}\n\n" + "\n".join(texts) + "\n" for kind, texts in by_kind.items() if texts]
    return "\n".join([f"## [{version}] - {date}\n", *parts])


if __name__ == "__main__":
    main(*sys.argv[1:])
