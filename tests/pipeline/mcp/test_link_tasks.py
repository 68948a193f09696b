"""What a task gives is judged as what the call gives that began it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp.pairs import Pair, call, notice, text

from pipeline.guard import Guard
from pipeline.mcp import link
from pipeline.mcp.link import Step
from pipeline.provenance.profiles import Profiles

RULES = {
    "results": 'deny contains {"code": "no.result", "reason": "No."} if {\n'
    '    input.kind == "tool_result"\n    input.name == "leak"\n}',
    "after": 'deny contains {"code": "no.secret", "reason": "After a secret."} if {\n'
    '    input.kind == "tool_call"\n    "SECRET" in input.extensions.security.labels\n}',
    "words": 'deny contains {"code": "no.bomb", "reason": "Not that word."} if contains(input.content, "bomb")',
}
STANDS = {"taskId": "t1", "status": "working", "createdAt": "2026-07-28T00:00:00Z", "ttlMs": None}
PROFILES = {"version": 1, "profiles": {"files/vault": {"result": {"field_labels": {"**": ["SECRET"]}}}}}


@pytest.fixture
def guard(tmp_path: Any) -> Iterator[Guard]:
    with Guard(write_rules(tmp_path, RULES), profiles=Profiles.load(PROFILES)) as guard:
        yield guard


@pytest.fixture
def pair(guard: Guard) -> Pair:
    return Pair(guard)


async def begin(pair: Pair, name: str, task: str = "t1", **arguments: Any) -> None:
    """Call a tool as a task of revision 2025-11-25."""
    params = {"name": name, "arguments": arguments, "task": {"ttl": 60}}
    body = await pair.exchange("tools/call", params, {"task": {"taskId": task, "status": "working"}})
    assert body["result"]["task"]["taskId"] == task


async def begin_new(pair: Pair, name: str, task: str = "t1") -> None:
    """Call a tool whose server makes a task of it, as in revision 2026-07-28."""
    begun = {"resultType": "task", **STANDS, "taskId": task}
    assert (await pair.exchange("tools/call", {"name": name, "arguments": {}}, begun))["result"] == begun


async def fetch(pair: Pair, said: str = "done", task: str = "t1") -> dict[str, Any]:
    return await pair.exchange("tasks/result", {"taskId": task}, {"content": [text(said)]}, 2)


@pytest.mark.spec("MCPX-26")
async def test_the_result_of_a_task_is_refused_by_the_name_of_its_tool(pair: Pair) -> None:
    await begin(pair, "leak")

    body = await fetch(pair)

    assert body["id"] == 2
    assert body["result"]["isError"] is True
    assert body["result"]["_meta"]["cmf/code"] == "no.result"


@pytest.mark.spec("MCPX-26")
async def test_the_result_of_a_task_brings_the_labels_of_its_tool(pair: Pair) -> None:
    await begin(pair, "vault")
    before = await pair.client(call("tools/call", {"name": "send", "arguments": {}}, 3))
    await fetch(pair)

    after = await pair.client(call("tools/call", {"name": "send", "arguments": {}}, 4))

    assert len(before.onward) == 1
    assert after.back[0]["result"]["_meta"]["cmf/code"] == "no.secret"


@pytest.mark.spec("MCPX-26")
@pytest.mark.parametrize("params", [{"taskId": "t2"}, {"taskId": 1}, {"taskId": ["t1"]}, {}])
async def test_the_result_of_an_unknown_task_is_not_asked_for(pair: Pair, params: Any) -> None:
    await begin(pair, "look")

    step = await pair.client(call("tasks/result", params, 2))

    assert step.onward == ()
    assert step.back[0]["error"]["data"]["code"] == "mcp.unknown-task"


@pytest.mark.spec("MCPX-26")
@pytest.mark.parametrize("first", ["leak", "look"])
async def test_a_task_that_two_calls_began_belongs_to_neither(pair: Pair, first: str) -> None:
    for name in (first, "leak" if first == "look" else "look", first):
        await begin(pair, name)

    step = await pair.client(call("tasks/result", {"taskId": "t1"}, 2))

    assert step.onward == ()
    assert step.back[0]["error"]["data"]["code"] == "mcp.unknown-task"


@pytest.mark.spec("MCPX-26")
async def test_a_task_may_be_fetched_again(pair: Pair) -> None:
    await begin(pair, "look")
    again = {"content": [text("done")], "task": {"taskId": "t1", "status": "completed"}}

    found = [await pair.exchange("tasks/result", {"taskId": "t1"}, again, number) for number in (2, 3)]

    assert [body["result"]["content"] for body in found] == [[text("done")]] * 2


@pytest.mark.spec("MCPX-26")
async def test_the_tasks_of_one_side_are_unknown_to_the_other(pair: Pair) -> None:
    await begin(pair, "look")

    step = await pair.server(call("tasks/result", {"taskId": "t1"}, 2))

    assert step.back[0]["error"]["data"]["code"] == "mcp.unknown-task"


@pytest.mark.spec("MCPX-26")
async def test_the_oldest_tasks_are_forgotten(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MAX_TASKS", 2)
    for name in ("t1", "t2", "t3"):
        await begin(pair, "look", name)

    first = await pair.client(call("tasks/result", {"taskId": "t1"}, 2))

    assert first.back[0]["error"]["data"]["code"] == "mcp.unknown-task"
    assert (await fetch(pair, task="t2"))["result"] == {"content": [text("done")]}


@pytest.mark.spec("MCPX-26")
async def test_the_oldest_tasks_are_forgotten_if_their_calls_are_large(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MAX_TASK_BYTES", 3000)
    await begin(pair, "look", "t1", what="x" * 2000)
    assert (await fetch(pair, task="t1"))["result"] == {"content": [text("done")]}
    await begin(pair, "look", "t2", what="x" * 2000)
    await begin(pair, "look", "t3", what="x" * 4000)

    assert (await pair.client(call("tasks/result", {"taskId": "t2"}, 2))).onward == ()
    assert (await fetch(pair, task="t3"))["result"] == {"content": [text("done")]}


@pytest.mark.spec("MCPX-26")
async def test_what_a_task_of_the_client_gives_is_judged_before_the_server_gets_it(pair: Pair) -> None:
    asked = {"messages": [{"role": "user", "content": text("go")}], "maxTokens": 5, "task": {"ttl": 60}}
    sent = await pair.server(call("sampling/createMessage", asked, 1))
    task = {"task": {"taskId": "t1", "status": "working"}}
    await pair.client({"jsonrpc": "2.0", "id": sent.onward[0]["id"], "result": task})
    fetched = await pair.server(call("tasks/result", {"taskId": "t1"}, 2))
    turn = {"role": "assistant", "content": text("a bomb"), "model": "m"}

    step = await pair.client({"jsonrpc": "2.0", "id": fetched.onward[0]["id"], "result": turn})

    assert step.onward[0]["id"] == 2
    assert step.onward[0]["error"]["data"]["code"] == "no.bomb"


@pytest.mark.spec("MCPX-25")
async def test_in_mode_observe_results_of_unknown_tasks_are_fetched(guard: Guard) -> None:
    pair = Pair(guard, enforce=False)

    assert (await fetch(pair))["result"] == {"content": [text("done")]}


# -- the extension of revision 2026-07-28 ------------------------------------------------------------------------------


def finished(said: str = "done", **more: Any) -> dict[str, Any]:
    return {"resultType": "complete", **STANDS, "status": "completed", "result": {"content": [text(said)]}, **more}


async def poll(pair: Pair, task: Any, task_id: Any = "t1") -> dict[str, Any]:
    return await pair.exchange("tasks/get", {"taskId": task_id}, task, 2)


@pytest.mark.spec("MCPX-26")
@pytest.mark.parametrize("task_id", ["t2", 1, ["t1"], None])
async def test_the_result_of_an_unknown_task_is_refused(pair: Pair, task_id: Any) -> None:
    await begin_new(pair, "look")

    body = await poll(pair, finished(), task_id)

    assert body["id"] == 2
    assert body["error"]["data"]["code"] == "mcp.unknown-task"


@pytest.mark.spec("MCPX-26")
@pytest.mark.parametrize("begins", [begin, begin_new])
async def test_a_finished_task_is_refused_by_the_name_of_its_tool(pair: Pair, begins: Any) -> None:
    await begins(pair, "leak")

    body = await poll(pair, finished())

    assert body["id"] == 2
    assert body["error"]["data"]["code"] == "no.result"


@pytest.mark.spec("MCPX-26")
async def test_a_finished_task_brings_the_labels_of_its_tool(pair: Pair) -> None:
    await begin_new(pair, "vault")
    before = await pair.client(call("tools/call", {"name": "send", "arguments": {}}, 3))
    assert (await poll(pair, finished()))["result"] == finished()

    after = await pair.client(call("tools/call", {"name": "send", "arguments": {}}, 4))

    assert len(before.onward) == 1
    assert after.back[0]["result"]["_meta"]["cmf/code"] == "no.secret"


@pytest.mark.spec("MCPX-26")
async def test_how_a_task_stands_is_forwarded_whoever_began_it(pair: Pair) -> None:
    await begin_new(pair, "look")

    for task_id in ("t1", "t2"):
        assert (await poll(pair, STANDS, task_id))["result"] == STANDS
    refused = await poll(pair, {**STANDS, "statusMessage": "a bomb"})
    assert refused["error"]["data"]["code"] == "no.bomb"


@pytest.mark.spec("MCPX-26")
async def test_an_answer_to_tasks_get_begins_no_task(pair: Pair) -> None:
    await begin_new(pair, "look")
    await poll(pair, {**STANDS, "resultType": "task", "taskId": "t2"})

    body = await poll(pair, finished(), "t2")

    assert body["error"]["data"]["code"] == "mcp.unknown-task"


@pytest.mark.spec("MCPX-26")
async def test_what_a_task_asks_and_is_told_is_judged(pair: Pair) -> None:
    await begin_new(pair, "look")
    asking = {"name": {"method": "elicitation/create", "params": {"message": "a bomb?", "requestedSchema": {}}}}
    asked = await poll(pair, {**STANDS, "status": "input_required", "inputRequests": asking})
    answers = {"name": {"role": "assistant", "content": text("a bomb"), "model": "m"}}
    told = await pair.client(call("tasks/update", {"taskId": "t1", "inputResponses": answers}, 3))
    fine = await pair.client(
        call("tasks/update", {"taskId": "t1", "inputResponses": {"name": {"action": "decline"}}}, 4)
    )

    assert asked["error"]["data"]["code"] == "no.bomb"
    assert told.back[0]["error"]["data"]["code"] == "no.bomb"
    assert len(fine.onward) == 1


@pytest.mark.spec("MCPX-26")
async def test_structured_content_of_a_task_follows_what_policy_leaves_of_its_text(tmp_path: Any) -> None:
    mask = (
        'redact contains {"code": "no.word", "reason": "No.", "spans": [[at, at + 4]]} if {\n'
        '    at := indexof(input.content, "bomb")\n    at >= 0\n}'
    )
    with Guard(write_rules(tmp_path, {"mask": mask}, kinds="text")) as guard:
        pair = Pair(guard)
        await begin_new(pair, "look")
        result = {"content": [text('{"a":"bomb"}')], "structuredContent": {"a": "bomb"}}

        body = await poll(pair, {**finished(), "result": result})

    left = {"content": [text('{"a":"[MASKED]"}')], "structuredContent": {"a": "[MASKED]"}}
    assert body["result"] == {**finished(), "result": left}


@pytest.mark.spec("MCPX-27")
@pytest.mark.parametrize(
    ("name", "task", "code"),
    [
        ("look", finished(taskId="t2"), "mcp.unknown-task"),
        ("look", {**STANDS, "taskId": "t2"}, "mcp.unknown-task"),
        ("leak", finished(), "no.result"),
        ("look", finished("a bomb"), "no.bomb"),
        ("look", {**STANDS, "statusMessage": "a bomb"}, "no.bomb"),
    ],
)
async def test_a_notice_of_a_task_that_policy_refuses_is_not_forwarded(
    pair: Pair, caplog: pytest.LogCaptureFixture, name: str, task: Any, code: str
) -> None:
    caplog.set_level("INFO", logger="pipeline.mcp")
    await begin_new(pair, name)

    step = await pair.server(notice("notifications/tasks", task))

    assert step == Step()
    assert code in caplog.text


@pytest.mark.spec("MCPX-27")
async def test_a_notice_of_a_task_is_forwarded_and_brings_the_labels_of_its_tool(pair: Pair) -> None:
    await begin_new(pair, "vault")
    body = notice("notifications/tasks", {**finished(), "_meta": {"io.modelcontextprotocol/subscriptionId": 1}})

    step = await pair.server(body)
    after = await pair.client(call("tools/call", {"name": "send", "arguments": {}}, 4))

    assert step.onward == (body,)
    assert after.back[0]["result"]["_meta"]["cmf/code"] == "no.secret"


@pytest.mark.spec("MCPX-27", "MCPX-25")
async def test_in_mode_observe_notices_of_unknown_tasks_are_forwarded(guard: Guard) -> None:
    pair = Pair(guard, enforce=False)

    step = await pair.server(notice("notifications/tasks", STANDS))

    assert step.onward == (notice("notifications/tasks", STANDS),)
