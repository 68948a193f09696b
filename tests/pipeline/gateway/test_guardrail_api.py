"""LiteLLM's generic guardrail API: what may go on of what it hands over. What it sends here is what 1.106 sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.house.tree import ROOT
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.matrix_bodies import picture
from tests.pipeline.gateway.servers import serving
from tests.pipeline.gateway.test_audit import kept
from tests.pipeline.gateway.test_checks import ask, settings
from tests.pipeline.gateway.test_refusals import approve

from pipeline.gateway.http.endpoints import LITELLM_PATH

STRIP = 'strip_tool contains {"code": "no.shell", "reason": "No shell."} if input.name == "shell"'
ASKED = """\
deny contains {"code": "nobody.asked", "reason": "Nobody asked."} if {
    input.name == "tell"
    some one in input.origins
    one.path == "/to"
    count(one.sources) == 0
}"""
CAT = 'deny contains {"code": "no.cat", "reason": "No cats."} if contains(input.uri, "cat")'
ONCE = """\
redact contains {"code": "twice.said", "reason": "Said.", "spans": [[0, 4]]} if {
    input.content == "once"
    input.role == "system"
}"""
PICTURE = f"data:image/png;base64,{picture(64)}"
CALL = {"id": "c1", "type": "function", "function": {"name": "vault", "arguments": "{}"}}
LOOK = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TELL = "tell bob@example.com"
TO_BOB = {"id": "c1", "type": "function", "function": {"name": "tell", "arguments": '{"to": "bob@example.com"}'}}
KEY_OF_LITELLM = "0" * 64


def rules(home: Path, **check: Any) -> dict[str, Any]:
    write_rules(home / "policy", {"strip": STRIP}, kinds="tool_definition")
    write_rules(home / "policy", {"once": ONCE}, kinds="text")
    write_rules(home / "policy", {"cat": CAT}, kinds="image")
    write_rules(home / "policy", {"asked": ASKED}, kinds="tool_call")
    return settings(home, check={"litellm": {}, **check})


def handed(*texts: str, kind: str = "request", **more: Any) -> dict[str, Any]:
    """What LiteLLM sends: all keys, whatever is there."""
    nothing = dict.fromkeys(("structured_messages", "images", "tools", "tool_calls", "request_headers"))
    about = {"litellm_call_id": "c", "litellm_trace_id": "t", "litellm_version": "1.106.2", "model": "m"}
    own = {"request_data": {"user_api_key_hash": KEY_OF_LITELLM}, "additional_provider_specific_params": {}}
    return {"input_type": kind, **nothing, **about, **own, "texts": list(texts), **more}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def tell(url: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
    return ask(url, body, path=LITELLM_PATH, **headers)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("litellm")
    with serving(home, rules(home, limits={"body_bytes": 8_192})) as url:
        yield url


# -- what does not go on -----------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-245")
def test_without_the_setting_litellm_gets_404_that_names_it(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url:
        status, headers, answer = tell(url, handed("hi"))

    assert (status, headers["x-cmf-code"]) == (404, "route.not-served")
    assert "`check.litellm`" in answer["error"]["message"]


@pytest.mark.spec("GW-245")
@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"authorization": "Bearer cmf_another"}, 401, "auth.unknown"),
        ({"content_type": "text/plain"}, 415, "http.media-type"),
        ({"method": "GET"}, 405, "http.method"),
    ],
)
def test_who_may_ask_and_how_is_as_everywhere(url: str, change: dict[str, Any], status: int, code: str) -> None:
    found, headers, answer = ask(url, handed("hi"), path=LITELLM_PATH, **change)

    assert (found, headers["x-cmf-code"], answer["action"]) == (status, code, "BLOCKED")


@pytest.mark.spec("GW-246")
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ([], "check.invalid", "mapping at $"),
        (b'{"texts": ["hi"], "texts": ["ho"]}', "json.duplicate-key", "twice"),
        (b" " * 8_192 + b"{}", "http.too-large", "at most 8192 bytes"),
        ({"texts": ["hi"]}, "check.invalid", "missing at $.input_type"),
        (handed("hi", kind="reply"), "check.invalid", "$.input_type"),
        (handed("hi", zzz=1), "check.invalid", "$.zzz: there are input_type, texts"),
        (handed("hi", texts="hi"), "check.invalid", "no list at $.texts"),
        (handed("hi", texts=[1]), "check.invalid", "$.texts"),
        (handed(), "check.invalid", "holds nothing to judge"),
        (handed("hi", additional_provider_specific_params={"a": 1}), "check.invalid", "leave them out"),
        (handed("hi", kind="response", tools=[{}]), "check.invalid", "neither messages nor tools"),
        (handed("hi", kind="response", structured_messages=[{}]), "check.invalid", "neither messages nor tools"),
        (handed("hi", structured_messages=[said("?", "hi")]), "shape.unknown-role", "$.messages[0].role"),
        (handed(structured_messages=[said("user", 5)]), "shape.invalid", "$.messages[0].content"),
        (handed("ho", structured_messages=[said("user", "hi")]), "check.invalid", "$.texts[0]"),
        (handed("hi", "hi", structured_messages=[said("user", "hi")]), "check.invalid", "$.texts[1]"),
        (handed("hi", images=["u"], structured_messages=[said("user", "hi")]), "check.invalid", "$.images[0]"),
        (handed("hi", tool_calls=[CALL], structured_messages=[said("user", "hi")]), "check.invalid", "$.tool_calls[0]"),
        (handed("hi", request_headers={"x-cmf-session-id": "[present]"}), "check.invalid", "`extra_headers: [x-cmf"),
        (handed("hi", request_headers={"x-cmf-session-id": "s"}, request_data={}), "check.invalid", "whose session"),
    ],
)  # fmt: skip
def test_what_cannot_all_be_judged_is_blocked(url: str, body: Any, code: str, words: str) -> None:
    status, headers, answer = tell(url, body)

    assert (status, headers["x-cmf-code"], answer.keys()) == (200, code, {"action", "blocked_reason"})
    assert answer["action"] == "BLOCKED"
    assert words.lower() in answer["blocked_reason"].lower()


@pytest.mark.spec("GW-246")
@pytest.mark.parametrize(
    "body",
    [
        handed("fine", "forbidden"),
        handed("forbidden", kind="response"),
        handed("forb", "idden", kind="response"),
        handed("hi", "forb", "idden"),
        handed(structured_messages=[said("user", "forbidden")]),
        handed("hi", structured_messages=[said("user", "hi"), said("system", [{"type": "text", "text": "forbidden"}])]),
        handed(TELL, tool_calls=[TO_BOB]),
        handed(images=["https://files.example/cat.png"]),
        handed("hi", images=["https://files.example/cat.png"], kind="response"),
        handed(tool_calls=[CALL]),
        handed("hi", tool_calls=[{**CALL, "index": 0}], kind="response"),
        handed(tool_calls=[CALL], structured_messages=[said("assistant", None, tool_calls=[CALL])]),
    ],
)
def test_each_part_is_judged(url: str, body: Any) -> None:
    status, headers, answer = tell(url, body)

    assert (status, answer["action"]) == (200, "BLOCKED")
    assert headers["x-cmf-code"] in ("no.forbidden", "no.vault", "no.cat", "nobody.asked")
    assert headers["x-cmf-decision-id"] in answer["blocked_reason"]


@pytest.mark.spec("GW-246")
@pytest.mark.parametrize(
    "body",
    [
        handed(tools=[{"type": "web_search"}]),
        handed("hi", structured_messages=[said("user", [{"type": "text", "text": "hi"}, {"type": "zebra"}])]),
    ],
)
def test_what_the_shipped_rules_know_nothing_of_is_blocked(tmp_path: Path, body: Any) -> None:
    shipped = {key: item for key, item in rules(tmp_path).items() if key != "policies"}
    with serving(tmp_path, shipped) as url:
        assert tell(url, body)[2]["action"] == "BLOCKED"


@pytest.mark.spec("GW-247")
@pytest.mark.parametrize(
    "body",
    [
        handed("my pin is 1234", kind="response"),
        handed("my pin is 12", "34"),
        handed("hi", structured_messages=[said("user", "hi"), said("user", "my pin is 1234")]),
        handed("1234", structured_messages=[said("user", "1234"), said("user", "1234")]),
        handed("once", "once", structured_messages=[said("user", "once"), said("system", "once"), said("user", "x")]),
        handed("hi", tools=[{"type": "function", "function": {"name": "shell"}}]),
    ],
)
def test_a_change_that_litellm_would_not_make_is_blocked(url: str, body: Any) -> None:
    _, headers, answer = tell(url, body)

    assert (answer["action"], headers["x-cmf-code"]) == ("BLOCKED", "check.would-change")
    assert "1234" not in json.dumps(answer)


@pytest.mark.spec("GW-247")
def test_a_text_that_is_gone_is_no_text(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.gateway.checks.emit", lambda *_: {"model": "m", "messages": []})

    assert tell(url, handed("hi"))[1]["x-cmf-code"] == "check.would-change"


@pytest.mark.spec("GW-245")
def test_where_policy_cannot_be_asked_it_is_503(tmp_path: Path) -> None:
    with serving(tmp_path, rules(tmp_path) | {"policy_seconds": 1e-9}) as url:
        status, headers, _ = tell(url, handed("hi"))

    assert (status, headers["retry-after"]) == (503, "5")


# -- what does ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-247")
@pytest.mark.parametrize(
    "body",
    [
        handed("hi"),
        handed("hi", kind="response", tool_calls=[LOOK]),
        handed("hi", images=[PICTURE]),
        handed(
            "hi", "ho", "in tool", images=[PICTURE], tool_calls=[{**LOOK, "index": 0}],
            tools=[{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
            structured_messages=[
                said("system", "ho"),
                said("user", [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": PICTURE}}]),
                said("assistant", None, tool_calls=[LOOK]),
                said("tool", [{"type": "text", "text": "in tool"}], tool_call_id="c1"),
            ],
        ),
        handed(TELL, structured_messages=[said("user", TELL), said("assistant", None, tool_calls=[TO_BOB])]),
        handed("hi", images=["data:,x"], structured_messages=[
            said("user", [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": "data:,x"}])
        ]),
    ],
)  # fmt: skip
def test_what_may_go_on_as_it_is_is_none_of_its_business(url: str, body: Any) -> None:
    status, headers, answer = tell(url, body)

    assert (status, answer, headers["x-cmf-verdict"]) == (200, {"action": "NONE"}, "allow"), headers.items()


@pytest.mark.spec("GW-247")
@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (handed("hi", "my pin is 1234"), ["hi", "my pin is [MASKED]"]),
        (handed("once", "my pin is 1234", "once"), ["once", "my pin is [MASKED]", "once"]),
        (
            handed("1234", "b", "b", structured_messages=[
                said("tool", [{"type": "text", "text": "b"}, {"type": "text", "text": "1234"}], tool_call_id="c1"),
                said("user", "b"),
            ]),
            ["[MASKED]", "b", "b"],
        ),
        (
            handed("once", "once", structured_messages=[said("user", "once"), said("system", "once")]),
            ["once", "[MASKED]"],
        ),
    ],
)  # fmt: skip
def test_a_change_comes_back_as_texts_in_their_order(url: str, body: Any, texts: list[str]) -> None:
    assert tell(url, body)[2] == {"action": "GUARDRAIL_INTERVENED", "texts": texts}


@pytest.mark.spec("GW-247")
def test_answers_are_edited_where_edit_answers_is_set(tmp_path: Path) -> None:
    with serving(tmp_path, rules(tmp_path, litellm={"edit_answers": True})) as url:
        _, _, answer = tell(url, handed("hi", "pin 1234", kind="response", tool_calls=[LOOK]))

    assert answer == {"action": "GUARDRAIL_INTERVENED", "texts": ["hi", "pin [MASKED]"]}


@pytest.mark.spec("GW-248")
def test_sessions_are_those_of_a_key_of_litellm(tmp_path: Path) -> None:
    def named(text: str, key: str = KEY_OF_LITELLM, **more: Any) -> Any:
        who = {"request_data": {"user_api_key_hash": key}, "request_headers": {"X-Cmf-Session-Id": "s"}}
        return handed(text, **who, **more)

    with serving(tmp_path, rules(tmp_path)) as url:
        first = [tell(url, named("taint", kind="response"))[2]["action"], tell(url, named("use"))[1]["x-cmf-code"]]
        others = [tell(url, named("use", "1" * 64))[2]["action"], tell(url, handed("use"))[2]["action"]]
        waits = tell(url, named("pay"))[1]["x-cmf-approval-id"]
        approve(tmp_path, waits)
        approved = [tell(url, named("pay"))[2]["action"] for _ in range(2)]
        own = tell(url, handed("hi"), x_cmf_session_id="own")[2]["action"]

    assert (first, others, approved, own) == (["NONE", "no.red"], ["NONE"] * 2, ["NONE", "BLOCKED"], "NONE")
    records = kept(tmp_path / "cmf.db", "decision")
    assert {(one["host"]["asked"], one["host"]["route"]) for one in records} == {("litellm", "check")}
    (tally,) = kept(tmp_path / "cmf.db", "tally")
    assert tally["routes"]["check"] == {"received": 8, "decided": 8, "refused": 0, "failed": 0, "own": 0}


@pytest.mark.spec("GW-245")
def test_the_example_lets_nothing_past() -> None:
    example = yaml.safe_load((ROOT / "examples" / "check" / "litellm.yaml").read_text(encoding="utf-8"))
    (said,) = (one["litellm_params"] for one in example["guardrails"])

    assert (said["unreachable_fallback"], said["fail_on_error"], said["default_on"]) == ("fail_closed", True, True)
    assert (said["forward_messages_as_sent"], said["streaming_buffer_until_moderated"]) == (True, True)
    assert "streaming_transform_mode" not in said
    assert set(said["mode"]) == {"pre_call", "post_call"}
