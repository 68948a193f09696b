"""Printing decisions: coloured on a terminal, plain in a pipe. Text from the traffic is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cmf.adapters.wire.loss import Loss
from pipeline.decisions.decision import Decision, Hit, ViewDecision
from pipeline.decisions.display import escaped_json, visible
from pipeline.run.outcome import Outcome

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


def console(*, stderr: bool = False) -> Console:
    """A console that never wraps, never guesses emoji or markup, and honours NO_COLOR."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def show_outcome(
    outcome: Outcome, wire: Any, target: str, losses: Sequence[Loss], place_of: Callable[[Hit], str] = lambda _: ""
) -> None:
    """Print views, verdict, coverage, and the output in its wire form, if there is any.

    `place_of` gives the place of the definition that produced a hit: `file:line`.
    """
    out = console()
    for view in outcome.decision.views:
        _show_view(out, view, place_of)
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


def _show_view(out: Console, view: ViewDecision, place_of: Callable[[Hit], str]) -> None:
    verdict = Text(f"{view.verdict.value:<17}", _STYLES[view.verdict.value])
    line = Text.assemble(verdict, (view.path, "bold"), f"  {view.kind}  {view.action}  {view.direction}")
    if view.uri is not None:
        line.append(f"  {visible(view.uri)}", "blue")
    if not view.hits:
        line.append("  no rule hit", "dim")
    out.print(line)
    for hit in view.hits:
        out.print(_hit_line(hit, place_of(hit)))


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
    missed = "; ".join(f"{visible(one.path)} not evaluated: {one.reason}" for one in coverage.skipped)
    out.print(Text.assemble("coverage  ", (full, style), f"   revision {decision.revision[:12]}"))
    if missed:
        out.print(Text(f"          {missed}", "bold red"))
