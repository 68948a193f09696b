"""`POST /v1/check`: what policy says of a body, for whoever asks, with nothing sent anywhere."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import ANN, KEY, script, serving
from tests.pipeline.gateway.test_audit import kept
from tests.pipeline.gateway.test_crossing import DENY, MASK
from tests.pipeline.gateway.test_refusals import CHAT, TAINT, WAIT, approve, bearer, says

from cmf.adapters import FORMATS
from pipeline.audit.verification import verify
from pipeline.gateway import service
from pipeline.gateway.checks import Format
from pipeline.run.judge import Judge, Pass
from pipeline.store.database import Store
from pipeline.store.engine import open_to_read
from pipeline.store.evidence import StoreEvidence

TWICE = """\
deny contains {"code": "no.more", "reason": "Twice is enough."} if {
    input.kind == "tool_call"
    input.session.counters["calls:tool://bank/pay"] >= 2
}"""
NAMED = 'deny contains {"code": "no.vault", "reason": "Not from there."} if input.name == "vault"'
NIGHT = """\
deny contains {"code": "no.clock", "reason": input.extensions.request.timestamp} if input.content == "what time is it?"
deny contains {"code": "no.clock", "reason": "Nobody knows."} if {
    input.content == "what time is it?"
    not input.extensions.request.timestamp
}"""
WATCHED = 'warn contains {"code": "is.odd", "reason": "Odd."} if contains(input.content, "odd")'
SAMPLING = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"messages": [{"role": "?"}]}}


def settings(home: Path, **more: Any) -> dict[str, Any]:
    write_rules(home / "policy", {"deny": DENY, "mask": MASK, "taint": TAINT, "wait": WAIT}, kinds="text")
    write_rules(home / "policy", {"twice": TWICE}, kinds="tool_call", capabilities="read_agent")
    write_rules(home / "policy", {"named": NAMED}, kinds="tool_result, tool_call")
    write_rules(home / "policy", {"watched": WATCHED}, kinds="text", mode="observe")
    up = {"up": script(home, {"text": "asked"})}
    return {"keys": [ANN], "policies": [str(home / "policy")], "watch": False, "upstreams": up, "check": {}, **more}


def ask(url: str, body: Any, *, path: str = "/v1/check", method: str = "POST", **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and value of the answer; `body` may be bytes as they are to be sent."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    sent = {"content-type": "application/json", **bearer(), **named}
    try:
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body), sent)
        reply = connection.getresponse()
        return reply.status, reply.headers, json.loads(reply.read())
    finally:
        connection.close()


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"format": "openai_chat", "kind": "request", "body": says(text), **more}


def pays(**more: Any) -> dict[str, Any]:
    """A call of MCP, with the same id whenever it is made."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay"}}
    return {"format": "mcp", "kind": "request", "server": "bank", "body": call, **more}


def result(name: str, *, error: bool = False) -> dict[str, Any]:
    """The answer to a call of that tool, which says the same in a text and as a structure."""
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": {}}}
    said = {"content": [{"type": "text", "text": '{"pin":"1234"}'}], "structuredContent": {"pin": "1234"}}
    body = {"jsonrpc": "2.0", "id": 7} | ({"error": {"code": 1, "message": "no"}} if error else {"result": said})
    return {"format": "mcp", "kind": "response", "body": body, "request": call, "server": "bank"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("check")
    with serving(home, settings(home, check={"limits": {"body_bytes": 4_096}})) as url:
        yield url


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-230")
def test_without_the_setting_nothing_is_checked(tmp_path: Path) -> None:
    with serving(tmp_path, {key: item for key, item in settings(tmp_path).items() if key != "check"}) as url:
        status, headers, said = ask(url, chat("hi"))

    assert (status, headers["x-cmf-code"]) == (404, "route.not-served")
    assert "`check`" in said["error"]["message"]


@pytest.mark.spec("GW-230")
@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"authorization": "Bearer cmf_another"}, 401, "auth.unknown"),
        ({"authorization": "Basic YTpi"}, 401, "auth.scheme"),
        ({"x_cmf_session_id": "a b"}, 400, "session.invalid"),
        ({"content_type": "text/plain"}, 415, "http.media-type"),
        ({"method": "GET"}, 405, "http.method"),
        ({"path": "/v1/check?dry=1"}, 400, "http.query"),
        ({"body": b'{"format": "mcp", "format": "mcp"}'}, 400, "json.duplicate-key"),
        ({"body": b" " * 4_096 + b"{}"}, 413, "http.too-large"),
    ],
)
def test_who_may_ask_and_how_is_as_everywhere(url: str, change: dict[str, Any], status: int, code: str) -> None:
    found, headers, said = ask(url, **{"body": chat("hi"), **change})

    assert (found, headers["x-cmf-code"], said["error"]["code"]) == (status, code, code)


