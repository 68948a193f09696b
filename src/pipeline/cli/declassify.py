"""`cmf declassify`: lifting a label from a session, for a while. Spec: docs/spec/cli.md [CLI-22]."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from pipeline.cli.approvals import recorded_sessions
from pipeline.cli.options import Person, Reason, Second, SessionStore, SigningKey
from pipeline.cli.reading import duration_of, one_line_errors
from pipeline.cli.stores import acting, agreeing
from pipeline.decisions.display import counted, visible
from pipeline.decisions.timestamps import iso


def command(
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
    from cmf.message.security import SubjectExtension
    from pipeline.approvals.declassification import ALL_ON_RECORD, DeclassificationRules, declassify
    from pipeline.decisions.context import Context

    expires_in = duration_of(lasting)
    context = Context(subject=None if subject is None else SubjectExtension(id=subject), session=session)
    logging.getLogger("pipeline.approvals.declassification").addHandler(logging.NullHandler())  # printed below
    with one_line_errors(), recorded_sessions(store, key) as kept:
        grant = declassify(
            kept.sessions,
            context,
            label=label,
            sources=list(source or ()) or ALL_ON_RECORD,
            actor=acting(person, "declassify"),
            seconder=agreeing(second, "declassify"),
            reason=reason,
            scope=scope,
            expires_in=expires_in,
            rules=DeclassificationRules(four_eyes=kept.four_eyes),
            record=kept.record,
        )
    events = counted(len(grant.sources), "event")
    typer.echo(visible(f"{grant.id}: {label} lifted for {events} until {iso(grant.expires_at)}"))
