"""`cmf eval`: judge one file and show the output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from pipeline.cli import rendering
from pipeline.cli.options import (
    Algorithm,
    AlgorithmOption,
    ContextFile,
    Entrypoint,
    File,
    FromOrSeen,
    KindOrSeen,
    OutputAs,
    PolicyOption,
    SealKey,
    SessionId,
    SubjectId,
    TraceLevel,
    Wire,
)
from pipeline.cli.policy_places import Places, chosen
from pipeline.cli.reading import Exit, check_has_none, fail, one_line_errors, read_context, read_seal_key, read_wire
from pipeline.decisions.display import visible

if TYPE_CHECKING:
    from cmf.adapters.wire.loss import Loss
    from pipeline.engines.recording import Tap
    from pipeline.policy.policy_set import PolicySet
    from pipeline.run.outcome import Outcome
    from pipeline.sessions.base import SessionStore
    from pipeline.sessions.observed import WatchedSessions


EngineChoice = Literal["embedded", "opa"]


def command(
    file: File,
    source: FromOrSeen = None,
    to: Annotated[Wire | None, typer.Option("--to", help="The format to emit; by default that of FILE.")] = None,
    kind: KindOrSeen = None,
    policies: PolicyOption = None,
    context: ContextFile = None,
    output: OutputAs = "text",
    engine: Annotated[EngineChoice, typer.Option("--engine", help="Where policy is evaluated.")] = "embedded",
    opa_url: Annotated[str | None, typer.Option("--opa-url", help="The OPA server, for --engine opa.")] = None,
    entrypoint: Entrypoint = None,
    bundle_key: Annotated[
        Path | None,
        typer.Option("--bundle-key", metavar="FILE", help="The public key that the policies must be signed with."),
    ] = None,
    algorithm: AlgorithmOption = "RS256",
    store: Annotated[
        str | None,
        typer.Option("--store", help="The session store: a SQLite file, sqlite:////…, postgresql://… or redis://…"),
    ] = None,
    session: SessionId = None,
    subject: SubjectId = None,
    seal_key: SealKey = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what policy changed instead of the output.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Append the judged input to this file, including its content.")
    ] = None,
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="With --record: replace secrets by placeholders.")
    ] = False,
    trace: Annotated[
        TraceLevel | None,
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
    from pipeline.cli.trace import Traced, write_trace
    from pipeline.engines.recording import Tap
    from pipeline.engines.rego_tests import prints
    from pipeline.guard import Guard
    from pipeline.replay.replay import Replay
    from pipeline.run.assembly import Config, build_engine
    from pipeline.run.masking import Masking
    from pipeline.run.recorded_input import append, entry_of

    if trace is None and trace_out is not None:
        fail("--trace-out needs --trace notes, fails or full", Exit.USAGE)
    policies = chosen(policies)
    with one_line_errors(policies=policies or ()), ExitStack() as opened:
        sealing = None if seal_key is None else read_seal_key(seal_key)
        config = Config(opa_url=opa_url, entrypoint=entrypoint, seal_key=sealing)
        watched = _watched_sessions(store, opened)
        loaded = _loaded(policies, entrypoint, bundle_key, algorithm)
        tap = Tap(build_engine(loaded, engine, config)) if trace is not None or prints(loaded) else None
        sessions = cast("SessionStore", watched)
        guard = opened.enter_context(Guard(loaded, engine=tap or engine, config=config, sessions=sessions))
        with one_line_errors(str(context or "")):
            judged_in = read_context(context, subject, session)
        with one_line_errors(file):
            read = read_wire(file, source, kind)
            traffic, target = read.traffic, to or read.source
        with watched.watching() as noted:
            if read.entry is None:
                outcome = guard.run(traffic, context=judged_in)
            else:
                own = {"--context": context, "--subject": subject, "--session": session, "--store": store}
                check_has_none("a recorded input", own | {"--record": record})
                outcome = Replay(loaded, engine=tap or build_engine(loaded, engine, config)).outcome(read.entry)
        if record is not None:
            entry = entry_of(traffic, judged_in, noted.session, outcome.decision, seen=noted.seen)
            append(record, Masking().masked(entry) if without_secrets else entry)
        if tap is not None and trace is None:
            _show_printed(tap, loaded, policies)
    wire, losses = _emitted(outcome, target, file)
    if tap is not None and trace is not None:
        with one_line_errors(policies=policies or ()):
            traced = Traced(policies=loaded, directories=policies, tap=tap, outcome=outcome, wire=wire)
            write_trace(traced, trace, most=trace_lines, out=trace_out)
    if output == "json":
        rendering.write_line(outcome.decision.to_json() | {"request": wire})
    else:
        rendering.show_outcome(outcome, None if diff else wire, target, losses, Places(loaded, policies).of)
        if diff and outcome.value is not None:
            with one_line_errors(file):
                rendering.show_changes(traffic, outcome.value, target)
    raise typer.Exit(int(_exit_code(outcome, engine)))


def _loaded(
    policies: list[Path] | None, entrypoint: str | None, bundle_key: Path | None, algorithm: Algorithm
) -> PolicySet:
    """The policies; ConfigError or PolicyError if they are not signed with the key that is named."""
    from pipeline.policy.bundle_signature import Key, Verification
    from pipeline.run.assembly import load_policies

    signed_by = None if bundle_key is None else Key.at(bundle_key, algorithm=algorithm)
    verification = None if signed_by is None else Verification({"key": signed_by}, key_id="key")
    return load_policies(policies, entrypoint=entrypoint, verification=verification)


def _watched_sessions(store: str | None, opened: ExitStack) -> WatchedSessions:
    from pipeline.run.assembly import open_sessions
    from pipeline.sessions.base import MemorySessions
    from pipeline.sessions.observed import WatchedSessions

    return WatchedSessions(MemorySessions() if store is None else opened.enter_context(open_sessions(store)))


def _show_printed(tap: Tap, policies: PolicySet, directories: list[Path] | None) -> None:
    """Show what policies printed, each line with its place."""
    from pipeline.engines.rego_tests import Printing

    places = Places(policies, directories)
    for printed in Printing(policies).lines(tap.asked):
        typer.echo(f"{places.file(printed.path)}:{printed.line}: {visible(printed.text)}", err=True)


def _emitted(outcome: Outcome, target: str, file: str) -> tuple[Any, Sequence[Loss]]:
    """What goes out in the target's format, None if nothing does; and what that format cannot express."""
    from cmf.adapters.wire import loss
    from pipeline.run.emit import emit

    with one_line_errors(file), loss.collecting() as losses:
        return emit(outcome, target) if outcome.value is not None else None, losses


def _exit_code(outcome: Outcome, engine: EngineChoice) -> Exit:
    """The exit code of the decision; says it if there is none because the OPA server did not answer."""
    from pipeline.decisions.decision import Action
    from pipeline.run.outcome import is_outage

    decision = outcome.decision
    if engine == "opa" and any(hit.code == "engine.unavailable" for hit in decision.reasons):
        hint = "check --opa-url, and that `opa run --server` is running"
        typer.echo(f"cmf: the OPA server did not answer; {hint}", err=True)
    if decision.action is Action.SUSPEND:
        return Exit.SUSPENDED
    if decision.action is Action.REFUSE:
        return Exit.EVALUATION if is_outage(decision) or not decision.coverage.full else Exit.REFUSED
    return Exit.OK