@pytest.mark.spec("GW-230")
def test_limits_are_those_of_a_route(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, check={"limits": {"per_minute": 1}})) as url:
        statuses = [ask(url, chat("hi"))[0] for _ in range(2)]

        assert (*statuses, ask(url, says("hi"), path=CHAT)[0]) == (200, 429, 200)


@pytest.mark.spec("GW-231")
@pytest.mark.parametrize(
    ("question", "code", "words"),
    [
        ([], "check.invalid", "mapping at $"),
        ({"fromat": "mcp"}, "check.invalid", "$.fromat: did you mean `format`?"),
        (chat("hi", zzz=1), "check.invalid", "$.zzz: there are format, kind, body"),
        (chat("hi", **{"a b": 1}), "check.invalid", "not known at $:"),
        (chat("hi", session="s"), "check.invalid", "the header x-cmf-session-id names it"),
        (chat("hi", format="openai"), "check.invalid", "did you mean openai_chat?"),
        (chat("hi", format="canonical"), "check.invalid", "none of aisdk"),
        ({"format": "mcp", "body": {}}, "check.invalid", "missing at $.kind"),
        (chat("hi", kind="reply"), "check.invalid", "none of request, response at $.kind"),
        (chat("hi", body=[]), "check.invalid", "mapping at $.body"),
        (chat("hi", model=7), "check.invalid", "no text at $.model"),
        (chat("hi", request={}), "check.invalid", "$.request: leave it out"),
        (chat("hi", server="bank"), "check.invalid", "$.server: leave it out"),
        (chat("hi", kind="response", model="m"), "check.invalid", "$.model: leave it out"),
        (pays(model="m"), "check.invalid", "$.model: leave it out"),
        (chat("hi", body={"messages": [{"role": "?"}]}), "shape.unknown-role", "$.body.messages[0].role"),
        (chat("hi", body={"messages": [], "stream": 1}), "request.stream", "neither true nor false"),
        (chat("hi", kind="response", body={"choices": 1}, request={}), "shape.invalid", "$.request.messages"),
        (chat("hi", kind="response", body={"choices": [1]}), "shape.invalid", "$.body.choices"),
        (pays(body={"jsonrpc": "2.0", "id": 1}), "mcp.invalid", "This is $.body."),
        (pays(body={"jsonrpc": "2.0", "id": 1, "method": "a", "params": {"Name": "a"}}), "mcp.ambiguous-key", "$.body"),
        (pays(kind="response"), "check.invalid", "other kind at $.body"),
        (result("a") | {"kind": "request", "request": None}, "check.invalid", "other kind at $.body"),
        (result("a") | {"request": result("a")["body"]}, "check.invalid", "other kind at $.request"),
        (pays(body=SAMPLING), "shape.unknown-role", "$.body.params.messages[0].role"),
    ],
)  # fmt: skip
def test_what_is_no_question_is_400_with_its_place(url: str, question: Any, code: str, words: str) -> None:
    status, headers, said = ask(url, question)

    assert (status, headers["x-cmf-code"]) == (400, code)
    assert words in said["error"]["message"]


