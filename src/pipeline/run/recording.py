"""The record of each run, durable before its outcome is given out [E2], and the content kept apart from it.

That content has the form of a line of a replay file, so that it can be judged again. The record has only a commitment
to it [AUD-70]. Spec: docs/spec/recorder.md [REC-16] ff., docs/spec/audit.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from cmf.json.codec import dumps
from cmf.json.value import trusted
from cmf.message.message import Message
from pipeline.audit.record import Content, Record, Run, record_of
from pipeline.decisions.cancellation import PROCESS_EXITS
from pipeline.decisions.certificate import digest_of
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Decision
from pipeline.decisions.errors import PipelineError, where_from
from pipeline.decisions.events import Events, RecordUnavailable
from pipeline.decisions.stage import Traffic
from pipeline.decisions.timestamps import LAST, SECOND, micros
from pipeline.provenance.claims import HistoryTrust
from pipeline.run.offload import Waiting
from pipeline.run.outcome import Basis, Outcome, Ran
from pipeline.run.recorded_input import Entry, entry_of
from pipeline.sessions.base import SessionStore, wall_clock

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


_log: Final = logging.getLogger("pipeline.run.recording")
UNRECORDED: Final = "record.unavailable"
NOT_ON_RECORD: Final = "What was decided could not be put on record."
_NONE: Final[frozenset[str]] = frozenset()


class Records(Protocol):
    """Where records go: `pipeline.store.recorder.Recorder`, say."""

    def record(self, record: Record) -> None:
        """Return when the record is durable; StoreError if it may not be."""
        ...

    async def arecord(self, record: Record) -> None:
        """`record`, awaiting."""
        ...


class SharingRecords(Records, Protocol):
    """Records that may be in the same database as sessions, so that one transaction can do for both."""

    def shares(self, sessions: SessionStore) -> bool:
        """Whether a commit of `sessions` makes `Changes.record` durable together with the changes, or neither."""
        ...

    def kept(self, record: Record) -> None:
        """Called with a record that became durable so."""
        ...


def sharing(records: Records) -> SharingRecords | None:
    """The records, if their class makes them `SharingRecords`: to ask an instance may run code of the host's."""
    return cast("SharingRecords", records) if hasattr(type(records), "shares") else None


class Recording:
    """Puts every run on record. A run that changes one of `sessions` is never without a record, even after a crash.

    With `release`, an outcome is given out even if its record could not be written. `content` decides what is kept of
    the traffic beside the record; None keeps nothing. `profiles` is the revision of the profiles in use.
    """

    def __init__(
        self,
        records: Records,
        events: Events,
        sessions: SessionStore,
        *,
        release: bool,
        content: KeepingContent | None = None,
        profiles: str | None = None,
    ) -> None:
        self._profiles = profiles
        self._content = content
        self._records = records
        self._events = events
        self._release = release
        # What may go out unrecorded must not depend on a transaction that a record can spoil.
        shared = None if release else sharing(records)
        self.kept: Final = shared.kept if shared is not None and shared.shares(sessions) else None
        """What is to be called with a record that a commit of `sessions` made durable; None if it takes none."""
        self.goes_first: Final = sessions.waits and self.kept is None
        """Whether a run is to be put on record before it changes its session, which a crash would leave changed."""

    async def keep(self, value: Traffic, context: Context, ran: Ran, run_ns: int, waiting: Waiting) -> bool:
        """Whether the outcome may be given out, since its record is durable or by settings need not be."""
        try:
            build = partial(self.record, value, context, ran, run_ns)
            takes_time = self._content is not None and self._content.takes_time
            record = await waiting.either(build, partial(asyncio.to_thread, build)) if takes_time else build()
            await waiting.either(lambda: self._records.record(record), lambda: self._records.arecord(record))
        except PROCESS_EXITS:
            raise
        except BaseException as error:  # whatever a recorder of the host's own raises, nothing is on record
            if waiting.is_cancelled(error):
                raise
            return self._failed(ran.outcome, error)
        return True

    def record(self, value: Traffic, context: Context, ran: Ran, run_ns: int) -> Record:
        """The record of a run."""
        outcome, basis = ran.outcome, ran.basis
        certificate = outcome.certificate
        now = wall_clock()
        kept = NOTHING
        if self._content is not None:
            at = micros(now)
            kept = self._content.of(value, context, outcome.decision, basis, at)
        run = trusted(
            Run,
            timestamp=now,
            input_digest=digest_of(value),
            output_digest=None if certificate is None else certificate.digest,
            session_version=outcome.session_version,
            timings={**outcome.timings, "run_ns": run_ns},
            labels_gained=_NONE if basis is None else outcome.labels - basis.session.labels,
            model=None if isinstance(value, Message) else value.model,
            content=kept.content,
            left_out=kept.left_out,
            masked=kept.masked,
            profiles=self._profiles,
            overtaken=ran.overtaken,
        )
        return record_of(outcome.decision, context, run)

    def _failed(self, outcome: Outcome, error: BaseException) -> bool:
        code = error.code if isinstance(error, PipelineError) else UNRECORDED
        why = error if isinstance(error, PipelineError) else where_from(error)
        _log.error("decision %s is not on record: %s", outcome.decision.id, why)
        self._events.publish(RecordUnavailable(decision=outcome.decision.id, code=code, released=self._release))
        return self._release
