"""The page of the tools that decisions name: who sees it, its facts and reasons, and what people said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.pipeline.new_store import migrated
from tests.pipeline.review.test_approving import asked, run
from tests.pipeline.review.traffic import HOSTILE, Client, keep, opened, record

from cmf import Message
from pipeline import Config, Guard
from pipeline.provenance.profiles import Profiles
from pipeline.review import tools
from pipeline.review.access import Named, Person, Role
from pipeline.review.site import Site
from pipeline.review.web import build_site
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder

pytestmark = [pytest.mark.native, pytest.mark.spec("REV-47")]


def test_nobody_sees_it_without_the_token_and_nothing_can_be_posted(tmp_path: Path) -> None:
    with opened(tmp_path, record()) as store:
        site = Site(store)
        stranger = TestClient(build_site(site, Named(Person("alice", Role.ADMIN), "cmf_review")))
        for path in ("/tools", "/tools.json"):
            answer = stranger.get(path)
            assert (answer.status_code, "pay" in answer.text) == (401, False)
        assert Client(site, Role.ADMIN).post("/tools").status_code in (404, 405)
        assert Client(site, Role.VIEWER).get("/tools").status_code == 200


def test_questions_and_answers_are_counted_for_the_tool_that_asked(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, guard):
        client = Client(Site(store))
        (row,) = client.json("/tools")["rows"]
        assert (row["name"], row["uris"]) == ("pay", ["tool://_/pay"])
        assert (row["asked"], row["agreed"], row["refused"]) == (1, 0, 0)

        (waiting,) = client.json("/approvals")["rows"]
        client.post(f"/approvals/{waiting['id']}", answer="deny")
        run(guard)  # refused: it asks nothing new
        keep(store, record("require_approval", tool="other"))  # held, and no approval names this tool
        rows = {row["name"]: row for row in client.json("/tools")["rows"]}
        assert [rows["pay"][name] for name in ("asked", "agreed", "refused")] == [1, 0, 1]
        assert [rows["other"][name] for name in ("asked", "agreed", "refused")] == [0, 0, 0]


def test_what_people_approved_counts_as_agreed(tmp_path: Path) -> None:
    with asked(tmp_path) as (store, guard):
        client = Client(Site(store))
        (waiting,) = client.json("/approvals")["rows"]
        client.post(f"/approvals/{waiting['id']}", answer="approve")
        run(guard)  # uses it
        (row,) = client.json("/tools")["rows"]
        assert (row["decisions"], row["asked"], row["agreed"], row["refused"]) == (2, 1, 1, 0)


def facts_of(folder: Path, name: str, *, profile: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """The facts of the page, by field, after one call of that tool under the shipped policies."""
    call = {"content_type": "tool_call", "name": name, "arguments": {"to": "CANARY"}, "tool_call_id": "c1"}
    profiles = Profiles.load({"profiles": {name: profile}} if profile else {"profiles": {}})
    with Store.at(migrated(folder / "s.sqlite3")) as store:
        kept = {"sessions": store.sessions(), "recorder": Recorder(store)}
        with Guard(config=Config(**config), profiles=profiles, **kept) as guard:
            guard.run(Message.model_validate({"role": "assistant", "content": [call]}))
        client = Client(Site(store), Role.VIEWER)
        assert "CANARY" not in client.get("/tools").text
        (row,) = client.json("/tools")["rows"]
        assert (row["recorded"] is None) is (row["facts"] == [])
        return {fact["field"]: fact for fact in row["facts"]}


def test_inferred_facts_have_their_reason(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, "send_email")
    assert facts["actions"] == {
        "field": "actions", "value": ["send"], "inferred": True, "reason": 'its name says "send"',
    }  # fmt: skip
    assert (facts["sink"]["value"], facts["irreversible"]["value"]) == (True, False)
    assert (facts["control"]["value"], facts["control"]["inferred"]) == (None, True)


def test_a_fact_that_an_operator_wrote_is_told_apart(tmp_path: Path) -> None:
    written = {"irreversible": True}
    facts = facts_of(tmp_path, "send_email", profile=written)
    assert (facts["irreversible"]["inferred"], facts["irreversible"]["value"]) == (False, True)
    assert facts["irreversible"]["reason"] == "an operator wrote it"
    assert facts["actions"]["inferred"]


def test_without_inference_no_fact_is_claimed(tmp_path: Path) -> None:
    assert facts_of(tmp_path, "send_email", inference="off") == {}


def test_a_hostile_name_is_text_and_a_damaged_record_breaks_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, record(tool=HOSTILE), record("require_approval", tool="")) as store:
        client = Client(Site(store))
        page = client.get("/tools")
        assert (page.status_code, "<script>alert" in page.text, "\u202e" in page.text) == (200, False, False)
        assert len(client.json("/tools")["rows"]) == 2


@pytest.mark.parametrize("inferred", [{"inferred": "x"}, {"inferred": ["sink"], "sink": {"a": 1}}, {"actions": 3}])
def test_facts_that_somebody_else_wrote_are_shown_without_a_reason_of_ours(inferred: dict[str, Any]) -> None:
    facts = list(tools._facts("send_email", "tool://%zz", inferred))
    assert [fact["field"] for fact in facts] == ["actions", "sink", "irreversible", "control"]
    assert all("name says" not in fact["reason"] for fact in facts)


def test_more_tools_than_the_page_has_are_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, *(record(tool=f"t{number}") for number in range(3))) as store:
        client = Client(Site(store))
        assert not client.json("/tools")["cut"]
        monkeypatch.setattr(tools, "MOST", 2)
        assert (len(client.json("/tools")["rows"]), client.json("/tools")["cut"]) == (2, True)
        monkeypatch.setattr("pipeline.review.catalog._MANY", 2)
        assert "too many tools" in client.get("/tools").text


def test_without_tools_the_page_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert "No decision names a tool yet" in Client(Site(store)).get("/tools").text
