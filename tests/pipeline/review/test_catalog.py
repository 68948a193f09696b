"""The catalogue finds what the database finds, and counts it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.review.traffic import keep, opened, record

from pipeline.audit.query import parse
from pipeline.decision import Effect
from pipeline.review import bits
from pipeline.review.catalog import Catalog
from pipeline.review.site import Site
from pipeline.store.database import Store
from pipeline.store.search import Search

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
    made = bits.of_positions(positions, 201)

    assert list(bits.newest_first(made)) == sorted(positions, reverse=True)
    assert [at for at, chosen in enumerate(bits.selectors(made)) if chosen] == sorted(positions)
    flags = bytes(3 if at in positions else 4 for at in range(201))
    assert bits.of_flags(flags, 1) == made


def test_a_site_sees_what_another_process_put_on_record(tmp_path: Path) -> None:
    with opened(tmp_path, record("deny")) as store, Store.at(tmp_path / "s.sqlite3") as other:
        site = Site(store)
        site.catalog.catch_up()
        keep(other, record("deny", session="s2"))

        site.catalog.catch_up()

        assert site.catalog.needing() == 2
