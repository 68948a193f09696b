"""Line-by-line differences between two texts, as data for a table."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.review.summary import Json

_AROUND: Final = 3  # lines of context


def parts(old: Sequence[str], new: Sequence[str]) -> list[list[Json]]:
    """The hunks that differ, with some context; each line has its old number, new number and kind of change."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [list(_lines(old, new, group)) for group in matcher.get_grouped_opcodes(_AROUND)]


def _lines(old: Sequence[str], new: Sequence[str], group: Sequence[tuple[str, int, int, int, int]]) -> Iterator[Json]:
    for what, first, last, begin, end in group:
        if what == "equal":
            for offset, text in enumerate(old[first:last]):
                yield {"old": first + offset + 1, "new": begin + offset + 1, "change": "", "text": text}
            continue
        for number, text in enumerate(old[first:last], start=first + 1):
            yield {"old": number, "new": None, "change": "removed", "text": text}
        for number, text in enumerate(new[begin:end], start=begin + 1):
            yield {"old": None, "new": number, "change": "added", "text": text}
