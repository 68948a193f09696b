"""The command `cmf` itself, and the commands that are at hand beside it: schemas, pins, conversion, completion."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipeline.cli.commands.options import File, From, Wire
from pipeline.cli.commands.sections import SectionedGroup

app = typer.Typer(
    name="cmf",
    cls=SectionedGroup,
    help="Judge LLM, tool and MCP traffic by policy.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ConvertKind(StrEnum):
    """What a file to convert holds."""

    REQUEST = "request"
    RESPONSE = "response"
    STREAM = "stream"


class SchemaName(StrEnum):
    """The schemas of `cmf schema`."""

    VIEW = "view"
    MESSAGE = "message"
    DECISION = "decision"
    PROFILES = "profiles"
    CASE = "case"
    CONFIG = "config"


class Shell(StrEnum):
    """The shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cmf {version('cmf-pipeline')}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Judge LLM, tool and MCP traffic by policy."""


@app.command("pins")
def pins(
    file: File,
    source: From,
    namespace: Annotated[str | None, typer.Option("--namespace", help="The server that the tools belong to.")] = None,
) -> None:
    """Print the tool definitions of a request or an MCP `tools/list` result as data that pins them."""
    from pipeline.cli.pins import run

    run(file, source=source.value, namespace=namespace)


@app.command("schema")
def schema(
    name: Annotated[SchemaName, typer.Argument(metavar="NAME", help="The schema to print.")] = SchemaName.VIEW,
) -> None:
    """Print a JSON Schema: of the policy input, a message, a decision, tool profiles, test cases, or cmf.yaml."""
    from pipeline.cli.schema import run

    run(name.value)


@app.command("convert")
def convert(
    file: File,
    source: From,
    target: Annotated[Wire, typer.Option("--to", help="The format to write.")],
    kind: Annotated[ConvertKind, typer.Option("--kind", help="What FILE holds.")] = ConvertKind.REQUEST,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if anything would be lost.")] = False,
) -> None:
    """Translate between wire formats. What the target cannot express is dropped and listed on standard error.

    No policy is evaluated: this converts files, and is not meant for traffic.
    """
    from pipeline.cli.convert import run

    run(file, source=source.value, target=target.value, kind=kind.value, strict=strict)


@app.command("completion")
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell: `source <(cmf completion bash)`.

    zsh works the same way; for fish: `cmf completion fish | source`.
    """
    from pipeline.cli.completion import run

    run(shell.value)


__all__ = ["app"]
