"""A question need not break an agent: requests and replies wait for people, and then go on as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import ANN, KEY, asking, running, script, serving, until
from tests.pipeline.gateway.test_crossing import asks, heard, post
from tests.pipeline.new_store import migrated
from tests.pipeline.postgres_server import Postgres

from cmf.json.codec import dumps
from cmf.message.message import ToolCallPart
from pipeline.approvals.queue import Approvals
from pipeline.decisions.approval import ApprovalStatus
from pipeline.decisions.authority import APPROVE, holder
from pipeline.decisions.errors import StoreError
from pipeline.gateway.config import config_file
from pipeline.gateway.proxy import held_replies
from pipeline.gateway.proxy.held_replies import ENDING, HeldReplies
from pipeline.gateway.service import built
from pipeline.run.assembly import open_sessions
from pipeline.sessions.base import MemorySessions

ASK = 'require_approval contains {"code": "ask.pay", "reason": "A person must look."} if contains(input.content, "pay")'
CALL = (
    'require_approval contains {"code": "ask.call", "reason": "A person must look."} if input.kind == "tool_call"\n\n'
    'deny contains {"code": "no.word", "reason": "No."} if contains(input.content, "forbidden")'
)
CHAT = "/v1/chat/completions"
HELD = {"authorization": f"Bearer {KEY}", "x-cmf-session-id": "s"}
TOOL = {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}], "times": 1}
TWICE = {"error": {"status": 500, "message": "asked twice"}}


def says(text: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def settings(home: Path, *replies: dict[str, Any], **approvals: Any) -> dict[str, Any]:
    policies = write_rules(home / "policy", {"ask": ASK, "call": CALL}, kinds="text, tool_call")
    return {
        "upstreams": {"up": script(home, *(replies or ({"text": "done"},)))},
        "keys": [ANN],
        "policies": [str(policies)],
        "approvals": {"wait_seconds": 20, **approvals},
    }


class Person:
    """Somebody who answers what waits in a store, from another process as far as the gateway can tell."""

    def __init__(self, place: str) -> None:
        self.place = place

    def answers(self, *, approve: bool = True, after: Callable[[], object] = lambda: True) -> str:
        """Answer the next question, once there is one; gives its id."""
        with open_sessions(self.place, made=False) as sessions:
            approvals = Approvals(sessions)
            until(lambda: approvals.pending() and after(), 20)
            (waiting,) = approvals.pending()
            decide = approvals.approve if approve else approvals.deny
            return decide(waiting.asked.id, holder("carol", APPROVE)).asked.id

    def questions(self) -> int:
        with open_sessions(self.place, made=False) as sessions:
            return len(sessions.pending_approvals())


def person(home: Path) -> Person:
    return Person(f"sqlite:///{home / 'cmf.db'}")


@contextmanager
def posted(url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(post, url, path, body, headers or HELD)


def cities(dialect: str, headers: Any, raw: bytes) -> list[Any]:
    """What the tool calls of a reply ask for."""
    parts = heard(dialect, headers, raw).message.content
    return [part.arguments["city"] for part in parts if isinstance(part, ToolCallPart) and part.arguments]


@pytest.mark.spec("GW-87")
def test_what_a_person_denies_while_it_waits_is_refused_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url, posted(url, CHAT, says("pay")) as asked:
        person(tmp_path).answers(approve=False)
        status, headers, _ = asked.result(10)

    assert (status, headers["x-cmf-code"]) == (403, "approval.denied")


@pytest.mark.spec("GW-87", "GW-32")
def test_the_end_of_the_wait_says_what_was_asked_of_whom_and_how_to_go_on(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, TOOL, TWICE, wait_seconds=0.3)) as url:
        status, headers, raw = post(url, *asks("openai_chat", "m", "go", stream=True), HELD)
        waiting = headers["x-cmf-approval-id"]
        person(tmp_path).answers()
        released, _, reply = post(url, CHAT, says("go"), HELD | {"x-cmf-approval-id": waiting})

    message = json.loads(raw)["error"]["message"]
    assert (status, headers["x-cmf-code"], headers["x-should-retry"]) == (403, "ask.call", "false")
    assert "tool://_/get_weather" in message
    assert "permission cmf:approve" in message
    assert f"with the header x-cmf-approval-id: {waiting}" in message
    assert "Nobody answered within 0 seconds" in message
    assert released == 200
    assert b"Rome" in reply


@pytest.mark.spec("GW-87")
def test_an_approval_while_it_waits_does_not_let_out_what_another_rule_denies(tmp_path: Path) -> None:
    replies = {**TOOL, "tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}]}
    with serving(tmp_path, settings(tmp_path, replies)) as url, posted(url, CHAT, says("go")) as asked:
        policy = tmp_path / "policy/cmf/rules/test/call/call.rego"
        until(lambda: person(tmp_path).questions())
        denies = policy.read_text().replace('contains(input.content, "forbidden")', 'contains(input.content, "Rome")')
        policy.write_text(denies)
        until(lambda: "no.word" in json.dumps(post(url, CHAT, says("Rome"), HELD)[1].items(), default=str), 20)
        with open_sessions(person(tmp_path).place, made=False) as sessions:
            first = sessions.pending_approvals()[0].asked.id
            Approvals(sessions).approve(first, holder("carol", APPROVE))
        status, headers, _ = asked.result(20)

    assert (status, headers["x-cmf-code"]) == (403, "no.word")


@pytest.mark.spec("GW-87")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama"])
def test_an_approved_reply_goes_on_as_if_nothing_had_been(tmp_path: Path, dialect: str, *, stream: bool) -> None:
    with (
        serving(tmp_path, settings(tmp_path, TOOL, TWICE)) as url,
        posted(url, *asks(dialect, "m", "go", stream=stream)) as asked,
    ):
        person(tmp_path).answers()
        status, headers, raw = asked.result(20)

    assert status == 200
    assert cities(dialect, headers, raw) == ["Rome"]
    assert "x-cmf-approval-id" not in headers


@pytest.mark.spec("GW-87")
def test_an_approved_request_goes_on_and_its_approval_is_used_up(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, wait_seconds=0.4)) as url:
        with posted(url, CHAT, says("pay")) as asked:
            person(tmp_path).answers()
            first = asked.result(20)[0]
        again, headers, _ = post(url, CHAT, says("pay"), HELD)

    assert (first, again, headers["x-cmf-code"]) == (200, 403, "ask.pay")


@pytest.mark.spec("GW-87")
def test_a_route_says_for_itself_how_long_it_waits(tmp_path: Path) -> None:
    routes = [{"name": "all", "upstream": "up", "approvals": {"wait_seconds": 0}}]
    with serving(tmp_path, settings(tmp_path) | {"routes": routes}) as url:
        begin = time.monotonic()
        status, _, raw = post(url, CHAT, says("pay"), HELD)

    assert status == 403
    assert time.monotonic() - begin < 10
    assert "send the request again" in json.loads(raw)["error"]["message"]


@pytest.mark.spec("GW-87")
def test_nothing_waits_outside_of_a_session_where_nobody_could_approve(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url:
        begin = time.monotonic()
        status, _, raw = post(url, CHAT, says("pay"), {"authorization": f"Bearer {KEY}"})

    assert status == 403
    assert time.monotonic() - begin < 10
    assert "name one in the header x-cmf-session-id" in json.loads(raw)["error"]["message"]


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-88")
def test_beyond_the_number_that_may_wait_a_reply_is_refused_at_once_and_can_still_be_approved(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, waiting=1)) as url:
        with posted(url, CHAT, says("pay")) as asked:
            until(lambda: person(tmp_path).questions())
            status, headers, raw = post(url, CHAT, says("pay more"), HELD)
            assert status == 403
            assert "Too many wait for answers" in json.loads(raw)["error"]["message"]
            approve(tmp_path, headers["x-cmf-approval-id"])
            assert post(url, CHAT, says("pay more"), HELD)[0] == 200
            person(tmp_path).answers()
            assert asked.result(20)[0] == 200
        with posted(url, CHAT, says("pay")) as later:  # the place is free again
            person(tmp_path).answers()
            assert later.result(20)[0] == 200


def approve(home: Path, name: str) -> None:
    with open_sessions(person(home).place, made=False) as sessions:
        Approvals(sessions).approve(name, holder("carol", APPROVE))


@pytest.mark.spec("GW-88")
def test_many_wait_at_once_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path)) as url, ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(post, url, CHAT, says(f"pay {n}"), HELD) for n in range(12)]
        until(lambda: person(tmp_path).questions() == 12, 20)
        begin = time.monotonic()
        assert post(url, CHAT, says("hello"), HELD)[0] == 200
        assert time.monotonic() - begin < 5
        with open_sessions(person(tmp_path).place, made=False) as sessions:
            for one in sessions.pending_approvals():
                Approvals(sessions).approve(one.asked.id, holder("carol", APPROVE))

        assert {one.result(20)[0] for one in waiting} == {200}


@pytest.mark.spec("GW-88")
def test_a_client_that_leaves_ends_its_wait(tmp_path: Path) -> None:
    with serving(tmp_path, settings(tmp_path, waiting=1)) as url:
        client = asking(url, CHAT, dumps(says("pay")), HELD)
        until(lambda: person(tmp_path).questions())
        assert post(url, CHAT, says("pay more"), HELD)[0] == 403
        client.close()

        with posted(url, CHAT, says("pay more")) as asked:  # the only place is free
            time.sleep(0.5)
            assert not asked.done()
            with open_sessions(person(tmp_path).place, made=False) as sessions:
                for one in sessions.pending_approvals():
                    Approvals(sessions).deny(one.asked.id, holder("carol", APPROVE))
            assert asked.result(20)[0] == 403


@pytest.mark.spec("GW-88", "GW-153")
def test_a_gateway_that_stops_ends_all_waits_with_the_ordinary_refusal(tmp_path: Path) -> None:
    file = tmp_path / "cmf.yaml"
    migrated(tmp_path / "cmf.db")
    routes = [{"name": "all", "upstream": "up"}]
    file.write_text(yaml.safe_dump(settings(tmp_path) | {"store": "cmf.db", "routes": routes}))
    loaded = config_file.load(file, {}).settings
    answer: list[Any] = []
    with built(loaded, {}) as gateway:
        with running(gateway, loaded.limits, on_stop=gateway.end_waits) as url:
            client = threading.Thread(target=lambda: answer.append(post(url, CHAT, says("pay"), HELD)))
            client.start()
            until(lambda: person(tmp_path).questions())
            begin = time.monotonic()
        client.join(20)

    ((status, headers, raw),) = answer
    assert (status, headers["x-cmf-code"]) == (403, "ask.pay")
    assert headers["x-cmf-approval-id"] in json.loads(raw)["error"]["message"]
    assert time.monotonic() - begin < 10


# -- streams -----------------------------------------------------------------------------------------------------------

PINGS = {
    "openai_chat": b": waiting\n\n",
    "openai_responses": b": waiting\n\n",
    "anthropic_messages": b'event: ping\ndata: {"type":"ping"}\n\n',
}


@pytest.mark.spec("GW-89")
@pytest.mark.parametrize("dialect", PINGS)
def test_a_stream_that_was_kept_alive_ends_in_the_refusal_as_its_error_event(tmp_path: Path, dialect: str) -> None:
    with serving(tmp_path, settings(tmp_path, TOOL, wait_seconds=0.5, ping_seconds=0.1)) as url:
        status, _, raw = post(url, *asks(dialect, "m", "go", stream=True), HELD)

    assert status == 200
    assert raw.startswith(PINGS[dialect])
    assert raw.count(b"ask.call") >= 1
    assert b"Nobody answered" in raw
    assert b"Rome" not in raw


@pytest.mark.spec("GW-89")
@pytest.mark.parametrize("mode", ["buffer", "window"])
@pytest.mark.parametrize("dialect", PINGS)
def test_a_stream_is_kept_alive_until_it_goes_on(tmp_path: Path, dialect: str, mode: str) -> None:
    stream = mode if mode == "buffer" else {"window": 8}
    body = settings(tmp_path, TOOL, TWICE, ping_seconds=0.1)
    with (
        serving(tmp_path, body | {"routes": [{"name": "all", "upstream": "up", "stream": stream}]}) as url,
        posted(url, *asks(dialect, "m", "go", stream=True)) as asked,
    ):
        time.sleep(0.5)
        person(tmp_path).answers()
        status, headers, raw = asked.result(20)

    assert status == 200
    assert raw.startswith(PINGS[dialect] * 2)
    assert cities(dialect, headers, raw) == ["Rome"]


@pytest.mark.spec("GW-89")
def test_a_request_that_was_kept_alive_ends_in_an_error_event_if_its_upstream_fails(tmp_path: Path) -> None:
    with (
        serving(tmp_path, settings(tmp_path, TWICE, ping_seconds=0.1)) as url,
        posted(url, CHAT, says("pay", stream=True)) as asked,
    ):
        time.sleep(0.4)
        person(tmp_path).answers()
        status, _, raw = asked.result(20)

    assert (status, raw.startswith(PINGS["openai_chat"])) == (200, True)
    assert b'"error"' in raw


@pytest.mark.spec("GW-89", "GW-11")
def test_a_request_that_was_kept_alive_ends_in_an_error_event_if_its_upstream_cannot_be_asked(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}}
    content = [{"type": "text", "text": "pay"}, picture]
    upstreams = {"up": {"dialect": "ollama", "base_url": "http://127.0.0.1:9"}}
    with (
        serving(tmp_path, settings(tmp_path, ping_seconds=0.1) | {"upstreams": upstreams}) as url,
        posted(url, CHAT, says(content, stream=True)) as asked,
    ):
        time.sleep(0.4)
        person(tmp_path).answers()
        status, _, raw = asked.result(20)

    assert (status, raw.startswith(PINGS["openai_chat"])) == (200, True)
    assert b"resolve them first" in raw


@pytest.mark.spec("GW-89")
@pytest.mark.parametrize("dialect", ["gemini", "ollama"])
def test_a_dialect_without_pings_hears_nothing_until_it_goes_on(tmp_path: Path, dialect: str) -> None:
    with serving(tmp_path, settings(tmp_path, TOOL, wait_seconds=0.5, ping_seconds=0.1)) as url:
        status, headers, _ = post(url, *asks(dialect, "m", "go", stream=True), HELD)

    assert (status, headers["x-cmf-code"]) == (403, "ask.call")


# -- several processes -------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-87")
def test_an_answer_that_another_process_put_into_a_shared_database_is_heard(tmp_path: Path, postgres: Postgres) -> None:
    place = postgres.new()
    body = settings(tmp_path) | {"sessions": {"store": place}}
    with serving(tmp_path, body) as url, posted(url, CHAT, says("pay")) as asked:
        Person(place).answers()

        assert asked.result(20)[0] == 200


class Failing(MemorySessions):
    """A store that cannot be read the first time."""

    def __init__(self, status: ApprovalStatus) -> None:
        super().__init__()
        self.status, self.asked = status, 0

    def approval(self, approval_id: str) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise StoreError("cut off")
        return SimpleNamespace(status=self.status)


@pytest.mark.spec("GW-88")
async def test_a_store_that_fails_for_a_while_lets_nothing_on_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_replies, "LOOK_SECONDS", 0.01)
    sessions = Failing(ApprovalStatus.APPROVED)
    held = HeldReplies(sessions, most=2, ping_seconds=1)

    assert await held.wait(["apr_1"], 5) == ""
    assert sessions.asked == 2


@pytest.mark.spec("GW-88")
async def test_nothing_waits_once_the_gateway_ends_and_an_answer_that_comes_too_late_changes_nothing() -> None:
    held = HeldReplies(MemorySessions(), most=2, ping_seconds=1)
    waiting = asyncio.ensure_future(held.wait(["apr_1"], 5))
    await asyncio.sleep(0)

    held.end()
    held.end()

    assert (await waiting, await held.wait(["apr_1"], 5)) == (ENDING, ENDING)
