"""Draws the packages of `src` on their floors, with the imports between them: docs/architecture.svg.

An arrow is left out where a chain of other arrows says the same. `make docs` draws it anew.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
DRAWING = ROOT / "docs" / "architecture.svg"
WIDTH, FLOOR, BOX, HEIGHT = 960, 74, 190, 36  # pixels
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1a1a1a;text-anchor:middle}"
    "rect{stroke:#57606a;rx:5}.cmf rect{fill:#e8f1fb}.pipeline rect{fill:#fdf3e1}"
    "path{fill:none;stroke:#8c959f;marker-end:url(#a)}"
)


def main() -> None:
    """Write the drawing."""
    DRAWING.write_text(drawing(), encoding="utf-8")


def drawing() -> str:
    """The drawing as SVG."""
    floors = _floors()
    imports = _imports([package for floor in floors for package in floor])
    places = {
        package: (WIDTH * (2 * at + 1) // (2 * len(floor)), 10 + level * FLOOR)
        for level, floor in enumerate(floors)
        for at, package in enumerate(floor)
    }
    arrows = (_arrow(places[upper], places[lower]) for upper, lower in sorted(_reduced(imports)))
    boxes = (_box(package, *places[package]) for package in places)
    height = len(floors) * FLOOR
    tip = '<marker id="a" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">'
    tip += '<path d="M0 0 6 3 0 6"/></marker>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>The packages of src, each above those that it imports</title>",
            f"<style>{STYLE}</style><defs>{tip}</defs>",
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def _floors() -> list[list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "floors")
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def _imports(packages: list[str]) -> dict[str, set[str]]:
    """For each package those that it imports, at run time."""
    graph = grimp.build_graph("cmf", "pipeline", exclude_type_checking_imports=True)
    known = set(packages)
    imports: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        own = ".".join(module.split(".")[:2])
        theirs = {".".join(imported.split(".")[:2]) for imported in graph.find_modules_directly_imported_by(module)}
        if own in known:
            imports[own] |= (theirs & known) - {own}
    return imports


def _reduced(imports: dict[str, set[str]]) -> Iterable[tuple[str, str]]:
    """The imports that no chain of others implies."""
    for upper, lowers in imports.items():
        through = {far for lower in lowers for far in _reachable(lower, imports)}
        yield from ((upper, lower) for lower in lowers - through)


def _reachable(package: str, imports: dict[str, set[str]]) -> set[str]:
    near = imports.get(package, set())
    return near | {far for lower in near for far in _reachable(lower, imports)}


def _arrow(upper: tuple[int, int], lower: tuple[int, int]) -> str:
    top, bottom = upper[1] + HEIGHT, lower[1] - 2
    middle = (top + bottom) // 2
    return f'<path d="M{upper[0]} {top}C{upper[0]} {middle} {lower[0]} {middle} {lower[0]} {bottom}"/>'


def _box(package: str, x: int, y: int) -> str:
    return (
        f'<g class="{package.partition(".")[0]}"><rect x="{x - BOX // 2}" y="{y}" width="{BOX}" height="{HEIGHT}"/>'
        f'<text x="{x}" y="{y + 22}">{package}</text></g>'
    )


if __name__ == "__main__":
    main()
