"""`cmf audit` reveal, erase, hold, release, sweep, ask, grant, break-glass, override, close, two-people, and lists.

The stored content of runs and who may see it, and emergency overrides.

Whoever can open the store is trusted to be who they say, with the permission that the step needs [CLI-23].
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from pipeline.cli.groups import FullHelpGroup
from pipeline.cli.options import (
    OutputAs,
    Person,
    Place,
    Reason,
    RecordId,
    Second,
    SessionId,
    SigningKey,
    SubjectId,
    WrittenAs,
)
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.rendering import write_rows
from pipeline.cli.stores import acting, agreeing, opened_for_search, opened_store
from pipeline.decisions.display import counted, escaped, visible
from pipeline.decisions.timestamps import instant_of, iso, micros

if TYPE_CHECKING:
    from pipeline.decisions.override import Override
    from pipeline.store.contents import Contents, Hold
    from pipeline.store.four_eyes import Ask, RevealGrant

_MOMENTS: Final = frozenset({"at", "expires_at", "released_at"})
Listed = TypeVar("Listed", "Ask", "RevealGrant", "Override", "Hold")


Requirement = Literal["on", "off"]


Subject = Annotated[str | None, typer.Option("--subject", help="The subject: an id, or anonymous.")]
SecondNeeded = Annotated[str, typer.Option("--second", metavar="WHO", help="The second person, who agrees.")]
Minutes = Annotated[int, typer.Option("--minutes", min=1, max=1440, help="How long it is in force.")]
command = typer.Typer(cls=FullHelpGroup)


@command.command("reveal")
def reveal(
    store: Place, id: RecordId, person: Person, reason: Reason, second: Second = None, key: SigningKey = None
) -> None:
    """Print the judged input as a line of a replay file, after recording who asked for it and why."""
    with one_line_errors(), _contents(store, key, four_eyes=second is not None) as contents:
        other = agreeing(second, "reveal")
        line = contents.reveal(id, actor=acting(person, "reveal"), reason=reason, seconder=other)
    typer.echo(escaped(line.decode()))


@command.command("ask")
def ask(store: Place, id: RecordId, person: Person, reason: Reason, key: SigningKey = None) -> None:
    """Request to see a judged input, if that takes two people. Prints an id for somebody else to grant."""
    with one_line_errors(), _contents(store, key) as contents:
        typer.echo(contents.four_eyes.ask(id, actor=acting(person, "reveal"), reason=reason).id)


@command.command("asks")
def asks(store: Place, output: OutputAs = "text") -> None:
    """List the requests that are not granted yet."""
    with one_line_errors(), opened_for_search(store) as opened:
        asks = opened.contents().four_eyes.asks()
    _print(asks, output, lambda ask: f"{iso(ask.at)}  {ask.record}  by {ask.actor}: {ask.reason}", "nobody asks")


@command.command("grant")
def grant(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ASK", help="The request's id, from `cmf audit asks`.")],
    person: Person,
    reason: Reason,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """Grant a request for a while. Nobody can grant their own."""
    with one_line_errors(), _contents(store, key) as contents:
        grant = contents.four_eyes.grant(
            id, actor=acting(person, "reveal"), reason=reason, expires_in=timedelta(minutes=minutes)
        )
    typer.echo(visible(f"{grant.id}: {grant.actor} may see {grant.record} until {iso(grant.expires_at)}"))


@command.command("grants")
def grants(store: Place, output: OutputAs = "text") -> None:
    """List the grants in force: until when, who may see what, granted by whom."""
    with one_line_errors(), opened_for_search(store) as opened:
        grants = opened.contents().four_eyes.grants()

    def line(grant: RevealGrant) -> str:
        what = _scope(grant.record, subject=grant.subject, session=grant.session)
        return f"until {iso(grant.expires_at)}  {grant.actor}: {what}  by {grant.second}"

    _print(grants, output, line, "no grant is in force")


@command.command("break-glass")
def break_glass(
    store: Place,
    person: Person,
    second: SecondNeeded,
    reason: Reason,
    subject: Subject = None,
    session: SessionId = None,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """In an emergency, show somebody all content of a subject or session for a while. Always takes two people."""
    _say_once()
    with one_line_errors(), _contents(store, key) as contents:
        grant = contents.four_eyes.break_glass(
            actor=acting(person, "break-glass"),
            seconder=acting(second, "break-glass"),
            reason=reason,
            subject=subject,
            session=session,
            expires_in=timedelta(minutes=minutes),
        )
    typer.echo(visible(f"{grant.id}: {grant.actor} may see it until {iso(grant.expires_at)}"))


def _say_once() -> None:
    """Keep off the terminal what the library logs of an act that the command itself reports."""
    logging.getLogger("pipeline.store").addHandler(logging.NullHandler())


@command.command("close")
def close(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id, from `cmf audit grants` or `cmf audit overrides`.")],
    person: Person,
    reason: Reason,
    key: SigningKey = None,
) -> None:
    """End a grant or an override before it expires."""
    from pipeline.store.four_eyes import PREFIX

    with one_line_errors(), opened_store(store, key) as opened:
        if id.startswith(PREFIX["override"]):
            opened.overrides().close(id, actor=acting(person, "override"), reason=reason)
        else:
            opened.contents().four_eyes.close(id, actor=acting(person, "reveal"), reason=reason)


@command.command("override")
def override(
    store: Place,
    rule: Annotated[str, typer.Option("--rule", metavar="ID", help="The rule to override: <category>/<rule>.")],
    person: Person,
    second: SecondNeeded,
    reason: Reason,
    subject: SubjectId = None,
    session: SessionId = None,
    uri: Annotated[
        str | None, typer.Option("--uri", metavar="PATTERN", help="Only views with this URI, such as tool://_/upload.")
    ] = None,
    minutes: Minutes = 60,
    key: SigningKey = None,
) -> None:
    """In an emergency, lift one rule's denials for a subject or session for a while. Always takes two people."""
    _say_once()
    with one_line_errors(), opened_store(store, key) as opened:
        override = opened.overrides().open(
            rule,
            actor=acting(person, "override"),
            seconder=acting(second, "override"),
            reason=reason,
            subject=subject,
            session=session,
            uri=uri,
            expires_in=timedelta(minutes=minutes),
        )
    scope = _scope(subject=override.subject, session=override.session, uri=override.uri)
    typer.echo(visible(f"{override.id}: {override.rule} denies nothing for {scope} until {iso(override.expires_at)}"))


