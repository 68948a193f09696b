"""Each package says what it is, and names each of its modules once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.architecture import DRAWING, drawing

from tests.house.tree import ROOT, SRC

ROOMS = sorted(path.parent for path in SRC.rglob("__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(SRC)))
def test_the_readme_of_a_package_has_each_module_once(room: Path) -> None:
    readme = (room / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"`([a-z0-9_]+)/?`", " ".join(re.findall(r"^- (.*?):", readme, re.MULTILINE)))

    assert sorted(listed) == sorted(_modules(room)), f"in {room.relative_to(ROOT)}/README.md"


def test_the_drawing_is_that_of_the_imports() -> None:
    assert DRAWING.read_text(encoding="utf-8") == drawing(), "run `make docs`"


def test_the_files_that_the_map_names_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src/|tests/|cmf/|pipeline/)[\w/]+\.(?:py|md|html))`", text))

    missing = {path for path in named if not (ROOT / path).exists() and not (SRC / path).exists()}

    assert len(named) > 60
    assert {path for path in missing if "acme" not in path} == set(), "in docs/architecture.md"


def _modules(room: Path) -> set[str]:
    """The modules and packages in it; what begins with `_` is its own affair."""
    names = {path.stem for path in room.glob("*.py")} | {path.parent.name for path in room.glob("*/__init__.py")}
    return {name for name in names if not name.startswith("_")}