@pytest.mark.spec("GW-232")
def test_a_deny_is_an_answer_with_the_facts_of_a_refusal_and_no_body(url: str) -> None:
    _, refused, said = ask(url, says("forbidden"), path=CHAT)
    status, headers, told = ask(url, chat("forbidden"))

    assert (status, told["verdict"], told["action"], told["mode"]) == (200, "deny", "refuse", "enforce")
    assert "body" not in told
    assert told["code"] == refused["x-cmf-code"] == "no.forbidden"
    assert said["error"]["message"].startswith(told["message"])
    assert (headers["x-cmf-decision-id"], headers["x-cmf-verdict"]) == (told["decision_id"], "deny")
    assert told["rules"] == [
        {"rule": "test/deny", "code": "no.forbidden", "effect": "deny", "reason": "Not this.", "severity": "high",
         "path": "messages[0].content[0]"}
    ]  # fmt: skip
    assert told["coverage"] == {"produced": 2, "evaluated": 2, "skipped": []}
    assert len(told["revision"]) == 64


@pytest.mark.spec("GW-23")
def test_policy_is_told_when_a_request_came_at_both_doors(tmp_path: Path) -> None:
    write_rules(tmp_path / "policy", {"night": NIGHT}, kinds="text")
    begun = datetime.now(UTC).replace(microsecond=0)
    with serving(tmp_path, settings(tmp_path)) as url:
        _, _, told = ask(url, chat("what time is it?"))
        _, _, refused = ask(url, says("what time is it?"), path=CHAT)

    for said in (told["message"], refused["error"]["message"]):
        came = datetime.fromisoformat(said.split()[0].rstrip("."))
        assert begun <= came <= datetime.now(UTC)


@pytest.mark.spec("GW-232")
def test_a_reference_to_unjudged_content_is_refused_before_any_view(url: str) -> None:
    body = {"model": "m", "input": "hi", "previous_response_id": "resp_1"}

    _, _, told = ask(url, {"format": "openai_responses", "kind": "request", "body": body}, x_cmf_session_id="r")

    assert ("body" in told, told["code"]) == (False, "reference.response")
    assert [(rule["rule"], rule["path"]) for rule in told["rules"]] == [("by_reference", None)]


@pytest.mark.spec("GW-236", "PIPE-13")
@pytest.mark.parametrize(("check", "goes_on"), [({}, False), ({"answers": "trusted"}, True)])
def test_an_answer_sent_to_check_counts_as_one_only_if_callers_are_trusted(
    tmp_path: Path, check: dict[str, str], goes_on: bool
) -> None:
    said = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": []}
    then = {"model": "m", "input": "hi", "previous_response_id": "resp_1"}
    with serving(tmp_path, settings(tmp_path, check=check)) as url:
        told = ask(url, {"format": "openai_responses", "kind": "response", "body": said}, x_cmf_session_id="s")[2]
        after = ask(url, {"format": "openai_responses", "kind": "request", "body": then}, x_cmf_session_id="s")[2]

    assert told["body"] == said
    assert (after.get("code"), "body" in after) == (None if goes_on else "reference.response", goes_on)


@pytest.mark.spec("GW-230")
def test_where_policy_cannot_be_asked_there_is_no_answer(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, policy_seconds=1e-9)) as url:
        status, headers, said = ask(url, chat("hi"))

    assert (status, headers["retry-after"], headers["x-cmf-verdict"]) == (503, "5", "deny")
    assert said.keys() == {"error"}


@pytest.mark.spec("GW-233")
def test_what_cannot_be_put_on_record_is_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Store] = []
    make = service.store_of
    monkeypatch.setattr(service, "store_of", lambda settings: opened.append(make(settings)) or opened[-1])
    with serving(tmp_path, settings(tmp_path)) as url:
        opened[0].writer.close()
        status, headers, said = ask(url, chat("hi"))

    assert (status, headers["retry-after"]) == (503, "5")
    assert said.keys() == {"error"}


# -- what may go on ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-232")
def test_the_body_is_what_policy_left_of_it(url: str) -> None:
    _, _, masked = ask(url, chat("my pin is 1234"))
    _, _, same = ask(url, chat("hi"))

    assert (masked["verdict"], masked["action"]) == ("allow", "forward_modified")
    assert masked["body"] == says("my pin is [MASKED]")
    assert (same["action"], same["rules"], same["body"]) == ("forward", [], says("hi"))


