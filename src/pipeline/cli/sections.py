"""The list of commands by what they are for, in the order in which people come to need them. Spec: cli.md [CLI-77]."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

from pipeline.cli.examples import epilog
from pipeline.cli.spellings import as_now

SECTIONS: Final = {
    "Write policies": {
        "init": "Begin a project: rules, tests, cases, settings for editors",
        "check": "Say everything that is wrong with policies",
        "test": "Judge cases, and run the Rego tests",
        "eval": "Judge one request, response or message",
        "why": "Say which rules hit, and where the others stopped",
        "view": "Show what a policy sees, with the path to each value",
        "playground": "Try policy out on a local page, while it is typed",
        "fmt": "Format Rego, as OPA does",
        "doc": "Write a page for each rule",
        "case": "Make a test case of what was judged",
        "impact": "Say what a change would have done to what was judged",
        "bench": "Measure how long decisions take, and which rules do",
    },
    "Run them": {
        "serve": "The gateway; --demo needs no settings and no keys",
        "config": "The gateway's settings: new, check, show, key",
        "doctor": "Say whether all that is needed is there and works",
        "mcp-proxy": "Judge what an MCP client and its server say",
        "bundle": "Policies as OPA bundles: build, sign, verify, inspect",
    },
    "Decide and prove": {
        "approvals": "What waits for a person",
        "declassify": "Lift a label from a session, for a while",
        "review": "Read, judge and sign off decisions, on local pages",
        "audit": "What was decided: find it, prove it, take it away",
        "ledger": "Conversations that were kept, and what they cost",
    },
    "At hand": {
        "convert": "Translate between wire formats",
        "schema": "JSON Schemas: policy input, cases, cmf.yaml and others",
        "pins": "Pin the definitions of tools",
        "completion": "Complete commands in a shell: bash, zsh, fish",
    },
}
"""By section, each command in one line that a terminal of 80 columns does not cut."""


class Told(TyperGroup):
    """A group whose commands tell examples in their help, and understand what their arguments were called before."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with its examples."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.epilog = epilog(cmd_name if ctx.parent is None else f"{ctx.info_name} {cmd_name}")
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with, and what is left of them, as it is spelled now."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, as_now(command, rest)


class Whole(Told):
    """A group whose help says of each command its whole first sentence, on as many lines as that takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, none cut off."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(400)) for name in self.list_commands(ctx)]
            )


class Sections(Told):
    """A group whose help lists its commands by section; what is in none comes last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections, all in one width."""
        names = self.list_commands(ctx)
        told = {name for section in SECTIONS.values() for name in section}
        more = {name: self.commands[name].get_short_help_str(60) for name in names if name not in told}
        width = max(map(len, names))
        for title, section in (*SECTIONS.items(), ("More", more)):
            if rows := [(name.ljust(width), text) for name, text in section.items() if name in names]:
                with formatter.section(title):
                    formatter.write_dl(rows)


__all__ = ["SECTIONS", "Sections", "Told", "Whole"]
