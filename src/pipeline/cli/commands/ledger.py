"""The commands `cmf ledger …` and their options; their code is imported when they run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.commands.options import Place, WrittenAs
from pipeline.cli.commands.sections import FullHelpGroup


class Conversation(StrEnum):
    """The file formats of a conversation."""

    CANONICAL = "canonical"
    AGENT_THREADS = "agent_threads"
    OPENAI_CHAT = "openai_chat"
    ANTHROPIC_MESSAGES = "anthropic_messages"
    AISDK = "aisdk"


SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The conversation's id: sess_….")]
OutputAs = Annotated[WrittenAs, typer.Option("--format", help="The output format.")]

ledger = typer.Typer(cls=FullHelpGroup, help="Stored conversations.", no_args_is_help=True, rich_markup_mode=None)


@ledger.command("list")
def list_sessions(
    store: Place,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")] = 20,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the most recently changed conversations: id, subject, the client's session id, time."""
    from pipeline.cli import ledger as work

    work.list_sessions(store, limit=limit, as_json=output is WrittenAs.JSON)


@ledger.command("import")
def read(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The database; a file is created if it is missing.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The conversation, or - for standard input.")],
    source: Annotated[Conversation, typer.Option("--from", help="The format of FILE.")],
    session: Annotated[str, typer.Option("--session", help="The client's id for it.")],
    subject: Annotated[str | None, typer.Option("--subject", help="Whose it is; without it, anonymous.")] = None,
) -> None:
    """Append the messages of a file to a conversation, new or known, and print the conversation's id."""
    from pipeline.cli import ledger as work

    work.read(store, file, source=source.value, session=session, subject=subject)


@ledger.command("export")
def write(
    store: Place,
    session: SessionId,
    target: Annotated[Conversation, typer.Option("--to", help="The format to write.")] = Conversation.CANONICAL,
) -> None:
    """Print the committed messages of a conversation, in order."""
    from pipeline.cli import ledger as work

    work.write(store, session, target=target.value)


@ledger.command("cost")
def cost(
    store: Place,
    session: SessionId,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="Use this price table (YAML) instead of the recorded costs.")
    ] = None,
    reprice: Annotated[bool, typer.Option("--write", help="Store the new costs in the conversation.")] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Print the exact cost of a conversation by model. Exits with 1 if a model has no price."""
    from pipeline.cli import ledger as work

    work.cost(store, session, prices=prices, write_it=reprice, as_json=output is WrittenAs.JSON)


@ledger.command("tally")
def tally(
    store: Place,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show at most this many, the most recently changed.")
    ] = 100,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="Use this price table (YAML) instead of the recorded costs.")
    ] = None,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Print the cost, unanswered calls and tool failures of each conversation."""
    from pipeline.cli import ledger as work

    work.tally(store, limit=limit, prices=prices, as_json=output is WrittenAs.JSON)


@ledger.command("calls")
def calls(
    store: Place,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed calls instead, counted by tool and conversation.")
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the tool calls without a result."""
    from pipeline.cli import ledger as work

    work.calls(store, failed=failed, as_json=output is WrittenAs.JSON)


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    app.add_typer(ledger, name="ledger")


__all__ = ["add_to"]
