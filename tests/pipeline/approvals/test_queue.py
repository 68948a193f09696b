"""People decide: who may, once, and never for themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.pipeline.session_stores import ANN, Clock, asked, at_once

from cmf.json.codec import loads
from cmf.message.security import SubjectExtension
from pipeline.approvals.queue import Approvals
from pipeline.approvals.sealing import Sealer
from pipeline.audit.record import Record
from pipeline.decisions.approval import ApprovalStatus
from pipeline.decisions.context import session_key
from pipeline.decisions.errors import ApprovalError, StoreError
from pipeline.decisions.events import ApprovalDecided, Event, Events
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import Changes

KEY = bytes(32)
MAY = frozenset({"cmf:approve"})
BOB = SubjectExtension(id="bob", permissions=MAY)


def ask(store: SessionStore, clock: Clock, id: str = "apr_1") -> None:
    body = Sealer(KEY).seal(id, session_key(ANN), {"about": {"uri": "tool://_/pay", "arguments": {"amount": 7}}})
    store.commit(ANN, None, Changes(asked=(asked(clock, id),), sealed={id: body}))


@pytest.mark.spec("APR-7")
@pytest.mark.parametrize(
    ("code", "approver"),
    [
        ("approval.not-authorised", SubjectExtension(id="bob")),
        ("approval.not-authorised", SubjectExtension(id="bob", permissions={"cmf:declassify", "approve"})),
        ("approval.not-authorised", SubjectExtension(id="bob", roles={"cmf:approve"})),
        ("approval.own-request", SubjectExtension(id="ann", permissions=MAY)),
        ("approval.own-request", SubjectExtension(id="Ann ", permissions=MAY)),
        ("approval.own-request", SubjectExtension(permissions=MAY)),
        ("approval.own-request", SubjectExtension(id=" ", permissions=MAY)),
    ],
)
@pytest.mark.parametrize("approve", [True, False])
def test_who_may_not_decide_changes_nothing(code: str, approver: SubjectExtension, approve: bool, clock: Clock) -> None:
    store = MemorySessions(clock)
    ask(store, clock)
    approvals = Approvals(store)

    with pytest.raises(ApprovalError) as refused:
        (approvals.approve if approve else approvals.deny)("apr_1", approver)

    assert refused.value.code == code
    assert approvals.get("apr_1").status is ApprovalStatus.PENDING


@pytest.mark.spec("APR-7")
def test_one_of_64_simultaneous_decisions_counts(store: SessionStore, clock: Clock) -> None:
    ask(store, clock)
    approvals = Approvals(store)

    def decide(number: int) -> bool:
        try:
            (approvals.approve if number % 2 else approvals.deny)("apr_1", BOB)
        except ApprovalError as error:
            return error.code != "approval.decided"
        return True

    assert at_once(decide) == 1


@pytest.mark.spec("APR-7")
def test_what_waits_is_listed_until_it_is_decided_or_too_old(store: SessionStore, clock: Clock) -> None:
    for number in range(3):
        ask(store, clock, f"apr_{number}")
    approvals = Approvals(store)

    assert approvals.approve("apr_0", BOB).status is ApprovalStatus.APPROVED
    assert approvals.deny("apr_1", BOB).approver == "bob"
    assert [one.asked.id for one in approvals.pending()] == ["apr_2"]
    clock.now += timedelta(hours=1)

    assert approvals.pending() == ()
    with pytest.raises(ApprovalError) as refused:
        approvals.approve("apr_2", BOB)
    assert refused.value.code == "approval.expired"
    for call in (approvals.get, approvals.shown):
        with pytest.raises(ApprovalError) as unknown:
            call("apr_9")
        assert unknown.value.code == "approval.unknown"


@pytest.mark.spec("APR-8")
def test_who_has_the_key_sees_what_it_is_about(store: SessionStore, clock: Clock) -> None:
    ask(store, clock)

    assert Approvals(store, seal_key=KEY).shown("apr_1") == {"uri": "tool://_/pay", "arguments": {"amount": 7}}
    with pytest.raises(ApprovalError) as refused:
        Approvals(store).shown("apr_1")
    assert refused.value.code == "approval.unreadable"
    Approvals(store).deny("apr_1", BOB)
    assert Approvals(store, seal_key=KEY).shown("apr_1") is None


@pytest.mark.spec("APR-7")
def test_the_host_decides_who_may_approve_and_decisions_are_published(clock: Clock) -> None:
    store = MemorySessions(clock)
    told: list[Event] = []
    events = Events()
    events.subscribe(told.append)
    ask(store, clock)

    Approvals(store, lambda who: who.id == "zoe", events=events).approve("apr_1", SubjectExtension(id="zoe"))

    assert told == [ApprovalDecided(id="apr_1", approver="zoe", approved=True)]


@pytest.mark.spec("APR-7")
def test_what_is_decided_is_on_record_before_and_what_cannot_be_is_not(clock: Clock) -> None:
    store = MemorySessions(clock)
    kept: list[Record] = []

    def fails(_: Record) -> None:
        raise StoreError("full", hint="free some")

    ask(store, clock)
    with pytest.raises(StoreError):
        Approvals(store, record=fails, clock=clock).deny("apr_1", BOB)
    assert store.pending_approvals() != ()

    approvals = Approvals(store, record=kept.append, clock=clock)
    with pytest.raises(ApprovalError):
        approvals.approve("apr_1", SubjectExtension(id="ann", permissions=frozenset({"cmf:approve"})))
    asked = approvals.deny("apr_1", BOB.model_copy(update={"roles": frozenset({"b", "a"})})).asked

    (record,) = kept
    said = loads(record.body)
    assert (record.kind, record.action, record.subject) == ("review", "deny", "bob")
    assert (said["by"], said["approval"], said["digest"]) == ({"id": "bob", "role": "a, b"}, "apr_1", asked.digest)
