"""Moments as they are kept: whole microseconds since the epoch, in UTC; and ids that sort by when they were made.

Sessions, approvals, exceptions, records and stores all hold moments like this: as integers they compare the same in
every database, and time zones play no part. Ids are ULIDs: https://github.com/ulid/spec. Spec: docs/spec/sessions.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ulid import ULID

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


_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_PAIRS: Final = [first + second for first in _DIGITS for second in _DIGITS]
_SHIFTS: Final = range(120, -1, -10)  # of the 13 pairs in 130 bits, of which the first two are always 0


def new_ulid() -> str:
    """A new ULID as text. The library would spell it digit by digit, which takes longer than making it."""
    number = int.from_bytes(ULID().bytes)
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def made_at(ulid: str) -> str:
    """When an id of `new_ulid` was made, to the second (`2026-01-31T09:00:00Z`)."""
    milliseconds = 0
    for digit in ulid[:10]:
        milliseconds = milliseconds << 5 | _DIGITS.index(digit)
    return iso(milliseconds * 1_000)
