"""Answers of MCP: by the keys of their results. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.enums import StopReason
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.message import PromptResultPart, TextPart, ToolResultPart
from cmf.message.request import ErrorInfo
from cmf.views.iterate import iter_views
from tests.cmf.adapters.mcp_bodies import MCP, PNG, again, answer, call, kinds

RESULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": 1}, "isError": False, "_meta": {"k": 1}},
     ["tool_result", "text"]),
    ({"content": []}, ["tool_result"]),
    ({"structuredContent": None}, ["tool_result"]),
    ({"contents": [{"uri": "file:///a", "text": "x"}, {"uri": "file:///b", "blob": PNG}]}, ["resource", "resource"]),
    ({"contents": [{"uri": 5}]}, ["opaque"]),
    ({"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]}, ["prompt_result", "text"]),
    ({"tools": []}, []),
    ({"resources": [{"uri": "file:///a", "name": "a", "description": "d", "size": 3, "icons": []}], "nextCursor": "n"},
     ["resource"]),
    ({"resources": [{"uri": "file:///a", "annotations": {}, "size": -1, "mimeType": None}]}, ["resource"]),
    ({"resources": [{"uri": "file:///a", "annotations": {"priority": 1}}]}, ["resource"]),
    ({"resourceTemplates": [{"uri": "file:///a", "uriTemplate": "file:///b"}]}, ["opaque"]),
    ({"resources": []}, ["opaque"]),
    ({"resourceTemplates": [{"uriTemplate": "file:///{p}", "name": "a"}]}, ["resource"]),
    ({"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m", "stopReason": "odd"}, ["text"]),
    ({"protocolVersion": "1", "capabilities": {}, "instructions": "obey"}, ["text"]),
]  # fmt: skip


@pytest.mark.spec("MCP-6")
@pytest.mark.parametrize(("result", "views"), RESULTS)
def test_each_result_gives_the_views_of_its_keys_and_goes_back(result: dict[str, Any], views: list[str]) -> None:
    response = MCP.from_wire_response(answer(result))

    assert kinds(response) == ["response", *views]
    assert same_spelling(MCP.to_wire_response(response), answer(result))


@pytest.mark.spec("MCP-6")
def test_the_request_names_the_tool_and_the_prompt() -> None:
    tool = MCP.from_wire_request(call("tools/call", {"name": "look"}))
    prompt = MCP.from_wire_request(call("prompts/get", {"name": "greet"}))

    looked = MCP.from_wire_response(answer({"content": []}), tool).message.content[0]
    greeted = MCP.from_wire_response(answer({"messages": []}), prompt).message.content[0]

    assert isinstance(looked, ToolResultPart)
    assert (looked.tool_name, looked.tool_call_id) == ("look", "7")
    assert isinstance(greeted, PromptResultPart)
    assert greeted.prompt_name == "greet"


@pytest.mark.spec("MCP-6")
def test_an_answer_that_mixes_results_hides_none_of_them() -> None:
    asked = MCP.from_wire_request(call("tools/call", {"name": "look"}))
    body = answer({
        "role": "user", "content": [{"type": "text", "text": "result"}], "tools": [{"name": "x"}], "messages": [],
    })  # fmt: skip

    response = MCP.from_wire_response(body, asked)

    assert kinds(response) == ["response", "tool_definition", "prompt_result", "tool_result", "text"]
    assert MCP.to_wire_response(response)["result"].keys() == body["result"].keys()


@pytest.mark.spec("MCP-6")
def test_structured_content_does_not_outlive_an_edit_of_what_it_repeats() -> None:
    response = MCP.from_wire_response(
        answer({"content": [{"type": "text", "text": "pin 1234"}], "structuredContent": {"pin": "1234"}})
    )
    choice = response.choices[0]
    part = choice.message.content[0].edited(content=(TextPart(text="pin ****"),))
    edited = choice.model_copy(update={"message": choice.message.model_copy(update={"content": (part,)})})

    body = MCP.to_wire_response(response.model_copy(update={"choices": (edited,)}))

    assert body == answer({"content": [{"type": "text", "text": "pin ****"}]})


@pytest.mark.spec("MCP-6")
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("endTurn", StopReason.END),
        ("stopSequence", StopReason.STOP_SEQUENCE),
        ("maxTokens", StopReason.MAX_TOKENS),
        ("toolUse", StopReason.OTHER),  # without a call
        ("later", StopReason.OTHER),
    ],
)
def test_the_stop_reason_is_read_by_a_table(word: str, reason: StopReason) -> None:
    body = answer({"role": "assistant", "content": [], "model": "m", "stopReason": word})

    choice = MCP.from_wire_response(body).choices[0]

    assert (choice.stop_reason, choice.raw_stop_reason) == (reason, word)


@pytest.mark.spec("MCP-6")
def test_the_stop_reason_follows_the_calls_of_the_message() -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    body = answer({"role": "assistant", "content": [use], "model": "m", "stopReason": "toolUse"})
    response = MCP.from_wire_response(body)
    choice = response.choices[0]
    silent = replace(choice, message=replace(choice.message, content=()))
    ended = replace(choice, stop_reason=StopReason.END, raw_stop_reason="stop")

    assert choice.stop_reason is StopReason.CALL
    assert MCP.to_wire_response(response) == body
    assert MCP.to_wire_response(replace(response, choices=(silent,)))["result"]["stopReason"] == "endTurn"
    assert MCP.to_wire_response(replace(response, choices=(ended,)))["result"]["stopReason"] == "toolUse"


@pytest.mark.spec("MCP-7")
@pytest.mark.parametrize(
    "result",
    [
        {"completion": {"values": ["a"], "total": 1}},
        {"action": "accept", "content": {"name": "octocat"}},
        {"roots": [{"uri": "file:///a"}]},
        {"prompts": [{"name": "p", "description": "d"}]},
        {"task": {"taskId": "t"}},
        {"tasks": []},
        {"taskId": "t", "status": "working"},
        {"taskId": "t", "status": "failed", "error": {"code": -32603, "message": "no"}, "ttlMs": None},
        {"tasks": [{"taskId": "t", "status": "working", "statusMessage": "soon"}]},
        {"resultType": "input_required", "requestState": "s",
         "inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "?"}}}},
        {"resultType": "complete", "ttlMs": 1, "cacheScope": "public"},
        {"taskId": "t", "tools": ["look", "find"]},
        {},
    ],
)  # fmt: skip
def test_other_results_are_shown_with_the_response(result: dict[str, Any]) -> None:
    response = MCP.from_wire_response(answer(result))

    (view,) = iter_views(response)
    shown = view.to_opa_input()["input"]["properties"]["extra"]["mcp"].get("result", {})
    assert shown == result
    assert same_spelling(MCP.to_wire_response(response), answer(result))


@pytest.mark.spec("MCP-7")
def test_a_result_of_which_nothing_is_known_is_judged_as_a_whole() -> None:
    body = answer({"surprise": "x"})

    assert kinds(MCP.from_wire_response(body)) == ["response", "opaque"]
    assert kinds(MCP.from_wire_response({"type": "text", "text": "x"})) == ["response", "opaque"]
    assert same_spelling(again(body, response=True), body)


@pytest.mark.spec("MCP-7")
@pytest.mark.parametrize("result", ["done", ["a", 1], 3.5, None])
def test_a_result_that_is_no_object_is_shown_with_the_response(result: Any) -> None:
    body = answer(result)

    response = MCP.from_wire_response(body)

    (view,) = iter_views(response)
    assert view.to_opa_input()["input"]["properties"]["extra"]["mcp"]["envelope"]["result"] == result
    assert same_spelling(MCP.to_wire_response(response), body)


@pytest.mark.spec("MCP-8")
def test_a_list_without_any_message_is_an_error_and_kept_whole() -> None:
    response = MCP.from_wire_response(["service", "unavailable"])

    assert response.error is not None
    assert MCP.to_wire_response(response) == ["service", "unavailable"]


@pytest.mark.spec("MCP-8")
@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no", "data": {"at": "x"}}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1.5, "message": None}},
        {"jsonrpc": "2.0", "id": 1, "error": {}},
        {"code": -32603, "message": "Internal error"},
    ],
)
def test_an_error_is_a_response_and_goes_back(body: dict[str, Any]) -> None:
    response = MCP.from_wire_response(body)

    assert response.error is not None
    assert response.choices == ()
    assert same_spelling(MCP.to_wire_response(response), body)


@pytest.mark.spec("MCP-8")
def test_an_error_keeps_code_and_message() -> None:
    response = MCP.from_wire_response({"id": 1, "error": {"code": -32602, "message": "no"}})

    assert response.error == ErrorInfo(code="-32602", message="no")


# -- tasks -------------------------------------------------------------------------------------------------------------

LOOK = MCP.from_wire_request(call("tools/call", {"name": "look"}))


def finished(result: Any, **more: Any) -> dict[str, Any]:
    return {"resultType": "complete", "taskId": "t", "status": "completed", **more, "ttlMs": 5, "result": result}


@pytest.mark.spec("MCP-13")
@pytest.mark.parametrize(
    ("task", "call_of_it"),
    [
        (finished({"content": []}), None),
        (finished({"content": []}), call("tasks/get", {"taskId": "t"})),
        (finished({"content": []}), call("prompts/get", {"name": "greet"})),
        (finished({"surprise": "x"}), call("tools/call", {"name": "look"})),
        (finished({"content": [], "taskId": "u"}), call("tools/call", {"name": "look"})),
        (finished({"content": [], "result": {"content": []}}), call("tools/call", {"name": "look"})),
    ],
)
def test_a_task_whose_result_belongs_to_no_known_call_is_judged_as_a_whole(task: Any, call_of_it: Any) -> None:
    asked = None if call_of_it is None else MCP.from_wire_request(call_of_it)

    response = MCP.from_wire_response(answer(task), asked)

    assert kinds(response) == ["response", "opaque"]
    assert same_spelling(MCP.to_wire_response(response), answer(task))


@pytest.mark.spec("MCP-13")
@pytest.mark.parametrize(
    ("task", "views"),
    [
        (finished({"content": [{"type": "text", "text": "a"}], "isError": True}), ["tool_result", "text"]),
        (finished({"content": [], "structuredContent": {"a": 1}, "_meta": {"k": 1}}), ["tool_result"]),
        (finished({"content": [], "statusMessage": 1}, statusMessage="done"), ["tool_result", "text"]),
        (finished({"content": [], "statusMessage": "odd"}, _meta={"k": 2}), ["tool_result"]),
        ({"taskId": "t", "result": {"content": []}}, ["tool_result"]),
        ({"result": {"content": []}}, ["tool_result"]),
    ],
)
def test_a_finished_task_gives_the_result_of_the_call_that_began_it(task: dict[str, Any], views: list[str]) -> None:
    response = MCP.from_wire_response(answer(task), LOOK)

    assert kinds(response) == ["response", *views]
    part = response.choices[0].message.content[0]
    assert isinstance(part, ToolResultPart)
    assert part.tool_name == "look"
    assert same_spelling(MCP.to_wire_response(response), answer(task))


@pytest.mark.spec("MCP-13")
def test_an_edited_result_goes_back_into_its_task() -> None:
    response = MCP.from_wire_response(answer(finished({"content": [{"type": "text", "text": "key"}]})), LOOK)
    (choice,) = response.choices
    (part,) = choice.message.content
    masked = replace(part, content=(TextPart(text="[MASKED]"),))
    edited = replace(response, choices=(replace(choice, message=replace(choice.message, content=(masked,))),))

    assert MCP.to_wire_response(edited) == answer(finished({"content": [{"type": "text", "text": "[MASKED]"}]}))


@pytest.mark.spec("MCP-13")
@pytest.mark.parametrize("more", [{}, {"inputRequests": {}}, {"error": {"code": 1, "message": "no"}}])
def test_what_a_task_says_of_its_state_is_text(more: dict[str, Any]) -> None:
    task = answer({"resultType": "task", "taskId": "t", "statusMessage": "soon", "status": "working", **more})
    other = answer({"resultType": "complete", "statusMessage": "soon"})

    response = MCP.from_wire_response(task)

    assert kinds(response) == ["response", "text"]
    assert same_spelling(MCP.to_wire_response(response), task)
    assert kinds(MCP.from_wire_response(other)) == ["response"]
