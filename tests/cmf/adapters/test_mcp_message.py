"""MCP's envelopes, and content of other formats in them. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role, StopReason
from cmf.errors import CmfError, ShapeError, UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.message.message import (
    ImagePart,
    Message,
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
from cmf.message.request import Choice, ErrorInfo, Request, Response, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition
from tests.cmf.adapters.mcp_bodies import MCP, PNG, again, answer, call
from tests.cmf.adapters.mediation import adapter_constants, unseen_strings


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
@pytest.mark.parametrize(
    "body",
    [
        {}, {"result": {}}, {"id": 3, "result": None}, {"action": "accept"}, {"roots": []}, {"id": 3, "error": None},
        {"id": 3, "result": {"tools": []}, "error": None}, {"id": 3, "result": {}, "error": None},
        [{"id": 3, "result": {"tools": []}, "error": None}],
    ],
)  # fmt: skip
def test_an_answer_is_spelled_back_with_and_without_its_envelope(body: dict[str, Any]) -> None:
    assert same_spelling(again(body, response=True), body)


@pytest.mark.spec("MCP-1")
def test_a_body_that_is_no_object_is_refused() -> None:
    for body in ("ping", 1, None, [1]):
        with pytest.raises(ShapeError):
            MCP.from_wire_request(body)
    with pytest.raises(ShapeError):
        MCP.from_wire_response([{}, 1])


@pytest.mark.spec("MCP-1")
def test_a_response_says_what_it_answers() -> None:
    asked = MCP.from_wire_request(call("tools/call", {"name": "search", "arguments": {}}))

    response = MCP.from_wire_response(answer({"content": []}), asked)

    assert response.extra is not None
    assert response.extra["mcp"]["answers"] == "tools/call"
    assert "answers" not in str(MCP.to_wire_response(response))


@pytest.mark.spec("MCP-12")
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (ToolCallPart(name="t", tool_call_id="c", arguments={"a": 1}), "tools/call"),
        (ToolCallPart(name="t", tool_call_id="", arguments={}), "tools/call"),
        (ResourceRefPart(uri="file:///a"), "resources/read"),
        (PromptRequestPart(name="p"), "prompts/get"),
        (TextPart(text="hi"), "sampling/createMessage"),
    ],
)
def test_a_request_from_elsewhere_becomes_its_method(part: Any, method: str) -> None:
    body = MCP.to_wire(Request(messages=(Message(role=Role.USER, content=(part,)),)))

    assert (body["id"], body["method"]) == (getattr(part, "tool_call_id", "call_0"), method)
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
def test_losses_of_a_lone_call_and_of_a_system_prompt_are_reported() -> None:
    call_ = Message(role=Role.USER, content=(ToolCallPart(name="t", tool_call_id="c", arguments={}),))
    system = Message(role=Role.SYSTEM, content=(TextPart(text="a"), ImagePart(type="base64", data=PNG)))
    sampling = Sampling(temperature=0.5, stop=("x",))
    with collecting() as losses:
        MCP.to_wire(Request(messages=(call_,), sampling=sampling, tools=(ToolDefinition(name="t"),)))
        MCP.to_wire(Request(messages=(system, call_)))

    assert sorted(loss.block_type for loss in losses) == ["image", "stop", "temperature", "tools"]


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
    request = MCP.from_wire_request(call("tools/call", {"name": "look"}))

    assert not MCP.capabilities("any").supports_tools
    assert MCP.estimate_input_tokens(request) > 0


@pytest.mark.spec("MCP-12")
def test_calls_and_results_of_a_format_without_ids_are_paired_in_a_completion() -> None:
    called = [{"functionCall": {"name": "f", "args": {}}}, {"functionCall": {"id": "given", "name": "f", "args": {}}}]
    results = [{"functionResponse": {"name": "f", "response": {"output": 1}}} for _ in range(3)]
    contents = [{"role": "model", "parts": called}, {"role": "user", "parts": results}]

    params = MCP.to_wire(get("gemini").from_wire_request({"contents": contents}))["params"]

    blocks = [block for one in params["messages"] for block in one["content"]]
    assert [block.get("id") for block in blocks[:2]] == ["call_1", "given"]
    assert [block.get("toolUseId") for block in blocks[2:]] == ["call_1", "given", "call_2"]
