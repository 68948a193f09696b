"""`cmf approvals`: human decisions, on a store shared with running pipelines.

Whoever can open the store is trusted to be who they say, with the permission that the step needs [CLI-23].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from pipeline.cli.groups import command_group
from pipeline.cli.options import OutputAs, Person, SealKey, SessionStore, SigningKey
from pipeline.cli.reading import duration_of, one_line_errors, read_seal_key
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
Scope: TypeAlias = Literal["once", "session", "value"]
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, from the decision.")]


@command.command("list")
def list_approvals(
    store: SessionStore,
    output: OutputAs = "text",
    standing: Annotated[
        bool, typer.Option("--standing", help="Those that were approved for more than once, and still stand.")
    ] = False,
) -> None:
    """List pending approvals, oldest first."""
    with _approvals(store, None) as approvals:
        listed = approvals.standing() if standing else approvals.pending()
    if output == "json":
        write_line([_document(approval) for approval in listed])
        return
    if not listed:
        typer.echo(f"cmf: no {'standing' if standing else 'pending'} approvals", err=True)
    for approval in listed:
        asked, until = approval.asked, approval.scope_until or approval.asked.expires_at
        rules = ", ".join(asked.rules)
        who = f"{approval.key.subject} in {approval.key.session}"
        if approval.scope_until is not None:
            whole = f"for this value, for {asked.owner}" if approval.scope.value == "value" else "in this session"
            who = f"{who}  {whole}, by {approval.approver}"
        typer.echo(visible(f"{asked.id}  {asked.target}  {who}  by {rules}  until {iso(until)}"))


@command.command("show")
def show(store: SessionStore, id: ApprovalId, seal_key: SealKey = None, output: OutputAs = "text") -> None:
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
def approve(
    store: SessionStore,
    id: ApprovalId,
    person: Person,
    key: SigningKey = None,
    scope: Annotated[
        Scope,
        typer.Option(help="Also for what is asked later of the same tool and values: in this session, or at all."),
    ] = "once",
    lasting: Annotated[
        str | None, typer.Option("--for", help="How long that holds: 8h, 30d; by default 12h in a session, else 30d.")
    ] = None,
) -> None:
    """Approve exactly this, once. Nobody can approve their own request; the approver is recorded."""
    expires_in = None if lasting is None else duration_of(lasting)
    decide(id, store, person=person, approve=True, key=key, scope=scope, expires_in=expires_in)


@command.command("deny")
def deny(store: SessionStore, id: ApprovalId, person: Person, key: SigningKey = None) -> None:
    """Refuse this until the approval expires. The decision is recorded."""
    decide(id, store, person=person, approve=False, key=key)


@command.command("revoke")
def revoke(store: SessionStore, id: ApprovalId, person: Person, key: SigningKey = None) -> None:
    """End an approval that stands for more than once. What it let through stays so. It is recorded."""
    from pipeline.approvals.queue import Approvals

    with one_line_errors(), recorded_sessions(store, key) as kept:
        Approvals(kept.sessions, record=kept.record).revoke(id, acting(person, "approve"))
    typer.echo(visible(f"{id}: revoked by {person}"))


def decide(
    approval_id: str,
    store: str,
    *,
    person: str,
    approve: bool,
    key: Path | None = None,
    scope: Scope = "once",
    expires_in: timedelta | None = None,
) -> None:
    """Decide the approval, and record it if the store has a log."""
    from pipeline.approvals.queue import Approvals
    from pipeline.decisions.approval import ApprovalScope

    who = acting(person, "approve")
    with one_line_errors(), recorded_sessions(store, key) as kept:
        approvals = Approvals(kept.sessions, record=kept.record)
        if approve:
            decided = approvals.approve(approval_id, who, scope=ApprovalScope(scope), expires_in=expires_in)
        else:
            decided = approvals.deny(approval_id, who)
    told = f"{approval_id}: {decided.status.value} by {person}"
    if decided.scope_until is not None:
        told += f", and for its {decided.scope.value} until {iso(decided.scope_until)}"
    typer.echo(visible(told))


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
    for name in ("requested_at", "expires_at", "decided_at", "used_at", "scope_until"):
        shown[name] = None if shown[name] is None else iso(shown[name])
    return shown
