"""`cmf test`: run the test cases and Rego tests of a project and report failures."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from cmf.json.codec import dumps
from pipeline.cli.findings import Finding, JUnitCase, write_report
from pipeline.cli.options import FindingsAs, PolicyOption
from pipeline.cli.policy_places import file_of, policy_directory
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.cli.rendering import console, progress, write_json
from pipeline.decisions.display import visible
from pipeline.decisions.errors import needs

if TYPE_CHECKING:
    from pipeline.authoring.case import Case
    from pipeline.authoring.run_cases import CaseResult, CaseRunner
    from pipeline.engines.embedded import EmbeddedEngine
    from pipeline.engines.recording import Tap
    from pipeline.engines.rego_tests import Checked, Printed, Printing
    from pipeline.policy.metadata import Module
    from pipeline.policy.policy_set import PolicySet

_WATCHED: Final = (".rego", ".yaml", ".yml", ".json")
COVERAGE_SECONDS: Final = 60.0
_SETTLE_MILLISECONDS: Final = 50  # an editor saves a file in several steps, which are one change
_Timed: TypeAlias = "tuple[CaseResult, float]"


def command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A project: policies in DIR/policy, cases in DIR/cases.")
    ] = Path(),
    policies: PolicyOption = None,
    output: Annotated[FindingsAs, typer.Option("--format", help="The output format.")] = "text",
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
    places = [*policies] if policies else [policy_directory(directory)]

    def once() -> Exit:
        with one_line_errors(policies=places):
            report = judge(directory, places, select, counts_lines=coverage)
        return _shown(report, output, shows_coverage=coverage, threshold=threshold)

    if watch:
        _watch(once, [directory, *places])
    raise typer.Exit(int(once()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Line coverage of one file by the cases; the file is relative to the current directory."""

    file: str
    reached: tuple[int, ...]
    missed: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The number of active rules, those that hit in no case, and line coverage by file, if counted."""

    asked: int
    never: tuple[str, ...]
    lines: tuple[Lines, ...] = ()

    @property
    def percent(self) -> float:
        """The percentage of active rules that hit in at least one case."""
        return 100 * (self.asked - len(self.never)) / self.asked if self.asked else 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """The results of all cases, each with its duration in seconds, and of all Rego tests."""

    cases: Sequence[_Timed]
    tests: Sequence[Checked]
    coverage: Coverage

    @property
    def failed(self) -> bool:
        """Whether any of them failed."""
        return any(result.status == "failed" for result, _ in self.cases) or any(test.problem for test in self.tests)


def judge(
    directory: Path, places: Sequence[Path], select: str | None = None, *, counts_lines: bool = False
) -> TestReport:
    """Run the project's cases and tests whose names contain `select`; `places` hold its policies.

    With `counts_lines`, the report has line coverage.

    Raises:
        PolicyError, CaseError, ConfigError: policies, cases or profiles cannot be used; typer.Exit: there are none.
    """
    from pipeline.authoring.case import read_cases
    from pipeline.authoring.run_cases import CaseRunner
    from pipeline.decisions.decision import Mode
    from pipeline.engines.recording import Tap
    from pipeline.engines.rego_tests import Printing, prints
    from pipeline.run.assembly import embedded_engine, load_policies

    loaded = load_policies(places)
    chosen = [
        case for path in case_files(directory) for case in read_cases(path) if select is None or select in case.name
    ]
    tests = [test for test in _own_tests(loaded, places) if select is None or select in test.name]
    if not chosen and not tests:
        hint = f"write some in {directory / 'cases'}" if select is None else f"no name contains {select!r}"
        fail(f"{directory}: no cases; {hint}", Exit.USAGE)
    printing = Printing(loaded) if prints(loaded) else None
    engine = embedded_engine(loaded) if counts_lines or printing is not None else None
    tap = None if engine is None else Tap(engine)
    runner = CaseRunner(loaded) if tap is None else CaseRunner(loaded, engine=tap)
    try:
        with progress("judging", len(chosen)) as on_progress:
            timed = [_timed(runner, case, printing, tap, on_progress) for case in chosen]
    finally:
        runner.close()
    hit = {rule for result, _ in timed for rule in result.rules}
    asked = [rule.id for rule in loaded.rules if rule.mode is not Mode.OFF]
    lines = tuple(_lines(engine, tap, places)) if counts_lines and engine is not None and tap is not None else ()
    coverage = Coverage(asked=len(asked), never=tuple(rule for rule in asked if rule not in hit), lines=lines)
    return TestReport(cases=timed, tests=tests, coverage=coverage)


def _lines(engine: EmbeddedEngine, tap: Tap, places: Sequence[Path]) -> Iterator[Lines]:
    """Line coverage of the files in `places`, without the library and generated modules."""
    asked = dict.fromkeys((entrypoint, dumps(document)) for entrypoint, document in tap.asked)
    for file in engine.coverage([*asked], timeout_seconds=COVERAGE_SECONDS) if asked else ():
        if any((place / file["path"]).is_file() for place in places):
            reached, missed = tuple(file["covered"]), tuple(file["not_covered"])
            yield Lines(file=file_of(file["path"], places), reached=reached, missed=missed)


def case_files(directory: Path) -> list[Path]:
    """The case files of a project, ordered by name."""
    return sorted(path for name in ("*.yaml", "*.yml") for path in (directory / "cases").rglob(name))


def _own_tests(policies: PolicySet, places: Sequence[Path]) -> Iterator[Checked]:
    """The results of the tests in `places`, without those of a library below them.

    Those of the shipped policies hold with their own settings: they are run if nothing was added to them.
    """
    from pipeline.engines.rego_tests import run_tests
    from pipeline.policy.shipped import shipped, shipped_tests

    others = frozenset() if {place.resolve() for place in places} == {shipped()} else shipped_tests()

    def is_own(module: Module) -> bool:
        return module not in others and any((place / module.path).is_file() for place in places)

    for test in run_tests(policies, is_own):
        yield dataclasses.replace(test, path=file_of(test.path, places))


def _timed(
    runner: CaseRunner, case: Case, printing: Printing | None, tap: Tap | None, on_progress: Callable[[int], None]
) -> _Timed:
    asked = 0 if tap is None else len(tap.asked)
    start = time.perf_counter()
    result = runner.run(case)
    took = time.perf_counter() - start
    if tap is not None and printing is not None and result.status == "failed":
        result = dataclasses.replace(result, printed=tuple(printing.lines(tap.asked[asked:])))
    on_progress(1)
    return result, took


def _watch(once: Callable[[], Exit], places: Sequence[Path]) -> None:
    """Call `once` now and whenever a policy or case file changes, until KeyboardInterrupt."""
    with needs("watch"):
        import watchfiles  # imported here: it takes longer to load than the rest to run

    def wanted(_change: watchfiles.Change, path: str) -> bool:
        hidden = any(part.startswith(".") for part in Path(path).parts[1:])
        return Path(path).suffix in _WATCHED and not hidden

    changes = watchfiles.watch(*places, watch_filter=wanted, debounce=_SETTLE_MILLISECONDS, step=10)
    while True:
        begin = time.perf_counter()
        with suppress(typer.Exit):  # the error was printed; the next change may fix it
            once()
        typer.echo(f"took {(time.perf_counter() - begin) * 1e3:.0f} ms; waiting for changes", err=True)
        changed = next(changes)
        typer.echo(f"changed: {', '.join(sorted(visible(path) for _, path in changed))}", err=True)


# -- writing -----------------------------------------------------------------------------------------------------------


def _shown(report: TestReport, output: FindingsAs, *, shows_coverage: bool, threshold: float | None) -> Exit:
    """Print the report, and return the exit code."""
    short = report.coverage.percent < (threshold or 0)
    match output:
        case "text":
            _text(report, shows_coverage=shows_coverage or short)
        case "json":
            _json(report)
        case _:
            write_report(output, "cmf test", _findings(report), _junit(report))
    return Exit.REFUSED if report.failed or short else Exit.OK


def _text(report: TestReport, *, shows_coverage: bool) -> None:
    out = console()
    for result, _ in report.cases:
        style, mark = _MARKS[result.status]
        out.print(Text.assemble((mark, style), " ", visible(result.case.name), (f"  {result.case.file}", "dim")))
        for problem in result.problems:
            out.print(Text(f"    {visible(problem)}", "red"))
        for line in _hits(result) if result.status == "failed" else ():
            out.print(Text(f"    {visible(line)}", "dim"))
        _print(out, result.printed)
    for test in report.tests:
        if not test.passed:
            style, mark = _MARKS[_status(test)]
            out.print(Text.assemble((mark, style), f" {test.name}", (f"  {test.path}:{test.line}", "dim")))
        if test.problem:
            out.print(Text(f"    {visible(test.problem)}", "red"))
        _print(out, test.printed)
    coverage = report.coverage
    counts = Counter(result.status for result, _ in report.cases)
    out.print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", end="; ")
    out.print(f"{coverage.asked - len(coverage.never)} of {coverage.asked} rules hit in some case")
    if report.tests:
        run = Counter(map(_status, report.tests))
        out.print(f"Rego tests: {run['passed']} passed, {run['failed']} failed, {run['skipped']} skipped")
    for rule in coverage.never if shows_coverage else ():
        out.print(Text(f"    never hit: {rule}", "yellow"))
    for file in coverage.lines if shows_coverage else ():
        if file.missed:
            of = len(file.reached) + len(file.missed)
            missed = f"    {file.file}: {len(file.reached)} of {of} lines reached, not {_ranges(file.missed)}"
            out.print(Text(missed, "yellow"))


def _print(out: Console, printed: Sequence[Printed]) -> None:
    for line in printed:
        out.print(Text(f"    {Path(line.path).name}:{line.line}: {visible(line.text)}", "cyan"))


def _ranges(lines: Sequence[int]) -> str:
    """`3, 7-9`."""
    runs = ([line for _, line in run] for _, run in groupby(enumerate(sorted(lines)), lambda pair: pair[1] - pair[0]))
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


_MARKS: Final = {"passed": ("green", "ok  "), "failed": ("bold red", "FAIL"), "skipped": ("yellow", "skip")}


def _status(test: Checked) -> str:
    return "skipped" if test.skipped else "passed" if test.passed else "failed"


def _hits(result: CaseResult) -> Iterator[str]:
    """The actual hits, to explain a failure."""
    for view in result.decision.views if result.decision is not None else ():
        for hit in view.hits:
            problem = f"{hit.reason} {hit.problem}".strip()
            yield f"{view.path or view.kind}: {hit.effect.value} by {hit.rule} [{hit.code}]: {problem}"
    if not result.rules:
        yield "no rule hit"


def _json(report: TestReport) -> None:
    cases = [
        {"name": result.case.name, "file": result.case.file, "status": result.status, "problems": list(result.problems)}
        for result, _ in report.cases
    ]
    tests = [
        {"name": test.name, "file": test.path, "line": test.line, "status": _status(test), "problem": test.problem}
        for test in report.tests
    ]
    coverage: dict[str, Any] = {"rules": report.coverage.asked, "never_hit": list(report.coverage.never)}
    if report.coverage.lines:
        coverage["files"] = [dataclasses.asdict(file) for file in report.coverage.lines]
    write_json({"cases": cases, "tests": tests, "coverage": coverage})


def _junit(report: TestReport) -> list[JUnitCase]:
    cases = [
        JUnitCase(
            suite=result.case.file,
            name=result.case.name,
            failure="\n".join(result.problems) if result.status == "failed" else None,
            skipped=result.case.skip,
            seconds=seconds,
        )
        for result, seconds in report.cases
    ]
    tests = [
        JUnitCase(
            suite=test.path,
            name=test.name,
            failure=f"{test.path}:{test.line}: {test.problem}" if test.problem else None,
            skipped="todo" if test.skipped else None,
        )
        for test in report.tests
    ]
    return [*cases, *tests]


def _findings(report: TestReport) -> list[Finding]:
    """The failures as findings."""
    cases = [
        Finding(file=result.case.file, message=f"{result.case.name}: {problem}", code="case.failed")
        for result, _ in report.cases
        for problem in result.problems
    ]
    tests = [
        Finding(file=test.path, line=test.line, message=f"{test.name}: {test.problem}", code="policy.test-failed")
        for test in report.tests
        if test.problem
    ]
    return [*cases, *tests]
