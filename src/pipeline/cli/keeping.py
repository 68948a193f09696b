"""The commands `cmf ledger …` and their options; what they do is imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.auditing import Place
from pipeline.cli.replaying import WrittenAs
from pipeline.cli.sections import Whole


class Conversation(StrEnum):
    """How a conversation is written in a file."""

    CANONICAL = "canonical"
    AGENT_THREADS = "agent_threads"
    OPENAI_CHAT = "openai_chat"
    ANTHROPIC_MESSAGES = "anthropic_messages"
    AISDK = "aisdk"


SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The conversation's id: sess_….")]
OutputAs = Annotated[WrittenAs, typer.Option("--format", help="How to write it.")]

ledger = typer.Typer(cls=Whole, help="Conversations that were kept.", no_args_is_help=True, rich_markup_mode=None)


@ledger.command("list")
def list_sessions(
    store: Place,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = 20,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the conversations that were changed last: id, whose, what the client calls it, when."""
    from pipeline.cli import ledger as does

    does.list_sessions(store, limit=limit, as_json=output is WrittenAs.JSON)


@ledger.command("import")
def read(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The database; a file is made if it is missing.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The conversation, or - for standard input.")],
    source: Annotated[Conversation, typer.Option("--from", help="The format that FILE is in.")],
    session: Annotated[str, typer.Option("--session", help="What the client calls it.")],
    subject: Annotated[str | None, typer.Option("--subject", help="Whose it is; without it, of nobody known.")] = None,
) -> None:
    """Take a conversation in, after what it has already, and print its id."""
    from pipeline.cli import ledger as does

    does.read(store, file, source=source.value, session=session, subject=subject)


@ledger.command("export")
def write(
    store: Place,
    session: SessionId,
    target: Annotated[Conversation, typer.Option("--to", help="The format to write.")] = Conversation.CANONICAL,
) -> None:
    """Print a conversation: what was committed of it, in order."""
    from pipeline.cli import ledger as does

    does.write(store, session, target=target.value)


@ledger.command("cost")
def cost(
    store: Place,
    session: SessionId,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="Under this price table (YAML), not as it was.")
    ] = None,
    reprice: Annotated[bool, typer.Option("--write", help="Write the new costs into the conversation.")] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Print what a conversation cost, by model, to the last digit. It leaves with 1 if a model has no price."""
    from pipeline.cli import ledger as does

    does.cost(store, session, prices=prices, write_it=reprice, as_json=output is WrittenAs.JSON)


@ledger.command("tally")
def tally(
    store: Place,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most, those changed last.")] = 100,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="Under this price table (YAML), not as it was.")
    ] = None,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Print of each conversation what it cost, how many calls nobody answered, and which tools failed how often."""
    from pipeline.cli import ledger as does

    does.tally(store, limit=limit, prices=prices, as_json=output is WrittenAs.JSON)


@ledger.command("calls")
def calls(
    store: Place,
    failed: Annotated[
        bool, typer.Option("--failed", help="Those that failed, counted by tool and conversation.")
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the tool calls that nobody answered."""
    from pipeline.cli import ledger as does

    does.calls(store, failed=failed, as_json=output is WrittenAs.JSON)
