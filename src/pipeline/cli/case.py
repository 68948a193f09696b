"""`cmf case from-record`: a recorded input as a test case."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.groups import command_group
from pipeline.cli.options import PolicyOption, Records, RecordsKey
from pipeline.cli.policy_places import chosen
from pipeline.cli.reading import one_line_errors
from pipeline.cli.stores import entry_in
from pipeline.decisions.display import visible

command = command_group("Test cases.")


@command.command("from-record")
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
    key: RecordsKey = None,
) -> None:
    """Print a record as a test case for `cmf test`: the input and the decision.

    Secrets are replaced by placeholders of the same shape. If that, or different policies, changes the decision, or a
    case cannot express everything that was known, standard error reports it.
    """
    from pipeline.authoring.case import case_text, left_out
    from pipeline.run.masking import Masking

    with one_line_errors():
        entry = entry_in(records, key, id, person=person, reason=reason)
        case = entry if with_secrets or entry.masked else Masking().masked(entry)
        policies = chosen(policies)
        text = case_text(case, name)
        notes = [f"left out: {what}" for what in left_out(case)]
        notes += [f"under these policies: {problem}" for problem in _problems(text, policies)]
    typer.echo(text, nl=False)
    for note in notes:
        typer.echo(f"cmf: {visible(note)}", err=True)


def _problems(text: str, policies: Sequence[Path] | None) -> tuple[str, ...]:
    """The failures of the case when `cmf test` runs it."""
    from pipeline.authoring.case import read_cases
    from pipeline.authoring.run_cases import CaseRunner
    from pipeline.run.assembly import load_policies

    runner = CaseRunner(load_policies(policies))
    try:
        with tempfile.TemporaryDirectory(prefix="cmf-") as folder:
            place = Path(folder) / "case.yaml"
            place.write_text(text, encoding="utf-8")
            return runner.run(read_cases(place)[0]).problems
    finally:
        runner.close()
