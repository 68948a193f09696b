"""The lines of a decision, one per view, gathered over all passes of a run. Spec: decisions-of-policy.md [DEC-8].

An edit can take parts away, and then the places of what follows move. A line keeps the path that its view had on the
first pass, so that a hit is never told of another view.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipeline.decisions.decision import ViewDecision, stronger, verdict_of
from pipeline.decisions.paths import steps_of


class DecisionLines:
    """The lines of a run so far, in the order of the views, and those `hit`; later passes only ever add to them."""

    def __init__(self) -> None:
        self.lines: tuple[ViewDecision, ...] = ()
        self.hit: tuple[ViewDecision, ...] = ()
        self._reused = 0
        self._removed: dict[str, list[int]] = defaultdict(list)

    def add(self, views: Sequence[ViewDecision], hit: Sequence[ViewDecision] | None = None, reused: int = 0) -> None:
        """Add the decisions of a pass. A view that no earlier pass had gets a line of its own if it has hits.

        `hit` are those of the views with hits, where that is known already; `reused` is how many of the views, from the
        first message on, were taken over from an earlier turn.
        """
        if not self.lines:
            self.lines, self.hit = tuple(views), _hit(views) if hit is None else tuple(hit)
            self._reused = reused
            return
        fewer, self._reused = reused < self._reused, min(reused, self._reused)
        # Others say nothing new, but that they were judged now, if they were not before.
        shown = [view for view in views if view.hits or view.origins is not None or (fewer and not view.reused)]
        if not shown:
            return
        known = {(view.path, view.kind): place for place, view in enumerate(self.lines)}
        merged = list(self.lines)
        for view in shown:
            path = self.first_path(view.path)
            place = known.get((path, view.kind))
            if place is None:
                merged += [dataclasses.replace(view, path=path)] if view.hits else []
            else:
                merged[place] = _merged(merged[place], view)
        self.lines = tuple(merged)
        self.hit = _hit(merged)

    def removed(self, paths: Iterable[str]) -> None:
        """Note which paths an edit removed, as they were in the pass that requested the edit."""
        for path in [self.first_path(path) for path in paths]:
            holder, _, place = path.rpartition("[")
            self._removed[holder].append(int(place.rstrip("]")))

    def first_path(self, path: str) -> str:
        """The path that the value now at `path` had on the first pass."""
        if not self._removed:
            return path
        first = ""
        for name, place in steps_of(path):
            first += f".{name}" if first else name
            if place is not None:
                for removed_path in sorted(self._removed.get(first, ())):
                    place += removed_path <= place
                first += f"[{place}]"
        return first


def _hit(lines: Iterable[ViewDecision]) -> tuple[ViewDecision, ...]:
    return tuple(line for line in lines if line.hits)


def _merged(before: ViewDecision, view: ViewDecision) -> ViewDecision:
    fresh = tuple(hit for hit in view.hits if hit not in before.hits)
    reused = before.reused and view.reused
    if not fresh and view.origins == before.origins and reused is before.reused:
        return before
    hits = before.hits + fresh
    outcome = stronger(before.outcome, view.outcome)
    return dataclasses.replace(
        before, hits=hits, verdict=verdict_of(hits), outcome=outcome, origins=view.origins, reused=reused
    )


__all__ = ["DecisionLines"]
