"""What stands where a link puts or looks for words of its own: judged like the rest, and never the end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.test_cut_anywhere import Cut
from tests.pipeline.mcp.pairs import READ, Pair, call, notice, text, tool

from pipeline.decisions.errors import EmissionError, StoreError
from pipeline.guard import Guard
from pipeline.mcp import judging
from pipeline.mcp.frames import TIMEOUT, UNAVAILABLE
from pipeline.mcp.link import Side, Step
from pipeline.mcp.pins import Pins

CARD = "4111111111111111"
RULES = {
    "cards": f'deny contains {{"code": "no.card", "reason": "No."}} if contains(json.marshal(input), "{CARD}")',
    "names": 'deny contains {"code": "no.rm", "reason": "Not this tool."} if input.uri == "tool://files/rm"',
}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with Guard([write_rules(tmp_path_factory.mktemp("policy"), RULES)]) as guard:
        yield guard


@pytest.fixture
def pair(guard: Guard) -> Pair:
    return Pair(guard)


@pytest.mark.spec("MCPX-20")
async def test_the_name_of_a_changed_tool_is_judged_before_the_client_gets_it(guard: Guard) -> None:
    pins = Pins()
    first = await Pair(guard, pins=pins).exchange("tools/list", {}, {"tools": [tool(CARD)]}, 1)
    second = await Pair(guard, pins=pins).exchange("tools/list", {}, {"tools": [tool(CARD, "Else.")]}, 2)

    assert (first["error"]["data"]["code"], second["error"]["data"]["code"]) == ("no.card", "no.card")
    assert CARD not in str(second)


@pytest.mark.spec("MCPX-20")
@pytest.mark.parametrize("meta", [None, "x", [1]])
async def test_what_changed_is_named_whatever_stands_where_the_names_go(pair: Pair, meta: Any) -> None:
    await pair.exchange("tools/list", {}, {"tools": [tool("read")]}, 1)
    body = await pair.exchange("tools/list", {}, {"tools": [tool("read", "Else.")], "_meta": meta}, 2)

    told = [{"name": "read", "code": "mcp.definition-changed"}]
    assert body["result"] == {"tools": [], "_meta": {"cmf/stripped": told}}


@pytest.mark.spec("MCPX-30")
@pytest.mark.parametrize("meta", [None, 5, True, "x", [1]])
async def test_a_refused_call_is_answered_whatever_stands_in_place_of_its_meta(pair: Pair, meta: Any) -> None:
    step = await pair.client(call("tools/call", {"name": "rm", "arguments": {}, "_meta": meta}))

    assert step.onward == ()
    assert step.back[0]["result"]["isError"] is True


@pytest.mark.spec("MCPX-17")
async def test_a_cancellation_that_policy_refuses_leaves_its_call_open(pair: Pair) -> None:
    minted = await pair.asked("tools/call", READ, 7)
    step = await pair.client(notice("notifications/cancelled", {"requestId": 7, "reason": CARD}))

    assert step == Step()
    answered = await pair.server({"jsonrpc": "2.0", "id": minted, "result": {"content": []}})
    assert [body["id"] for body in answered.onward] == [7]


@pytest.mark.spec("MCPX-17")
async def test_a_call_that_is_answered_while_its_cancellation_is_judged_stays_answered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    minted = await pair.asked("tools/call", READ, 7)
    judged, answers = pair.link._judge.call, []

    async def answered_meanwhile(body: Any) -> Any:
        answers.append(await pair.server({"jsonrpc": "2.0", "id": minted, "result": {"content": []}}))
        return await judged(body)

    monkeypatch.setattr(pair.link._judge, "call", answered_meanwhile)
    step = await pair.client(notice("notifications/cancelled", {"requestId": 7}))

    assert [body["id"] for body in answers[0].onward] == [7]
    assert step.onward == (notice("notifications/cancelled", {"requestId": minted}),)


@pytest.mark.spec("MCPX-19")
@pytest.mark.parametrize("size", [1, 3])
async def test_a_link_that_is_cancelled_wherever_it_judges_leaves_open_what_was_not_answered(
    pair: Pair, size: int
) -> None:
    await pair.begin("2025-03-26")
    asked = [call("tools/call", READ, number) for number in range(size)]
    noticed = notice("notifications/roots/list_changed")
    at, is_cut = 0, True
    while is_cut:
        is_cut, step = await cut(pair.client([noticed, *asked] if size > 1 else asked[0]), at)
        assert pair.link.waiting == (0 if is_cut else size)
        at += 1
    assert step is not None
    result = {"content": [text("fine")]}
    answers = [{"jsonrpc": "2.0", "id": body["id"], "result": result} for body in step.onward if "id" in body]
    for at in range(size):
        is_cut, _ = await cut(pair.server(answers if size > 1 else answers[0]), at)
        assert (is_cut, pair.link.waiting) == (True, size)

    assert [body["error"]["data"]["code"] for body in pair.link.ended()] == ["mcp.server-disconnected"] * size
    assert at == size - 1


@pytest.mark.spec("MCPX-16")
async def test_an_id_that_was_taken_again_while_its_answer_was_judged_is_that_of_the_second_call(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_ever(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(pair.link._judge, "answer", for_ever)
    minted = await pair.asked("tools/call", READ)
    answering = asyncio.ensure_future(pair.server({"jsonrpc": "2.0", "id": minted, "result": {"content": []}}))
    await asyncio.sleep(0)

    second = await pair.asked("tools/call", READ)
    answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering

    assert (pair.link.is_open(minted), pair.link.is_open(second), pair.link.waiting) == (False, True, 1)


@pytest.mark.spec("MCPX-18")
async def test_a_server_s_call_that_is_not_answered_in_time_ends_in_an_error_and_leaves_room(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.mcp.link.MAX_OPEN", 1)
    [asked] = (await pair.server(call("roots/list", id="q"))).onward
    assert (await pair.server(call("roots/list", id="r"))).back[0]["error"]["data"]["code"] == "mcp.busy"
    pair.now = 10

    late = pair.link.expired(Side.SERVER)

    assert [(body["id"], body["error"]["code"], body["error"]["data"]["code"]) for body in late.back] == [
        ("q", TIMEOUT, "mcp.timeout")
    ]
    assert "client" in late.back[0]["error"]["message"]
    assert late.onward == (notice("notifications/cancelled", {"requestId": asked["id"], "reason": "timeout"}),)
    assert await pair.client({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}) == Step()
    assert len((await pair.server(call("roots/list", id="r"))).onward) == 1


async def cut(work: Awaitable[Step], at: int) -> tuple[bool, Step | None]:
    """Whether `work` was cancelled where it waited for the `at`-th time; else what came of it."""
    cutting = Cut(work, at)

    async def run() -> Step:
        return await cutting

    try:
        return False, await asyncio.ensure_future(run())
    except asyncio.CancelledError:
        return True, None


@pytest.mark.spec("MCPX-33")
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (EmissionError("used before", code="emit.x"), "emit.x", "used before"),
        (StoreError("no /var/store", code="store.x"), "store.x", "This could not be judged."),
    ],
)
async def test_what_cannot_be_brought_to_its_end_is_an_outage_and_tells_nothing_of_the_host(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, message: str
) -> None:
    def broken(outcome: object, target: str) -> Any:
        raise error

    monkeypatch.setattr(judging, "emit", broken)
    step = await pair.client(call("tools/call", READ))

    said = step.back[0]["error"]
    assert (said["code"], said["data"]["code"], said["data"]["retryable"]) == (UNAVAILABLE, code, True)
    assert said["message"].startswith(message)


@pytest.mark.spec("MCPX-3", "MCPX-15")
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline", "Action": "accept", "content": {}},
        {"action": "accept", "content": {"amount": 1, "Amount": 2}},
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "fine", "Text": "other"}},
    ],
)
async def test_keys_of_an_answer_within_a_call_that_differ_in_case_are_refused(pair: Pair, answer: Any) -> None:
    step = await pair.client(call("tools/call", {**READ, "inputResponses": {"q": answer}}))

    assert step.onward == ()
    assert step.back[0]["result"]["_meta"]["cmf/code"] == "mcp.ambiguous-key"
