"""A mark such as `[C6]` leads somewhere: to a row of docs/spec/choices.md, and from there to clauses that exist."""

from __future__ import annotations

import re

from tests.house.tree import ROOT, tracked_files

PAGE = ROOT / "docs" / "spec" / "choices.md"
ROW = re.compile(r"^\| ([A-F][0-9]{1,2}) \| (?P<choice>[^|]+) \| (?P<clauses>[^|]*)\|$", re.MULTILINE)
MARK = re.compile(r"\[(?P<ids>[A-F][0-9]{1,2}(?: \([a-z]\))?(?:,? (?:and )?[A-F][0-9]{1,2})*)\]")
CLAUSE = re.compile(r"\[([A-Z]+-[0-9]+)\]")
READ = {".py", ".md", ".rs", ".toml", ".rego", ".json", ".txt", ""}


def test_every_mark_in_the_sources_has_its_row() -> None:
    cited = {
        one: path.relative_to(ROOT)
        for path in tracked_files()
        if path != PAGE and path.suffix in READ
        for found in MARK.finditer(path.read_text(encoding="utf-8", errors="ignore"))
        for one in re.findall(r"[A-F][0-9]{1,2}", found["ids"])
    }
    known = [row[1] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))]

    assert {one: str(path) for one, path in cited.items() if one not in known} == {}
    assert sorted(set(known) - set(cited)) == []
    assert len(known) == len(set(known))


def test_every_row_names_clauses_that_there_are() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in PAGE.parent.rglob("*.md"))
    named = CLAUSE.findall(PAGE.read_text(encoding="utf-8"))

    assert [one for one in named if f"**[{one}]**" not in pages] == []
