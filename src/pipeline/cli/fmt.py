"""`cmf fmt`: OPA's formatter on the Rego of a project. Spec: docs/spec/cli.md [CLI-31]."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.binaries import found, run_program
from pipeline.cli.policy_places import policy_directory
from pipeline.cli.reading import Exit, fail

Project = Annotated[Path, typer.Argument(metavar="DIR", help="A project, or a policy directory.")]


def command(
    directory: Project = Path(),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show the changes.")] = False,
) -> None:
    """Format Rego with OPA's formatter; needs the `opa` binary."""
    opa = found("opa", directory)
    if opa is None:
        fail("`cmf fmt` needs the `opa` binary, which is not on PATH; install it from openpolicyagent.org", Exit.USAGE)
    folder = policy_directory(directory)
    if not folder.exists():
        fail(f"{folder}: no such directory; give another one", Exit.USAGE)
    listed = run_program(opa, ["fmt", "--list", folder])
    if listed.returncode != 0:
        fail(f"{_complaint(listed.stderr)}; correct it, then format", Exit.POLICY)
    stale = [name for name in listed.stdout.split("\n") if name]
    for name in stale:
        if diff:
            typer.echo(_difference(name, run_program(opa, ["fmt", name]).stdout), nl=False)
        else:
            typer.echo(name if check else f"formatted {name}")
    if stale and not (check or diff):
        run_program(opa, ["fmt", "--write", folder])
    raise typer.Exit(int(Exit.REFUSED if check and stale else Exit.OK))


def _complaint(output: str) -> str:
    """The first line of OPA's error that names a place."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["opa fmt failed"]
    return next((line for line in lines if ".rego:" in line), lines[0])


def _difference(name: str, formatted: str) -> str:
    """A unified diff from the file to its formatted text; OPA's own is coloured even in a pipe."""
    old = Path(name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, formatted.splitlines(keepends=True), name, f"{name} (formatted)"))
