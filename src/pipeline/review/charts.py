"""Charts: figures over time and by value, each as a table with the geometry of its drawing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.decisions.timestamps import SECOND, iso
from pipeline.review.catalog import Catalog
from pipeline.review.summary import Json

WIDTH, HEIGHT = 640, 160
_STEPS: Final = (60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_BARS: Final = 48


def over_time(catalog: Catalog, found: int) -> Json:
    """The decisions in a set over time: how many per step, and how many of them were stopped."""
    spans = catalog.span(found)
    if spans is None:
        return {"step": 0, "bars": [], "rows": []}
    first, last = spans
    step = next((one for one in _STEPS if (last - first) // SECOND <= one * _MOST_BARS), _STEPS[-1]) * SECOND
    denied, held = (found & catalog.having("verdict", verdict) for verdict in ("deny", "require_approval"))
    rows: list[Json] = []
    for at in range(first // step * step, last + 1, step):
        within = catalog.between(at, at + step)
        counts = {
            name: (those & within).bit_count() for name, those in (("all", found), ("denied", denied), ("held", held))
        }
        rows.append({"from": iso(at), "until": iso(at + step), **counts})
    return {"step": step // SECOND, "rows": rows, "bars": _bars([row["denied"] for row in rows])}


def _bars(values: Sequence[int]) -> list[Json]:
    wide = WIDTH / max(len(values), 1)
    highest = max([*values, 1])
    return [
        {
            "x": round(number * wide + wide * 0.12, 2),
            "width": round(wide * 0.76, 2),
            "height": round(value / highest * (HEIGHT - 20), 2),
            "y": round(HEIGHT - value / highest * (HEIGHT - 20), 2),
        }
        for number, value in enumerate(values)
    ]


def shares(counted: Iterable[tuple[str, int]]) -> list[Json]:
    """Values with their counts, and each count as a share of the highest."""
    rows = list(counted)
    highest = max([count for _, count in rows], default=1)
    return [{"value": value, "count": count, "share": round(100 * count / highest, 1)} for value, count in rows]


def spread(values: Sequence[float]) -> list[Json]:
    """The percentiles of the values."""
    ordered = sorted(values)
    if not ordered:
        return []
    at = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
    rows = [(name, ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for name, share in at.items()]
    highest = max(value for _, value in rows) or 1
    return [{"value": name, "count": round(value, 2), "share": round(100 * value / highest, 1)} for name, value in rows]
