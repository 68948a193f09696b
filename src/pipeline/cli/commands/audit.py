"""The commands `cmf audit …` and their options; their code is imported when they run."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from pipeline.cli.commands.options import OutputAs, Person, Place, PublicKeys, Reason, Second, SigningKey, WrittenAs
from pipeline.cli.commands.sections import FullHelpGroup


class Requirement(StrEnum):
    """Whether a requirement is on."""

    ON = "on"
    OFF = "off"


Subject = Annotated[str | None, typer.Option("--subject", help="The subject: an id, or anonymous.")]
Session = Annotated[str | None, typer.Option("--session", help="The session's id.")]
QueryText = Annotated[
    str, typer.Argument(metavar="QUERY", help="For example: verdict:deny rule:tools/* since:7d -session:test")
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many, the newest.")]
Minutes = Annotated[int, typer.Option("--minutes", min=1, max=1440, help="How long it is in force.")]

audit = typer.Typer(
    cls=FullHelpGroup, help="Records of decisions: find, verify, export.", no_args_is_help=True, rich_markup_mode=None
)


@audit.command("verify")
def verify(
    place: Annotated[
        str, typer.Argument(metavar="STORE|BUNDLE", help="A database, or a bundle from `cmf audit export`.")
    ],
    heads: Annotated[Path | None, typer.Option("--heads", help="The file that heads were exported to.")] = None,
    keys: PublicKeys = None,
    unsigned: Annotated[
        bool,
        typer.Option("--unsigned", help="Accept an unsigned bundle: removals from it are not detected."),
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Check that no record was changed, removed, moved or added. Works offline and changes nothing.

    Exit codes: 0 valid, 1 something was changed, 2 something is missing, 3 a head is missing, or a head or the manifest
    is not signed by a trusted key, 4 cannot be read.
    """
    from pipeline.cli import audit as work

    work.verify_place(place, heads=heads, keys=keys or (), as_json=output is WrittenAs.JSON, unsigned=unsigned)


