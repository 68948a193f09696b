"""`cmf approvals`: human decisions, on a store shared with running pipelines.

Whoever can open the store is trusted to be who they say, with the permission that the step needs [CLI-23].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cmf.json.codec import dumps
from pipeline.approvals.queue import Approvals
from pipeline.audit.record import Record
from pipeline.cli.groups import FullHelpGroup
from pipeline.cli.options import OutputAs, Person, SealKey, SessionStore, SigningKey, WrittenAs
from pipeline.cli.reading import one_line_errors, read_seal_key
from pipeline.cli.recorded import opened_store
from pipeline.decisions.approval import Approval
from pipeline.decisions.authority import APPROVE, holder
from pipeline.decisions.display import escaped, escaped_json, visible
from pipeline.decisions.timestamps import iso
from pipeline.run.assembly import REDIS, open_sessions
from pipeline.sessions import base
from pipeline.store.recorder import Recorder

command = typer.Typer(cls=FullHelpGroup, help="Approvals of people.", no_args_is_help=True, rich_markup_mode=None)
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, from the decision.")]


@command.command("list")
def list_approvals(
    store: SessionStore,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List pending approvals, oldest first."""
    with _approvals(store, None) as approvals:
        waiting = approvals.pending()
    if output is WrittenAs.JSON:
        typer.echo(escaped(dumps([_document(one) for one in waiting]).decode()))
        return
    if not waiting:
        typer.echo("cmf: no pending approvals", err=True)
    for one in waiting:
        asked = one.asked
        rules = ", ".join(asked.rules)
        who = f"{one.key.subject} in {one.key.session}"
        typer.echo(visible(f"{asked.id}  {asked.target}  {who}  by {rules}  until {iso(asked.expires_at)}"))


@command.command("show")
def show(
    store: SessionStore,
    id: ApprovalId,
    seal_key: SealKey = None,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Show one approval; with the seal key, also its content."""
    with _approvals(store, seal_key) as approvals:
        found = approvals.get(id)
        about = approvals.shown(id) if seal_key is not None else None
    document = _document(found) | ({} if about is None else {"about": about})
    typer.echo(escaped(dumps(document).decode()) if output is WrittenAs.JSON else escaped_json(document))


@command.command("approve")
def approve(store: SessionStore, id: ApprovalId, person: Person, key: SigningKey = None) -> None:
    """Approve exactly this, once. Nobody can approve their own request; the approver is recorded."""
    decide(id, store, person=person, approve=True, key=key)


@command.command("deny")
def deny(store: SessionStore, id: ApprovalId, person: Person, key: SigningKey = None) -> None:
    """Refuse this until the approval expires. The decision is recorded."""
    decide(id, store, person=person, approve=False, key=key)


def decide(approval_id: str, store: str, *, person: str, approve: bool, key: Path | None = None) -> None:
    """Decide the approval, and record it if the store has a log."""
    with one_line_errors(), recorded_sessions(store, key) as known:
        approvals = Approvals(known.sessions, record=known.record)
        decided = (approvals.approve if approve else approvals.deny)(approval_id, holder(person, APPROVE))
    typer.echo(visible(f"{approval_id}: {decided.status.value} by {person}"))


@contextmanager
def _approvals(store: str, seal_key: Path | None) -> Iterator[Approvals]:
    with one_line_errors():
        key = None if seal_key is None else read_seal_key(seal_key)
        with _opened(store) as sessions:
            yield Approvals(sessions, seal_key=key)


@dataclass(frozen=True, slots=True)
class RecordedSessions:
    """Sessions, how to record decisions about them, and whether the store requires two people."""

    sessions: base.SessionStore
    record: Callable[[Record], None] | None = None
    four_eyes: bool = False


@contextmanager
def recorded_sessions(store: str, key: Path | None) -> Iterator[RecordedSessions]:
    """The sessions of a store inside the block; decisions about them are recorded, except in Redis."""
    if store.startswith(REDIS):
        typer.echo("cmf: sessions in Redis have no log: this is not recorded", err=True)
        with _opened(store) as sessions:
            yield RecordedSessions(sessions)
        return
    with opened_store(store, key) as opened:
        yield RecordedSessions(opened.sessions(), Recorder(opened).record, opened.contents().four_eyes.needed)


@contextmanager
def _opened(store: str) -> Iterator[base.SessionStore]:
    """The sessions of an existing store: a misspelt name must not create one."""
    with open_sessions(store, made=False) as sessions:
        yield sessions


def _document(approval: Approval) -> dict[str, Any]:
    shown = approval.to_json()
    for name in ("requested_at", "expires_at", "decided_at", "used_at"):
        shown[name] = None if shown[name] is None else iso(shown[name])
    return shown