@command.command("overrides")
def overrides(store: Place, output: OutputAs = "text") -> None:
    """List the overrides in force: until when, which rule, for what, by whom."""
    with one_line_errors(), opened_for_search(store) as opened:
        overrides = opened.overrides().read()

    def line(override: Override) -> str:
        scope = _scope(subject=override.subject, session=override.session, uri=override.uri)
        return f"until {iso(override.expires_at)}  {override.rule}: {scope}  by {override.actor} and {override.second}"

    _print(overrides, output, line, "no override is in force")


def _scope(record: str | None = None, *, subject: str | None, session: str | None, uri: str | None = None) -> str:
    parts = [record, subject and f"subject {subject}", session and f"session {session}", uri]
    return ", ".join(part for part in parts if part)


@command.command("two-people")
def two_people(
    store: Place,
    needed: Annotated[Requirement, typer.Argument(metavar="on|off", help="Whether two people are required.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Require two people to show or export content, or to release a hold. Turning it off takes two people."""
    with one_line_errors(), _contents(store, key) as contents:
        actor, other = acting(person, "two-people"), agreeing(second, "two-people")
        contents.four_eyes.need_two(needed == "on", actor=actor, reason=reason, seconder=other)


def take(
    place: str, key: Path | None, *, query: str | None, person: str | None, second: str | None, reason: str | None
) -> None:
    """Record that somebody exports content."""
    from pipeline.audit.query import parse
    from pipeline.sessions.base import wall_clock

    if person is None or reason is None:
        fail("exporting content is recorded: give --as and --reason", Exit.USAGE)
    with one_line_errors(), _contents(place, key, four_eyes=second is not None) as contents:
        parse(query or "", wall_clock())  # refuse an invalid query before recording anything
        other = agreeing(second, "reveal")
        contents.taken(query, actor=acting(person, "reveal"), reason=reason, seconder=other)


@command.command("erase")
def erase(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: SessionId = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Only what is older: 400d, 2026-01-31.")
    ] = None,
    key: SigningKey = None,
) -> None:
    """Erase the judged inputs of a subject, a session or a time. Records stay, and the log still verifies."""
    from pipeline.audit.query import parse
    from pipeline.sessions.base import wall_clock

    with one_line_errors(), _contents(store, key) as contents:
        asked = None if before is None else parse(f"until:{before}", wall_clock()).until
        until = None if asked is None else instant_of(asked)
        done = contents.erase(
            actor=acting(person, "erase"), reason=reason, subject=subject, session=session, before=until
        )
    held = f", {done.held} stay under a hold" if done.held else ""
    typer.echo(f"{counted(done.erased, 'content')} erased{held}")


@command.command("hold")
def hold(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: SessionId = None,
    key: SigningKey = None,
) -> None:
    """Protect judged inputs, past and future, from erasure until the hold is released. Prints the hold's id."""
    with one_line_errors(), _contents(store, key) as contents:
        hold = contents.hold(actor=acting(person, "hold"), reason=reason, subject=subject, session=session)
    typer.echo(hold.id)


@command.command("holds")
def holds(store: Place, output: OutputAs = "text") -> None:
    """List the holds in force."""
    from pipeline.decisions.context import shown_subject

    with one_line_errors(), opened_for_search(store) as opened:
        stored = opened.contents().holds()
    holds = [replace(hold, subject=None if hold.subject is None else shown_subject(hold.subject)) for hold in stored]

    def line(hold: Hold) -> str:
        whose = hold.subject or "everybody"
        which = "all sessions" if hold.session is None else f"session {hold.session}"
        return f"{iso(hold.at)}  {whose}, {which}  by {hold.actor}: {hold.reason}"

    _print(holds, output, line, "no hold is in force")


@command.command("release")
def release(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="HOLD", help="The hold's id, from `cmf audit holds`.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Release a hold; expired content is erased by the next sweep."""
    with one_line_errors(), _contents(store, key, four_eyes=second is not None) as contents:
        contents.release(id, actor=acting(person, "hold"), reason=reason, seconder=agreeing(second, "hold"))
    typer.echo(visible(f"{id}: released by {person}"))


@command.command("sweep")
def sweep(store: Place, key: SigningKey = None) -> None:
    """Erase everything whose retention has ended, and print how much that was."""
    from pipeline.sessions.base import wall_clock
    from pipeline.store.retention_sweep import Sweep

    with one_line_errors(), opened_store(store, key) as opened:
        for swept in Sweep(opened).run(micros(wall_clock())):
            failed = "" if swept.failed is None else f", failed: {swept.failed}"
            typer.echo(visible(f"{swept.holder}: {swept.erased} erased{failed}"))


def _print(listed: Sequence[Listed], output: WrittenAs, line: Callable[[Listed], str], nothing: str) -> None:
    """Print each with its id, or that there is `nothing`."""

    def document(row: Listed) -> dict[str, Any]:
        fields = asdict(row).items()
        return {name: iso(value) if name in _MOMENTS and value is not None else value for name, value in fields}

    write_rows(listed, output, document=document, line=lambda row: f"{row.id}  {line(row)}", nothing=nothing)


@contextmanager
def _contents(place: str, key: Path | None, *, four_eyes: bool = False) -> Iterator[Contents]:
    from pipeline.store.four_eyes import ContentRules

    with opened_store(place, key) as store:
        yield store.contents(rules=ContentRules(four_eyes=four_eyes))
