"""The list of what enforces names files that are there: coverage passes over others in silence."""

from __future__ import annotations

from tests.house.tree import ROOT

LISTED = [
    line
    for line in (ROOT / "tests" / "enforcing.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def test_each_file_is_there_and_listed_once() -> None:
    assert len(LISTED) > 90
    assert [name for name in LISTED if not (ROOT / name).is_file()] == []
    assert sorted(LISTED) == sorted(set(LISTED))


def test_the_gate_reads_all_of_them() -> None:
    """The gate takes the lines that begin with `src/`."""
    assert [name for name in LISTED if not name.startswith("src/")] == []
    assert "grep '^src/' tests/enforcing.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")
