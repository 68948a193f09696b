"""`cmf ledger`: listing, importing, exporting and pricing conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cmf.adapters.wire import loss
from cmf.json.codec import dumps
from cmf.models.pricing import PriceTable, parse_table
from pipeline.cli.groups import FullHelpGroup
from pipeline.cli.options import Place, WrittenAs
from pipeline.cli.reading import Exit, fail, one_line_errors, read_bytes
from pipeline.decisions.context import shown_subject, subject_key
from pipeline.decisions.display import counted, escaped, visible
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.timestamps import instant_of
from pipeline.store.conversation_costs import Cost, cost_of
from pipeline.store.conversation_formats import read_conversation, write_conversation
from pipeline.store.conversation_totals import tallies
from pipeline.store.conversations import Ledger
from pipeline.store.database import Store
from pipeline.store.engine import check_is_store, open_to_read


class Conversation(StrEnum):
    """The file formats of a conversation."""

    CANONICAL = "canonical"
    AGENT_THREADS = "agent_threads"
    OPENAI_CHAT = "openai_chat"
    ANTHROPIC_MESSAGES = "anthropic_messages"
    AISDK = "aisdk"


SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The conversation's id: sess_….")]
OutputAs = Annotated[WrittenAs, typer.Option("--format", help="The output format.")]
command = typer.Typer(cls=FullHelpGroup, help="Stored conversations.", no_args_is_help=True, rich_markup_mode=None)


@command.command("list")
def list_sessions(
    store: Place,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")] = 20,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the most recently changed conversations: id, subject, the client's session id, time."""
    with _opened(store) as ledger:
        found = ledger.sessions(limit=limit)
    if not found:
        typer.echo("cmf: no conversations here", err=True)
    for one in found:
        if output is WrittenAs.JSON:
            typer.echo(escaped(dumps(asdict(one)).decode()))
            continue
        at = instant_of(one.updated_at).strftime("%Y-%m-%d %H:%M:%S")
        typer.echo(visible(f"{one.id}  {at}  {shown_subject(one.subject or '-')}  {one.session or '-'}"))


@command.command("import")
def read(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The database; a file is created if it is missing.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The conversation, or - for standard input.")],
    source: Annotated[Conversation, typer.Option("--from", help="The format of FILE.")],
    session: Annotated[str, typer.Option("--session", help="The client's id for it.")],
    subject: Annotated[str | None, typer.Option("--subject", help="Whose it is; without it, anonymous.")] = None,
) -> None:
    """Append the messages of a file to a conversation, new or known, and print the conversation's id."""
    with one_line_errors(file):
        messages = read_conversation(read_bytes(file), source)
        with Store.named(store, keyless=True) as opened:
            known = opened.ledger().add(subject_key(subject), session, messages, provider=source)
    typer.echo(known)


@command.command("export")
def write(
    store: Place,
    session: SessionId,
    target: Annotated[Conversation, typer.Option("--to", help="The format to write.")] = Conversation.CANONICAL,
) -> None:
    """Print the committed messages of a conversation, in order."""
    with _opened(store) as ledger, loss.collecting() as losses:
        ledger.session(session)
        written = write_conversation(ledger.messages(session), target)
    for one in losses:
        typer.echo(f"cmf: dropped {visible(one.block_type)}: {visible(one.reason)} [{one.adapter}]", err=True)
    typer.echo(escaped(written.decode().rstrip("\n")))


@command.command("cost")
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
    with _opened(store, to_write=reprice) as ledger:
        ledger.session(session)
        table = _table(prices)
        if reprice and table is None:
            raise ConfigError("--write needs a price table", hint="give it with --prices")
        found = ledger.reprice(session, table) if reprice and table else cost_of(ledger.messages(session), table)
    if output is WrittenAs.JSON:
        typer.echo(escaped(dumps(_cost_shown(found)).decode()))
    else:
        for model, amount in sorted(found.by_model.items()):
            typer.echo(visible(f"{amount:>16} USD  {model or '-'}"))
        typer.echo(f"{found.total:>16} USD  total")
    if found.unpriced:
        fail(f"{counted(len(found.unpriced), 'message')} without a price, not included", Exit.REFUSED)


@command.command("tally")
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
    with _opened(store) as ledger:
        found = tallies(ledger, limit=limit, prices=_table(prices))
    if not found:
        typer.echo("cmf: no conversations here", err=True)
    for one in found:
        if output is WrittenAs.JSON:
            counted = {"unanswered": one.unanswered, "failed": dict(one.failed)}
            shown = {"session": asdict(one.session), "cost": _cost_shown(one.cost), **counted}
            typer.echo(escaped(dumps(shown).decode()))
            continue
        more = "+?" if one.cost.unpriced else ""
        failed = ", ".join(f"{name} {times}" for name, times in one.failed.items()) or "-"
        typer.echo(
            visible(f"{one.session.id}  {one.cost.total:>14}{more} USD  {one.unanswered:>4} waiting  failed: {failed}")
        )


@command.command("calls")
def calls(
    store: Place,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed calls instead, counted by tool and conversation.")
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the tool calls without a result."""
    with _opened(store) as ledger:
        if failed:
            counted = ledger.failed_tools()
            if not counted:
                typer.echo("cmf: no failed calls", err=True)
            if output is WrittenAs.JSON:
                typer.echo(escaped(dumps(counted).decode()))
            else:
                for session, tools in counted.items():
                    for name, times in tools.items():
                        typer.echo(visible(f"{session}  {times:>6}  {name}"))
            return
        waiting = ledger.unanswered()
        if not waiting:
            typer.echo("cmf: no unanswered calls", err=True)
        for one in waiting:
            if output is WrittenAs.JSON:
                typer.echo(escaped(dumps(asdict(one)).decode()))
            else:
                typer.echo(visible(f"{one.session_id}  {one.message_id}  {one.id}  {one.name}"))


def _table(prices: Path | None) -> PriceTable | None:
    with one_line_errors(str(prices)):
        return None if prices is None else parse_table(read_bytes(str(prices)).decode("utf-8", "replace"))


def _cost_shown(cost: Cost) -> dict[str, Any]:
    by_model = {model: str(amount) for model, amount in cost.by_model.items()}
    return {"total_usd": str(cost.total), "by_model": by_model, "unpriced": list(cost.unpriced)}


@contextmanager
def _opened(store: str, *, to_write: bool = False) -> Iterator[Ledger]:
    with one_line_errors():
        if to_write:
            check_is_store(store)
        else:
            open_to_read(store).dispose()  # creates none, and refuses one of another schema
        with Store.named(store, keyless=True) as opened:
            yield opened.ledger()
