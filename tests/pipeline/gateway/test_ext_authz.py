"""Envoy's `ext_authz` over HTTP: may this request go on, as it is? What is sent here is what Envoy 1.40 sends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.house.tree import ROOT
from tests.pipeline.gateway.servers import KEY, Bare, serving
from tests.pipeline.gateway.test_audit import kept
from tests.pipeline.gateway.test_checks import ask, settings
from tests.pipeline.gateway.test_crossing import asks
from tests.pipeline.gateway.test_refusals import CHAT, approve, says

from pipeline.gateway.http import endpoints
from pipeline.gateway.http.dialects import DIALECTS
from pipeline.gateway.http.endpoints import ENVOY_PREFIX
from pipeline.gateway.http.refusal import Refusal

EXAMPLE = ROOT / "examples" / "check" / "envoy.yaml"


def authz(url: str, body: Any, *, path: str = CHAT, partial: str | None = "false", **more: Any) -> tuple[int, Any, Any]:
    """What Envoy is told of a request: with the headers that it adds to those of its client."""
    own = {"x_envoy_internal": "true", "x_envoy_expected_rq_timeout_ms": "5000", "x_forwarded_proto": "http"}
    said = {} if partial is None else {"x_envoy_auth_partial_body": partial}
    return ask(url, body, path=f"{ENVOY_PREFIX}{path}", **own, **said, **more)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("envoy")
    with serving(home, settings(home, check={"envoy": {}, "limits": {"body_bytes": 4_096}})) as url:
        yield url


# -- what does not go on -----------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-240")
def test_without_the_setting_envoy_gets_404_that_names_it(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url:
        status, headers, said = authz(url, says("hi"))

    assert (status, headers["x-cmf-code"]) == (404, "route.not-served")
    assert "`check.envoy`" in said["error"]["message"]


@pytest.mark.spec("GW-12", "GW-241")
def test_what_envoy_sends_on_itself_always_names_its_media_type() -> None:
    ours, envoys = (endpoints.endpoint_of(f"{prefix}/api/chat", [], {}) for prefix in ("", ENVOY_PREFIX))

    assert envoys is not None
    assert ours is not None
    assert (envoys.untyped, ours.untyped) == (False, True)


@pytest.mark.spec("GW-241")
@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"partial": "true"}, 413, "envoy.cut-body"),
        ({"partial": None}, 400, "envoy.no-body"),
        ({"partial": None, "body": b""}, 400, "envoy.no-body"),
        ({"partial": "no"}, 400, "envoy.no-body"),
        ({"body": b""}, 400, "json.syntax"),
        ({"authorization": "Bearer cmf_another"}, 401, "auth.unknown"),
        ({"content_type": "application/json,text/plain"}, 415, "http.media-type"),
        ({"content_encoding": "br"}, 415, "http.content-encoding"),
        ({"body": b'{"model": "m", "messages": [], "messages": []}'}, 400, "json.duplicate-key"),
        ({"body": {"messages": []}}, 400, "request.no-model"),
        ({"body": b" " * 4_096 + b"{}"}, 413, "http.too-large"),
        ({"x_cmf_session_id": "a b"}, 400, "session.invalid"),
        ({"path": f"{CHAT}?dry=1"}, 400, "http.query"),
        ({"method": "PUT"}, 405, "http.method"),
        ({"path": "/v1/models", "method": "GET", "partial": None}, 404, "route.not-served"),
        ({"path": "/v1/embeddings"}, 404, "route.not-served"),
        ({"path": "/v1/check"}, 404, "route.not-served"),
        ({"path": f"{ENVOY_PREFIX}{CHAT}"}, 404, "route.not-served"),
        ({"path": f"/.{CHAT}"}, 404, "route.not-served"),
        ({"path": "x"}, 404, "route.not-served"),
    ],
)
def test_what_is_not_all_there_or_cannot_be_read_does_not_go_on(
    url: str, change: dict[str, Any], status: int, code: str
) -> None:
    found, headers, said = authz(url, **{"body": says("hi"), **change})

    assert (found, headers["x-cmf-code"], said["error"]["code"]) == (status, code, code)


@pytest.mark.spec("GW-242")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_policy_refuses_is_the_clients_own_refusal(url: str, dialect: str) -> None:
    path, body = asks(dialect, "m", "forbidden", stream=False)

    status, headers, said = authz(url, body, path=path)

    assert (status, headers["x-cmf-code"], headers["x-should-retry"]) == (403, "no.forbidden", "false")
    assert headers["x-cmf-decision-id"] in json.dumps(said)
    assert said.keys() == DIALECTS[dialect].error(Refusal(403, "no.forbidden", "No."), "req").keys()


@pytest.mark.spec("GW-242")
def test_a_count_of_tokens_sends_its_text_too(url: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "forbidden"}]}

    assert authz(url, body, path="/v1/messages/count_tokens?beta=true")[0] == 403


@pytest.mark.spec("GW-243")
def test_what_may_only_go_on_changed_does_not_go_on(url: str) -> None:
    status, headers, said = authz(url, says("my pin is 1234"))

    assert (status, headers["x-cmf-code"], headers["x-should-retry"]) == (403, "check.would-change", "false")
    assert headers["x-cmf-decision-id"] in said["error"]["message"]
    assert "1234" not in json.dumps(said)


@pytest.mark.spec("GW-243")
def test_a_request_that_would_be_written_differently_is_denied(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.gateway.checks.emit", lambda *_: says("hi") | {"n": 1})

    assert authz(url, says("hi"))[1]["x-cmf-code"] == "check.would-change"


@pytest.mark.spec("GW-242")
def test_where_policy_cannot_be_asked_it_is_503(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, check={"envoy": {}}, policy_seconds=1e-9)) as url:
        status, headers, _ = authz(url, says("hi"))

    assert (status, headers["retry-after"]) == (503, "5")


# -- what does ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-243")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_may_go_on_as_it_is_is_200_and_on_record(url: str, dialect: str, stream: bool) -> None:
    path, body = asks(dialect, "m", "fine", stream=stream)

    status, headers, said = authz(url, body, path=path)

    assert (status, headers["x-cmf-verdict"], said) == (200, "allow", {})
    assert headers["x-cmf-decision-id"].startswith("dec_")


@pytest.mark.spec("GW-244")
def test_sessions_approvals_and_records_are_those_of_checks(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, check={"envoy": {}})) as url:
        assert authz(url, says("taint"), x_cmf_session_id="s")[0] == 200
        assert authz(url, says("use"), x_cmf_session_id="s")[1]["x-cmf-code"] == "no.red"
        waits = authz(url, says("pay"), x_cmf_session_id="s")[1]
        approve(tmp_path, waits["x-cmf-approval-id"])
        again = [authz(url, says("pay"), x_cmf_session_id="s")[0] for _ in range(2)]
        masked = authz(url, says("1234"))[1]

    assert again == [200, 403]
    records = {one["decision_id"]: one for one in kept(tmp_path / "cmf.db", "decision")}
    assert {(one["host"]["asked"], one["host"]["route"]) for one in records.values()} == {("envoy", "check")}
    assert records[masked["x-cmf-decision-id"]]["result"]["action"] == "forward_modified"
    (tally,) = kept(tmp_path / "cmf.db", "tally")
    assert tally["routes"]["check"] == {"received": 6, "decided": 6, "refused": 0, "failed": 0, "own": 0}


# -- Envoy itself ------------------------------------------------------------------------------------------------------


def example() -> Any:
    return yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))


def filter_of(config: Any) -> Any:
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    return manager["http_filters"][0]["typed_config"]


@pytest.mark.spec("GW-240", "GW-241")
def test_the_example_lets_nothing_past() -> None:
    said = filter_of(example())

    assert said["failure_mode_allow"] is False
    assert "allow_partial_message" not in said["with_request_body"]
    assert said["allowed_headers"]["patterns"] == [{"safe_regex": {"regex": ".*"}}]
    assert said["http_service"]["path_prefix"] == ENVOY_PREFIX


@contextmanager
def envoy(home: Path, gateway: str, provider: str) -> Iterator[str]:
    """The address of an Envoy with the example's settings, between these."""
    program = Path(sys.executable).with_name("envoy")
    if not program.exists():
        reason = "no Envoy here: its package is for Linux alone"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    config = example()
    resources = config["static_resources"]
    for cluster, to in zip(resources["clusters"], (gateway, provider), strict=True):
        cluster.pop("transport_socket", None)
        (place,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        place["endpoint"]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": urlsplit(to).port}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    resources["listeners"][0]["address"]["socket_address"]["port_value"] = address[1]
    file = home / "envoy.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [program, "-c", file, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
    process = subprocess.Popen(command, env={"OPENAI_API_KEY": "theirs"})
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if trial.connect_ex(address) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{address[1]}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.spec("GW-240", "GW-241", "GW-243")
def test_envoy_itself_sends_what_may_go_on_and_nothing_else(tmp_path: Path, url: str) -> None:
    provider = Bare(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
    with provider.running() as upstream, envoy(tmp_path, url, upstream) as front:
        denied = ask(front, says("forbidden"), path=CHAT, x_envoy_auth_partial_body="false")
        changed = ask(front, says("my pin is 1234"), path=CHAT)
        statuses = [
            ask(front, b"", path=CHAT, x_envoy_auth_partial_body="false")[0],
            ask(front, says("hi"), path=CHAT, content_encoding="br")[0],
            ask(front, says("hi"), path="/v1/embeddings")[0],
        ]
        assert provider.heard == []
        fine = ask(front, says("fine"), path=CHAT)

    assert (denied[0], denied[1]["x-cmf-code"], denied[2]["error"]["code"]) == (403, "no.forbidden", "no.forbidden")
    assert (changed[0], changed[1]["x-cmf-code"]) == (403, "check.would-change")
    assert statuses == [400, 415, 404]
    assert fine[0] == 200
    (heard,) = provider.heard
    assert heard.endswith(json.dumps(says("fine")).encode())
    assert (b"authorization: Bearer theirs" in heard, KEY.encode() in heard) == (True, False)
