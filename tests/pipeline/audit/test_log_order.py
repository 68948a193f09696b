"""Nobody who may write to a store can make records of one log seem older than those of another."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.new_store import apart
from tests.pipeline.review.traffic import keep, record

from cmf import SubjectExtension
from pipeline.audit.bundle import write_bundle
from pipeline.audit.record import Content
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import ERASE, HOLD
from pipeline.store.full_check import check_bundle, check_store

EVE = SubjectExtension(id="eve", permissions=frozenset({ERASE, HOLD}))
LIFT, LOWER = "UPDATE holds SET released_at = 1", "UPDATE holds SET released_at = NULL"


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two writers, of which the first erased what the second held: numbers 1 to 4, 5 and 6, 7 and 8."""
    file = tmp_path_factory.mktemp("kept") / "s.sqlite3"
    with Store.at(file) as gateway:
        keep(gateway, *(record(content=Content.of(b"said")) for _ in range(3)))
        with apart():
            other = Store.at(file)
        with other:
            other.contents().hold(actor=EVE, reason="a case", subject="ann")
        change(file, LIFT)
        gateway.contents().erase(actor=EVE, reason="to hide it", subject="ann")
        change(file, LOWER)
        keep(gateway, record())
    return file


def found(file: Path, bundle: Path) -> list[tuple[str, int | None]]:
    """What is wrong with the store, and equally with a bundle of all of it."""
    with Store.at(file) as store, StoreEvidence.at_one_moment(store.engine) as evidence:
        problems = check_store(evidence).problems
        write_bundle(bundle, evidence, contents=True)
    assert check_bundle(bundle, unsigned=True).problems == problems
    return sorted({(problem.code, problem.place) for problem in problems})


HELD = [("content.held", 1), ("content.held", 2), ("content.held", 3)]


@pytest.mark.spec("AUD-4")
@pytest.mark.spec("AUD-84")
@pytest.mark.parametrize(
    ("numbers", "problems"),
    [
        ({}, HELD),
        ({6: 9}, [("record.moved", 4)]),  # the hold, put behind the erasure
        ({5: 9, 6: 10}, [("record.moved", 4)]),  # the whole log of the hold
        ({4: 5, 5: 6, 6: 7, 7: 8, 8: 9}, HELD),  # all others moved on: their order is the same
        ({5: 3, 6: 4, 3: 5, 4: 6}, [*HELD, ("record.moved", 3)]),  # the log of the hold, put before what it notes
    ],
)
def test_a_record_that_changes_its_order_with_those_of_another_log_is_found(
    kept: Path, tmp_path: Path, numbers: dict[int, int], problems: list[tuple[str, int]]
) -> None:
    copy = Path(shutil.copy(kept, tmp_path / "s.sqlite3"))
    shutil.copy(f"{kept}.key", f"{copy}.key")
    for number, other in numbers.items():
        change(copy, f"UPDATE records SET seq = {-other} WHERE seq = {number}")
    if numbers:
        change(copy, "UPDATE records SET seq = -seq WHERE seq < 0")

    assert found(copy, tmp_path / "b.zip") == problems


@pytest.mark.spec("AUD-86")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("erasure", b"{}"),
        ("erasure", b'{"records":[],"contents":"abc","actor":null}'),
        ("erasure", b'{"records":[["x"]]}'),
        ("erasure", b'{"records":[],"records":[]}'),
        ("hold", b"[]"),
        ("hold", b'{"action":"hold","hold":"h","subject":["x"],"session":null,"actor":"eve","reason":"r"}'),
        ("hold", b'{"action":"release","hold":[]}'),
        ("log", b"{"),
        ("log", b'{"log":"x","key":"k","public_key":"p","at":1,"seen":[{}],"before":{}}'),
        ("log", b'{"log":"x","key":"k","public_key":"p","at":1,"seen":[],"before":{}}'),
    ],
)
def test_a_signed_record_in_an_unknown_form_is_named_and_ends_no_verification(
    tmp_path: Path, kind: str, body: bytes
) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as store:
        store.put_on_record(replace(record(), kind=kind, body=body))
        keep(store, record())

    problems = found(file, tmp_path / "b.zip")

    code = "log.changed" if kind == "log" and b'"seen":[]' in body else "record.unreadable"
    assert (code, 1) in problems
