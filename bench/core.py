"""JSON to message, views and policy inputs, against cpex; memory of held messages; start-up time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from bench.rounds import OWN_PYTHON, ROOT, Effort, Figure, Ratio, Report, Side, interleaved

STEPS = ("validate", "views", "inputs", "all")


def measure(effort: Effort) -> Report:
    """Interleaved rounds of each step; memory in fresh processes; fresh processes for start-up."""
    with Side("cmf_core") as own, Side("cpex_core", peer="cpex") as peer:
        pairs = [(f"{name}: {step}", side, step) for step in STEPS for name, side in (("cmf", own), ("cpex", peer))]
        figures = interleaved(pairs, effort)
        sizes = own.ask("inputs_bytes", call=True), peer.ask("inputs_bytes", call=True)
    report = Report(
        "Message to policy inputs, against cpex 0.1.4",
        "A message of 4 parts (thinking, text, 2 tool calls) with extensions in 7 slots. `validate`: from JSON; "
        "`inputs`: views, and four policy inputs as bytes, of a message that was just read and never looked at; `all`: "
        "both. CPU time. The four inputs "
        f"of cmf are {sizes[0]} bytes with their context once, those of cpex {sizes[1]}, without the slots llm, "
        "framework and meta, trace ids and claims.",
        list(figures.values()),
    )
    for step, target in (("validate", "≥ 1"), ("inputs", "≥ 6"), ("all", "≥ 1")):
        ratio = figures[f"cpex: {step}"].over(figures[f"cmf: {step}"])
        report.ratios.append(Ratio(f"{step}: cpex / cmf", ratio, target))
    report.ratios.append(
        Ratio("its inputs alone / all of ours", figures["cpex: inputs"].over(figures["cmf: all"]), "≥ 1")
    )
    _memory(report, effort)
    _start_up(report, effort)
    return report


def _memory(report: Report, effort: Effort) -> None:
    held = {
        "cmf": _kept("cmf_core", "keep", None, effort),
        "cpex": _kept("cpex_core", "keep", "cpex", effort),
        "json.loads": _kept("cmf_core", "keep_dict", None, effort),
    }
    report.figures += [Figure(f"{name}: held message with extensions", "B", tuple(all_)) for name, all_ in held.items()]
    own, peer, plain = (Figure(name, "B", tuple(all_)).median for name, all_ in held.items())
    report.ratios.append(Ratio("memory: cmf / cpex", own / peer, "≤ 0.6"))
    report.ratios.append(Ratio("memory: cmf / json.loads", own / plain, "≤ 1.5"))


def _kept(side: str, operation: str, peer: str | None, effort: Effort) -> list[float]:
    samples = []
    for _ in range(3):
        with Side(side, peer=peer) as fresh:
            samples.append(fresh.ask(operation, keep=effort.kept))
    return samples


def _start_up(report: Report, effort: Effort) -> None:
    commands = {
        "import cmf": ([str(OWN_PYTHON), "-c", "import cmf"], "≤ 150"),
        "cmf --help": ([str(OWN_PYTHON.parent / "cmf"), "--help"], "≤ 400"),
    }
    for name, (command, target) in commands.items():
        runs = [_fresh(command) for _ in range(min(effort.rounds, 11) + 1)][1:]
        wall = Figure(f"{name}: wall", "ms", tuple(run[0] for run in runs))
        cpu = Figure(f"{name}: CPU", "ms", tuple(run[1] for run in runs))
        report.figures += [wall, cpu]
        report.ratios.append(Ratio(f"{name}, fresh process, CPU ms", cpu.median, target))


def _fresh(command: Sequence[str]) -> tuple[float, float]:
    started, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return (time.perf_counter() - started) * 1e3, cpu * 1e3
