"""`cmf bench`: how long decisions take on recorded inputs."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from cmf.errors import CmfError
from cmf.json.codec import loads
from pipeline.cli.options import OutputAs, PolicyOption, ProfilesOption
from pipeline.cli.policy_places import chosen
from pipeline.cli.reading import Exit, fail, one_line_errors, read_bytes
from pipeline.cli.rendering import console, progress, write_json
from pipeline.decisions.display import counted

if TYPE_CHECKING:
    from pipeline.replay.measuring import Figures

SHOWN_RULES: Final = 10
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%?")


def command(
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
    output: OutputAs = "text",
    profiles: ProfilesOption = None,
) -> None:
    """Measure how long decisions take on recorded inputs, and which rules take longest.

    Each has the context and session that it was recorded with.

    Exit codes: 0 done, 1 slower than the baseline allows, 2 usage, 3 policy does not compile, 4 input not readable.
    """
    from pipeline.provenance.profiles import Profiles
    from pipeline.replay.measuring import measure, regressions
    from pipeline.run import recorded_input
    from pipeline.run.assembly import load_policies

    percent = _PERCENT.fullmatch(max_regress.strip())
    if percent is None:
        fail(f"--max-regress {max_regress}: not a percentage; write for example 10%", Exit.USAGE)
    policies = chosen(policies)
    with one_line_errors(policies=policies or ()):
        before = None if baseline is None else _read(baseline)
        loaded = load_policies(policies)
        folders = (path for name in ("*.jsonl", "*.jsonl.gz") for path in file.rglob(name))
        files = sorted(folders) if file.is_dir() else [file]
        total = sum(1 for path in files for _ in recorded_input.lines(path))
        if not total:
            fail(f"{file}: no records; create some with `cmf eval --record`", Exit.USAGE)
        with progress("measuring", total) as on_progress:
            figures = measure(
                loaded,
                chain.from_iterable(map(recorded_input.entries, files)),
                rounds=rounds,
                profiles=None if profiles is None else Profiles.load(profiles),
                on_progress=on_progress,
            )
    shown = figures.to_json()
    slower: list[str] = []
    if before is not None:
        try:
            slower = regressions(shown, before, float(percent[1]) / 100)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            fail(f"{baseline}: not the output of `cmf bench --format json`; measure again", Exit.INPUT)
    if output == "json":
        write_json(shown | ({} if before is None else {"slower": slower}))
    else:
        _text(figures)
    for line in slower:
        typer.echo(f"cmf: slower than the baseline: {line}", err=True)
    raise typer.Exit(int(Exit.REFUSED if slower else Exit.OK))


def _read(path: Path) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = loads(read_bytes(str(path)))
    except CmfError as error:
        fail(f"{path}: {error}", Exit.INPUT)
    return figures


def _text(figures: Figures) -> None:
    out = console()
    out.print(f"{counted(figures.entries, 'record')}, {counted(figures.decisions, 'decision')} on one core", end="")
    out.print(f"; {counted(figures.skipped, 'record')} cannot be replayed" if figures.skipped else "")
    for name, taken in (("decision", figures.decision_us), ("engine", figures.evaluate_us)):
        spelled = "   ".join(f"p{percent} {value:.1f} µs" for percent, value in taken.items())
        out.print(Text.assemble(f"{name:<10}", (spelled, "bold")))
    for rule, value in list(figures.rules_us.items())[:SHOWN_RULES]:
        out.print(Text.assemble(f"{value:>9.2f} µs a view  ", (rule, "cyan")))
