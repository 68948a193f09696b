"""One suite for every store of sessions: versions, labels, counters, events, ids and marks."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from tests.pipeline.session_stores import ANN, Clock, asked, at_once, count, grant, reserve, settled, taint, use, who
from ulid import ULID

from cmf.message.ids import IdMap
from pipeline.decisions.errors import SessionError, StoreBusy, StoreError
from pipeline.sessions.base import SessionStore
from pipeline.sessions.redis import RedisSessions
from pipeline.sessions.state import BudgetScope, Changes, Count, Taint
from pipeline.store.database import Store


@pytest.mark.spec("SES-1")
def test_two_subjects_with_the_same_session_id_share_nothing(store: SessionStore) -> None:
    everything = Changes(
        taints=frozenset({Taint("secret", "e1")}),
        counts=(Count(name="calls", amount=Decimal(1)),),
        events=({"kind": "call"},),
        tool_ids={"tu_1": {"openai": "call_1"}},
        seen=frozenset({"digest"}),
    )
    store.commit(ANN, 0, everything)

    for other in (who("bob"), who(None), who("anonymous"), who("id:ann"), who("ann", "s2"), who("ann", None)):
        facts = store.read(other)
        assert (facts.labels, facts.counters, facts.events, facts.tool_ids) == (frozenset(), {}, (), {})
        assert facts.version == 0
        assert store.seen(other, {"digest"}) == frozenset()


@pytest.mark.spec("EXC-2", "EXC-10")
def test_without_a_session_there_is_a_moment_all_the_same(store: SessionStore, clock: Clock) -> None:
    """Exceptions and overrides hold until one: without it, for nobody who names no session."""
    assert store.read(who("ann", None)).moment == clock.moment


@pytest.mark.spec("SES-2")
def test_a_commit_at_another_version_changes_nothing(store: SessionStore) -> None:
    assert store.commit(ANN, 0, taint("secret", "e1"))

    assert not store.commit(ANN, 0, taint("pii", "e2"))
    assert not store.commit(ANN, 7, Changes())
    assert not store.commit(who("bob"), 1, taint("pii", "e2"))
    assert store.read(ANN).labels == {"secret"}
    assert store.read(who("bob")).labels == frozenset()


@pytest.mark.spec("SES-2")
def test_a_commit_makes_all_its_changes(store: SessionStore) -> None:
    changes = Changes(
        taints=frozenset({Taint("secret", "e1"), Taint("secret", "e2")}),
        counts=(
            Count(name="cost", amount=Decimal("0.000654")),
            Count(name="calls", amount=Decimal(2)),
            Count(name="calls", amount=Decimal(1)),
        ),
        events=({"kind": "call", "name": "tool://_/read"}, {"kind": "label"}),
        tool_ids={"tu_1": {"openai": "call_1", "anthropic": "toolu_1"}, "tu_2": {}},
        seen=frozenset({"m1", "m2"}),
    )

    assert store.commit(ANN, 0, changes)

    facts = store.read(ANN)
    assert facts.labels == {"secret"}
    assert facts.label_sources == {"secret": frozenset({"e1", "e2"})}
    assert facts.counters == {"calls": 3, "cost": 0.000654}
    assert facts.events == ({"kind": "call", "name": "tool://_/read"}, {"kind": "label"})
    assert IdMap.from_json(facts.tool_ids).to_json() == {
        "tu_1": {"openai": "call_1", "anthropic": "toolu_1"},
        "tu_2": {},
    }
    assert facts.version == 1
    assert store.seen(ANN, ["m1", "m3", "m2"]) == {"m1", "m2"}


@pytest.mark.spec("SES-3")
def test_of_64_commits_at_one_version_one_succeeds(store: SessionStore) -> None:
    assert at_once(lambda number: store.commit(ANN, 0, taint("secret", f"e{number}"))) == 1

    assert store.read(ANN).version == 1
    assert len(store.read(ANN).label_sources["secret"]) == 1


@pytest.mark.spec("SES-3")
def test_at_most_n_holds_for_64_concurrent_writers(store: SessionStore) -> None:
    most = 10

    def call(_: int) -> bool:
        while True:
            facts = store.read(ANN)
            if facts.counters.get("calls", 0) >= most:
                return False
            if store.commit(ANN, facts.version, count("calls")):
                return True

    assert at_once(call) == most
    assert store.read(ANN).counters == {"calls": most}


@pytest.mark.spec("SES-3")
def test_a_label_is_never_missed_by_a_run_that_commits_after_it(store: SessionStore) -> None:
    """What read before the taint cannot commit after it."""
    before = store.read(ANN)
    store.commit(ANN, None, taint("secret", "e1"))

    assert not store.commit(ANN, before.version, count("sent"))
    assert "secret" in store.read(ANN).labels


@pytest.mark.spec("SES-4")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (grant("secret", "nowhere", expires_at=9**18), "session.unknown-source"),
        (Changes(events=({"kind": "x" * 3_000},)), "session.large-event"),
        (count("calls", "-1"), "session.bad-amount"),
        (count("calls", "NaN"), "session.bad-amount"),
        (Changes(tool_ids={"tu_9": {"openai": "call_1"}}), "session.tool-id-conflict"),
        (Changes(tool_ids={"tu_1": {"openai": "call_2"}}), "session.tool-id-conflict"),
        (use("nowhere"), "approval.unknown"),
        (settled("nowhere", "1"), "session.unknown-reservation"),
        (reserve("r2", "11"), "session.budget-exceeded"),
        (reserve("r1", "1"), "session.reserved-before"),
    ],
)
def test_a_change_that_cannot_be_made_takes_the_whole_commit_with_it(
    store: SessionStore, bad: Changes, code: str
) -> None:
    store.commit(ANN, 0, Changes(tool_ids={"tu_1": {"openai": "call_1"}}, reservations=reserve("r1", "1").reservations))
    before = (store.read(ANN), store.budget(ANN, BudgetScope.SUBJECT, "cost"))
    mixed = Changes(
        taints=frozenset({Taint("pii", "e5")}),
        grants=bad.grants,
        counts=(Count(name="other", amount=Decimal(1)), *bad.counts),
        events=bad.events,
        tool_ids=bad.tool_ids,
        seen=frozenset({"m1"}),
        used=bad.used,
        reservations=(*reserve("r9", "1").reservations, *bad.reservations),
        settlements=bad.settlements,
    )

    with pytest.raises(SessionError) as refused:
        store.commit(ANN, 1, mixed)

    assert refused.value.code == code
    assert (store.read(ANN), store.budget(ANN, BudgetScope.SUBJECT, "cost")) == before
    assert store.seen(ANN, {"m1"}) == frozenset()


@pytest.mark.spec("SES-5")
def test_a_later_taint_survives_an_earlier_declassification(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, taint("secret", "e1"))
    store.commit(ANN, None, grant("secret", "e1", expires_at=clock.moment + 10_000_000))
    assert store.read(ANN).labels == frozenset()

    store.commit(ANN, None, taint("secret", "e2"))

    assert store.read(ANN).label_sources == {"secret": frozenset({"e2"})}


@pytest.mark.spec("SES-5")
def test_the_same_event_again_stays_lifted_until_the_grant_expires(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, taint("secret", "e1"))
    store.commit(ANN, None, grant("secret", "e1", expires_at=clock.moment + 10_000_000))
    store.commit(ANN, None, taint("secret", "e1"))
    assert store.read(ANN).labels == frozenset()

    clock.now += timedelta(seconds=10)

    assert store.read(ANN).labels == {"secret"}


@pytest.mark.spec("SES-5")
def test_a_grant_lifts_no_other_label_source_session_or_subject(store: SessionStore, clock: Clock) -> None:
    for context in (ANN, who("bob"), who("ann", "s2")):
        store.commit(context, None, taint("secret", "e1"))
        store.commit(context, None, taint("pii", "e1"))
    store.commit(ANN, None, grant("secret", "e1", expires_at=clock.moment + 10_000_000))

    assert store.read(ANN).labels == {"pii"}
    assert store.read(who("bob")).labels == {"pii", "secret"}
    assert store.read(who("ann", "s2")).labels == {"pii", "secret"}


@pytest.mark.spec("SES-5")
def test_labels_added_by_name_are_in_force_again_after_a_grant(store: SessionStore, clock: Clock) -> None:
    store.add_labels(ANN, frozenset({"secret"}))
    (source,) = store.read(ANN).label_sources["secret"]
    store.commit(ANN, None, grant("secret", source, expires_at=clock.moment + 10_000_000))

    store.add_labels(ANN, frozenset({"secret"}))

    assert store.read(ANN).labels == {"secret"}


@pytest.mark.spec("SES-5")
def test_labels_that_are_in_force_already_cost_no_commit(store: SessionStore) -> None:
    store.add_labels(ANN, frozenset({"secret"}))

    store.add_labels(ANN, frozenset({"secret"}))
    store.add_labels(who("ann", None), frozenset({"secret"}))

    assert store.read(ANN).version == 1
    assert store.read(who("ann", None)).labels == frozenset()


@pytest.mark.spec("SES-6")
def test_a_call_that_history_repeats_is_counted_once(store: SessionStore) -> None:
    twice = Changes(counts=2 * (Count(name="calls", amount=Decimal(1), mark="call@3"),))
    store.commit(ANN, None, twice)
    store.commit(ANN, None, count("calls", mark="call@3"))
    store.commit(ANN, None, count("calls", mark="call@4"))

    assert store.read(ANN).counters == {"calls": 2}
    assert store.seen(ANN, {"call@3", "call@5"}) == {"call@3"}


@pytest.mark.spec("SES-6")
def test_small_amounts_add_up_exactly(store: SessionStore) -> None:
    for _ in range(10):
        store.commit(ANN, None, count("cost", "0.1"))

    assert store.read(ANN).counters == {"cost": 1}


@pytest.mark.spec("SES-7")
def test_only_the_newest_events_are_kept(store: SessionStore) -> None:
    for first in range(0, 100, 20):
        store.commit(ANN, None, Changes(events=tuple({"n": n} for n in range(first, first + 20))))
    assert [event["n"] for event in store.read(ANN).events] == list(range(36, 100))

    store.commit(ANN, None, Changes(events=tuple({"n": n} for n in range(200))))

    assert [event["n"] for event in store.read(ANN).events] == list(range(136, 200))


@pytest.mark.spec("SES-7")
def test_an_event_has_2048_bytes_at_most(store: SessionStore) -> None:
    longest = "x" * (2_048 - len('{"kind":""}'))
    store.commit(ANN, None, Changes(events=({"kind": longest},)))

    with pytest.raises(SessionError) as refused:
        store.commit(ANN, None, Changes(events=({"kind": longest + "x"},)))

    assert refused.value.code == "session.large-event"
    assert [event["kind"] for event in store.read(ANN).events] == [longest]


@pytest.mark.spec("SES-8")
def test_tool_ids_come_back_with_links_added_later(store: SessionStore) -> None:
    store.commit(ANN, None, Changes(tool_ids={"tu_1": {"openai": "call_1"}}))

    store.commit(ANN, None, Changes(tool_ids={"tu_1": {"openai": "call_1", "gemini": "x"}, "tu_2": {}}))

    assert store.read(ANN).tool_ids == {"tu_1": {"openai": "call_1", "gemini": "x"}, "tu_2": {}}


@pytest.mark.spec("SES-8")
def test_a_call_cannot_get_another_name(store: SessionStore) -> None:
    store.commit(ANN, None, Changes(tool_ids={"tu_1": {"openai": "call_1"}}))

    with pytest.raises(SessionError) as refused:
        store.commit(ANN, None, Changes(tool_ids={"tu_1": {"openai": "call_2"}}))

    assert refused.value.code == "session.tool-id-conflict"


@pytest.mark.spec("SES-2")
def test_no_change_is_no_new_version_but_still_a_check(store: SessionStore) -> None:
    assert store.commit(ANN, 0, Changes())
    assert store.commit(ANN, None, Changes())
    assert store.read(ANN).version == 0
    store.commit(ANN, 0, count("calls"))

    assert store.commit(ANN, 1, reserve("r1", "1"))
    assert not store.commit(ANN, 0, reserve("r2", "1"))

    assert store.read(ANN).version == 1
    assert set(store.budget(ANN, BudgetScope.SUBJECT, "cost").held) == {"r1"}


@pytest.mark.spec("SES-16")
def test_many_marks_are_kept_and_found(store: SessionStore) -> None:
    marks = frozenset(f"m{number}" for number in range(2_500))
    store.commit(ANN, None, Changes(seen=marks))
    store.commit(ANN, None, Changes(seen=marks))

    assert store.seen(ANN, marks | {"other"}) == marks
    assert store.seen(ANN, ()) == frozenset()


@pytest.mark.spec("SES-17")
def test_a_redis_that_never_lets_a_change_through_is_busy(redis_url: str, clock: Clock) -> None:
    prefix = str(ULID())
    patient = RedisSessions(redis_url, prefix=prefix, clock=clock)
    hasty = RedisSessions(redis_url, prefix=prefix, clock=clock, tries=0)
    patient.commit(ANN, 0, Changes(asked=(asked(clock),)))

    with pytest.raises(StoreBusy):
        hasty.commit(ANN, 1, taint("secret", "e1"))
    with pytest.raises(StoreBusy):
        hasty.decide_approval("apr_1", approver="bob", approve=True)

    assert patient.read(ANN).version == 1
    patient.close()
    hasty.close()


@pytest.mark.spec("SES-15")
def test_a_redis_that_is_gone_is_an_error_and_no_empty_session() -> None:
    gone = RedisSessions("redis://127.0.0.1:1/0", timeout_seconds=0.2)

    for attempt in (
        lambda: gone.read(ANN),
        lambda: gone.commit(ANN, 0, taint("secret", "e1")),
        lambda: gone.seen(ANN, {"m"}),
        lambda: gone.budget(ANN, BudgetScope.SUBJECT, "cost"),
        lambda: gone.approval("apr_1"),
        lambda: gone.pending_approvals(),
        lambda: gone.decide_approval("apr_1", approver="bob", approve=True),
    ):
        with pytest.raises(StoreError):
            attempt()
    gone.close()


@pytest.mark.spec("SES-15")
def test_a_database_that_is_gone_is_an_error_and_no_empty_session(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"
    with Store.at(file) as database:
        sessions = database.sessions()
        sessions.commit(ANN, 0, taint("secret", "e1"))
        database.engine.dispose()
        file.write_bytes(b"no database at all" * 1_000)
        for journal in tmp_path.glob("store.sqlite3-*"):
            journal.unlink()

        with pytest.raises(StoreError):
            sessions.read(ANN)
        with pytest.raises(StoreError):
            sessions.seen(ANN, {"m"})
