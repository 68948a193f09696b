"""A result that is fetched later, as that of a task, is judged as the result of the call that began the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp_proxy.pairs import Pair, call, text

from pipeline.guard import Guard
from pipeline.mcp_proxy import link as links
from pipeline.profiles import Profiles

RULES = {
    "results": 'deny contains {"code": "no.result", "reason": "No."} if {\n'
    '    input.kind == "tool_result"\n    input.name == "leak"\n}',
    "after": 'deny contains {"code": "no.secret", "reason": "After a secret."} if {\n'
    '    input.kind == "tool_call"\n    "SECRET" in input.extensions.security.labels\n}',
    "words": 'deny contains {"code": "no.bomb", "reason": "Not that word."} if contains(input.content, "bomb")',
}
PROFILES = {"version": 1, "profiles": {"files/vault": {"result": {"field_labels": {"**": ["SECRET"]}}}}}


@pytest.fixture
def guard(tmp_path: Any) -> Iterator[Guard]:
    with Guard(write_rules(tmp_path, RULES), profiles=Profiles.load(PROFILES)) as guard:
        yield guard


@pytest.fixture
def pair(guard: Guard) -> Pair:
    return Pair(guard)


async def begin(pair: Pair, name: str, task: str = "t1") -> None:
    """Call a tool as a task."""
    params = {"name": name, "arguments": {}, "task": {"ttl": 60}}
    body = await pair.exchange("tools/call", params, {"task": {"taskId": task, "status": "working"}})
    assert body["result"]["task"]["taskId"] == task


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
    monkeypatch.setattr(links, "MAX_TASKS", 2)
    for name in ("t1", "t2", "t3"):
        await begin(pair, "look", name)

    first = await pair.client(call("tasks/result", {"taskId": "t1"}, 2))

    assert first.back[0]["error"]["data"]["code"] == "mcp.unknown-task"
    assert (await fetch(pair, task="t2"))["result"] == {"content": [text("done")]}


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
