"""Moments: integers that every store compares alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pipeline.decisions.timestamps import instant_of, iso, micros


@pytest.mark.parametrize("at", [0, 1, 999_999, 1_769_850_000_000_001, -1])
def test_a_moment_is_the_same_after_its_time_was_taken(at: int) -> None:
    assert micros(instant_of(at)) == at


def test_the_zone_of_a_time_does_not_matter() -> None:
    instant = datetime(2026, 1, 31, 9, tzinfo=UTC)

    assert micros(instant.astimezone(timezone(timedelta(hours=5, minutes=30)))) == micros(instant)


def test_people_read_it_in_utc_to_the_second() -> None:
    assert iso(micros(datetime(2026, 1, 31, 9, 0, 0, 999_999, tzinfo=UTC))) == "2026-01-31T09:00:00Z"
