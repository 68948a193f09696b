"""How long data may be kept: the strictest bound, never a doubt in favour of keeping; and the sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import write_rules

from cmf import Choice, Message, Request, Response, RetentionPolicy, SubjectExtension, ToolCallPart, ToolResultPart
from cmf.json.value import trusted
from pipeline import Pipeline
from pipeline.decisions.approval import ApprovalRequest
from pipeline.decisions.context import Context
from pipeline.decisions.errors import StoreError
from pipeline.decisions.retention import FOREVER, NEVER, Keep, Span, keep, strictest
from pipeline.provenance.profiles import Profiles
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes
from pipeline.store.database import Store
from pipeline.store.records import stored_records
from pipeline.store.retention_sweep import Sweep

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
MOMENT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=NOW)


# -- how long ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("RET-1")
@pytest.mark.parametrize(
    "policy",
    [
        RetentionPolicy(policy="none"),
        {"policy": "none", "max_age_seconds": 5},
        {"policy": "weekly"},
        {"policy": "session", "max_age_seconds": -1},
        {"policy": "session", "max_age_seconds": "5"},
        {"delete_after": "soon"},
        {"delete_after": "2030-01-01T00:00:00"},  # of which zone?
        {"polcy": "session"},
        "session",
        5,
        object(),
        trusted(RetentionPolicy, policy="weekly"),
        RetentionPolicy(max_age_seconds=0),
        RetentionPolicy(delete_after=MOMENT),
    ],
)
def test_what_is_over_or_cannot_be_read_is_never_kept(policy: object) -> None:
    assert keep(policy, NOW) == NEVER
    assert (NEVER.span, NEVER.after_run, NEVER.over(0)) == (Span.NONE, False, True)
    assert Keep(Span.NONE, NOW + 1).over(NOW)


@pytest.mark.spec("RET-1")
@pytest.mark.parametrize(
    ("word", "span", "after_run"),
    [("transient", Span.TRANSIENT, False), ("session", Span.SESSION, True), ("persistent", Span.PERSISTENT, True)],
)
def test_each_word_bounds_the_keeping(word: Any, span: Span, after_run: bool) -> None:
    for spelled in (RetentionPolicy(policy=word), {"policy": word}):
        kept = keep(spelled, NOW)

        assert (kept.span, kept.after_run) == (span, after_run)
        assert not kept.over(NOW * 1_000)


@pytest.mark.spec("RET-1")
def test_without_a_retention_nothing_bounds_it() -> None:
    assert keep(None, NOW) == FOREVER


@pytest.mark.spec("RET-1")
@given(st.integers(1, 10**30), st.integers(1, 10**8), st.sampled_from(["transient", "session", "persistent"]))
def test_the_earlier_end_wins(age: int, after: int, word: Any) -> None:
    late = MOMENT + timedelta(seconds=after)

    kept = keep(RetentionPolicy(policy=word, max_age_seconds=age, delete_after=late), NOW)

    assert kept.until == NOW + min(age, after) * SECOND
    assert not kept.over(kept.until - 1)
    assert kept.over(kept.until)


_POLICY = st.builds(
    RetentionPolicy,
    policy=st.sampled_from(["none", "transient", "session", "persistent"]),
    max_age_seconds=st.none() | st.integers(0, 100),
    delete_after=st.none() | st.integers(-50, 50).map(lambda seconds: MOMENT + timedelta(seconds=seconds)),
)


@pytest.mark.spec("RET-2")
@given(st.lists(st.none() | _POLICY, max_size=4))
def test_together_data_is_kept_as_the_strictest_says(policies: list[RetentionPolicy | None]) -> None:
    together = keep(strictest(policies), NOW)

    each = [keep(policy, NOW) for policy in policies]
    strict = Keep(
        min((one.span for one in each), default=Span.PERSISTENT),
        min((one.until for one in each), default=FOREVER.until),
    )
    assert together == (NEVER if strict.span is Span.NONE else strict)


@pytest.mark.spec("RET-2")
def test_an_unknown_retention_word_is_the_strictest() -> None:
    unknown = trusted(RetentionPolicy, policy="weekly")

    assert strictest([unknown, RetentionPolicy()]) == RetentionPolicy(policy="none")


# -- the sweep ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.at(tmp_path / "store.sqlite3") as database:
        yield database


class Shelf:
    """Content with its ends, as a ledger would hold it."""

    def __init__(self, name: str, items: dict[str, Keep]) -> None:
        self.name = name
        self.items = items

    def due(self, now: int, limit: int) -> Sequence[str]:
        return [name for name, kept in self.items.items() if kept.over(now)][:limit]

    def erase(self, items: Sequence[str]) -> None:
        for item in items:
            self.items.pop(item)


class Stubborn(Shelf):
    def erase(self, items: Sequence[str]) -> None:
        pass


class Failing(Shelf):
    def erase(self, items: Sequence[str]) -> None:
        raise OSError("the disk says what was on it")


class Closed(Shelf):
    def due(self, now: int, limit: int) -> Sequence[str]:
        raise StoreError("gone", code="store.closed")


def records(store: Store) -> list[dict[str, Any]]:
    return [orjson.loads(one.body) for one in stored_records(store.engine, kind="sweep")]


@pytest.mark.spec("RET-3")
def test_what_is_due_is_erased_with_a_record_before_and_after(store: Store) -> None:
    shelf = Shelf("ledger", {"a": Keep(Span.SESSION, NOW), "b": Keep(Span.PERSISTENT, NOW + 1), "c": NEVER})

    swept = Sweep(store, shelf).run(NOW)

    assert set(shelf.items) == {"b"}
    assert [(one.holder, one.erased, one.failed) for one in swept] == [
        ("sealed", 0, None), ("contents", 0, None), ("ledger", 2, None),
    ]  # fmt: skip
    before, after = records(store)
    assert (before["action"], before["holder"], before["due"]) == ("erase", "ledger", 2)
    assert (after["action"], after["erased"], "failed" in after) == ("erased", 2, False)
    ids = [one.id for one in stored_records(store.engine, kind="sweep")]
    assert [before["id"], after["id"]] == ids
    assert [one[:4] for one in ids] == ["swp_", "swp_"]


@pytest.mark.spec("RET-3")
def test_a_sweep_with_nothing_to_do_leaves_no_record(store: Store) -> None:
    assert [one.erased for one in Sweep(store, Shelf("ledger", {"a": FOREVER})).run(NOW)] == [0, 0, 0]
    assert records(store) == []


@pytest.mark.spec("RET-3")
def test_many_items_go_in_several_steps(store: Store) -> None:
    shelf = Shelf("ledger", {str(number): NEVER for number in range(1_201)})

    assert Sweep(store, shelf).run(NOW)[2].erased == 1_201
    assert [line["due"] for line in records(store) if line["action"] == "erase"] == [500, 500, 201]


@pytest.mark.spec("RET-3")
def test_a_holder_that_fails_is_named_and_does_not_stop_the_others(store: Store) -> None:
    shelves = [shelf(shelf.__name__, {"a": NEVER}) for shelf in (Stubborn, Failing, Closed, Shelf)]

    swept = Sweep(store, *shelves).run(NOW)

    assert {one.holder: (one.erased, one.failed) for one in swept} == {
        "sealed": (0, None),
        "contents": (0, None),
        "Stubborn": (0, "retention.not-erased"),
        "Failing": (0, "retention.failed"),
        "Closed": (0, "store.closed"),
        "Shelf": (1, None),
    }
    assert [line["failed"] for line in records(store) if "failed" in line] == [
        "retention.not-erased", "retention.failed", "store.closed",
    ]  # fmt: skip
    assert "disk" not in str(records(store))


@pytest.mark.spec("RET-3")
def test_without_a_record_nothing_is_erased(store: Store) -> None:
    shelf = Shelf("ledger", {"a": NEVER})
    sweep = Sweep(store, shelf)
    store.writer.close()

    with pytest.raises(StoreError) as caught:
        sweep.run(NOW)

    assert caught.value.code == "store.closed"
    assert set(shelf.items) == {"a"}


@pytest.mark.spec("RET-3")
def test_what_is_sealed_beside_an_approval_goes_when_it_is_too_old(store: Store) -> None:
    sessions = store.sessions(clock=lambda: MOMENT)
    context = Context(session="s")
    for name, ends in (("old", NOW + SECOND), ("new", NOW + 9 * SECOND)):
        asked = ApprovalRequest(id=name, digest="d", target="t", rules=("r",), revision="1", expires_at=ends)
        sessions.commit(context, None, Changes(asked=(asked,), sealed={name: b"secret"}))

    swept = Sweep(store).run(NOW + SECOND)

    assert [(one.holder, one.erased) for one in swept] == [("sealed", 1), ("contents", 0)]
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT approval_id FROM sealed").scalars().all() == ["new"]


# -- what is kept beside an approval -----------------------------------------------------------------------------------

ASK = 'require_approval contains {"code": "test.pay", "reason": "Ask."} if input.kind == "tool_call"'
ANN = Context(subject=SubjectExtension(id="ann"), session="s")
READ = Message(role="tool", content=[ToolResultPart(tool_name="payroll", content="5")])
PAY = Message(role="assistant", content=[ToolCallPart(name="pay", arguments={})])


@pytest.mark.spec("RET-4")
@pytest.mark.parametrize(
    ("retention", "sealed", "ends"),
    [
        (None, True, 3_600),
        ({"policy": "session", "max_age_seconds": 60}, True, 60),
        ({"policy": "session", "max_age_seconds": 9_999}, True, 3_600),
        ({"policy": "transient"}, False, 3_600),
        ({"policy": "none"}, False, 3_600),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_person_is_asked_about_is_kept_as_its_data_may_be(
    retention: Any, sealed: bool, ends: int, at_once: bool, tmp_path: Path
) -> None:
    sessions = MemorySessions(lambda: MOMENT)
    policy = {"apply_labels": ["pay"]} | ({"retention": retention} if retention else {})
    profiles = Profiles.load({"profiles": {"payroll": {"data_policy": policy}}})
    pipeline = Pipeline(policies=write_rules(tmp_path, {"ask": ASK}), sessions=sessions, profiles=profiles)

    if not at_once:  # the data came back in an earlier run of the session
        assert pipeline.run(Request(messages=[READ]), ANN).value is not None
    traffic = Request(messages=[READ, PAY]) if at_once else Response(choices=[Choice(message=PAY)])
    (asked,) = pipeline.run(traffic, ANN).decision.approval_ids

    approval = sessions.approval(asked)
    assert approval is not None
    assert (sessions.sealed(asked) is not None, approval.asked.expires_at) == (sealed, NOW + ends * SECOND)