@pytest.mark.spec("GW-232")
def test_a_response_is_judged_and_an_unedited_one_comes_back_unchanged(url: str) -> None:
    def answer(text: str) -> dict[str, Any]:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return {"format": "openai_chat", "kind": "response", "body": body}

    denied = ask(url, answer("forbidden"))[2]
    edited = ask(url, answer("1234") | {"request": {"messages": says("hi")["messages"]}, "model": "m"})[2]
    same = ask(url, answer("fine"))[2]

    assert (denied["action"], denied["rules"][0]["path"]) == ("refuse", "choices[0].message.content[0]")
    assert edited["body"]["choices"][0]["message"]["content"] == "[MASKED]"
    assert same["body"] == answer("fine")["body"]


@pytest.mark.spec("GW-231")
def test_every_wire_format_is_checked(url: str) -> None:
    user = [{"role": "user", "content": "forbidden"}]
    bodies: dict[str, Any] = {
        "aisdk": {"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "forbidden"}]}]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "forbidden"}]}]},
        "mcp": {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "forbidden"}},
        "openai_responses": {"model": "m", "input": user},
    }
    asked = {name: bodies.get(name, {"model": "m", "messages": user, "max_tokens": 5}) for name in FORMATS}

    told = {name: ask(url, {"format": name, "kind": "request", "body": body})[2] for name, body in asked.items()}

    assert get_args(Format) == FORMATS
    assert {name: one.get("code") for name, one in told.items()} == dict.fromkeys(FORMATS, "no.forbidden")
    fine = {name: json.loads(json.dumps(body).replace("forbidden", "fine")) for name, body in asked.items()}
    assert {
        name: ask(url, {"format": name, "kind": "request", "body": one})[2]["body"] for name, one in fine.items()
    } == fine


@pytest.mark.spec("GW-230", "GW-232")
def test_in_observe_it_says_deny_and_lets_go_on(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, check={"mode": "observe"})) as url:
        _, _, told = ask(url, chat("forbidden and odd"))

        assert (told["verdict"], told["action"], told["mode"]) == ("deny", "forward", "observe")
        assert told["body"] == says("forbidden and odd")
        assert [(rule["code"], rule.get("mode")) for rule in told["rules"]] == [
            ("no.forbidden", None), ("is.odd", "observe")
        ]  # fmt: skip
        assert ask(url, says("forbidden"), path=CHAT)[0] == 403


@pytest.mark.spec("GW-232")
def test_the_owner_of_an_exception_is_not_in_the_answer(tmp_path: Path) -> None:
    body = settings(tmp_path)
    entry = {"rule": "test/deny", "owner": "carol", "until": "2999-12-31", "reason": "r", "subject": "ann"}
    (tmp_path / "policy" / "data.json").write_text(json.dumps({"cmf": {"exceptions": [entry]}}), encoding="utf-8")

    with serving(tmp_path, body) as url:
        _, _, told = ask(url, chat("forbidden"))

    assert (told["rules"][0]["excused"], told["body"]) == (True, says("forbidden"))
    assert "carol" not in json.dumps(told)


# -- sessions and records ----------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-234")
def test_what_was_read_is_not_sent_whichever_way_it_is_asked(url: str) -> None:
    assert "body" in ask(url, chat("use"), x_cmf_session_id="one")[2]
    assert "body" in ask(url, chat("taint"), x_cmf_session_id="one")[2]

    after = ask(url, chat("use"), x_cmf_session_id="one")[2]

    assert (after["code"], "body" in after) == ("no.red", False)
    assert "body" in ask(url, chat("use"), x_cmf_session_id="two")[2]
    assert ask(url, says("use"), path=CHAT, x_cmf_session_id="one")[0] == 403


