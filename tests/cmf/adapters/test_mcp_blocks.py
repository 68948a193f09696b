"""Content blocks, messages and tool definitions of MCP. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError
from cmf.json.frozen import same_spelling
from cmf.message.message import (
    AudioPart,
    ImagePart,
    OpaquePart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.cmf.adapters.mcp_bodies import MCP, PNG, again, answer, call, kinds

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
