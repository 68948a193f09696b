"""Names of tools that nobody can see, or tell from others, in every place where a tool is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cmf import adapters
from cmf.content import ToolCallPart
from cmf.message import Message
from cmf.request import Request
from cmf.tools import ToolDefinition
from pipeline import Guard
from pipeline.decision import Action

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
    mcp = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}

    assert codes(guard, call) == {"tools.tool-name"}
    assert codes(guard, offered) == {"tools.tool-name"}
    assert codes(guard, adapters.get("openai_chat").from_wire_request(chosen)) == {"tools.tool-name.choice"}
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
