"""Printing: decisions, what policy changed, rows, JSON, progress; coloured on a terminal, plain in a pipe.

Text from the traffic is escaped. What is only needed to print a decision is imported then, so that help is fast.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from cmf.json.codec import dumps
from pipeline.cli.options import WrittenAs
from pipeline.decisions.display import escaped, escaped_json, visible

if TYPE_CHECKING:
    from cmf.adapters.wire.loss import Loss
    from pipeline.decisions.decision import Decision, Hit
    from pipeline.decisions.stage import Traffic
    from pipeline.run.outcome import Outcome

Row = TypeVar("Row")
PROGRESS_AFTER_SECONDS: Final = 1.0


def console(*, stderr: bool = False) -> Console:
    """A console that never wraps, never guesses emoji or markup, and honours NO_COLOR."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


# -- rows, JSON, progress ----------------------------------------------------------------------------------------------


def write_json(document: Any) -> None:
    """Write one JSON document, indented."""
    typer.echo(escaped_json(document, indent=1))


def write_line(document: Any) -> None:
    """Write one JSON document on a line."""
    typer.echo(escaped(dumps(document).decode()))


def write_rows(
    rows: Sequence[Row], output: WrittenAs, *, document: Callable[[Row], Any], line: Callable[[Row], str], nothing: str
) -> None:
    """Write each row, as a line of JSON or for people; and say on standard error that there is `nothing`."""
    if not rows:
        typer.echo(f"cmf: {nothing}", err=True)
    for row in rows:
        if output == "json":
            write_line(document(row))
        else:
            typer.echo(visible(line(row)))


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of finished items, for a progress bar on standard error.

    The bar is shown after a second, only on a terminal, and disappears at the end of the block.
    """
    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=out, transient=True)
    task = bar.add_task(what, total=total)
    started, shown = time.monotonic(), False

    def done(count: int) -> None:
        nonlocal shown
        bar.advance(task, count)
        if not shown and time.monotonic() - started > PROGRESS_AFTER_SECONDS:
            shown = True
            bar.start()

    try:
        yield done
    finally:
        if shown:
            bar.stop()


# -- decisions ---------------------------------------------------------------------------------------------------------


_STYLES = {
    "allow": "green",
    "warn": "yellow",
    "deny": "bold red",
    "require_approval": "magenta",
    "forward": "green",
    "forward_modified": "cyan",
    "refuse": "bold red",
    "suspend": "magenta",
}


def show_outcome(
    outcome: Outcome, wire: Any, target: str, losses: Sequence[Loss], place_of: Callable[[Hit], str] = lambda _: ""
) -> None:
    """Print views, verdict, coverage, and the output in its wire form, if there is any.

    `place_of` gives the place of the definition that produced a hit: `file:line`.
    """
    out = console()
    for view in outcome.decision.views:
        verdict = Text(f"{view.verdict.value:<17}", _STYLES[view.verdict.value])
        line = Text.assemble(verdict, (view.path, "bold"), f"  {view.kind}  {view.action}  {view.direction}")
        if view.uri is not None:
            line.append(f"  {visible(view.uri)}", "blue")
        if not view.hits:
            line.append("  no rule hit", "dim")
        out.print(line)
        for hit in view.hits:
            out.print(_hit_line(hit, place_of(hit)))
    out.print()
    show_verdict(out, outcome.decision)
    for loss in losses:
        out.print(Text.assemble("dropped   ", (f"{loss.block_type}: {loss.reason} ({loss.adapter})", "yellow")))
    if outcome.value is None:
        out.print(Text("nothing goes out", "bold red"))
    if wire is None:
        return
    out.print(Text.assemble("goes out  ", (target, "bold")))
    out.print(Text(escaped_json(wire)))


def _hit_line(hit: Hit, place: str) -> Text:
    style = _STYLES.get(hit.effect.value, "cyan")
    if hit.excused is not None:
        observed = f" (excused until {visible(hit.excused.until)}, {visible(hit.excused.owner)})"
    else:
        observed = "" if hit.enforced else f" (mode {hit.mode.value})"
    problem = f": {visible(hit.problem)}" if hit.problem else ""
    return Text.assemble(
        " " * 17,
        (hit.effect.value, style),
        f"  {visible(hit.rule)}  {visible(place)}" if place else f"  {visible(hit.rule)}",
        f"  {visible(hit.reason)}{_EXPLANATIONS.get(hit.code, '')} [{hit.code}]{problem}{observed}",
    )


_EXPLANATIONS: Final = {
    "engine.undefined": " It was undefined, so this is denied.",
    "policy.undefined": " It was undefined, so this is denied.",
    "policy.bad-result": " It had the wrong shape, so this is denied.",
    "pipeline.no-fixed-point": (
        " A rule matches its own edits, or masks one place at a time: change its pattern, or use indexof_n in place of"
        " indexof."
    ),
}


def show_verdict(out: Console, decision: Decision) -> None:
    """Print the verdict line and the coverage line."""
    verdict, action, coverage = decision.verdict.value, decision.action.value, decision.coverage
    mode = "" if decision.mode.value == "enforce" else f"   mode {decision.mode.value}"
    out.print(
        Text.assemble(
            "verdict   ",
            (verdict, _STYLES[verdict]),
            "   action ",
            (action, _STYLES[action]),
            f"{mode}   {decision.id}",
        )
    )
    for approval in decision.approvals:
        shown = f"{approval.status.value:<9} {approval.id or 'needs a session'}  {visible(approval.path)}"
        out.print(Text.assemble("approval  ", (shown, "magenta")))
    if decision.excused:
        out.print(Text.assemble("excused   ", (f"{decision.excused} not enforced by exception", "yellow")))
    style = "green" if coverage.full else "bold red"
    full = f"{coverage.evaluated} of {coverage.produced} views evaluated"
    missed = "; ".join(f"{visible(view.path)} not evaluated: {view.reason}" for view in coverage.skipped)
    out.print(Text.assemble("coverage  ", (full, style), f"   revision {decision.revision[:12]}"))
    if missed:
        out.print(Text(f"          {missed}", "bold red"))


# -- what policy changed -----------------------------------------------------------------------------------------------


def show_changes(before: Traffic, after: Traffic, target: str) -> None:
    """Print what policy changed as unified diffs: in the message, and in the body that goes out.

    CmfError: `target` cannot express it.
    """
    from pipeline.cli.convert import encoded

    out = console()
    out.print()
    # The pipeline adds extensions.
    pairs = [("message", *(_without_extensions(value.model_dump()) for value in (before, after)))]
    if target != "canonical":
        pairs.append((target, encoded(before, target), encoded(after, target)))
    for name, old, new in pairs:
        texts = escaped_json(old).splitlines(), escaped_json(new).splitlines()
        lines = list(difflib.unified_diff(*texts, f"{name} as it came", f"{name} as it goes out", lineterm=""))
        if not lines:
            out.print(Text(f"{name}: no changes", "green"))
        for line in lines:
            out.print(Text(line, _DIFF_STYLES.get(line[:1], "")))


_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def _without_extensions(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _without_extensions(each) for key, each in item.items() if key != "extensions"}
    return [_without_extensions(each) for each in item] if isinstance(item, list) else item
