"""What a format leaves without ids is written with them elsewhere, and each result goes to the call that it answers."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import FORMATS, get
from cmf.adapters.wire.call_ids import with_ids
from cmf.enums import Role
from cmf.message.message import Message, ToolCallPart, ToolResultPart
from cmf.message.request import Request


def _calls(*calls: tuple[str, str | None]) -> Message:
    return Message(role=Role.ASSISTANT, content=[ToolCallPart(name=name, tool_call_id=own) for name, own in calls])


def _result(text: str, name: str | None = None, own: str | None = None) -> Message:
    return Message(role=Role.TOOL, content=[ToolResultPart(content=text, tool_name=name, tool_call_id=own)])


@pytest.mark.spec("ID-4")
@pytest.mark.parametrize("target", [name for name in FORMATS if name not in ("gemini", "ollama")])
def test_results_in_another_order_than_their_calls_go_to_the_calls_of_their_names(target: str) -> None:
    messages = (_calls(("a", None), ("b", None)), _result("of b", "b"), _result("of a", "a"))
    adapter = get(target)

    read = adapter.from_wire_request(adapter.to_wire(Request(model="m", messages=messages))).messages

    parts = [part for message in read for part in message.content]
    called = {part.tool_call_id: part.name for part in parts if isinstance(part, ToolCallPart)}
    answered = {called[part.tool_call_id]: _text(part) for part in parts if isinstance(part, ToolResultPart)}
    assert answered == {"a": "of a", "b": "of b"}


def _text(result: ToolResultPart) -> Any:
    return result.content[0].text if isinstance(result.content, tuple) else result.content


@pytest.mark.spec("ID-4")
def test_a_result_without_an_id_may_answer_a_call_that_has_one() -> None:
    messages = (_calls(("a", "x"), ("a", "y")), _result("1", "a", "x"), _result("2", "a"), _result("3", "a"))

    named = with_ids(messages)

    assert [message.content[0].tool_call_id for message in named[1:]] == ["x", "y", "call_1"]
    assert [new is old for new, old in zip(named, messages, strict=True)] == [True, True, False, False]
