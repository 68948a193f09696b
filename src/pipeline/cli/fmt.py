"""`cmf fmt`: OPA's formatter on the Rego of a project; and finding and running optional programs. Spec: [CLI-31]."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from pipeline.cli.options import Project
from pipeline.cli.policy_places import policy_directory
from pipeline.cli.reading import Exit, fail

TOOLS: Final = Path(".tools") / "bin"  # where a checkout keeps its own copies
TIMEOUT_SECONDS: Final = 300.0


def command(
    directory: Project = Path(),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show the changes.")] = False,
) -> None:
    """Format Rego with OPA's formatter; needs the `opa` binary."""
    opa = find_program("opa", directory)
    if opa is None:
        fail("`cmf fmt` needs the `opa` binary, which is not on PATH; install it from openpolicyagent.org", Exit.USAGE)
    folder = policy_directory(directory)
    if not folder.exists():
        fail(f"{folder}: no such directory; give another one", Exit.USAGE)
    listed = run_program(opa, ["fmt", "--list", folder])
    if listed.returncode != 0:
        lines = [line.strip() for line in listed.stderr.splitlines() if line.strip()] or ["opa fmt failed"]
        complaint = next((line for line in lines if ".rego:" in line), lines[0])  # it names a place
        fail(f"{complaint}; correct it, then format", Exit.POLICY)
    stale = [name for name in listed.stdout.split("\n") if name]
    for name in stale:
        if diff:
            # OPA's own diff is coloured even in a pipe.
            old = Path(name).read_text(encoding="utf-8").splitlines(keepends=True)
            new = run_program(opa, ["fmt", name]).stdout.splitlines(keepends=True)
            typer.echo("".join(difflib.unified_diff(old, new, name, f"{name} (formatted)")), nl=False)
        else:
            typer.echo(name if check else f"formatted {name}")
    if stale and not (check or diff):
        run_program(opa, ["fmt", "--write", folder])
    raise typer.Exit(int(Exit.REFUSED if check and stale else Exit.OK))


def find_program(name: str, beside: Path) -> str | None:
    """The path of a program, on PATH or in `.tools/bin` of `beside` or a directory above it; None if not found."""
    on_path = shutil.which(name)
    if on_path is not None:
        return on_path
    home = beside.resolve()
    return next((where for folder in (home, *home.parents) if (where := shutil.which(name, path=folder / TOOLS))), None)


def run_program(program: str, arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """The program's output and exit code; the command fails with one line if it cannot be run or hangs."""
    try:
        return subprocess.run(  # noqa: S603 - a program found by name, never built from input
            [program, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        fail(f"{Path(program).name}: cannot be run, or does not finish; check the binary", Exit.EVALUATION)
