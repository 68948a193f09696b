"""New ids: ULIDs, spelled as everybody spells them."""

from __future__ import annotations

import pytest
from ulid import ULID

from pipeline.decisions import timestamps


@pytest.mark.parametrize(
    "number", [0, 1, 1023, 1024, 1 << 120, 0x0192_3ABC_4DEF_0123_4567_89AB_CDEF_FEDC, (1 << 128) - 1]
)
def test_an_id_is_spelled_as_the_library_spells_it(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    made = ULID.from_int(number)
    monkeypatch.setattr(timestamps, "ULID", lambda: made)

    assert timestamps.new_ulid() == str(made)


@pytest.mark.parametrize("number", [0, 0x0192_3ABC_4DEF << 80 | 7, 0x0192_3ABC_4FFF << 80])
def test_an_id_tells_when_it_was_made(number: int) -> None:
    made = ULID.from_int(number)

    assert timestamps.made_at(str(made)) == made.datetime.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_no_two_ids_are_the_same() -> None:
    assert len({timestamps.new_ulid() for _ in range(100)}) == 100