@audit.command("export")
def export(
    store: Place,
    out: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A new file.")],
    query: Annotated[
        str | None, typer.Option("--query", help="Only records that match; by default everything.")
    ] = None,
    contents: Annotated[
        bool,
        typer.Option(
            "--contents", help="Include content: needs --as WHO --reason WHY. Later erasures do not reach it."
        ),
    ] = False,
    heads: Annotated[
        Path | None,
        typer.Option("--heads", help="Exported heads: with --query, prove that the log extends them."),
    ] = None,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who exports content; it is recorded.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason; it is recorded.")] = None,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Write records, their proofs, heads and keys into one file, which `cmf audit verify` checks anywhere.

    The manifest is signed with the key that signs the store's records, if it is available.
    """
    from pipeline.cli import audit as work
    from pipeline.cli import audit_content

    if contents:
        audit_content.take(store, key, query=query, person=person, second=second, reason=reason)
    work.export(store, out, query=query, contents=contents, heads=heads, key=key)


class QueryCommand(TyperCommand):
    """A command whose query may begin with a negated term, such as `-verdict:allow`: that is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options first, and then the query."""
        if "--" not in args and (queries := [arg for arg in args if _NEGATED.match(arg)]):
            args = [arg for arg in args if arg not in queries] + ["--", *queries]
        return super().parse_args(ctx, args)


_NEGATED: Final = re.compile(r"-[a-z]+:")


@audit.command("find", cls=QueryCommand)
def find(store: Place, query: QueryText, limit: Limit = 20, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the newest records that match a query.

    Names are id, kind, verdict, action, subject, session, revision; rule, code, effect, severity, tool, uri, view,
    mode, stage, environment, covered, excused, override; needs, reviewed, disposition, signed, assignee, sample; since
    and until
    (7d, or 2026-01-31). A value may end in *; commas separate alternatives. A - before a name negates it.
    """
    from pipeline.cli import audit as work

    work.find(store, query, limit=limit, as_json=output is WrittenAs.JSON)


@audit.command("tail")
def tail(
    store: Place,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new records as they arrive, until interrupted.")
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """List the newest records, newest last."""
    from pipeline.cli import audit as work

    work.tail(store, limit=limit, follow=follow, as_json=output is WrittenAs.JSON)


@audit.command("show")
def show(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Describe one record, with the file and line of each rule that hit.

    With --format json it is printed as stored. Either way its place in its log is shown.
    """
    from pipeline.cli import audit_record as work

    work.show(store, id, as_json=output is WrittenAs.JSON)


@audit.command("head")
def head(store: Place) -> None:
    """Print the newest signed head of each log as a line of JSON. Keep them where writers of the store cannot."""
    from pipeline.cli import audit as work

    work.heads(store)


@audit.command("key")
def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="The private key; created if missing.")]) -> None:
    """Create a key that signs heads, unless it exists, and print its public key."""
    from pipeline.cli import audit as work

    work.key(file)


@audit.command("reveal")
def reveal(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Print the judged input as a line of a replay file, after recording who asked for it and why."""
    from pipeline.cli import audit_content as work

    work.reveal(store, key, id, person=person, second=second, reason=reason)


@audit.command("ask")
def ask(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    person: Person,
    reason: Reason,
    key: SigningKey = None,
) -> None:
    """Request to see a judged input, if that takes two people. Prints an id for somebody else to grant."""
    from pipeline.cli import audit_content as work

    work.ask(store, key, id, person=person, reason=reason)


@audit.command("asks")
def asks(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the requests that are not granted yet."""
    from pipeline.cli import audit_content as work

    work.asks(store, as_json=output is WrittenAs.JSON)


@audit.command("grant")
def grant(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ASK", help="The request's id, from `cmf audit asks`.")],
    person: Person,
    reason: Reason,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """Grant a request for a while. Nobody can grant their own."""
    from pipeline.cli import audit_content as work

    work.grant(store, key, id, person=person, reason=reason, lasting=timedelta(minutes=minutes))


@audit.command("grants")
def grants(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the grants in force: until when, who may see what, granted by whom."""
    from pipeline.cli import audit_content as work

    work.grants(store, as_json=output is WrittenAs.JSON)


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
    """In an emergency, show somebody all content of a subject or session for a while. Always takes two people."""
    from pipeline.cli import audit_content as work

    work.break_glass(
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
    id: Annotated[str, typer.Argument(metavar="ID", help="The id, from `cmf audit grants` or `cmf audit overrides`.")],
    person: Person,
    reason: Reason,
    key: SigningKey = None,
) -> None:
    """End a grant or an override before it expires."""
    from pipeline.cli import audit_content as work

    work.close(store, key, id, person=person, reason=reason)


@audit.command("override")
def override(
    store: Place,
    rule: Annotated[str, typer.Option("--rule", metavar="ID", help="The rule to override: <category>/<rule>.")],
    person: Person,
    second: Annotated[str, typer.Option("--second", metavar="WHO", help="The second person, who agrees.")],
    reason: Reason,
    subject: Annotated[str | None, typer.Option("--subject", help="The subject's id.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session's id.")] = None,
    uri: Annotated[
        str | None, typer.Option("--uri", metavar="PATTERN", help="Only views with this URI, such as tool://_/upload.")
    ] = None,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """In an emergency, lift one rule's denials for a subject or session for a while. Always takes two people."""
    from pipeline.cli import audit_content as work

    work.override(
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
    """List the overrides in force: until when, which rule, for what, by whom."""
    from pipeline.cli import audit_content as work

    work.overrides(store, as_json=output is WrittenAs.JSON)


@audit.command("two-people")
def two_people(
    store: Place,
    needed: Annotated[Requirement, typer.Argument(metavar="on|off", help="Whether two people are required.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Require two people to show or export content, or to release a hold. Turning it off takes two people."""
    from pipeline.cli import audit_content as work

    work.need_two(store, key, needed is Requirement.ON, person=person, second=second, reason=reason)


@audit.command("erase")
def erase(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: Session = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Only what is older: 400d, 2026-01-31.")
    ] = None,
    key: SigningKey = None,
) -> None:
    """Erase the judged inputs of a subject, a session or a time. Records stay, and the log still verifies."""
    from pipeline.cli import audit_content as work

    work.erase(store, key, person=person, reason=reason, subject=subject, session=session, before=before)


@audit.command("hold")
def hold(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: Session = None,
    key: SigningKey = None,
) -> None:
    """Protect judged inputs, past and future, from erasure until the hold is released. Prints the hold's id."""
    from pipeline.cli import audit_content as work

    work.hold(store, key, person=person, reason=reason, subject=subject, session=session)


@audit.command("holds")
def holds(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the holds in force."""
    from pipeline.cli import audit_content as work

    work.holds(store, as_json=output is WrittenAs.JSON)


@audit.command("release")
def release(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="HOLD", help="The hold's id, from `cmf audit holds`.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Release a hold; expired content is erased by the next sweep."""
    from pipeline.cli import audit_content as work

    work.release(store, key, id, person=person, second=second, reason=reason)


@audit.command("sweep")
def sweep(store: Place, key: SigningKey = None) -> None:
    """Erase everything whose retention has ended, and print how much that was."""
    from pipeline.cli import audit_content as work

    work.sweep(store, key)


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    app.add_typer(audit, name="audit")


__all__ = ["add_to"]
