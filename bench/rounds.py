"""Interleaved rounds over processes, and the tables that come of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.curves import Curve

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / ".tools" / "bench"
OWN_PYTHON = ROOT / ".venv" / "bin" / "python"


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, CPU seconds of each, and how many things to keep in memory."""

    rounds: int
    seconds: float
    kept: int


FULL = Effort(rounds=31, seconds=0.1, kept=10_000)
QUICK = Effort(rounds=7, seconds=0.05, kept=2_000)


class Side:
    """A running process of one side."""

    def __init__(self, module: str, *arguments: str, peer: str | None = None) -> None:
        python = OWN_PYTHON if peer is None else TOOLS / peer / "bin" / "python"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        self.name = module
        self._process = subprocess.Popen(
            [str(python), "-m", "bench.serve", f"bench.sides.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self.operations: list[str] = self._answer()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, operation: str, **command: Any) -> Any:
        """The answer to one command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"operation": operation, **command}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: see its output above")
        return json.loads(line)


@dataclass(frozen=True)
class Figure:
    """One measured thing: samples in one unit."""

    name: str
    unit: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples)

    def over(self, other: Figure) -> float:
        """How many times the other this is, round by round: a clock that changes meanwhile changes both of a round."""
        return statistics.median(own / its for own, its in zip(self.samples, other.samples, strict=True))

    def less(self, other: Figure) -> Figure:
        """What this takes beyond the other, round by round."""
        each = (own - its for own, its in zip(self.samples, other.samples, strict=True))
        return Figure(f"{self.name}, less {other.name}", self.unit, tuple(each))

    def row(self) -> str:
        """A line of the table of figures."""
        low, high = min(self.samples), max(self.samples)
        return f"| {self.name} | {self.median:.4g} | {low:.4g} | {high:.4g} | {self.unit} |"


@dataclass(frozen=True)
class Ratio:
    """What is compared: `value` and the target, as a bound on it."""

    name: str
    value: float
    target: str

    @property
    def met(self) -> bool:
        """Whether the target (`≥ 6`, `≤ 0.6`, `< 150`) holds."""
        sign, bound = self.target.split()
        return self.value >= float(bound) if sign == "≥" else self.value <= float(bound)

    def row(self) -> str:
        """A line of the table of ratios."""
        return f"| {self.name} | {self.value:.3g} | {self.target} | {'yes' if self.met else '**no**'} |"


@dataclass
class Report:
    """What one script measured."""

    title: str
    notes: str
    figures: list[Figure] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def markdown(self) -> str:
        """Both tables, and one for each curve."""
        ratios = ["| ratio or limit | measured | target | met |", "|---|---|---|---|", *(r.row() for r in self.ratios)]
        figures = ["| what | median | min | max | unit |", "|---|---|---|---|---|", *(f.row() for f in self.figures)]
        curves = [line for curve in self.curves for line in ("", f"{curve.title}, {curve.unit}:", "", *curve.table())]
        return "\n".join([f"## {self.title}", "", self.notes, "", *ratios, "", *figures, *curves, ""])

    def to_json(self) -> dict[str, Any]:
        """The same, with every sample."""
        return {
            "title": self.title,
            "notes": self.notes,
            "ratios": [{"name": r.name, "value": r.value, "target": r.target, "met": r.met} for r in self.ratios],
            "figures": [{"name": f.name, "unit": f.unit, "samples": f.samples} for f in self.figures],
            "curves": [curve.to_json() for curve in self.curves],
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Report:
        """What `to_json` gave."""
        return cls(
            kept["title"],
            kept.get("notes", ""),
            [Figure(one["name"], one["unit"], tuple(one["samples"])) for one in kept["figures"]],
            [Ratio(one["name"], one["value"], one["target"]) for one in kept["ratios"]],
            [Curve.from_json(one) for one in kept.get("curves", ())],
        )


def interleaved(pairs: Sequence[tuple[str, Side, str]], effort: Effort) -> dict[str, Figure]:
    """Microseconds of CPU of each (label, side, operation), one sample a round, all sides in turn within a round."""
    samples: dict[str, list[float]] = {label: [] for label, _, _ in pairs}
    for _, side, operation in pairs:
        side.ask(operation, seconds=effort.seconds)  # warm
    for number in range(effort.rounds):
        for label, side, operation in pairs if number % 2 else reversed(pairs):
            samples[label].append(side.ask(operation, seconds=effort.seconds) * 1e6)
    return {label: Figure(label, "µs", tuple(each)) for label, each in samples.items()}
