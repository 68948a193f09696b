"""Overrides as records of the log, and nothing else: two people, one rule, one scope, a day at most [E6].

Spec: docs/spec/exceptions.md [EXC-10] ff.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Engine

from cmf.codec import loads
from cmf.identity import Clock
from cmf.security import SubjectExtension
from pipeline.authority import Authorise, holding
from pipeline.errors import AuditError, StoreError
from pipeline.moments import MICROSECOND, instant_of, micros
from pipeline.policies.overrides import Override
from pipeline.store.acts import LONGEST, PREFIX, USUAL, act_row, check_time, moment_in, said_by
from pipeline.store.engine import snapshot
from pipeline.store.records import newest_of
from pipeline.store.tables import RECORDS
from pipeline.store.writer import Writer, waited

OVERRIDE: Final = "cmf:override"
KIND: Final = "override"
OPEN: Final = "open"
CLOSE: Final = "close"
STALE_SECONDS: Final = 1.0  # how long what was read counts; what is closed elsewhere ends within it
MAY: Final = holding(OVERRIDE)
_RULE: Final = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
_log: Final = logging.getLogger("pipeline.store")


class StoreOverrides:
    """The overrides of a store. Safe to use from any thread.

    Args:
        engine: what to read with. writer: what to write with.
        clock: the time of records; no override outlives what is on record, even where the clock is put back.
        may: who may open and close one; by default whoever has the permission `cmf:override`.
    """

    def __init__(self, engine: Engine, writer: Writer, *, clock: Clock, may: Authorise = MAY) -> None:
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._may = may
        self._lock = threading.Lock()
        self._held: tuple[Override, ...] = ()
        self._latest = 0  # what its clock said, at most
        self._read_again = 0.0  # in seconds of the monotonic clock, which nobody puts back

    @property
    def due(self) -> bool:
        """See `Overrides`."""
        return time.monotonic() >= self._read_again

    def holding(self) -> tuple[Override, ...]:
        """Those that hold, the newest first, as they were at most a second ago; none where they cannot be read."""
        if self.due:
            self._read_now()
        if not self._held:
            return ()
        # What expired for this process stays expired for it, wherever its clock goes before it reads again.
        now = self._latest = max(self._latest, micros(self._clock()))
        return tuple(one for one in self._held if now < one.expires_at)

    def _read_now(self) -> None:
        with self._lock:
            if self.due:
                try:
                    self._held = self.read()
                except (StoreError, LookupError, TypeError, ValueError) as error:
                    # Whatever stands there then: without it everything is denied that policy denies.
                    _log.error("overrides cannot be read, so none holds: %s", type(error).__name__)
                    self._held = ()
                self._read_again = time.monotonic() + STALE_SECONDS

    def read(self) -> tuple[Override, ...]:
        """Those that hold, the newest first, as they are now.

        Raises:
            StoreError: the database failed.
        """
        with snapshot(self._engine) as connection:
            now = moment_in(connection, self._clock)
            since = now - LONGEST // MICROSECOND
            kept = newest_of(connection, KIND, PREFIX[KIND], since=since)
        every = [(one.id, loads(one.body)) for one in kept if one.body is not None]
        closed = {said["override"] for _, said in every if said["action"] == CLOSE}
        made = (_override(named, said) for named, said in every if said["action"] == OPEN and named not in closed)
        return tuple(one for one in made if now < one.expires_at)

    def open(
        self,
        rule: str,
        *,
        actor: SubjectExtension,
        seconder: SubjectExtension,
        reason: str,
        subject: str | None = None,
        session: str | None = None,
        uri: str | None = None,
        expires_in: timedelta = USUAL,
    ) -> Override:
        """The override that now is on record: until it ends, what `rule` denies in the scope is let go on.

        Both people were authenticated by the host. The scope is a subject, a session, or both, by their names; of that,
        `uri` takes what matches.

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`; `audit.too-long`: for more than
                `LONGEST`, or no time; `audit.too-wide`: without a subject or session; `audit.bad-rule`: no id of one
                rule. StoreError: the database failed.
        """
        said = said_by(self._may, actor, reason, seconder, second=True)
        check_time(expires_in)
        if not (subject or session):
            raise AuditError(
                "this would be for everybody", code="audit.too-wide", hint="say for whom, or which session"
            )
        if _RULE.fullmatch(rule) is None:
            raise AuditError(
                "an override is of one rule", path=rule, code="audit.bad-rule", hint="name it: category/rule"
            )
        scope = {"subject": subject or None, "session": session or None, "uri": uri or None}
        said |= {"rule": rule, **scope, "expires_at": self._now() + expires_in // MICROSECOND}
        made = _override(self._put(OPEN, said), said)
        _log.warning("a rule is overridden: %s", made.id)
        return made

    def close(self, override: str, *, actor: SubjectExtension, reason: str) -> None:
        """End an override before it expires. It takes one person alone.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `override.unknown`: none of that id holds.
            StoreError: the database failed.
        """
        said = said_by(self._may, actor, reason, None, second=False)
        if all(one.id != override for one in self.read()):
            raise AuditError("no such override holds", code="override.unknown", hint="`cmf audit overrides` lists them")
        self._put(CLOSE, said | {"override": override})

    def _now(self) -> int:
        with snapshot(self._engine) as connection:
            return moment_in(connection, self._clock)

    def _put(self, action: str, said: Mapping[str, Any]) -> str:
        # What ends an override is looked for among what came since: its time may not be before that.
        row = act_row(KIND, action, said, instant_of(self._now()))
        waited(self._writer.insert(RECORDS, row))
        self._read_again = 0.0
        return str(row["id"])


def _override(named: str, said: Mapping[str, Any]) -> Override:
    return Override(
        id=named,
        rule=said["rule"],
        actor=said["actor"],
        second=said["second"],
        expires_at=said["expires_at"],
        subject=said["subject"],
        session=said["session"],
        uri=said["uri"],
    )


__all__ = ["MAY", "OVERRIDE", "STALE_SECONDS", "StoreOverrides"]
