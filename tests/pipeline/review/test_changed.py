"""What was changed behind the log's back is shown as that, and nothing that was changed is called unchanged."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.review.traffic import Client, opened, record
from tests.pipeline.session_stores import ANN

from cmf import Message, SubjectExtension, TextPart
from pipeline import Approvals, Guard
from pipeline.audit.heads import PublicKey, Signer
from pipeline.decisions.approval import ApprovalRequest
from pipeline.decisions.authority import APPROVE
from pipeline.decisions.decision import Effect, Excused
from pipeline.review.site import Site
from pipeline.sessions.state import Changes
from pipeline.store.database import Store
from pipeline.store.records import stored_records

LATER = 4_000_000_000_000_000  # in the year 2096
BODY = "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'pay', 'say') AS BLOB) WHERE id = ?"
ASKED = ApprovalRequest(id="apr_1", digest="d", target="t", rules=("a/b",), revision="r", expires_at=LATER)
FORGERIES = {
    "the bytes": (BODY,),
    "the bytes and their digest": (
        BODY,
        "UPDATE records SET digest = printf('%064d', 1) WHERE id = ?",
    ),
    "a field": ("UPDATE records SET verdict = 'allow' WHERE id = ?",),
    "the row": ("UPDATE records SET id = id || 'x' WHERE id = ?",),
    "the place": ("UPDATE records SET place = place + 100 WHERE id = ?",),
    "no bytes": ("UPDATE records SET body = NULL WHERE id = ?",),
    "the leaves": ("UPDATE heads SET leaves = zeroblob(length(leaves)) WHERE '' != ?",),
    "the head": ("UPDATE heads SET batch = batch || '0', size = size WHERE '' != ?",),
    "the key": ("UPDATE logs SET public_key = 'no key' WHERE '' != ?",),
    "the log": ("UPDATE logs SET id = id || 'x' WHERE '' != ?",),
    "no head": ("DELETE FROM heads WHERE '' != ?",),
}


def forge(file: Path, id: str, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement, (id,)).rowcount >= 1, statement


def words(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def signs(client: Client, query: str) -> Any:
    """The answer to signing what a query finds."""
    return client.post("/sign", q=query, hash=client.json("/sign", q=query)["hash"])


@pytest.mark.spec("REV-46")
@pytest.mark.parametrize("what", FORGERIES)
def test_a_changed_record_is_marked_wherever_it_is_shown(tmp_path: Path, what: str) -> None:
    with opened(tmp_path, record("deny"), record("deny", session="s2", minute=1)) as store:
        client = Client(Site(store))
        place = signs(client, "verdict:deny").headers["location"]
        assert client.json(place)["stands"] is True
        assert "unchanged since it was signed" in words(client.get(place))
        rows = client.json("/decisions", q="")["rows"]
        assert [row["changed"] for row in rows] == [False, False]
        forged = rows[-1]

        forge(tmp_path / "s.sqlite3", forged["id"], *FORGERIES[what])
        restarted = Client(Site(store))

        for site in (client, restarted) if what != "the row" else (client,):
            assert "unchanged since it was signed" not in words(site.get(place))
            assert site.json(place)["stands"] is False
        row = client.json("/decisions", q="")["rows"][-1]
        page, session = client.json(f"/decisions/{row['id']}"), client.json("/session", subject="id:ann", session="s1")
        assert row["changed"]
        assert page["changed"]
        assert session["timeline"][0]["changed"]
        assert '"changed":true' in client.get("/decisions.jsonl").text.replace(" ", "")
        for shown in (f"/decisions/{row['id']}", "/decisions", place):
            assert "changed since it was recorded" in words(client.get(shown))


@pytest.mark.spec("REV-46")
def test_a_changed_record_cannot_be_signed_nor_a_signature_over_one_be_seconded(tmp_path: Path) -> None:
    with opened(tmp_path, record("deny")) as store:
        client = Client(Site(store))
        row = client.json("/decisions", q="")["rows"][0]
        forge(tmp_path / "s.sqlite3", row["id"], *FORGERIES["the bytes"])
        page, refused = client.get("/sign", q="verdict:deny"), signs(client, "verdict:deny")

        assert "1 of them were changed since they were recorded" in words(page)
        assert (refused.status_code, "were changed since they were recorded" in refused.text) == (409, True)
        assert not client.json("/signoffs")["rows"]


@pytest.mark.spec("REV-46")
def test_a_set_does_not_stand_once_its_signature_was_changed(tmp_path: Path) -> None:
    with opened(tmp_path, record("deny")) as store:
        client = Client(Site(store))
        place = signs(client, "verdict:deny").headers["location"]
        change = "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'alice', 'carol') AS BLOB) WHERE id = ?"
        forge(tmp_path / "s.sqlite3", place.rsplit("/", 1)[1], change)

        assert client.json(place)["stands"] is False
        assert Client(Site(store)).json(place)["stands"] is False


@pytest.mark.spec("REV-46")
def test_only_the_keys_that_the_site_is_given_vouch_for_records(tmp_path: Path) -> None:
    with opened(tmp_path, record("deny")) as store:
        other = Signer.at(tmp_path / "other.key").public_key
        mine = PublicKey.of(Signer.at(tmp_path / "s.sqlite3.key").public_key.pem)

        assert Client(Site(store, keys=[other])).json("/decisions")["rows"][0]["changed"] is True
        assert Client(Site(store, keys=[other, mine])).json("/decisions")["rows"][0]["changed"] is False


@pytest.mark.spec("REV-46")
def test_records_of_several_logs_and_far_apart_are_told_from_changed_ones(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path, record("deny"), *(record() for _ in range(100)), record("deny")):
            pass
    with opened(tmp_path) as store:
        client = Client(Site(store))
        rows = client.json("/decisions", q="verdict:deny")["rows"]
        forge(tmp_path / "s.sqlite3", rows[1]["id"], *FORGERIES["a field"])

        again = client.json("/decisions", q="verdict:deny")["rows"]

    assert [row["changed"] for row in rows] == [False] * 4
    assert [row["changed"] for row in again] == [False, True, False, False]


@pytest.mark.spec("REV-21")
@pytest.mark.spec("REV-2")
def test_the_page_to_sign_counts_each_decision_that_needs_review_once(tmp_path: Path) -> None:
    needing = [
        record("deny"),
        record("require_approval"),
        record("warn"),
        record(effect=Effect.REDACT),
        record(skipped=("content[1]",)),
        record("deny", effect=Effect.REDACT, skipped=("content[1]",)),
        record(effect=Effect.WARN, excused=Excused("eve", "2026-12-31")),
        record(effect=Effect.WARN, excused=Excused("eve", "2026-12-31T00:00:00Z", "ovr_1")),
    ]
    with opened(tmp_path, *needing, record()) as store:
        client = Client(Site(store))

        page = words(client.get("/sign", q=""))
        found = client.json("/decisions", q="needs:review")["rows"]

    assert len(found) == len(needing)
    assert f"{len(needing)} of them still need review" in page


@pytest.mark.spec("APR-7")
@pytest.mark.parametrize("approve", [False, True])
@pytest.mark.parametrize("door", ["Approvals", "the store"])
def test_who_decided_through_the_library_is_on_record(tmp_path: Path, approve: bool, door: str) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store, Guard(store=store) as guard:
        guard.decide(Message(role="user", content=[TextPart(text="hello")]))
        sessions = store.sessions()
        sessions.commit(ANN, None, Changes(asked=(ASKED,)))
        if door == "Approvals":
            approvals = Approvals(sessions)
            person = SubjectExtension(id="olga", permissions=frozenset({APPROVE}))
            (approvals.approve if approve else approvals.deny)("apr_1", person)
        else:
            sessions.decide_approval("apr_1", approver="olga", approve=approve)

        (kept,) = stored_records(store.engine, kind="review")

    assert b"olga" in (kept.body or b"")
    assert b"apr_1" in (kept.body or b"")
