"""Stages in order, against cpex's plugins; and what origins cost, with the session kept and without."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

from bench.provenance import PROFILES, read, turn
from bench.rounds import Effort, Figure, Ratio, Report, Side, interleaved
from bench.sides.cmf_pipeline import CALLS
from cmf.message.message import Message
from pipeline.provenance.index import EVERYTHING, Index
from pipeline.provenance.profiles import Profiles

OPERATIONS = ("one", "ten", "one_sees", "ten_see", "ten_label")
TURNS = (50, 100, 200, 400, 800)


def measure(effort: Effort) -> Report:
    """Interleaved rounds of both sides; then conversations of growing length."""
    with Side("cmf_pipeline") as own, Side("cpex_pipeline", peer="cpex") as peer:
        ran = own.ask("ran", call=True)[: len(OPERATIONS)], peer.ask("ran", call=True)
        pairs = [
            (f"{name}: {step}", side, step) for step in OPERATIONS for name, side in (("cmf", own), ("cpex", peer))
        ]
        pairs.append(("cmf: ten_await", own, "ten_await"))
        figures = {label: _each(figure) for label, figure in interleaved(pairs, effort).items()}
    if ran[0] != ran[1]:
        raise RuntimeError(f"the sides did not run the same: {ran}")
    report = Report(
        "Stages, against plugins of cpex 0.1.4",
        "A message of 4 parts with extensions in 7 slots goes through 1 or 10 stages that change nothing (`one`, "
        "`ten`), see only what one capability grants (`…see`), or add a label each (`ten_label`, in cmf held to the "
        "tiers). Plain functions in cmf, coroutines in cpex, which takes nothing else; `ten_await` are coroutines in "
        "cmf too. CPU time of one run, awaited. Origins: calls of a mail agent, 5 messages and about 2 KB a turn.",
        list(figures.values()),
    )

    def more(side: str) -> Figure:
        return figures[f"{side}: ten"].less(figures[f"{side}: one"])

    report.ratios += [
        Ratio("one more no-op stage: cpex / cmf", more("cpex").over(more("cmf")), "≥ 5"),
        Ratio("one no-op stage, whole run: cpex / cmf", figures["cpex: one"].over(figures["cmf: one"]), "≥ 5"),
        Ratio("ten stages: cmf / cpex", figures["cmf: ten"].over(figures["cpex: ten"]), "≤ 0.2"),
        Ratio(
            "ten stages that see some extensions: cmf / cpex",
            figures["cmf: ten_see"].over(figures["cpex: ten_see"]),
            "≤ 0.2",
        ),
        Ratio("ten coroutine stages: cmf / cpex", figures["cmf: ten_await"].over(figures["cpex: ten"]), "≤ 0.2"),
        Ratio(
            "ten stages that add a label: cmf / cpex", figures["cmf: ten_label"].over(figures["cpex: ten_label"]), "≤ 1"
        ),
    ]
    _origins(report, effort)
    return report


def _each(figure: Figure) -> Figure:
    return Figure(figure.name, figure.unit, tuple(sample / CALLS for sample in figure.samples))


def _origins(report: Report, effort: Effort) -> None:
    """A new turn with the index kept, by how long the conversation is; and all of it, read anew."""
    profiles = Profiles.load(PROFILES / "workspace.yaml")
    lengths = TURNS[: 5 if effort.rounds > 10 else 3]
    kept: dict[int, float] = {}
    anew: dict[int, float] = {}
    for turns in lengths:
        conversation = [turn(number) for number in range(turns)]
        costs = []
        for _ in range(3):
            index = Index(profiles, EVERYTHING)
            spent = [_seconds(index, messages) for messages in conversation]
            costs.append((statistics.median(spent[-20:]), sum(spent)))
        new = Figure(f"origins, one more turn after {turns}, session kept", "µs", tuple(one * 1e6 for one, _ in costs))
        whole = Figure(f"origins, {turns} turns anew", "ms", tuple(all_ * 1e3 for _, all_ in costs))
        report.figures += [new, whole]
        kept[turns], anew[turns] = new.median, whole.median
    first, last = lengths[0], lengths[-1]
    report.ratios += [
        Ratio(f"origins kept: a turn after {last} / after {first}", kept[last] / kept[first], "≤ 1.5"),
        Ratio("origins anew: fitted exponent of the length", _exponent(anew), "≤ 1.15"),
    ]


def _seconds(index: Index, messages: Sequence[Message]) -> float:
    begin = time.process_time()
    read(index, messages)
    return time.process_time() - begin


def _exponent(costs: dict[int, float]) -> float:
    """The slope of the least-squares line through the logarithms: 1 is linear."""
    points = [(math.log(turns), math.log(cost)) for turns, cost in costs.items()]
    across = statistics.mean(x for x, _ in points)
    return statistics.covariance(*zip(*points, strict=True)) / statistics.variance((x for x, _ in points), across)
