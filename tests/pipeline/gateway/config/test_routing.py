"""Where requests go: aliases, targets in order, and upstreams that are left alone for a while."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway import matrix_bodies
from tests.pipeline.gateway.servers import Bare, http_reply, script, serving
from tests.pipeline.gateway.test_crossing import asks, post
from tests.pipeline.gateway.test_refusals import WAIT, approve, bearer, says, settings
from tests.pipeline.gateway.test_upstreams import CHAT, HELLO, WHOLE
from tests.pipeline.gateway.windows import Pieces, events, served, spoken

from pipeline.decisions.errors import ConfigError
from pipeline.gateway.config.routing import Candidate
from pipeline.gateway.config.settings import Route
from pipeline.gateway.upstreams.upstream import UpstreamError
from pipeline.guard import Guard

NONE = 'deny contains {"code": "x", "reason": "x"} if false'


# -- aliases -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-80")
def test_aliases_lead_to_targets_once_each_and_in_order() -> None:
    aliases = {"quick": ("local/llama3:8b", "claude"), "all": ("quick", "claude/big/1", "quick", "claude")}

    found = Route(name="r", targets=("all", "local")).candidates(aliases)

    assert found == (
        Candidate("local", "llama3:8b"),
        Candidate("claude", None),
        Candidate("claude", "big/1"),
        Candidate("local", None),
    )


@pytest.mark.spec("GW-80")
def test_a_chain_may_be_one_word() -> None:
    route = Route.model_validate({"name": "r", "targets": "claude, local/llama3:8b,claude"})

    assert route.candidates({}) == (Candidate("claude", None), Candidate("local", "llama3:8b"))


@pytest.mark.spec("GW-80")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"aliases": {"a": ["b"], "b": ["c"], "c": ["a"]}}, "alias a leads back to itself: a → b → c → a"),
        ({"aliases": {"a": ["a"]}}, "leads back to itself"),
        ({"aliases": {"a": []}}, "alias a has no target"),
        ({"aliases": {"a": ["elsewhere/m"]}}, "no upstream or alias there is: elsewhere"),
        ({"aliases": {"up": ["up/m"]}}, "alias up is also the name of an upstream"),
        ({"routes": [{"name": "r", "targets": ["gone"]}]}, "route r names no upstream or alias there is: gone"),
        ({"routes": [{"name": "r", "upstream": "up", "targets": ["up"]}]}, "one of them"),
        ({"routes": [{"name": "r"}]}, "one of them"),
        ({"routes": [{"name": "r", "targets": ["up"], "model": "m"}]}, "behind each"),
    ],
)
def test_what_leads_nowhere_ends_the_beginning(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    body = {"upstreams": {"up": script(tmp_path, {"text": "hi"})}, **change}

    with pytest.raises(ConfigError) as caught, serving(tmp_path, body):
        pass

    assert says in caught.value.message


# -- one after the other -----------------------------------------------------------------------------------------------


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    with Guard(write_rules(tmp_path / "none", {"none": NONE}, mode="enforce\n#   stream: {max_match: 2}")) as guard:
        yield guard


def down() -> Pieces:
    return Pieces([], ends=UpstreamError(502, "upstream.unreachable", "Not there."))


@pytest.mark.spec("GW-82")
@pytest.mark.parametrize(
    ("status", "passes"),
    [
        ("500 Oops", True),
        ("503 Busy", True),
        ("429 Slow", True),
        ("401 Key", True),
        ("404 No", True),
        ("410 Gone", True),
        ("408 Slow", True),
        ("400 Bad", False),
        ("405 Not", False),
        ("409 Two", False),
        ("413 Big", False),
        ("422 Odd", False),
        ("451 Law", False),
    ],
)
def test_trouble_of_an_upstream_is_passed_on_to_the_next_and_a_wrong_request_is_not(
    tmp_path: Path, status: str, passes: bool
) -> None:
    first, second = Bare(http_reply(b'{"error": {"message": "it said"}}', status=status)), Bare(http_reply(WHOLE))
    policies = write_rules(tmp_path / "policy", {"none": NONE})
    with first.running() as one, second.running() as two:
        upstreams = {
            "one": {"dialect": "openai_chat", "base_url": one}, "two": {"dialect": "openai_chat", "base_url": two}
        }  # fmt: skip
        body = {
            "upstreams": upstreams,
            "routes": [{"name": "r", "targets": ["one/a", "two/b"]}],
            "policies": [str(policies)],
        }
        with serving(tmp_path, body) as url:
            found, _, raw = post(url, CHAT, HELLO)

    assert (found == 200) is passes
    assert len(first.heard) == 1
    assert [b'"model":"b"' in one for one in second.heard] == [True] * passes
    assert passes or b"it said" in raw


@pytest.mark.spec("GW-83")
@pytest.mark.parametrize(
    ("first", "second", "status", "code", "says"),
    [
        ("404 No", "404 No", 404, "upstream.not-found", b"it said"),
        ("404 No", "500 Oops", 502, "upstream.error", b""),
        ("404 No", "429 Slow", 429, "upstream.rate-limit", b""),
        ("503 Busy", "404 No", 404, "upstream.not-found", b"it said"),
        ("404 No", "422 Odd", 400, "upstream.invalid", b"it said"),
    ],
)
def test_where_no_target_has_the_model_the_client_learns_what_the_last_one_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: str, second: str, status: int, code: str, says: bytes
) -> None:
    caplog.set_level("WARNING", "pipeline.gateway")
    replies = [Bare(http_reply(b'{"error": {"message": "it said"}}', status=each)) for each in (first, second)]
    with replies[0].running() as one, replies[1].running() as two:
        upstreams = {name: {"dialect": "openai_chat", "base_url": url} for name, url in (("one", one), ("two", two))}
        policies = [str(write_rules(tmp_path / "policy", {"none": NONE}))]
        routes = [{"name": "r", "targets": ["one/a", "two/b"]}]
        with serving(tmp_path, {"upstreams": upstreams, "routes": routes, "policies": policies}) as url:
            found, headers, raw = post(url, CHAT, HELLO)

    assert (found, headers["x-cmf-code"]) == (status, code)
    assert says in raw
    assert [len(each.heard) for each in replies] == [1, 1]
    assert f"status {first[:3]}" in caplog.text


@pytest.mark.spec("GW-81")
def test_each_target_is_judged_as_itself_and_a_refusal_is_the_last_word(tmp_path: Path) -> None:
    rule = 'deny contains {"code": "no.model", "reason": "Not there."} if contains(input.uri, "secret")'
    policies = write_rules(tmp_path / "policy", {"model": rule}, kinds="request")
    third = script(tmp_path, {"text": "third"}, name="third")
    with serving(
        tmp_path,
        {
            "upstreams": {"first": script(tmp_path, {"error": {"status": 500, "message": "x"}}), "third": third},
            "routes": [{"name": "r", "targets": ["first", "third/secret", "third"]}],
            "policies": [str(policies)],
        },
    ) as url:
        status, headers, _ = post(url, *asks("openai_chat", "m", "hi", stream=False))

    assert (status, headers["x-cmf-code"]) == (403, "no.model")


@pytest.mark.spec("GW-24")
def test_a_rule_knows_which_upstream_a_request_goes_to_and_a_reply_came_from(tmp_path: Path) -> None:
    rule = """\
