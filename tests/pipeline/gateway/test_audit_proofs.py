"""No answer without its records: gateways that are killed, run out of disk, or whose store fails at any call."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import Bare, http_reply, script, serving

from pipeline.audit.verification import verify
from pipeline.gateway import service
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.records import stored_records

ROOT = Path(__file__).resolve().parents[3]
KILLS = 200
ANSWER = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
}  # fmt: skip
DENY = 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the settings of a gateway in it."""
    write_rules(tmp_path / "policy", {"deny": DENY}, kinds="text")
    settings = {
        "anonymous": True, "routes": [{"name": "all", "upstream": "up"}], "watch": False,
        "policies": ["policy"], "upstreams": {"up": script(tmp_path, {"text": "fine"})},
        "audit": {"heads_file": "heads.jsonl", "heads_seconds": 0.05},
    }  # fmt: skip
    (tmp_path / "cmf.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return tmp_path


def ran(*words: object) -> dict[str, Any]:
    """What `killed_gateway` found."""
    command = [sys.executable, "-m", "tests.pipeline.gateway.killed_gateway", *map(str, words)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=3_600, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.proof
@pytest.mark.spec("REC-6")
@pytest.mark.spec("REC-16")
def test_no_kill_takes_the_record_of_an_answer_with_it(
    home: Path, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    found = ran("kills", home, int(KILLS * proof_scale), proof_seed)

    proof_row("kill -9 of a gateway under load", **found)
    assert found["lost"] == found["twice"] == 0
    assert (found["problems"], found["integrity"]) == ([], "ok")
    assert found["told"] > found["kills"]


@pytest.mark.proof
@pytest.mark.spec("REC-9")
@pytest.mark.spec("GW-60")
def test_a_full_disk_refuses_everything_and_is_got_over(home: Path, proof_row: Callable[..., None]) -> None:
    found = ran("full", home)

    proof_row("a gateway's disk is full", **found)
    assert found["refused"] == 30
    assert found["recovered"] < 2
    assert (found["unready"], found["again"]) == (503, 200)
    assert set(found["statuses"]) <= {"200", "503"}
    assert (found["lost"], found["problems"], found["integrity"]) == (0, [], "ok")


@pytest.mark.proof
@pytest.mark.spec("REC-16")
def test_whatever_store_call_fails_nothing_goes_out_without_its_record(
    home: Path, monkeypatch: pytest.MonkeyPatch, proof_row: Callable[..., None]
) -> None:
    """Every call of a request in turn: statements, begins, commits."""
    opened: list[Store] = []
    make = service.store_of

    def noted(settings: Any) -> Store:
        opened.append(make(settings))
        return opened[-1]

    monkeypatch.setattr(service, "store_of", noted)
    bare = Bare(http_reply(json.dumps(ANSWER).encode()))
    happened: Counter[str] = Counter()
    with bare.running() as upstream:
        up = {"dialect": "openai_chat", "base_url": upstream}
        body = {"policies": [str(home / "policy")], "watch": False, "upstreams": {"up": up}, "store": "one.db"}
        with serving(home, body, name="one") as url:
            (store,) = opened
            assert ask(url, "warm")[0] == 200
            failing = 0
            while True:
                heard = len(bare.heard)
                status, request, text, fired = _with_failure(store, url, failing)
                if not fired:
                    break
                forwarded = len(bare.heard) - heard
                kept = _kept(store, request)
                happened[f"{status}, forwarded {forwarded}, records {kept}"] += 1
                assert status == 503 or (status == 200 and kept == 2), (failing, status, text)
                assert "fine" not in text or kept == 2
                assert forwarded <= kept  # nothing went upstream whose request is not on record
                assert ask(url, "and now?")[0] == 200
                failing += 1
            report = verify(StoreEvidence(store.engine))
    proof_row("the n-th store call of a request fails", calls=failing, outcomes=dict(happened), verifies=report.holds)
    assert failing > 10
    assert report.holds


def _with_failure(store: Store, url: str, failing: int) -> tuple[int, str, str, bool]:
    """A request during which the n-th call fails; whether it came to that."""
    left, fired = [failing], []

    def fail(*_: Any, **__: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            fired.append(True)
            raise OperationalError("SECRET", {}, Exception("SECRET"))

    names = ("before_cursor_execute", "begin", "commit")
    for name in names:
        event.listen(store.engine, name, fail, named=True)
    try:
        status, request, text = ask(url, "hello")
    finally:
        for name in names:
            event.remove(store.engine, name, fail)
    assert "SECRET" not in text
    return status, request, text, bool(fired)


def _kept(store: Store, request: str) -> int:
    found = stored_records(store.engine, kind="decision")
    return sum(json.loads(one.body or b"{}").get("req_id") == request for one in found)


def ask(url: str, text: str) -> tuple[int, str, str]:
    """Status, the request's id, and the answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]})
        headers = {"content-type": "application/json", "x-cmf-session-id": "s"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        reply = connection.getresponse()
        return reply.status, reply.headers["x-request-id"], reply.read().decode()
    finally:
        connection.close()
