"""`cmf approvals`: human decisions, on a store shared with running pipelines.

Whoever can open the store is trusted to be who they say, with the permission that the step needs [CLI-23].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.groups import command_group
from pipeline.cli.options import OutputAs, Person, SealKey, SessionStore, SigningKey
from pipeline.cli.reading import one_line_errors, read_seal_key
from pipeline.cli.rendering import write_line
from pipeline.cli.stores import acting, opened_store
from pipeline.decisions.display import escaped_json, visible
from pipeline.decisions.timestamps import iso

if TYPE_CHECKING:
    from pipeline.approvals.queue import Approvals
    from pipeline.audit.record import Record
    from pipeline.decisions.approval import Approval
    from pipeline.sessions import base

command = command_group("Approvals of people.")
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, from the decision.")]


@command.command("list")
def list_approvals(
    store: SessionStore,
    output: OutputAs = "text",
) -> None:
    """List pending approvals, oldest first."""
    with _approvals(store, None) as approvals:
        waiting = approvals.pending()
    if output == "json":
        write_line([_document(approval) for approval in waiting])
        return
    if not waiting:
        typer.echo("cmf: no pending approvals", err=True)
    for approval in waiting:
        asked = approval.asked
        rules = ", ".join(asked.rules)
        who = f"{approval.key.subject} in {approval.key.session}"
        typer.echo(visible(f"{asked.id}  {asked.target}  {who}  by {rules}  until {iso(asked.expires_at)}"))


@command.command("show")
def show(
    store: SessionStore,
    id: ApprovalId,
    seal_key: SealKey = None,
    output: OutputAs = "text",
) -> None:
    """Show one approval; with the seal key, also its content."""
    with _approvals(store, seal_key) as approvals:
        approval = approvals.get(id)
        about = approvals.shown(id) if seal_key is not None else None
    document = _document(approval) | ({} if about is None else {"about": about})
    if output == "json":
        write_line(document)
    else:
        typer.echo(escaped_json(document))


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
    from pipeline.approvals.queue import Approvals  # here, so that help and completion are fast

    with one_line_errors(), recorded_sessions(store, key) as kept:
        approvals = Approvals(kept.sessions, record=kept.record)
        decided = (approvals.approve if approve else approvals.deny)(approval_id, acting(person, "approve"))
    typer.echo(visible(f"{approval_id}: {decided.status.value} by {person}"))


@contextmanager
def _approvals(store: str, seal_key: Path | None) -> Iterator[Approvals]:
    from pipeline.approvals.queue import Approvals

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
    from pipeline.run.assembly import REDIS
    from pipeline.store.recorder import Recorder

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
    from pipeline.run.assembly import open_sessions

    with open_sessions(store, made=False) as sessions:
        yield sessions


def _document(approval: Approval) -> dict[str, Any]:
    shown = approval.to_json()
    for name in ("requested_at", "expires_at", "decided_at", "used_at"):
        shown[name] = None if shown[name] is None else iso(shown[name])
    return shown
