"""`cmf init`: a policy project whose tests pass from the start."""

from __future__ import annotations

import importlib.resources
import json
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.cli.reading import Exit, fail

HIDDEN = "dot-"  # stands for a leading dot in the templates, because packaging tools skip dotfiles


Template = Literal["tools", "pii", "mcp", "empty"]


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")] = Path(),
    template: Annotated[Template, typer.Option("--template", help="What the first rule is about.")] = "tools",
) -> None:
    """Start a policy project: rules with tests, test cases, settings for editors and CI. All tests pass."""
    from pipeline.authoring.case import case_schema

    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        fail(f"{directory}: not an empty directory; give a new one", Exit.USAGE)
    templates = importlib.resources.files("pipeline").joinpath("templates")
    try:
        for source in ("common", template):
            _copy(templates.joinpath(source), directory)
        # The schema with which editors complete and check case files; it matches this version.
        (directory / ".vscode" / "cases.schema.json").write_text(json.dumps(case_schema(), indent=1) + "\n", "utf-8")
    except OSError as error:
        fail(f"{directory}: cannot be written: {error.strerror}; give another directory", Exit.USAGE)
    typer.echo(f"{directory}: created a policy project from the template {template}")
    typer.echo("next: cmf test" if directory == Path() else f"next: cd {directory} && cmf test")


def _copy(source: Traversable, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        place = target / entry.name.replace(HIDDEN, ".", 1) if entry.name.startswith(HIDDEN) else target / entry.name
        if entry.is_dir():
            _copy(entry, place)
        else:
            place.write_bytes(entry.read_bytes())
