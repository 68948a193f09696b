"""The content of a run that is kept apart from its record: none, all of it, or all but its secrets.

It has the form of a line of a replay file, so that it can be judged again. The record has only a commitment to it
[AUD-70]. Spec: docs/spec/audit.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cmf.json.codec import dumps
from pipeline.audit.record import Content
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Decision
from pipeline.decisions.errors import PipelineError
from pipeline.decisions.stage import Traffic
from pipeline.decisions.timestamps import LAST, SECOND
from pipeline.provenance.claims import HistoryTrust
from pipeline.run.outcome import Basis
from pipeline.run.recorded_input import Entry, entry_of

ContentMode: TypeAlias = Literal["none", "masked", "whole"]
Mask: TypeAlias = Callable[[Entry], Entry]
_DAY: Final = 86_400 * SECOND
# Names of ours in such a line. Others are the traffic's own words, and end the place that a record tells.
_OURS: Final = frozenset(
    ["traffic", "context", "session", "messages", "choices", "message", "content", "text", "thinking",
     "arguments", "result", "tools", "description", "system", "history", "labels", "events", "approvals",
     "subject", "claims", "headers", "custom", "extensions", "security", "objects", "data"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """The content that is kept of a run, if any; if none, why; and the places at which secrets were replaced."""

    content: Content | None = None
    left_out: str | None = None
    masked: tuple[str, ...] = ()


NOTHING: Final = Kept()


class KeepingContent:
    """Decides what content of each run is kept.

    Args:
        history: how far the history of a conversation is believed.
        mask: takes the secrets out; None to keep them.
        days: how long it is kept, at most; the retention of the data may allow less.
    """

    def __init__(self, history: HistoryTrust, mask: Mask | None = None, days: float | None = None) -> None:
        self._history = history
        self._mask = mask
        self._days = days

    @property
    def takes_time(self) -> bool:
        """Whether `of` takes so long that it should not run on an event loop."""
        return self._mask is not None

    def of(self, value: Traffic, context: Context, decision: Decision, basis: Basis | None, now: int) -> Kept:
        """What is kept of the run on `value`; `now` in microseconds since the epoch.

        Nothing is kept of data whose retention does not allow it, or is not known because the run did not get so far.
        """
        if basis is None:
            return Kept(left_out="not-judged")
        if not basis.keep.after_run or basis.keep.over(now):
            return Kept(left_out="retention")
        entry = entry_of(value, context, basis.session, decision, seen=basis.seen, history=self._history)
        masked: tuple[str, ...] = ()
        if self._mask is not None:
            try:
                clean = self._mask(entry)
            except PipelineError as error:
                return Kept(left_out=error.code)
            masked = tuple(sorted({f"/content{place}" for place in _differing(entry.to_json(), clean.to_json())}))
            entry = clean
        ends = [basis.keep.until] + ([] if self._days is None else [now + int(self._days * _DAY)])
        until = min(ends)
        return Kept(Content.of(dumps(entry.to_json()), None if until >= LAST else until), masked=masked)


def _differing(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Where two lines differ. A place ends before the first name that is a word of the traffic."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        if before.keys() != after.keys() - {"masked"}:
            yield place
            return
        for name, old in before.items():
            if name in _OURS:
                yield from _differing(old, after[name], f"{place}/{name}")
            elif old != after[name]:
                yield place
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differing(old, new, f"{place}/{number}")
    else:
        yield place
