"""Groups of commands: their help, and how a command is found. Spec: cli.md [CLI-77]."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from pipeline.cli.examples import epilog


class CommandGroup(TyperGroup):
    """A group whose commands show examples in their help."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with its examples."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.epilog = epilog(cmd_name if ctx.parent is None else f"{ctx.info_name} {cmd_name}")
        return command


class FullHelpGroup(CommandGroup):
    """A group whose help shows the whole first sentence of each command, wrapped."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands without truncating them."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(400)) for name in self.list_commands(ctx)]
            )


__all__ = ["CommandGroup", "FullHelpGroup"]
