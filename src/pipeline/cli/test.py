"""`cmf test`: judge the cases of a directory, and say what came out other than expected."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import typer
from rich.text import Text

from pipeline.assembly import load_policies
from pipeline.case_run import CaseResult, CaseRunner
from pipeline.cases import Case, read_cases
from pipeline.cli.findings import Finding, JUnitCase, ReportFormat, write_github, write_json, write_junit
from pipeline.cli.policy_places import policy_directory
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.rendering import console
from pipeline.decision import Mode
from pipeline.display import visible


def run(
    directory: Path,
    *,
    policies: Sequence[Path] | None,
    output: str,
    select: str | None,
    shows_coverage: bool,
    threshold: float | None,
) -> None:
    """Run the cases of `directory`/cases under `directory`/policy; leave with 1 if one failed or coverage is short."""
    with one_line_errors():
        loaded = load_policies(policies or policy_directory(directory))
        chosen = [
            case for path in case_files(directory) for case in read_cases(path) if select is None or select in case.name
        ]
        if not chosen:
            fail(f"{directory}: no cases; write some in {directory / 'cases'}", Exit.USAGE)
        runner = CaseRunner(loaded)
        timed = [_timed(runner, case) for case in chosen]
        runner.close()
    results = [result for result, _ in timed]
    hit = {rule for result in results for rule in result.rules}
    asked = [rule.id for rule in loaded.rules if rule.mode is not Mode.OFF]
    coverage = Coverage(asked=len(asked), never=tuple(rule for rule in asked if rule not in hit))
    short = coverage.percent < (threshold or 0)
    match ReportFormat(output):
        case ReportFormat.TEXT:
            _text(timed, coverage, shows_coverage=shows_coverage or short)
        case ReportFormat.JSON:
            _json(timed, coverage)
        case ReportFormat.JUNIT:
            _junit(timed)
        case _:
            _github(timed)
    failed = any(result.status == "failed" for result in results)
    raise typer.Exit(int(Exit.REFUSED if failed or short else Exit.OK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many rules are asked, and which of them hit in no case."""

    asked: int
    never: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Rules that hit in at least one case, of those that are asked."""
        return 100 * (self.asked - len(self.never)) / self.asked if self.asked else 100.0


def case_files(directory: Path) -> list[Path]:
    """The files of cases of a project, in order of their names."""
    folder = directory / "cases"
    return sorted(path for name in _CASE_FILES for path in folder.rglob(name))


_CASE_FILES: Final = ("*.yaml", "*.yml")
_Timed: TypeAlias = tuple[CaseResult, float]


def _timed(runner: CaseRunner, case: Case) -> _Timed:
    start = time.perf_counter()
    return runner.run(case), time.perf_counter() - start


def _text(timed: Sequence[_Timed], coverage: Coverage, *, shows_coverage: bool) -> None:
    out = console()
    for result, _ in timed:
        style, mark = _MARKS[result.status]
        out.print(Text.assemble((mark, style), " ", visible(result.case.name), (f"  {result.case.file}", "dim")))
        for problem in result.problems:
            out.print(Text(f"    {visible(problem)}", "red"))
        for line in _hits(result) if result.status == "failed" else ():
            out.print(Text(f"    {visible(line)}", "dim"))
    counts = Counter(result.status for result, _ in timed)
    out.print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", end="; ")
    out.print(f"{coverage.asked - len(coverage.never)} of {coverage.asked} rules hit in some case")
    for rule in coverage.never if shows_coverage else ():
        out.print(Text(f"    never hit: {rule}", "yellow"))


_MARKS: Final = {"passed": ("green", "ok  "), "failed": ("bold red", "FAIL"), "skipped": ("yellow", "skip")}


def _hits(result: CaseResult) -> Iterator[str]:
    """What did hit, for who wonders why."""
    for view in result.decision.views if result.decision is not None else ():
        for hit in view.hits:
            yield f"{view.path or view.kind}: {hit.effect.value} by {hit.rule} [{hit.code}]: {hit.reason}"
    if not result.rules:
        yield "no rule hit"


def _json(timed: Sequence[_Timed], coverage: Coverage) -> None:
    cases = [
        {"name": result.case.name, "file": result.case.file, "status": result.status, "problems": list(result.problems)}
        for result, _ in timed
    ]
    write_json({"cases": cases, "coverage": {"rules": coverage.asked, "never_hit": list(coverage.never)}})


def _junit(timed: Sequence[_Timed]) -> None:
    cases = [
        JUnitCase(
            suite=result.case.file,
            name=result.case.name,
            failure="\n".join(result.problems) if result.status == "failed" else None,
            skipped=result.case.skip,
            seconds=seconds,
        )
        for result, seconds in timed
    ]
    write_junit("cmf test", cases)


def _github(timed: Sequence[_Timed]) -> None:
    write_github(
        [
            Finding(file=result.case.file, message=f"{result.case.name}: {problem}", code="case.failed")
            for result, _ in timed
            for problem in result.problems
        ]
    )


__all__ = ["case_files", "run"]
