"""The hits on views, and the lines of a decision that report them. Spec: [PIPE-1], effects.md [EFF-12], [DEC-8].

A span of a joined text becomes spans of the parts that hold it, on the lines of those parts, so that all that carries
out and records edits treats it like any other. A line keeps the path that its view had on the first pass, since an edit
can take parts away: a hit is never told of another view.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from cmf.views.render import Piece
from cmf.views.view import MessageView
from pipeline.decisions.decision import BAD_EFFECT, Effect, Hit, RuleFacts, ViewDecision, hits_of, stronger, verdict_of
from pipeline.decisions.engine import EngineResult
from pipeline.decisions.paths import steps_of
from pipeline.decisions.policy_input import in_content
from pipeline.policy.exceptions import Excuses
from pipeline.provenance.data_policy import DataRule
from pipeline.provenance.sources import Origin


@dataclass(frozen=True, slots=True)
class HitFinder:
    """Finds the hits on a view: those in the engine's answer, and those of the pipeline's own rule on data.

    Attributes:
        rules: the severity and mode that each rule's METADATA declares.
        excuses: the exceptions and overrides in force. They apply to hits of the policy set, never to the pipeline's.
        data: the pipeline's own rule on what data may be used for.
    """

    rules: Mapping[str, RuleFacts]
    excuses: Excuses
    data: DataRule

    def hits(self, view: MessageView, result: EngineResult, origins: Sequence[Origin] | None) -> tuple[Hit, ...]:
        """The hits on one view."""
        hits = hits_of(result, self.rules, view.kind)
        if any("of" in hit.fields for hit in hits):
            hits = tuple(_of_content(hit, view) for hit in hits)
        if hits and self.excuses.active:
            hits = self.excuses(hits, view.uri)
        data_hits = self.data(view, origins)
        return (*hits, *data_hits) if data_hits else hits


def _of_content(hit: Hit, view: MessageView) -> Hit:
    """The hit, with spans of the content in place of those of another form of it."""
    form = hit.fields.get("of")
    if hit.effect is not Effect.REDACT or form is None or "spans" not in hit.fields:
        return hit
    return replace(hit, fields={**hit.fields, "of": "content", "spans": in_content(view, form, hit.fields["spans"])})


_END: Final = attrgetter("end")


def settle_joined(views: Sequence[MessageView], hits: MutableSequence[tuple[Hit, ...] | None]) -> None:
    """Move the hits of joined texts in `hits`, which has those of each view, to the parts that they are about.

    The parts of a joined text stand before it.
    """
    places: dict[str, int] = {}
    for place, view in enumerate(views):
        found = hits[place]
        if not found or not view.pieces:
            continue
        places = places or {other.path: at for at, other in enumerate(views)}
        lines = [places[piece.path] for piece in view.pieces]
        kept, moved = _told_apart(found, view.pieces, [hits[line] or () for line in lines])
        hits[place] = kept
        for piece, more in moved.items():
            hits[lines[piece]] = (*(hits[lines[piece]] or ()), *more)


def _told_apart(
    found: Sequence[Hit], pieces: Sequence[Piece], own: Sequence[Sequence[Hit]]
) -> tuple[tuple[Hit, ...], dict[int, list[Hit]]]:
    """The hits of a joined text that stay its own, and those of its pieces, by the index of the piece."""
    shown = {_said(hit) for hits in own for hit in hits}
    cut = {
        (*_said(hit), at, *span) for at, hits in enumerate(own) for hit in hits for span in hit.fields.get("spans", ())
    }
    kept: list[Hit] = []
    moved: dict[int, list[Hit]] = defaultdict(list)
    for hit in found:
        if hit.effect is not Effect.REDACT:
            # A person who approves a part has not seen what it is a part of: an approval is for one text.
            kept += [hit] if hit.effect is Effect.REQUIRE_APPROVAL or _said(hit) not in shown else []
        elif "spans" not in hit.fields:
            kept.append(replace(hit, effect=Effect.DENY, code=BAD_EFFECT, fields={}, detail=_NO_FIELDS))
        else:
            spans: dict[tuple[int, bool], list[list[int]]] = defaultdict(list)
            for at, start, end, stays in _cuts(hit.fields["spans"], pieces):
                if (*_said(hit), at, start, end) not in cut:
                    spans[at, stays].append([start, end])
            for (at, stays), places in spans.items():
                fields = {**hit.fields, "spans": places}
                moved[at].append(replace(hit, fields=fields if stays else fields | {"replacement": "drop"}))
    return tuple(kept), moved


_NO_FIELDS: Final = {"problem": "redact: a joined text has no fields of its own, only spans"}


def _said(hit: Hit) -> tuple[object, ...]:
    """What the hit does, beside its spans."""
    return hit.rule, hit.code, hit.effect, hit.enforced, hit.fields.get("label"), hit.fields.get("replacement", "mask")


def _cuts(spans: Sequence[Sequence[int]], pieces: Sequence[Piece]) -> Iterator[tuple[int, int, int, bool]]:
    """What each span covers of each piece: the index of the piece, and start and end in its text.

    The last item says whether a replacement is to stand there. It does once for each span, where it begins, and where
    nothing else would be left: formats refuse empty texts. What lies beyond the last piece is said of that piece, where
    the edit is refused as one past the end of a text.
    """
    last = len(pieces) - 1
    for start, end in spans:
        at = min(bisect_right(pieces, start, key=_END), last)
        while at <= last and pieces[at].start < end:
            piece = pieces[at]
            until = end if at == last else min(end, piece.end)
            begin = max(start, piece.start)
            yield at, begin - piece.start, until - piece.start, begin == start or (begin, until) == piece[1:]
            at += 1


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
