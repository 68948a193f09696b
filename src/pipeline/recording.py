"""The record of each run, durable before its outcome is given out [E2]. Spec: docs/spec/recorder.md [REC-16] ff."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from cmf.identity import Clock
from pipeline.certificate import digest_of
from pipeline.context import Context
from pipeline.errors import PipelineError, where_from
from pipeline.events import Events, RecordUnavailable
from pipeline.outcome import Outcome
from pipeline.record import Record, Run, record_of
from pipeline.sessions import wall_clock
from pipeline.stage import Traffic

_log: Final = logging.getLogger("pipeline.recording")
UNRECORDED: Final = "record.unavailable"


class Records(Protocol):
    """Where records go: `pipeline.recorder.Recorder`, say."""

    def record(self, record: Record) -> None:
        """Return when the record is durable; StoreError if it may not be."""
        ...

    async def arecord(self, record: Record) -> None:
        """`record`, awaiting."""
        ...


class Recording:
    """Puts every run on record. `release` says that an outcome is given out though its record could not be kept."""

    def __init__(self, records: Records, events: Events, *, release: bool, clock: Clock = wall_clock) -> None:
        self._records = records
        self._events = events
        self._release = release
        self._clock = clock

    def keep(self, value: Traffic, context: Context, outcome: Outcome, run_ns: int) -> bool:
        """Whether the outcome of the run on `value` may be given out: its record is durable, or need not be."""
        try:
            self._records.record(self._record(value, context, outcome, run_ns))
        except Exception as error:  # noqa: BLE001  (whatever a recorder of the host's own raises, nothing is on record)
            return self._failed(outcome, error)
        return True

    async def akeep(self, value: Traffic, context: Context, outcome: Outcome, run_ns: int) -> bool:
        """`keep`, awaiting the record."""
        try:
            await self._records.arecord(self._record(value, context, outcome, run_ns))
        except Exception as error:  # noqa: BLE001  (as above)
            return self._failed(outcome, error)
        return True

    def _record(self, value: Traffic, context: Context, outcome: Outcome, run_ns: int) -> Record:
        certificate = outcome.certificate
        run = Run(
            timestamp=self._clock(),
            input_digest=digest_of(value),
            output_digest=None if certificate is None else certificate.digest,
            session_version=outcome.session_version,
            timings={**outcome.timings, "run_ns": run_ns},
        )
        return record_of(outcome.decision, context, run)

    def _failed(self, outcome: Outcome, error: Exception) -> bool:
        code = error.code if isinstance(error, PipelineError) else UNRECORDED
        _log.error("decision %s is not on record: %s", outcome.decision.id, where_from(error))
        self._events.publish(RecordUnavailable(decision=outcome.decision.id, code=code, released=self._release))
        return self._release


__all__ = ["UNRECORDED", "Recording", "Records"]
