"""What is sealed with an approval, and declassifications read back: on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.pipeline.session_stores import ANN, Clock, asked, grant, taint, use, who

from pipeline.decisions.errors import ApprovalError
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes


def ask(clock: Clock, id: str = "apr_1") -> Changes:
    return Changes(asked=(asked(clock, id),), sealed={id: b"\x00sealed"})


@pytest.mark.spec("SES-18")
def test_what_was_sealed_is_gone_once_it_was_used(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, 0, ask(clock))
    assert store.sealed("apr_1") == b"\x00sealed"
    store.decide_approval("apr_1", approver="bob", approve=True)
    assert store.sealed("apr_1") == b"\x00sealed"

    assert store.commit(ANN, None, use())

    assert store.sealed("apr_1") is None


@pytest.mark.spec("SES-18")
def test_what_was_sealed_is_gone_once_it_was_denied_or_is_too_old(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, 0, ask(clock))
    store.commit(ANN, None, ask(clock, "apr_2"))

    store.decide_approval("apr_1", approver="bob", approve=False)
    clock.now += timedelta(hours=1)

    assert (store.sealed("apr_1"), store.sealed("apr_2"), store.sealed("apr_3")) == (None, None, None)
    store.commit(ANN, None, ask(clock, "apr_4"))
    assert store.sealed("apr_4") == b"\x00sealed"


@pytest.mark.spec("SES-18")
def test_a_refused_commit_seals_nothing(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, 0, Changes(asked=(asked(clock, "apr_0"),)))

    with pytest.raises(ApprovalError):
        store.commit(ANN, None, Changes(asked=(asked(clock, "apr_0"),), sealed={"apr_0": b"new"}))
    assert not store.commit(ANN, 7, ask(clock, "apr_9"))

    assert (store.sealed("apr_0"), store.sealed("apr_9")) == (None, None)


@pytest.mark.spec("SES-19")
def test_grants_are_read_back_with_the_moment_in_which_they_were_made(store: SessionStore, clock: Clock) -> None:
    store.commit(ANN, 0, taint("secret", "e1"))
    store.commit(ANN, None, grant("secret", "e1", expires_at=clock.moment + 5, id="g2"))
    first = clock.moment
    clock.now += timedelta(hours=1)
    store.commit(ANN, None, grant("secret", "e1", expires_at=clock.moment + 5, id="g1"))

    assert [(one.id, one.granted_at) for one in store.grants(ANN)] == [("g2", first), ("g1", clock.moment)]
    assert store.grants(who("ann", None)) == store.grants(who("bob")) == ()
    facts = store.read(ANN)
    assert (facts.lifted, facts.moment) == (frozenset({("secret", "e1")}), clock.moment)
