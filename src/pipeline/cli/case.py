"""`cmf case from-record`: a recorded input as a test case."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from pipeline.authoring.case import read_cases
from pipeline.authoring.case_from_record import case_text, left_out
from pipeline.authoring.run_cases import CaseRunner
from pipeline.cli.policy_places import chosen
from pipeline.cli.reading import one_line_errors
from pipeline.cli.recorded import entry_in
from pipeline.decisions.display import visible
from pipeline.run.assembly import load_policies
from pipeline.run.masking import Masking


def run(
    id: str,
    *,
    records: str,
    key: Path | None,
    person: str | None,
    reason: str | None,
    policies: Sequence[Path] | None,
    name: str | None,
    with_secrets: bool,
) -> None:
    """Print the case; on standard error, report where it differs from the recorded input or its decision."""
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
    runner = CaseRunner(load_policies(policies))
    try:
        with tempfile.TemporaryDirectory(prefix="cmf-") as folder:
            place = Path(folder) / "case.yaml"
            place.write_text(text, encoding="utf-8")
            return runner.run(read_cases(place)[0]).problems
    finally:
        runner.close()


__all__ = ["run"]
