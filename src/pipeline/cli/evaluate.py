"""`cmf eval`: judge one file and show what would go out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, cast

import typer

from cmf.adapters import loss
from cmf.codec import dumps
from pipeline.assembly import Config, open_sessions
from pipeline.cli import rendering
from pipeline.cli.reading import Exit, one_line_errors, read_context, read_seal_key, read_traffic
from pipeline.decision import Action
from pipeline.emission import emit
from pipeline.guard import Guard, is_outage
from pipeline.runner import Outcome


def run(
    file: str,
    *,
    source: str,
    target: str,
    kind: str,
    policies: Sequence[Path] | None,
    context: Path | None,
    as_json: bool,
    engine: str,
    opa_url: str | None,
    entrypoint: str | None,
    store: str | None = None,
    session: str | None = None,
    subject: str | None = None,
    seal_key: Path | None = None,
) -> None:
    """Judge `file`, print the result, leave with the exit code that says it.

    With a store, the session there is read and changed: labels, counts and approvals hold from call to call.
    """
    with one_line_errors(), ExitStack() as opened:
        key = None if seal_key is None else read_seal_key(seal_key)
        config = Config(opa_url=opa_url, entrypoint=entrypoint, seal_key=key)
        sessions = None if store is None else opened.enter_context(open_sessions(store))
        name = cast("Literal['embedded', 'opa']", engine)
        guard = opened.enter_context(Guard(policies, engine=name, config=config, sessions=sessions))
        with one_line_errors(str(context or "")):
            known = read_context(context)
        with one_line_errors(file):
            traffic = read_traffic(file, source, kind)
        who = None if subject is None else {"id": subject}
        outcome = guard.run(traffic, context=known, subject=who, session=session)
    with one_line_errors(file), loss.collecting() as losses:
        wire = emit(outcome, target) if outcome.value is not None else None
    if as_json:
        typer.echo(dumps(as_document(outcome, wire)).decode())
    else:
        rendering.show_outcome(outcome, wire, target, losses)
    raise typer.Exit(int(exit_code(outcome)))


def as_document(outcome: Outcome, wire: Any) -> dict[str, Any]:
    """The JSON that `--format json` prints."""
    return outcome.decision.to_json() | {"request": wire}


def exit_code(outcome: Outcome) -> Exit:
    """What the decision means for a caller that only looks at the exit code."""
    decision = outcome.decision
    if decision.action is Action.SUSPEND:
        return Exit.SUSPENDED
    if decision.action is Action.REFUSE:
        return Exit.EVALUATION if is_outage(decision) or not decision.coverage.full else Exit.REFUSED
    return Exit.OK


__all__ = ["as_document", "exit_code", "run"]
