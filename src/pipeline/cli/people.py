"""`cmf approvals` and `cmf declassify`: human decisions, on a store shared with running pipelines.

Whoever can open the store is trusted to be who they say, with the permission that the step needs [CLI-23].
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import typer

from cmf.json.codec import dumps
from cmf.message.security import SubjectExtension
from pipeline.approvals.declassification import ALL_ON_RECORD, DeclassificationRules, declassify
from pipeline.approvals.queue import Approvals
from pipeline.audit.record import Record
from pipeline.cli.reading import Exit, fail, one_line_errors, read_seal_key
from pipeline.cli.recorded import opened_store
from pipeline.decisions.approval import Approval
from pipeline.decisions.authority import APPROVE, DECLASSIFY, holder
from pipeline.decisions.context import Context
from pipeline.decisions.display import counted, escaped, escaped_json, visible
from pipeline.decisions.timestamps import iso
from pipeline.run.assembly import REDIS, open_sessions
from pipeline.sessions.base import SessionStore
from pipeline.store.recorder import Recorder

_DURATION: Final = re.compile(r"([1-9]\d{0,5})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def list_approvals(store: str, *, as_json: bool) -> None:
    """Print pending approvals, oldest first."""
    with _approvals(store, None) as approvals:
        waiting = approvals.pending()
    if as_json:
        typer.echo(escaped(dumps([_document(one) for one in waiting]).decode()))
        return
    if not waiting:
        typer.echo("cmf: no pending approvals", err=True)
    for one in waiting:
        asked = one.asked
        rules = ", ".join(asked.rules)
        who = f"{one.key.subject} in {one.key.session}"
        typer.echo(visible(f"{asked.id}  {asked.target}  {who}  by {rules}  until {iso(asked.expires_at)}"))


def show(approval_id: str, store: str, *, seal_key: Path | None, as_json: bool) -> None:
    """Print one approval, with its content if the key is given."""
    with _approvals(store, seal_key) as approvals:
        found = approvals.get(approval_id)
        about = approvals.shown(approval_id) if seal_key is not None else None
    document = _document(found) | ({} if about is None else {"about": about})
    typer.echo(escaped(dumps(document).decode()) if as_json else escaped_json(document))


def decide(approval_id: str, store: str, *, person: str, approve: bool, key: Path | None = None) -> None:
    """Decide the approval, and record it if the store has a log."""
    with one_line_errors(), _recorded(store, key) as known:
        approvals = Approvals(known.sessions, record=known.record)
        decided = (approvals.approve if approve else approvals.deny)(approval_id, holder(person, APPROVE))
    typer.echo(visible(f"{approval_id}: {decided.status.value} by {person}"))


def lift(
    label: str,
    store: str,
    *,
    subject: str | None,
    session: str,
    person: str,
    second: str | None,
    reason: str,
    scope: str,
    lasting: str,
    sources: Sequence[str],
    key: Path | None = None,
) -> None:
    """Lift the label, recorded if the store has a log, and print until when."""
    found = _DURATION.fullmatch(lasting)
    if found is None:
        fail("--for takes a number and s, m, h or d, such as 30m or 8h", Exit.USAGE)
    context = Context(subject=None if subject is None else SubjectExtension(id=subject), session=session)
    logging.getLogger("pipeline.approvals.declassification").addHandler(logging.NullHandler())  # printed below
    with one_line_errors(), _recorded(store, key) as known:
        grant = declassify(
            known.sessions,
            context,
            label=label,
            sources=list(sources) or ALL_ON_RECORD,
            actor=holder(person, DECLASSIFY),
            seconder=None if second is None else holder(second, DECLASSIFY),
            reason=reason,
            scope=scope,
            expires_in=timedelta(**{_UNITS[found[2]]: int(found[1])}),
            rules=DeclassificationRules(four_eyes=known.four_eyes),
            record=known.record,
        )
    events = counted(len(grant.sources), "event")
    typer.echo(visible(f"{grant.id}: {label} lifted for {events} until {iso(grant.expires_at)}"))


@contextmanager
def _approvals(store: str, seal_key: Path | None) -> Iterator[Approvals]:
    with one_line_errors():
        key = None if seal_key is None else read_seal_key(seal_key)
        with _opened(store) as sessions:
            yield Approvals(sessions, seal_key=key)


@dataclass(frozen=True, slots=True)
class _Known:
    """Sessions, how to record decisions about them, and whether the store requires two people."""

    sessions: SessionStore
    record: Callable[[Record], None] | None = None
    four_eyes: bool = False


@contextmanager
def _recorded(store: str, key: Path | None) -> Iterator[_Known]:
    if store.startswith(REDIS):
        typer.echo("cmf: sessions in Redis have no log: this is not recorded", err=True)
        with _opened(store) as sessions:
            yield _Known(sessions)
        return
    with opened_store(store, key) as opened:
        yield _Known(opened.sessions(), Recorder(opened).record, opened.contents().four_eyes.needed)


@contextmanager
def _opened(store: str) -> Iterator[SessionStore]:
    """The sessions of an existing store: a misspelt name must not create one."""
    with open_sessions(store, made=False) as sessions:
        yield sessions


def _document(approval: Approval) -> dict[str, Any]:
    shown = approval.to_json()
    for name in ("requested_at", "expires_at", "decided_at", "used_at"):
        shown[name] = None if shown[name] is None else iso(shown[name])
    return shown


__all__ = ["decide", "lift", "list_approvals", "show"]
