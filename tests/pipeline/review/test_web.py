"""The pages without a browser: who may see and do what, what goes on record, what a page never becomes."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from tests.pipeline.review.traffic import HOSTILE, Client, keep, opened, record

from cmf import SubjectExtension
from pipeline.audit.bundle_verification import verify_bundle
from pipeline.audit.verification import verify
from pipeline.decisions.decision import Effect, Excused, Mode
from pipeline.decisions.display import visible
from pipeline.review import actions
from pipeline.review.access import Forms, Named, Person, Proxied, Role
from pipeline.review.annotations import sampled, set_hash
from pipeline.review.site import Site, Visit
from pipeline.review.web import HEADERS, build_site
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import TWO_PEOPLE
from pipeline.store.records import stored_records

READ = ("/sessions", "/decisions", "/approvals", "/signoffs", "/policies", "/integrity", "/charts", "/report", "/sign")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    records = [record("deny", minute=n, session=f"s{n}", rule="tools/a" if n else "data/b") for n in range(4)]
    with opened(tmp_path, *records, record(minute=5, skipped=["content[1]"])) as store:
        yield store


@pytest.fixture
def client(store: Store) -> Client:
    return Client(Site(store))


def said(store: Store, kind: str) -> list[dict[str, object]]:
    return [json.loads(one.body or b"{}") for one in stored_records(store.engine, kind=kind)]


def first(client: Client, q: str = "verdict:deny") -> str:
    return str(client.json("/decisions", q=q)["rows"][0]["id"])


# Who comes in


@pytest.mark.spec("REV-31")
def test_requests_without_the_printed_token_are_refused(store: Store) -> None:
    keeper = Named(Person("alice", Role.SIGNER), "cmf_review")
    http = TestClient(build_site(Site(store), keeper))

    for path in READ:
        assert http.get(path).status_code == 401
    assert http.get("/?t=wrong", follow_redirects=False).headers.get("set-cookie") is None
    opening = http.get(f"/?t={keeper.token}", follow_redirects=False)
    assert opening.status_code == 303
    assert keeper.token not in opening.headers["location"]
    assert "HttpOnly" in opening.headers["set-cookie"]
    assert "samesite=strict" in opening.headers["set-cookie"].lower()
    assert http.get("/sessions").status_code == 200


@pytest.mark.spec("REV-32")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-user": "ann", "x-role": "admin"}, 401),
        ({"x-user": "ann", "x-role": "admin", "x-cmf-proxy-secret": "guess"}, 401),
        ({"x-user": "", "x-role": "admin", "x-cmf-proxy-secret": "s" * 20}, 401),
        ({"x-user": "ann", "x-role": "staff", "x-cmf-proxy-secret": "s" * 20}, 401),
        ({"x-user": "ann", "x-role": "staff, viewer", "x-cmf-proxy-secret": "s" * 20}, 200),
    ],
)
def test_a_proxy_names_people_only_with_its_secret(store: Store, headers: dict[str, str], status: int) -> None:
    http = TestClient(build_site(Site(store), Proxied("X-User", "X-Role", "s" * 20)))

    assert http.get("/sessions", headers=headers).status_code == status


@pytest.mark.spec("REV-32")
def test_of_several_roles_the_highest_counts_and_two_names_are_none(store: Store) -> None:
    keeper = Proxied("X-User", "X-Role", "s" * 20)
    headers = {"x-cmf-proxy-secret": "s" * 20, "x-user": "ann", "x-role": "viewer,signer,reviewer"}

    assert asyncio.run(keeper.person(headers, {})) == Person("ann", Role.SIGNER)
    http = TestClient(build_site(Site(store), keeper))
    twice = [*headers.items(), ("x-user", "root")]
    assert http.get("/sessions", headers=twice).status_code == 401


@pytest.mark.spec("REV-30")
def test_who_only_reads_changes_nothing(store: Store) -> None:
    site = Site(store)
    viewer, reviewer = Client(site, Role.VIEWER), Client(site, Role.REVIEWER)
    decision = first(viewer)
    before = site.catalog.rows[-1].seq

    for path in (f"/decisions/{decision}/review", "/session/review", "/filters", "/samples", "/export"):
        answer = viewer.post(path, disposition="ok", subject="id:ann", session="s1", name="n", q="", size="3")
        assert answer.status_code == 403, path
    for path in ("/sign", "/approvals/x", "/signoffs/x/reopen"):
        assert reviewer.post(path, q="").status_code == 403, path
    site.catalog.catch_up()
    assert site.catalog.rows[-1].seq == before
    assert "Save" not in viewer.get(f"/decisions/{decision}").text


# What may be sent


@pytest.mark.spec("REV-33")
@pytest.mark.parametrize(
    ("form", "headers"),
    [
        ({}, {}),
        ({"mark": "0" * 64}, {}),
        ({"mark": "own"}, {"origin": "https://evil.example"}),
        ({"mark": "own"}, {"origin": "null"}),
        ({"mark": "own"}, {"sec-fetch-site": "cross-site"}),
    ],
)
def test_a_form_from_elsewhere_does_nothing(
    client: Client, store: Store, form: dict[str, str], headers: dict[str, str]
) -> None:
    sent = {"disposition": "ok"} | form
    if sent.get("mark") == "own":
        sent["mark"] = client.mark()

    answer = client.http.post(f"/decisions/{first(client)}/review", data=sent, headers=headers)

    assert answer.status_code == 403
    assert said(store, "review") == []


@pytest.mark.spec("REV-33")
def test_a_mark_is_one_persons() -> None:
    forms = Forms()

    assert forms.holds(Person("ann", Role.VIEWER), forms.mark(Person("ann", Role.SIGNER)))
    assert not forms.holds(Person("bob", Role.VIEWER), forms.mark(Person("ann", Role.VIEWER)))
    assert not Forms().holds(Person("ann", Role.VIEWER), forms.mark(Person("ann", Role.VIEWER)))


@pytest.mark.spec("REV-33")
def test_forms_have_a_size_and_a_shape(client: Client) -> None:
    path = f"/decisions/{first(client)}/review"

    assert client.post(path, comment="x" * 70_000).status_code == 413
    assert client.post(path, comment="x" * 5_000).status_code == 422
    assert client.post(path).status_code == 422
    assert client.post(path, disposition="fine").status_code == 422
    for others, status in ((48, 303), (49, 422)):  # beside the mark and the disposition
        assert client.post(path, disposition="ok", **{f"f{n}": "" for n in range(others)}).status_code == status
    assert client.http.post(path, content=b"\xff=1").status_code == 422


@pytest.mark.spec("REV-34")
def test_every_answer_is_walled(client: Client, store: Store) -> None:
    for path in (*READ, "/nowhere", "/static/style.css", "/sessions.csv", f"/decisions/{first(client)}.json"):
        answer = client.get(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
    other = Client(Site(store), hosts=frozenset({"127.0.0.1:8788"}))
    assert other.get("/sessions").status_code == 421


@pytest.mark.spec("REV-34")
def test_what_came_from_outside_is_text_on_every_page(tmp_path: Path) -> None:
    bad = record("deny", subject=HOSTILE, session=HOSTILE, rule=HOSTILE, tool=HOSTILE, skipped=[HOSTILE])
    with opened(tmp_path, bad) as store:
        client = Client(Site(store), name=HOSTILE)
        client.post("/filters", name=HOSTILE, q="verdict:deny")
        client.post(f"/decisions/{bad.id}/review", comment=HOSTILE, assignee=HOSTILE)
        client.post("/samples", q="", size="1", seed=HOSTILE)
        page = client.json("/decisions")
        paths = [
            *READ,
            f"/decisions/{bad.id}",
            f"/session?subject=id:{HOSTILE}&session={HOSTILE}",
            f"/sessions?q={HOSTILE}",
        ]
        for path in paths:
            text = client.http.get(path).text
            assert "<script>alert" not in text, path
            assert "<img src=x" not in text, path
            assert ">49<" not in text, path
            assert "\u202e" not in re.sub(r'value="[^"]*"', "", text), path  # a field has what was typed
        assert page["rows"][0]["session"] == HOSTILE  # what is on record is not changed by that


# Pages


@pytest.mark.spec("REV-1")
def test_each_page_has_a_twin_and_lists_are_files(client: Client) -> None:
    for path in READ:
        assert isinstance(client.json(path), dict)
    decision = first(client)
    assert client.json(f"/decisions/{decision}")["id"] == decision
    table = list(csv.DictReader(io.StringIO(client.get("/decisions.csv", q="verdict:deny").text)))
    lines = [json.loads(line) for line in client.get("/decisions.jsonl", q="verdict:deny").text.splitlines()]
    assert [row["id"] for row in table] == [row["id"] for row in lines]
    assert len(lines) == 4
    assert len(client.get("/sessions.csv").text.splitlines()) == 5


@pytest.mark.spec("REV-1")
@pytest.mark.parametrize(
    "name", ["=cmd|'/c calc'!A1", "@SUM(1)", "+1", "-1", "\t=1", "\r=1", "\uff1dcmd", "\uff20SUM(1)"]
)
def test_csv_cells_that_could_be_formulas_are_escaped(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, record("deny", session=name, subject="a=1")) as store:
        (row,) = csv.DictReader(io.StringIO(Client(Site(store)).get("/sessions.csv").text, newline=""))

    assert (row["session"], row["subject"]) == (f"'{visible(name)}", "a=1")


@pytest.mark.spec("REV-1")
def test_csv_has_no_character_that_steers_a_terminal_or_cannot_be_seen(tmp_path: Path) -> None:
    with opened(tmp_path, record("deny", session="a\x1b[31m\u202eb\0", subject="c\nd")) as store:
        text = Client(Site(store)).get("/decisions.csv").text

    assert text.replace("\r\n", "").isprintable()
    assert r"a\u{1b}[31m\u{202e}b\u{0},deny" in text


@pytest.mark.spec("REV-4")
@pytest.mark.parametrize("q", ["nonsense", "reviewed", 'rule:"', "since:tomorrow", "since:999999w", "label:x"])
def test_what_a_query_does_not_say_is_refused_with_what_would_be_understood(client: Client, q: str) -> None:
    answer = client.get("/sessions", q=q)

    assert answer.status_code == 422
    assert "audit.query" in answer.text
    assert "The query is not valid" in answer.text or "quotation mark" in answer.text
    assert 'id="q" name="q" value="' in answer.text
    heading, _, rest = answer.text.partition("<h1>")[2].partition("</h1>")
    assert len(heading) < 80  # what is wrong; what would be understood stands below it
    assert heading.endswith(".")
    assert rest.lstrip().startswith('<p class="prose wrap">')


@pytest.mark.spec("REV-4")
def test_a_store_without_decisions_does_not_speak_of_a_filter(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        client = Client(Site(store))

        for page in ("/sessions", "/decisions"):
            assert "No decisions yet" in (shown := client.get(page).text)
            assert "Clear the filter" not in shown
            assert "Clear the filter" in client.get(page, q="verdict:deny").text


@pytest.mark.spec("REV-5")
def test_each_value_is_a_click_that_adds_it_and_one_that_takes_it_back(client: Client) -> None:
    def rule(q: str) -> dict[str, object]:
        facets = client.json("/decisions", q=q)["facets"]
        return next(
            one for facet in facets if facet["name"] == "rule" for one in facet["values"] if one["value"] == "tools/a"
        )

    assert rule("verdict:deny") == {"value": "tools/a", "count": 3, "on": False, "q": "verdict:deny rule:tools/a"}
    assert rule("verdict:deny rule:tools/a")["q"] == "verdict:deny"
    assert client.json("/decisions", q="verdict:deny rule:tools/a")["decisions"] == 3


@pytest.mark.spec("REV-6")
def test_pages_follow_one_another_without_gap_though_records_come(tmp_path: Path) -> None:
    with opened(tmp_path, *(record("deny", session=f"s{n}", minute=n) for n in range(120))) as store:
        client = Client(Site(store))
        for path, name in (("/decisions", "before"), ("/sessions", "after")):
            seen: list[str] = []
            params: dict[str, str] = {}
            while True:
                page = client.json(path, q="until:2026-01-01T14:00", **params)
                assert len(page["rows"]) == min(50, 120 - len(seen))
                seen += [row["session"] for row in page["rows"]]
                keep(store, record("deny", session=f"new{len(seen)}", minute=500))
                if page["next"] is None:
                    break
                params = {name: page["next"]}
            assert seen == [f"s{n}" for n in reversed(range(120))]
        assert client.get("/decisions", before="x").status_code == 422
        assert client.get("/sessions", after="x").status_code == 422


@pytest.mark.spec("REV-7")
def test_a_part_that_was_never_evaluated_cannot_be_overlooked(client: Client) -> None:
    page = client.get("/session", subject="id:ann", session="s1").text

    assert "Not everything was evaluated." in page
    assert "<strong>Not evaluated:</strong>" in page
    assert "content[1]" in page
    decision = client.get(f"/decisions/{first(client, 'covered:no')}").text
    assert "1 of 2 parts were not evaluated.</strong> That is not an allow." in decision
    assert client.json("/sessions", q="covered:no")["rows"][0]["not_covered"] == 1
    assert client.get("/session", subject="id:ann", session="none").status_code == 404


@pytest.mark.spec("REV-8")
@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (record("deny"), "Refused: rule tools/a denied the tool call pay."),
        (record(), "Let through: no rule objected to the one part."),
        (record("require_approval"), "Held for approval: rule tools/a wants a person to approve the tool call pay."),
        (record("warn"), "Let through with a warning: rule tools/a warned about the tool call pay."),
        (record(effect=Effect.REDACT), "Let through after 1 edit: rule tools/a masked 0 places in the tool call pay."),
        (
            record("deny", mode=Mode.OBSERVE),
            "Let through, because policy is in observe mode. It would have been stopped: "
            "rule tools/a denied the tool call pay.",
        ),
        (
            record("deny", excused=Excused("eve", "2026-12-31")),
            "Let through under an exception, although rule tools/a denied the tool call pay.",
        ),
        (
            record("deny", excused=Excused("eve", "2026-12-31T00:00:00Z", "ovr_1")),
            "Let through under an override, although rule tools/a denied the tool call pay.",
        ),
        (
            record(effect=Effect.REDACT, excused=Excused("eve", "2026-12-31")),
            "Let through: no rule objected to the one part. 1 hit was excused, and so not enforced.",
        ),
        (record("deny", rule="engine"), "Refused: policy could not judge the tool call pay (a.b)."),
        (
            record(skipped=["a", "b"]),
            "Let through: no rule objected to the one part. 2 of 3 parts were not evaluated.",
        ),
    ],
)
def test_a_decision_begins_with_what_happened(tmp_path: Path, one, sentence: str) -> None:
    with opened(tmp_path, one) as store:
        page = Client(Site(store)).json(f"/decisions/{one.id}")

    assert page["said"] == sentence


@pytest.mark.spec("REV-8")
@pytest.mark.parametrize("path", ["/sessions", "/decisions", "/policies", "decision"])
def test_every_time_says_its_zone(client: Client, path: str) -> None:
    decision = first(client)
    page = client.get(f"/decisions/{decision}" if path == "decision" else path).text
    times = re.findall(r'<time datetime="([^"]*)">(.*?)</time>', page)

    assert times
    assert all(at.endswith(("Z", "+00:00")) and "UTC" in shown for at, shown in times)
    assert path != "decision" or f'<dd class="mono">{decision}</dd>' in page


@pytest.mark.spec("REV-10")
def test_a_decision_has_its_record_what_was_left_out_and_its_place(client: Client, store: Store) -> None:
    page = client.json(f"/decisions/{first(client)}")

    assert page["erased_pointers"] == ["/input"]
    assert page["record"]["decision_id"] == page["id"]
    (leaf,) = [
        one
        for log in StoreEvidence(store.engine).logs()
        for one in StoreEvidence(store.engine).leaves(log.id)
        if one.id == page["id"]
    ]
    assert (page["integrity"]["place"], page["integrity"]["digest"]) == (leaf.place, leaf.row["digest"])


# What people do


@pytest.mark.spec("REV-20")
def test_a_review_is_a_record_that_names_who_and_what(client: Client, store: Store) -> None:
    decision = first(client)

    answer = client.post(
        f"/decisions/{decision}/review", disposition="false_positive", comment="Known.", assignee="bob"
    )

    assert (answer.status_code, answer.headers["location"]) == (303, f"/decisions/{decision}")
    (body,) = said(store, "review")
    assert body["by"] == {"id": "alice", "role": "signer"}
    assert (body["decision"], body["disposition"], body["comment"], body["assignee"]) == (
        decision,
        "false_positive",
        "Known.",
        "bob",
    )
    assert client.json("/decisions", q="disposition:false_positive assignee:bob reviewed:yes")["decisions"] == 1
    assert client.json("/decisions", q="needs:review")["decisions"] == 4
    client.post(f"/decisions/{decision}/review", disposition="incident")
    assert client.json("/decisions", q="disposition:false_positive")["decisions"] == 0
    assert len(said(store, "review")) == 2
    assert verify(StoreEvidence(store.engine)).holds


@pytest.mark.spec("REV-20")
def test_a_review_of_a_session_is_one_of_what_needs_eyes_in_it(client: Client, store: Store) -> None:
    keep(store, record("deny", session="s2"), record(session="s2"))
    decided = client.json("/decisions", q="session:s2 verdict:deny")["rows"]
    client.post(f"/decisions/{decided[0]['id']}/review", disposition="incident")

    client.post("/session/review", subject="id:ann", session="s2", disposition="ok", assignee="bob")

    states = {row["id"]: row["disposition"] for row in client.json("/decisions", q="session:s2")["rows"]}
    assert [states[row["id"]] for row in decided] == ["incident", "ok"]
    assert sorted(states.values()) == ["", "incident", "ok"]
    assert client.json("/sessions", q="session:s2")["rows"][0]["assignee"] == "bob"
    assert client.post("/session/review", subject="id:ann", session="none", disposition="ok").status_code == 404


@pytest.mark.spec("REV-21")
@pytest.mark.parametrize(
    ("form", "scope", "count"),
    [
        ({"q": "rule:tools/a"}, "filter", 3),
        ({"q": "since:2026-01-01T12:01 until:2026-01-01T12:03"}, "period", 2),
        ({"subject": "id:ann", "session": "s1"}, "session", 2),
    ],
)
def test_a_signature_is_about_exactly_the_set_that_was_shown(
    client: Client, store: Store, form: dict[str, str], scope: str, count: int
) -> None:
    shown = client.json("/sign", **form)
    keep(store, record("deny", session="later", rule="tools/z", minute=30))

    answer = client.post("/sign", hash=shown["hash"], comment="Seen.", **form)

    (body,) = said(store, "signoff")
    assert answer.headers["location"] == f"/signoffs/{body['id']}"
    assert (body["scope"], body["records"], body["hash"]) == (scope, count, shown["hash"])
    assert client.json("/decisions", q="signed:yes")["decisions"] == count
    assert client.json(f"/signoffs/{body['id']}")["stands"] is True


@pytest.mark.spec("REV-21")
def test_a_set_that_changed_since_it_was_shown_is_not_signed(client: Client, store: Store) -> None:
    shown = client.json("/sign", q="verdict:deny")
    keep(store, record("deny"))

    assert client.post("/sign", q="verdict:deny", hash=shown["hash"]).status_code == 409
    assert client.post("/sign", q="verdict:warn", hash=shown["hash"]).status_code == 422
    assert said(store, "signoff") == []


@pytest.mark.spec("REV-21")
def test_the_places_that_were_signed_are_the_set_though_other_records_lie_between(client: Client, store: Store) -> None:
    client.post(f"/decisions/{first(client)}/review", comment="between")
    keep(store, record("deny", session="s9"), record(session="s9"), record("deny", session="s9"))
    site = Site(store)
    site.catalog.catch_up()
    client.post("/sign", q="verdict:deny", hash=client.json("/sign", q="verdict:deny")["hash"])
    (body,) = said(store, "signoff")

    rows = site.catalog.decisions_in(body["set"])

    assert len(rows) == 6
    assert len({row.log for row in rows}) == 1
    lines = "".join(f"{row.id} {row.digest}\n" for row in sorted(rows, key=lambda row: row.place or 0))
    assert hashlib.sha256(lines.encode()).hexdigest() == set_hash(rows) == body["hash"]
    assert sum(len(stretches) for stretches in body["set"].values()) == 3  # type: ignore[union-attr, attr-defined]


@pytest.mark.spec("REV-41")
def test_a_review_of_all_that_was_found_is_of_1000_decisions_at_most(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert actions.MAX_SAMPLE == 1_000
    form = {"q": "verdict:deny", "upto": str(client.json("/decisions")["upto"]), "disposition": "ok"}
    for most, status in ((3, 422), (4, 303)):
        monkeypatch.setattr(actions, "MAX_SAMPLE", most)
        assert client.post("/review", **form).status_code == status


@pytest.mark.spec("REV-41")
def test_a_bulk_review_covers_the_decisions_that_were_listed_and_no_later_ones(client: Client, store: Store) -> None:
    q = "verdict:deny"
    upto = str(client.json("/decisions", q=q)["upto"])
    settled = first(client, "session:s1 verdict:deny")
    client.post(f"/decisions/{settled}/review", disposition="incident")
    later = keep(store, record("deny", session="later"))
    form = {"q": q, "upto": upto, "disposition": "false_positive", "assignee": "bob"}

    for wrong in ({"upto": "x"}, {"upto": ""}, {"q": "subject:nobody"}, {"disposition": "", "assignee": ""}):
        assert client.post("/review", **{**form, **wrong}).status_code == 422
    assert client.post("/review", **form).status_code == 303

    assert client.json("/decisions", q="disposition:false_positive")["decisions"] == 3
    assert client.json("/decisions", q="disposition:incident")["decisions"] == 1
    assert client.json("/decisions", q="assignee:bob")["decisions"] == 4
    assert client.json("/decisions", q="needs:review verdict:deny")["rows"][0]["id"] == later[0]
    assert client.post(f"/decisions/{settled}/review", comment="\u2060").status_code == 422
    *_, body = said(store, "review")
    assert len(body["decisions"]) == 4  # type: ignore[arg-type]
    assert client.json(f"/decisions/{settled}")["words"][-1]["assignee"] == "bob"
    assert Client(Site(store), Role.VIEWER).post("/review", **form).status_code == 403


@pytest.mark.spec("REV-39")
def test_where_two_people_are_needed_a_period_is_signed_once_the_second_signed(store: Store) -> None:
    site = Site(store)
    ann, bob = Client(site, name="ann"), Client(site, name="bob")
    two = SubjectExtension(id="x", permissions=frozenset({TWO_PEOPLE}))
    store.contents().four_eyes.need_two(True, actor=two, reason="our rule")

    def sign(client: Client, **form: str) -> str:
        shown = client.json("/sign", **form)
        return str(client.post("/sign", hash=shown["hash"], **form).headers["location"])

    def signed() -> int:
        return int(ann.json("/decisions", q="signed:yes")["decisions"])

    assert ann.json("/sign", q="since:2026-01-01")["two"] is True
    sign(ann, subject="id:ann", session="s1")
    assert signed() == 2
    path = sign(ann, q="since:2026-01-01")
    assert (signed(), ann.json(path)["waits"]) == (2, True)
    assert ann.post(f"{path}/second").status_code == 409
    assert Client(site, name="Ann").post(f"{path}/second").status_code == 409
    assert Client(site, Role.REVIEWER, "rita").post(f"{path}/second").status_code == 403
    assert "needs a second signature" in ann.get("/signoffs").text
    assert "Second signature" not in ann.get(path).text
    assert "Second signature" in bob.get(path).text
    assert bob.post(f"{path}/second", comment="Seen.").status_code == 303
    assert signed() == Client(Site(store)).json("/decisions", q="signed:yes")["decisions"] == 5
    assert (ann.json(path)["waits"], ann.json(path)["second"]["by"]) == (False, "bob")
    assert bob.post(f"{path}/second").status_code == 409
    assert ann.post(f"{path}/reopen", comment="\u200b\u00ad").status_code == 422
    ann.post(f"{path}/reopen", comment="Missed one.")
    assert signed() == 0
    other = sign(bob, q="verdict:deny")
    ann.post(f"{other}/reopen", comment="Not yet.")
    assert ann.post(f"{other}/second").status_code == 409
    assert [body["action"] for body in said(store, "signoff")] == ["sign", "sign", "second", "reopen", "sign", "reopen"]


@pytest.mark.spec("REV-39")
def test_a_second_signature_written_past_the_site_counts_only_if_valid(store: Store) -> None:
    site = Site(store)
    ann = Client(site, name="ann")
    two = SubjectExtension(id="x", permissions=frozenset({TWO_PEOPLE}))
    store.contents().four_eyes.need_two(True, actor=two, reason="our rule")
    shown = ann.json("/sign", q="verdict:deny")
    path = str(ann.post("/sign", q="verdict:deny", hash=shown["hash"]).headers["location"])
    of = path.rpartition("/")[2]

    for who, signed in (("ann", shown["hash"]), ("Ann", shown["hash"]), ("bob", "0" * 64)):
        visit = Visit(Person(who, Role.SIGNER), {})
        site.record(visit, "signoff", "second", {"of": of, "hash": signed})

    assert ann.json(path)["waits"] is True
    assert ann.json("/decisions", q="signed:yes")["decisions"] == 0


@pytest.mark.spec("REV-40")
def test_the_report_has_decisions_and_reviews_by_week(tmp_path: Path) -> None:
    week = 7 * 24 * 60
    excused = Excused("eve", "2026-12-31T00:00:00Z", "ovr_1")
    late = [record("deny", minute=week, rule="tools/b"), record(minute=week, skipped=["content[1]"])]
    early = [record("deny"), record("deny", excused=excused), record("deny", rule="engine", mode=Mode.OBSERVE)]
    with opened(tmp_path, *early, record("require_approval"), record(effect=Effect.REDACT), *late) as store:
        client = Client(Site(store))
        client.post(f"/decisions/{early[0].id}/review", disposition="false_positive")
        client.post(f"/decisions/{early[1].id}/review", disposition="ok")
        newer, older = client.json("/report")["weeks"]
        rules = {row["rule"]: row for row in client.json("/report")["rules"]}
        page, rows = client.get("/report").text, list(csv.DictReader(io.StringIO(client.get("/report.csv").text)))
        nothing = client.get("/report", q="subject:nobody").text

    assert (newer["week"], newer["from"], older["week"]) == ("2026-W02", "2026-01-05", "2026-W01")
    assert [newer[name] for name in ("decisions", "denied", "not_judged", "open", "reviewed")] == [2, 1, 1, 2, 0]
    assert (newer["false_positive_percent"], newer["mean_seconds_to_review"]) == (None, None)
    figures = ("decisions", "denied", "held", "edited", "went_on_in_outage", "overridden", "open", "reviewed")
    assert [older[name] for name in figures] == [5, 3, 1, 1, 1, 1, 3, 2]
    assert older["false_positive_percent"] == 50.0
    assert older["mean_seconds_to_review"] > 0
    assert older["rules"] == {"tools/a": 4, "engine": 1}
    assert (rules["tools/a"]["reviewed"], rules["tools/b"]["denied"]) == (2, 1)
    assert "50.0 %" in page
    assert "override%3A%2A" in page
    assert [row["week"] for row in rows] == ["2026-W02", "2026-W01"]
    assert "Nothing matches." in nothing


@pytest.mark.spec("REV-22")
def test_opening_again_adds_a_record_and_takes_none_away(client: Client, store: Store) -> None:
    for signer in (client, Client(Site(store), name="bob")):
        signer.post("/sign", q="rule:tools/a", hash=client.json("/sign", q="rule:tools/a")["hash"])
    older, newer = (str(body["id"]) for body in said(store, "signoff"))

    assert client.post(f"/signoffs/{older}/reopen").status_code == 422
    client.post(f"/signoffs/{older}/reopen", comment="Missed one.")
    assert client.json("/decisions", q="signed:yes")["decisions"] == 3
    client.post(f"/signoffs/{newer}/reopen", comment="This too.")
    assert client.json("/decisions", q="signed:yes")["decisions"] == 0
    assert client.post(f"/signoffs/{newer}/reopen", comment="Again.").status_code == 409
    assert [body["action"] for body in said(store, "signoff")] == ["sign", "sign", "reopen", "reopen"]


@pytest.mark.spec("REV-23")
def test_whoever_has_the_seed_draws_the_same(client: Client, store: Store) -> None:
    client.post("/samples", q="verdict:deny", size="2", seed="seven")
    client.post("/samples", q="verdict:deny", size="2", by_rule="yes", seed="seven")
    plain, by_rule = said(store, "sample")

    catalog = Site(store).catalog
    catalog.catch_up()
    rows = [row for row in catalog.rows if row.kind == "decision" and row.verdict == "deny"]
    assert plain["ids"] == [row.id for row in sampled(rows, "seven", 2)]
    keys = {hashlib.sha256(f"seven\n{row.id}".encode()).digest(): row.id for row in rows}
    assert sorted(map(str, plain["ids"])) == sorted(keys[key] for key in sorted(keys)[:2])  # type: ignore[call-overload]
    others = [[row.id for row in sampled(rows, str(seed), 2)] for seed in range(50)]
    assert any(plain["ids"] != other for other in others)
    drawn = client.json("/decisions", q=f"sample:{by_rule['id']}")["rows"]
    assert sorted(rule for row in drawn for rule in row["rules"]) == ["data/b", "tools/a"]
    assert client.post("/samples", q="", size="0").status_code == 422
    assert client.post("/samples", q="verdict:warn", size="1").status_code == 422


@pytest.mark.spec("REV-24")
def test_a_filter_is_saved_under_a_name_and_taken_away_by_an_empty_one(client: Client) -> None:
    client.post("/filters", name="Denied", q="verdict:deny")
    assert client.json("/sessions")["filters"] == [{"name": "Denied", "q": "verdict:deny", "by": "alice"}]
    client.post("/filters", name="Denied", q="")
    assert client.json("/sessions")["filters"] == []
    assert client.post("/filters", name="Bad", q="nonsense").status_code == 422


@pytest.mark.spec("REV-25")
def test_exported_evidence_has_decisions_and_reviews(client: Client, store: Store, tmp_path: Path) -> None:
    client.post(f"/decisions/{first(client)}/review", disposition="ok")
    client.post("/samples", q="verdict:deny", size="1")
    client.post("/sign", q="verdict:deny", hash=client.json("/sign", q="verdict:deny")["hash"])

    answer = client.post("/export", q="rule:tools/a")

    file = tmp_path / "evidence.zip"
    file.write_bytes(answer.content)
    report = verify_bundle(file)
    assert report.holds
    assert report.manifest is not None
    assert report.manifest.signed_by == store.key_id
    with zipfile.ZipFile(file) as bundle:
        kinds = [json.loads(line)["kind"] for line in bundle.read("records.jsonl").splitlines()]
    assert sorted(kinds) == [*["decision"] * 3, "export", "log", "review", "sample", "signoff"]
    assert [body["query"] for body in said(store, "export")] == ["rule:tools/a"]


@pytest.mark.spec("REV-36")
def test_the_integrity_page_says_what_holds_and_names_what_does_not(client: Client, store: Store) -> None:
    assert client.json("/integrity")["checked"] is None
    client.post("/integrity")
    checked = client.json("/integrity")["checked"]
    assert (checked["holds"], checked["records"]) == (True, 6)
    bad = first(client)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE records SET subject = 'id:eve' WHERE id = ?", (bad,))
    client.post("/integrity")
    page = client.get("/integrity").text
    assert "The log is not intact." in page
    assert "record.changed" in page
    assert bad in page


@pytest.mark.spec("REV-38")
def test_it_is_mounted_below_a_path_of_another_application(store: Store) -> None:
    keeper = Named(Person("alice", Role.SIGNER), "cmf_review")
    app = Starlette(routes=[Mount("/review", app=build_site(Site(store), keeper, base="/review"))])
    http = TestClient(app, cookies={"cmf_review": keeper.token})

    page = http.get("/review/sessions")

    assert page.status_code == 200
    assert 'href="/review/decisions"' in page.text
    assert 'href="/decisions' not in page.text
    assert http.get("/review/static/style.css").status_code == 200
