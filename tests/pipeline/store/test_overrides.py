"""Overrides as records: two people, one rule, one scope, hours; what fails lifts nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.pipeline.policy_files import GOOD, PLACE, Write, write
from tests.pipeline.session_stores import Clock

from cmf import Message, SubjectExtension
from cmf.json.codec import loads
from pipeline.audit.query import facts_of
from pipeline.audit.verification import verify
from pipeline.decisions.decision import Action, Verdict
from pipeline.decisions.errors import AuditError
from pipeline.guard import Guard
from pipeline.store import overrides as module
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import LONGEST, REVEAL
from pipeline.store.overrides import OVERRIDE, StoreOverrides
from pipeline.store.records import stored_records
from pipeline.store.tables import RECORDS

__all__ = ["write"]  # a fixture

RULE = GOOD.replace("if input.properties.redacted", 'if contains(input.content, "marked")')
MARKED = Message.model_validate({"role": "user", "content": [{"content_type": "text", "text": "marked"}]})


def person(name: str, *permissions: str) -> SubjectExtension:
    return SubjectExtension(id=name, permissions=frozenset(permissions))


EVE, BOB = (person(name, OVERRIDE, REVEAL) for name in ("eve", "bob"))
MALLORY = person("mallory", "cmf:*")
WHO: dict[str, Any] = {"actor": EVE, "seconder": BOB, "reason": "the ward has no other way"}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """A store of each kind, all of whose records have the time of the test."""
    file = f"sqlite:///{tmp_path / 's.sqlite3'}"
    url = file if request.param == "sqlite" else request.getfixturevalue("postgres").new()
    with Store(url, key=tmp_path / "audit.pem", clock=clock) as opened:
        yield opened


@pytest.fixture
def sqlite(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 's.sqlite3'}", clock=clock) as opened:
        yield opened


@pytest.fixture
def held(sqlite: Store, clock: Clock) -> StoreOverrides:
    return sqlite.overrides(clock=clock)


def code(act: Callable[[], object]) -> str:
    with pytest.raises(AuditError) as caught:
        act()
    return caught.value.code


@pytest.mark.spec("EXC-10")
@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"seconder": EVE}, "audit.four-eyes"),
        ({"seconder": MALLORY}, "audit.not-authorised"),
        ({"actor": MALLORY}, "audit.not-authorised"),
        ({"actor": person("", OVERRIDE)}, "audit.not-authorised"),
        ({"reason": " "}, "audit.no-reason"),
        ({"expires_in": LONGEST + timedelta(seconds=1)}, "audit.too-long"),
        ({"expires_in": timedelta(0)}, "audit.too-long"),
        ({"subject": None}, "audit.too-wide"),
        ({"subject": ""}, "audit.too-wide"),
        ({"rule": "*"}, "audit.bad-rule"),
        ({"rule": "test/*"}, "audit.bad-rule"),
        ({"rule": "engine"}, "audit.bad-rule"),
    ],
)
def test_none_is_made_by_one_or_for_everybody_or_everything_or_for_good(
    held: StoreOverrides, sqlite: Store, change: dict[str, Any], refused: str
) -> None:
    asked = {"rule": "test/rule", "subject": "ann", **WHO, **change}

    assert code(lambda: held.open(**asked)) == refused
    assert held.holding() == ()
    assert list(stored_records(sqlite.engine)) == []


@pytest.mark.spec("EXC-10")
@pytest.mark.spec("EXC-12")
def test_it_is_on_record_and_holds_until_it_ends_or_one_person_closes_it(database: Store, clock: Clock) -> None:
    ours, theirs = database.overrides(clock=clock), database.overrides(clock=clock)
    first = ours.open("test/rule", subject="ann", **WHO)
    second = ours.open("test/rule", session="s", uri="tool://_/*", expires_in=timedelta(hours=2), **WHO)

    assert ours.holding() == theirs.holding() == (second, first)
    assert code(lambda: ours.close(second.id, actor=MALLORY, reason="x")) == "audit.not-authorised"
    assert code(lambda: ours.close("ovr_no", actor=EVE, reason="x")) == "override.unknown"
    theirs.close(second.id, actor=BOB, reason="over")
    assert theirs.holding() == (first,)
    assert ours.read() == (first,)
    assert code(lambda: ours.close(second.id, actor=BOB, reason="again")) == "override.unknown"
    clock.now += timedelta(hours=1)
    assert ours.read() == ()
    said = [loads(one.body or b"") for one in stored_records(database.engine, kind="override")]
    assert [one["action"] for one in said] == ["open", "open", "close"]
    assert [said[0][name] for name in ("actor", "second", "rule", "subject")] == ["eve", "bob", "test/rule", "ann"]
    assert verify(StoreEvidence(database.engine)).holds


@pytest.mark.spec("EXC-12")
def test_a_clock_that_is_put_back_revives_none_and_what_was_closed_stays_closed(
    held: StoreOverrides, clock: Clock
) -> None:
    over = held.open("test/rule", subject="ann", **WHO)
    clock.now += timedelta(hours=2)
    newer = held.open("test/rule", subject="ann", **WHO)
    clock.now -= timedelta(days=3)

    assert [one.id for one in held.read()] == [newer.id]
    held.close(newer.id, actor=EVE, reason="over")
    assert held.read() == ()
    late = held.open("test/rule", subject="ann", **WHO)
    assert [one.id for one in held.read()] == [late.id]
    assert over.expires_at < late.expires_at


@pytest.mark.spec("EXC-12")
def test_what_another_process_closes_ends_within_a_second(
    held: StoreOverrides, sqlite: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    one = held.open("test/rule", subject="ann", **WHO)
    assert held.holding() == (one,)

    sqlite.overrides(clock=clock).close(one.id, actor=EVE, reason="over")

    assert (held.due, held.holding()) == (False, (one,))
    now[0] += 1.0
    assert (held.due, held.holding()) == (True, ())


@pytest.mark.spec("EXC-12")
def test_what_another_thread_read_meanwhile_is_not_read_again(
    held: StoreOverrides, sqlite: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = held.open("test/rule", subject="ann", **WHO)
    assert held.holding() == (one,)
    sqlite.overrides(clock=clock).close(one.id, actor=EVE, reason="over")
    times = iter([1e12, 0.0])  # due before the lock was taken, and no more after
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times))

    assert held.holding() == (one,)


@pytest.mark.spec("EXC-12")
@pytest.mark.parametrize("body", [b"{}", b"nothing", b'{"action": "open"}'])
def test_where_they_cannot_be_read_there_are_none(
    sqlite: Store, clock: Clock, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite.overrides(clock=clock).open("test/rule", subject="ann", **WHO)
    with sqlite.engine.begin() as connection:
        connection.execute(update(RECORDS).where(RECORDS.c.kind == "override").values(body=body))

    assert sqlite.overrides(clock=clock).holding() == ()
    assert "none is in force: StoreError" in caplog.text


@pytest.mark.spec("EXC-12")
def test_one_whose_bytes_are_gone_or_say_something_else_lifts_nothing(sqlite: Store, clock: Clock) -> None:
    held = sqlite.overrides(clock=clock)
    held.open("test/rule", subject="ann", **WHO)
    with sqlite.engine.begin() as connection:
        connection.execute(update(RECORDS).where(RECORDS.c.kind == "override").values(body=None))
    assert held.holding() == ()

    made = module.act_row("override", "open", {"actor": "eve", "rule": "test/rule"}, clock())
    module.waited(sqlite.writer.insert(RECORDS, made), 5)
    assert sqlite.overrides(clock=clock).holding() == ()


@pytest.mark.spec("EXC-11")
@pytest.mark.spec("EXC-13")
def test_an_override_by_two_people_lifts_a_denial_and_each_use_names_them(write: Write, tmp_path: Path) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store, Guard(write({PLACE: RULE}), store=store) as guard:
        held = store.overrides()
        assert guard.decide(MARKED, subject={"id": "ann"}).action is Action.REFUSE
        made = held.open("test/rule", subject="ann", **WHO)
        _forget(guard)
        lifted = guard.decide(MARKED, subject={"id": "ann"}, session="s")
        assert (lifted.verdict, lifted.action) == (Verdict.DENY, Action.FORWARD)
        assert guard.decide(MARKED, subject={"id": "bob"}).action is Action.REFUSE
        held.close(made.id, actor=EVE, reason="over")
        _forget(guard)
        assert guard.decide(MARKED, subject={"id": "ann"}).action is Action.REFUSE
        kept = [one for one in stored_records(store.engine, kind="decision") if one.id == lifted.id]
        assert ("override", made.id) in facts_of("decision", kept[0].body)


def _forget(guard: Guard) -> None:
    guard._pipeline._overrides._read_again = 0.0  # type: ignore[union-attr]  # as if a second had gone by
