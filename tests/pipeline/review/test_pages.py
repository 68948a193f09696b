"""Rules with their places, policies and charts, content that is kept, a large store, files of the package."""

from __future__ import annotations

import hashlib
import importlib.resources
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.review.traffic import HOSTILE, Client, keep, opened, record
from tests.pipeline.session_stores import ANN, taint
from typer.testing import CliRunner

from pipeline.approvals.declassification import declassify
from pipeline.audit.bundle import open_bundle
from pipeline.audit.query import Disposition
from pipeline.audit.record import Record
from pipeline.cli.app import app
from pipeline.decisions.authority import DECLASSIFY, holder
from pipeline.policy.analysis import line_of
from pipeline.review.catalog import Catalog
from pipeline.review.contents import Kept, kept_of
from pipeline.review.oversight import spread
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.site import Site
from pipeline.review.web import HTMX_SHA256
from pipeline.run.assembly import load_policies
from pipeline.sessions.base import MemorySessions

FULL = 100_000
PAGE_MS = 300


@pytest.mark.spec("REV-9")
@pytest.mark.native
def test_a_rule_leads_to_the_line_that_spoke(tmp_path: Path) -> None:
    policies = load_policies(None)
    rule = "tools/argument_bounds"
    one = record("deny", rule=rule, revision=policies.revision)
    other = record("deny", rule=rule)
    with opened(tmp_path, one, other) as store:
        client = Client(Site(store, policies=PoliciesAtHand([policies])))

        (known,) = client.json(f"/decisions/{one.id}")["rules"]
        (unknown,) = client.json(f"/decisions/{other.id}")["rules"]
        page = client.json("/rule", revision=policies.revision, id=rule)

        assert page["lines"][known["place"]["line"] - 1] == "deny contains {"
        assert page["path"] == known["place"]["path"]
        assert unknown["place"] is None
        assert client.get("/rule", revision="r" * 64, id=rule).status_code == 404


@pytest.mark.spec("REV-9")
def test_of_several_definitions_the_one_with_the_code_is_meant() -> None:
    one, two = (f'deny contains {{\n\t"code": "{code}",\n}} if true\n' for code in ("a.one", "a.two"))
    text = f"package a\n\n{one}\n{two}"

    assert line_of(text, "deny", "a.two") == 7
    assert line_of(text, "deny", "a.other") == 3
    assert line_of(text, "warn", "a.one") == 1


@pytest.mark.spec("REV-11")
def test_revisions_are_listed_with_what_ran_under_them(tmp_path: Path) -> None:
    old = [record("deny", revision="a" * 64, session="s1"), record(revision="a" * 64, session="s2", minute=3)]
    with opened(tmp_path, *old, record(revision="b" * 64, minute=60)) as store:
        newest, oldest = Client(Site(store)).json("/policies")["rows"]

    assert (newest["revision"], newest["decisions"], newest["denied"]) == ("b" * 64, 1, 0)
    assert (oldest["decisions"], oldest["denied"], oldest["sessions"], oldest["hit"]) == (2, 1, 2, [["tools/a", 1]])
    assert (oldest["first"], oldest["last"]) == ("2026-01-01T12:00:00Z", "2026-01-01T12:03:00Z")


@pytest.mark.spec("REV-11")
def test_charts_are_tables_of_what_the_query_finds(tmp_path: Path) -> None:
    rows = [record("deny", minute=n, subject="bob" if n == 1 else "ann") for n in (0, 1, 30)]
    with opened(tmp_path, *rows, record("require_approval", minute=31)) as store:
        client = Client(Site(store))

        charts = client.json("/charts")

        assert [(row["all"], row["denied"], row["held"]) for row in charts["time"]["rows"] if row["all"]] == [
            (1, 1, 0), (1, 1, 0), (1, 1, 0), (1, 0, 1),
        ]  # fmt: skip
        assert len(charts["time"]["bars"]) == len(charts["time"]["rows"]) == 32
        assert charts["subjects"] == [
            {"value": "ann", "count": 2, "share": 100.0},
            {"value": "bob", "count": 1, "share": 50.0},
        ]
        assert [row["count"] for row in charts["latency"]] == [1.2] * 5
        assert client.json("/charts", q="subject:nobody")["time"]["rows"] == []
        assert client.get("/charts", q="subject:nobody").status_code == 200
    assert [row["count"] for row in spread(range(1, 101))] == [51, 91, 96, 100, 100]


