"""`cmf completion`: shell completion scripts. Spec: docs/spec/cli.md [CLI-72]."""

from __future__ import annotations

import typer
from typer._completion_shared import get_completion_script


def run(shell: str) -> None:
    """Print the script for `shell`."""
    typer.echo(get_completion_script(prog_name="cmf", complete_var="_CMF_COMPLETE", shell=shell))


__all__ = ["run"]
