"""The commands about judged inputs on file: `impact`, `case`, `bench`. Their options; what they do is imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.sections import Whole


class ReportAs(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


class FindingsAs(StrEnum):
    """How findings are written: all that a report can be, and SARIF."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"
    SARIF = "sarif"


class WrittenAs(StrEnum):
    """How a command writes what it has to say: for people, or for programs."""

    TEXT = "text"
    JSON = "json"


def policy_place(text: str) -> Path:
    """The place that the word `shipped`, or a path, names; a directory of that name is `./shipped`."""
    if text != "shipped":
        return Path(text)
    from pipeline.policies.library import shipped

    return shipped()


Records = Annotated[
    str, typer.Option("--records", help="Judged inputs, from `cmf eval --record` (.gz too), or a store.")
]
SigningKey = Annotated[Path | None, typer.Option("--signing-key", metavar="PEM", help="What signs a store's records.")]
ProfilesOption = Annotated[Path | None, typer.Option("--profiles", help="What is known of tools: JSON or YAML.")]
PolicyOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--policies",
        "-p",
        metavar="DIR",
        parser=policy_place,
        help="Policies (repeatable): a directory, a bundle, or the word shipped; data alone goes over the shipped.",
    ),
]
case = typer.Typer(cls=Whole, help="Test cases.", no_args_is_help=True, rich_markup_mode=None)


def impact(
    base: Annotated[str, typer.Option("--base", metavar="DIR|REV", help="The policies as they are.")],
    head: Annotated[str, typer.Option("--head", metavar="DIR|REV", help="The policies as they are to be.")],
    records: Records,
    sample: Annotated[int | None, typer.Option("--sample", min=1, help="Only so many records, evenly spread.")] = None,
    max_newly_denied: Annotated[
        int | None, typer.Option("--max-newly-denied", min=0, help="Leave with 1 if more records are newly denied.")
    ] = None,
    output: Annotated[ReportAs, typer.Option("--format", help="How to write the result.")] = ReportAs.TEXT,
    profiles: ProfilesOption = None,
    key: SigningKey = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; by default one a core.")] = None,
    ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster: the one there is, or a local one.")] = False,
) -> None:
    """Say what a change of policies would have done to judged inputs: newly denied, newly allowed, changed.

    REV is the other directory as it was at that revision; git:REV says that it is no directory's name. Exit codes: 0
    done, 1 more newly denied than may be, 2 usage, 3 a policy does not compile, 4 the records cannot be read.
    """
    from pipeline.cli.impact import run

    run(
        base=base,
        head=head,
        records=records,
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
    id: Annotated[str, typer.Argument(metavar="ID", help="The record's id, as `cmf impact` names it.")],
    records: Records,
    policies: PolicyOption = None,
    name: Annotated[str | None, typer.Option("--name", help="What to call the case; by default its id.")] = None,
    with_secrets: Annotated[bool, typer.Option("--with-secrets", help="Leave secrets in it.")] = False,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who you are, of a store: it is recorded.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, of a store.")] = None,
    key: SigningKey = None,
) -> None:
    """Print a record as a test case for `cmf test`: what was judged, and what was decided.

    Secrets are replaced by stand-ins of the same shape. Where that, or other policies, changes what comes out, or a
    case cannot say all that was known, standard error says so.
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
        Path, typer.Argument(metavar="FILE|DIR", help="Records, or a directory of *.jsonl and *.jsonl.gz.")
    ],
    policies: PolicyOption = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Figures to compare with, from --format json.")
    ] = None,
    max_regress: Annotated[
        str,
        typer.Option("--max-regress", metavar="PERCENT", help="How much slower p50 and p95 may be than --baseline."),
    ] = "10%",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each record is judged.")] = 5,
    output: Annotated[WrittenAs, typer.Option("--format", help="How to write the figures.")] = WrittenAs.TEXT,
    profiles: ProfilesOption = None,
) -> None:
    """Measure how long decisions take on judged inputs, and which rules take longest.

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
    """Put the commands into `app`."""
    app.command("impact")(impact)
    app.command("bench")(bench)
    app.add_typer(case, name="case")


__all__ = ["FindingsAs", "PolicyOption", "ReportAs", "add_to", "policy_place"]
