"""`cmf bundle`: policy sets for an OPA server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from pipeline.assembly import load_policies
from pipeline.cli.reading import Exit, fail, one_line_errors


def run(directory: Path, *, policies: Sequence[Path] | None) -> None:
    """Write the bundle and say its revision."""
    with one_line_errors():
        loaded = load_policies(policies)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        fail(f"{directory}: is not an empty directory; name a new one", Exit.USAGE)
    for name, content in loaded.bundle().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    typer.echo(f"{directory}: revision {loaded.revision}")
