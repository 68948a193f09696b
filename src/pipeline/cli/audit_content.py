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
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from cmf.json.codec import dumps
from pipeline.audit.query import parse
from pipeline.cli.audit_store import opened_for_search
from pipeline.cli.groups import FullHelpGroup
from pipeline.cli.options import OutputAs, Person, Place, Reason, Second, SigningKey, WrittenAs
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.recorded import opened_store
from pipeline.decisions.authority import holder
from pipeline.decisions.context import shown_subject
from pipeline.decisions.display import counted, escaped, visible
from pipeline.decisions.override import Override
from pipeline.decisions.timestamps import instant_of, iso, micros
from pipeline.sessions.base import wall_clock
from pipeline.store.content_access import PREFIX
from pipeline.store.contents import BREAK_GLASS, ERASE, HOLD, REVEAL, TWO_PEOPLE, ContentRules, Contents, Hold
from pipeline.store.four_eyes import Ask, RevealGrant
from pipeline.store.overrides import OVERRIDE
from pipeline.store.retention_sweep import Sweep

_MOMENTS: Final = frozenset({"at", "expires_at", "released_at"})
Listed = TypeVar("Listed", Ask, RevealGrant, Override, Hold)


class Requirement(StrEnum):
    """Whether a requirement is on."""

    ON = "on"
    OFF = "off"


Subject = Annotated[str | None, typer.Option("--subject", help="The subject: an id, or anonymous.")]
Session = Annotated[str | None, typer.Option("--session", help="The session's id.")]
Minutes = Annotated[int, typer.Option("--minutes", min=1, max=1440, help="How long it is in force.")]
command = typer.Typer(cls=FullHelpGroup)


@command.command("reveal")
def reveal(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    person: Person,
    reason: Reason,
    second: Second = None,
    key: SigningKey = None,
) -> None:
    """Print the judged input as a line of a replay file, after recording who asked for it and why."""
    with one_line_errors(), _contents(store, key, four_eyes=second is not None) as contents:
        other = None if second is None else holder(second, REVEAL)
        line = contents.reveal(id, actor=holder(person, REVEAL), reason=reason, seconder=other)
    typer.echo(escaped(line.decode()))


@command.command("ask")
def ask(
    store: Place,
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    person: Person,
    reason: Reason,
    key: SigningKey = None,
) -> None:
    """Request to see a judged input, if that takes two people. Prints an id for somebody else to grant."""
    with one_line_errors(), _contents(store, key) as contents:
        typer.echo(contents.four_eyes.ask(id, actor=holder(person, REVEAL), reason=reason).id)