@pytest.mark.spec("REV-44")
def test_a_long_name_is_clipped_in_lists_and_whole_on_its_page_and_in_files(tmp_path: Path) -> None:
    long, uuid = f"conv_{'x' * 90}_17", "906704c3-65d6-0b6e-46e3-db95d4350b28"
    with opened(tmp_path, record("deny", session=long, subject=uuid), record(session=None)) as store:
        client = Client(Site(store))
        (row,) = client.json("/sessions", q="verdict:deny")["rows"]
        lists = [client.get(path).text for path in ("/sessions", "/decisions")]
        page = client.get("/session", subject=row["subject_key"], session=long).text

    for shown in lists:
        assert f'title="{long}">conv_xxxxxxxxxxxxxxxxxx…xxxxxxxxx_17</span>' in shown
        assert f">{uuid}</span>" in shown
        assert ">no session</span>" in shown
    assert f">{long}</h1>" in page
    assert row["session"] == long


@pytest.mark.spec("REV-12")
def test_pages_show_whether_content_is_kept_without_reading_it(tmp_path: Path) -> None:
    kept, none = record("deny", content=b"SECRET"), record("deny")
    with opened(tmp_path, kept, none) as store:
        site = Site(store)
        client = Client(site)
        path = f"/decisions/{kept.id}/reveal"

        assert client.json(f"/decisions/{kept.id}")["content"] == "here"
        assert client.json(f"/decisions/{none.id}")["content"] == "none"
        assert "SECRET" not in client.get(f"/decisions/{kept.id}").text
        assert client.post(path).status_code == 422  # no reason
        assert client.post(f"/decisions/{none.id}/reveal", reason="why").status_code == 409
        assert [row.kind for row in site.catalog.rows].count("reveal") == 0

        row = site.catalog.row(kept.id)
        assert row is not None
        with store.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM contents")
        assert kept_of(site.contents, kept.id, site.bodies([row])[row.seq]) is Kept.ERASED
        assert "The content was erased." in client.get(f"/decisions/{kept.id}").text


@pytest.mark.spec("REV-37")
@pytest.mark.proof
def test_pages_of_a_large_store_are_quick(tmp_path: Path, proof_scale: float, proof_row: Callable[..., None]) -> None:
    count = int(FULL * proof_scale)
    verdicts = ["allow"] * 9 + ["deny"]
    with opened(tmp_path) as store:
        for start in range(0, count, 2_000):
            each = range(start, min(start + 2_000, count))
            keep(
                store,
                *(
                    record(verdicts[n % 10], session=f"s{n // 20}", subject=f"u{n // 20 % 300}", tool=f"t{n % 30}")
                    for n in each
                ),
            )
        began = time.perf_counter()
        client = Client(Site(store))
        client.get("/sessions")
        caught_up = time.perf_counter() - began
        took: dict[str, float] = {}
        for path in (
            "/sessions?q=needs:review",
            "/sessions",
            "/decisions?q=verdict:deny",
            "/decisions?q=tool:t3",
            "/charts",
        ):
            client.http.get(path)
            began = time.perf_counter()
            answer = client.http.get(path)
            took[path] = round(1000 * (time.perf_counter() - began))
            assert answer.status_code == 200
    proof_row(
        "pages of the review site, ms (at most 300 are promised)", records=count, first=f"{caught_up:.1f} s", **took
    )


@pytest.mark.spec("REV-20")
def test_dispositions_are_the_five_that_reviewers_know() -> None:
    assert [one.value for one in Disposition] == [
        "ok",
        "false_positive",
        "false_negative",
        "needs_policy_change",
        "incident",
    ]


