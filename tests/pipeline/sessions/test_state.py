"""One suite for every store of sessions: approvals, budgets and time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from tests.pipeline.session_stores import ANN, Clock, asked, at_once, count, grant, reserve, settled, use, who

from pipeline.decisions.approval import ApprovalStatus
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ApprovalError, BudgetExceeded, SessionError
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import BudgetScope, Changes, Taint
from pipeline.store.database import Store


@pytest.mark.spec("SES-9")
@pytest.mark.parametrize(
    ("approver", "seconds", "code"),
    [("ann", 0, "approval.own-request"), ("", 0, "approval.own-request"), ("bob", 60, "approval.expired")],
)
def test_requesters_cannot_approve_and_expired_requests_cannot_be_approved(
    store: SessionStore, clock: Clock, approver: str, seconds: int, code: str
) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))
    clock.now += timedelta(seconds=seconds)

    with pytest.raises(ApprovalError) as refused:
        store.decide_approval("apr_1", approver=approver, approve=True)

    assert refused.value.code == code
    with pytest.raises(ApprovalError) as unusable:
        store.commit(ANN, None, use())
    assert unusable.value.code == "approval.unusable"


@pytest.mark.spec("SES-9")
def test_an_approval_is_decided_once_and_is_nobodys_if_unknown(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))
    denied = store.decide_approval("apr_1", approver="bob", approve=False)
    assert (denied.status, denied.approver) == (ApprovalStatus.DENIED, "bob")

    for name, code in (("apr_1", "approval.decided"), ("apr_2", "approval.unknown")):
        with pytest.raises(ApprovalError) as refused:
            store.decide_approval(name, approver="bob", approve=True)
        assert refused.value.code == code


@pytest.mark.spec("SES-9")
def test_an_approval_id_that_is_taken_is_refused(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))
    store.decide_approval("apr_1", approver="bob", approve=True)

    for context in (ANN, who("bob")):
        with pytest.raises(ApprovalError) as refused:
            store.commit(context, None, Changes(asked=(asked(clock, digest="other"),)))
        assert refused.value.code == "approval.asked-before"
    assert store.approval("apr_1") is not None
    assert store.approval("apr_1").asked.digest == "d"  # type: ignore[union-attr]


@pytest.mark.spec("SES-9")
def test_what_waits_is_listed_and_what_is_decided_or_old_is_not(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock, "apr_1"),)))
    clock.now += timedelta(seconds=20)
    store.commit(who("bob"), None, Changes(asked=(asked(clock, "apr_2"), asked(clock, "apr_3"))))
    assert [one.asked.id for one in store.pending_approvals()] == ["apr_1", "apr_2", "apr_3"]
    assert [one["status"] for one in store.read(ANN).approvals] == ["pending"]

    store.decide_approval("apr_2", approver="ann", approve=True)
    clock.now += timedelta(seconds=45)

    assert [one.asked.id for one in store.pending_approvals()] == ["apr_3"]
    assert store.read(ANN).approvals == ()
    assert store.approval("apr_9") is None


@pytest.mark.spec("SES-10")
def test_an_approval_is_used_once(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, 0, Changes(asked=(asked(clock),)))
    version = store.read(ANN).version
    store.decide_approval("apr_1", approver="bob", approve=True)
    assert not store.commit(ANN, version, use()), "a decision read before the approval is judged again"
    facts = store.read(ANN)
    assert facts.approvals == (
        {
            "id": "apr_1",
            "status": "approved",
            "digest": "d",
            "target": "tool://_/pay",
            "rules": ["a/b"],
            "revision": "r1",
        },
    )

    assert store.commit(ANN, facts.version, use())

    assert store.read(ANN).approvals == ()
    with pytest.raises(ApprovalError) as refused:
        store.commit(ANN, None, use())
    assert refused.value.code == "approval.unusable"


@pytest.mark.spec("SES-13", "SES-10")
def test_what_expires_while_a_change_waits_for_the_writer_has_expired(database: Store, clock: Clock) -> None:
    sessions = database.sessions(clock=clock)
    sessions.commit(ANN, None, Changes(asked=(asked(clock), asked(clock, "apr_2"))))
    sessions.decide_approval("apr_1", approver="eve", approve=True)
    begun, free = threading.Event(), threading.Event()
    held = database.writer.call(lambda _: (begun.set(), free.wait(10)))
    assert begun.wait(10)
    with ThreadPoolExecutor(2) as threads:
        using = threads.submit(sessions.commit, ANN, None, use())
        deciding = threads.submit(sessions.decide_approval, "apr_2", approver="eve", approve=True)
        while database.writer._waiting.qsize() < 2:
            threading.Event().wait(0.001)

        clock.now += timedelta(seconds=60)
        free.set()
        held.result(10)
        for late in (using, deciding):
            with pytest.raises(ApprovalError) as refused:
                late.result(10)
            assert refused.value.code == "approval.expired"


@pytest.mark.spec("SES-10")
@pytest.mark.parametrize(
    ("context", "used", "seconds", "code"),
    [
        (ANN, use(digest="other"), 0, "approval.other-effect"),
        (ANN, use(target="tool://_/other"), 0, "approval.other-effect"),
        (ANN, use(revision="r2"), 0, "approval.other-effect"),
        (ANN, use(), 60, "approval.expired"),
        (who("ann", "s2"), use(), 0, "approval.unknown"),
        (who("bob"), use(), 0, "approval.unknown"),
    ],
)
def test_an_approval_holds_for_what_was_approved_and_nothing_else(
    store: SessionStore, clock: Clock, context: Context, used: Changes, seconds: int, code: str
) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))
    store.decide_approval("apr_1", approver="eve", approve=True)
    clock.now += timedelta(seconds=seconds)

    with pytest.raises(ApprovalError) as refused:
        store.commit(context, None, used)

    assert refused.value.code == code


@pytest.mark.spec("SES-10")
def test_of_64_concurrent_runs_one_uses_an_approval(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))
    store.decide_approval("apr_1", approver="bob", approve=True)

    def spend(number: int) -> bool:
        try:
            return store.commit(ANN, None if number % 2 else store.read(ANN).version, use())
        except ApprovalError:
            return False

    assert at_once(spend) == 1


@pytest.mark.spec("SES-9")
def test_of_64_people_one_decides_while_the_session_goes_on(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))

    def decide(number: int) -> bool:
        if number % 2:
            return not store.commit(ANN, None, count("calls"))
        try:
            store.decide_approval("apr_1", approver=f"bob{number}", approve=True)
        except ApprovalError:
            return False
        return True

    assert at_once(decide) == 1
    assert store.read(ANN).counters == {"calls": 32}
    assert store.read(ANN).version == 34


@pytest.mark.spec("SES-11")
def test_64_concurrent_reservations_cannot_overspend(store: SessionStore) -> None:
    """In 64 sessions of one subject: no version of a session stands between them, only the budget."""

    def hold(number: int) -> bool:
        try:
            return store.commit(who("ann", f"s{number}"), 0, reserve(f"r{number}", "1.5", limit="10"))
        except BudgetExceeded:
            return False

    assert at_once(hold) == 6
    budget = store.budget(ANN, BudgetScope.SUBJECT, "cost")
    assert (budget.committed, budget.spent, len(budget.held)) == (Decimal("9.0"), Decimal(0), 6)


@pytest.mark.spec("SES-11")
def test_a_settled_reservation_frees_what_was_not_spent_once(store: SessionStore) -> None:
    store.commit(ANN, None, reserve("r1", "10"))
    with pytest.raises(BudgetExceeded):
        store.commit(ANN, None, reserve("r2", "0.01"))

    store.commit(ANN, None, settled("r1", "2.5"))

    assert store.budget(ANN, BudgetScope.SUBJECT, "cost").committed == Decimal("2.5")
    for again in ("r1", "r3"):
        with pytest.raises(SessionError) as refused:
            store.commit(ANN, None, settled(again, "1"))
        assert refused.value.code == "session.unknown-reservation"
    store.commit(ANN, None, reserve("r4", "7.5"))
    store.commit(ANN, None, settled("r4", "0"))
    assert store.budget(ANN, BudgetScope.SUBJECT, "cost").committed == Decimal("2.5")


@pytest.mark.spec("SES-12")
def test_budgets_are_shared_as_their_scope_says(store: SessionStore) -> None:
    for scope, sharers, others in (
        (BudgetScope.SESSION, [ANN], [who("ann", "s2"), who("bob"), who("ann", "")]),
        (BudgetScope.SUBJECT, [ANN, who("ann", "s2"), who("ann", None)], [who("bob"), who(None)]),
        (BudgetScope.EVERYONE, [ANN, who("bob"), who(None, None)], []),
    ):
        store.commit(ANN, None, reserve("r1", "3", scope=scope))
        assert [store.budget(context, scope, "cost").committed for context in sharers] == [3] * len(sharers)
        assert [store.budget(context, scope, "cost").committed for context in others] == [0] * len(others)
        assert store.budget(ANN, scope, "tokens").committed == 0


@pytest.mark.spec("SES-12")
def test_a_run_without_a_session_keeps_budgets_and_nothing_else(store: SessionStore, clock: Clock) -> None:
    alone = who("ann", None)

    assert store.commit(alone, 0, Changes(taints=frozenset({Taint("secret", "e1")}), seen=frozenset({"m"})))
    assert store.commit(alone, 0, reserve("r1", "2"))

    assert (store.read(alone).labels, store.read(alone).version) == (frozenset(), 0)
    assert store.seen(alone, {"m"}) == frozenset()
    assert store.budget(alone, BudgetScope.SUBJECT, "cost").committed == 2
    per_session = reserve("r2", "1", scope=BudgetScope.SESSION)
    for needs_one in (Changes(asked=(asked(clock),)), use(), grant("secret", "e1", expires_at=1), per_session):
        with pytest.raises(SessionError) as refused:
            store.commit(alone, None, needs_one)
        assert refused.value.code == "session.none"


@pytest.mark.spec("SES-13")
def test_what_has_expired_stays_expired_when_the_clock_steps_back(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, None, Changes(asked=(asked(clock),)))
    store.decide_approval("apr_1", approver="bob", approve=True)
    clock.now += timedelta(seconds=60)
    assert store.read(ANN).approvals == ()

    clock.now -= timedelta(days=1)

    assert store.read(ANN).approvals == ()
    with pytest.raises(ApprovalError):
        store.commit(ANN, None, use())
