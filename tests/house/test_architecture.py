"""The map of the code has every module, once."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import PACKAGES, ROOT, SRC

MAP = ROOT / "docs" / "architecture.md"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_has_each_module_once(package: str) -> None:
    section = MAP.read_text(encoding="utf-8").split(f"## `src/{package}`")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]

    shown = sorted(re.findall(r"`([a-z_]+)`", " ".join(rows)))

    assert shown == sorted(_modules(package)), f"give it a place in {MAP.relative_to(ROOT)}"


def _modules(package: str) -> set[str]:
    """The modules and packages in `package`; what begins with `_` is its own affair."""
    here = SRC / package
    found = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
    return {name for name in found if not name.startswith("_")}
