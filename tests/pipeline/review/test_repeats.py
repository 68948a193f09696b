"""Forms that are sent twice, by one person or by several at once: what they say is recorded once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.review.traffic import Client, judged, opened, record

from pipeline.decisions.authority import holder
from pipeline.policy.policy_set import load
from pipeline.review.site import Site
from pipeline.store.database import Store
from pipeline.store.four_eyes import TWO_PEOPLE
from pipeline.store.records import stored_records

TIMES = 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path, record("deny"), record("warn", session="s2")) as store:
        yield store


def actions(store: Store, kind: str) -> list[str]:
    return [json.loads(one.body or b"{}")["action"] for one in stored_records(store.engine, kind=kind)]


def at_once(does: Callable[[], int]) -> list[int]:
    """The statuses of the same form, sent several times at once, in order."""
    with ThreadPoolExecutor(TIMES) as pool:
        return sorted(pool.map(lambda _: does(), range(TIMES)))


@pytest.mark.spec("REV-45")
def test_a_set_is_signed_once_by_each_person_until_that_is_withdrawn(store: Store) -> None:
    ann, bob = Client(Site(store), name="ann"), Client(Site(store), name="bob")
    form = {"q": "verdict:deny", "hash": ann.json("/sign", q="verdict:deny")["hash"]}

    path = ann.post("/sign", **form).headers["location"]
    again = ann.post("/sign", **form)

    assert (again.status_code, "review.signed" in again.text) == (409, True)
    assert bob.post("/sign", **form).status_code == 303
    assert ann.post(f"{path}/reopen", comment="Too early.").status_code == 303
    assert ann.post("/sign", **form).status_code == 303
    assert actions(store, "signoff") == ["sign", "sign", "reopen", "sign"]


@pytest.mark.spec("REV-45")
def test_of_several_signatures_and_withdrawals_at_once_one_counts(store: Store) -> None:
    site = Site(store)
    ann, bob = Client(site, name="ann"), Client(site, name="bob")
    store.contents().four_eyes.need_two(True, actor=holder("x", TWO_PEOPLE), reason="our rule")
    form = {"q": "since:2026-01-01", "hash": ann.json("/sign", q="since:2026-01-01")["hash"]}
    once = [303, *[409] * (TIMES - 1)]

    assert at_once(lambda: ann.post("/sign", **form).status_code) == once
    (path,) = (f"/signoffs/{one.id}" for one in stored_records(store.engine, kind="signoff"))
    assert at_once(lambda: bob.post(f"{path}/second").status_code) == once
    assert at_once(lambda: bob.post(f"{path}/reopen", comment="Again.").status_code) == once
    assert actions(store, "signoff") == ["sign", "second", "reopen"]


@pytest.mark.native
@pytest.mark.spec("REV-45")
def test_a_request_to_see_content_is_granted_once(tmp_path: Path) -> None:
    write_rules(tmp_path / "policy", {"no": 'deny contains {"code": "a.b", "reason": "no"} if false'}, kinds="text")
    with judged(tmp_path, load(tmp_path / "policy"), "Hello") as store:
        site = Site(store)
        ann, bob = Client(site, name="ann"), Client(site, name="bob")
        ann.post(f"/decisions/{ann.json('/decisions')['rows'][0]['id']}/ask", reason="ticket 12")
        (asked,) = bob.json("/approvals")["asks"]

        found = at_once(lambda: bob.post(f"/asks/{asked['id']}", reason="agreed").status_code)

        assert found == [303, *[422] * (TIMES - 1)]
        assert actions(store, "grant") == ["grant"]


@pytest.mark.spec("REV-23")
@pytest.mark.parametrize("size", ["", "0", "-1", "1001", "000019999999", "\u0663", "9" * 4_000])
def test_a_sample_has_a_size_in_figures(store: Store, size: str) -> None:
    answer = Client(Site(store)).post("/samples", q="", size=size)

    assert (answer.status_code, "review.sample" in answer.text) == (422, True)
    assert actions(store, "sample") == []
