"""The commands `cmf approvals …` and `cmf declassify`, and their options; their code is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.commands.options import OutputAs, Person, Reason, SealKey, Second, SessionStore, SigningKey, WrittenAs
from pipeline.cli.commands.sections import FullHelpGroup

approvals = typer.Typer(cls=FullHelpGroup, help="Approvals of people.", no_args_is_help=True, rich_markup_mode=None)
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, from the decision.")]


@approvals.command("list")
def list_approvals(
    store: SessionStore,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List pending approvals, oldest first."""
    from pipeline.cli import people

    people.list_approvals(store, as_json=output is WrittenAs.JSON)


@approvals.command("show")
def show_approval(
    store: SessionStore,
    id: ApprovalId,
    seal_key: SealKey = None,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Show one approval; with the seal key, also its content."""
    from pipeline.cli import people

    people.show(id, store, seal_key=seal_key, as_json=output is WrittenAs.JSON)


@approvals.command("approve")
def approve(store: SessionStore, id: ApprovalId, person: Person, key: SigningKey = None) -> None:
    """Approve exactly this, once. Nobody can approve their own request; the approver is recorded."""
    from pipeline.cli import people

    people.decide(id, store, person=person, approve=True, key=key)


@approvals.command("deny")
def deny(store: SessionStore, id: ApprovalId, person: Person, key: SigningKey = None) -> None:
    """Refuse this until the approval expires. The decision is recorded."""
    from pipeline.cli import people

    people.decide(id, store, person=person, approve=False, key=key)


def declassify(
    store: SessionStore,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The label to lift.")],
    session: Annotated[str, typer.Option("--session", help="The session's id.")],
    person: Person,
    reason: Reason,
    lasting: Annotated[str, typer.Option("--for", help="For how long: 30m, 8h; at most a day.")],
    subject: Annotated[
        str | None, typer.Option("--subject", help="Whose session; without it, an anonymous one.")
    ] = None,
    second: Second = None,
    scope: Annotated[str, typer.Option("--scope", help="The purpose; it is recorded.")] = "session",
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="EVENT", help="An event that set it (repeatable); by default all."),
    ] = None,
    key: SigningKey = None,
) -> None:
    """Lift a label from a session for a time. Events that set the label later still count.

    Who lifted it, why and until when is recorded first.
    """
    from pipeline.cli import people

    people.lift(
        label,
        store,
        subject=subject,
        session=session,
        person=person,
        second=second,
        reason=reason,
        scope=scope,
        lasting=lasting,
        sources=source or (),
        key=key,
    )


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    app.add_typer(approvals, name="approvals")
    app.command("declassify")(declassify)


__all__ = ["add_to"]
