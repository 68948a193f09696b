"""The commands for who writes policies, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Project = Annotated[Path, typer.Argument(metavar="DIR", help="A project, or a policy directory.")]


def doc(
    directory: Project = Path(),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write; by default DIR/docs/rules.")] = None,
) -> None:
    """Write a page for each rule, from its METADATA, settings, samples and cases, and a list of all."""
    from pipeline.cli.doc import run

    run(directory, out=out)


def fmt(
    directory: Project = Path(),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; leave with 1 if something would be.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show what would be.")] = False,
) -> None:
    """Write Rego as OPA's formatter does; needs the `opa` binary, and knows no second style."""
    from pipeline.cli.fmt import run

    run(directory, check=check, diff=diff)


def add_to(app: typer.Typer) -> None:
    """Make these commands of `app`."""
    for name, command in (("doc", doc), ("fmt", fmt)):
        app.command(name)(command)
