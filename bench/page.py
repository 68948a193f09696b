"""`python -m bench page`: docs/performance.md and the curves as SVG, out of the figures kept in bench/results/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.curves import Curve
from bench.rounds import Ratio, Report

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
HEAD = """# Performance

Made by `python -m bench page` from the figures in [bench/results](../bench/results): change those by `make bench`.

`make bench` installs the peers, each in a virtual environment of its own under `.tools/bench/` and pinned by hash,
measures all sides in turn in one run on one machine, and keeps what it found; `make bench-quick` does the same in short
and keeps nothing. Only loopback is used. Figures are medians, with the least and the greatest sample; CPU time unless
wall is said. A ratio of two is the median of that of each round: a clock that changes meanwhile changes both. They hold
for the machine and the day that stand below each table, and are to be compared inside one table only: machines differ,
and so do days.

The time of a decision stands or falls with two choices: policies are compiled to a register machine, where a stock
binding interprets them, and what the views of a message have in common is written and parsed once.
"""
NOTHING_BEHIND = "Nothing: every target was met on the day it was measured.\n"
WHY = "Why, and what was tried, stands in [why.md](../bench/results/why.md), which people write.\n"


def write() -> None:
    """Write the page, and the curves beside the figures."""
    for place, text in made().items():
        place.write_text(text)


def made() -> dict[Path, str]:
    """Each file that is made of what is kept, with its text."""
    kept = [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]
    reports = [(name, Report.from_json(body), body["machine"]) for name, body in kept if "title" in body]
    parts = [HEAD, "## What is not ahead\n", _behind(reports), "## What was measured\n"]
    for name, report, machine in reports:
        parts.append("\n\n".join(filter(None, (f"### {report.title}", report.notes))) + "\n")
        if report.ratios:
            parts.append(_ratios(report.ratios))
        parts += map(_shown, report.curves)
        parts.append(f"All figures: [{name}.md](../bench/results/{name}.md). {machine}\n")
    parts += [_instructions(body) for name, body in kept if name == "instructions"]
    pictures = {_place(curve): curve.svg() for _, report, _ in reports for curve in report.curves}
    return {PAGE: "\n".join(parts).rstrip("\n") + "\n", **pictures}


def _behind(reports: list[tuple[str, Report, str]]) -> str:
    rows = [
        f"| {report.title} | {ratio.name} | {ratio.value:.3g} | {ratio.target} |"
        for _, report, _ in reports
        for ratio in report.ratios
        if not ratio.met
    ]
    if not rows:
        return NOTHING_BEHIND
    head = ["Targets that were missed when it was last measured, and by how much.", ""]
    return "\n".join([*head, "| in | ratio or limit | measured | target |", "|---|---|---|---|", *rows, "", WHY])


def _ratios(ratios: list[Ratio]) -> str:
    rows = [ratio.row() for ratio in sorted(ratios, key=lambda one: one.met)]
    return "\n".join(["| ratio or limit | measured | target | met |", "|---|---|---|---|", *rows, ""])


def _place(curve: Curve) -> Path:
    return RESULTS / f"{curve.name}.svg"


def _shown(curve: Curve) -> str:
    lines = "; ".join(f"{line}: exponent {curve.exponent(line):.2f}" for line in curve.lines)
    return f"![{curve.title}: {lines}](../bench/results/{_place(curve).name})\n"


def _instructions(body: dict[str, Any]) -> str:
    rows = [f"| {name} | {count:,} |" for name, count in body["instructions"].items()]
    text = (
        "### Instructions\n\nOf one call, counted by callgrind; `make bench-instructions` counts again and complains of"
        " more than 3 % either way. It is run by hand, where the build and the machine's libraries are the same.\n"
    )
    return "\n".join(
        [text, "| workload | instructions |", "|---|---|", *rows, "", f"{body['date']}; {body['where']}.\n"]
    )


__all__ = ["made", "write"]
