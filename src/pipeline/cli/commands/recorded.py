"""The commands on recorded inputs, `impact`, `case` and `bench`, and their options; their code is imported when run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.commands.options import OutputAs, PolicyOption, ProfilesOption, ReportAs, WrittenAs, policy_option
from pipeline.cli.commands.sections import FullHelpGroup

Records = Annotated[
    str, typer.Option("--records", help="Recorded inputs: a file from `cmf eval --record` (also .gz), or a store.")
]
SigningKey = Annotated[
    Path | None, typer.Option("--signing-key", metavar="PEM", help="The key that signs a store's records.")
]
case = typer.Typer(cls=FullHelpGroup, help="Test cases.", no_args_is_help=True, rich_markup_mode=None)


def impact(
    base: Annotated[str, typer.Option("--base", metavar="DIR|REV", help="The current policies.")],
    head: Annotated[str, typer.Option("--head", metavar="DIR|REV", help="The changed policies.")],
    records: Records,
    policies: Annotated[
        list[Path] | None,
        policy_option("Policies that both stand on (repeatable), such as the word shipped."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="Use only this many records, evenly spread.")
    ] = None,
    max_newly_denied: Annotated[
        int | None,
        typer.Option("--max-newly-denied", min=0, help="Exit with 1 if more records than this are newly denied."),
    ] = None,
    output: Annotated[ReportAs, typer.Option("--format", help="The output format.")] = ReportAs.TEXT,
    profiles: ProfilesOption = None,
    key: SigningKey = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="The number of processes; by default one per core.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run on Ray: an existing cluster, or a local one.")] = False,
) -> None:
    """Report what a policy change would have done to recorded inputs: newly denied, newly allowed, changed.

    REV is the other directory at that git revision; write git:REV if a directory has the same name. Exit codes: 0 done,
    1 more newly denied than allowed, 2 usage, 3 a policy does not compile, 4 the records cannot be read.
    """
    from pipeline.cli.impact import run

    run(
        base=base,
        head=head,
        records=records,
        policies=policies,
        key=key,
        sample=sample,
        max_newly_denied=max_newly_denied,
        output=output,
        profiles=profiles,
        jobs=jobs,
        ray=ray,
    )


@case.command("from-record")
def from_record(
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id, from `cmf impact`.")],
    records: Records,
    policies: PolicyOption = None,
    name: Annotated[str | None, typer.Option("--name", help="The name of the case; by default its id.")] = None,
    with_secrets: Annotated[bool, typer.Option("--with-secrets", help="Do not replace secrets.")] = False,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Your id, for a store; it is recorded.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason, for a store; it is recorded.")] = None,
    key: SigningKey = None,
) -> None:
    """Print a record as a test case for `cmf test`: the input and the decision.

    Secrets are replaced by placeholders of the same shape. If that, or different policies, changes the decision, or a
    case cannot express everything that was known, standard error reports it.
    """
    from pipeline.cli.case import run

    run(
        id,
        records=records,
        key=key,
        person=person,
        reason=reason,
        policies=policies,
        name=name,
        with_secrets=with_secrets,
    )


def bench(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="Recorded inputs, or a directory of *.jsonl and *.jsonl.gz.")
    ],
    policies: PolicyOption = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Figures to compare with, from a run with --format json.")
    ] = None,
    max_regress: Annotated[
        str,
        typer.Option("--max-regress", metavar="PERCENT", help="How much slower p50 and p95 may be than --baseline."),
    ] = "10%",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often to judge each record.")] = 5,
    output: OutputAs = WrittenAs.TEXT,
    profiles: ProfilesOption = None,
) -> None:
    """Measure how long decisions take on recorded inputs, and which rules take longest.

    Each has the context and session that it was recorded with.

    Exit codes: 0 done, 1 slower than the baseline allows, 2 usage, 3 policy does not compile, 4 input not readable.
    """
    from pipeline.cli.bench import run

    run(
        file,
        policies=policies,
        baseline=baseline,
        max_regress=max_regress,
        rounds=rounds,
        as_json=output is WrittenAs.JSON,
        profiles=profiles,
    )


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    app.command("impact")(impact)
    app.command("bench")(bench)
    app.add_typer(case, name="case")


__all__ = ["add_to"]
