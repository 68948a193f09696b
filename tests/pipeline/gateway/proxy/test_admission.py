"""A route's own bounds: how large, how many at once, how often for each who asks."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.pipeline.gateway.processes import CHAT, asked, said
from tests.pipeline.gateway.servers import ANN, KEY, asking, script, serving

from pipeline.gateway.config.settings import RouteLimits
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.proxy import admission
from pipeline.gateway.proxy.admission import Admission


class Clock:
    """Seconds that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(gate: Admission, who: str | None = "ann", size: int = 10) -> Refusal | None:
    try:
        with gate.entered(who, lambda: size):
            return None
    except Refusal as refusal:
        return refusal


@pytest.mark.spec("GW-146")
def test_a_rate_limit_holds_for_one_subject_and_not_for_others() -> None:
    clock = Clock()
    gate = Admission(RouteLimits(per_minute=60, burst=2), clock=clock)

    assert [admitted(gate) is None for _ in range(3)] == [True, True, False]
    refusal = admitted(gate)
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.headers["retry-after"]) == (429, "route.rate", "1")
    assert admitted(gate, "bob") is None
    assert admitted(gate, None) is None
    assert admitted(gate, "") is None  # an empty name is nobody else's either
    clock.now += 1
    assert [admitted(gate) is None for _ in range(2)] == [True, False]
    clock.now += 1_000
    assert [admitted(gate) is None for _ in range(3)] == [True, True, False]


@pytest.mark.spec("GW-146")
def test_the_burst_is_the_whole_rate_by_default() -> None:
    gate = Admission(RouteLimits(per_minute=5), clock=Clock())

    assert [admitted(gate) is None for _ in range(6)] == [True] * 5 + [False]


@pytest.mark.spec("GW-146")
def test_so_many_are_remembered_and_no_more_and_none_is_let_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_SUBJECTS", 2)
    clock = Clock()
    gate = Admission(RouteLimits(per_minute=60, burst=1), clock=clock)
    assert admitted(gate, "a") is None
    assert admitted(gate, "b") is None

    crowded = admitted(gate, "c")

    assert crowded is not None
    assert crowded.status == 429
    assert admitted(gate, "a") is not None
    clock.now += 2
    assert admitted(gate, "c") is None


@pytest.mark.spec("GW-146")
def test_one_that_is_over_makes_room_whatever_became_of_it() -> None:
    gate = Admission(RouteLimits(concurrent=1), clock=Clock())

    def fail() -> None:
        with gate.entered("ann", lambda: 1):
            busy = admitted(gate)
            assert busy is not None
            assert (busy.status, busy.code) == (503, "route.busy")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert admitted(gate) is None


@pytest.mark.spec("GW-146")
def test_a_body_is_held_to_its_route_s_own_bound() -> None:
    gate = Admission(RouteLimits(body_bytes=2_000), clock=Clock())

    refusal = admitted(gate, size=2_001)

    assert refusal is not None
    assert (refusal.status, refusal.code) == (413, "http.too-large")
    assert admitted(gate, size=2_000) is None


@pytest.mark.spec("GW-146")
def test_over_a_socket_each_limit_is_an_error_of_the_client_s_dialect(tmp_path: Path) -> None:
    slow = {"when": {"says": "slow"}, "text": "done", "delay_seconds": 1.0}

    def route(name: str, **limits: Any) -> dict[str, Any]:
        return {"name": name, "upstream": "up", "models": [name], "limits": limits}

    body = {
        "upstreams": {"up": script(tmp_path, slow, {"text": "x"})},
        "routes": [route("small", body_bytes=1_024), route("one", concurrent=1), route("few", per_minute=1)],
        "keys": [ANN],
        "anonymous": True,
    }
    with serving(tmp_path, body) as url:

        def ask(model: str, text: str = "hi", **headers: str) -> tuple[int, Any]:
            found: tuple[int, Any] = asked(url, "POST", CHAT, said(text) | {"model": model}, headers)
            return found

        large, small = ask("small", "x" * 2_000), ask("small")
        chunked = ask_in_chunks(url, said("x" * 2_000) | {"model": "small"})
        with asking(url, CHAT, json.dumps(said("slow") | {"model": "one"}).encode()) as first:
            threading.Event().wait(0.3)
            second = ask("one")
            assert b" 200 " in first.recv(65_536)
        after = ask("one")
        rates = [ask("few")[0], ask("few")[0], ask("few", authorization=f"Bearer {KEY}")[0]]

    assert (large[0], small[0], chunked) == (413, 200, 413)
    assert (second[0], second[1]["error"]["code"], after[0]) == (503, "route.busy", 200)
    assert rates == [200, 429, 200]


def ask_in_chunks(url: str, body: Any) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        pieces = iter([json.dumps(body).encode()])
        connection.request("POST", CHAT, pieces, {"content-type": "application/json"}, encode_chunked=True)
        return connection.getresponse().status
    finally:
        connection.close()
