"""What whoever runs the gateway can see of it."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import script, serving, until
from tests.pipeline.gateway.test_crossing import post
from tests.pipeline.run_records import NOON

from cmf import SubjectExtension
from pipeline.audit.record import act_of
from pipeline.decisions.events import RecordUnavailable
from pipeline.gateway.operations.metrics import Metrics
from pipeline.store import overrides
from pipeline.store.database import Store
from pipeline.store.overrides import OVERRIDE

CHAT = "/v1/chat/completions"
ANN, BOB = (SubjectExtension(id=name, permissions=frozenset({OVERRIDE})) for name in ("ann", "bob"))
DENY = 'deny contains {"code": "no.forbidden", "reason": "Not this."} if contains(input.content, "forbidden")'


def get(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


@pytest.mark.spec("GW-60")
def test_it_is_ready_once_the_store_can_be_read_and_says_by_which_policies_it_judges(tmp_path: Path) -> None:
    with serving(tmp_path, {"upstreams": {"up": script(tmp_path, {"text": "x"})}}) as url:
        alive, ready = get(url, "/healthz"), get(url, "/readyz")
        wrong = get(url, "/readyz", "DELETE")

    assert alive == (200, '{"status":"ok"}')
    assert ready[0] == 200
    assert len(json.loads(ready[1])["revisions"]["all"]) == 64
    assert wrong[0] == 405


@pytest.mark.spec("GW-61")
def test_every_request_is_counted_once_under_what_became_of_it(tmp_path: Path) -> None:
    policies = write_rules(tmp_path / "policy", {"forbidden": DENY}, kinds="text")
    replies = ({"when": {"says": "fail"}, "error": {"status": 500, "message": "x"}}, {"text": "x"})
    body = {"upstreams": {"up": script(tmp_path, *replies)}, "policies": [str(policies)]}
    with serving(tmp_path, body) as url:

        def ask(text: str) -> None:
            post(
                url, CHAT, {"model": "m", "messages": [{"role": "user", "content": text}]}, {"x-cmf-session-id": "who"}
            )

        for text in ("hi", "hi", "forbidden", "fail"):
            ask(text)
        post(url, CHAT, "no request")
        post(url, "/v1/files", {})
        until(lambda: "cmf_gateway_seconds_count 6" in get(url, "/metrics")[1])
        text = get(url, "/metrics")[1]

    heads = [line.split()[1:3] for line in text.splitlines() if line.startswith("#")]
    assert [name for word, name in heads if word == "HELP"] == [name for word, name in heads if word == "TYPE"]
    own = 'route="all",dialect="openai_chat",outcome='
    assert f'cmf_gateway_requests_total{{{own}"answered"}} 2' in text
    assert f'cmf_gateway_requests_total{{{own}"denied"}} 1' in text
    assert f'cmf_gateway_requests_total{{{own}"failed"}} 1' in text
    assert 'cmf_gateway_requests_total{route="-",dialect="openai_chat",outcome="refused"} 1' in text
    assert 'cmf_gateway_requests_total{route="-",dialect="-",outcome="refused"} 1' in text
    assert 'cmf_gateway_refusals_total{code="no.forbidden"} 1' in text
    assert "cmf_gateway_in_flight 0" in text
    assert 'cmf_gateway_unrecorded_total{outcome="released"} 0' in text
    assert "who" not in text


@pytest.mark.spec("GW-61")
def test_what_went_out_without_a_record_is_counted() -> None:
    metrics = Metrics(dict)

    metrics.on_event(RecordUnavailable(decision="d", code="store.busy", released=True))

    assert 'cmf_gateway_unrecorded_total{outcome="released"} 1' in metrics.text()


@pytest.mark.spec("GW-154")
def test_what_went_on_though_policy_could_not_be_asked_is_counted(tmp_path: Path) -> None:
    fails = 'deny contains {"code": "x", "reason": "x"} if to_number(input.content) == 1'
    policies = write_rules(tmp_path / "policy", {"fails": fails}, kinds="text", mode="observe")
    body = {"upstreams": {"up": script(tmp_path, {"text": "x"})}, "policies": [str(policies)], "mode": "observe"}
    with serving(tmp_path, body) as url:
        status, *_ = post(url, CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        text = get(url, "/metrics")[1]

    assert status == 200
    assert "cmf_forwarded_on_failure_total 2" in text
    assert "cmf_forwarded_unevaluated_total 0" in text
    assert 'cmf_upstream_up{upstream="up"} 1' in text
    assert 'cmf_rule_hits_total{rule="engine"} 2' in text
    assert "cmf_decision_seconds_count 2" in text


@pytest.mark.spec("GW-154")
@pytest.mark.parametrize(("action", "evaluated", "counted"), [("forward", 3, 4), ("forward", 7, 0), ("refuse", 3, 0)])
def test_parts_that_went_on_unevaluated_are_counted_by_the_record(action: str, evaluated: int, counted: int) -> None:
    metrics = Metrics(dict)
    said = act_of("decision", "dec", action, {}, NOON)

    metrics.recorded(replace(said, unevaluated=7 - evaluated))
    metrics.recorded(said)
    metrics.recorded(replace(said, kind="config", unevaluated=7))

    assert f"cmf_forwarded_unevaluated_total {counted}\n" in metrics.text()


@pytest.mark.spec("GW-154")
def test_a_text_that_looks_like_a_rule_counts_as_none(tmp_path: Path) -> None:
    body = {"upstreams": {"up": script(tmp_path, {"text": "x"})}}
    tools = [{"type": "function", "function": {"name": 'x"rule":"engine"', "parameters": {"type": "object"}}}]
    with serving(tmp_path, body) as url:
        post(url, CHAT, {"model": "m", "tools": tools, "messages": [{"role": "user", "content": '"rule":"engine"'}]})
        text = get(url, "/metrics")[1]

    assert 'rule="engine"' not in text
    assert "cmf_forwarded_on_failure_total 0" in text


@pytest.mark.spec("EXC-13")
def test_what_went_on_under_an_override_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overrides, "STALE_SECONDS", 0.02)
    policies = write_rules(tmp_path / "policy", {"forbidden": DENY}, kinds="text")
    body = {"upstreams": {"up": script(tmp_path, {"text": "x"})}, "policies": [str(policies)]}
    asked = {"model": "m", "messages": [{"role": "user", "content": "forbidden"}]}
    who = {"actor": ANN, "seconder": BOB, "reason": "It burns."}

    def ask(url: str) -> int:
        return post(url, CHAT, asked, {"x-cmf-session-id": "s1"})[0]

    with serving(tmp_path, body) as url, Store.at(tmp_path / "cmf.db") as store:
        assert ask(url) == 403
        made = store.overrides().open("test/forbidden", session="s1", **who)  # type: ignore[arg-type]
        until(lambda: "cmf_audit_overrides 1" in get(url, "/metrics")[1])
        assert "cmf_decisions_overridden_total 0" in get(url, "/metrics")[1]
        assert ask(url) == 200
        store.overrides().close(made.id, actor=BOB, reason="It is out.")
        until(lambda: "cmf_audit_overrides 0" in get(url, "/metrics")[1])
        text = get(url, "/metrics")[1]
        assert ask(url) == 403

    assert "cmf_decisions_overridden_total 1" in text
