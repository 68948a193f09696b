"""`cmf completion`: shell completion scripts. Spec: docs/spec/cli.md [CLI-72]."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script


class Shell(StrEnum):
    """The shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell: `source <(cmf completion bash)`.

    zsh works the same way; for fish: `cmf completion fish | source`.
    """
    typer.echo(get_completion_script(prog_name="cmf", complete_var="_CMF_COMPLETE", shell=shell))
