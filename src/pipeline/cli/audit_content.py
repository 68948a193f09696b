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
from typing import Final, TypeVar

import typer

from cmf.json.codec import dumps
from pipeline.audit.query import parse
from pipeline.cli.audit import opened_for_search
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.recorded import opened_store
from pipeline.decisions.authority import holder
from pipeline.decisions.display import counted, escaped, visible
from pipeline.decisions.override import Override
from pipeline.decisions.session_key import shown_subject
from pipeline.decisions.timestamps import instant_of, iso, micros
from pipeline.sessions.base import wall_clock
from pipeline.store.content_access import PREFIX
from pipeline.store.contents import BREAK_GLASS, ERASE, HOLD, REVEAL, TWO_PEOPLE, ContentRules, Contents, Hold
from pipeline.store.four_eyes import Ask, RevealGrant
from pipeline.store.overrides import OVERRIDE
from pipeline.store.retention_sweep import Sweep

_MOMENTS: Final = frozenset({"at", "expires_at", "released_at"})
Listed = TypeVar("Listed", Ask, RevealGrant, Override, Hold)


def reveal(place: str, key: Path | None, record: str, *, person: str, second: str | None, reason: str) -> None:
    """Print the content of a record, after recording who asked for it."""
    with one_line_errors(), _contents(place, key, four_eyes=second is not None) as contents:
        other = None if second is None else holder(second, REVEAL)
        line = contents.reveal(record, actor=holder(person, REVEAL), reason=reason, seconder=other)
    typer.echo(escaped(line.decode()))


def ask(place: str, key: Path | None, record: str, *, person: str, reason: str) -> None:
    """Record a request to see the content of a record, and print its id for somebody else to grant."""
    with one_line_errors(), _contents(place, key) as contents:
        typer.echo(contents.four_eyes.ask(record, actor=holder(person, REVEAL), reason=reason).id)


def asks(place: str, *, as_json: bool) -> None:
    """Print the requests that are not granted yet."""
    with one_line_errors(), opened_for_search(place) as store:
        found = store.contents().four_eyes.asks()
    _print(found, as_json, lambda one: f"{iso(one.at)}  {one.record}  by {one.actor}: {one.reason}", "nobody asks")


def grant(place: str, key: Path | None, asked: str, *, person: str, reason: str, lasting: timedelta) -> None:
    """Grant a request."""
    with one_line_errors(), _contents(place, key) as contents:
        made = contents.four_eyes.grant(asked, actor=holder(person, REVEAL), reason=reason, expires_in=lasting)
    typer.echo(visible(f"{made.id}: {made.actor} may see {made.record} until {iso(made.expires_at)}"))


def grants(place: str, *, as_json: bool) -> None:
    """Print the grants in force."""
    with one_line_errors(), opened_for_search(place) as store:
        found = store.contents().four_eyes.grants()

    def line(one: RevealGrant) -> str:
        scope = [one.record, one.subject and f"subject {one.subject}", one.session and f"session {one.session}"]
        what = ", ".join(part for part in scope if part)
        return f"until {iso(one.expires_at)}  {one.actor}: {what}  by {one.second}"

    _print(found, as_json, line, "no grant is in force")


def break_glass(
    place: str,
    key: Path | None,
    *,
    person: str,
    second: str,
    reason: str,
    subject: str | None,
    session: str | None,
    lasting: timedelta,
) -> None:
    """Open all content of a subject or session for a while, and print until when."""
    _say_once()
    with one_line_errors(), _contents(place, key) as contents:
        made = contents.four_eyes.break_glass(
            actor=holder(person, BREAK_GLASS),
            seconder=holder(second, BREAK_GLASS),
            reason=reason,
            subject=subject,
            session=session,
            expires_in=lasting,
        )
    typer.echo(visible(f"{made.id}: {made.actor} may see it until {iso(made.expires_at)}"))


def _say_once() -> None:
    """Keep off the terminal what the library logs of an act that the command itself reports."""
    logging.getLogger("pipeline.store").addHandler(logging.NullHandler())


def close(place: str, key: Path | None, grant: str, *, person: str, reason: str) -> None:
    """End a grant, or an override."""
    with one_line_errors(), opened_store(place, key) as store:
        if grant.startswith(PREFIX["override"]):
            store.overrides().close(grant, actor=holder(person, OVERRIDE), reason=reason)
        else:
            store.contents().four_eyes.close(grant, actor=holder(person, REVEAL), reason=reason)


