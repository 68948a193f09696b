"""The command `cmf` itself: its commands by purpose, each imported when it is asked for, so that `--help` is fast.

Spec: docs/spec/cli.md [CLI-77].
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Final

from pipeline.decisions.errors import needs

with needs("cli"):
    import typer
    from typer._click import Command
    from typer._click.shell_completion import CompletionItem
    from typer.core import TyperCommand
    from typer.main import get_command_from_info, get_group_from_info
    from typer.models import CommandInfo, TyperInfo

    from pipeline.cli.groups import COMMANDS, CommandGroup

SECTIONS: Final[dict[str, dict[str, str]]] = COMMANDS["sections"]
_SUMMARIES: Final = {name: text for section in SECTIONS.values() for name, text in section.items()}


class RootGroup(CommandGroup):
    """A group whose help lists its commands by section, and that imports a command when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name) for name in _SUMMARIES})  # suggested for a misspelt name

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported."""
        if cmd_name in _SUMMARIES:
            self.commands[cmd_name] = _imported(cmd_name)
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:
        """The commands, and options, that begin like this; none is imported."""
        names = [CompletionItem(name, help=text) for name, text in _SUMMARIES.items() if name.startswith(incomplete)]
        return names or Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # click's signature
        """Write the sections, aligned."""
        width = max(map(len, _SUMMARIES))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in section.items()])


def _imported(name: str) -> Any:
    """The command of that name: `command` in the module named like it, a function or a group."""
    command = import_module(f"pipeline.cli.{name.replace('-', '_')}").command
    settings: Any = {"pretty_exceptions_short": True, "rich_markup_mode": None}
    if isinstance(command, typer.Typer):
        return get_group_from_info(TyperInfo(command, name=name), suggest_commands=True, **settings)
    return get_command_from_info(CommandInfo(name, callback=command), **settings)


app = typer.Typer(
    name="cmf",
    cls=RootGroup,
    help="Judge LLM, tool and MCP traffic by policy.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
