"""The project's files and modules as they are on disk, for the tests that read them."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGES = ("cmf", "pipeline")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that git tracks or would track, links left out."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listing.stdout.decode().split("\0")
    paths = (ROOT / name for name in names if name)
    return tuple(sorted(path for path in paths if path.is_file() and not path.is_symlink()))


def source_files() -> Iterator[Path]:
    """Every Python module of the two packages."""
    for package in PACKAGES:
        yield from sorted((SRC / package).rglob("*.py"))


def module_name(path: Path) -> str:
    """`src/cmf/adapters/__init__.py` -> `cmf.adapters`."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """`(module, name)` for each import: `from a import b` -> ("a", "b"), `import a.b` -> ("a.b", None)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


@cache
def project_settings() -> dict[str, object]:
    """`pyproject.toml`, parsed."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
