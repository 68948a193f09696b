"""Sets of record positions as integers: bit i stands for the i-th record. Set operations take microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_IS: Final = bytes.maketrans(b"01", b"\x00\x01")


def of_positions(positions: Iterable[int], size: int) -> int:
    """The set of `positions`, each below `size`."""
    digits = bytearray(b"0") * size
    for position in positions:
        digits[size - 1 - position] = 49  # "1"
    return int(digits, 2) if size else 0


def of_flags(flags: bytes | bytearray, wanted: int) -> int:
    """The set of positions whose flags include any of `wanted`."""
    table = bytes(49 if value & wanted else 48 for value in range(256))
    return int(bytes(flags).translate(table)[::-1], 2) if flags else 0


def newest_first(bits: int) -> Iterator[int]:
    """The positions in the set, highest first."""
    digits = format(bits, "b")
    at = digits.find("1")
    while at != -1:
        yield len(digits) - 1 - at
        at = digits.find("1", at + 1)


def selectors(bits: int) -> bytes:
    """A byte per position from 0 on, 1 for members of the set, as `itertools.compress` takes it."""
    return format(bits, "b")[::-1].encode().translate(_IS)


def below(size: int) -> int:
    """The set of all positions below `size`."""
    return (1 << size) - 1
