"""The commands `cmf audit …` and their options; what they do is imported late."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.replaying import WrittenAs
from pipeline.cli.sections import Whole


class Needed(StrEnum):
    """Whether something is asked for."""

    ON = "on"
    OFF = "off"


Place = Annotated[
    str, typer.Argument(metavar="STORE", help="The database: a SQLite file, sqlite:////… or postgresql://…")
]
SessionStore = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="Where sessions are kept: a SQLite file, sqlite:////…, postgresql://… or redis://…"
    ),
]
SigningKey = Annotated[
    Path | None,
    typer.Option(
        "--signing-key", metavar="PEM", help="What signs the store's records: by default the key beside a SQLite file."
    ),
]
PublicKeys = Annotated[
    list[Path] | None,
    typer.Option("--public-key", metavar="PEM", help="The public key of who may have signed (repeatable)."),
]
Person = Annotated[str, typer.Option("--as", metavar="WHO", help="Who you are: an id. It goes on record.")]
Second = Annotated[str | None, typer.Option("--second", metavar="WHO", help="A second person who agrees.")]
Reason = Annotated[str, typer.Option("--reason", help="Why. It goes on record.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Whose: an id, or anonymous.")]
Session = Annotated[str | None, typer.Option("--session", help="Of which session.")]
QueryText = Annotated[
    str, typer.Argument(metavar="QUERY", help="As in: verdict:deny rule:tools/* since:7d -session:test")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most, the newest.")]
Minutes = Annotated[int, typer.Option("--minutes", min=1, max=1440, help="How long it holds.")]
OutputAs = Annotated[WrittenAs, typer.Option("--format", help="How to write it.")]

audit = typer.Typer(
    cls=Whole, help="What was decided: find it, prove it, take it away.", no_args_is_help=True, rich_markup_mode=None
)


@audit.command("verify")
def verify(
    place: Annotated[str, typer.Argument(metavar="STORE|BUNDLE", help="A database, or what `cmf audit export` wrote.")],
    heads: Annotated[
        Path | None, typer.Option("--heads", help="The heads that were exported to a second place.")
    ] = None,
    keys: PublicKeys = None,
    unsigned: Annotated[
        bool,
        typer.Option("--unsigned", help="Accept a bundle without a signature: what was taken out of it is not found."),
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Check that nothing on record was changed, dropped, moved or added. Offline, and it changes nothing.

    Exit codes: 0 it holds, 1 something was changed, 2 something is missing, 3 a head is missing, or it or the manifest
    is not signed, or by no key that counts, 4 it cannot be read.
    """
    from pipeline.cli import audit as does

    does.verify_place(place, heads=heads, keys=keys or (), as_json=output is WrittenAs.JSON, unsigned=unsigned)


@audit.command("export")
def export(
    store: Place,
    out: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A new file.")],
    query: Annotated[str | None, typer.Option("--query", help="Only what this finds; by default everything.")] = None,
    contents: Annotated[
        bool,
        typer.Option("--contents", help="What was judged goes with it: --as WHO --reason WHY. No erasure reaches it."),
    ] = False,
    heads: Annotated[
        Path | None,
        typer.Option("--heads", help="Exported heads: with --query, it is proved that the log grew out of them."),
    ] = None,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who takes content. It goes on record.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why. It goes on record.")] = None,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Write records, their proofs, heads and keys into one file, which `cmf audit verify` checks anywhere.

    The key that signs the store's records signs what the file says of itself, where it is at hand.
    """
    from pipeline.cli import audit as does
    from pipeline.cli import audit_content

    if contents:
        audit_content.take(store, key, query=query, person=person, second=second, reason=reason)
    does.export(store, out, query=query, contents=contents, heads=heads, key=key)


@audit.command("find")
def find(store: Place, query: QueryText, limit: Limit = 20, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the newest records that a query finds.

    Names are id, kind, verdict, action, subject, session, revision; rule, code, effect, severity, tool, uri, view,
    mode, stage, environment, covered, override; needs, reviewed, disposition, signed, assignee, sample; since and until
    (7d, or 2026-01-31). A value may end in *, several stand between commas. A - before a name is a no; before a QUERY
    that begins with one, write --.
    """
    from pipeline.cli import audit as does

    does.find(store, query, limit=limit, as_json=output is WrittenAs.JSON)


@audit.command("tail")
def tail(
    store: Place,
    limit: Limit = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the newest records, the newest last."""
    from pipeline.cli import audit as does

    does.tail(store, limit=limit, follow=follow, as_json=output is WrittenAs.JSON)


@audit.command("show")
def show(store: Place, id: Annotated[str, typer.Argument(metavar="ID", help="Of a decision.")]) -> None:
    """Print one record, as it was stored, with its place in its log."""
    from pipeline.cli import audit as does

    does.show(store, id)


@audit.command("head")
def head(store: Place) -> None:
    """Print the newest signed head of each log, a line of JSON each: keep them where who writes the store cannot."""
    from pipeline.cli import audit as does

    does.heads(store)


@audit.command("key")
def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="The private key; made if missing.")]) -> None:
    """Make a key that signs heads, if there is none, and print its public half."""
    from pipeline.cli import audit as does

    does.key(file)


@audit.command("reveal")
def reveal(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="Of a decision.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Print what was judged, as a line of a replay file; first a record says who wanted to see it, and why."""
    from pipeline.cli import audit_content as does

    does.reveal(store, key, id, person=person, second=second, reason=reason)


@audit.command("ask")
def ask(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="Of a decision.")],
    person: Person,
    reason: Reason,
    key: SigningKey = None,
) -> None:
    """Ask to see what was judged, where that takes two people. Prints the id that somebody else grants."""
    from pipeline.cli import audit_content as does

    does.ask(store, key, id, person=person, reason=reason)


