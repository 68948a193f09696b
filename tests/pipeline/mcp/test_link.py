"""Every message between a client and a server is judged, under its own id, and nothing else goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp.pairs import PNG, READ, Pair, call, notice, text, tool

from cmf.adapters.mcp.message import VERSION_KEY
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Mode
from pipeline.guard import Guard
from pipeline.mcp import judging
from pipeline.mcp import link as links
from pipeline.mcp.frames import APPROVAL, CLOSED, INVALID_PARAMS, REFUSED, TIMEOUT, UNAVAILABLE, Refused, frame_of
from pipeline.mcp.link import Memory, Side, Step
from pipeline.mcp.pins import Pins
from pipeline.run.assembly import Config

RULES = {
    "words": 'deny contains {"code": "no.bomb", "reason": "Not that word."} if contains(input.content, "bomb")',
    "names": 'deny contains {"code": "no.rm", "reason": "Not this tool."} if input.uri == "tool://files/rm"',
    "away": 'strip_tool contains {"code": "no.evil", "reason": "Not offered."} if {\n'
    '    input.kind == "tool_definition"\n    input.name == "evil"\n}',
    "twice": 'rewrite contains {"code": "own.path", "reason": "Own.", "pointer": "/arguments/path", "value": "/home"} '
    'if {\n    input.uri == "tool://files/write"\n    input.arguments.path != "/home"\n}',
    "look": 'require_approval contains {"code": "ask.first", "reason": "A person must look."} if input.name == "pay"',
    "uris": 'deny contains {"code": "no.etc", "reason": "Not there."} if startswith(input.uri, "file:///etc")',
    "params": 'deny contains {"code": "no.level", "reason": "Not that."} if {\n'
    '    input.kind == "request"\n    contains(json.marshal(input.properties), "canary")\n}',
    "asks": 'deny contains {"code": "no.ask", "reason": "Do not ask that."} if {\n'
    '    input.kind == "text"\n    contains(input.content, "password")\n}',
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policy"), RULES)


@pytest.fixture(scope="module")
def guard(home: Path) -> Iterator[Guard]:
    with Guard(["shipped", home], config=Config(timeout_seconds=20)) as guard:
        yield guard


@pytest.fixture
def pair(guard: Guard) -> Pair:
    return Pair(guard)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-10")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/read", {"uri": "file:///etc/passwd"}, "no.etc"),
        ("resources/subscribe", {"uri": "file:///etc/passwd"}, "no.etc"),
        ("resources/unsubscribe", {"uri": "file:///etc/passwd"}, "no.etc"),
        ("prompts/get", {"name": "pay"}, "ask.first"),
        ("completion/complete",
         {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "bomb"}}, "no.bomb"),
        ("logging/setLevel", {"level": "canary"}, "no.level"),
        ("tasks/get", {"taskId": "canary"}, "no.level"),
        ("tasks/cancel", {"taskId": "canary"}, "no.level"),
        ("tools/list", {"cursor": "canary"}, "no.level"),
        ("made/up", {"a": "b"}, "tools.unknown-wire-type"),
    ],
)  # fmt: skip
async def test_a_call_that_policy_refuses_is_an_error_and_goes_nowhere(
    pair: Pair, method: str, params: Any, code: str
) -> None:
    step = await pair.client(call(method, params, "x"))

    assert step.onward == ()
    [body] = step.back
    assert body["id"] == "x"
    assert body["error"]["code"] in (REFUSED, APPROVAL)
    assert body["error"]["data"]["code"] == code
    assert body["error"]["data"]["decision_id"] in body["error"]["message"]
    assert pair.link.waiting == 0


@pytest.mark.spec("MCPX-30")
async def test_a_tool_that_policy_refuses_answers_its_caller_in_a_result(pair: Pair) -> None:
    step = await pair.client(call("tools/call", {"name": "rm", "arguments": {"path": "/"}}, 7))

    assert step.onward == ()
    [body] = step.back
    assert body["id"] == 7
    assert body["result"]["isError"] is True
    assert body["result"]["_meta"]["cmf/code"] == "no.rm"
    assert body["result"]["_meta"]["cmf/verdict"] == "deny"
    assert body["result"]["_meta"]["cmf/decision-id"] in body["result"]["content"][0]["text"]
    assert "resultType" not in body["result"]


@pytest.mark.spec("MCPX-30")
async def test_the_revision_that_wants_it_gets_the_type_of_a_result(pair: Pair) -> None:
    meta = {VERSION_KEY: "2026-07-28"}
    step = await pair.client(call("tools/call", {"name": "rm", "arguments": {}, "_meta": meta}))

    assert step.back[0]["result"]["resultType"] == "complete"


@pytest.mark.spec("MCPX-31")
async def test_what_waits_for_a_person_names_the_approval(pair: Pair) -> None:
    step = await pair.client(call("prompts/get", {"name": "pay"}))
    tried = await pair.client(call("tools/call", {"name": "pay", "arguments": {}}, 2))

    assert step.back[0]["error"]["code"] == APPROVAL
    [approval] = step.back[0]["error"]["data"]["approval_ids"]
    assert approval in step.back[0]["error"]["message"]
    assert tried.back[0]["result"]["_meta"]["cmf/approval-ids"] != [approval]


@pytest.mark.spec("MCPX-10")
@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("tools/call", READ, {"content": [text("a bomb")]}),
        ("tools/call", READ, {"content": [], "structuredContent": {"a": "bomb"}}),
        ("prompts/get", {"name": "p"}, {"messages": [{"role": "user", "content": text("a bomb")}]}),
        ("resources/read", {"uri": "file:///a"}, {"contents": [{"uri": "file:///a", "text": "a bomb"}]}),
        ("resources/list", {}, {"resources": [{"uri": "file:///etc/x", "name": "x"}]}),
        ("initialize",
         {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
         {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"},
          "instructions": "a bomb"}),
    ],
)  # fmt: skip
async def test_an_answer_that_policy_refuses_is_the_caller_s_refusal(
    guard: Guard, method: str, params: Any, result: Any
) -> None:
    pair = Pair(guard)
    if "structuredContent" in result:
        result = {**result, "content": [text("a bomb")]}

    body = await pair.exchange(method, params, result)

    assert body["id"] == 1
    assert "a bomb" not in str(body.get("result"))
    assert body["result"]["isError"] is True if method == "tools/call" else body["error"]["code"] == REFUSED
    assert pair.link.version is None
    assert pair.link.waiting == 0


@pytest.mark.spec("MCPX-10")
async def test_an_error_of_a_server_is_judged_like_everything_it_says(pair: Pair) -> None:
    minted = await pair.asked("ping")
    fine = await pair.server({"jsonrpc": "2.0", "id": minted, "error": {"code": -32601, "message": "no such thing"}})

    assert fine.onward == ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no such thing"}},)


@pytest.mark.spec("MCPX-11")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage",
         {"messages": [{"role": "user", "content": text("your password?")}], "maxTokens": 5}),
        ("sampling/createMessage",
         {"messages": [{"role": "user", "content": text("hi")}], "maxTokens": 5,
          "tools": [{"name": "rm", "inputSchema": {"type": "object"}}]}),
        ("elicitation/create", {"message": "Your password, please", "requestedSchema": {"type": "object"}}),
        ("roots/list", {"_meta": {"x": "canary"}}),
        ("made/up", {}),
    ],
)  # fmt: skip
async def test_what_a_server_may_not_ask_is_refused_to_it_and_the_client_never_hears_of_it(
    pair: Pair, method: str, params: Any
) -> None:
    step = await pair.server(call(method, params, 5))

    assert step.onward == ()
    assert step.back[0]["id"] == 5
    assert step.back[0]["error"]["code"] == REFUSED


@pytest.mark.spec("MCPX-11")
async def test_what_a_client_may_not_say_to_a_server_is_the_server_s_refusal(pair: Pair) -> None:
    params = {"messages": [{"role": "user", "content": text("hi")}], "maxTokens": 5}
    asked = await pair.server(call("sampling/createMessage", params, "q"))
    [question] = asked.onward
    said = {"role": "assistant", "content": text("a bomb"), "model": "m", "stopReason": "endTurn"}

    step = await pair.client({"jsonrpc": "2.0", "id": question["id"], "result": said})

    assert question["params"] == params
    assert question["id"] != "q"
    assert step.back == ()
    assert step.onward[0]["id"] == "q"
    assert step.onward[0]["error"]["data"]["code"] == "no.bomb"


@pytest.mark.spec("MCPX-12")
@pytest.mark.parametrize(
    ("side", "method", "params"),
    [
        (Side.SERVER, "notifications/message", {"level": "info", "data": "a bomb"}),
        (Side.SERVER, "notifications/tasks/status", {"taskId": "1", "status": "working", "statusMessage": "a bomb"}),
        (Side.SERVER, "notifications/resources/updated", {"uri": "canary"}),
        (Side.CLIENT, "notifications/made-up", {}),
        (Side.CLIENT, "notifications/cancelled", {"requestId": 99}),
        (Side.CLIENT, "notifications/cancelled", {"requestId": [99]}),
        (Side.SERVER, "notifications/progress", {"progressToken": 1, "progress": 1}),
        (Side.SERVER, "notifications/progress", {"progressToken": None, "progress": 1}),
    ],
)
async def test_a_notification_that_is_refused_ends_here(pair: Pair, side: Side, method: str, params: Any) -> None:
    step = await pair.link.receive(side, frame_of(notice(method, params)))

    assert step == Step()


@pytest.mark.spec("MCPX-33")
async def test_an_unavailable_policy_is_its_own_error_and_retryable(guard: Guard, home: Path) -> None:
    with Guard(home, config=Config(timeout_seconds=1e-9)) as slow:
        step = await Pair(slow).client(call("tools/call", {"name": "read", "arguments": {}}))

    assert step.onward == ()
    assert step.back[0]["error"]["code"] == UNAVAILABLE
    assert step.back[0]["error"]["data"]["retryable"] is True


@pytest.mark.spec("MCPX-31")
async def test_an_approval_without_a_session_names_no_id(guard: Guard) -> None:
    pair = Pair(guard)
    pair.link.renew(Context())
    step = await pair.client(call("prompts/get", {"name": "pay"}))

    assert step.back[0]["error"]["code"] == APPROVAL
    assert "approval_ids" not in step.back[0]["error"]["data"]


@pytest.mark.spec("MCPX-13")
async def test_what_would_go_on_as_another_message_does_not(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    minted = await pair.asked("ping")
    monkeypatch.setattr(judging, "emit", lambda outcome, target: {"jsonrpc": "2.0", "id": "x", "method": "other"})
    answered = await pair.server({"jsonrpc": "2.0", "id": minted, "result": {}})
    step = await pair.client(call("ping", id=2))

    assert step.onward == ()
    assert step.back[0]["error"]["data"]["code"] == "mcp.other-message"
    assert answered.onward[0]["error"]["data"]["code"] == "mcp.other-message"


# -- what goes on ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-13")
@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("ping", None, {}),
        ("tools/call", {"name": "read", "arguments": {"path": "a"}}, {"content": [text("fine")], "isError": False}),
        ("tools/call", READ, {"content": [text('{"a":1}')], "structuredContent": {"a": 1}}),
        ("tools/call", READ, {"content": [text("a")], "structuredContent": {"b": 2}}),
        ("tools/call", READ,
         {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}], "structuredContent": {"b": 2}}),
        ("tools/call", READ, {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}),
        ("resources/templates/list", {}, {"resourceTemplates": [{"uriTemplate": "file:///{x}", "name": "x"}]}),
        ("prompts/list", {}, {"prompts": [{"name": "p"}], "nextCursor": "2"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}},
         {"completion": {"values": ["bob"], "total": 1}}),
        ("tasks/list", {}, {"tasks": []}),
        ("logging/setLevel", {"level": "info"}, {}),
        ("resources/subscribe", {"uri": "file:///a"}, {}),
        ("server/discover", {}, {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("id", [0, "0", -1, "a b"])
async def test_what_policy_allows_goes_on_as_it_came_under_an_id_of_its_own(
    guard: Guard, method: str, params: Any, result: Any, id: Any
) -> None:
    pair = Pair(guard)
    step = await pair.client(call(method, params, id))
    [sent] = step.onward

    back = await pair.server({"jsonrpc": "2.0", "id": sent["id"], "result": result})

    assert sent == call(method, params, sent["id"])
    assert sent["id"] != id
    assert back.onward == ({"jsonrpc": "2.0", "id": id, "result": result},)
    assert type(back.onward[0]["id"]) is type(id)


@pytest.mark.spec("MCPX-13")
async def test_a_call_without_arguments_is_one_with_none(pair: Pair) -> None:
    step = await pair.client(call("tools/call", {"name": "read"}))

    assert step.onward[0]["params"] == READ


@pytest.mark.spec("MCPX-13")
async def test_what_policy_edits_goes_on_edited(pair: Pair) -> None:
    step = await pair.client(call("tools/call", {"name": "write", "arguments": {"path": "/etc", "text": "x"}}))
    key = "key AKIAIOSFODNN7EXAMPLE"
    body = await pair.exchange("tools/call", READ, {"content": [text(key)], "structuredContent": {"result": key}}, 2)
    listed = await pair.exchange(
        "resources/read", {"uri": "file:///a"}, {"contents": [{"uri": "file:///a", "text": key}]}, 3
    )

    assert step.onward[0]["params"]["arguments"] == {"path": "/home", "text": "x"}
    assert body["result"] == {"content": [text("key [MASKED]")], "structuredContent": {"result": "key [MASKED]"}}
    assert listed["result"]["contents"][0]["text"] == "key [MASKED]"


@pytest.mark.spec("MCPX-11")
async def test_sampling_elicitation_and_roots_go_there_and_back(pair: Pair) -> None:
    for method, params, result in (
        ("sampling/createMessage", {"messages": [{"role": "user", "content": text("hi")}], "maxTokens": 5},
         {"role": "assistant", "content": text("ho"), "model": "m"}),
        ("elicitation/create", {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
         {"action": "accept", "content": {"name": "ann"}}),
        ("roots/list", None, {"roots": [{"uri": "file:///a"}]}),
    ):  # fmt: skip
        [question] = (await pair.server(call(method, params, 1))).onward
        step = await pair.client({"jsonrpc": "2.0", "id": question["id"], "result": result})

        assert step.onward == ({"jsonrpc": "2.0", "id": 1, "result": result},)


@pytest.mark.spec("MCPX-15")
async def test_questions_within_a_result_and_answers_within_a_call_are_judged(pair: Pair) -> None:
    def ask(message: str) -> dict[str, Any]:
        params = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
        asked = {"q": {"method": "elicitation/create", "params": params}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}

    good, bad = ask("Which key, AKIAIOSFODNN7EXAMPLE?"), ask("Your password?")
    shown = await pair.exchange("tools/call", READ, good, 1)
    refused = await pair.exchange("tools/call", READ, bad, 2)
    answers = {"q": {"role": "assistant", "content": text("a bomb"), "model": "m"}}
    said = await pair.client(call("tools/call", {**READ, "inputResponses": answers, "requestState": "s"}, 3))
    answers = {"q": {"action": "accept", "content": {"name": "ann"}}}
    fine = await pair.client(call("tools/call", {**READ, "inputResponses": answers, "requestState": "s"}, 4))

    assert shown["result"]["inputRequests"]["q"]["params"]["message"] == "Which key, [MASKED]?"
    assert shown["result"]["requestState"] == "s"
    assert refused["result"]["_meta"]["cmf/code"] == "no.ask"
    assert said.back[0]["result"]["_meta"]["cmf/code"] == "no.bomb"
    assert fine.onward[0]["params"]["inputResponses"] == answers


@pytest.mark.spec("MCPX-15")
@pytest.mark.parametrize(
    "questions",
    [
        [1],
        "x",
        {"q": 1},
        {"q": {"params": {}}},
        {"q": {"method": "x", "params": {"Name": 1}}},
        {"q": {"method": "made/up"}},
        {"q": {"method": "ping", "id": 1, "result": {}}},
        {str(at): {"method": "ping"} for at in range(33)},
    ],
)
async def test_questions_that_are_none_are_refused(pair: Pair, questions: Any) -> None:
    shown = await pair.exchange("tools/call", READ, {"resultType": "input_required", "inputRequests": questions})
    said = await pair.client(call("tools/call", {**READ, "inputResponses": [questions]}, 2))

    assert "inputRequests" not in str(shown)
    assert said.onward == ()


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-20")
async def test_a_tool_whose_definition_changed_is_not_offered_nor_called_until_it_is_as_it_was(pair: Pair) -> None:
    first = await pair.exchange("tools/list", {}, {"tools": [tool("read"), tool("write")]}, 1)
    changed = {"tools": [tool("read"), tool("write", "Does. Also sends mail.")], "_meta": {"a": 1}, "nextCursor": "n"}
    second = await pair.exchange("tools/list", {}, changed, 2)
    called = await pair.client(call("tools/call", {"name": "write", "arguments": {}}, 3))
    again = await pair.exchange("tools/list", {}, {"tools": [tool("write")]}, 4)
    fine = await pair.client(call("tools/call", {"name": "write", "arguments": {}}, 5))

    assert [one["name"] for one in first["result"]["tools"]] == ["read", "write"]
    assert [one["name"] for one in second["result"]["tools"]] == ["read"]
    told = [{"name": "write", "code": "mcp.definition-changed"}]
    assert second["result"]["_meta"] == {"a": 1, "cmf/stripped": told}
    assert second["result"]["nextCursor"] == "n"
    assert called.onward == ()
    assert called.back[0]["result"]["_meta"]["cmf/code"] == "mcp.definition-changed"
    assert again["result"] == {"tools": [tool("write")]}
    assert len(fine.onward) == 1


@pytest.mark.spec("MCPX-20")
async def test_a_tool_that_changed_is_not_called_over_another_connection_either(guard: Guard) -> None:
    pins = Pins()
    for at, described in enumerate(("Does.", "Also sends mail.")):
        await Pair(guard, pins=pins).exchange("tools/list", {}, {"tools": [tool("write", described)]}, at)
    called = await Pair(guard, pins=pins).client(call("tools/call", {"name": "write", "arguments": {}}))
    other = await Pair(guard, pins=pins, server="post").client(call("tools/call", {"name": "write", "arguments": {}}))

    assert called.back[0]["result"]["_meta"]["cmf/code"] == "mcp.definition-changed"
    assert len(other.onward) == 1


@pytest.mark.spec("MCPX-20")
async def test_two_definitions_of_one_name_are_not_both_offered(pair: Pair) -> None:
    body = await pair.exchange("tools/list", {}, {"tools": [tool("read"), tool("read", "Something else.")]})

    assert body["result"]["tools"] == []


@pytest.mark.spec("MCPX-32")
async def test_the_log_names_the_decision_that_refused_a_message(pair: Pair, caplog: Any) -> None:
    caplog.set_level("INFO", logger="pipeline.mcp")

    [refused] = (await pair.client(call("tools/call", {"name": "rm", "arguments": {}}))).back

    logged = [json.loads(record.getMessage()) for record in caplog.records]
    decision = refused["result"]["_meta"]["cmf/decision-id"]
    assert logged == [{"mcp": "no.rm", "from": "client", "decision": decision}]


@pytest.mark.spec("MCPX-20", "MCPX-25")
async def test_where_policy_only_watches_a_change_is_noted_and_goes_on(guard: Guard, caplog: Any) -> None:
    caplog.set_level("INFO", logger="pipeline.mcp")
    pair = Pair(guard, enforce=False)
    await pair.exchange("tools/list", {}, {"tools": [tool("read")]}, 1)
    changed = {"tools": [tool("read", "Else.")]}

    assert (await pair.exchange("tools/list", {}, changed, 2))["result"] == changed
    assert len((await pair.client(call("tools/call", READ, 3))).onward) == 1
    assert "mcp.definition-changed" in caplog.text


@pytest.mark.spec("MCPX-21")
async def test_a_tool_that_policy_takes_off_the_list_is_not_called_until_it_is_offered(guard: Guard) -> None:
    pair = Pair(guard, memory=Memory(stripped={"read"}))
    body = await pair.exchange("tools/list", {}, {"tools": [tool("read"), tool("evil")]})
    called = await pair.client(call("tools/call", {"name": "evil", "arguments": {}}, 2))

    assert [one["name"] for one in body["result"]["tools"]] == ["read"]
    assert called.back[0]["result"]["_meta"]["cmf/code"] == "mcp.tool-stripped"
    assert len((await pair.client(call("tools/call", READ, 3))).onward) == 1


@pytest.mark.spec("MCPX-20")
@pytest.mark.parametrize("tools", [1, {}, [1], [{"name": 1}], [{"description": "x"}]])
async def test_a_list_of_tools_that_is_none_is_refused(pair: Pair, tools: Any) -> None:
    said = (await pair.exchange("tools/list", {}, {"tools": tools}))["error"]

    assert said["code"] in (REFUSED, INVALID_PARAMS)
    assert not said["data"].get("retryable")


@pytest.mark.spec("MCPX-22")
async def test_tools_are_not_offered_where_their_pins_cannot_be_kept(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    pins = Pins(tmp_path / "here" / "pins.json")
    (tmp_path / "here").rmdir()

    for _ in range(2):
        body = await Pair(guard, pins=pins).exchange("tools/list", {}, {"tools": [tool("read")]})

        assert body["error"]["code"] == UNAVAILABLE
        assert body["error"]["data"]["code"] == "config.pins"


# -- ids, tokens, time -------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-16")
async def test_a_response_to_no_open_call_is_dropped(pair: Pair) -> None:
    minted = await pair.asked("ping")
    answer = {"jsonrpc": "2.0", "id": minted, "result": {}}
    for other in ("x", 1, minted.upper() + "x"):
        assert await pair.server({"jsonrpc": "2.0", "id": other, "result": {}}) == Step()
    assert await pair.client(answer) == Step()  # the client's own call is not the client's to answer

    assert len((await pair.server(answer)).onward) == 1
    assert await pair.server(answer) == Step()


@pytest.mark.spec("MCPX-16")
async def test_an_id_that_is_in_work_is_not_taken_again(pair: Pair) -> None:
    minted = await pair.asked("ping", id=1)
    again = await pair.client(call("ping", id=1))
    other = await pair.client(call("ping", id="1"))
    await pair.server({"jsonrpc": "2.0", "id": minted, "result": {}})
    later = await pair.client(call("ping", id=1))

    assert again.onward == ()
    assert again.back[0]["id"] is None
    assert again.back[0]["error"]["data"]["code"] == "mcp.duplicate-id"
    assert len(other.onward) == len(later.onward) == 1


@pytest.mark.spec("MCPX-16")
async def test_a_side_has_only_so_many_calls_in_work(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_OPEN", 2)
    await pair.asked("ping", id=1)
    await pair.asked("ping", id=2)
    step = await pair.client(call("ping", id=3))

    assert step.back[0]["error"]["data"]["code"] == "mcp.busy"
    assert len((await pair.server(call("ping", id=3))).onward) == 1  # the other side's are counted apart


@pytest.mark.spec("MCPX-16")
async def test_a_call_whose_judgement_breaks_off_leaves_its_id_free(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(body: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pair.link._judge, "call", broken)
        with pytest.raises(KeyboardInterrupt):
            await pair.client(call("ping"))

    assert len((await pair.client(call("ping"))).onward) == 1


@pytest.mark.spec("MCPX-17")
async def test_a_call_is_cancelled_under_the_id_that_the_other_side_knows(pair: Pair) -> None:
    minted = await pair.asked("tools/call", READ, 7)
    step = await pair.client(notice("notifications/cancelled", {"requestId": 7, "reason": "done"}))

    assert step.onward == (notice("notifications/cancelled", {"requestId": minted, "reason": "done"}),)
    assert pair.link.waiting == 0
    assert await pair.server({"jsonrpc": "2.0", "id": minted, "result": {"content": []}}) == Step()


@pytest.mark.spec("MCPX-17")
async def test_progress_goes_to_whoever_asked_for_it_and_is_judged(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_TOKENS", 1)

    def progress(token: Any, message: str = "") -> dict[str, Any]:
        return notice("notifications/progress", {"progressToken": token, "progress": 1, "message": message})

    await pair.asked("tools/call", {**READ, "_meta": {"progressToken": "1"}}, 1)
    await pair.asked("tools/call", {**READ, "_meta": {"progressToken": 2}}, 2)

    assert (await pair.server(progress(2, "half"))).onward == (progress(2, "half"),)
    assert (await pair.server(progress(2, "a bomb"))).onward == ()
    assert (await pair.server(progress("2"))).onward == ()
    assert (await pair.client(progress(2))).onward == ()
    assert (await pair.server(progress("1"))).onward == ()  # forgotten for the newer one


@pytest.mark.spec("MCPX-18")
async def test_a_call_that_is_not_answered_in_time_ends_in_an_error_and_progress_gives_more(pair: Pair) -> None:
    late = await pair.asked("tools/call", READ, 1)
    await pair.asked("tools/call", {**READ, "_meta": {"progressToken": 1}}, 2)
    await pair.asked("subscriptions/listen", {}, 3)
    await pair.asked("initialize", {}, 4)
    pair.now = 9
    await pair.server(notice("notifications/progress", {"progressToken": 1, "progress": 1}))
    assert pair.link.expired(Side.CLIENT) == Step()
    pair.now = 10

    step = pair.link.expired(Side.CLIENT)

    assert [body["id"] for body in step.back] == [1, 4]
    assert all(body["error"]["code"] == TIMEOUT for body in step.back)
    assert step.onward == (notice("notifications/cancelled", {"requestId": late, "reason": "timeout"}),)
    assert pair.link.waiting == 2


@pytest.mark.spec("MCPX-19")
async def test_where_the_server_is_gone_every_call_ends_in_an_error(pair: Pair) -> None:
    one = await pair.asked("ping", id=1)
    two = await pair.asked("ping", id=2)
    await pair.asked("ping", id=3)
    [cut] = pair.link.cut(one)
    [why] = pair.link.cut(two, Refused(CLOSED, "mcp.unreadable", "Not readable."))

    left = pair.link.ended()

    assert (cut["id"], cut["error"]["data"]["code"]) == (1, "mcp.server-disconnected")
    assert why["error"]["data"]["code"] == "mcp.unreadable"
    assert [body["id"] for body in left] == [3]
    assert list(pair.link.cut(one)) == []
    assert pair.link.ended() == ()


# -- revisions ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-40")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", None])
async def test_a_batch_is_refused_where_the_revision_knows_none(pair: Pair, version: str | None) -> None:
    if version is not None:
        await pair.begin(version)

    step = await pair.client([call("ping", id=1), call("ping", id=2)])

    assert step.onward == ()
    assert step.back[0]["id"] is None
    assert step.back[0]["error"]["data"]["code"] == "mcp.batch"


@pytest.mark.spec("MCPX-40")
async def test_a_batch_is_judged_message_by_message_where_the_revision_knows_it(pair: Pair) -> None:
    await pair.begin("2025-03-26")

    step = await pair.client([call("ping", id=5), call("made/up", id=6), notice("notifications/initialized")])
    ids = [body.get("id") for body in step.onward]
    back = await pair.server([{"jsonrpc": "2.0", "id": ids[0], "result": {}}, call("ping", id=5)])

    assert [body["method"] for body in step.onward] == ["ping", "notifications/initialized"]
    assert [body["id"] for body in step.back] == [6]
    assert back.onward[0] == {"jsonrpc": "2.0", "id": 5, "result": {}}
    assert back.onward[1]["method"] == "ping"


@pytest.mark.spec("MCPX-41")
async def test_a_revision_that_is_not_known_here_is_not_agreed_on(pair: Pair) -> None:
    good = await pair.begin()
    body = await Pair.begin(pair, "2031-01-01")

    assert good["result"]["protocolVersion"] == "2025-11-25"
    assert body["error"]["data"]["code"] == "mcp.version"
    assert pair.link.version == "2025-11-25"


# -- who, and where ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-23")
async def test_without_a_name_of_the_server_its_tools_have_none(guard: Guard) -> None:
    pair = Pair(guard, server=None)
    step = await pair.client(call("tools/call", {"name": "rm", "arguments": {}}))
    body = await pair.exchange("tools/list", {}, {"tools": [tool("evil"), tool("read")]}, 2)

    assert len(step.onward) == 1  # the rule names tool://files/rm
    assert [one["name"] for one in body["result"]["tools"]] == ["read"]


@pytest.mark.spec("MCPX-24")
async def test_labels_of_one_answer_hold_for_the_next_call(home: Path, tmp_path: Path) -> None:
    rules = {
        "red": 'label contains {"code": "is.red", "reason": "Red.", "label": "RED"} '
        'if contains(input.content, "taint")',
        "after": 'deny contains {"code": "no.red", "reason": "After red."} if {\n'
        '    "RED" in input.extensions.security.labels\n    input.kind == "tool_call"\n}',
    }
    with Guard(write_rules(tmp_path / "own", rules), config=Config(timeout_seconds=20)) as guard:
        pair = Pair(guard)
        await pair.exchange("tools/call", READ, {"content": [text("taint")]}, 1)
        tainted = await pair.client(call("tools/call", READ, 2))
        pair.link.renew(Context(session="another"))
        fresh = await pair.client(call("tools/call", READ, 3))

    assert tainted.back[0]["result"]["_meta"]["cmf/code"] == "no.red"
    assert len(fresh.onward) == 1


@pytest.mark.spec("MCPX-25")
async def test_in_mode_observe_everything_goes_on(home: Path) -> None:
    with Guard(home, config=Config(mode=Mode.OBSERVE, timeout_seconds=20)) as guard:
        step = await Pair(guard, enforce=False).client(call("tools/call", {"name": "rm", "arguments": {"path": "x"}}))

    assert step.onward[0]["params"] == {"name": "rm", "arguments": {"path": "x"}}
