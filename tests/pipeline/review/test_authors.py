"""Who put policies in force does not sign for what they did. Spec: docs/spec/review.md [REV-43]."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.review.traffic import NOON, Client, opened, record

from cmf import SubjectExtension
from pipeline.audit.record import act_of
from pipeline.review.site import Site
from pipeline.store.database import Store
from pipeline.store.four_eyes import TWO_PEOPLE
from pipeline.store.recorder import Recorder

OLD, NEW = "a" * 64, "b" * 64
BEFORE, BOTH = "until:2026-01-01T13:00:00Z", "since:2026-01-01"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Decisions under two revisions: the older at noon, the newer two hours later, and three hours later again."""
    made = (record("deny", revision=OLD), record(revision=NEW, minute=120), record("deny", revision=NEW, minute=180))
    with opened(tmp_path, *made) as store:
        two = SubjectExtension(id="x", permissions=frozenset({TWO_PEOPLE}))
        store.contents().four_eyes.need_two(True, actor=two, reason="our rule")
        yield store


def changed(store: Store, by: str | None) -> None:
    said = {"routes": ["all"], "before": OLD, "revision": NEW} | ({} if by is None else {"by": {"id": by}})
    Recorder(store).record(act_of("policy", "pol", "change", said, NOON, subject=by, revision=NEW))


def signed(client: Client, query: str) -> Any:
    return client.post("/sign", q=query, hash=client.json("/sign", q=query)["hash"])


@pytest.mark.spec("REV-43")
def test_who_put_policies_in_force_signs_no_set_in_which_they_first_ran_neither_first_nor_second(store: Store) -> None:
    changed(store, "ann")
    site = Site(store)
    ann, bob, eve = (Client(site, name=name) for name in ("ann", "bob", "eve"))

    refused = signed(ann, BOTH)

    assert (refused.status_code, "another person has to sign" in refused.text) == (409, True)
    assert (ann.json("/sign", q=BOTH)["own"], bob.json("/sign", q=BOTH)["own"]) == (NEW, None)
    assert "another person has to sign" in ann.get("/sign", q=BOTH).text
    path = str(signed(bob, BOTH).headers["location"])
    assert ann.post(f"{path}/second").status_code == 409
    assert eve.post(f"{path}/second").status_code == 303


@pytest.mark.spec("REV-43")
@pytest.mark.parametrize("query", [BEFORE, f"verdict:deny {BOTH}"])
def test_a_set_without_their_first_run_is_anybody_s(store: Store, query: str) -> None:
    changed(store, "ann")

    assert signed(Client(Site(store), name="ann"), query).status_code == 303


@pytest.mark.spec("REV-43")
@pytest.mark.parametrize("by", ["bob", None])
def test_who_changed_nothing_by_the_log_is_not_kept_from_signing(store: Store, by: str | None) -> None:
    changed(store, by)

    assert signed(Client(Site(store), name="ann"), BOTH).status_code == 303


@pytest.mark.spec("REV-43")
def test_where_one_person_is_enough_anyone_may_sign(tmp_path: Path) -> None:
    with opened(tmp_path, record(revision=NEW)) as store:
        changed(store, "ann")

        assert signed(Client(Site(store), name="ann"), BOTH).status_code == 303
