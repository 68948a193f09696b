"""New ids: ULIDs, so that they sort by when they were made. Their spelling: https://github.com/ulid/spec."""

from __future__ import annotations

from typing import Final

from ulid import ULID

from pipeline.decisions.timestamps import iso

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