@pytest.mark.spec("GW-234")
def test_what_waits_may_go_on_once_after_it_was_approved(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url:
        _, _, waits = ask(url, chat("pay"), x_cmf_session_id="s")
        assert ("body" in waits, waits["action"], waits["code"]) == (False, "suspend", "ask.first")
        (waiting,) = waits["approvals"]

        approve(tmp_path, waiting)

        assert ask(url, chat("pay"), x_cmf_session_id="s")[2]["body"] == says("pay")
        assert ask(url, chat("pay"), x_cmf_session_id="s")[2]["approvals"] != [waiting]


@pytest.mark.spec("GW-233")
def test_a_check_is_on_record_says_so_and_is_counted(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url:
        told = [ask(url, chat(text))[2] for text in ("hi", "forbidden")]
        ask(url, chat("hi", kind="?"))
        ask(url, says("hi"), path=CHAT)
        metrics = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        metrics.request("GET", "/metrics")
        counted = metrics.getresponse().read().decode()
        metrics.close()

    records = {one["decision_id"]: one for one in kept(tmp_path / "cmf.db", "decision")}
    checks = [records.pop(one["decision_id"]) for one in told]
    assert [(one["host"]["asked"], one["host"]["route"]) for one in checks] == [("check", "check")] * 2
    assert [one["result"]["verdict"] for one in checks] == ["allow", "deny"]
    assert checks[0]["subject"] == {"id": "ann"}
    assert all("asked" not in one["host"] for one in records.values())
    (tally,) = kept(tmp_path / "cmf.db", "tally")
    assert tally["routes"]["check"] == {"received": 3, "decided": 2, "refused": 1, "failed": 0, "own": 0}
    assert 'cmf_gateway_requests_total{route="check",dialect="check",outcome="answered"} 2' in counted
    (config,) = kept(tmp_path / "cmf.db", "config")
    assert config["revisions"].keys() == {"all", "check"}
    engine = open_to_read(tmp_path / "cmf.db")
    assert verify(StoreEvidence(engine)).holds
    engine.dispose()
    assert KEY.encode() not in (tmp_path / "cmf.db").read_bytes()


# -- MCP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-235")
def test_each_call_counts_whatever_its_id_and_keeps_it(url: str) -> None:
    told = [ask(url, pays(), x_cmf_session_id="pays")[2] for _ in range(3)]

    assert [one.get("body", {}).get("id") for one in told] == [1, 1, None]
    assert told[2]["code"] == "no.more"
    assert told[0]["body"]["params"] == {"name": "pay", "arguments": {}}


@pytest.mark.spec("GW-231", "GW-235")
def test_a_result_has_the_name_of_the_call_that_it_answers(url: str) -> None:
    named = ask(url, result("vault"))[2]
    masked = ask(url, result("look"))[2]
    bare = {key: item for key, item in result("vault").items() if key != "request"}

    assert (named["code"], "body" in named) == ("no.vault", False)
    assert masked["body"]["result"]["structuredContent"] == {"pin": "[MASKED]"}
    assert ask(url, bare)[2].get("code") != "no.vault"
    assert ask(url, result("look", error=True))[2]["body"] == result("look", error=True)["body"]


@pytest.mark.spec("GW-68")
@pytest.mark.parametrize("path", ["/v1/check", f"/ext_authz{CHAT}", "/beta/litellm_basic_guardrail_api"])
@pytest.mark.parametrize(
    ("text", "is_large"), [("forbidden ", False), ("forbidden " * 7000, True), ("b " * 40_000, True)]
)
def test_a_large_body_is_checked_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str, is_large: bool
) -> None:
    threads: set[str] = set()
    judge = Judge.__call__

    def noted(self: Judge, *args: Any, **kwargs: Any) -> Pass:
        threads.add(threading.current_thread().name)
        return judge(self, *args, **kwargs)

    monkeypatch.setattr(Judge, "__call__", noted)
    bodies = {
        "/v1/check": {"format": "openai_chat", "kind": "request", "body": says(text)},
        f"/ext_authz{CHAT}": says(text),
        "/beta/litellm_basic_guardrail_api": {"texts": [text], "input_type": "request", "model": "m"},
    }
    with serving(tmp_path, settings(tmp_path, check={"envoy": {}, "litellm": {}})) as url:
        status, _, answer = ask(url, bodies[path], path=path, x_envoy_auth_partial_body="false")

    assert [name.startswith("pipeline-store") for name in threads] == [is_large]
    assert (status == 403 or "deny" in str(answer) or "BLOCKED" in str(answer)) == ("forbidden" in text)
