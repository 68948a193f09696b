"""Sessions in memory have a bound: what restricts is never dropped, and what finds no room is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.session_stores import Clock, asked, count, reserve, taint, who

from pipeline.decisions.errors import StoreError
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes, Count, Taint

SEEN = Changes(seen=frozenset({"m"}))


def marks(*names: str) -> Changes:
    return Changes(seen=frozenset(names))


@pytest.mark.spec("SES-22")
def test_a_session_that_restricts_never_gives_way_and_the_next_one_is_refused() -> None:
    clock = Clock()
    holding = {
        "label": taint("secret", "e"),
        "count": count("calls"),
        "event": Changes(events=({"type": "label"},)),
        "tool": Changes(tool_ids={"a": {"openai": "b"}}),
        "model": Changes(active_model="openai:gpt"),
        "asked": Changes(asked=(asked(clock),)),
        "~beginnings": SEEN,
    }
    store = MemorySessions(clock, max_sessions=len(holding))
    for name, changes in holding.items():
        store.commit(who("ann", name), 0, changes)

    with pytest.raises(StoreError) as caught:
        store.commit(who("ann", "new"), 0, taint("secret", "e"))

    assert caught.value.code == "store.full"
    assert store.read(who("ann", "label")).labels == {"secret"}
    assert store.read(who("ann", "new")).version == 0
    assert store.commit(who("ann", "label"), 1, taint("pii", "e"))  # what is there goes on


@pytest.mark.spec("SES-22")
def test_of_sessions_with_nothing_but_marks_the_one_that_changed_longest_ago_gives_way() -> None:
    store = MemorySessions(max_sessions=2)
    store.commit(who("ann", "s1"), None, marks("a"))
    store.commit(who("ann", "s2"), None, marks("b"))
    store.commit(who("ann", "s1"), None, marks("c"))

    store.commit(who("bob", "s3"), None, marks("d"))

    assert store.seen(who("ann", "s1"), {"a", "c"}) == {"a", "c"}
    assert store.seen(who("ann", "s2"), {"b"}) == frozenset()


@pytest.mark.spec("SES-22")
def test_a_session_that_came_to_hold_a_label_is_no_longer_one_that_gives_way() -> None:
    store = MemorySessions(max_sessions=1)
    store.commit(who("ann"), None, SEEN)
    store.commit(who("ann"), None, taint("secret", "e"))

    with pytest.raises(StoreError):
        store.commit(who("bob"), None, SEEN)

    assert store.read(who("ann")).labels == {"secret"}


@pytest.mark.spec("SES-22")
def test_marks_are_bounded_over_all_sessions_and_no_session_gives_way_to_itself() -> None:
    store = MemorySessions(max_marks=4)
    store.commit(who("ann", "s1"), None, marks("a", "b"))
    store.commit(who("ann", "s2"), None, marks("a", "b"))

    store.commit(who("ann", "s2"), None, marks("c"))

    assert store.seen(who("ann", "s1"), {"a"}) == frozenset()
    assert store.seen(who("ann", "s2"), {"a", "b", "c"}) == {"a", "b", "c"}
    with pytest.raises(StoreError):
        store.commit(who("ann", "s2"), None, marks("d", "e"))
    assert store.seen(who("ann", "s2"), {"d"}) == frozenset()


@pytest.mark.spec("SES-22")
def test_budgets_and_approvals_are_bounded_too() -> None:
    clock = Clock()
    store = MemorySessions(clock, max_sessions=1)
    store.commit(who("ann"), None, reserve("r1", "1"))
    store.commit(who("ann"), None, Changes(asked=(asked(clock),)))

    for changes in (reserve("r2", "1"), Changes(asked=(asked(clock, "apr_2"),))):
        with pytest.raises(StoreError):
            store.commit(who("bob"), None, changes)
    store.commit(who("ann"), None, reserve("r3", "1"))


@pytest.mark.spec("SES-22")
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["mark", "label", "count"]), st.integers(0, 9)),
        max_size=40,
    )
)
def test_whatever_comes_no_label_and_no_count_is_lost(steps: list[tuple[str, str, int]]) -> None:
    store = MemorySessions(max_sessions=3, max_marks=6)
    labels: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for session, what, number in steps:
        changes = {
            "mark": Changes(seen=frozenset({f"m{number}"})),
            "label": Changes(taints=frozenset({Taint(f"l{number}", "e")})),
            "count": Changes(counts=(Count(name="n", amount=Decimal(number)),)),
        }[what]
        try:
            store.commit(who("ann", session), None, changes)
        except StoreError:
            continue
        if what == "label":
            labels.setdefault(session, set()).add(f"l{number}")
        elif what == "count":
            counts[session] = counts.get(session, 0) + number
    for session in "abcdefgh":
        facts = store.read(who("ann", session))
        assert facts.labels == labels.get(session, set())
        assert facts.counters.get("n", 0) == counts.get(session, 0)
