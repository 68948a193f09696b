"""The commands for policy authors, and their options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import File, FromOrSeen, KindOrSeen
from pipeline.cli.replaying import FindingsAs, PolicyOption, WrittenAs


class BuiltinErrors(StrEnum):
    """What a failing builtin does."""

    STRICT = "strict"
    UNDEFINED = "undefined"


Project = Annotated[Path, typer.Argument(metavar="DIR", help="A project, or a policy directory.")]


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
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")
    ] = None,
    output: Annotated[WrittenAs, typer.Option("--format", help="The output format.")] = WrittenAs.TEXT,
) -> None:
    """Explain a decision: which rules hit and with which values, and at which expression the others stopped.

    FILE may be a recorded input, as `cmf audit reveal` writes it: then it has its own context and session.

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
    )


def add_to(app: typer.Typer) -> None:
    """Register these commands with `app`."""
    for name, command in (("check", check), ("why", why), ("doc", doc), ("fmt", fmt)):
        app.command(name)(command)
