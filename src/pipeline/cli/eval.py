"""`cmf eval`: judge one file and show the output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from cmf.adapters.wire import loss
from cmf.json.codec import dumps
from pipeline.cli import rendering
from pipeline.cli.changes import show_changes
from pipeline.cli.options import (
    Algorithm,
    AlgorithmOption,
    File,
    FromOrSeen,
    KindOrSeen,
    OutputAs,
    PolicyOption,
    SealKey,
    Wire,
    WrittenAs,
)
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


class EngineChoice(StrEnum):
    """Where policy is evaluated."""

    EMBEDDED = "embedded"
    OPA = "opa"


class Trace(StrEnum):
    """How much `cmf eval` explains; the levels are OPA's."""

    NOTES = "notes"
    FAILS = "fails"
    FULL = "full"


def command(
    file: File,
    source: FromOrSeen = None,
    to: Annotated[Wire | None, typer.Option("--to", help="The format to emit; by default that of FILE.")] = None,
    kind: KindOrSeen = None,
    policies: PolicyOption = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The context, with subject and session: JSON or YAML.")
    ] = None,
    output: OutputAs = WrittenAs.TEXT,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="Where policy is evaluated.")
    ] = EngineChoice.EMBEDDED,
    opa_url: Annotated[str | None, typer.Option("--opa-url", help="The OPA server, for --engine opa.")] = None,
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")
    ] = None,
    bundle_key: Annotated[
        Path | None,
        typer.Option("--bundle-key", metavar="FILE", help="The public key that the policies must be signed with."),
    ] = None,
    algorithm: AlgorithmOption = Algorithm.RS256,
    store: Annotated[
        str | None,
        typer.Option("--store", help="The session store: a SQLite file, sqlite:////…, postgresql://… or redis://…"),
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session's id.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The subject's id.")] = None,
    seal_key: SealKey = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what policy changed instead of the output.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Append the judged input to this file, including its content.")
    ] = None,
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="With --record: replace secrets by placeholders.")
    ] = False,
    trace: Annotated[
        Trace | None,
        typer.Option("--trace", help="Explain what policies print, where rules stopped, or both."),
    ] = None,
    trace_lines: Annotated[int, typer.Option("--trace-lines", min=1, help="Print at most this many lines.")] = 200,
    trace_out: Annotated[
        Path | None, typer.Option("--trace-out", metavar="FILE", help="Write all of it to this file.")
    ] = None,
) -> None:
    """Judge one request or response: print a line per view, the verdict, and the output.

    --trace explains on standard error, view by view: `notes` shows what policies print; `fails`, for each rule that did
    not hit, the expression at which it stopped, with its values; `full` both, for all rules and definitions. It
    evaluates the policies again rather than tracing the engine. Content is shown only where the output has it too,
    otherwise its length is given. `cmf why` shows all values.

    Exit codes: 0 forwarded, 1 refused, 2 usage, 3 policy does not compile, 4 input not readable, 5 evaluation failed,
    6 suspended for approval.
    """
    tracing = traced(None if trace is None else trace.value, lines=trace_lines, out=trace_out)
    policies = chosen(policies)
    with one_line_errors(policies=policies or ()), ExitStack() as opened:
        key = None if seal_key is None else read_seal_key(seal_key)
        config = Config(opa_url=opa_url, entrypoint=entrypoint, seal_key=key)
        watched = WatchedSessions(MemorySessions() if store is None else opened.enter_context(open_sessions(store)))
        name = cast("Literal['embedded', 'opa']", engine)
        signed_by = None if bundle_key is None else Key.at(bundle_key, algorithm=algorithm)
        verification = None if signed_by is None else Verification({"key": signed_by}, key_id="key")
        loaded = load_policies(policies, entrypoint=entrypoint, verification=verification)
        sessions = cast("SessionStore", watched)
        tap = Tap(build_engine(loaded, name, config)) if tracing is not None or prints(loaded) else None
        guard = opened.enter_context(Guard(loaded, engine=tap or name, config=config, sessions=sessions))
        with one_line_errors(str(context or "")):
            known = read_context(context, subject)
        with one_line_errors(file):
            read = read_wire(file, source, kind)
            traffic, target = read.traffic, to or read.source
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
    if output is WrittenAs.JSON:
        typer.echo(escaped(dumps(as_document(outcome, wire)).decode()))
    else:
        rendering.show_outcome(outcome, None if diff else wire, target, losses, Places(loaded, policies).of)
        if diff and outcome.value is not None:
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
