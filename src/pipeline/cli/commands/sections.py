"""The commands by purpose, in the order in which people need them. Spec: cli.md [CLI-77]."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

from pipeline.cli.commands.examples import epilog

SECTIONS: Final = {
    "Write policies": {
        "init": "Start a project: rules, tests, cases, editor settings",
        "check": "Report everything that is wrong with policies",
        "test": "Run test cases and Rego tests",
        "eval": "Judge one request, response or message",
        "why": "Explain which rules hit, and where the others stopped",
        "view": "Show what a policy sees, with the path to each value",
        "playground": "Try out policies as you type, on a local page",
        "fmt": "Format Rego, as OPA does",
        "doc": "Write a page for each rule",
        "case": "Turn a recorded input into a test case",
        "impact": "Report what a change would have done to past traffic",
        "bench": "Measure how long decisions take, and which rules do",
    },
    "Run them": {
        "serve": "Run the gateway; --demo needs no settings and no keys",
        "config": "The gateway's settings: new, check, show, key",
        "doctor": "Check that everything needed is present and works",
        "mcp-proxy": "Judge the traffic between an MCP client and a server",
        "bundle": "Policies as OPA bundles: build, sign, verify, inspect",
    },
    "Decide and prove": {
        "approvals": "Approvals of people: list, show, decide",
        "declassify": "Lift a label from a session, for a while",
        "review": "Review and sign off decisions, on local pages",
        "audit": "Records of decisions: find, verify, export",
        "ledger": "Stored conversations, and what they cost",
    },
    "At hand": {
        "convert": "Translate between wire formats",
        "schema": "JSON Schemas: policy input, cases, cmf.yaml and others",
        "pins": "Pin the definitions of tools",
        "completion": "Complete commands in a shell: bash, zsh, fish",
    },
}
"""Section → command → a summary that fits a terminal of 80 columns."""


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


class SectionedGroup(CommandGroup):
    """A group whose help lists its commands by section; the rest comes last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections, aligned."""
        names = self.list_commands(ctx)
        listed = {name for section in SECTIONS.values() for name in section}
        more = {name: self.commands[name].get_short_help_str(60) for name in names if name not in listed}
        width = max(map(len, names))
        for title, section in (*SECTIONS.items(), ("More", more)):
            if rows := [(name.ljust(width), text) for name, text in section.items() if name in names]:
                with formatter.section(title):
                    formatter.write_dl(rows)


__all__ = ["SECTIONS", "CommandGroup", "FullHelpGroup", "SectionedGroup"]
