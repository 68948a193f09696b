"""`cmf completion`: shell completion scripts. Spec: docs/spec/cli.md [CLI-72]."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script

Shell = Literal["bash", "zsh", "fish"]


def command(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell: `source <(cmf completion bash)`.

    zsh works the same way; for fish: `cmf completion fish | source`.
    """
    typer.echo(get_completion_script(prog_name="cmf", complete_var="_CMF_COMPLETE", shell=shell))
