"""Two people for one look: who asks, who grants, for how long, and what a clock that is put back changes: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.pipeline.new_store import apart, migrated
from tests.pipeline.run_records import ANN, made_record
from tests.pipeline.session_stores import Clock

from cmf import SubjectExtension
from pipeline.audit.record import Content
from pipeline.audit.verification import verify
from pipeline.decisions.errors import AuditError
from pipeline.store.contents import Contents
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import BREAK_GLASS, ERASE, HOLD, REVEAL, TWO_PEOPLE, ContentRules, RevealGrant
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_records
from pipeline.store.tables import RECORDS


def person(name: str, *permissions: str) -> SubjectExtension:
    return SubjectExtension(id=name, permissions=frozenset(permissions))


EVE, BOB = (person(name, REVEAL, ERASE, HOLD, TWO_PEOPLE, BREAK_GLASS) for name in ("eve", "bob"))
NOBODY = person("mallory")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """A store of each kind, all of whose records have the time of the test."""
    is_file = request.param == "sqlite"
    file = tmp_path / "s.sqlite3"
    url = f"sqlite:///{migrated(file)}" if is_file else request.getfixturevalue("postgres").new()
    with Store(url, key=tmp_path / "audit.pem", clock=clock) as opened:
        yield opened


@pytest.fixture
def contents(database: Store, clock: Clock) -> Contents:
    made = database.contents(clock=clock)
    made.four_eyes.need_two(True, actor=EVE, reason="our rule")
    return made


@pytest.fixture
def records(database: Store, clock: Clock) -> list[str]:
    made = [replace(made_record(ANN), timestamp=clock(), content=Content.of(b"{}")) for _ in range(2)]
    committed = [replace(one, body=_committing(one)) for one in made]
    for one in committed:
        Recorder(database).record(one)
    return [one.id for one in committed]


def _committing(record: Any) -> bytes:
    return json.dumps({"content": {"commitment": record.content.commitment}}).encode()


def code(act: Any) -> str:
    with pytest.raises(AuditError) as caught:
        act()
    return caught.value.code


@pytest.mark.spec("AUD-80")
def test_a_store_that_asks_for_two_does_so_whoever_opens_it(
    database: Store, contents: Contents, records: list[str]
) -> None:
    lenient = database.contents(rules=ContentRules(four_eyes=False))
    lenient.four_eyes.need_two(True, actor=EVE, reason="as before")  # takes one, however often
    hold = lenient.hold(actor=EVE, reason="a case", subject="ann")

    assert code(lambda: lenient.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: lenient.taken(None, actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: lenient.release(hold.id, actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: lenient.four_eyes.need_two(False, actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: lenient.four_eyes.need_two(False, actor=EVE, reason="x", seconder=EVE)) == "audit.four-eyes"
    assert (
        code(lambda: lenient.four_eyes.need_two(False, actor=EVE, reason="x", seconder=NOBODY))
        == "audit.not-authorised"
    )
    assert list(stored_records(database.engine, kind="reveal")) == []
    assert lenient.reveal(records[0], actor=EVE, reason="x", seconder=BOB) == b"{}"

    lenient.four_eyes.need_two(False, actor=EVE, reason="we are one", seconder=BOB)
    assert not contents.four_eyes.needed
    assert lenient.reveal(records[0], actor=EVE, reason="x") == b"{}"


@pytest.mark.spec("AUD-81")
def test_only_the_authorised_ask_and_only_another_person_grants(contents: Contents, records: list[str]) -> None:
    eyes = contents.four_eyes
    assert code(lambda: eyes.ask(records[0], actor=NOBODY, reason="x")) == "audit.not-authorised"
    assert code(lambda: eyes.ask(records[0], actor=EVE, reason=" ")) == "audit.no-reason"
    assert code(lambda: eyes.ask("dec_none", actor=EVE, reason="x")) == "content.none"
    assert eyes.asks() == ()

    asked = eyes.ask(records[0], actor=EVE, reason="a complaint")

    assert eyes.asks() == (asked,)
    assert code(lambda: eyes.grant(asked.id, actor=NOBODY, reason="x")) == "audit.not-authorised"
    assert code(lambda: eyes.grant(asked.id, actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: eyes.grant("ask_other", actor=BOB, reason="x")) == "ask.unknown"
    for lasting in (timedelta(0), timedelta(days=1, microseconds=1)):
        assert code(lambda lasting=lasting: eyes.grant(asked.id, actor=BOB, reason="x", expires_in=lasting)) == (
            "audit.too-long"
        )
    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"
    assert eyes.grant(asked.id, actor=BOB, reason="x", expires_in=timedelta(days=1)).second == "bob"


@pytest.mark.spec("AUD-81")
def test_two_programs_at_once_grant_a_request_once(
    database: Store, contents: Contents, records: list[str], tmp_path: Path, clock: Clock
) -> None:
    asked = contents.four_eyes.ask(records[0], actor=EVE, reason="a complaint")

    with (
        apart(),
        Store(database.engine.url, key=tmp_path / "audit.pem", clock=clock) as other,
        ThreadPoolExecutor(8) as people,
    ):
        programs = (contents.four_eyes, other.contents(clock=clock).four_eyes) * 4
        tries = [people.submit(eyes.grant, asked.id, actor=BOB, reason="agreed") for eyes in programs]
        refused = [one.exception() for one in tries if one.exception() is not None]

    assert [getattr(one, "code", one) for one in refused] == ["ask.unknown"] * 7
    assert len(contents.four_eyes.grants()) == 1


@pytest.mark.spec("AUD-81")
def test_a_grant_lets_one_person_see_one_record_until_it_expires(
    database: Store, contents: Contents, records: list[str], clock: Clock
) -> None:
    asked = contents.four_eyes.ask(records[0], actor=EVE, reason="a complaint")
    granted = contents.four_eyes.grant(asked.id, actor=BOB, reason="agreed", expires_in=timedelta(minutes=5))

    assert contents.four_eyes.asks() == ()
    assert code(lambda: contents.reveal(records[1], actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: contents.reveal(records[0], actor=BOB, reason="x")) == "audit.four-eyes"
    assert granted.ask == asked.id
    for _ in range(2):
        assert contents.reveal(records[0], actor=EVE, reason="a complaint") == b"{}"
        clock.now += timedelta(minutes=2, seconds=30)
    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"
    said = [json.loads(one.body or b"") for one in stored_records(database.engine, kind="reveal")]
    assert [(one["actor"], one["second"], one["grant"]) for one in said] == [("eve", "bob", granted.id)] * 2
    assert verify(StoreEvidence(database.engine)).holds


@pytest.mark.spec("AUD-81")
def test_a_request_that_was_not_granted_in_time_expires(contents: Contents, records: list[str], clock: Clock) -> None:
    asked = contents.four_eyes.ask(records[0], actor=EVE, reason="a complaint")
    clock.now += timedelta(days=7)
    assert contents.four_eyes.asks() == (asked,)
    clock.now += timedelta(milliseconds=1)

    assert contents.four_eyes.asks() == ()
    assert code(lambda: contents.four_eyes.grant(asked.id, actor=BOB, reason="late")) == "ask.unknown"


@pytest.mark.spec("AUD-82")
def test_a_clock_that_is_put_back_revives_no_grant(contents: Contents, records: list[str], clock: Clock) -> None:
    asked = contents.four_eyes.ask(records[0], actor=EVE, reason="a complaint")
    contents.four_eyes.grant(asked.id, actor=BOB, reason="agreed", expires_in=timedelta(minutes=5))
    clock.now += timedelta(hours=1)
    contents.four_eyes.ask(records[1], actor=EVE, reason="something else")
    clock.now -= timedelta(hours=1)

    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"


@pytest.mark.spec("AUD-81")
def test_a_grant_whose_record_was_erased_grants_nothing(
    database: Store, contents: Contents, records: list[str]
) -> None:
    asked = contents.four_eyes.ask(records[0], actor=EVE, reason="a complaint")
    contents.four_eyes.grant(asked.id, actor=BOB, reason="agreed")
    with database.engine.connect() as connection, connection.begin():
        connection.execute(update(RECORDS).where(RECORDS.c.kind == "grant").values(body=None))

    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"


@pytest.mark.spec("AUD-83")
@pytest.mark.parametrize(
    ("scope", "opens"),
    [
        ({"subject": "ann"}, True),
        ({"session": "s1"}, True),
        ({"subject": "ann", "session": "s1"}, True),
        ({"subject": "bob"}, False),
        ({"subject": "ann", "session": "other"}, False),
        ({"subject": "anonymous"}, False),
    ],
)
def test_in_an_emergency_two_open_what_a_scope_is_about_until_it_ends(
    database: Store, contents: Contents, records: list[str], clock: Clock, scope: dict[str, str], opens: bool
) -> None:
    made = contents.four_eyes.break_glass(actor=EVE, seconder=BOB, reason="an incident", **scope)

    assert contents.four_eyes.grants() == (made,)
    for record in records:
        if opens:
            assert contents.reveal(record, actor=EVE, reason="x") == b"{}"
        else:
            assert code(lambda record=record: contents.reveal(record, actor=EVE, reason="x")) == "audit.four-eyes"
        assert code(lambda record=record: contents.reveal(record, actor=BOB, reason="x")) == "audit.four-eyes"
    said = [json.loads(one.body or b"") for one in stored_records(database.engine, kind="reveal")]
    assert {(one["grant"], one["second"]) for one in said} == ({(made.id, "bob")} if opens else set())
    clock.now += timedelta(hours=1)
    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"
    assert contents.four_eyes.grants() == ()


@pytest.mark.spec("AUD-83")
def test_an_anonymous_subject_is_not_a_subject_named_anonymous() -> None:
    grant = RevealGrant(id="rgr_1", actor="eve", second="bob", expires_at=1, subject="anonymous")

    assert grant.covers("dec_1", "anonymous", None)
    assert not grant.covers("dec_1", "id:anonymous", None)


@pytest.mark.spec("AUD-83")
def test_glass_is_broken_by_two_who_may_for_a_scope_and_a_time(contents: Contents, records: list[str]) -> None:
    eyes = contents.four_eyes
    refused: list[tuple[dict[str, Any], str]] = [
        ({"actor": person("eve", REVEAL)}, "audit.not-authorised"),
        ({"seconder": NOBODY}, "audit.not-authorised"),
        ({"seconder": EVE}, "audit.four-eyes"),
        ({"reason": " "}, "audit.no-reason"),
        ({"subject": None}, "audit.too-wide"),
        ({"expires_in": timedelta(days=1, microseconds=1)}, "audit.too-long"),
    ]
    for changed, expected in refused:
        given = {"actor": EVE, "seconder": BOB, "reason": "an incident", "subject": "ann"} | changed
        assert code(lambda given=given: eyes.break_glass(**given)) == expected
    assert eyes.grants() == ()
    assert code(lambda: eyes.close("rgr_other", actor=EVE, reason="x")) == "grant.unknown"

    made = eyes.break_glass(actor=EVE, seconder=BOB, reason="an incident", subject="ann")
    assert code(lambda: eyes.close(made.id, actor=NOBODY, reason="x")) == "audit.not-authorised"
    eyes.close(made.id, actor=BOB, reason="it is over")

    assert eyes.grants() == ()
    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"
    assert code(lambda: contents.reveal("dec_none", actor=EVE, reason="x")) == "audit.four-eyes"


@pytest.mark.spec("AUD-82")
def test_a_grant_that_was_ended_stays_ended_where_the_clock_was_put_back_before(
    contents: Contents, records: list[str], clock: Clock
) -> None:
    made = contents.four_eyes.break_glass(actor=EVE, seconder=BOB, reason="x", subject="ann")
    clock.now -= timedelta(days=3)

    contents.four_eyes.close(made.id, actor=BOB, reason="over")

    assert contents.four_eyes.grants() == ()
    assert code(lambda: contents.reveal(records[0], actor=EVE, reason="x")) == "audit.four-eyes"
