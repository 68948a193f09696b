"""The catalogue finds what the database finds, and counts it."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.review.traffic import Client, keep, opened, record

from pipeline.audit.query import exactly, parse
from pipeline.decisions.decision import Effect
from pipeline.review.catalog import Catalog, flagged, newest_first, selectors, set_of
from pipeline.review.site import Site
from pipeline.store.database import Store
from pipeline.store.records import Search

NOW = datetime(2026, 1, 1, 13, tzinfo=UTC)
TERMS = st.sampled_from(
    [
        "verdict:deny", "verdict:deny,warn", "-verdict:allow", "rule:tools/*", "rule:tools/a", "-rule:tools/b",
        "subject:ann", "subject:anonymous", "subject:b*", "session:s1", "-session:s2", "tool:pay", "severity:critical",
        "covered:no", "effect:redact", "since:30m", "until:30m", "revision:r*", "mode:enforce", "action:refuse",
        "rule:none",
    ]
)  # fmt: skip
RECORDS = st.builds(
    record,
    st.sampled_from(["allow", "deny", "warn", "require_approval"]),
    subject=st.sampled_from(["ann", "bob", "anonymous", None]),
    session=st.sampled_from(["s1", "s2", None]),
    rule=st.sampled_from(["tools/a", "tools/b", "data/c"]),
    severity=st.sampled_from(["info", "warn", "high", "critical"]),
    tool=st.sampled_from(["pay", "mail"]),
    minute=st.integers(0, 59),
    skipped=st.sampled_from([(), ("content[1]",)]),
    effect=st.sampled_from([None, Effect.REDACT]),
)


@pytest.mark.spec("REV-3")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(RECORDS, max_size=12), later=st.lists(RECORDS, max_size=4), terms=st.lists(TERMS, max_size=3))
def test_it_finds_what_the_database_finds(tmp_path_factory: pytest.TempPathFactory, records, later, terms) -> None:
    query = parse(" ".join(terms), NOW)
    with opened(tmp_path_factory.mktemp("s"), *records) as store:
        catalog = Catalog(store)
        for more in ([], later):
            keep(store, *more)
            catalog.catch_up()
            search = Search(store.engine, store.writer)

            found = catalog.select(query)

            expected = [one.id for one in search.page(query, limit=100) if one.kind == "decision"]
            assert [row.id for row in catalog.page(found, before=None, limit=100)] == expected
            assert [row.id for row in reversed(catalog.all_of(found))] == expected
            for name in ("verdict", "rule", "severity", "tool", "covered", "subject"):
                counted = dict(catalog.values(found, name, limit=100))
                kinds = parse(f"{query.text} kind:decision", NOW)
                said = dict(search.values(kinds, name, limit=100))
                if name != "subject":
                    assert counted == said
            assert {(one.subject, one.id) for one in catalog.sessions(found)} == {
                (row.subject, row.session) for row in catalog.all_of(found)
            }


ODD = ("*", "a*", "a,b", "a", "b", "Ann Lee", "\"x\" 'y'", "\\", "\\*", "-", "a:b", "\u202e\U0001f9e8", " ", "\n", "")


@pytest.mark.spec("AUD-60")
@pytest.mark.spec("REV-5")
def test_a_name_is_found_by_itself_and_nothing_else_is_whatever_is_in_it(tmp_path: Path) -> None:
    with opened(
        tmp_path, *(record("deny", subject=odd, session=odd, tool=odd, rule=f"r/{odd}") for odd in ODD)
    ) as store:
        search, pages = Search(store.engine, store.writer), Client(Site(store))
        search.catch_up()
        for odd in ODD:
            for name in ("subject", "session", "tool"):
                assert search.count(parse(exactly(name, odd), NOW)) == 1, (name, odd)
            (row,) = pages.json("/decisions", q=exactly("subject", odd))["rows"]
            assert row["session"] == odd
            text = pages.get(f"/decisions/{row['id']}").text
            text += pages.get("/session", subject=row["subject_key"], session=odd).text
            asked = {html.unescape(one) for one in re.findall(r'href="(/(?:decisions|sessions)\?[^"]*)"', text)}
            found = {one: pages.get(one.replace("?", ".json?", 1)) for one in asked if ":review" not in unquote(one)}
            assert len(found) == (3 if odd else 2)  # subject, rule, tool: a part without a name leads nowhere
            assert {link: (one.status_code, one.json()["decisions"]) for link, one in found.items()} == dict.fromkeys(
                found, (200, 1)
            )
        assert "(empty)" in pages.get("/sessions").text
        assert search.count(parse("subject:a*,b", NOW)) == 5
        assert pages.json("/decisions", q="subject:a*,b")["decisions"] == 5


@pytest.mark.spec("REV-7")
def test_what_no_session_has_is_found_as_that(tmp_path: Path) -> None:
    records = [record(session=None, subject="ann", minute=number / 10) for number in range(205)]
    with opened(tmp_path, *records, record(session="s"), record(session=None, subject="bob")) as store:
        text = Client(Site(store)).get("/session", subject="id:ann").text
        (link,) = (html.unescape(one) for one in re.findall(r'href="(/decisions\?[^"]*-session[^"]*)"', text))
        assert Client(Site(store)).get(link.replace("?", ".json?", 1)).json()["decisions"] == len(records)


@pytest.mark.spec("REV-2")
def test_what_needs_eyes_comes_first_then_the_newest(tmp_path: Path) -> None:
    quiet = [record(session="quiet", minute=50), record(session="quiet", minute=51)]
    loud = [
        record("deny", session="old", minute=1, severity="critical"),
        record(session="cut", minute=2, skipped=["content[1]"]),
        record(session="edited", minute=3, effect=Effect.REDACT),
    ]
    with opened(tmp_path, *quiet, *loud) as store:
        catalog = Catalog(store)
        catalog.catch_up()

        ordered = catalog.sessions(catalog.select(parse("", NOW)))

        assert [(one.id, one.open) for one in ordered] == [("edited", 1), ("cut", 1), ("old", 1), ("quiet", 0)]
        assert catalog.needing() == 3


@given(st.sets(st.integers(0, 200)))
def test_sets_of_positions_are_read_as_they_were_made(positions: set[int]) -> None:
    made = set_of(positions, 201)

    assert list(newest_first(made)) == sorted(positions, reverse=True)
    assert [at for at, chosen in enumerate(selectors(made)) if chosen] == sorted(positions)
    flags = bytes(3 if at in positions else 4 for at in range(201))
    assert flagged(flags, 1) == made


def test_a_site_sees_what_another_process_put_on_record(tmp_path: Path) -> None:
    with opened(tmp_path, record("deny")) as store, Store.at(tmp_path / "s.sqlite3") as other:
        site = Site(store)
        site.catalog.catch_up()
        keep(other, record("deny", session="s2"))

        site.catalog.catch_up()

        assert site.catalog.needing() == 2