@audit.command("asks")
def asks(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List what was asked for and not granted yet."""
    from pipeline.cli import audit_content as does

    does.asks(store, as_json=output is WrittenAs.JSON)


@audit.command("grant")
def grant(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ASK", help="As `cmf audit asks` lists it.")],
    person: Person,
    reason: Reason,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """Let whoever asked see what they asked for, for a while. Nobody grants what they asked for themselves."""
    from pipeline.cli import audit_content as does

    does.grant(store, key, id, person=person, reason=reason, lasting=timedelta(minutes=minutes))


@audit.command("grants")
def grants(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the grants that hold: until when, who may see what, by whom."""
    from pipeline.cli import audit_content as does

    does.grants(store, as_json=output is WrittenAs.JSON)


@audit.command("break-glass")
def break_glass(
    store: Place,
    person: Person,
    second: Annotated[str, typer.Option("--second", metavar="WHO", help="The second person, who agrees.")],
    reason: Reason,
    subject: Subject = None,
    session: Session = None,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """In an emergency let somebody see all that a subject or session was about, for a while. Always takes two."""
    from pipeline.cli import audit_content as does

    does.break_glass(
        store,
        key,
        person=person,
        second=second,
        reason=reason,
        subject=subject,
        session=session,
        lasting=timedelta(minutes=minutes),
    )


@audit.command("close")
def close(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="As `cmf audit grants` or `cmf audit overrides` lists it.")],
    person: Person,
    reason: Reason,
    key: SigningKey = None,
) -> None:
    """End a grant or an override before it expires."""
    from pipeline.cli import audit_content as does

    does.close(store, key, id, person=person, reason=reason)


@audit.command("override")
def override(
    store: Place,
    rule: Annotated[str, typer.Option("--rule", metavar="ID", help="What is not enforced: <category>/<rule>.")],
    person: Person,
    second: Annotated[str, typer.Option("--second", metavar="WHO", help="The second person, who agrees.")],
    reason: Reason,
    subject: Annotated[str | None, typer.Option("--subject", help="For whom: an id.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="In which session.")] = None,
    uri: Annotated[str | None, typer.Option("--uri", metavar="PATTERN", help="Only for this: tool://_/upload.")] = None,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """In an emergency let go on what one rule denies to a subject or in a session, for a while. Always takes two."""
    from pipeline.cli import audit_content as does

    does.override(
        store,
        key,
        rule,
        person=person,
        second=second,
        reason=reason,
        subject=subject,
        session=session,
        uri=uri,
        lasting=timedelta(minutes=minutes),
    )


@audit.command("overrides")
def overrides(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the overrides that hold: until when, which rule, for what, by whom."""
    from pipeline.cli import audit_content as does

    does.overrides(store, as_json=output is WrittenAs.JSON)


@audit.command("two-people")
def two_people(
    store: Place,
    needed: Annotated[Needed, typer.Argument(metavar="on|off", help="Whether the store asks for two.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Have a store ask for two people before what was judged is shown or taken, or a hold released. `off` takes two."""
    from pipeline.cli import audit_content as does

    does.need_two(store, key, needed is Needed.ON, person=person, second=second, reason=reason)


@audit.command("erase")
def erase(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: Session = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="What is older: 400d, 2026-01-31.")
    ] = None,
    key: SigningKey = None,
) -> None:
    """Erase what was judged, of a subject, a session or a time. Records stay, and the log still verifies."""
    from pipeline.cli import audit_content as does

    does.erase(store, key, person=person, reason=reason, subject=subject, session=session, before=before)


@audit.command("hold")
def hold(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: Session = None,
    key: SigningKey = None,
) -> None:
    """Hold what was judged, and what will be: nothing erases it until the hold is released. Prints the hold's id."""
    from pipeline.cli import audit_content as does

    does.hold(store, key, person=person, reason=reason, subject=subject, session=session)


@audit.command("holds")
def holds(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the holds that hold."""
    from pipeline.cli import audit_content as does

    does.holds(store, as_json=output is WrittenAs.JSON)


@audit.command("release")
def release(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="HOLD", help="As `cmf audit holds` lists it.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Release a hold; what is due is erased by the next sweep."""
    from pipeline.cli import audit_content as does

    does.release(store, key, id, person=person, second=second, reason=reason)


@audit.command("sweep")
def sweep(store: Place, key: SigningKey = None) -> None:
    """Erase what may not be kept any longer, and say how much that was."""
    from pipeline.cli import audit_content as does

    does.sweep(store, key)
