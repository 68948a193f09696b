"""`cmf review`: what it refuses to begin with, and who it lets in once it serves."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.pipeline.review.traffic import opened, record
from typer.testing import CliRunner, Result

from pipeline.cli import review as command
from pipeline.cli.app import app
from pipeline.review import site as site_module

pytestmark = [pytest.mark.native, pytest.mark.spec("CLI-90")]

SECRET = "s" * command.MIN_SECRET


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with opened(tmp_path, record("deny", session="s-canary")):
        return tmp_path / "s.sqlite3"


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """What is asked of the site while it would serve; each is given a client of it."""
    asks: list[Callable[..., Any]] = []

    def serve(site: Any, listening: socket.socket) -> None:
        port = listening.getsockname()[1]
        with listening, TestClient(site, base_url=f"http://127.0.0.1:{port}", follow_redirects=False) as client:
            for ask in asks:
                ask(client)

    monkeypatch.setattr(command, "serve", serve)
    return asks


def run(store: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["review", str(store), "--port", "0", *options])


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--proxy-secret", None, "the proxy's secret cannot be read"),
        ("--proxy-secret", b"\xff\xfe", "the proxy's secret cannot be read"),
        ("--proxy-secret", b"short\n", "the proxy's secret is too short"),
        ("--public-key", b"no key", "it is not an Ed25519 public key"),
        ("--heads", None, "the exported heads cannot be read"),
        ("--heads", b"no head", "a line is not a tree head"),
        ("--signing-key", None, "no such key file"),
        ("--seal-key", b"no key", "the seal key cannot be read"),
        ("--policies", b"no directory", ""),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused_before_anything_is_served(
    store: Path, serving: list[Callable[..., Any]], tmp_path: Path, option: str, text: bytes | None, words: str
) -> None:
    serving.append(lambda _: pytest.fail("it serves"))
    file = tmp_path / "given"
    if text is not None:
        file.write_bytes(text)
    who = [] if option == "--proxy-secret" else ["--as", "ann"]

    done = run(store, *who, option, str(file))

    assert done.exit_code != 0
    assert not isinstance(done.exception, AssertionError)
    assert words in done.output
    assert "Traceback" not in done.output


@pytest.mark.spec("CLI-90")
def test_where_the_key_is_elsewhere_it_is_asked_for_unless_one_only_reads(
    store: Path, serving: list[Callable[..., Any]]
) -> None:
    beside = store.with_name(f"{store.name}.key")
    elsewhere = beside.rename(store.with_name("elsewhere.pem"))
    served: list[int] = []
    serving.append(lambda client: served.append(client.get("/").status_code))

    refused = run(store, "--as", "ann")
    read = run(store, "--as", "ann", "--role", "viewer")
    given = run(store, "--as", "ann", "--signing-key", str(elsewhere))

    assert [one.exit_code for one in (refused, read, given)] == [2, 0, 0]
    assert "give the key that signs its records" in refused.output
    assert (len(served), beside.exists()) == (2, False)


def test_a_port_that_is_taken_is_one_line(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = CliRunner().invoke(app, ["review", str(store), "--as", "ann", "--port", str(taken.getsockname()[1])])

    assert done.exit_code == 2
    assert "cannot be used" in done.output


def test_one_person_comes_in_by_the_address_and_no_other_name_of_the_server(
    store: Path, serving: list[Callable[..., Any]]
) -> None:
    said: list[int] = []

    def ask(client: TestClient) -> None:
        said.append(client.get("/sessions").status_code)
        said.append(client.get("/sessions", headers={"host": "evil.example"}).status_code)

    serving.append(ask)
    done = run(store, "--as", "ann", "--role", "viewer")

    assert done.exit_code == 0, done.output
    assert re.search(r"review: http://127\.0\.0\.1:\d+/\?t=[\w-]{32}\n", done.output)
    assert said == [401, 421]


def test_behind_a_proxy_no_address_opens_it_and_its_headers_do(
    store: Path, serving: list[Callable[..., Any]], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    named = {"x-who": "rita", "x-what": "staff,signer"}
    pages: list[Any] = []

    def ask(client: TestClient) -> None:
        pages.append(client.get("/sessions", headers=named))
        pages.append(client.get("/sessions", headers={**named, "x-cmf-proxy-secret": SECRET}))

    serving.append(ask)
    done = run(store, "--proxy-secret", str(tmp_path / "secret"), "--user-header", "X-Who", "--role-header", "X-What")

    assert done.exit_code == 0, done.output
    assert "?t=" not in done.output
    assert [page.status_code for page in pages] == [401, 200]
    assert "s-canary" not in pages[0].text
    assert "s-canary" in pages[1].text
    assert "rita" in pages[1].text


def test_a_seal_key_opens_what_approvals_are_about(
    store: Path, serving: list[Callable[..., Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seal").write_text("ab" * 32)
    given: list[bytes | None] = []
    made = site_module.Site

    def site(*args: Any, **options: Any) -> Any:
        given.append(options["seal_key"])
        return made(*args, **options)

    monkeypatch.setattr(site_module, "Site", site)
    assert run(store, "--as", "ann", "--seal-key", str(tmp_path / "seal")).exit_code == 0
    assert run(store, "--as", "ann").exit_code == 0
    assert given == [b"\xab" * 32, None]
    assert serving == []
