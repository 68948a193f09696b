"""Approvals on the site: who may decide, what is shown of what is sealed, what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.new_store import migrated
from tests.pipeline.review.test_web import said
from tests.pipeline.review.traffic import Client, judged, keep, record

from cmf import Message, SubjectExtension
from pipeline import Config, Context, Guard
from pipeline.policy.policy_set import load
from pipeline.review.access import Role
from pipeline.review.site import Site
from pipeline.sessions.base import wall_clock
from pipeline.store.database import Store
from pipeline.store.four_eyes import TWO_PEOPLE
from pipeline.store.recorder import Recorder

pytestmark = pytest.mark.native

KEY = b"k" * 32
ASKS = 'require_approval contains {"code": "test.pay", "reason": "A person decides."} if input.name == "pay"'
CALL = {"content_type": "tool_call", "name": "pay", "arguments": {"iban": "CANARY"}, "tool_call_id": "c1"}


@contextmanager
def asked(folder: Path, *, key: bytes | None = KEY) -> Iterator[tuple[Store, Guard]]:
    """A store in which `ann` has asked to pay, and the guard that held it."""
    write_rules(folder / "policy", {"pays": ASKS}, kinds="tool_call")
    with (
        Store.at(migrated(folder / "s.sqlite3")) as store,
        Guard(
            folder / "policy", config=Config(seal_key=KEY), sessions=store.sessions(), recorder=Recorder(store)
        ) as guard,
    ):
        run(guard)
        yield store, guard


def run(guard: Guard) -> None:
    context = Context(subject=SubjectExtension(id="ann"), session="s1")
    guard.run(Message.model_validate({"role": "assistant", "content": [CALL]}), context=context)


@pytest.mark.spec("REV-26")
def test_what_is_sealed_is_shown_to_a_signer_once_that_is_on_record(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, _):
        site = Site(store, seal_key=KEY)
        signer, reviewer = Client(site), Client(site, Role.REVIEWER, "rita")
        (row,) = signer.json("/approvals")["rows"]
        path = f"/approvals/{row['id']}"

        assert reviewer.post(f"{path}/show").status_code == 403
        assert "requires the role signer" in reviewer.get(path).text
        for page in ("/approvals", path):
            assert "CANARY" not in signer.get(page).text
        assert said(store, "review") == []

        assert "CANARY" in signer.post(f"{path}/show").text
        (kept,) = said(store, "review")
        assert (kept["action"], kept["approval"], kept["by"]) == (
            "look", row["id"], {"id": "alice", "role": "signer"},
        )  # fmt: skip
        assert signer.json(path)["words"][0]["action"] == "look"
        assert signer.post("/approvals/nothing/show").status_code == 404
        assert signer.get("/approvals/nothing").status_code == 404
        assert reviewer.post(path, answer="approve").status_code == 403


@pytest.mark.spec("REV-26")
def test_without_the_key_or_under_another_one_nothing_is_shown(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, _):
        for key, code in ((None, "review.sealed"), (b"x" * 32, "approval.unreadable")):
            client = Client(Site(store, seal_key=key))
            (row,) = client.json("/approvals")["rows"]
            answer = client.post(f"/approvals/{row['id']}/show")
            assert (answer.status_code, code in answer.text, "CANARY" in answer.text) == (409, True, False)


@pytest.mark.spec("REV-26")
def test_the_requester_cannot_decide_and_the_page_says_so(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, _):
        client = Client(Site(store, seal_key=KEY), name="ann")
        (row,) = client.json("/approvals")["rows"]

        assert row["own"]
        assert "This is your own request" in client.get("/approvals").text
        assert "Approve tool" not in client.get("/approvals").text
        answer = client.post(f"/approvals/{row['id']}", answer="approve")
        assert (answer.status_code, "approval.own-request" in answer.text) == (409, True)
        assert "<h1>Nobody approves a request of their own.</h1>" in answer.text
        assert client.json("/approvals")["rows"][0]["status"] == "pending"


@pytest.mark.spec("REV-26", "APR-13")
def test_what_a_signer_approves_for_more_than_once_is_listed_and_revoked(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, _):
        client, reader = Client(Site(store)), Client(Site(store), Role.REVIEWER, "rita")
        (row,) = client.json("/approvals")["rows"]
        path = f"/approvals/{row['id']}"
        assert (row["scopes"], row["reasons"], row["arguments"]) == (
            ["session", "value"], ["A person decides."], ["iban"],
        )  # fmt: skip
        assert client.post(path, answer="approve", scope="always").status_code == 422
        assert reader.post(path, answer="approve", scope="value").status_code == 403
        assert client.json("/approvals")["standing"] == []

        assert client.post(path, answer="approve", scope="value").status_code == 303
        (stands,) = client.json("/approvals")["standing"]
        assert (stands["id"], stands["scope"], stands["approver"]) == (row["id"], "value", "alice")
        assert "Stands for the same tool and values" in client.get(path).text
        assert reader.post(f"{path}/revoke").status_code == 403
        assert client.post(f"{path}/revoke").status_code == 303

        assert client.json("/approvals")["standing"] == []
        assert "alice revoked it" in client.get(path).text
        assert client.post(f"{path}/revoke").status_code == 409
        assert [one["action"] for one in client.json(path)["words"]] == ["approve", "revoke"]


@pytest.mark.spec("REV-26")
def test_what_came_of_a_yes_is_seen_from_asking_to_use(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, guard):
        client = Client(Site(store))
        (row,) = client.json("/approvals")["rows"]
        path = f"/approvals/{row['id']}"
        assert [one["stood"] for one in client.json(path)["decisions"]] == ["pending"]

        assert client.post(path, answer="maybe").status_code == 422
        assert client.post(path, answer="approve").status_code == 303
        (lately,) = client.json("/approvals")["lately"]
        assert (lately["status"], lately["approver"], lately["expired"]) == ("approved", "alice", False)
        assert "approved, not used yet" in client.get("/approvals").text

        run(guard)
        shown = client.json(path)
        assert (shown["status"], [one["stood"] for one in shown["decisions"]]) == ("used", ["pending", "approved"])
        went_on = client.json(f"/decisions/{shown['decisions'][1]['id']}")["said"]
        assert went_on.startswith("Let through, because a person had approved it: rule test/pays")
        page = client.get(path).text
        assert "approved and used" in page
        assert "used it" in page
        assert client.post(path, answer="deny").status_code == 409


@pytest.mark.spec("REV-26")
def test_a_denial_stays_and_an_undecided_request_expires(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, guard):
        client = Client(Site(store))
        (row,) = client.json("/approvals")["rows"]
        later = Client(Site(store, clock=lambda: wall_clock() + timedelta(days=30)))
        (expired,) = later.json("/approvals")["lately"]
        assert (expired["status"], expired["expired"]) == ("pending", True)
        assert "expired" in later.get(f"/approvals/{row['id']}").text
        assert client.post(f"/approvals/{row['id']}", answer="deny").status_code == 303
        run(guard)
        shown = client.json(f"/approvals/{row['id']}")
        assert (shown["status"], shown["expired"]) == ("denied", False)
        assert client.json("/approvals")["rows"] == []


@pytest.mark.spec("REV-16")
def test_content_is_shown_to_who_asked_once_another_person_agreed(tmp_path: Path) -> None:
    denies = 'deny contains {"code": "test.no", "reason": "No."} if contains(input.content, "no")'
    write_rules(tmp_path / "policy", {"no": denies}, kinds="text")
    owner = SubjectExtension(id="olga", permissions=frozenset({TWO_PEOPLE}))
    with judged(tmp_path, load(tmp_path / "policy"), "say CANARY") as store:
        store.contents().four_eyes.need_two(True, actor=owner, reason="from now on")
        site = Site(store)
        ann, bob = Client(site, Role.REVIEWER, "ann"), Client(site, Role.REVIEWER, "bob")
        viewer = Client(site, Role.VIEWER, "vic")
        path = f"/decisions/{ann.json('/decisions')['rows'][0]['id']}"

        assert "Record the reason and show" not in ann.get(path).text
        assert ann.post(f"{path}/reveal", reason="why").status_code == 422
        assert viewer.post(f"{path}/ask", reason="why").status_code == 403
        assert ann.post(f"{path}/ask").status_code == 422
        assert ann.post(f"{path}/ask", reason="A <b>complaint</b>").status_code == 303
        (asks,) = ann.json("/approvals")["asks"]
        assert (asks["by"], asks["own"]) == ("ann", True)
        assert "Another person has to agree" in ann.get(path).text
        assert "A &lt;b&gt;complaint" in bob.get("/approvals").text
        assert ann.post(f"/asks/{asks['id']}", reason="me").status_code == 422
        assert viewer.post(f"/asks/{asks['id']}", reason="me").status_code == 403
        assert ann.post(f"{path}/reveal", reason="why").status_code == 422

        agreed = bob.post(f"/asks/{asks['id']}", reason="It is needed")
        assert (agreed.status_code, agreed.headers["location"]) == (303, path)
        assert bob.post(f"{path}/reveal", reason="why").status_code == 422
        assert ann.json("/approvals")["asks"] == []
        assert "bob agreed that you may view it" in ann.get(path).text
        assert "CANARY" not in ann.get(path).text
        shown = ann.post(f"{path}/reveal", reason="why")
        assert (shown.status_code, "CANARY" in shown.text) == (200, True)
        assert [(word["kind"], word["by"]) for word in ann.json(path)["words"]] == [
            ("ask", "ann"), ("grant", "bob"), ("reveal", "ann"),
        ]  # fmt: skip


@pytest.mark.spec("EXC-13")
def test_overrides_are_listed_with_what_went_on_under_them_and_a_signer_ends_them(tmp_path: Path) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        site = Site(store)
        signer, viewer = Client(site), Client(site, Role.VIEWER, "vic")
        assert "overrid" not in signer.get("/approvals").text
        eve, bob = (SubjectExtension(id=name) for name in ("eve", "bob"))
        scope = {"subject": "<b>ann", "session": "s1", "uri": "tool://_/pay"}
        one = site.overrides.open("tools/a", actor=eve, seconder=bob, reason="The ward", **scope)  # type: ignore[arg-type]
        assert "It has not been used yet" in viewer.get("/approvals").text
        under = record("deny", minute=1, excused=one.excused)
        keep(store, under, record("deny", minute=2))

        (row,) = viewer.json("/approvals")["overrides"]
        assert (row["rule"], row["scope"], row["by"], row["decisions"]) == ("tools/a", scope, ["eve", "bob"], 1)
        assert [found["id"] for found in viewer.json("/decisions", q=row["q"])["rows"]] == [under.id]
        page = viewer.get("/approvals").text
        assert "denies nothing for <strong>&lt;b&gt;ann</strong>" in page
        assert "End it now" not in page
        assert ">1 override</a>" in page
        assert f'q=override%3A{one.id}">overridden</a> by eve until' in viewer.get(f"/decisions/{under.id}").text
        path = f"/overrides/{one.id}/end"
        assert viewer.post(path, reason="x").status_code == 403
        assert signer.post(path).status_code == 422
        assert "End it now" in signer.get("/approvals").text
        assert signer.post(path, reason="It is over").status_code == 303
        assert signer.json("/approvals")["overrides"] == []
        assert signer.post(path, reason="Again").status_code == 422
        taken = signer.post("/export", q=row["q"]).content
        assert len(set(re.findall(rb"ovr_[0-9A-Z]{26}", taken))) == 2  # who made it, and who ended it
