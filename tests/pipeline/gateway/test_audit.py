"""What a gateway puts on record besides decisions, and what its settings say of records."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, asked, said, serving_process
from tests.pipeline.gateway.servers import ANN, KEY, script, serving, until
from tests.pipeline.run_records import made_record

from cmf.message.security import SubjectExtension
from pipeline.audit.bundle import open_bundle
from pipeline.audit.bundle_verification import verify_bundle
from pipeline.audit.exporting import read_heads
from pipeline.audit.heads import Signer
from pipeline.audit.verification import verify
from pipeline.cli.audit import export
from pipeline.decisions.errors import ConfigError, StoreError
from pipeline.decisions.events import LabelAdded, PoliciesChanged, PoliciesRefused
from pipeline.gateway.config import config_file
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.operations.metrics import Tally
from pipeline.gateway.operations.operational_records import Chronicle
from pipeline.gateway.service import built
from pipeline.guard import Guard
from pipeline.store.database import Store
from pipeline.store.engine import open_to_read
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import REVEAL
from pipeline.store.records import newest, stored_records

DENY = 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_rules(tmp_path / "policy", {"deny": DENY}, kinds="text")
    return tmp_path


def settings(home: Path, **audit: Any) -> dict[str, Any]:
    return {
        "policies": [str(home / "policy")], "watch": False, "audit": audit,
        "upstreams": {"up": script(home, {"text": "fine"})},
    }  # fmt: skip


def whole(home: Path, **more: Any) -> Settings:
    """Settings that hold by themselves, changed by `more`."""
    base = {"anonymous": True, "routes": [{"name": "all", "upstream": "up"}], **settings(home), **more}
    file = home / "whole.yaml"
    file.write_text(json.dumps(base), encoding="utf-8")
    return config_file.load(file, {}).settings


def kept(store: str | Path, kind: str) -> list[dict[str, Any]]:
    engine = open_to_read(store)
    try:
        return [json.loads(one.body or b"") for one in stored_records(engine, kind=kind)]
    finally:
        engine.dispose()


def chat(url: str, body: Any, **headers: str) -> int:
    return int(asked(url, "POST", CHAT, body, headers)[0])


@pytest.mark.spec("GW-210")
def test_each_request_received_was_decided_refused_or_failed_and_the_log_says_so(home: Path) -> None:
    body = settings(home) | {"keys": [ANN]}
    with serving(home, body) as url:
        key = {"authorization": f"Bearer {KEY}"}
        statuses = [
            chat(url, said("hello"), **key),
            chat(url, said("forbidden"), **key),
            chat(url, said("hello")),
            chat(url, {"messages": []}, **key),
            asked(url, "GET", "/v1/models", None, key)[0],
            asked(url, "POST", "/v1/embeddings", {}, key)[0],
        ]
    assert statuses == [200, 403, 401, 400, 200, 404]

    (tally,) = kept(home / "cmf.db", "tally")
    decisions = kept(home / "cmf.db", "decision")

    assert tally["routes"] == {
        "-": {"received": 4, "decided": 0, "refused": 3, "failed": 0, "own": 1},
        "all": {"received": 2, "decided": 2, "refused": 0, "failed": 0, "own": 0},
    }
    by_route: dict[str, set[str]] = {}
    for one in decisions:
        by_route.setdefault(one["host"]["route"], set()).add(one["req_id"])
    assert {route: len(ids) for route, ids in by_route.items()} == {"all": 2}
    assert all(len(one["host"]["wire_in"]) == 64 for one in decisions)


@pytest.mark.spec("GW-210")
def test_a_tally_counts_each_request_once() -> None:
    tally, record = Tally(), replace(made_record(), request_id="req_a")
    tally.begun("req_a")
    tally.recorded(record)
    for other in ("req_z", None):  # of no request of ours
        tally.recorded(replace(record, request_id=other))

    for name, status in (("req_a", 502), ("req_b", 502), ("req_c", 499), ("req_d", 200)):
        tally.over("all", name, status)

    line = {"received": 4, "decided": 1, "refused": 1, "failed": 1, "own": 1}
    tally.recorded(record)  # of a request that is over: nothing of it is kept
    tally.over("all", "req_a", 499)
    line |= {"received": 5, "refused": 2}
    taken = tally.take()
    assert taken == {"all": line}
    assert tally.take() == {}
    tally.give_back(taken)
    assert tally.take() == {"all": line}


@pytest.mark.spec("GW-211")
def test_settings_and_policies_are_records_and_travel_with_evidence(home: Path) -> None:
    body = settings(home) | {"keys": [ANN]}
    with serving(home, body) as url:
        chat(url, said("hello"), authorization=f"Bearer {KEY}")

    (config,) = kept(home / "cmf.db", "config")
    (policy,) = kept(home / "cmf.db", "policy")
    (revision,) = {one["revision"] for one in kept(home / "cmf.db", "decision")}

    assert config["revisions"] == {"all": revision}
    assert config["settings"]["audit.content"] == "none"
    assert "ann" not in json.dumps(config)
    assert (policy["action"], policy["routes"], policy["revision"]) == ("load", ["all"], revision)
    export(str(home / "cmf.db"), home / "evidence.zip", query=None, contents=False, heads=None)
    files = open_bundle(home / "evidence.zip").manifest["files"]
    assert f"policies/{revision}.tar.gz" in files
    assert verify_bundle(home / "evidence.zip").holds


@pytest.mark.spec("GW-211")
def test_a_change_of_policies_is_a_record_with_both_revisions(home: Path) -> None:
    with Store.at(home / "s.db") as store, Guard(home / "policy") as guard:
        chronicle = Chronicle(store, whole(home), Tally())
        guard.events.subscribe(lambda event: chronicle.on_event(["all"], guard, event))
        before = guard.revision
        write_rules(home / "policy", {"other": DENY}, kinds="text")
        after = guard.reload(by="rita")
        (home / "policy" / "cmf" / "rules" / "test" / "other" / "other.rego").write_text("nonsense", encoding="utf-8")
        with pytest.raises(ValueError, match="other"):
            guard.reload()
        chronicle.on_event(["all"], guard, PoliciesChanged(before=after, after=after, by="eve"))
        chronicle.close()
        policies = StoreEvidence(store.engine).policies()
        subjects = [row.subject for row in newest(store.engine, limit=9) if row.kind == "policy"]

    changed, refused, again = kept(home / "s.db", "policy")
    assert (changed["action"], changed["before"], changed["revision"]) == ("change", before, after)
    assert (changed["by"], "by" in refused, again["by"]) == ({"id": "rita"}, False, {"id": "eve"})
    assert [subject == "id:rita" for subject in subjects] == [True, False, False]  # who changed nothing is none
    assert (refused["action"], refused["revision"]) == ("refuse", after)
    assert set(policies) == {after}


@pytest.mark.spec("GW-210")
def test_what_cannot_be_put_on_record_is_counted_and_tried_again(home: Path) -> None:
    with Store.at(home / "s.db") as store, Guard(home / "policy") as guard:
        tally = Tally()
        chronicle = Chronicle(store, whole(home), tally)
        tally.over("all", "req_x", 401)
        store.writer.close()
        chronicle.count()
        chronicle.on_event(["all"], guard, PoliciesChanged(before="a", after="b"))
        chronicle.on_event(["all"], guard, PoliciesRefused(code="c", message="m", place=""))

        assert chronicle.failures == 3
        assert tally.take()["all"]["refused"] == 1
        with pytest.raises(StoreError):
            chronicle.begin([(["all"], guard)])


@pytest.mark.spec("GW-212")
def test_key_heads_and_content_are_where_settings_say(home: Path) -> None:
    audit = {
        "key_file": "audit.pem", "heads_file": "heads.jsonl", "heads_seconds": 0.05, "content": "whole",
        "content_days": 1, "tally_seconds": 0.1,
    }  # fmt: skip
    with serving(home, settings(home, **audit)) as url:
        assert chat(url, said("xylophone")) == 200
        until(lambda: kept(home / "cmf.db", "tally"))
        until(lambda: _protected(url))
        text = asked(url, "GET", "/metrics")[1]

    assert "cmf_audit_head_export_failures_total 0" in text
    assert not (home / "cmf.db.key").exists()
    with Store.at(home / "cmf.db", key=home / "audit.pem") as store:
        exported = read_heads(home / "heads.jsonl")
        trusted = [Signer.at(home / "audit.pem").public_key]
        report = verify(StoreEvidence(store.engine), exported=exported, keys=trusted)
        eve = SubjectExtension(id="eve", permissions=frozenset({REVEAL}))
        lines = list(store.contents().lines(actor=eve, reason="test")())
    assert report.holds
    assert [log.unprotected for log in report.logs] == [0]
    assert sum(b"xylophone" in line for line in lines) == 2  # the request, and what came before its reply


def _protected(url: str) -> bool:
    return "\ncmf_audit_unprotected_records 0\n" in asked(url, "GET", "/metrics")[1]


@pytest.mark.spec("GW-212")
def test_readiness_tells_of_the_log(home: Path) -> None:
    with serving_process(home, settings(home)) as gateway:
        assert chat(gateway.url, said("hello")) == 200
        _, told = asked(gateway.operations, "GET", "/readyz")
        assert gateway.stop() == 0

    assert told["audit"]["records"] >= 5
    assert told["audit"]["unprotected"] == told["audit"]["records"]


@pytest.mark.spec("GW-212")
def test_a_key_that_cannot_be_used_ends_the_beginning_by_its_name(home: Path) -> None:
    with pytest.raises(ConfigError) as caught, built(whole(home, audit={"key_file": "missing/audit.pem"}), {}):
        pass

    assert str(caught.value).startswith("the audit key cannot be used: it cannot be read or created: No such file")
    assert "missing/audit.pem" in caught.value.path


@pytest.mark.spec("GW-213")
@pytest.mark.parametrize(
    "bad",
    [
        {"store": 5},
        {"store": "mysql://host/db", "audit": {"key_file": "k"}},
        {"store": "postgresql://host/db"},
        {"store": "postgresql://me:word@host/db", "audit": {"key_file": "k"}},
        {"audit": {"content": "some"}},
        {"audit": {"content_days": 0}},
        {"audit": {"heads": "x"}},
    ],
)
def test_settings_that_make_no_sense_are_refused(home: Path, bad: dict[str, Any]) -> None:
    assert whole(home).audit.content == "none"

    with pytest.raises(ConfigError) as caught:
        whole(home, **bad)
    assert "audit" in str(caught.value) or "store" in str(caught.value)
    assert "word@" not in str(caught.value)


@pytest.mark.spec("GW-213")
def test_a_gateway_keeps_its_records_on_postgresql(home: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres").new()
    body = settings(home, key_file="audit.pem", heads_file="heads.jsonl") | {"store": url}
    with serving(home, body) as address:
        statuses = Counter(chat(address, said(text)) for text in ("hello", "forbidden", "hello"))

    assert statuses == {200: 2, 403: 1}
    engine = open_to_read(url)
    exported = read_heads(home / "heads.jsonl")
    assert verify(StoreEvidence(engine), exported=exported).holds
    assert Counter(one["result"]["verdict"] for one in kept(url, "decision")) == {"allow": 4, "deny": 1}
    engine.dispose()


@pytest.mark.spec("GW-212")
def test_the_sweep_of_a_gateway_erases_what_is_too_old(home: Path) -> None:
    with serving(home, settings(home, content="whole", content_days=0.000_000_1)) as url:
        chat(url, said("xylophone"))
    with Store.at(home / "cmf.db") as store:
        Chronicle(store, whole(home), Tally(), clock=lambda: datetime.now(UTC)).sweep()
        assert store.contents().due(2**62, 10) == []
    assert [said["reason"] for said in kept(home / "cmf.db", "erasure")] == ["retention"]


@pytest.mark.spec("GW-212")
def test_a_gateway_that_keeps_content_sweeps_as_it_goes_and_counts_what_fails(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.gateway.operations.operational_records.SWEEP_SECONDS", 0.02)
    swept: list[int] = []

    class Failing:
        def __init__(self, *_: object) -> None:
            pass

        def run(self, now: int) -> None:
            swept.append(now)
            raise StoreError("down")

    monkeypatch.setattr("pipeline.gateway.operations.operational_records.Sweep", Failing)
    for content in ("none", "whole"):
        before = len(swept)
        with Store.at(home / f"{content}.db") as store, Guard(home / "policy") as guard:
            chronicle = Chronicle(store, whole(home, audit={"content": content, "tally_seconds": 0.01}), Tally())
            guard.events.subscribe(lambda event, told=chronicle: told.on_event(["all"], guard, event))
            chronicle.begin([(["all"], guard)])
            guard.events.publish(LabelAdded(label="x", path="", by="y"))
            if content == "whole":
                until(lambda told=chronicle: told.failures)
            else:
                time.sleep(0.1)
            chronicle.close()
        assert (len(swept) > before) is (content == "whole")
