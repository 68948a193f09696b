"""MCP: every method and result has its row, and nothing of a message is lost. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.base import WireEvent
from cmf.adapters.loss import collecting
from cmf.adapters.mcp_calls import CALLS
from cmf.adapters.stream import MessageComplete, StreamError
from cmf.content import (
    AudioPart,
    ImagePart,
    OpaquePart,
    PromptRequestPart,
    PromptResultPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.decomposition import iter_views
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import CmfError, ShapeError, UnknownRoleError, UnsupportedError
from cmf.frozen import same_spelling
from cmf.message import Message
from cmf.request import Choice, ErrorInfo, Request, Response, Sampling, ToolChoice
from cmf.tools import ToolDefinition
from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.mediation import adapter_constants, unseen_strings
from tests.house.tree import ROOT

MCP = get("mcp")
SPEC = ROOT / "docs" / "spec" / "adapters" / "mcp.md"


class TestWire(Proof):
    format_name = "mcp"


def call(method: str, params: Any = None, **envelope: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, **envelope}
    return body if params is None else {**body, "params": params}


def answer(result: Any, **envelope: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "result": result, **envelope}


def kinds(value: Request | Response) -> list[str]:
    return [view.kind.value for view in iter_views(value)]


def again(body: Any, *, context: Request | None = None, response: bool = False) -> Any:
    if response:
        return MCP.to_wire_response(MCP.from_wire_response(body, context))
    return MCP.to_wire(MCP.from_wire_request(body))


# -- the envelope ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "1", "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.0, "method": "ping"},
        {"jsonrpc": "2.0", "method": "ping"},
        {"method": "ping"},
        {"jsonrpc": "1.0", "id": 0, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ["by", "position"]},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": None}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}, "vendor": {"x": None}},
    ],
)
def test_an_envelope_is_spelled_back_as_it_came(body: dict[str, Any]) -> None:
    assert same_spelling(again(body), body)


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize("body", [{}, {"result": {}}, {"id": 3, "result": None}, {"action": "accept"}, {"roots": []}])
def test_an_answer_is_spelled_back_with_and_without_its_envelope(body: dict[str, Any]) -> None:
    assert same_spelling(again(body, response=True), body)


@pytest.mark.spec("MCP-1")
def test_a_body_that_is_no_object_is_refused() -> None:
    for body in ("ping", 1, None, [1]):
        with pytest.raises(ShapeError):
            MCP.from_wire_request(body)
        with pytest.raises(ShapeError):
            MCP.from_wire_response(body)


@pytest.mark.spec("MCP-1")
def test_a_response_says_what_it_answers() -> None:
    asked = MCP.from_wire_request(call("tools/call", {"name": "search", "arguments": {}}))

    response = MCP.from_wire_response(answer({"content": []}), asked)

    assert response.extra is not None
    assert response.extra["mcp"]["answers"] == "tools/call"
    assert "answers" not in str(MCP.to_wire_response(response))


# -- the table of methods ----------------------------------------------------------------------------------------------

ROWS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "tools/call": ({"name": "t", "arguments": {"a": 1}, "_meta": {"progressToken": 2}}, ["tool_call"]),
    "prompts/get": ({"name": "p", "arguments": {"a": "b"}}, ["prompt_request"]),
    "resources/read": ({"uri": "file:///a"}, ["resource_ref"]),
    "resources/subscribe": ({"uri": "file:///a"}, ["resource_ref"]),
    "resources/unsubscribe": ({"uri": "file:///a"}, ["resource_ref"]),
    "sampling/createMessage": (
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
            "systemPrompt": "be brief",
            "maxTokens": 9,
            "temperature": 0.5,
            "stopSequences": ["x"],
            "tools": [{"name": "t", "inputSchema": {"type": "object"}, "title": "T"}],
            "toolChoice": {"mode": "auto"},
            "modelPreferences": {"hints": [{"name": "m"}]},
        },
        ["tool_definition", "text", "text"],
    ),
    "elicitation/create": ({"message": "your name?", "requestedSchema": {"type": "object"}}, ["text"]),
    "completion/complete": (
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "lang", "value": "py"}},
        ["text"],
    ),
    "notifications/message": ({"level": "info", "data": "started"}, ["text"]),
    "notifications/progress": ({"progressToken": 1, "progress": 0.5, "message": "half"}, ["text"]),
    "notifications/tasks/status": ({"taskId": "t1", "status": "working", "statusMessage": "at it"}, ["text"]),
}


def _documented() -> dict[str, str]:
    """The rows of the table in the specification: method → views."""
    rows = re.findall(r"^\| `([a-zA-Z/_]+)` \| (.+?) \|(.*)\|$", SPEC.read_text(), re.MULTILINE)
    return {method: views for method, _, views in rows if "/" in method or method in ("ping", "initialize")}


@pytest.mark.spec("MCP-2")
def test_the_specification_lists_exactly_the_methods_that_are_known() -> None:
    assert list(_documented()) == list(CALLS)


@pytest.mark.spec("MCP-2")
@pytest.mark.parametrize("method", list(CALLS))
def test_each_method_gives_the_views_of_its_row_and_goes_back(method: str) -> None:
    params, views = ROWS.get(method, ({"anything": ["goes", {"x": 1}]}, []))
    body = call(method, params)

    request = MCP.from_wire_request(body)

    assert kinds(request) == ["request", *views]
    assert {kind for kind in views if kind not in _documented()[method]} == set()
    assert same_spelling(MCP.to_wire(request), body)


@pytest.mark.spec("MCP-2")
def test_a_call_of_a_tool_says_who_calls_what() -> None:
    request = MCP.from_wire_request(call("tools/call", {"name": "send", "arguments": {"to": "bob"}}))

    (message,) = request.messages
    (part,) = message.content
    assert message.role is Role.ASSISTANT
    assert part == ToolCallPart(tool_call_id="7", name="send", arguments={"to": "bob"})


@pytest.mark.spec("MCP-2")
def test_a_completion_takes_its_options() -> None:
    request = MCP.from_wire_request(call("sampling/createMessage", ROWS["sampling/createMessage"][0]))

    assert request.system == "be brief"
    assert request.sampling == Sampling(max_output_tokens=9, temperature=0.5, stop=("x",))
    assert request.tool_choice == ToolChoice(mode="auto")
    assert [tool.name for tool in request.tools] == ["t"]


@pytest.mark.spec("MCP-2")
def test_an_edited_call_keeps_its_envelope_and_loses_nothing_else() -> None:
    request = MCP.from_wire_request(
        call("tools/call", {"name": "send", "arguments": {"to": "bob"}, "_meta": {"progressToken": 2}})
    )
    message = request.messages[0].model_copy(update={"content": (request.messages[0].content[0].edited(arguments={}),)})

    body = MCP.to_wire(request.model_copy(update={"messages": (message,)}))

    assert body == call("tools/call", {"name": "send", "arguments": {}, "_meta": {"progressToken": 2}})


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize(
    "body",
    [
        call("no/such/method", {"secret": "x"}),
        call("", {"secret": "x"}),
        call("tools/call", {"title": "no name"}),
        call("prompts/get", {"name": "p", "arguments": ["x"]}),
        call("resources/read", {"uri": 5}),
        call("completion/complete", {"argument": "x"}),
        call("sampling/createMessage", {}),
    ],
)
def test_what_is_not_in_the_table_is_judged_as_a_whole(body: dict[str, Any]) -> None:
    request = MCP.from_wire_request(body)

    assert kinds(request) == ["request", "opaque"]
    part = request.messages[0].content[0]
    assert isinstance(part, OpaquePart)
    assert (part.provider, part.type, part.value) == ("mcp", body["method"], body)
    assert same_spelling(MCP.to_wire(request), body)


@pytest.mark.spec("MCP-3")
def test_nothing_is_sent_beside_what_was_judged_as_a_whole() -> None:
    request = MCP.from_wire_request(call("no/such/method"))
    more = Message(role=Role.USER, content=(TextPart(text="more"),))

    with pytest.raises(UnsupportedError):
        MCP.to_wire(request.model_copy(update={"messages": (*request.messages, more)}))


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("arguments", ["text", [1, "a"], 5, False])
def test_arguments_that_are_no_object_are_shown_as_their_text(arguments: Any) -> None:
    body = call("tools/call", {"name": "t", "arguments": arguments})

    request = MCP.from_wire_request(body)

    part = request.messages[0].content[0]
    assert isinstance(part, ToolCallPart)
    assert part.arguments is None
    assert part.arguments_raw is not None
    assert same_spelling(MCP.to_wire(request), body)


# -- content -----------------------------------------------------------------------------------------------------------

PNG = "iVBORw0KGgo="

BLOCKS: list[tuple[dict[str, Any], type]] = [
    ({"type": "text", "text": "hi", "annotations": {"audience": ["user"]}, "_meta": {"k": 1}}, TextPart),
    ({"type": "image", "data": PNG, "mimeType": "image/png"}, ImagePart),
    ({"type": "resource", "resource": {"uri": "file:///a", "text": "t", "_meta": {}}, "annotations": {"priority": 1}},
     ResourcePart),
    ({"type": "resource", "resource": {"uri": "FILE:///A/../b", "blob": PNG, "mimeType": "image/png"}}, ResourcePart),
    ({"type": "resource_link", "uri": "file:///a", "name": "a", "size": 3, "title": "A"}, ResourceRefPart),
    ({"type": "resource_link", "uri": "file:///a"}, ResourceRefPart),
    ({"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1.0}}, ToolCallPart),
    ({"type": "tool_use", "id": "c1", "name": "t", "input": "text"}, ToolCallPart),
    ({"type": "resource", "resource": {"uri": "file:///a", "text": "t", "blob": PNG}}, OpaquePart),
    ({"type": "resource", "resource": {"uri": "file:///a", "blob": "iVBORw0KGgp="}}, OpaquePart),
    ({"type": "resource", "resource": {"uri": "file:///a", "blob": "no base64"}}, OpaquePart),
    ({"type": "resource", "resource": {"uri": "file:///a"}}, OpaquePart),
    ({"type": "resource", "resource": "file:///a"}, OpaquePart),
    ({"type": "audio", "data": PNG, "mimeType": 5}, AudioPart),
    ({"type": "image", "data": None}, OpaquePart),
    ({"type": "resource_link", "name": "a"}, OpaquePart),
    ({"type": "tool_use", "id": "c1", "input": {}}, OpaquePart),
    ({"type": "tool_use", "name": "t"}, ToolCallPart),
    ({"type": "tool_result", "content": []}, OpaquePart),
    ({"type": "tool_result", "toolUseId": "c1", "content": [{"type": "text", "text": "a"}]}, ToolResultPart),
    ({"type": "resource", "resource": {"uri": "file:///a", "text": "t"}, "annotations": {}}, ResourcePart),
    ({"type": "text", "text": None}, OpaquePart),
    ({"type": "hologram", "depth": 3}, OpaquePart),
    ({"type": None, "text": "x"}, OpaquePart),
    ({"text": "x"}, OpaquePart),
]  # fmt: skip


@pytest.mark.spec("MCP-4")
@pytest.mark.parametrize(("block", "part"), BLOCKS)
def test_each_block_is_its_part_and_goes_back(block: dict[str, Any], part: type) -> None:
    body = answer({"content": [block]})

    response = MCP.from_wire_response(body)

    result = response.message.content[0]
    assert isinstance(result, ToolResultPart)
    assert isinstance(result.content, tuple)
    assert type(result.content[0]) is part
    assert same_spelling(MCP.to_wire_response(response), body)


@pytest.mark.spec("MCP-4")
def test_a_block_that_is_no_object_is_refused_with_its_path() -> None:
    with pytest.raises(ShapeError) as refused:
        MCP.from_wire_response(answer({"content": [{"type": "text", "text": "a"}, "b"]}))

    assert refused.value.path == "$.result.content[1]"


@pytest.mark.spec("MCP-5")
def test_tool_results_of_a_user_message_are_messages_of_their_own_and_one_again() -> None:
    blocks = [
        {"type": "tool_result", "toolUseId": "c1", "content": [{"type": "text", "text": "1"}]},
        {"type": "text", "text": "and"},
        {"type": "tool_result", "toolUseId": "c2", "content": [], "isError": True},
    ]
    body = call(
        "sampling/createMessage",
        {
            "messages": [
                {"role": "assistant", "content": {"type": "tool_use", "id": "c1", "name": "look", "input": {}}},
                {"role": "user", "content": blocks, "_meta": {"k": "v"}},
            ],
            "maxTokens": 1,
        },
    )

    request = MCP.from_wire_request(body)

    assert [message.role for message in request.messages] == [Role.ASSISTANT, Role.TOOL, Role.USER, Role.TOOL]
    result = request.messages[1].content[0]
    assert isinstance(result, ToolResultPart)
    assert result.tool_name == "look"
    assert same_spelling(MCP.to_wire(request), body)


@pytest.mark.spec("MCP-5")
@pytest.mark.parametrize(
    "content",
    [{"type": "text", "text": "a"}, [{"type": "text", "text": "a"}], [], [{"type": "text", "text": "a"}] * 2],
)
def test_a_lone_block_and_a_list_are_spelled_back(content: Any) -> None:
    for body in (
        call("sampling/createMessage", {"messages": [{"role": "user", "content": content}]}),
        answer({"messages": [{"role": "assistant", "content": content}], "description": "d"}),
        answer({"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}),
    ):
        assert same_spelling(again(body, response="result" in body), body)


@pytest.mark.spec("MCP-5")
def test_a_message_of_another_role_or_without_content_is_refused() -> None:
    with pytest.raises(UnknownRoleError):
        MCP.from_wire_request(call("sampling/createMessage", {"messages": [{"role": "system", "content": []}]}))
    for wrong in ({"role": "user"}, {"role": "user", "content": "text"}, {"content": []}, "text"):
        with pytest.raises(ShapeError):
            MCP.from_wire_request(call("sampling/createMessage", {"messages": [wrong]}))


@pytest.mark.spec("MCP-5")
def test_tools_that_are_listed_are_definitions_that_can_be_stripped() -> None:
    tools = [
        {"name": "a", "description": "reads", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
        {"name": "b", "outputSchema": {"type": "object"}, "_meta": {"x": 1}},
    ]
    body = answer({"tools": tools, "nextCursor": "n"})

    response = MCP.from_wire_response(body)

    assert kinds(response) == ["response", "tool_definition", "tool_definition"]
    assert same_spelling(MCP.to_wire_response(response), body)
    stripped = response.model_copy(update={"tools": response.tools[:1]})
    assert MCP.to_wire_response(stripped) == answer({"tools": tools[:1], "nextCursor": "n"})


@pytest.mark.spec("MCP-5")
def test_a_tool_without_a_name_is_refused_with_its_path() -> None:
    with pytest.raises(ShapeError) as refused:
        MCP.from_wire_response(answer({"tools": [{"name": "a"}, {"title": "b"}]}))

    assert refused.value.path == "$.result.tools[1].name"


# -- answers -----------------------------------------------------------------------------------------------------------

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
        ("toolUse", StopReason.CALL),
        ("later", StopReason.OTHER),
    ],
)
def test_the_stop_reason_is_read_by_a_table(word: str, reason: StopReason) -> None:
    body = answer({"role": "assistant", "content": [], "model": "m", "stopReason": word})

    choice = MCP.from_wire_response(body).choices[0]

    assert (choice.stop_reason, choice.raw_stop_reason) == (reason, word)


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
        {"resultType": "input_required", "requestState": "s",
         "inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "?"}}}},
        {"resultType": "complete", "ttlMs": 1, "cacheScope": "public"},
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


# -- many messages -----------------------------------------------------------------------------------------------------

BATCH = [
    call("tools/call", {"name": "look", "arguments": {"a": 1}}, id=1),
    call("tools/call", {"name": "listen"}, id="1"),
    call("notifications/progress", {"progress": 1, "message": "half"}),
    call("sampling/createMessage", {"messages": [{"role": "user", "content": []}], "maxTokens": 3}, id=2),
    call("no/such/method", {"x": "y"}, id=3),
]


@pytest.mark.spec("MCP-9")
def test_a_batch_shows_every_entry_and_goes_back() -> None:
    request = MCP.from_wire_request(BATCH)

    assert kinds(request) == ["request", "tool_call", "tool_call", "text", "opaque", "opaque"]
    assert same_spelling(MCP.to_wire(request), BATCH)
    assert MCP.to_wire(MCP.from_wire_request([])) == []


@pytest.mark.spec("MCP-9")
def test_the_answers_of_a_batch_find_their_requests_by_id() -> None:
    body = [answer({"content": []}, id="1"), answer({"content": []}, id=1), answer({"content": []}, id=9)]

    response = MCP.from_wire_response(body, MCP.from_wire_request(BATCH))

    parts = [choice.message.content[0] for choice in response.choices]
    assert [part.tool_name for part in parts if isinstance(part, ToolResultPart)] == ["listen", "look", None]
    assert same_spelling(MCP.to_wire_response(response), body)


@pytest.mark.spec("MCP-9")
def test_a_batch_of_answers_can_lose_a_tool_but_not_gain_a_message() -> None:
    body = [answer({"tools": [{"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {}}]}), answer({}, id=8)]
    response = MCP.from_wire_response(body)

    stripped = response.model_copy(update={"tools": response.tools[1:]})
    grown = response.model_copy(
        update={"choices": (Choice(message=Message(role=Role.TOOL, content=(TextPart(text="x"),))),)}
    )

    assert MCP.to_wire_response(stripped)[0]["result"]["tools"] == [{"name": "b", "inputSchema": {}}]
    with pytest.raises(UnsupportedError):
        MCP.to_wire_response(grown)


@pytest.mark.spec("MCP-9")
def test_the_mark_of_an_entry_cannot_come_from_the_wire() -> None:
    with pytest.raises(ShapeError):
        MCP.from_wire_response(answer({"tools": [{"name": "a", "cmf_entry": 1}]}))


PROGRESS: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "notifications/message",
    "params": {"level": "info", "data": "at it"},
}
ANSWER = answer({"content": [{"type": "text", "text": "done"}]})


def events(*bodies: Any) -> list[WireEvent]:
    return [{"event": "message", "data": body} for body in bodies]


@pytest.mark.spec("MCP-10")
def test_a_stream_folds_to_its_answer_or_to_all_its_messages() -> None:
    assert MCP.fold_events([{"comment": "ping"}, {"id": "1", "data": ""}, *events(ANSWER)]) == ANSWER
    assert MCP.fold_events(events(PROGRESS, ANSWER)) == [PROGRESS, ANSWER]
    response = MCP.from_wire_response([PROGRESS, ANSWER])
    assert kinds(response) == ["response", "text", "tool_result", "text"]
    assert MCP.to_wire_events(response) == events(PROGRESS, ANSWER)


@pytest.mark.spec("MCP-10")
def test_a_stream_without_its_answer_is_partial_and_ends_in_an_error() -> None:
    for cut in ([], events(PROGRESS)):
        response = MCP.from_wire_response(MCP.fold_events(cut))

        assert [choice.message.status for choice in response.choices] == [MessageStatus.PARTIAL]
        assert MCP.to_wire_events(response) == cut
        assert isinstance(_last(cut), StreamError)


@pytest.mark.spec("MCP-10")
def test_an_answer_without_content_is_whole_too() -> None:
    assert isinstance(_last(events(answer({"tools": []}))), MessageComplete)
    assert isinstance(_last(events(answer({}))), MessageComplete)


@pytest.mark.spec("MCP-10")
def test_an_answer_that_is_text_or_calls_is_heard_with_its_end() -> None:
    content = [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c", "name": "t", "input": {}}]
    arriving = events(answer({"role": "assistant", "content": content, "model": "m"}))

    heard = _heard(arriving)

    assert [event.type for event in heard] == ["text_delta", "tool_use_end", "message_complete"]
    assert isinstance(_last(events({"id": 1, "error": {"code": 1, "message": "no"}})), StreamError)
    assert MCP.fold_events([{"data": [PROGRESS, ANSWER]}]) == [PROGRESS, ANSWER]


@pytest.mark.spec("MCP-10")
def test_an_event_that_is_no_message_is_refused() -> None:
    for wrong in ("hello", 5, [5]):
        with pytest.raises(CmfError):
            MCP.from_wire_response(MCP.fold_events(events(wrong, ANSWER)))
        assert isinstance(_last(events(wrong, ANSWER)), StreamError)


def _last(arriving: list[WireEvent]) -> Any:
    return _heard(arriving)[-1]


def _heard(arriving: list[WireEvent]) -> list[Any]:
    async def arrive() -> AsyncIterator[WireEvent]:
        for event in arriving:
            yield event

    async def collect() -> list[Any]:
        return [event async for event in MCP.stream_response(arrive())]

    return asyncio.run(collect())


# -- HTTP --------------------------------------------------------------------------------------------------------------

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


@pytest.mark.spec("MCP-11")
def test_routing_headers_repeat_the_body() -> None:
    request = MCP.from_wire_request(call("tools/call", {"name": "grüße", "_meta": META}))

    http = MCP.to_http(request)

    assert (http.method, http.path) == ("POST", "/mcp")
    assert http.headers["Mcp-Method"] == "tools/call"
    assert http.headers["Mcp-Name"] == "=?base64?Z3LDvMOfZQ==?="
    assert http.headers["MCP-Protocol-Version"] == "2026-07-28"
    assert "text/event-stream" in http.headers["Accept"]


@pytest.mark.spec("MCP-11")
@pytest.mark.parametrize("name", ["a\r\nX-Evil: 1", " a", "=?base64?YQ==?=", "\x7f"])
def test_a_name_cannot_break_out_of_its_header(name: str) -> None:
    http = MCP.to_http(MCP.from_wire_request(call("tools/call", {"name": name, "_meta": META})))

    assert re.fullmatch(r"=\?base64\?[A-Za-z0-9+/=]+\?=", http.headers["Mcp-Name"])


@pytest.mark.spec("MCP-11")
def test_session_and_version_of_the_client_are_shown_and_sent_on() -> None:
    request = MCP.from_wire_request(
        call("ping"), headers={"MCP-Session-Id": "s1", "mcp-protocol-version": "2025-06-18", "Authorization": "x"}
    )

    headers = MCP.to_http(request).headers

    assert (headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"]) == ("s1", "2025-06-18")
    assert "Authorization" not in headers
    assert "Mcp-Method" not in headers
    assert "s1" in str([view.to_opa_input() for view in iter_views(request)])
    assert MCP.to_wire(request) == call("ping")


# -- from other formats ------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCP-12")
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (ToolCallPart(name="t", tool_call_id="c", arguments={"a": 1}), "tools/call"),
        (ResourceRefPart(uri="file:///a"), "resources/read"),
        (PromptRequestPart(name="p"), "prompts/get"),
        (TextPart(text="hi"), "sampling/createMessage"),
    ],
)
def test_a_request_from_elsewhere_becomes_its_method(part: Any, method: str) -> None:
    body = MCP.to_wire(Request(messages=(Message(role=Role.USER, content=(part,)),)))

    assert body["method"] == method
    assert MCP.from_wire_request(body).messages[0].content[0].content_type == part.content_type


@pytest.mark.spec("MCP-12")
def test_a_conversation_from_elsewhere_becomes_a_completion() -> None:
    request = Request(
        messages=(
            Message(role=Role.SYSTEM, content=(TextPart(text="be brief"),)),
            Message(role=Role.USER, content=(TextPart(text="look"),)),
            Message(
                role=Role.ASSISTANT,
                content=(ThinkingPart(text="hm"), ToolCallPart(tool_call_id="c", name="t", arguments={})),
            ),
            Message(role=Role.ASSISTANT, content=(ThinkingPart(text="nothing else"),)),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="c", content="seen"),)),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="d", content={"a": 1}, is_error=True),)),
        ),
        tools=(ToolDefinition(name="t"),),
        sampling=Sampling(top_p=0.5),
    )

    with collecting() as losses:
        body = MCP.to_wire(request)

    assert [loss.block_type for loss in losses] == ["thinking", "thinking", "top_p"]
    assert body["params"] == {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "look"}},
            {"role": "assistant", "content": {"type": "tool_use", "id": "c", "name": "t", "input": {}}},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "toolUseId": "c", "content": [{"type": "text", "text": "seen"}]},
                    {"type": "tool_result", "toolUseId": "d", "content": [{"type": "text", "text": '{"a":1}'}],
                     "isError": True},
                ],
            },
        ],
        "systemPrompt": "be brief",
        "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
        "maxTokens": 4096,
    }  # fmt: skip


@pytest.mark.spec("MCP-12")
@pytest.mark.parametrize(
    "request_",
    [
        Request(messages=(Message(role=Role.USER, content=(ImagePart(type="url", data="https://a/b"),)),)),
        Request(messages=(Message(role=Role.USER, content=(VideoPart(type="base64", data=PNG),)),)),
        Request(messages=(Message(role=Role.USER, content=(ToolCallPart(name="t", arguments_raw="{"),)),)),
        Request(tools=(ToolDefinition(name="search", executed_by="provider", type="web"),)),
        Request(tool_choice=ToolChoice(mode="tool", name="t")),
    ],
)
def test_what_mcp_cannot_say_is_refused(request_: Request) -> None:
    with pytest.raises(UnsupportedError):
        MCP.to_wire(request_)


@pytest.mark.spec("MCP-12")
def test_an_answer_from_elsewhere_becomes_the_result_of_a_completion() -> None:
    said = Message(role=Role.ASSISTANT, content=(TextPart(text="hi"),))
    opaque = OpaquePart(provider="gemini", type="odd", value={"x": 1})
    response = Response(choices=(Choice(message=said, stop_reason=StopReason.REFUSAL),), model="m")

    with collecting() as losses:
        body = MCP.to_wire_response(response)
        result = MCP.to_wire_response(
            Response(choices=(Choice(message=Message(role=Role.TOOL, content=(
                ToolResultPart(tool_call_id="c", content=(TextPart(text="a"), opaque)),
            ))),))
        )  # fmt: skip

    assert body["result"] == {
        "role": "assistant",
        "content": {"type": "text", "text": "hi"},
        "model": "m",
        "stopReason": "endTurn",
    }
    assert (result["id"], result["result"]) == ("c", {"content": [{"type": "text", "text": "a"}]})
    assert [loss.block_type for loss in losses] == ["stop_reason", "odd"]
    assert MCP.to_wire_response(Response(error=ErrorInfo(message="no", code="429")))["error"] == {
        "code": 429,
        "message": "no",
    }


@pytest.mark.spec("MCP-12")
@pytest.mark.parametrize(
    "parts",
    [
        (ToolResultPart(content="a"), ToolResultPart(content="b")),
        (PromptResultPart(prompt_name="p"), TextPart(text="b")),
        (ResourcePart(uri="file:///a", content="x"), TextPart(text="b")),
    ],
)
def test_an_answer_that_carries_more_than_one_result_is_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(UnsupportedError):
        MCP.to_wire_response(Response(choices=(Choice(message=Message(role=Role.TOOL, content=parts)),)))


@pytest.mark.spec("MCP-12")
def test_prompts_and_resources_from_elsewhere_become_results() -> None:
    prompt = PromptResultPart(prompt_name="p", content="hello")
    resource = ResourcePart(uri="file:///a", content="x")

    results = [
        MCP.to_wire_response(Response(choices=(Choice(message=Message(role=Role.TOOL, content=(part,))),)))["result"]
        for part in (prompt, resource, ResourceRefPart(uri="file:///b"))
    ]

    assert results == [
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]},
        {"contents": [{"uri": "file:///a", "text": "x"}]},
        {"role": "user", "content": {"type": "resource_link", "uri": "file:///b", "name": "file:///b"}},
    ]


@pytest.mark.spec("MCP-12")
def test_content_that_was_taken_away_is_not_made_up() -> None:
    request = MCP.from_wire_request(call("tools/call", {"name": "t"}))

    with pytest.raises(UnsupportedError):
        MCP.to_wire(request.model_copy(update={"messages": ()}))


@pytest.mark.parametrize("junk", [None, True, 0, "x", [], ["x"], {}, {"method": 5}, {"id": {}}])
@pytest.mark.parametrize("key", ["envelope", "params", "result", "error", "batch", "headers", "answers", "bare"])
def test_an_extra_that_no_adapter_made_is_read_or_refused(key: str, junk: Any) -> None:
    message = Message(role=Role.TOOL, content=(TextPart(text="a"),), extra={"mcp": {"key": junk, "wire": junk}})
    extra = {"mcp": {"envelope": {"id": 1}, key: junk}}
    for value in (Request(messages=(message,), extra=extra), Response(choices=(Choice(message=message),), extra=extra)):
        try:
            out = MCP.to_wire(value) if isinstance(value, Request) else MCP.to_wire_response(value)
        except CmfError:
            continue
        assert unseen_strings(out, value, adapter_constants("mcp")) == []


def test_nothing_is_promised_for_a_model_that_is_not_known() -> None:
    request = MCP.from_wire_request(call("sampling/createMessage", ROWS["sampling/createMessage"][0]))

    assert not MCP.capabilities("any").supports_tools
    assert MCP.estimate_input_tokens(request) > 0
