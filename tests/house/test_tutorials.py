"""Whoever does what a document says sees what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.transcript import Command, File, Reader, steps
from tests.house.tree import ROOT

DOCS = ROOT / "docs"
TUTORIALS = [DOCS / "tutorial.md", DOCS / "audit.md", *sorted((DOCS / "coming-from").glob("*.md"))]


@pytest.mark.native
@pytest.mark.no_cover
@pytest.mark.parametrize("document", TUTORIALS, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_step_comes_out_as_shown(document: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)

    for step in steps(document):
        assert (problem := reader.do(step)) is None, problem


def test_there_is_something_to_do_in_each() -> None:
    found = {path.name: [type(step) for step in steps(path)] for path in TUTORIALS}

    assert [name for name, kinds in found.items() if Command not in kinds or File not in kinds] == []
    assert len(found) == 6


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        ("dec_… ok", "dec_01 ok"),
        ("a\n…\nd", "a\nb\nc\nd"),
        ("…\nd", "a\nd"),
        ("a (b) [c]*", "a (b) [c]*"),
    ],
)
def test_an_ellipsis_stands_for_what_differs(shown: str, got: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text(got, encoding="utf-8")

    assert Reader(tmp_path).do(Command(text="cat out", expected=shown)) is None


@pytest.mark.parametrize(("shown", "got"), [("a … c", "a b"), ("a\nb", "a\nx\nb"), ("a … c", "a b\nc"), ("", "a")])
def test_it_stands_for_nothing_else(shown: str, got: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text(got, encoding="utf-8")

    assert Reader(tmp_path).do(Command(text="cat out", expected=shown)) is not None


def test_an_edit_of_what_is_not_there_is_a_problem(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("In `a.txt`:\n\n```diff a.txt\n one\n-two\n+three\n```\n", encoding="utf-8")
    (edit,) = steps(document)

    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")

    assert Reader(tmp_path).do(edit) is None
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "one\nthree\n"
    assert Reader(tmp_path).do(edit) is not None


def test_a_file_that_the_words_do_not_name_is_a_problem(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("Write this:\n\n```yaml a.yaml\na: 1\n```\n", encoding="utf-8")

    (written,) = steps(document)

    assert isinstance(written, File)
    assert Reader(tmp_path).do(written) is not None