def override(
    place: str,
    key: Path | None,
    rule: str,
    *,
    person: str,
    second: str,
    reason: str,
    subject: str | None,
    session: str | None,
    uri: str | None,
    lasting: timedelta,
) -> None:
    """Lift a rule's denials for a while, and print until when."""
    _say_once()
    with one_line_errors(), opened_store(place, key) as store:
        made = store.overrides().open(
            rule,
            actor=holder(person, OVERRIDE),
            seconder=holder(second, OVERRIDE),
            reason=reason,
            subject=subject,
            session=session,
            uri=uri,
            expires_in=lasting,
        )
    typer.echo(visible(f"{made.id}: {made.rule} denies nothing for {_scope(made)} until {iso(made.expires_at)}"))


def overrides(place: str, *, as_json: bool) -> None:
    """Print the overrides in force."""
    with one_line_errors(), opened_for_search(place) as store:
        found = store.overrides().read()

    def line(one: Override) -> str:
        return f"until {iso(one.expires_at)}  {one.rule}: {_scope(one)}  by {one.actor} and {one.second}"

    _print(found, as_json, line, "no override is in force")


def _scope(one: Override) -> str:
    scope = [one.subject and f"subject {one.subject}", one.session and f"session {one.session}", one.uri]
    return ", ".join(part for part in scope if part)


def need_two(place: str, key: Path | None, needed: bool, *, person: str, second: str | None, reason: str) -> None:
    """Make the store require two people, or not."""
    with one_line_errors(), _contents(place, key) as contents:
        other = None if second is None else holder(second, TWO_PEOPLE)
        contents.four_eyes.need_two(needed, actor=holder(person, TWO_PEOPLE), reason=reason, seconder=other)


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


def erase(
    place: str,
    key: Path | None,
    *,
    person: str,
    reason: str,
    subject: str | None,
    session: str | None,
    before: str | None,
) -> None:
    """Erase content, and print how much."""
    with one_line_errors(), _contents(place, key) as contents:
        asked = None if before is None else parse(f"until:{before}", wall_clock()).until
        until = None if asked is None else instant_of(asked)
        done = contents.erase(
            actor=holder(person, ERASE), reason=reason, subject=subject, session=session, before=until
        )
    held = f", {done.held} stay under a hold" if done.held else ""
    typer.echo(f"{counted(done.erased, 'content')} erased{held}")


def hold(place: str, key: Path | None, *, person: str, reason: str, subject: str | None, session: str | None) -> None:
    """Put a hold on content, and print its id."""
    with one_line_errors(), _contents(place, key) as contents:
        made = contents.hold(actor=holder(person, HOLD), reason=reason, subject=subject, session=session)
    typer.echo(made.id)


def holds(place: str, *, as_json: bool) -> None:
    """Print the holds in force."""
    with one_line_errors(), opened_for_search(place) as store:
        stored = store.contents().holds()
    found = [replace(one, subject=None if one.subject is None else shown_subject(one.subject)) for one in stored]

    def line(one: Hold) -> str:
        whose = one.subject or "everybody"
        which = "all sessions" if one.session is None else f"session {one.session}"
        return f"{iso(one.at)}  {whose}, {which}  by {one.actor}: {one.reason}"

    _print(found, as_json, line, "no hold is in force")


def release(place: str, key: Path | None, hold: str, *, person: str, second: str | None, reason: str) -> None:
    """Release a hold."""
    with one_line_errors(), _contents(place, key, four_eyes=second is not None) as contents:
        other = None if second is None else holder(second, HOLD)
        contents.release(hold, actor=holder(person, HOLD), reason=reason, seconder=other)
    typer.echo(visible(f"{hold}: released by {person}"))


def sweep(place: str, key: Path | None) -> None:
    """Erase everything whose retention has ended."""
    with one_line_errors(), opened_store(place, key) as store:
        for swept in Sweep(store).run(micros(wall_clock())):
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


__all__ = [
    "ask",
    "asks",
    "break_glass",
    "close",
    "erase",
    "grant",
    "grants",
    "hold",
    "holds",
    "need_two",
    "override",
    "overrides",
    "release",
    "reveal",
    "sweep",
    "take",
]
