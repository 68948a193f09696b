"""The deadline of a run: what counts, and whose fault it is that a run did not end in time."""

from __future__ import annotations

import pytest

from pipeline.decisions import cancellation
from pipeline.decisions.cancellation import Deadline
from pipeline.decisions.errors import DeadlinePassed


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cancellation, "time", clock)
    return clock


@pytest.mark.spec("PIPE-20")
def test_what_is_between_two_tries_and_while_stages_run_does_not_count(clock: Clock) -> None:
    deadline = Deadline(5)
    for _ in range(2):
        clock.now += 10
        deadline.begin_try()
        clock.now += 1
        deadline.stop()

    clock.now += 10
    deadline.go_on()
    assert deadline.left == pytest.approx(3)
    deadline.check()
    clock.now += 4
    assert deadline.left == 0
    with pytest.raises(DeadlinePassed):
        deadline.check()


@pytest.mark.spec("PIPE-20")
def test_a_run_is_at_fault_that_worked_for_a_good_part_of_its_time_in_its_first_try(clock: Clock) -> None:
    def work() -> str:
        clock.now += 1
        return "done"

    deadline = Deadline(5)
    deadline.begin_try()
    assert not deadline.spent_working
    assert deadline.timed(work) == "done"
    assert deadline.spent_working
    deadline.begin_try()
    assert not deadline.spent_working
    waited = Deadline(5)
    waited.worked(0.4)
    assert not waited.spent_working
