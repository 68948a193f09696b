"""The commands for policy authors, and their options; their code is imported when they run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.commands.options import (
    Algorithm,
    AlgorithmOption,
    File,
    FindingsAs,
    FromOrSeen,
    KindOrSeen,
    OutputAs,
    PolicyOption,
    SealKey,
    Wire,
    WrittenAs,
)


class ViewFormat(StrEnum):
    """The output formats of `cmf view`."""

    TREE = "tree"
    JSON = "json"
    PATHS = "paths"


class EngineChoice(StrEnum):
    """Where policy is evaluated."""

    EMBEDDED = "embedded"
    OPA = "opa"


class Trace(StrEnum):
    """How much `cmf eval` explains; the levels are OPA's."""

    NOTES = "notes"
    FAILS = "fails"
    FULL = "full"


class Template(StrEnum):
    """The templates of `cmf init`."""

    TOOLS = "tools"
    PII = "pii"
    MCP = "mcp"
    EMPTY = "empty"


class BuiltinErrors(StrEnum):
    """What a failing builtin does."""

    STRICT = "strict"
    UNDEFINED = "undefined"


Project = Annotated[Path, typer.Argument(metavar="DIR", help="A project, or a policy directory.")]


def evaluate(
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
    from pipeline.cli.evaluate import run, traced

    run(
        file,
        source=None if source is None else source.value,
        target=None if to is None else to.value,
        kind=None if kind is None else kind.value,
        policies=policies,
        context=context,
        as_json=output is WrittenAs.JSON,
        engine=engine.value,
        opa_url=opa_url,
        entrypoint=entrypoint,
        bundle_key=bundle_key,
        algorithm=algorithm.value,
        store=store,
        session=session,
        subject=subject,
        seal_key=seal_key,
        shows_diff=diff,
        record=record,
        without_secrets=without_secrets,
        tracing=traced(None if trace is None else trace.value, lines=trace_lines, out=trace_out),
    )


def view(
    file: File,
    source: FromOrSeen = None,
    kind: KindOrSeen = None,
    output: Annotated[ViewFormat, typer.Option("--format", help="The output format.")] = ViewFormat.TREE,
) -> None:
    """Show what a policy sees of FILE: every value with its Rego path."""
    from pipeline.cli.view import run

    run(
        file,
        source=None if source is None else source.value,
        kind=None if kind is None else kind.value,
        output=output.value,
    )


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")] = Path(),
    template: Annotated[Template, typer.Option("--template", help="What the first rule is about.")] = Template.TOOLS,
) -> None:
    """Start a policy project: rules with tests, test cases, settings for editors and CI. All tests pass."""
    from pipeline.cli.init import run

    run(directory, template=template.value)


def run_cases(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A project: policies in DIR/policy, cases in DIR/cases.")
    ] = Path(),
    policies: PolicyOption = None,
    output: Annotated[FindingsAs, typer.Option("--format", help="The output format.")] = FindingsAs.TEXT,
    select: Annotated[str | None, typer.Option("--run", help="Only cases and tests whose name contains this.")] = None,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Report rules that hit in no case, and lines not reached.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", min=0, max=100, help="Fail if a smaller percentage of the rules hit in some case."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Run again whenever a file changes, until Ctrl-C.")] = False,
) -> None:
    """Run the test cases of DIR, conversations with the expected decisions, and the Rego tests of its policies.

    Exit codes: 0 all passed, 1 something failed, 2 no cases and no tests, 3 policy does not compile.
    """
    from pipeline.cli.test import run

    run(
        directory,
        policies=policies,
        output=output,
        select=select,
        shows_coverage=coverage,
        threshold=threshold,
        watches=watch,
    )


def playground(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8787,
    policies: Annotated[
        Path | None,
        typer.Option("--policies", "-p", metavar="DIR", help="A project or its policies; by default the current one."),
    ] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Never write: cases cannot be saved.")] = False,
) -> None:
    """Try out policies as you type, on a local web page; nothing leaves this machine."""
    from pipeline.cli.playground import run

    run(port=port, policies=policies, readonly=readonly)


def doc(
    directory: Project = Path(),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The output directory; by default DIR/docs/rules.")
    ] = None,
) -> None:
    """Write a page for each rule from its METADATA, settings, samples and cases, and an index."""
    from pipeline.cli.doc import run

    run(directory, out=out)


def fmt(
    directory: Project = Path(),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show the changes.")] = False,
) -> None:
    """Format Rego with OPA's formatter; needs the `opa` binary."""
    from pipeline.cli.fmt import run

    run(directory, check=check, diff=diff)


def check(
    directory: Project = Path(),
    policies: PolicyOption = None,
    output: Annotated[FindingsAs, typer.Option("--format", help="The output format.")] = FindingsAs.TEXT,
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")
    ] = None,
    builtin_errors: Annotated[
        BuiltinErrors, typer.Option("--builtin-errors", help="How failing builtins are handled when the set is loaded.")
    ] = BuiltinErrors.STRICT,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="Ignore findings with this code (repeatable).")
    ] = None,
    fail_on_warn: Annotated[bool, typer.Option("--fail-on-warn", help="Exit with 1 for warnings too.")] = False,
    with_opa: Annotated[
        bool | None,
        typer.Option(
            "--with-opa/--without-opa", help="Run `opa check --strict` with types; by default if opa is installed."
        ),
    ] = None,
    with_regal: Annotated[
        bool | None,
        typer.Option(
            "--with-regal/--without-regal", help="Run Regal; by default if it is installed, with findings as warnings."
        ),
    ] = None,
) -> None:
    """Report everything that is wrong with the policies of DIR.

    Exit codes: 0 clean, 1 errors, 2 usage, 3 policy does not compile.
    """
    from pipeline.cli.check import run

    run(
        directory,
        policies=policies,
        output=output,
        entrypoint=entrypoint,
        builtin_errors=builtin_errors.value,
        ignored=ignore or (),
        fails_on_warnings=fail_on_warn,
        with_opa=with_opa,
        with_regal=with_regal,
    )


def why(
    file: File,
    source: FromOrSeen = None,
    kind: KindOrSeen = None,
    policies: PolicyOption = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The context, with subject and session: JSON or YAML.")
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The subject's id.")] = None,
    view: Annotated[str | None, typer.Option("--view", help="Only this view: its number or its path.")] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only this rule, in full: <category>/<rule>.")] = None,
    case: Annotated[
        str | None, typer.Option("--case", metavar="NAME", help="The case to explain, if FILE is a file of test cases.")
    ] = None,
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")
    ] = None,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Explain a decision: which rules hit and with which values, and at which expression the others stopped.

    FILE may be a file of test cases, or a recorded input, as `cmf audit reveal` writes it: these have their own context
    and session.

    Exit codes: 0 explained, 2 usage, 3 policy does not compile, 4 input not readable.
    """
    from pipeline.cli.why import run

    run(
        file,
        source=None if source is None else source.value,
        kind=None if kind is None else kind.value,
        policies=policies,
        context=context,
        subject=subject,
        view=view,
        rule=rule,
        as_json=output is WrittenAs.JSON,
        entrypoint=entrypoint,
        case=case,
    )


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    app.command("eval")(evaluate)
    app.command("test")(run_cases)
    for command in (view, init, playground, doc, fmt, check, why):
        app.command(command.__name__)(command)


__all__ = ["Template", "add_to"]
