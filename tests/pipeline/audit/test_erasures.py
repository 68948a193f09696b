"""Who may write to a store hides nothing behind an erasure, by no hold, owner or time other than that on record."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from tests.pipeline.review.traffic import keep, record

from cmf import SubjectExtension
from pipeline.audit import bundle_verification
from pipeline.audit.bundle import Selection, write_bundle
from pipeline.audit.record import Content
from pipeline.audit.verification import verify
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import ERASE, HOLD

# Nobody signs these: what a signature is for, test_manifest.py shows.
verify_bundle = partial(bundle_verification.verify_bundle, unsigned=True)

EVE = SubjectExtension(id="eve", permissions=frozenset({ERASE, HOLD}))
LATER = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
JOINED = "CAST(salt || body AS BLOB)"
LIFT, LOWER = "UPDATE holds SET released_at = 1", "UPDATE holds SET released_at = NULL"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which what ann said is held, what bob said in one session was held for a while, and nobody else's."""
    file = tmp_path_factory.mktemp("kept") / "s.sqlite3"
    with Store.at(file) as store:
        for subject, session, until in (("ann", "a", LATER), ("bob", "b", None), (None, "c", LATER)):
            keep(store, record(subject=subject, session=session, content=Content.of(b"said", until)))
        contents = store.contents()
        contents.hold(actor=EVE, reason="a case", subject="ann")
        over = contents.hold(actor=EVE, reason="another", subject="bob", session="b")
        contents.hold(actor=EVE, reason="of nobody there", subject="anonymous", session="z")
        contents.release(over.id, actor=EVE, reason="over")
    return file


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement


def problems(file: Path) -> list[str]:
    with Store.at(file) as store:
        return sorted(problem.code for problem in verify(StoreEvidence(store.engine)).problems)


@pytest.mark.spec("AUD-70")
@pytest.mark.spec("AUD-84")
@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["DELETE FROM holds WHERE subject = 'id:ann'"], ["hold.changed"]),
        (["UPDATE holds SET released_at = 1 WHERE subject = 'id:ann'"], ["hold.changed"]),
        (["UPDATE holds SET released_at = NULL WHERE subject = 'id:bob'"], ["hold.changed"]),
        (["UPDATE holds SET subject = 'id:x' WHERE subject = 'id:ann'"], ["hold.changed"] * 2),
        (["INSERT INTO holds VALUES ('hold_x', NULL, NULL, 'eve', 'x', 1, NULL)"], ["hold.changed"]),
        (["UPDATE contents SET subject = 'id:x' WHERE session = 'a'"], ["content.filed"]),
        (["UPDATE contents SET session = NULL WHERE session = 'b'"], ["content.filed"]),
        (["UPDATE contents SET at = 1 WHERE session = 'a'"], ["content.filed"]),
        (["UPDATE contents SET expires_at = 1 WHERE session = 'a'"], ["content.filed"]),
        (["UPDATE contents SET expires_at = 1 WHERE session = 'b'"], ["content.filed"]),
        (["UPDATE holds SET reason = 'x' WHERE subject = 'id:ann'"], ["hold.changed"] * 2),
        # Salt and bytes together are what they were, and so is their digest.
        ([f"UPDATE contents SET salt = x'', body = {JOINED} WHERE session = 'a'"], ["content.changed"]),
        ([f"UPDATE contents SET salt = {JOINED}, body = x'' WHERE session = 'a'"], ["content.changed"]),
    ],
)
def test_what_erasing_goes_by_is_what_is_on_record(
    kept: Path, tmp_path: Path, statements: list[str], found: list[str]
) -> None:
    copy = Path(shutil.copy(kept, tmp_path / "s.sqlite3"))
    shutil.copy(f"{kept}.key", f"{copy}.key")
    assert problems(copy) == []

    change(copy, *statements)

    assert problems(copy) == found


@pytest.mark.spec("AUD-84")
@pytest.mark.parametrize("some", [False, True])
def test_content_that_went_though_it_was_held_or_before_its_time_is_found_afterwards_and_elsewhere(
    kept: Path, tmp_path: Path, some: bool
) -> None:
    copy = Path(shutil.copy(kept, tmp_path / "s.sqlite3"))
    shutil.copy(f"{kept}.key", f"{copy}.key")
    change(copy, "UPDATE holds SET released_at = 1 WHERE subject = 'id:ann'", "UPDATE contents SET expires_at = 1")
    with Store.at(copy) as store:
        contents = store.contents()
        contents.erase_due(contents.due(2, 10))
    change(copy, "UPDATE holds SET released_at = NULL WHERE subject = 'id:ann'")  # as if nothing had been

    with Store.at(copy) as store:
        evidence = StoreEvidence(store.engine)
        found = verify(evidence).problems
        selection = Selection("all", lambda leaf: leaf.kind == "decision") if some else None
        write_bundle(tmp_path / "b.zip", evidence, selection=selection, contents=True)
        by_session = {leaf.id: leaf.row["session"] for log in evidence.logs() for leaf in evidence.leaves(log.id)}

    of = sorted((problem.code, by_session[problem.record or ""]) for problem in found)
    assert of == [("content.early", "a"), ("content.early", "b"), ("content.early", "c"), ("content.held", "a")]
    taken = verify_bundle(tmp_path / "b.zip").problems
    assert sorted((one.code, one.record or "") for one in taken) == sorted(
        (one.code, one.record or "") for one in found
    )
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        kinds = {json.loads(line)["kind"] for line in bundle.read("records.jsonl").splitlines()}
    assert kinds == {"log", "decision", "hold", "erasure"}


@pytest.mark.spec("AUD-84")
def test_content_erased_at_its_expiry_is_no_problem_in_verification(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    soon = int(datetime.now(UTC).timestamp() + 1_800) * 1_000_000  # the clock of who erases may be that far ahead
    with Store.at(file) as store:
        for until in (1, soon):
            keep(store, record(content=Content.of(b"said", until)))
        contents = store.contents()
        contents.erase_due(contents.due(soon + 1, 10))
        assert list(contents.due(soon + 1, 10)) == []

    assert problems(file) == []
