"""Hits on joined texts, reported on the parts whose texts were joined. Spec: docs/spec/effects.md [EFF-12].

A span of a joined text becomes spans of the parts that hold it, on the lines of those parts, so that all that carries
out and records edits treats it like any other. A hit that a part already has of its own is not reported twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from cmf.views.render import Piece
from cmf.views.view import MessageView
from pipeline.decisions.decision import BAD_EFFECT, Effect, Hit

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


__all__ = ["settle_joined"]
