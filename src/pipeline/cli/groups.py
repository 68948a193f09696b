"""Groups of commands: how a command is found, and its help with examples. Spec: cli.md [CLI-77], [CLI-93]."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

EXAMPLES: Final = {
    "init": ("cmf init demo && cd demo && cmf test", "cmf init guards --template mcp"),
    "check": ("cmf check", "cmf check policy --fail-on-warn"),
    "test": ("cmf test", 'cmf test --run "only editors" --coverage', "cmf test --format junit > tests.xml"),
    "eval": (
        "cmf eval request.json -p shipped -p policy --subject ann",
        "cmf eval request.json --diff",
        "cmf eval answer.json --store cmf.db --session s1 --subject ann",
    ),
    "why": ("cmf why request.json --view 2", 'cmf why cases/mail.yaml --case "a reader deletes"'),
    "view": ("cmf view request.json", "cmf view answer.json --kind response --format json"),
    "playground": ("cmf playground", "cmf playground -p policy --port 0"),
    "fmt": ("cmf fmt", "cmf fmt --check"),
    "doc": ("cmf doc", "cmf doc -o site/rules"),
    "case": ("cmf case from-record dec_… --records judged.jsonl > cases/incident.yaml",),
    "case from-record": (
        "cmf case from-record dec_… --records judged.jsonl > cases/incident.yaml",
        'cmf case from-record dec_… --records cmf.db --as carol --reason "ticket 12"',
    ),
    "impact": (
        "cmf impact --base main --head policy --records judged.jsonl",
        "cmf impact --base main --head policy --records cmf.db --max-newly-denied 0",
    ),
    "bench": ("cmf bench judged.jsonl -p policy",),
    "serve": ("cmf serve --demo", "cmf serve -c cmf.yaml"),
    "config": ("cmf config new > cmf.yaml", "cmf config check"),
    "config new": ("cmf config new > cmf.yaml",),
    "config show": ("cmf config show", "cmf config show -c /etc/cmf/cmf.yaml --format json"),
    "config check": ("cmf config check -c /etc/cmf/cmf.yaml",),
    "config key": ("cmf config key ci --subject ci-runner --role agent",),
    "doctor": ("cmf doctor", "cmf doctor -c cmf.yaml --upstreams"),
    "mcp-proxy": (
        "cmf mcp-proxy --name files --pins pins.json -- npx -y SERVER notes",
        "cmf mcp-proxy --name issues --url https://mcp.example/mcp --key-env TOKEN",
    ),
    "bundle": ("cmf bundle build policy.tar.gz -p policy", "cmf bundle inspect policy.tar.gz"),
    "bundle build": (
        "cmf bundle build policy.tar.gz -p policy",
        "cmf bundle build policy.tar.gz -p policy \\",
        "    --signing-key signer.pem --algorithm ES256",
    ),
    "bundle sign": ("cmf bundle sign policy.tar.gz --signing-key signer.pem --algorithm ES256",),
    "bundle verify": ("cmf bundle verify policy.tar.gz --public-key public.pem --algorithm ES256",),
    "bundle inspect": ("cmf bundle inspect policy.tar.gz",),
    "approvals": ("cmf approvals list cmf.db", "cmf approvals approve cmf.db apr_… --as bob"),
    "approvals list": (
        "cmf approvals list cmf.db",
        "cmf approvals list cmf.db --standing",
        "cmf approvals list redis://localhost/0 --format json",
    ),
    "approvals show": ("cmf approvals show cmf.db apr_… --seal-key seal.key",),
    "approvals approve": (
        "cmf approvals approve cmf.db apr_… --as bob",
        "cmf approvals approve cmf.db apr_… --as bob --scope session --for 2h",
    ),
    "approvals revoke": ("cmf approvals revoke cmf.db apr_… --as bob",),
    "approvals deny": ("cmf approvals deny cmf.db apr_… --as bob",),
    "declassify": (
        "cmf declassify cmf.db secret --subject ann --session s1 \\",
        '    --as eve --reason "ticket 12" --for 30m',
    ),
    "review": ("cmf review cmf.db --as alice --role signer", "cmf review cmf.db --proxy-secret proxy-secret.txt"),
    "audit": ('cmf audit find cmf.db "verdict:deny since:1d"', "cmf audit verify cmf.db --heads heads.jsonl"),
    "audit verify": (
        "cmf audit verify cmf.db --heads heads.jsonl --public-key public.pem",
        "cmf audit verify evidence.zip",
    ),
    "audit export": (
        "cmf audit export cmf.db evidence.zip --query verdict:deny",
        'cmf audit export cmf.db all.zip --contents --as carol --reason "ticket 12"',
    ),
    "audit find": ('cmf audit find cmf.db "verdict:deny rule:tools/* since:7d"', "cmf audit find cmf.db session:s1"),
    "audit tail": ("cmf audit tail cmf.db --follow",),
    "audit show": ("cmf audit show cmf.db dec_…",),
    "audit head": ("cmf audit head cmf.db >> heads.jsonl",),
    "audit key": ("cmf audit key cmf.db.key > public.pem",),
    "audit reveal": ('cmf audit reveal cmf.db dec_… --as carol --reason "ticket 12"',),
    "audit ask": ('cmf audit ask cmf.db dec_… --as carol --reason "ticket 12"',),
    "audit asks": ("cmf audit asks cmf.db",),
    "audit grant": ('cmf audit grant cmf.db ask_… --as dan --reason "ticket 12" --minutes 30',),
    "audit grants": ("cmf audit grants cmf.db",),
    "audit break-glass": (
        "cmf audit break-glass cmf.db --subject ann \\",
        '    --as carol --second dan --reason "ticket 12"',
    ),
    "audit close": ('cmf audit close cmf.db ovr_… --as carol --reason "it is over"',),
    "audit override": (
        "cmf audit override cmf.db --rule tools/tool_allowed --subject ann \\",
        '    --as carol --second dan --reason "ticket 12" --minutes 30',
    ),
    "audit overrides": ("cmf audit overrides cmf.db",),
    "audit two-people": ('cmf audit two-people cmf.db on --as carol --reason "house rule 4"',),
    "audit erase": (
        'cmf audit erase cmf.db --subject ann --as carol --reason "request of ann"',
        'cmf audit erase cmf.db --before 400d --as carol --reason "house rule 9"',
    ),
    "audit hold": ('cmf audit hold cmf.db --session s1 --as carol --reason "a court asks"',),
    "audit holds": ("cmf audit holds cmf.db",),
    "audit release": ('cmf audit release cmf.db hold_… --as carol --reason "the court is done"',),
    "audit sweep": ("cmf audit sweep cmf.db",),
    "ledger": ("cmf ledger list cmf.db", "cmf ledger export cmf.db sess_… --to openai_chat"),
    "ledger list": ("cmf ledger list cmf.db",),
    "ledger import": ("cmf ledger import cmf.db chat.json --from openai_chat --session s1",),
    "ledger export": ("cmf ledger export cmf.db sess_… --to openai_chat",),
    "ledger cost": ("cmf ledger cost cmf.db sess_…",),
    "ledger tally": ("cmf ledger tally cmf.db --prices prices.yaml",),
    "ledger calls": ("cmf ledger calls cmf.db --failed",),
    "convert": (
        "cmf convert request.json --from openai_chat --to anthropic_messages",
        "cmf convert stream.txt --from gemini --to openai_chat --kind stream",
    ),
    "schema": ("cmf schema view > input.schema.json", "cmf schema config"),
    "profiles": ("cmf profiles draft tools-list.json > profiles.yaml", "cmf profiles show send_email tools-list.json"),
    "profiles draft": (
        "cmf profiles draft tools-list.json > profiles.yaml",
        'cmf profiles draft --server "npx -y SERVER" --namespace github',
        "cmf profiles draft --records judged.jsonl",
    ),
    "profiles show": (
        "cmf profiles show send_email tools-list.json --profiles profiles.yaml",
        "cmf profiles show github/delete_repository",
    ),
    "profiles check": ("cmf profiles check profiles.yaml --records judged.jsonl",),
    "pins": ("cmf pins tools-list.json --from mcp --namespace github > pins/data.json",),
    "completion": ("source <(cmf completion bash)",),
}
"""Command, or group and command → lines as typed. `…` stands for the rest of an id."""


class CommandGroup(TyperGroup):
    """A group whose commands show examples in their help."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with its examples."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.epilog = _epilog(cmd_name if ctx.parent is None else f"{ctx.info_name} {cmd_name}")
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


def _epilog(command: str) -> str | None:
    """The end of a command's help; None if it has no example."""
    lines = EXAMPLES.get(command)
    if not lines:
        return None
    return "\n".join(("\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)))
