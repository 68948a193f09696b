"""Overrides, kept only as records of the log: two people, one rule, one scope, a day at most [E6].

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

from cmf.json.codec import loads
from cmf.message.ids import Clock
from cmf.message.security import SubjectExtension
from pipeline.decisions.authority import Authorise, holding
from pipeline.decisions.errors import AuditError, StoreError
from pipeline.decisions.override import Override
from pipeline.decisions.timestamps import MICROSECOND, instant_of, micros
from pipeline.store.engine import snapshot
from pipeline.store.four_eyes import LONGEST, PREFIX, USUAL, act_row, attribution, check_time, moment_in
from pipeline.store.records import newest_of
from pipeline.store.tables import RECORDS
from pipeline.store.writer import Writer, waited

OVERRIDE: Final = "cmf:override"
KIND: Final = "override"
OPEN: Final = "open"
CLOSE: Final = "close"
STALE_SECONDS: Final = 1.0  # how long a reading is used; an override closed by another process ends within it
MAY: Final = holding(OVERRIDE)
_RULE: Final = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
_log: Final = logging.getLogger("pipeline.store")


class StoreOverrides:
    """The overrides of a store. Safe to use from any thread.

    None outlives its recorded end, even if the clock is set back; by default whoever holds `cmf:override` may open and
    close one.
    """

    def __init__(self, engine: Engine, writer: Writer, *, clock: Clock, may: Authorise = MAY) -> None:
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._may = may
        self._lock = threading.Lock()
        self._held: tuple[Override, ...] = ()
        self._latest = 0  # the latest time its clock gave
        self._read_again = 0.0  # in seconds of the monotonic clock, which cannot be set back

    @property
    def due(self) -> bool:
        """See `Overrides`."""
        return time.monotonic() >= self._read_again

    def holding(self) -> tuple[Override, ...]:
        """The overrides in force at most a second ago, newest first; none if they cannot be read."""
        if self.due:
            self._read_now()
        if not self._held:
            return ()
        # What has expired stays expired for this process, even if its clock is set back before the next reading.
        now = self._latest = max(self._latest, micros(self._clock()))
        return tuple(one for one in self._held if now < one.expires_at)

    def _read_now(self) -> None:
        with self._lock:
            if self.due:
                try:
                    self._held = self.read()
                except (StoreError, LookupError, TypeError, ValueError) as error:
                    # Whatever went wrong: without overrides, everything that policy denies is denied.
                    _log.error("overrides cannot be read, so none is in force: %s", type(error).__name__)
                    self._held = ()
                self._read_again = time.monotonic() + STALE_SECONDS

    def read(self) -> tuple[Override, ...]:
        """The overrides in force now, newest first. Raises StoreError: the database failed."""
        with snapshot(self._engine) as connection:
            now = moment_in(connection, self._clock)
            since = now - LONGEST // MICROSECOND
            kept = newest_of(connection, KIND, PREFIX[KIND], since=since)
        every = [(one.id, loads(one.body)) for one in kept if one.body is not None]
        closed = {details["override"] for _, details in every if details["action"] == CLOSE}
        made = (
            _override(named, details) for named, details in every if details["action"] == OPEN and named not in closed
        )
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
        """A new override, on record: until it ends, denials by `rule` in its scope are not enforced.

        Both people have been authenticated by the host. The scope is a subject, a session, or both, matched exactly;
        `uri` narrows it to views that match.

        Raises:
            AuditError: `audit.not-authorised`, `audit.four-eyes`, `audit.no-reason`; `audit.too-long`: longer than
                `LONGEST`, or not positive; `audit.too-wide`: no subject and no session; `audit.bad-rule`: not the id of
                one rule. StoreError: the database failed.
        """
        details = attribution(self._may, actor, reason, seconder, second=True)
        check_time(expires_in)
        if not (subject or session):
            raise AuditError("this would apply to everybody", code="audit.too-wide", hint="name a subject or a session")
        if _RULE.fullmatch(rule) is None:
            raise AuditError(
                "an override names exactly one rule", path=rule, code="audit.bad-rule", hint="write it as category/rule"
            )
        scope = {"subject": subject or None, "session": session or None, "uri": uri or None}
        details |= {"rule": rule, **scope, "expires_at": self._now() + expires_in // MICROSECOND}
        made = _override(self._put(OPEN, details), details)
        _log.warning("a rule was overridden: %s", made.id)
        return made

    def close(self, override: str, *, actor: SubjectExtension, reason: str) -> None:
        """End an override before it expires. This takes one person only.

        Raises:
            AuditError: `audit.not-authorised`, `audit.no-reason`; `override.unknown`: no such override is in force.
            StoreError: the database failed.
        """
        details = attribution(self._may, actor, reason, None, second=False)
        if all(one.id != override for one in self.read()):
            raise AuditError(
                "no such override in force", code="override.unknown", hint="`cmf audit overrides` lists them"
            )
        self._put(CLOSE, details | {"override": override})

    def _now(self) -> int:
        with snapshot(self._engine) as connection:
            return moment_in(connection, self._clock)

    def _put(self, action: str, details: Mapping[str, Any]) -> str:
        # The record that ends an override is looked up among later ones, so its time may not be earlier.
        row = act_row(KIND, action, details, instant_of(self._now()))
        waited(self._writer.insert(RECORDS, row))
        self._read_again = 0.0
        return str(row["id"])


def _override(named: str, details: Mapping[str, Any]) -> Override:
    fields = ("rule", "actor", "second", "expires_at", "subject", "session", "uri")
    return Override(id=named, **{name: details[name] for name in fields})
