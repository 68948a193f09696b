"""Moments as they are kept: whole microseconds since the epoch, in UTC. Spec: docs/spec/sessions.md.

Sessions, approvals, exceptions, records and stores all hold moments like this: as integers they compare the same in
every database, and time zones play no part.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = _EPOCH.resolution
SECOND: Final = 1_000_000  # as moments count
LAST: Final = 2**63 - 1  # the last moment that a store can hold


def micros(instant: datetime) -> int:
    """The moment at `instant`, which has a zone."""
    since = instant - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds  # to divide takes twice as long


def instant_of(at: int) -> datetime:
    """The time of a moment, in UTC."""
    return _EPOCH + at * MICROSECOND


def iso(at: int) -> str:
    """A moment as people read it: ISO 8601 in UTC, to the second (`2026-01-31T09:00:00Z`)."""
    return instant_of(at).strftime("%Y-%m-%dT%H:%M:%SZ")
