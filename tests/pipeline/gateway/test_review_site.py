"""The review site of a gateway: nobody without a role sees anything, and what is done there is done by a subject."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, asked, said, serving_process
from tests.pipeline.gateway.servers import KEY, script
from tests.pipeline.review.traffic import keep, record
from typer.testing import CliRunner

from pipeline.audit.heads import Signer
from pipeline.cli.app import app
from pipeline.decisions.errors import ConfigError, PolicyError
from pipeline.gateway.auth.identity import hash_of
from pipeline.gateway.config import config_file
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.processes.workers import admin_app
from pipeline.gateway.review_site import COOKIE, reviewing
from pipeline.review.access import MOST_SIGNED_IN, Person, Refused, Role, SignedIn
from pipeline.review.web import HEADERS
from pipeline.store.database import Store
from pipeline.store.records import stored_records

REVIEWER, VIEWER, SECRET = "cmf_a-reviewer-s-key", "cmf_a-viewer-s-key", "s" * 32
AS_REVIEWER = {"authorization": f"Bearer {REVIEWER}"}
ROLES = {"auditor": "reviewer", "head-of-audit": "signer", "guest": "viewer"}
PAGES = (
    "/sessions",
    "/decisions",
    "/approvals",
    "/policies",
    "/integrity",
    "/charts",
    "/signoffs",
    "/sign",
    "/nowhere",
)
FORMS = ("/samples", "/export", "/filters", "/integrity", "/sign")


def key(name: str, secret: str, *roles: str) -> dict[str, Any]:
    return {"name": name, "hash": hash_of(secret), "subject": {"id": name, "roles": list(roles)}}


def settings(home: Path, **more: Any) -> Settings:
    body = {
        "upstreams": {"up": script(home, {"text": "ok"})},
        "routes": [{"name": "all", "upstream": "up"}],
        "keys": [key("ann", KEY, "agent"), key("rita", REVIEWER, "auditor", "guest"), key("vic", VIEWER, "guest")],
        "admin": {"port": 0, "hosts": ["gateway", "review.example"]},
        "review": {"roles": ROLES},
        **more,
    }
    file = home / "cmf.yaml"
    file.write_text(yaml.safe_dump({name: part for name, part in body.items() if part is not None}), encoding="utf-8")
    return config_file.load(file, {"SECRET": SECRET}).settings


@contextmanager
def mounted(home: Path, **more: Any) -> Iterator[TestClient]:
    """The port of whoever runs the gateway, with a denied decision of `ann` in the session `s-canary` on record."""
    known = settings(home, **more)
    with Store.at(home / "cmf.db") as store:
        keep(store, record("deny", subject="ann", session="s-canary", tool="pay-canary"))
    with (
        reviewing(known, {"SECRET": SECRET}) as site,
        TestClient(
            admin_app(known, None, site),
            base_url="http://gateway:9600",
            follow_redirects=False,  # type: ignore[arg-type]
        ) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with mounted(tmp_path_factory.mktemp("gateway")) as client:
        yield client


@pytest.mark.native
@pytest.mark.spec("GW-220")
@pytest.mark.spec("GW-221")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer cmf_nobody-s"}, 401),
        ({"authorization": "Basic x"}, 401),
        ({"cookie": f"{COOKIE}=guess"}, 401),
        ({"x-forwarded-user": "rita", "x-forwarded-groups": "admin"}, 401),
        ({"x-api-key": KEY, **AS_REVIEWER}, 400),
        ({"authorization": f"Bearer {KEY}"}, 403),
    ],
)
def test_the_review_pages_show_nothing_without_a_role(client: TestClient, headers: dict[str, str], status: int) -> None:
    for path in PAGES[:-1]:
        for twin in ("", ".json"):
            answer = client.get(f"/review{path}{twin}", headers=headers)
            assert answer.status_code == status, path
            assert "canary" not in answer.text
            assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
    for path in FORMS:
        assert client.post(f"/review{path}", data={"q": "", "size": "3"}, headers=headers).status_code == status
    assert client.get("/review/decisions.csv", headers=headers).status_code == status


@pytest.mark.native
@pytest.mark.spec("GW-221")
def test_the_refusal_is_a_page_of_the_site_with_a_place_for_a_key(client: TestClient) -> None:
    for headers in ({}, {"authorization": f"Bearer {KEY}"}):
        page = client.get("/review/sessions", headers=headers).text
        assert 'action="/review/enter"' in page
        assert 'href="/review/static/style.css"' in page
        assert "Sign out" not in page
    assert client.get("/review/sessions.json").json()["error"]["code"] == "auth.missing"


@pytest.mark.native
@pytest.mark.spec("GW-220")
def test_without_a_word_in_the_settings_there_is_no_site(tmp_path: Path) -> None:
    with mounted(tmp_path, review=None) as client:
        for path in PAGES:
            answer = client.get(f"/review{path}", headers=AS_REVIEWER)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route.unknown")
    for no_site in ("/reviews", "/reviewer/sessions"):
        assert client.get(no_site, headers=AS_REVIEWER).status_code == 404


@pytest.mark.native
@pytest.mark.spec("GW-221")
def test_the_highest_of_a_subject_s_roles_counts_and_reading_takes_the_lowest(client: TestClient) -> None:
    read = client.get("/review/decisions.json", headers={"authorization": f"Bearer {VIEWER}"})
    page = client.get("/review/sessions", headers=AS_REVIEWER).text

    assert read.json()["rows"][0]["session"] == "s-canary"
    assert "rita" in page
    assert "reviewer" in page
    assert "Draw a sample" in page
    assert "Sign off the results" not in page
    assert client.get("/review", headers=AS_REVIEWER).status_code in (303, 307)


def mark_in(page: str) -> str:
    found = re.search(r'name="mark" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


@pytest.mark.native
@pytest.mark.spec("GW-222")
def test_what_a_reviewer_says_is_on_record_under_the_subject_of_the_key(tmp_path: Path) -> None:
    with mounted(tmp_path) as client:
        decision = client.get("/review/decisions.json", headers=AS_REVIEWER).json()["rows"][0]["id"]
        of_vic = mark_in(client.get("/review/integrity", headers={"authorization": f"Bearer {VIEWER}"}).text)
        of_rita = mark_in(client.get("/review/integrity", headers=AS_REVIEWER).text)
        incident = {"disposition": "incident", "by": "somebody-else"}
        path = f"/review/decisions/{decision}/review"

        assert client.post(path, data=incident, headers=AS_REVIEWER).status_code == 403
        assert client.post(path, data={**incident, "mark": of_vic}, headers=AS_REVIEWER).status_code == 403
        foreign = {**AS_REVIEWER, "origin": "https://evil.example"}
        assert client.post(path, data={**incident, "mark": of_rita}, headers=foreign).status_code == 403
        done = client.post(path, data={**incident, "mark": of_rita}, headers=AS_REVIEWER)
        assert (done.status_code, done.headers["location"]) == (303, f"/review/decisions/{decision}")

    with Store.at(tmp_path / "cmf.db") as store:
        (kept,) = [json.loads(one.body or b"{}") for one in stored_records(store.engine, kind="review")]
    assert kept["by"] == {"id": "rita", "role": "reviewer"}
    assert (kept["decision"], kept["disposition"]) == (decision, "incident")


@pytest.mark.native
@pytest.mark.spec("GW-223")
def test_a_key_becomes_a_cookie_of_this_site_only_and_ends_with_signing_out(client: TestClient) -> None:
    for refused, status in (("", 401), ("cmf_nobody-s", 401), ("ä", 401), ("x" * 20_000, 401), (KEY, 403)):
        answer = client.post("/review/enter", data={"key": refused})
        assert (answer.status_code, answer.headers.get("set-cookie")) == (status, None)
        assert 'action="/review/enter"' in answer.text
        assert refused not in answer.text or not refused
    elsewhere = client.post("/review/enter", data={"key": REVIEWER}, headers={"origin": "http://evil.example"})
    assert elsewhere.status_code == 403

    entered = client.post("/review/enter", data={"key": REVIEWER}, headers={"origin": "http://gateway:9600"})
    set_cookie = entered.headers["set-cookie"]
    cookie = {"cookie": set_cookie.partition(";")[0]}

    assert (entered.status_code, entered.headers["location"]) == (303, "/review/sessions?q=needs%3Areview")
    assert REVIEWER not in set_cookie
    assert "HttpOnly" in set_cookie
    assert "Path=/review" in set_cookie
    assert "samesite=strict" in set_cookie.lower()
    assert "Secure" not in set_cookie
    client.cookies.clear()
    assert "Sign out" in client.get("/review/sessions", headers=cookie).text
    assert client.post("/review/leave", headers={**cookie, "origin": "http://evil.example"}).status_code == 403
    assert client.get("/review/sessions", headers=cookie).status_code == 200
    assert client.post("/review/leave", headers=cookie).status_code == 303
    client.cookies.clear()
    assert client.get("/review/sessions", headers=cookie).status_code == 401
    behind_tls = client.post(
        "/review/enter", data={"key": REVIEWER}, headers={"host": "review.example", "origin": "https://review.example"}
    )
    client.cookies.clear()
    assert "Secure" in behind_tls.headers["set-cookie"]


@pytest.mark.native
@pytest.mark.spec("GW-221")
def test_a_proxy_names_people_only_from_its_own_address(tmp_path: Path) -> None:
    named = {"x-user": "rita", "x-groups": "head-of-audit, staff"}
    proxy = {"id": "x-user", "roles": "x-groups", "secret": {"env": "SECRET"}}
    with mounted(tmp_path, proxy={**proxy, "peers": ["10.0.0.0/8"]}) as client:
        assert client.get("/review/sessions", headers={**named, "x-cmf-proxy-secret": SECRET}).status_code == 401
    with mounted(tmp_path, proxy={**proxy, "peers": ["10.0.0.0/8"]}) as client:
        near = TestClient(client.app, base_url="http://gateway:9600", client=("10.1.2.3", 5))
        assert near.get("/review/sessions", headers=named).status_code == 401
        page = near.get("/review/sessions", headers={**named, "x-cmf-proxy-secret": SECRET})
        assert page.status_code == 200
        assert "proxy:rita" in page.text


@pytest.mark.spec("GW-223")
async def test_a_cookie_ends_after_its_time_and_with_the_key_that_it_stands_for() -> None:
    now, revoked = [0.0], set[str]()

    async def ask(headers: Any, _peer: str | None) -> Person:
        given = headers.get("authorization", "")
        if not given or given in revoked:
            raise Refused(401, "auth.missing", "nobody")
        return Person(given, Role.VIEWER)

    keeper = SignedIn(ask, "c", clock=lambda: now[0])
    cookies = {"c": await keeper.enter("one", None)}
    assert await keeper.person({}, cookies) == Person("Bearer one", Role.VIEWER)
    revoked.add("Bearer one")
    with pytest.raises(Refused):
        await keeper.person({}, cookies)
    revoked.clear()
    now[0] = 8 * 3_600.0
    with pytest.raises(Refused):
        await keeper.person({}, cookies)
    first = {"c": await keeper.enter("two", None)}
    for number in range(MOST_SIGNED_IN):
        await keeper.enter(f"k{number}", None)
    with pytest.raises(Refused):
        await keeper.person({}, first)


@pytest.mark.spec("GW-220")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"admin": None}, "on the port of `admin`"),
        ({"keys": None, "anonymous": True}, "nobody could enter the review site"),
        ({"review": {}}, "it is missing"),
        ({"review": {"roles": {}}}, "at least 1 item"),
        ({"review": {"roles": {"a": "owner"}}}, "none of viewer, reviewer, signer, admin"),
        ({"review": {"roles": ROLES, "role": "x"}}, "this key is not known"),
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(tmp_path, **change)

    assert words in str(refused.value)


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.spec("GW-220")
def test_with_several_processes_the_site_is_served_once(tmp_path: Path) -> None:
    write_rules(tmp_path / "policy", {"words": 'deny contains {"code": "test.not", "reason": "No."} if false'})
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "ok"})},
        "policies": ["policy"],
        "keys": [key("ann", KEY, "agent"), key("rita", REVIEWER, "auditor")],
        "review": {"roles": ROLES},
        "workers": 2,
        "store": "cmf.db",
    }
    with serving_process(tmp_path, body) as serving:
        assert asked(serving.url, "POST", CHAT, said("hi"), {"authorization": f"Bearer {KEY}"})[0] == 200
        assert asked(serving.url, "GET", "/review/sessions", headers=AS_REVIEWER)[0] == 404
        assert asked(serving.operations, "GET", "/review/sessions.json")[0] == 401
        status, found = asked(serving.operations, "GET", "/review/sessions.json", headers=AS_REVIEWER)
        assert (status, found["rows"][0]["subject"]) == (200, "ann")
    own = {name: None for name in os.environ if name.startswith("CMF_")}
    checked = CliRunner().invoke(app, ["config", "check", "-c", str(tmp_path / "cmf.yaml")], env=own)
    assert checked.exit_code == 0, checked.output
    (tmp_path / "cmf.yaml").write_text(yaml.safe_dump({**body, "routes": [], "review": {"public_keys": ["gone"]}}))
    refused = CliRunner().invoke(app, ["config", "check", "-c", str(tmp_path / "cmf.yaml")], env=own)
    assert refused.exit_code == 2
    assert "review.roles" in refused.output


@pytest.mark.native
@pytest.mark.spec("GW-220")
def test_keys_and_candidates_are_read_when_it_begins(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "a.rego").write_text("package")
    bad_key = settings(tmp_path, review={"roles": ROLES, "public_keys": ["key.pem"]})
    bad_policy = settings(tmp_path, review={"roles": ROLES, "policies": ["policy"]})

    with pytest.raises(ConfigError, match="not an Ed25519 public key"), reviewing(bad_key):
        pass
    with pytest.raises(PolicyError), reviewing(bad_policy):
        pass
    (tmp_path / "key.pem").write_text(Signer.at(tmp_path / "own.pem").public_key.pem)
    with reviewing(settings(tmp_path, review={"roles": ROLES, "public_keys": ["key.pem"]})) as site:
        assert site is not None
