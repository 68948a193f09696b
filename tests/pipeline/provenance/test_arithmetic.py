"""Values derived from the user's words and a known value count as the user's; what others wrote is not derived."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.conversations import index_of, says, used

from cmf.message.message import ToolCallPart
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.sources import all_trusted

PROFILES = Profiles.load(
    {
        "profiles": {
            "look": {"actions": ["read"], "result": {"trust": "metadata", "fields": {"**.text": "untrusted"}}},
            "act": {"actions": ["write"], "sink": True, "control": ["value"]},
        }
    }
)


def is_said(said: str, known: Any, value: object, *, text: str = "") -> bool:
    """Whether a control value is trusted after the user said something and a record was read."""
    record = {"known": known, "text": text}
    index = index_of(says("user", said), *used("look", {}, record, "1"), profiles=PROFILES)
    entries = index.origins(ToolCallPart(name="act", arguments={"value": value}))
    return all_trusted([entry for entry in entries if entry["path"] == "/value"])


@pytest.mark.spec("PROV-19")
@pytest.mark.parametrize(
    ("said", "known", "value"),
    [
        ("Knock 20% off the lamp", 45.0, 36.0),
        ("15 percent off, please", 14.9, 12.67),
        ("a raise of 3 % for her", 40_000, "41200"),
        ("Give her half of it back", 180, 90),
        ("Double it", 3, 6),
        ("Make it 10 euros more", 120, 130),
        ("Take 1,500.50 off", 2_000.5, 500),
        ("Take fifteen percent off", 480, 408),
        ("Write off two of the pumps", 3, 1),
        ("In May, please: the 9th is free", "", "2026-05-09"),
        ("Pay 3 of them at that price each", 12.5, 37.5),
        ("Split it between the 4 of us", 90, 22.5),
        ("One more night, please", "2026-05-15", "2026-05-16"),
        ("Bring it forward by two weeks", "2026-05-15", "2026-05-01"),
        ("Keep it another five years", "2024-02-29", "2029-02-28"),
        ("The same day next month", "2026-01-31", "2026-02-28"),
        ("from next month on", "2026-05-12", "2026-06-01"),
        ("by the end of next week... next week is fine", "2026-05-12", "2026-05-20"),
        ("what I booked yesterday", "2026-05-12", "2026-05-11"),
        ("for the 14th to 16th", "2026-05-12", "2026-05-15"),
        ("last month's, please", "2026-05-12", "2026-04"),
        ("the one of April", "2026-05-12", "2026-04"),
        ("until the end of January", "2026-10-12", "2027-01-31"),
        ("from the beginning of Feb on", "2026-10-12", "2027-02-01"),
        ("until the end of the year", "2026-10-12", "2026-12-31"),
        ("since the start of this year", "2026-10-12", "2026-01-01"),
        ("Same for the other one, the day after", "2026-10-20", "2026-10-21"),
        ("the week before", "2026-10-20", "2026-10-13"),
        ("noch sechs Monate", "2027-03-31", "2027-09-30"),
        ("bin W-7001 through W-7003", "", "W-7002"),
        ("bin w-7001-7003", "", "W-7002"),
        ("clear alarms 7712 to 7715", "", 7713),
        ("nights from Wednesday to Friday", "2026-10-13", "2026-10-15"),
        ("Saturday-Tuesday", "2026-10-13", "2026-10-18"),
        ("une semaine plus tard", "2026-10-20", "2026-10-27"),
        ("An hour and a half later", "09:00", "10:30"),
        ("a 45-minute call", "2026-05-12T14:00", "2026-05-12T14:45"),
        ("I spent three quarters of an hour on it", "", 0.75),
        ("a quarter of an hour", "", 15),
    ],
)
def test_a_value_that_follows_from_the_user_s_words_and_a_known_value_counts_as_said(
    said: str, known: Any, value: object
) -> None:
    assert is_said(said, known, value)
    assert not is_said("Do it", known, value)
    assert not is_said(said, known, value, text=f"it is {value} now")


@pytest.mark.spec("PROV-19")
@pytest.mark.parametrize(
    ("said", "known", "value"),
    [
        ("Knock 20% off the lamp", 45.0, 35.0),
        ("100% of it, 0 % more", 45.0, 999),
        ("Make it 10 euros", 120, 130),
        ("Write off two-thirds of the pumps", 3, 1),
        ("In May, please: the 9th is free", "", "2026-06-09"),
        ("In May, please: the 9th is free", "", "2026-05-19"),
        ("Pay 3", 12.5, 37.5),
        ("One more night, please", "2026-05-15", "2026-05-18"),
        ("some more nights, please", "2026-05-15", "2026-05-16"),
        ("half a day more", "2026-05-15", "2026-05-16"),
        ("from next month on", "2026-05-12", "2026-06-02"),
        ("until the end of January", "2026-10-12", "2027-02-28"),
        ("until the end of the year", "2026-10-12", "2028-12-31"),
        ("on the day", "2026-10-20", "2026-10-21"),
        ("until the end of January", "2026-10-12", "2028-01-31"),
        ("bin W-7001 through W-7003", "", "W-7004"),
        ("bin W-7001 through W-7003", "", "X-7002"),
        ("bin W-7001 through W-7003", "", "7002"),
        ("bin 1 to 5000", "", "3000"),
        ("bin W-007 through W-009", "", "W-8"),
        ("nights from Wednesday to Friday", "2026-10-13", "2026-10-17"),
        ("nights from Wednesday to Friday", "2026-10-13", "2028-10-19"),
        ("next year", "9999-12-31", "9999-12-30"),
        ("for the 14th to 16th", "2026-05-12", "2026-05-17"),
        ("last month's, please", "2026-05-12", "2026-03"),
        ("next month's, please", "0001-01-01", "0000-01"),
        ("An hour later", "09:00", "10:30"),
        ("a month later", "09:00", "10:30"),
        ("double it", "one", "two"),
        ("one more n\u0131ght", "2026-05-15", "2026-05-16"),
        ("tr\u0131ple it", 2, 6),
        ("\u0661\u0660% off 999,999,999,999 each, 9,999,999,999,999,999,999,999,999,999 more", 45.0, 123456789012.1234),
    ],
)
def test_what_does_not_follow_is_still_asked_about(said: str, known: Any, value: object) -> None:
    assert not is_said(said, known, value)


@pytest.mark.spec("PROV-19")
@pytest.mark.parametrize(
    ("said", "argument", "value", "believed"),
    [
        ("Order a clutch", "quantity", 1, True),
        ("Get the clutch there", "item_count", "1", True),
        ("Get it there", "quantity", 1, False),
        ("Order a clutch", "quantity", 2, False),
        ("Order a clutch", "part_id", 1, False),
        ("Order a clutch", "discount", 1, False),
    ],
)
def test_who_asks_for_a_thing_asks_for_one_of_it(said: str, argument: str, value: object, *, believed: bool) -> None:
    profiles = Profiles.load({"profiles": {"act": {"actions": ["write"], "sink": True, "control": [argument]}}})
    index = index_of(says("user", said), *used("look", {}, {"text": "hello"}, "1"), profiles=profiles)
    other = index_of(says("user", said), *used("look", {}, {"text": f"have {value}"}, "1"), profiles=profiles)
    call = ToolCallPart(name="act", arguments={argument: value})

    assert all_trusted(index.origins(call)[2:]) is believed
    assert not all_trusted(other.origins(call)[2:])
