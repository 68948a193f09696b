"""`cmf eval`: judge one file and show the output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, cast

import typer

from cmf.adapters.wire import loss
from cmf.json.codec import dumps
from pipeline.cli import rendering
from pipeline.cli.changes import show_changes
from pipeline.cli.policy_places import Places, chosen
from pipeline.cli.reading import Exit, check_has_none, fail, one_line_errors, read_context, read_seal_key, read_wire
from pipeline.cli.trace import Level, Traced, Tracing
from pipeline.decisions.decision import Action
from pipeline.decisions.display import escaped, visible
from pipeline.engines.prints import Printed, Printing, prints
from pipeline.engines.recording import Tap
from pipeline.guard import Guard
from pipeline.policy.bundle_signature import Key, Verification
from pipeline.replay.replay import Replay
from pipeline.run.assembly import Config, build_engine, load_policies, open_sessions
from pipeline.run.emit import emit
from pipeline.run.masking import Masking
from pipeline.run.outcome import Outcome, is_outage
from pipeline.run.recorded_input import append, entry_of
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.observed import WatchedSessions


def run(
    file: str,
    *,
    source: str | None,
    target: str | None,
    kind: str | None,
    policies: Sequence[Path] | None,
    context: Path | None,
    as_json: bool,
    engine: str,
    opa_url: str | None,
    entrypoint: str | None,
    bundle_key: Path | None = None,
    algorithm: str = "RS256",
    store: str | None = None,
    session: str | None = None,
    subject: str | None = None,
    seal_key: Path | None = None,
    shows_diff: bool = False,
    record: Path | None = None,
    without_secrets: bool = False,
    tracing: Tracing | None = None,
) -> None:
    """Judge `file`, print the result, and exit with its code.

    With a store, the session is read and updated: labels, counts and approvals carry over from call to call.
    """
    policies = chosen(policies)
    with one_line_errors(policies=policies or ()), ExitStack() as opened:
        key = None if seal_key is None else read_seal_key(seal_key)
        config = Config(opa_url=opa_url, entrypoint=entrypoint, seal_key=key)
        watched = WatchedSessions(MemorySessions() if store is None else opened.enter_context(open_sessions(store)))
        name = cast("Literal['embedded', 'opa']", engine)
        signer = None
        if bundle_key is not None:
            signer = Verification({"key": Key.at(bundle_key, algorithm=algorithm)}, key_id="key")
        loaded = load_policies(policies, entrypoint=entrypoint, verification=signer)
        sessions = cast("SessionStore", watched)
        tap = Tap(build_engine(loaded, name, config)) if tracing is not None or prints(loaded) else None
        guard = opened.enter_context(Guard(loaded, engine=tap or name, config=config, sessions=sessions))
        with one_line_errors(str(context or "")):
            known = read_context(context, subject)
        with one_line_errors(file):
            read = read_wire(file, source, kind)
            traffic, target = read.traffic, target or read.source
        own = {"--context": context, "--subject": subject, "--session": session, "--store": store, "--record": record}
        if read.entry is not None:
            check_has_none("a recorded input", own)
        if session is not None:
            known = known.model_copy(update={"session": session})
        with watched.watching() as noted:
            if read.entry is None:
                outcome = guard.run(traffic, context=known)
            else:
                outcome = Replay(loaded, engine=tap or build_engine(loaded, name, config)).outcome(read.entry)
        if record is not None:
            entry = entry_of(traffic, known, noted.session, outcome.decision, seen=noted.seen)
            append(record, Masking().masked(entry) if without_secrets else entry)
        if tap is not None and tracing is None:
            show_printed(Printing(loaded).lines(tap.asked), Places(loaded, policies))
    with one_line_errors(file), loss.collecting() as losses:
        wire = emit(outcome, target) if outcome.value is not None else None
    if tap is not None and tracing is not None:
        with one_line_errors(policies=policies or ()):
            tracing.write(Traced(policies=loaded, directories=policies, tap=tap, outcome=outcome, wire=wire))
    if as_json:
        typer.echo(escaped(dumps(as_document(outcome, wire)).decode()))
    else:
        rendering.show_outcome(outcome, None if shows_diff else wire, target, losses, Places(loaded, policies).of)
        if shows_diff and outcome.value is not None:
            with one_line_errors(file):
                show_changes(traffic, outcome.value, target)
    if engine == "opa" and any(hit.code == "engine.unavailable" for hit in outcome.decision.reasons):
        typer.echo(
            "cmf: the OPA server did not answer; check --opa-url, and that `opa run --server` is running", err=True
        )
    raise typer.Exit(int(exit_code(outcome)))


def traced(level: str | None, *, lines: int, out: Path | None) -> Tracing | None:
    """The trace that the options request, if any."""
    if level is None and out is not None:
        fail("--trace-out needs --trace notes, fails or full", Exit.USAGE)
    return None if level is None else Tracing(level=cast("Level", level), lines=lines, out=out)


def show_printed(printed: Sequence[Printed], places: Places) -> None:
    """Show what policies printed, each line with its place."""
    for one in printed:
        typer.echo(f"{places.file(one.path)}:{one.line}: {visible(one.text)}", err=True)


def as_document(outcome: Outcome, wire: Any) -> dict[str, Any]:
    """The JSON of `--format json`."""
    return outcome.decision.to_json() | {"request": wire}


def exit_code(outcome: Outcome) -> Exit:
    """The exit code of the decision."""
    decision = outcome.decision
    if decision.action is Action.SUSPEND:
        return Exit.SUSPENDED
    if decision.action is Action.REFUSE:
        return Exit.EVALUATION if is_outage(decision) or not decision.coverage.full else Exit.REFUSED
    return Exit.OK


__all__ = ["as_document", "exit_code", "run", "traced"]
