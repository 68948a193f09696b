"""A breaker leaves a server alone for longer and longer, and lets one at a time try again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.circuit_breaker import Breaker


def broken(breaker: Breaker, now: float = 0.0, times: int = 3) -> Breaker:
    for _ in range(times):
        assert breaker.allows(now)
        breaker.note(now, fault=True)
    return breaker


@pytest.mark.spec("POL-33")
def test_faults_in_a_row_open_it_and_an_answer_in_between_does_not() -> None:
    breaker = broken(Breaker(faults=3), times=2)
    breaker.note(0, fault=False)
    broken(breaker, times=3)

    assert not breaker.allows(0.1)


@pytest.mark.spec("POL-33")
def test_one_tries_again_and_each_failure_doubles_the_pause_up_to_the_longest() -> None:
    breaker, now, pauses = broken(Breaker(faults=3, first_seconds=1, longest_seconds=5)), 0.0, []
    for _ in range(4):
        pause = next(step / 10 for step in range(1, 100) if breaker.allows(now + step / 10))
        assert not breaker.allows(now + pause)  # somebody is at it
        now += pause
        breaker.note(now, fault=True)
        pauses.append(pause)

    assert pauses == [1, 2, 4, 5]


@pytest.mark.spec("POL-33")
def test_an_answer_closes_it_and_whoever_gives_up_lets_another_try() -> None:
    breaker = broken(Breaker(faults=3, first_seconds=1))
    assert breaker.allows(1)
    breaker.give_up()
    assert breaker.allows(1)
    breaker.note(1, fault=False)

    assert all(breaker.allows(1) for _ in range(9))


@pytest.mark.spec("POL-33")
def test_who_gives_up_though_nobody_tries_changes_nothing() -> None:
    breaker = broken(Breaker(faults=3, first_seconds=1))
    breaker.give_up()

    assert not breaker.allows(0.9)


@pytest.mark.spec("GW-84")
def test_it_says_how_long_to_wait_and_is_closed_only_after_an_answer() -> None:
    breaker = broken(Breaker(faults=3, first_seconds=9, longest_seconds=2))
    waits = (breaker.wait_seconds(0.5), breaker.wait_seconds(2))
    trial = (breaker.allows(2), breaker.wait_seconds(2.5), breaker.is_closed)
    breaker.note(3, fault=False)

    assert waits == (1.5, 0)
    assert trial == (True, 1.5, False)
    assert (breaker.is_closed, breaker.wait_seconds(3)) == (True, 0)


@pytest.mark.spec("POL-33", "GW-84")
def test_a_try_that_never_ends_lets_another_try_after_a_pause() -> None:
    breaker = broken(Breaker(faults=3, first_seconds=1))
    assert breaker.allows(1)

    assert not breaker.allows(1.9)
    assert breaker.allows(2)


@pytest.mark.spec("POL-33")
def test_answers_to_what_was_asked_before_it_opened_change_no_pause() -> None:
    breaker = broken(Breaker(faults=3, first_seconds=1))
    breaker.note(0.5, fault=True)  # asked before

    assert not breaker.allows(0.9)
    assert breaker.allows(1)


@given(st.lists(st.booleans()))
def test_it_is_never_shut_for_ever(outcomes: list[bool]) -> None:
    breaker, now = Breaker(), 0.0
    for fault in outcomes:
        now += 31
        assert breaker.allows(now)
        breaker.note(now, fault=fault)
