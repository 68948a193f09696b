"""The record of each run, durable before its outcome is given out [E2]. Spec: docs/spec/recorder.md [REC-16] ff."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, Protocol, cast

from cmf.json.value import trusted
from cmf.message.message import Message
from pipeline.audit.record import Record, Run, record_of
from pipeline.decisions.cancellation import PROCESS_EXITS
from pipeline.decisions.certificate import digest_of
from pipeline.decisions.context import Context
from pipeline.decisions.errors import PipelineError, where_from
from pipeline.decisions.events import Events, RecordUnavailable
from pipeline.decisions.stage import Traffic
from pipeline.decisions.timestamps import micros
from pipeline.run.kept_content import NOTHING, KeepingContent
from pipeline.run.offload import Waiting
from pipeline.run.outcome import Outcome, Ran
from pipeline.sessions.base import SessionStore, wall_clock

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
