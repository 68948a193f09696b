"""What one decision costs by views, size of content, rules, data and history, and in several threads; as curves."""

from __future__ import annotations

import statistics

from bench import medium
from bench.curves import Curve
from bench.rounds import Effort, Figure, Ratio, Report, Side, interleaved
from bench.turns import AFTER_OTHERS, Session, talk
from pipeline import Pipeline

HISTORY = (1, 10, 30, 100, 300, 1_000)
THREADS = (1, 2, 4)
NOTES = (
    "One decision, embedded engine, CPU time, each message new, no verdict kept. By views and content: from JSON, under"
    f" {medium.RULES} of the shipped rules. `nothing read` is a whole decision under one rule that never looks at the"
    " content, and"
    " `engine alone` that rule asked with the input ready: the engine's parse, the slope that is to be expected. By"
    " rules: the engine, one view; the rules look for words in it, or stand beside 10 of those and are for other kinds"
    " of views. By data: one look-up by key. By history: the next turn of a conversation whose session is kept, decoded"
    " anew, all shipped rules. Exponents are fitted to the four largest sizes: 1 is linear, 0 flat."
)


def measure(effort: Effort) -> Report:
    """Every size of every axis in turn within each round."""
    few = Effort(rounds=max(3, effort.rounds // 3), seconds=effort.seconds / 2, kept=effort.kept)
    with Side("cmf_growth") as own:
        operations = sorted(own.operations, key=lambda name: int(name.rpartition(" ")[2]))
        measured = interleaved([(name, own, name) for name in operations], few)
    lines: dict[str, dict[int, tuple[float, ...]]] = {}
    for name, figure in measured.items():
        line, _, size = name.rpartition(" ")
        lines.setdefault(line, {})[int(size)] = figure.samples

    def curve(name: str, title: str, across: str, shown: dict[str, str]) -> Curve:
        return Curve(name, title, across, "µs", {label: lines[line] for line, label in shown.items()})

    lines["history"] = _history(few)
    content = {
        "content": "decision, 25 rules",
        "content, nothing read": "decision, nothing read",
        "content, engine alone": "engine alone",
    }
    rules = {"rules for its kind": "all for its kind", "rules for other kinds": "10 for its kind"}
    report = Report("How the cost of one decision grows", NOTES)
    report.curves += [
        curve("views", "A decision by number of views", "views", {"views": "decision"}),
        curve("content", "A decision by size of content", "bytes of text", content),
        curve("rules", "Evaluation by number of rules", "rules", rules),
        curve("data", "Evaluation by size of data", "entries", {"data": "one look-up"}),
        curve("history", "A turn by length of history", "messages", {"history": "turn N"}),
    ]
    by_name = {each.name: each for each in report.curves}
    for name, line, target in (
        ("views", "decision", "≤ 1.1"),
        ("content", "decision, 25 rules", "≤ 1.1"),
        ("rules", "all for its kind", "≤ 1.1"),
        ("rules", "10 for its kind", "≤ 0.1"),
        ("data", "one look-up", "≤ 0.1"),
        ("history", "turn N", "≤ 0.1"),
    ):
        report.ratios.append(Ratio(f"exponent by {name}: {line}", by_name[name].exponent(line), target))
    _slopes(report, by_name["content"])
    _threads(report, effort)
    return report


def _slopes(report: Report, content: Curve) -> None:
    """What one more kilobyte of content takes, between the two largest sizes."""
    each = {}
    for line in content.lines:
        (small, less), (large, more) = sorted(content.medians(line).items())[-2:]
        each[line] = (more - less) / (large - small) * 1024
        report.figures.append(Figure(f"one KB more of content: {line}", "µs", (each[line],)))
    ratio = each["decision, nothing read"] / each["engine alone"]
    report.ratios.append(Ratio("a KB of content that no rule reads: decision / engine's parse", ratio, "≤ 2"))


def _history(effort: Effort) -> dict[int, tuple[float, ...]]:
    pipeline = Pipeline()
    sessions = {length: Session(pipeline, talk, length, AFTER_OTHERS) for length in HISTORY}
    samples: dict[int, list[float]] = {length: [] for length in HISTORY}
    for _ in range(effort.rounds):
        for length, session in sessions.items():
            samples[length].append(statistics.median(session.turn()[0] for _ in range(3)) * 1e6)
    return {length: tuple(each) for length, each in samples.items()}


def _threads(report: Report, effort: Effort) -> None:
    with Side("cmf_engine") as engine:
        rates: dict[int, list[float]] = {count: [] for count in THREADS}
        for _ in range(max(3, effort.rounds // 6)):
            for count in THREADS:
                rates[count].append(engine.ask(f"threads_{count}", call=True))
    report.figures += [Figure(f"engine in {n} threads", "calls/s", tuple(each)) for n, each in rates.items()]