@command.command("asks")
def asks(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the requests that are not granted yet."""
    with one_line_errors(), opened_for_search(store) as opened:
        found = opened.contents().four_eyes.asks()
    _print(
        found,
        output is WrittenAs.JSON,
        lambda one: f"{iso(one.at)}  {one.record}  by {one.actor}: {one.reason}",
        "nobody asks",
    )


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
        made = contents.four_eyes.grant(
            id, actor=holder(person, REVEAL), reason=reason, expires_in=timedelta(minutes=minutes)
        )
    typer.echo(visible(f"{made.id}: {made.actor} may see {made.record} until {iso(made.expires_at)}"))


@command.command("grants")
def grants(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the grants in force: until when, who may see what, granted by whom."""
    with one_line_errors(), opened_for_search(store) as opened:
        found = opened.contents().four_eyes.grants()

    def line(one: RevealGrant) -> str:
        scope = [one.record, one.subject and f"subject {one.subject}", one.session and f"session {one.session}"]
        what = ", ".join(part for part in scope if part)
        return f"until {iso(one.expires_at)}  {one.actor}: {what}  by {one.second}"

    _print(found, output is WrittenAs.JSON, line, "no grant is in force")


@command.command("break-glass")
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
    _say_once()
    with one_line_errors(), _contents(store, key) as contents:
        made = contents.four_eyes.break_glass(
            actor=holder(person, BREAK_GLASS),
            seconder=holder(second, BREAK_GLASS),
            reason=reason,
            subject=subject,
            session=session,
            expires_in=timedelta(minutes=minutes),
        )
    typer.echo(visible(f"{made.id}: {made.actor} may see it until {iso(made.expires_at)}"))


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
    with one_line_errors(), opened_store(store, key) as opened:
        if id.startswith(PREFIX["override"]):
            opened.overrides().close(id, actor=holder(person, OVERRIDE), reason=reason)
        else:
            opened.contents().four_eyes.close(id, actor=holder(person, REVEAL), reason=reason)


@command.command("override")
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
    _say_once()
    with one_line_errors(), opened_store(store, key) as opened:
        made = opened.overrides().open(
            rule,
            actor=holder(person, OVERRIDE),
            seconder=holder(second, OVERRIDE),
            reason=reason,
            subject=subject,
            session=session,
            uri=uri,
            expires_in=timedelta(minutes=minutes),
        )
    typer.echo(visible(f"{made.id}: {made.rule} denies nothing for {_scope(made)} until {iso(made.expires_at)}"))


@command.command("overrides")
def overrides(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the overrides in force: until when, which rule, for what, by whom."""
    with one_line_errors(), opened_for_search(store) as opened:
        found = opened.overrides().read()

    def line(one: Override) -> str:
        return f"until {iso(one.expires_at)}  {one.rule}: {_scope(one)}  by {one.actor} and {one.second}"

    _print(found, output is WrittenAs.JSON, line, "no override is in force")


def _scope(one: Override) -> str:
    scope = [one.subject and f"subject {one.subject}", one.session and f"session {one.session}", one.uri]
    return ", ".join(part for part in scope if part)


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
        other = None if second is None else holder(second, TWO_PEOPLE)
        contents.four_eyes.need_two(
            needed is Requirement.ON, actor=holder(person, TWO_PEOPLE), reason=reason, seconder=other
        )


def take(
    place: str, key: Path | None, *, query: str | None, person: str | None, second: str | None, reason: str | None
) -> None:
    """Record that somebody exports content."""
    if person is None or reason is None:
        fail("exporting content is recorded: give --as and --reason", Exit.USAGE)
    with one_line_errors(), _contents(place, key, four_eyes=second is not None) as contents:
        parse(query or "", wall_clock())  # refuse an invalid query before recording anything
        other = None if second is None else holder(second, REVEAL)
        contents.taken(query, actor=holder(person, REVEAL), reason=reason, seconder=other)


@command.command("erase")
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
    with one_line_errors(), _contents(store, key) as contents:
        asked = None if before is None else parse(f"until:{before}", wall_clock()).until
        until = None if asked is None else instant_of(asked)
        done = contents.erase(
            actor=holder(person, ERASE), reason=reason, subject=subject, session=session, before=until
        )
    held = f", {done.held} stay under a hold" if done.held else ""
    typer.echo(f"{counted(done.erased, 'content')} erased{held}")


@command.command("hold")
def hold(
    store: Place,
    person: Person,
    reason: Reason,
    subject: Subject = None,
    session: Session = None,
    key: SigningKey = None,
) -> None:
    """Protect judged inputs, past and future, from erasure until the hold is released. Prints the hold's id."""
    with one_line_errors(), _contents(store, key) as contents:
        made = contents.hold(actor=holder(person, HOLD), reason=reason, subject=subject, session=session)
    typer.echo(made.id)


@command.command("holds")
def holds(store: Place, output: OutputAs = WrittenAs.TEXT) -> None:
    """List the holds in force."""
    with one_line_errors(), opened_for_search(store) as opened:
        stored = opened.contents().holds()
    found = [replace(one, subject=None if one.subject is None else shown_subject(one.subject)) for one in stored]

    def line(one: Hold) -> str:
        whose = one.subject or "everybody"
        which = "all sessions" if one.session is None else f"session {one.session}"
        return f"{iso(one.at)}  {whose}, {which}  by {one.actor}: {one.reason}"

    _print(found, output is WrittenAs.JSON, line, "no hold is in force")


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
        other = None if second is None else holder(second, HOLD)
        contents.release(id, actor=holder(person, HOLD), reason=reason, seconder=other)
    typer.echo(visible(f"{id}: released by {person}"))


@command.command("sweep")
def sweep(store: Place, key: SigningKey = None) -> None:
    """Erase everything whose retention has ended, and print how much that was."""
    with one_line_errors(), opened_store(store, key) as opened:
        for swept in Sweep(opened).run(micros(wall_clock())):
            failed = "" if swept.failed is None else f", failed: {swept.failed}"
            typer.echo(visible(f"{swept.holder}: {swept.erased} erased{failed}"))


def _print(found: Sequence[Listed], as_json: bool, line: Callable[[Listed], str], nothing: str) -> None:
    """Print a line for each, or `nothing` if there is none."""
    if not found:
        typer.echo(f"cmf: {nothing}", err=True)
    for one in found:
        if as_json:
            fields = asdict(one).items()
            shown = {name: iso(value) if name in _MOMENTS and value is not None else value for name, value in fields}
            typer.echo(escaped(dumps(shown).decode()))
        else:
            typer.echo(visible(f"{one.id}  {line(one)}"))


@contextmanager
def _contents(place: str, key: Path | None, *, four_eyes: bool = False) -> Iterator[Contents]:
    with opened_store(place, key) as store:
        yield store.contents(rules=ContentRules(four_eyes=four_eyes))
