"""Going on from an earlier answer is going on in its session: with its labels, for its subject, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import asked
from tests.pipeline.gateway.servers import ANN, KEY, Bare, http_reply, script, serving
from ulid import ULID

from cmf.adapters import get
from cmf.message.request import Response
from cmf.message.security import SubjectExtension
from pipeline.gateway.auth.identity import hash_of
from pipeline.gateway.http.dialects import CHAT, RESPONSES
from pipeline.gateway.http.endpoints import Endpoint, Operation
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.proxy.proxy import IncomingRequest
from pipeline.gateway.proxy.response_sessions import Links
from pipeline.sessions.base import MemorySessions, SessionStore

BOB_KEY = "cmf_bobs-key-of-a-test"
PATH = "/v1/responses"
LABEL = 'label contains {"code": "test.label", "reason": "x", "label": "secret"} if contains(input.content, "salary")'
DENY = """\
deny contains {"code": "test.tainted", "reason": "Not with what was read."} if {
    contains(input.content, "send")
    "secret" in input.session.labels
}"""
MASK = """\
redact contains {"code": "test.pin", "reason": "A PIN.", "spans": [[at, at + 4]]} if {
    at := indexof(input.content, "1234")
    at >= 0
}"""


def answer(id: str, text: str = "fine") -> bytes:
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    output = [{**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}]
    body = {"id": id, "object": "response", "model": "m", "status": "completed", "output": output}
    return http_reply(json.dumps(body).encode())


@pytest.fixture
def up() -> Bare:
    return Bare(answer("resp_1"))


@pytest.fixture
def front(tmp_path: Path, up: Bare) -> Iterator[str]:
    policies = write_rules(
        tmp_path / "policy",
        {"taint": LABEL, "leak": DENY, "pin": MASK},
        kinds="text",
        capabilities="read_labels",
    )
    bob = {"name": "bob", "hash": hash_of(BOB_KEY), "subject": {"id": "bob"}}
    with up.running() as url:
        body = {
            "upstreams": {
                "up": {"dialect": "openai_responses", "base_url": url},
                "script": script(tmp_path, {"text": "ok"}),
                "claude": {"dialect": "anthropic_messages", "base_url": url},
            },
            "routes": [
                {"name": "claude", "upstream": "claude", "models": ["claude"]},
                {"name": "script", "upstream": "script", "models": ["script"]},
                {"name": "all", "upstream": "up"},
            ],
            "policies": [str(policies)],
            "keys": [ANN, bob],
            "anonymous": True,
        }
        with serving(tmp_path, body) as gateway:
            yield gateway


def ask(url: str, text: str, key: str | None = KEY, session: str | None = None, **more: Any) -> tuple[int, Any]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    headers |= {} if session is None else {"x-cmf-session-id": session}
    found: tuple[int, Any] = asked(url, "POST", PATH, {"model": "m", "input": text, **more}, headers)
    return found


def code(found: tuple[int, Any]) -> tuple[int, str]:
    return found[0], found[1]["error"]["code"]


@pytest.mark.spec("GW-147")
@pytest.mark.parametrize("session", [None, "mine"])
def test_labels_hold_when_a_request_goes_on_from_an_answer(front: str, up: Bare, session: str | None) -> None:
    first = ask(front, "what is the salary?", session=session)
    up.reply = answer("resp_2")
    second = ask(front, "go on", previous_response_id="resp_1")
    third = ask(front, "send it", previous_response_id="resp_2")
    up.reply = answer("resp_3")
    elsewhere = ask(front, "send it")

    assert (first[0], second[0], elsewhere[0]) == (200, 200, 200)
    assert b'"previous_response_id":"resp_1"' in up.heard[1]
    assert code(third) == (403, "test.tainted")


@pytest.mark.spec("GW-147")
@pytest.mark.parametrize(
    ("who", "more", "refused"),
    [
        (BOB_KEY, {"previous_response_id": "resp_1"}, "reference.response"),
        (None, {"previous_response_id": "resp_1"}, "reference.response"),
        (KEY, {"previous_response_id": "resp_9"}, "reference.response"),
        (KEY, {"previous_response_id": "resp_1", "session": "another"}, "reference.response"),
        (KEY, {"previous_response_id": 7}, "reference.response"),
        (KEY, {"previous_response_id": ""}, "reference.response"),
        (KEY, {"previousResponseId": "resp_1"}, "reference.response"),
        (KEY, {"conversation": "conv_1"}, "reference.conversation"),
        (KEY, {"conversation": {"id": "resp_1"}}, "reference.conversation"),
        (KEY, {"conversation": "conv_1", "previous_response_id": "resp_1"}, "reference.conversation"),
    ],
)
def test_an_answer_of_another_subject_or_not_judged_here_cannot_be_continued(
    front: str, up: Bare, who: str | None, more: dict[str, Any], refused: str
) -> None:
    assert ask(front, "hi")[0] == 200

    assert code(ask(front, "go on", who, **more)) == (403, refused)
    assert len(up.heard) == 1


@pytest.mark.spec("GW-147")
def test_no_client_can_name_the_session_that_holds_a_link(front: str) -> None:
    assert code(ask(front, "hi", session="~answer:x")) == (400, "session.invalid")


@pytest.mark.spec("GW-147")
def test_what_was_not_to_be_kept_cannot_be_gone_on_from(front: str) -> None:
    assert ask(front, "hi", store=False)[0] == 200

    assert code(ask(front, "go on", previous_response_id="resp_1")) == (403, "reference.response")


@pytest.mark.spec("GW-147")
def test_an_answer_that_policy_changed_is_not_what_the_provider_keeps(front: str, up: Bare) -> None:
    up.reply = answer("resp_1", "the PIN is 1234")
    assert "1234" not in json.dumps(ask(front, "hi")[1]["output"])

    assert code(ask(front, "go on", previous_response_id="resp_1")) == (403, "reference.response")


@pytest.mark.spec("GW-148")
def test_an_id_that_an_upstream_gives_twice_is_refused_the_second_time(front: str, up: Bare) -> None:
    assert ask(front, "hi", session="clean")[0] == 200

    assert code(ask(front, "what is the salary?", session="tainted")) == (502, "upstream.reused-id")
    assert ask(front, "hi", session="clean")[0] == 200


@pytest.mark.spec("GW-147")
def test_a_continuation_is_refused_where_the_upstream_cannot_continue_answers(front: str, up: Bare) -> None:
    first = ask(front, "hi", model="script")
    assert first[0] == 200

    status, body = ask(front, "go on", model="claude", previous_response_id=first[1]["id"])

    assert (status, body["error"]["code"]) == (400, "request.reference")
    assert up.heard == []


# -- the links themselves ----------------------------------------------------------------------------------------------


def asked_by(
    subject: str | None, body: Any, session: str | None = None, endpoint: Endpoint | None = None
) -> IncomingRequest:
    return IncomingRequest(
        endpoint=endpoint or Endpoint(operation=Operation.ANSWER, dialect=RESPONSES),
        body=body,
        headers={},
        request_id=str(ULID()),
        subject=None if subject is None else SubjectExtension(id=subject),
        session=session,
    )


def response(id: str) -> Response:
    body = json.loads(answer(id).partition(b"\r\n\r\n")[2])
    return get("openai_responses").from_wire_response(body)


@pytest.mark.spec("GW-147")
def test_links_to_answers_hold_in_every_store_for_their_subject_only(store: SessionStore) -> None:
    links = Links(store, makes=True)

    async def run() -> list[str | None]:
        await links.keep(asked_by("ann", {}, "s1"), response("resp_1"))
        await links.keep(asked_by("ann", {}, "s1"), response("resp_1"))
        onward = {"previous_response_id": "resp_1"}
        return [await links.session(asked_by(who, onward)) for who in ("ann", "bob", None)]

    assert asyncio.run(run()) == ["s1", None, None]
    links.close()


@pytest.mark.spec("GW-147")
def test_a_new_session_is_made_where_an_answer_may_be_gone_on_from_and_nowhere_else() -> None:
    makes, keeps_to_itself = Links(MemorySessions(), makes=True), Links(MemorySessions(), makes=False)
    chat = Endpoint(operation=Operation.ANSWER, dialect=CHAT)

    async def run() -> None:
        plain = asked_by("ann", {})
        assert await makes.session(plain) == f"sess_{plain.request_id}"
        assert await makes.session(asked_by("ann", {}, "s")) == "s"
        for other in (
            asked_by("ann", {"store": False}),
            asked_by("ann", {}, endpoint=chat),
            asked_by("ann", [1]),
            asked_by(None, {}),
        ):
            assert await makes.session(other) is None
        assert await keeps_to_itself.session(plain) is None

    asyncio.run(run())


@pytest.mark.spec("GW-148")
def test_answers_without_an_id_and_runs_without_a_session_leave_no_link() -> None:
    sessions = MemorySessions()
    links = Links(sessions, makes=True)

    async def run() -> None:
        await links.keep(asked_by("ann", {}), response("resp_1"))
        await links.keep(asked_by("ann", {}, "s"), None)
        await links.keep(asked_by("ann", {}, "s"), Response())
        await links.keep(asked_by("ann", {"store": False}, "s"), response("resp_1"))
        assert await links.session(asked_by("ann", {"previous_response_id": "resp_1"})) is None
        await links.keep(asked_by("ann", {}, "s"), response("resp_1"))
        with pytest.raises(Refusal) as caught:
            await links.keep(asked_by("ann", {}, "t"), response("resp_1"))
        assert caught.value.status == 502

    asyncio.run(run())
