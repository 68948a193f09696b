"""What is in a record, and what never is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from tests.pipeline.run_records import ANN, NOON, decision, hit, made_record, run, view

from pipeline.audit.record import MAX_NAME, record_of
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Coverage, Effect


@pytest.mark.spec("REC-3")
def test_no_content_and_no_free_text_of_a_rule_is_in_a_record() -> None:
    hits = (
        hit(),
        hit(Effect.REDACT, pointer="/arguments/KEY-CONTENT/x", replacement="mask"),
        hit(Effect.REDACT, spans=[[0, 3], [5, 9]]),
        hit(Effect.REWRITE, pointer="/arguments/KEY-CONTENT", value="VALUE-CONTENT"),
        hit(Effect.LABEL, label="LABEL-CONTENT"),
    )

    body = record_of(decision(view(*hits)), ANN, run()).body

    assert b"CONTENT" not in body
    redacted = [one.get("redacted") for one in json.loads(body)["result"]["views"][0]["hits"]]
    assert redacted == [None, {"depth": 3}, {"spans": 2}, None, None]


@pytest.mark.spec("REC-4")
@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("https://ann:pw@host.example:8443/a/b?token=t#part", "https://host.example:8443/a/b"),
        ("data:text/plain;base64,SGVsbG8=", "data"),
        ("data://text/SGVsbG8", "data"),
        ("tool://_/pay?to=ann", "tool://_/pay"),
        ("tool://ann@_/pay", "tool://_/pay"),
        ("https://[broken", "https"),
        ("https://host/" + "a" * 300, "https://host/" + "a" * (MAX_NAME - 13)),
    ],
)
def test_a_uri_loses_what_keys_travel_in_and_the_cut_is_listed(uri: str, kept: str) -> None:
    body = json.loads(record_of(decision(view(uri=uri)), ANN, run()).body)

    assert body["result"]["views"][0]["uri"] == kept
    assert body["masked"] == ["/result/views/0/uri"]
    assert body["erased"] == ["/input"]


@pytest.mark.spec("REC-4")
def test_a_long_name_is_cut_and_a_plain_one_is_kept() -> None:
    body = json.loads(record_of(decision(view(), view(name="n" * 300), view(uri=None, name=None)), ANN, run()).body)

    plain, long, none = body["result"]["views"]
    assert (plain["uri"], plain["name"], len(long["name"])) == ("tool://_/pay", "pay", MAX_NAME)
    assert "uri" not in none
    assert "name" not in none
    assert body["masked"] == ["/result/views/1/name"]


@pytest.mark.spec("REC-1")
@pytest.mark.spec("REC-2")
def test_a_record_says_who_what_and_what_was_done() -> None:
    made = decision(view(hit()))

    body = json.loads(record_of(made, ANN, run()).body)

    assert body.pop("labels")["system"] == "cmf-pipeline"
    assert body == {
        "schema": 1,
        "decision_id": made.id,
        "timestamp": NOON.isoformat(),
        "path": "cmf/main/decision",
        "revision": "r" * 64,
        "bundles": {"cmf": {"revision": "r" * 64}},
        "input_digest": "a" * 64,
        "result": {
            "verdict": "deny",
            "action": "refuse",
            "mode": "enforce",
            "coverage": {"produced": 1, "evaluated": 1, "skipped": []},
            "views": [
                {
                    "path": "messages[0].content[0]",
                    "kind": "tool_call",
                    "role": "assistant",
                    "uri": "tool://_/pay",
                    "name": "pay",
                    "action": "execute",
                    "direction": "pre",
                    "verdict": "deny",
                    "outcome": "refuse",
                    "hits": [
                        {"rule": "test/a", "code": "test.a", "effect": "deny", "severity": "high", "mode": "enforce"}
                    ],
                }
            ],
        },
        "subject": {"id": "ann"},
        "session": "s1",
        "session_version": 3,
        "requested_by": "ann",
        "environment": "test",
        "req_id": "req-1",
        "trace_id": "t1",
        "span_id": "p1",
        "metrics": {"evaluate_ns": 1200},
        "masked": [],
        "erased": ["/input"],
    }


@pytest.mark.spec("REC-1")
def test_what_is_not_known_is_absent() -> None:
    body = json.loads(made_record(Context()).body)

    assert (
        not {"subject", "session", "requested_by", "environment", "req_id", "trace_id", "output_digest"} & body.keys()
    )


@pytest.mark.spec("GW-154")
def test_the_counted_fields_of_a_record_equal_those_in_its_bytes() -> None:
    half = replace(decision(view()), coverage=Coverage(produced=7, evaluated=3))
    record = record_of(half, ANN, run({"run_ns": 5}))
    body = json.loads(record.body)

    covered = body["result"]["coverage"]
    assert (record.request_id, record.run_ns) == (body["req_id"], body["metrics"]["run_ns"]) == ("req-1", 5)
    assert record.unevaluated == covered["produced"] - covered["evaluated"] == 4
    bare = made_record(Context())
    assert (bare.request_id, bare.run_ns) == (None, None)


@pytest.mark.spec("REC-5")
def test_the_digest_is_that_of_the_bytes() -> None:
    record = made_record()

    assert record.digest == hashlib.sha256(record.body).hexdigest()
