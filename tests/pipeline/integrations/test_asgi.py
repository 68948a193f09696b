"""The ASGI middleware around a Starlette application whose tools are under the guard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from tests.pipeline.conftest import write_rules
from tests.pipeline.integrations.policies import guard_of

from pipeline import Denied, Guard
from pipeline.decisions.errors import ConfigError
from pipeline.integrations.asgi import CmfMiddleware

SESSION = {"x-cmf-session-id": "s"}
RULES = {
    "bob": """\
deny contains {"code": "not.bob", "reason": "Not Bob."} if {
    object.get(input.extensions, ["security", "subject", "id"], "") == "bob"
}""",
    "twice": """\
deny contains {"code": "once", "reason": "Once a session."} if {
    object.get(input.session.counters, "calls:tool://_/send", 0) >= 1
}""",
    "pay": 'require_approval contains {"code": "ask", "reason": "Ask."} if input.arguments.text == "pay"',
}


def app_of(guard: Guard, **more: Any) -> Starlette:
    @guard.tool
    def send(text: str) -> str:
        return text

    async def called(request: Any) -> Any:
        return PlainTextResponse(send(request.query_params["text"]))

    async def late(request: Any) -> Any:
        def pieces() -> Iterator[str]:
            yield "begun"
            yield send("late")

        send("early")
        return StreamingResponse(pieces())

    async def together(request: Any) -> Any:
        async def one(text: str) -> None:
            if text == "odd":
                raise ValueError
            send(text)

        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(one("hi"))
            for text in request.query_params["texts"].split(","):
                inner.create_task(one(text))

    async def socket(websocket: Any) -> None:
        await websocket.accept()
        await websocket.send_text(send("hello"))
        await websocket.close()

    async def refuses(websocket: Any) -> None:
        send("x")
        await websocket.accept()

    routes = [
        Route("/send", called),
        Route("/late", late),
        Route("/together", together),
        WebSocketRoute("/ws", socket),
        WebSocketRoute("/no", refuses),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(CmfMiddleware, guard=guard, subject=_who, **more)
    return app


def _who(scope: Any) -> dict[str, Any]:
    headers = dict(scope["headers"])
    return {"id": headers[b"x-user"].decode()}


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return Guard(write_rules(tmp_path, RULES, kinds="tool_call", capabilities="read_agent, read_labels, read_subject"))


def get(guard: Guard, path: str, headers: Any, **more: Any) -> Any:
    with TestClient(app_of(guard, **more), raise_server_exceptions=True) as client:
        return client.get(path, headers=headers)


@pytest.mark.spec("INT-11")
def test_a_refusal_is_an_answer_without_what_was_refused(guard: Guard) -> None:
    refused = get(guard, "/send?text=forbidden", {"x-user": "bob", **SESSION})
    waits = get(guard, "/send?text=pay", {"x-user": "ann", **SESSION})

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not.bob")
    assert refused.headers["x-cmf-decision-id"].startswith("dec_")
    assert "forbidden" not in refused.text
    assert (waits.status_code, waits.headers["x-cmf-approval-id"] in waits.text) == (403, True)


@pytest.mark.spec("INT-10")
def test_subject_and_session_are_those_of_the_request(guard: Guard) -> None:
    with TestClient(app_of(guard)) as client:
        first, again, elsewhere, another = (
            client.get("/send?text=hi", headers={"x-user": user, "x-cmf-session-id": session})
            for user, session in (("ann", "s"), ("ann", "s"), ("ann", "t"), ("cleo", "s"))
        )

    assert (first.status_code, first.text) == (200, "hi")
    assert (again.status_code, again.json()["error"]["code"]) == (403, "once")
    assert elsewhere.status_code == another.status_code == 200


@pytest.mark.spec("INT-10")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("x-user", "ann")], 400),
        ([("x-user", "ann"), ("x-cmf-session-id", "a b")], 400),
        ([("x-user", "ann"), ("x-cmf-session-id", "a"), ("x-cmf-session-id", "b")], 400),
        ([("x-cmf-session-id", "a")], 401),
    ],
)
def test_without_a_subject_or_a_session_the_application_is_not_called(guard: Guard, headers: Any, status: int) -> None:
    assert get(guard, "/send?text=hi", headers).status_code == status


@pytest.mark.spec("INT-10")
def test_claims_that_are_no_subject_are_401_and_the_log_says_why(
    guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    app = CmfMiddleware(app_of(guard), guard=guard, subject=lambda _: {"sub": "ann"})

    assert TestClient(app, headers=SESSION).get("/send", params={"text": "hi"}).status_code == 401
    assert "there is no such field at subject.sub" in caplog.text


@pytest.mark.spec("INT-11")
def test_refusals_of_a_group_of_tasks_are_an_answer_and_other_failures_are_not(guard: Guard) -> None:
    browser = TestClient(app_of(guard), headers={**SESSION, "x-user": "bob"}, raise_server_exceptions=False)

    refused = browser.get("/together", params={"texts": "a,b"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not.bob")
    assert browser.get("/together", params={"texts": "a,odd"}).status_code == 500


@pytest.mark.spec("INT-10")
def test_the_host_may_name_the_session_where_the_request_does_not(guard: Guard) -> None:
    assert get(guard, "/send?text=hi", {"x-user": "ann"}, session=lambda scope: scope["path"]).status_code == 200


@pytest.mark.spec("INT-11")
def test_policy_that_cannot_be_asked_is_503(tmp_path: Path) -> None:
    guard, _ = guard_of(tmp_path, timeout_seconds=1e-9)

    answer = get(guard, "/send?text=hi", {"x-user": "ann", **SESSION})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


@pytest.mark.spec("INT-11")
def test_what_has_begun_is_broken_off(guard: Guard) -> None:
    with pytest.raises(Denied):
        get(guard, "/late", {"x-user": "ann", **SESSION})


@pytest.mark.spec("INT-10", "INT-11")
def test_websockets_are_in_a_block_too(guard: Guard) -> None:
    with TestClient(app_of(guard)) as client:
        with client.websocket_connect("/ws", headers={"x-user": "ann", **SESSION}) as socket:
            assert socket.receive_text() == "hello"
        for headers in ({"x-user": "bob", **SESSION}, {"x-user": "ann"}):
            with pytest.raises(WebSocketDisconnect) as caught, client.websocket_connect("/no", headers=headers):
                pass
            assert caught.value.code == 1008


@pytest.mark.spec("INT-10")
def test_without_a_guard_or_a_subject_there_is_no_middleware(guard: Guard) -> None:
    with pytest.raises(ConfigError, match="a guard is required"):
        CmfMiddleware(Starlette(), guard=None, subject=_who)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`subject` is missing"):
        CmfMiddleware(Starlette(), guard=guard, subject=None)  # type: ignore[arg-type]
