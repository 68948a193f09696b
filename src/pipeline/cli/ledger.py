"""`cmf ledger`: listing, importing, exporting and pricing conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline.cli.groups import command_group
from pipeline.cli.options import OutputAs, Place
from pipeline.cli.reading import Exit, fail, one_line_errors, read_bytes
from pipeline.cli.rendering import write_line, write_rows
from pipeline.cli.stores import opened_for_search
from pipeline.decisions.display import counted, escaped, visible
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.timestamps import instant_of

if TYPE_CHECKING:
    from cmf.models.pricing import PriceTable
    from pipeline.store.conversations import Cost, Ledger, LedgerSession, Tally


Conversation = Literal["canonical", "agent_threads", "openai_chat", "anthropic_messages", "aisdk"]


StoredId = Annotated[str, typer.Argument(metavar="SESSION", help="The conversation's id: sess_….")]
Prices = Annotated[
    Path | None, typer.Option("--prices", help="Use this price table (YAML) instead of the recorded costs.")
]
NO_CONVERSATIONS = "no conversations here"
command = command_group("Stored conversations.")


@command.command("list")
def list_sessions(
    store: Place,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")] = 20,
    output: OutputAs = "text",
) -> None:
    """List the most recently changed conversations: id, subject, the client's session id, time."""
    from pipeline.decisions.context import shown_subject

    with _opened(store) as ledger:
        sessions = ledger.sessions(limit=limit)

    def line(stored: LedgerSession) -> str:
        at = instant_of(stored.updated_at).strftime("%Y-%m-%d %H:%M:%S")
        return f"{stored.id}  {at}  {shown_subject(stored.subject or '-')}  {stored.session or '-'}"

    write_rows(sessions, output, document=asdict, line=line, nothing=NO_CONVERSATIONS)


@command.command("import")
def read(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The database; a file is created if it is missing.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The conversation, or - for standard input.")],
    source: Annotated[Conversation, typer.Option("--from", help="The format of FILE.")],
    session: Annotated[str, typer.Option("--session", help="The client's id for it.")],
    subject: Annotated[str | None, typer.Option("--subject", help="Whose it is; without it, anonymous.")] = None,
) -> None:
    """Append the messages of a file to a conversation, new or known, and print the conversation's id."""
    from pipeline.decisions.context import subject_key
    from pipeline.store.conversation_formats import read_conversation
    from pipeline.store.database import Store

    with one_line_errors(file):
        messages = read_conversation(read_bytes(file), source)
        with Store.named(store, keyless=True) as opened:
            conversation = opened.ledger().add(subject_key(subject), session, messages, provider=source)
    typer.echo(conversation)


@command.command("export")
def write(
    store: Place,
    session: StoredId,
    target: Annotated[Conversation, typer.Option("--to", help="The format to write.")] = "canonical",
) -> None:
    """Print the committed messages of a conversation, in order."""
    from cmf.adapters.wire import loss
    from pipeline.store.conversation_formats import write_conversation

    with _opened(store) as ledger, loss.collecting() as losses:
        ledger.session(session)
        written = write_conversation(ledger.messages(session), target)
    for lost in losses:
        typer.echo(f"cmf: dropped {visible(lost.block_type)}: {visible(lost.reason)} [{lost.adapter}]", err=True)
    typer.echo(escaped(written.decode().rstrip("\n")))


@command.command("cost")
def cost(
    store: Place,
    session: StoredId,
    prices: Prices = None,
    reprice: Annotated[bool, typer.Option("--write", help="Store the new costs in the conversation.")] = False,
    output: OutputAs = "text",
) -> None:
    """Print the exact cost of a conversation by model. Exits with 1 if a model has no price."""
    from pipeline.store.conversations import cost_of

    with _opened(store, to_write=reprice) as ledger:
        ledger.session(session)
        table = _table(prices)
        if reprice and table is None:
            raise ConfigError("--write needs a price table", hint="give it with --prices")
        cost = ledger.reprice(session, table) if reprice and table else cost_of(ledger.messages(session), table)
    if output == "json":
        write_line(_cost_shown(cost))
    else:
        for model, amount in sorted(cost.by_model.items()):
            typer.echo(visible(f"{amount:>16} USD  {model or '-'}"))
        typer.echo(f"{cost.total:>16} USD  total")
    if cost.unpriced:
        fail(f"{counted(len(cost.unpriced), 'message')} without a price, not included", Exit.REFUSED)


@command.command("tally")
def tally(
    store: Place,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show at most this many, the most recently changed.")
    ] = 100,
    prices: Prices = None,
    output: OutputAs = "text",
) -> None:
    """Print the cost, unanswered calls and tool failures of each conversation."""
    from pipeline.store.conversations import tallies

    with _opened(store) as ledger:
        totals = tallies(ledger, limit=limit, prices=_table(prices))

    def document(tally: Tally) -> dict[str, Any]:
        calls = {"unanswered": tally.unanswered, "failed": dict(tally.failed)}
        return {"session": asdict(tally.session), "cost": _cost_shown(tally.cost), **calls}

    def line(tally: Tally) -> str:
        cost = f"{tally.cost.total:>14}{'+?' if tally.cost.unpriced else ''} USD"
        failed = ", ".join(f"{name} {times}" for name, times in tally.failed.items()) or "-"
        return f"{tally.session.id}  {cost}  {tally.unanswered:>4} waiting  failed: {failed}"

    write_rows(totals, output, document=document, line=line, nothing=NO_CONVERSATIONS)


@command.command("calls")
def calls(
    store: Place,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed calls instead, counted by tool and conversation.")
    ] = False,
    output: OutputAs = "text",
) -> None:
    """List the tool calls without a result."""
    with _opened(store) as ledger:
        by_session = ledger.failed_tools() if failed else {}
        waiting = [] if failed else ledger.unanswered()
    if not failed:
        line = "{0.session_id}  {0.message_id}  {0.id}  {0.name}".format
        write_rows(waiting, output, document=asdict, line=line, nothing="no unanswered calls")
        return
    if not by_session:
        typer.echo("cmf: no failed calls", err=True)
    if output == "json":
        write_line(by_session)
        return
    for session, tools in by_session.items():
        for name, times in tools.items():
            typer.echo(visible(f"{session}  {times:>6}  {name}"))


def _table(prices: Path | None) -> PriceTable | None:
    from cmf.models.pricing import parse_table

    with one_line_errors(str(prices)):
        return None if prices is None else parse_table(read_bytes(str(prices)).decode("utf-8", "replace"))


def _cost_shown(cost: Cost) -> dict[str, Any]:
    by_model = {model: str(amount) for model, amount in cost.by_model.items()}
    return {"total_usd": str(cost.total), "by_model": by_model, "unpriced": list(cost.unpriced)}


@contextmanager
def _opened(store: str, *, to_write: bool = False) -> Iterator[Ledger]:
    from pipeline.store.database import Store
    from pipeline.store.engine import check_is_store

    with one_line_errors():
        if to_write:
            check_is_store(store)
        with Store.named(store, keyless=True) if to_write else opened_for_search(store) as opened:
            yield opened.ledger()
