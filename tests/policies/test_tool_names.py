"""Names of tools that nobody can see, or tell from others, in every place where a tool is named."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from cmf import adapters
from cmf.adapters.wire import loss
from cmf.errors import UnsupportedError
from cmf.json.value import replace
from cmf.message.message import Message, ToolCallPart
from cmf.message.request import Request, ToolChoice
from cmf.message.tools import ToolDefinition
from pipeline import Guard, emit
from pipeline.decisions.decision import Action

HIDDEN = ["shell\u200b_exec", "sh\u0435ll_exec", "shell_exec ", "shell_exec\x00", "\uff53hell_exec", "x" * 129]
OPENAI: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


def codes(guard: Guard, value: Any) -> set[str]:
    decision = guard.decide(value)
    assert (decision.action is Action.REFUSE) == any(hit.effect == "deny" for hit in decision.hits)
    return {hit.code for hit in decision.hits if hit.rule == "tools/tool_name"}


@pytest.mark.spec("POL-41")
@pytest.mark.parametrize("name", HIDDEN)
def test_a_definition_a_call_and_a_choice_with_such_a_name_are_refused(guard: Guard, name: str) -> None:
    call = Message(role="assistant", content=[ToolCallPart(name=name, arguments={})])
    offered = Request(messages=[Message(role="user", content=[])], tools=[ToolDefinition(name=name)])
    chosen = {**OPENAI, "tool_choice": {"type": "function", "function": {"name": name}}}
    custom = {"model": "m", "input": "hi", "tool_choice": {"type": "custom", "name": name}}
    mcp = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}

    assert codes(guard, call) == {"tools.tool-name"}
    assert codes(guard, offered) == {"tools.tool-name"}
    assert codes(guard, adapters.get("openai_chat").from_wire_request(chosen)) == {"tools.tool-name.choice"}
    assert codes(guard, adapters.get("openai_responses").from_wire_request(custom)) == {"tools.tool-name.choice"}
    assert codes(guard, adapters.get("mcp").from_wire_request(mcp)) == {"tools.tool-name"}


@pytest.mark.spec("POL-41")
@pytest.mark.parametrize("name", ["delete_database", "Delete_Database", "DELETE_DATABASE"])
def test_a_destructive_tool_needs_its_approval_in_whatever_case(guard: Guard, name: str) -> None:
    decision = guard.decide(Message(role="assistant", content=[ToolCallPart(name=name, arguments={})]))

    assert "tools.destructive-approval" in {hit.code for hit in decision.hits}


@pytest.mark.spec("POL-41")
@pytest.mark.parametrize("name", ["get_weather", "mcp__mail--send", "fs.read/all:now", "查询天气", "날씨_조회"])
def test_a_name_that_a_person_can_read_passes(guard: Guard, name: str) -> None:
    assert codes(guard, Message(role="assistant", content=[ToolCallPart(name=name, arguments={})])) == set()


ALLOWED: Mapping[str, Any] = {
    "openai_chat": lambda names: {
        **OPENAI,
        "tools": [{"type": "function", "function": {"name": name}} for name in ("f", "g", "delete")],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": n}} for n in names]},
        },
    },
    "openai_responses": lambda names: {
        "model": "m",
        "input": "hi",
        "tools": [{"type": "function", "name": name} for name in ("f", "g", "delete")],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": n} for n in names],
        },
    },
    "gemini": lambda names: {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": name} for name in ("f", "g", "delete")]}],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": list(names)}},
    },
}
OFFERED: Mapping[str, Any] = {
    "openai_chat": lambda body: [tool["function"]["name"] for tool in body["tools"]],
    "openai_responses": lambda body: [tool["name"] for tool in body["tools"]],
    "gemini": lambda body: [tool["name"] for tool in body["tools"][0]["functionDeclarations"]],
    "anthropic_messages": lambda body: [tool["name"] for tool in body["tools"]],
    "ollama": lambda body: [tool["function"]["name"] for tool in body["tools"]],
    "mcp": lambda body: [tool["name"] for tool in body["params"]["tools"]],
}


@pytest.mark.spec("POL-41", "ADP-21")
@pytest.mark.parametrize("source", ALLOWED)
def test_an_allowed_tool_with_such_a_name_is_refused(guard: Guard, source: str) -> None:
    body = ALLOWED[source](["f", HIDDEN[0]])

    assert codes(guard, adapters.get(source).from_wire_request(body)) == {"tools.tool-name.choice"}


@pytest.mark.spec("ADP-21")
@pytest.mark.parametrize("target", OFFERED)
@pytest.mark.parametrize("source", ALLOWED)
def test_a_tool_that_the_choice_does_not_allow_is_not_offered_in_another_format(
    guard: Guard, source: str, target: str
) -> None:
    body = ALLOWED[source](["f", "g"])
    outcome = guard.run(adapters.get(source).from_wire_request(body))

    with loss.collecting() as losses:
        written: Any = emit(outcome, target)

    assert written == body if source == target else OFFERED[target](written) == ["f", "g"]
    assert source == target or "tools" in {lost.block_type for lost in losses}


@pytest.mark.spec("ADP-21")
@pytest.mark.parametrize("target", ["anthropic_messages", "gemini", "openai_chat", "openai_responses", "mcp"])
@pytest.mark.parametrize(("mode", "is_refused"), [("required", True), ("auto", False)])
def test_a_demanded_call_is_refused_where_no_tool_is_allowed(target: str, mode: Any, is_refused: bool) -> None:
    choice = ToolChoice(mode=mode, allowed=["h"])
    request = Request(model="m", messages=[Message(role="user", content=[])], tools=[ToolDefinition(name="f")])
    request = replace(request, tool_choice=choice)

    with pytest.raises(UnsupportedError) if is_refused else nullcontext():
        written = adapters.get(target).to_wire(request)
        assert "tool_choice" not in written
        assert not written.get("tools")
