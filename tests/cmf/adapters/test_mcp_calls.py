"""The table of MCP's methods: each gives its views and goes back. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cmf.adapters.mcp.calls import CALLS
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.message.message import Message, OpaquePart, TextPart, ToolCallPart
from cmf.message.request import Sampling, ToolChoice
from cmf.views.iterate import iter_views
from tests.cmf.adapters.mcp_bodies import MCP, call, kinds
from tests.house.tree import ROOT

SPEC = ROOT / "docs" / "spec" / "adapters" / "mcp.md"

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


@pytest.mark.spec("MCP-1", "MCP-2")
@pytest.mark.parametrize("beside", [{}, {"arguments": None}, {"arguments": {}}])
def test_a_call_without_arguments_has_an_empty_object_of_them(beside: dict[str, Any]) -> None:
    """That is what a tool without parameters is called with; clients leave it out."""
    body = call("tools/call", {"name": "clock", **beside}, id=1)

    request = MCP.from_wire_request(body)

    part = request.messages[0].content[0]
    assert isinstance(part, ToolCallPart)
    assert (part.arguments, part.arguments_raw) == ({}, None)
    assert same_spelling(MCP.to_wire(request), body)
    assert [view.arguments for view in iter_views(request) if view.kind == "tool_call"] == [{}]


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
