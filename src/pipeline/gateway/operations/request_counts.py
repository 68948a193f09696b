"""What became of each request, by route, to be compared with the log. Spec: gateway.md [GW-210] ff."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from pipeline.audit.record import Record

OUTCOMES: Final = ("decided", "refused", "failed", "own")


class Tally:
    """Counts each request once: `decided` if a decision about it is on record, else by how it was answered.

    `refused` requests were turned away before they were judged, `failed` ones likewise, by a fault of ours; `own` are
    the gateway's own answers, such as the list of models.
    """

    def __init__(self) -> None:
        self._open: dict[str, bool] = {}  # requests in progress, and whether a decision is on record
        self._counts: Counter[tuple[str, str]] = Counter()
        self._gate = threading.Lock()

    def begun(self, request_id: str) -> None:
        """Count in a request that arrived."""
        self._open[request_id] = False

    def recorded(self, record: Record) -> None:
        """Note a durable record; records of other traffic (MCP) are ignored."""
        with self._gate:
            if record.request_id is not None and record.request_id in self._open:
                self._open[record.request_id] = True

    def over(self, route: str, request_id: str, status: int) -> None:
        """Count out a request that was answered, or whose client left."""
        own = "own" if status == 200 else "refused" if status < 500 else "failed"
        with self._gate:
            outcome = "decided" if self._open.pop(request_id, False) else own
            self._counts[route, outcome] += 1

    def take(self) -> dict[str, dict[str, int]]:
        """The counts since the last call: by route, `received` and each outcome; empty if there are none."""
        with self._gate:
            counts, self._counts = self._counts, Counter()
        routes: dict[str, dict[str, int]] = {}
        for (route, outcome), count in sorted(counts.items()):
            line = routes.setdefault(route, {"received": 0, **dict.fromkeys(OUTCOMES, 0)})
            line["received"] += count
            line[outcome] += count
        return routes

    def give_back(self, routes: dict[str, dict[str, int]]) -> None:
        """Add back counts that could not be put on record."""
        with self._gate:
            for route, line in routes.items():
                self._counts.update({(route, outcome): line[outcome] for outcome in OUTCOMES if line[outcome]})
