"""Who the playground answers, and who not."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.pipeline.authoring.playground.states import PATH, RULE, state

from pipeline.authoring.playground import server
from pipeline.authoring.playground.project import Project
from pipeline.authoring.playground.server import HEADERS, MAX_BODY, build_app
from pipeline.authoring.playground.state import State

pytestmark = pytest.mark.native

HOST = "127.0.0.1:8787"
TOKEN = "a-token-of-this-start"
ASKS = {"x-cmf-token": TOKEN}


def client(project: Project | None = None, *, readonly: bool = False) -> TestClient:
    app = build_app(token=TOKEN, hosts=frozenset({HOST, "localhost:8787"}), project=project, readonly=readonly)
    return TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)


@pytest.fixture
def page() -> Iterator[TestClient]:
    with client() as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "policy" / PATH).parent.mkdir(parents=True)
    (tmp_path / "policy" / PATH).write_text(RULE)
    return Project.at(tmp_path)


@pytest.mark.spec("PLAY-10")
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8787", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8787", ""]
)
@pytest.mark.parametrize("path", ["/", "/app.js", "/api/start"])
def test_another_name_for_this_machine_is_refused(page: TestClient, host: str, path: str) -> None:
    answer = page.get(path, headers={**ASKS, "host": host})

    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "playground.host")


@pytest.mark.spec("PLAY-10")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8787"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_is_refused_even_with_the_token(page: TestClient, headers: dict[str, str]) -> None:
    answer = page.post("/api/evaluate", headers={**ASKS, **headers}, json=state().to_json())

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "playground.origin")
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.spec("PLAY-10")
@pytest.mark.parametrize("given", [None, "", "wrong", TOKEN[:-1], f"{TOKEN}x"])
@pytest.mark.parametrize(("method", "path"), [("GET", "start"), ("POST", "evaluate"), ("POST", "save")])
def test_a_question_without_the_token_is_refused(page: TestClient, given: str | None, method: str, path: str) -> None:
    headers = {} if given is None else {"x-cmf-token": given}

    answer = page.request(method, f"/api/{path}", headers=headers, json={} if method == "POST" else None)

    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "playground.token")


@pytest.mark.spec("PLAY-10")
def test_a_form_of_another_page_is_refused_by_its_type_too(page: TestClient) -> None:
    answer = page.post("/api/evaluate", headers={**ASKS, "content-type": "text/plain"}, content=b"{}")

    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "playground.type")


@pytest.mark.spec("PLAY-12")
def test_a_body_that_is_too_large_is_refused_and_not_read_on(page: TestClient) -> None:
    answer = page.post(
        "/api/evaluate", headers={**ASKS, "content-type": "application/json"}, content=b"x" * (MAX_BODY + 1)
    )

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "playground.too-large")


@pytest.mark.spec("PLAY-4")
@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '{"files": 3}', '{"a": 1, "a": 2}', "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")],
)
def test_what_is_no_state_is_one_error_without_a_traceback(page: TestClient, body: str) -> None:
    answer = page.post(
        "/api/evaluate", headers={**ASKS, "content-type": "application/json"}, content=body.encode("latin-1")
    )

    assert answer.status_code == 422
    assert "Traceback" not in answer.text


@pytest.mark.spec("PLAY-11")
@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/app.js", 200), ("/style.css", 200), ("/none", 404), ("/api/start", 403)]
)
def test_every_answer_carries_the_same_strict_headers(page: TestClient, path: str, status: int) -> None:
    answer = page.get(path)

    assert answer.status_code == status
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == ("'none'", "'self'", "'self'")
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.spec("PLAY-11")
def test_the_page_names_no_other_address_and_has_no_inline_script(page: TestClient) -> None:
    html = page.get("/").text
    named = re.findall(r'(?:src|href)="([^"]+)"', html)

    assert re.findall(r"<script(?![^>]*src=)|<style|\son[a-z]+=|\sstyle=", html) == []
    assert all(page.get(name).status_code == 200 for name in named if not name.startswith("#"))
    for name in ("index.html", "app.js", "editor.js", "panes.js", "link.js", "style.css"):
        text = page.get(f"/{'' if name == 'index.html' else name}").text
        assert re.findall(r"https?://|innerHTML|insertAdjacent|document\.write|\beval\b|new Function", text) == []


@pytest.mark.spec("PLAY-7")
def test_nothing_is_saved_readonly_or_without_a_project(project: Project) -> None:
    body = {"name": "case", "state": state().to_json()}

    refused = client(project, readonly=True).post("/api/save", headers=ASKS, json=body)
    nowhere = client().post("/api/save", headers=ASKS, json=body)

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "playground.readonly")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (409, "playground.no-project")
    assert not (project.directory / "cases").exists()


@pytest.mark.spec("PLAY-7")
def test_what_cannot_be_saved_says_why(project: Project) -> None:
    page = client(project)

    for body in ([], {"name": 3}, {"name": "x"}, {"name": "x", "state": {**state().to_json(), "context": "- x"}}):
        answer = page.post("/api/save", headers=ASKS, json=body)
        assert answer.status_code == 422, body
        assert answer.json()["error"]["message"]
    saved = page.post("/api/save", headers=ASKS, json={"name": "x", "state": state().to_json()})
    assert saved.json() == {"file": "cases/x.yaml", "problems": []}


@pytest.mark.spec("PLAY-10")
def test_its_own_page_is_answered(page: TestClient, project: Project) -> None:
    own = {**ASKS, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}

    answer = page.post("/api/evaluate", headers=own, json=state().to_json())
    start = page.get("/api/start", headers=ASKS).json()

    assert answer.json()["verdict"] == "deny"
    assert (start["saves"], start["readonly"]) == (False, False)
    assert "case" in start["formats"]
    assert all(start["sets"][sample["set"]] for sample in start["samples"])
    assert len(start["sets"]) < len(start["samples"])
    assert client(project).get("/api/start", headers=ASKS).json()["saves"] is True


@pytest.mark.spec("PLAY-12")
def test_slow_evaluations_time_out_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch, page: TestClient) -> None:
    over = threading.Event()

    def slow(_: Any, __: State) -> dict[str, Any]:
        over.wait(60)
        return {}

    monkeypatch.setattr(server, "EVALUATE_SECONDS", 0.05)
    monkeypatch.setattr(server, "WAITING", 2)
    monkeypatch.setattr(server.Evaluator, "evaluate", slow)

    codes = [page.post("/api/evaluate", headers=ASKS, json={}).json()["error"]["code"] for _ in range(3)]
    over.set()

    assert codes == ["playground.timeout", "playground.timeout", "playground.busy"]


def test_an_unexpected_exception_is_one_error_without_traceback(
    monkeypatch: pytest.MonkeyPatch, page: TestClient
) -> None:
    monkeypatch.setattr(server.Evaluator, "evaluate", lambda *_: json.loads("{"))

    answer = page.post("/api/evaluate", headers=ASKS, json={})

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "playground.error")