@pytest.mark.spec("REV-34")
def test_the_script_from_elsewhere_is_the_one_that_was_published() -> None:
    static = importlib.resources.files("pipeline").joinpath("review", "static")

    assert hashlib.sha256(static.joinpath("htmx.min.js").read_bytes()).hexdigest() == HTMX_SHA256
    for name in ("review.js", "style.css", "icon.svg"):
        text = static.joinpath(name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", "") or name == "review.js"
        assert "http" not in text


@pytest.mark.spec("CLI-90")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--as", "ann"], 5),
        ([], 2),
        (["--as", "ann", "--proxy-secret", "x"], 2),
    ],
)
def test_the_command_refuses_what_it_cannot_serve(tmp_path: Path, options: list[str], code: int) -> None:
    missing = tmp_path / "none.sqlite3"

    done = CliRunner().invoke(app, ["review", str(missing), *options])

    assert done.exit_code == code, done.output
    assert not missing.exists()


def test_an_empty_store_has_pages(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        client = Client(Site(store))
        for path in ("/sessions", "/decisions", "/charts", "/integrity", "/policies", "/signoffs", "/approvals"):
            assert client.get(path).status_code == 200, path
        assert client.get("/sign").status_code == 422
        assert Catalog(store).needing() == 0


_KINDS = ("review", "signoff", "sample", "filter", "export", "reveal", "ask", "grant", "declassify", "decision")


@pytest.mark.spec("REV-34")
@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"{}", b'{"by": {"id": "eve"}}', b'{"by": {"id": "eve"}, "action": "sign", "set": {"l": [[1]]}}',
        b'{"by": {"id": "eve"}, "action": "sign", "set": 1, "session": 3, "decision": [], "ids": {}, "name": 1}',
        b'{"by": {"id": "eve"}, "action": "reopen", "of": [], "disposition": {}, "session": {"subject": 1}}',
        b'{"actor": "eve", "contents": [], "result": {"views": 3}}',
        b'{"by": {"id": "eve"}, "label": "x", "reason": "", "scope": "", "sources": [1], "until": "", "decisions": 3,'
        b'"second": {"id": 3}, "assignee": [], "grant": {}, "session": {"subject": "id:ann", "id": "s1"}}',
        b'{"result": {"verdict": 1, "action": [], "mode": {}, "coverage": {"produced": "x"}, "views": []}}',
    ],
)  # fmt: skip
def test_foreign_records_in_the_store_break_no_page(tmp_path: Path, body: bytes) -> None:
    whole = record("deny")
    odd = [replace(whole, id=f"odd_{kind}", kind=kind, body=body, session="odd") for kind in _KINDS]
    with opened(tmp_path, *odd, whole) as store:
        client = Client(Site(store))
        for path in (
            "/sessions",
            "/decisions",
            "/signoffs",
            "/charts",
            "/session?subject=id:ann&session=s1",
            "/session?subject=id:ann&session=odd",
            f"/decisions/{whole.id}",
            "/decisions/odd_decision",
        ):
            assert client.get(path).status_code == 200, path


@pytest.mark.spec("REV-42", "REV-25")
def test_a_lifted_label_is_on_the_page_of_its_session_and_in_the_evidence(tmp_path: Path) -> None:
    lifts: list[Record] = []
    sessions = MemorySessions()
    sessions.commit(ANN, None, taint("secret", "e1"))
    eve, dan = holder("eve", DECLASSIFY), holder("dan", DECLASSIFY)
    for_an_hour: Any = {"reason": HOSTILE, "expires_in": timedelta(hours=1), "record": lifts.append}
    declassify(sessions, ANN, label="secret", actor=eve, seconder=dan, scope="report", **for_an_hour)
    with opened(tmp_path, record("deny"), *lifts, record(session="s2")) as store:
        client = Client(Site(store))

        page = client.get("/session", subject="id:ann", session="s1").text
        (word,) = client.json("/session", subject="id:ann", session="s1")["words"]
        evidence = client.post("/export", q="session:s2").content

    assert "<script>alert" not in page
    assert "for 1 event with <strong>dan</strong> (report), until" in page
    assert (word["by"], word["second"], word["label"], word["reason"]) == ("eve", "dan", "secret", HOSTILE)
    (tmp_path / "evidence.zip").write_bytes(evidence)
    assert lifts[0].id in {leaf.id for _, leaf, _ in open_bundle(tmp_path / "evidence.zip").proved()}
