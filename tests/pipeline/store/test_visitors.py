"""Nothing that was released is lost when other programs visit the store of a running host, which then dies."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, serving_process
from tests.pipeline.gateway.processes import asked as answer_of
from tests.pipeline.gateway.servers import KEY, script
from tests.pipeline.gateway.test_review_site import REVIEWER, ROLES, key
from tests.pipeline.store.visitors import asked, route, told

from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.full_check import check_store
from pipeline.store.records import Stored, stored_records

NEVER = 'deny contains {"code": "t.never", "reason": "No."} if input.content == "never"'
TURNS = 3  # between two visits
EVERYTHING = Path(__file__).parents[1] / "mcp" / "everything.py"
PROXY = [sys.executable, "-c", "from pipeline.cli import main; main()", "mcp-proxy"]
pytestmark = [pytest.mark.proof, pytest.mark.slow]


def kept_in(file: Path) -> list[Stored]:
    """The decisions in a store that is sound, as evidence and as a database."""
    with Store.at(file) as store:
        decisions = list(stored_records(store.engine, kind="decision"))
        with StoreEvidence.at_one_moment(store.engine) as evidence:
            assert check_store(evidence).problems == ()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return decisions


@pytest.mark.spec("REC-25")
def test_no_decision_of_a_guard_is_lost_when_others_visit_its_store(
    tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    file, policies = tmp_path / "cmf.db", write_rules(tmp_path / "policy", {"never": NEVER})
    released: list[str] = []
    visits = route(proof_seed, proof_scale)
    with asked("guard", file, policies) as host, asked("visit", file, tmp_path / "none.yaml") as visitor:
        for visit in visits:
            released += [told(host, "hello") for _ in range(TURNS)]
            told(visitor, visit)
        released += [told(host, "hello") for _ in range(TURNS)]

    lost = set(released) - {record.id for record in kept_in(file)}
    proof_row("kill -9 of a guard whose store others visit", visits=len(visits), released=len(released), lost=len(lost))
    assert lost == set()


@pytest.mark.native
@pytest.mark.spec("REC-25")
def test_no_decision_of_a_gateway_with_its_review_site_is_lost_when_others_visit_its_store(
    tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    body = {
        "upstreams": {"up": script(tmp_path, {"text": "ok"})},
        "keys": [key("ann", KEY, "agent"), key("rita", REVIEWER, "auditor")],
        "review": {"roles": ROLES},
        "policies": [str(write_rules(tmp_path / "policy", {"never": NEVER}))],
        "store": "cmf.db",
    }
    question = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    visits, requests = route(proof_seed, proof_scale), []

    with serving_process(tmp_path, body) as serving:

        def ask() -> str:
            status, said, headers = _post(serving.url + CHAT, question, KEY)
            assert status == 200, said
            return headers["x-request-id"]

        with asked("visit", tmp_path / "cmf.db", tmp_path / "cmf.yaml") as visitor:
            for visit in visits:
                requests += [ask() for _ in range(TURNS)]
                look = answer_of(
                    serving.operations, "GET", "/review/decisions", None, {"authorization": f"Bearer {REVIEWER}"}
                )
                assert look[0] == 200
                told(visitor, visit)
        requests += [ask() for _ in range(TURNS)]
        serving.process.kill()
        serving.process.wait()

    kept = Counter(json.loads(record.body or b"")["req_id"] for record in kept_in(tmp_path / "cmf.db"))
    lost = [request for request in requests if kept[request] < 2]  # what was asked, and what was answered
    proof_row("kill -9 of a gateway whose store others visit", visits=len(visits), asked=len(requests), lost=len(lost))
    assert lost == []


def _post(url: str, body: Any, secret: str) -> tuple[int, str, Any]:
    import httpx

    reply = httpx.post(url, json=body, headers={"authorization": f"Bearer {secret}"}, timeout=60)
    return reply.status_code, reply.text, reply.headers


@pytest.mark.native
@pytest.mark.spec("REC-25")
def test_no_decision_of_an_mcp_proxy_is_lost_when_others_visit_its_store(
    tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    file, policies = tmp_path / "cmf.db", write_rules(tmp_path / "policy", {"never": NEVER})
    command = [*PROXY, "--policies", str(policies), "--store", str(file), "--", sys.executable, str(EVERYTHING)]
    visits, answered = route(proof_seed, proof_scale), 0
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as proxy:

        def ask(method: str, number: int, parameters: Any) -> Any:
            assert proxy.stdin is not None
            assert proxy.stdout is not None
            asks = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
            proxy.stdin.write(json.dumps(asks) + "\n")
            for line in proxy.stdout:
                if (reply := json.loads(line)).get("id") == number:
                    return reply["result"]
            raise AssertionError("the proxy ended")

        ask("initialize", 0, begin)
        assert proxy.stdin is not None
        proxy.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        with asked("visit", file, tmp_path / "none.yaml") as visitor:
            for visit in [*visits, ""]:
                for _ in range(TURNS):
                    answered += 1
                    assert ask("tools/call", answered, {"name": "read", "arguments": {"path": "a"}})["content"]
                if visit:
                    told(visitor, visit)
        proxy.kill()

    calls = sum(b'"tool_call"' in (record.body or b"") for record in kept_in(file))
    answers = sum(b'"tool_result"' in (record.body or b"") for record in kept_in(file))
    proof_row("kill -9 of an MCP proxy whose store others visit", visits=len(visits), calls=answered, kept=calls)
    assert (calls, answers) == (answered, answered)
