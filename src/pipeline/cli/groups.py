"""Groups of commands: how a command is found, and its help with examples. Spec: cli.md [CLI-77], [CLI-93]."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperGroup

COMMANDS: Final = json.loads(Path(__file__).with_name("commands.json").read_bytes())
"""`sections`: section → command → a summary that fits a terminal of 80 columns. `examples`: command, or group and
command → lines as typed; `…` stands for the rest of an id."""


class CommandGroup(TyperGroup):
    """A group whose commands show examples in their help."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with its examples."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            lines = COMMANDS["examples"].get(cmd_name if ctx.parent is None else f"{ctx.info_name} {cmd_name}", ())
            title = "Examples:" if len(lines) > 1 else "Example:"
            command.epilog = "\n".join(("\b", title, *(f"  {line}" for line in lines))) if lines else None
        return command


class FullHelpGroup(CommandGroup):
    """A group whose help shows the whole first sentence of each command, wrapped."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands without truncating them."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(400)) for name in self.list_commands(ctx)]
            )


def command_group(help: str) -> typer.Typer:
    """A new group of commands."""
    return typer.Typer(cls=FullHelpGroup, help=help, no_args_is_help=True, rich_markup_mode=None)
