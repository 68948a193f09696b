"""How cost grows: points with a fitted exponent, drawn as SVG without any library."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 64, 40, 200, 48
COLOURS = ("#2563a8", "#b4511e", "#2e7d4f", "#7a4fa3", "#8a6d00")
FITTED = 4  # of the largest sizes: at small ones what every call costs hides how it grows


@dataclass(frozen=True)
class Curve:
    """Costs by size, both on logarithmic scales: `lines` are size → samples of each thing that was measured."""

    name: str
    title: str
    across: str
    unit: str
    lines: Mapping[str, Mapping[int, tuple[float, ...]]]

    def medians(self, line: str) -> dict[int, float]:
        """The middle sample of each size."""
        return {size: statistics.median(samples) for size, samples in self.lines[line].items()}

    def exponent(self, line: str) -> float:
        """The slope of the least-squares line through the logarithms of the largest sizes: 1 is linear, 0 is flat."""
        points = [(math.log(size), math.log(cost)) for size, cost in sorted(self.medians(line).items())[-FITTED:]]
        xs, ys = zip(*points, strict=True)
        return statistics.linear_regression(xs, ys).slope

    def to_json(self) -> dict[str, Any]:
        """All points, and the exponents."""
        lines = {
            line: {"exponent": round(self.exponent(line), 3), "samples": {str(size): each for size, each in of.items()}}
            for line, of in self.lines.items()
        }
        return {"name": self.name, "title": self.title, "across": self.across, "unit": self.unit, "lines": lines}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Curve:
        """What `to_json` gave."""
        lines = {
            line: {int(size): tuple(each) for size, each in of["samples"].items()} for line, of in kept["lines"].items()
        }
        return cls(kept["name"], kept["title"], kept["across"], kept["unit"], lines)

    def table(self) -> list[str]:
        """Rows of Markdown: a column for each line, a row for each size, and the exponents last."""
        names = list(self.lines)
        sizes = sorted({size for of in self.lines.values() for size in of})
        medians = {line: self.medians(line) for line in names}
        rows = [f"| {self.across} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        rows += [
            f"| {size:,} | {' | '.join(f'{medians[n][size]:.4g}' if size in medians[n] else '' for n in names)} |"
            for size in sizes
        ]
        return [*rows, f"| *exponent* | {' | '.join(f'*{self.exponent(n):.2f}*' for n in names)} |"]

    def svg(self) -> str:
        """The picture: medians as lines, from the least to the greatest sample as bars."""
        sizes = [size for of in self.lines.values() for size in of]
        costs = [each for of in self.lines.values() for samples in of.values() for each in samples]
        across, up = _Axis(sizes, LEFT, WIDTH - RIGHT), _Axis(costs, HEIGHT - BOTTOM, TOP)
        drawn = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            _text(LEFT, 20, self.title, size=13),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.across, anchor="middle"),
            _text(8, TOP - 8, self.unit),
        ]
        for tick in up.ticks():
            drawn.append(f'<path d="M{LEFT} {up(tick):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
            drawn.append(_text(LEFT - 6, up(tick) + 4, f"{tick:g}", anchor="end"))
        for tick in across.ticks():
            drawn.append(f'<path d="M{across(tick):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>')
            drawn.append(_text(across(tick), HEIGHT - BOTTOM + 16, f"{tick:,g}", anchor="middle"))
        for at, (line, of) in enumerate(self.lines.items()):
            colour = COLOURS[at % len(COLOURS)]
            points = [(across(size), up(cost)) for size, cost in sorted(self.medians(line).items())]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            for size, samples in of.items():
                x = across(size)
                bar = f"M{x:.1f} {up(min(samples)):.1f}V{up(max(samples)):.1f}"
                drawn.append(f'<path d="{bar}" stroke="{colour}" stroke-width="1" opacity="0.6"/>')
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
            y = TOP + 14 + 34 * at
            drawn.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{y - 8}" width="10" height="10" fill="{colour}"/>')
            drawn.append(_text(WIDTH - RIGHT + 28, y, line))
            drawn.append(_text(WIDTH - RIGHT + 28, y + 13, f"exponent {self.exponent(line):.2f}", fill="#666666"))
        return "\n".join([*drawn, "</svg>"]) + "\n"


class _Axis:
    """A logarithmic scale over what is shown, from one end to the other."""

    def __init__(self, values: list[int] | list[float], begin: float, end: float) -> None:
        self._low, self._high = math.log10(min(values)), math.log10(max(values))
        if self._high - self._low < 0.5:  # what is flat shall look flat
            middle = (self._low + self._high) / 2
            self._low, self._high = middle - 0.5, middle + 0.5
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + part * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Powers of ten inside, with twos and fives where there is room."""
        steps = (1, 2, 5) if self._high - self._low < 2.5 else (1,)
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        return [s * 10.0**p for p in powers for s in steps if self._low <= math.log10(s * 10.0**p) <= self._high]


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, fill: str = "#222222") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}"'
    return f"<text {where}>{escape(text)}</text>"