deny contains {"code": sprintf("no.%v", [input.kind]), "reason": "Not there."} if {
    input.extensions.custom.upstream == data.cmf.defaults.test.away[input.kind]
}"""
    policies = write_rules(tmp_path / "policy", {"away": rule}, kinds="request, response")
    (policies / "cmf/defaults").mkdir()
    away = {"test": {"away": {"request": "abroad", "response": "odd"}}}
    (policies / "cmf/defaults/data.json").write_text(json.dumps(away), encoding="utf-8")
    down = script(tmp_path, {"error": {"status": 500, "message": "x"}}, name="down")
    up = script(tmp_path, {"text": "hello"}, name="up")
    with serving(
        tmp_path,
        {
            "upstreams": {"down": down, "abroad": up, "odd": up, "home": up},
            "routes": [
                {"name": "a", "models": ["a"], "targets": ["down", "abroad", "home"]},
                {"name": "b", "models": ["b"], "targets": ["down", "odd"]},
                {"name": "c", "models": ["c"], "targets": ["down", "home"]},
            ],
            "policies": [str(policies)],
        },
    ) as url:
        replies = [post(url, *asks("openai_chat", model, "hi", stream=False)) for model in "abc"]

    assert [headers["x-cmf-code"] for _, headers, _ in replies] == ["no.request", "no.response", None]
    assert [status for status, _, _ in replies] == [403, 403, 200]


@pytest.mark.spec("GW-86")
def test_what_was_approved_goes_once_to_whichever_target_answers(tmp_path: Path) -> None:
    upstreams = {
        "down": script(tmp_path, {"error": {"status": 500, "message": "x"}}, name="down"),
        "up": script(tmp_path, {"text": "Done."}, name="up"),
    }
    body = settings(tmp_path, {"wait": WAIT}) | {
        "upstreams": upstreams, "routes": [{"name": "r", "targets": ["down", "down/again", "up"]}]
    }  # fmt: skip
    held = bearer() | {"x-cmf-session-id": "s"}
    with serving(tmp_path, body) as url:
        _, headers, _ = post(url, CHAT, says("pay"), held)
        approve(tmp_path, headers["x-cmf-approval-id"])
        found = [post(url, CHAT, says("pay"), held)[0] for _ in range(2)]

    assert found == [200, 403]


@pytest.mark.spec("GW-85")
@pytest.mark.parametrize(
    ("dialect", "model", "path"),
    [
        ("gemini", "models%2Fpro", b"/v1beta/models/strict:"),
        ("gemini", "models%2Fllama3:8b", b"/v1beta/models/llama3%3A8b:"),
        ("gemini", "models%2Fmodels%2Fpro", None),
        ("openai_chat", "models/pro", None),
    ],
)
def test_a_model_s_other_name_leads_to_no_other_route(
    tmp_path: Path, dialect: str, model: str, path: bytes | None
) -> None:
    bare = Bare(http_reply(json.dumps(matrix_bodies.reply("gemini", "text", "fine")).encode()))
    policies = write_rules(tmp_path / "policy", {"none": NONE})
    with bare.running() as address:
        body: dict[str, Any] = {
            "upstreams": {"up": {"dialect": "gemini", "base_url": address}},
            "routes": [
                {"name": "strict", "models": ["pro"], "targets": ["up/strict"]}, {"name": "any", "upstream": "up"}
            ],
            "policies": [str(policies)],
        }  # fmt: skip
        with serving(tmp_path, body) as url:
            status, headers, _ = post(url, *asks(dialect, model, "hi", stream=False))

    assert [one.split()[1].partition(b"generateContent")[0] for one in bare.heard] == [path] * (path is not None)
    assert path is not None or (status, headers["x-cmf-code"]) == (400, "request.model")


@pytest.mark.spec("GW-82", "GW-83")
def test_what_one_format_cannot_say_is_asked_of_another(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}}
    asked = {"model": "m", "messages": [{"role": "user", "content": [picture]}]}
    policies = write_rules(tmp_path / "policy", {"none": NONE})
    reply = Bare(http_reply(WHOLE))
    with reply.running() as address:
        nobody = "http://127.0.0.1:1"
        body: dict[str, Any] = {
            "upstreams": {
                "ollama": {"dialect": "ollama", "base_url": nobody},
                "down": {"dialect": "openai_chat", "base_url": nobody},
                "chat": {"dialect": "openai_chat", "base_url": address},
            },
            "routes": [
                {"name": "chat", "models": ["m"], "targets": ["ollama", "chat"]},
                {"name": "down", "models": ["down"], "targets": ["ollama", "down", "ollama/again"]},
            ],
            "policies": [str(policies)],
        }
        with serving(tmp_path, body) as url:
            answered, _, _ = post(url, CHAT, asked)
            trouble, headers, _ = post(url, CHAT, asked | {"model": "down"})

    assert answered == 200
    assert (trouble, headers["x-cmf-code"]) == (502, "upstream.unreachable")


@pytest.mark.spec("GW-82")
def test_no_other_target_is_tried_once_something_is_out(guard: Guard) -> None:
    second = Pieces(["second"])

    got = served(guard, [Pieces(["some words"], ends=UpstreamError(502, "upstream.cut", "Cut.")), second])

    assert b"some wor" in got.raw
    assert "upstream.cut" in str(events(got)[-1])
    assert b"second" not in got.raw


@pytest.mark.spec("GW-82")
def test_another_target_is_tried_while_nothing_is_out(guard: Guard) -> None:
    got = served(guard, [down(), Pieces(["a"], ends=UpstreamError(502, "upstream.cut", "Cut.")), Pieces(["words"])])

    assert (got.status, spoken("openai_chat", got)) == (200, "words")


@pytest.mark.spec("GW-84")
def test_an_upstream_that_keeps_failing_is_skipped_and_the_client_gets_retry_after(tmp_path: Path) -> None:
    policies = write_rules(tmp_path / "policy", {"none": NONE})
    upstream = {"dialect": "openai_chat", "base_url": "http://127.0.0.1:1", "health": {"cooldown_seconds": 30}}
    with serving(tmp_path, {"upstreams": {"up": upstream}, "policies": [str(policies)]}) as url:
        found = [post(url, CHAT, HELLO) for _ in range(4)]

    assert [status for status, _, _ in found] == [502, 502, 502, 503]
    _, headers, _ = found[-1]
    assert (headers["x-cmf-code"], headers["retry-after"]) == ("upstream.unwell", "30")
