"""One request and its answer, step by step, with nobody sending bytes: what is refused at each step, and how."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.pipeline.gateway import matrix_bodies

from cmf.adapters import get
from cmf.errors import UnsupportedError
from cmf.json.value import replace
from cmf.message.message import Message, TextPart
from cmf.message.request import Request, Response
from pipeline import Context, Guard
from pipeline.decisions.errors import ApprovalError, CallError, EmissionError, StoreError
from pipeline.gateway.http.client_response import Answer
from pipeline.integrations import httpx as turns
from pipeline.integrations.httpx import Got, Judge, Release, Send, Turn, turn
from pipeline.integrations.judged_calls import ajudged_call, as_json, as_settings, judged_call

JSON = {"content-type": "application/json"}
CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/m:generateContent"


@pytest.fixture(scope="module")
def guard(lenient: Any) -> Guard:
    return Guard(lenient)


def begun(path: str = CHAT, kind: str = "text", **headers: str) -> Turn:
    dialect = "gemini" if path == GEMINI else "openai_chat"
    _, body = matrix_bodies.request(dialect, kind, "hi", model="m", stream=False)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return turn("POST", path, "", JSON | named, json.dumps(body).encode())


def ended(running: Turn, said: Any) -> Answer:
    """What the client gets once the turn was told this."""
    with pytest.raises(StopIteration) as end:
        running.throw(said) if isinstance(said, Exception) else running.send(said)
    answered: Answer = end.value.value
    return answered


def asked(guard: Guard, path: str = CHAT) -> Turn:
    """A turn whose request was judged, and is to be sent."""
    running = begun(path)
    judge = next(running)
    assert isinstance(judge, Judge)
    assert isinstance(running.send(guard.run(judge.value)), Send)
    return running


@pytest.mark.spec("INT-1")
def test_the_provider_s_headers_say_nothing_that_only_a_policy_could_let_pass(guard: Guard) -> None:
    told = {
        "retry-after": "078-05-1120",
        "retry-after-ms": "ann",
        "x-should-retry": "ann",
        "request-id": "ann@corp.example",
    }
    kept = {"retry-after": "1.5", "retry-after-ms": "20", "x-should-retry": "true", "request-id": "req_011CSHoEeqs5"}

    for headers, left in ((told, {}), (kept, kept)):
        running = asked(guard)
        judge = running.send(
            Got(200, JSON | headers, json.dumps(matrix_bodies.reply("openai_chat", "text", "hi")).encode())
        )
        answered = ended(running, guard.run(judge.value, context=judge.context))  # type: ignore[union-attr]
        assert {name: value for name, value in answered.headers.items() if name in told} == left


@pytest.mark.spec("INT-2", "INT-5")
@pytest.mark.parametrize(
    ("error", "status", "retried"),
    [
        (ApprovalError("no", code="approval.none"), 403, "false"),
        (EmissionError("no", code="emission.none"), 503, "true"),
        (StoreError("no", code="store.none"), 503, "true"),
        (UnsupportedError("no"), 400, "false"),
    ],
)
def test_what_fails_at_judgement_is_a_refusal_of_the_provider_s_form(
    error: Exception, status: int, retried: str
) -> None:
    running = begun(x_cmf_approval_id="appr_1")
    assert next(running) == Release("appr_1")

    answered = ended(running, error)

    assert answered.status == status
    assert answered.headers["x-cmf-code"] == error.code  # type: ignore[attr-defined]
    assert answered.headers["x-should-retry"] == retried
    assert json.loads(answered.body)["error"]["code"] == error.code  # type: ignore[attr-defined]


@pytest.mark.spec("INT-1")
def test_a_stage_that_makes_something_else_of_a_request_or_an_answer_gets_nothing_through(guard: Guard) -> None:
    message = Message(role="user", content=[TextPart(text="hi")])
    other = guard.run(message)
    first, last = begun(), asked(guard)
    next(first)
    judge = last.send(Got(200, JSON, json.dumps(matrix_bodies.reply("openai_chat", "text", "hi")).encode()))
    assert isinstance(judge, Judge)

    unasked = ended(first, other)
    ungiven = ended(last, SimpleNamespace(response=None, decision=other.decision, value=message))

    assert (unasked.status, unasked.headers["x-cmf-code"]) == (503, "pipeline.no-request")
    assert (ungiven.status, ungiven.headers["x-cmf-code"]) == (503, "pipeline.no-response")


@pytest.mark.spec("INT-1")
def test_a_model_in_the_path_cannot_become_another(guard: Guard) -> None:
    running = begun(GEMINI)
    judge = next(running)
    assert isinstance(judge, Judge)
    assert isinstance(judge.value, Request)
    swapped = guard.run(replace(judge.value, model="google:another"))

    answered = ended(running, swapped)

    assert (answered.status, answered.headers["x-cmf-code"]) == (503, "integration.other-model")


@pytest.mark.spec("INT-6")
def test_an_answer_under_a_status_of_errors_is_an_error_of_the_provider(guard: Guard) -> None:
    running = asked(guard)
    fine = json.dumps(matrix_bodies.reply("openai_chat", "text", "hi")).encode()

    judge = running.send(Got(500, JSON, fine))

    assert isinstance(judge, Judge)
    assert isinstance(judge.value, Response)
    assert judge.value.error is not None
    assert (judge.value.error.status, judge.value.error.code) == (500, "upstream.error")
    assert judge.value.choices == ()
    assert isinstance(judge.context, Context)
    assert judge.context.history is not None


@pytest.mark.spec("INT-20")
async def test_a_request_that_a_stage_made_something_else_of_is_not_asked(guard: Guard) -> None:
    request = get("openai_chat").from_wire_request(
        matrix_bodies.request("openai_chat", "text", "hi", model="m", stream=False)[1]
    )
    other = guard.run(Message(role="user", content=[TextPart(text="hi")]))

    async def arun(value: Any, **more: Any) -> Any:
        return other

    odd: Any = SimpleNamespace(run=lambda value, **more: other, arun=arun)

    def never(admitted: Any) -> Any:
        raise AssertionError

    for asks in (lambda: judged_call(odd, request, never), None):
        with pytest.raises(CallError) as caught:
            _ = asks() if asks is not None else await ajudged_call(odd, request, never)
        assert caught.value.code == "guard.other-request"


@pytest.mark.spec("INT-25")
def test_headers_with_credentials_are_not_among_the_settings_that_policy_sees() -> None:
    headers = {"Authorization": "Bearer x", "X-Api-Key": "x", "X-Trace": "t"}

    shown = as_settings({"extra_headers": headers, "headers": None, "temperature": 1})

    assert shown == {"extra_headers": {"X-Trace": "t"}, "headers": None, "temperature": 1}


def test_what_has_no_json_form_is_there_as_its_repr() -> None:
    made = as_json({"a": (1, b"x"), "b": turns.JSON, "c": object})

    assert made["a"] == [1, "x"]
    assert made["c"] == "<class 'object'>"
