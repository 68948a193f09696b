"""The map of the code has every module, once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, SRC

MAP = ROOT / "docs" / "architecture.md"
MAPPED = (
    "sessions",
    "approvals",
    "audit",
    "guarded",
    "policies",
    "origins",
    "checks",
    "cases",
    "replay",
    "engines",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_has_each_module_once(package: str) -> None:
    shown: list[str] = []
    for about, modules in _rows(package):
        named = _names(about)
        shown += named or _names(modules)

    assert sorted(shown) == sorted(_modules(SRC / package)), f"give it a place in {MAP.relative_to(ROOT)}"


@pytest.mark.parametrize("package", MAPPED)
def test_the_map_has_each_module_of_a_package_once(package: str) -> None:
    (modules,) = (modules for about, modules in _rows("pipeline") if _names(about) == [package])

    assert sorted(_names(modules)) == sorted(_modules(SRC / "pipeline" / package))


def _rows(package: str) -> list[tuple[str, str]]:
    section = MAP.read_text(encoding="utf-8").split(f"## `src/{package}`")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [(about, modules) for about, modules in cells]


def _names(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9_]+)`", cell)


def _modules(here: Path) -> set[str]:
    """The modules and packages in it; what begins with `_` is its own affair."""
    found = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
    return {name for name in found if not name.startswith("_")}
