"""A body within the body: some receivers put it in place of what was judged, so it may not say otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.errors import ShapeError

SAID = [{"role": "user", "content": "hi"}]
OTHER = [{"role": "user", "content": "something else"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CHAT = {"model": "m", "messages": SAID}
RESPONSES = {"model": "m", "input": "hi"}
MESSAGES = {"model": "m", "max_tokens": 9, "messages": SAID}


@pytest.mark.spec("ADP-18")
@pytest.mark.parametrize(
    ("name", "body", "inner"),
    [
        ("openai_chat", CHAT, {"messages": OTHER}),
        ("openai_chat", CHAT, {"model": "another"}),
        ("openai_chat", CHAT, {"tools": TOOLS}),
        ("openai_chat", CHAT, {"max_tokens": 100_000}),
        ("openai_chat", CHAT, {"stream": True}),
        ("openai_chat", CHAT, {"extra_body": {"messages": OTHER}}),
        ("openrouter", CHAT, {"messages": OTHER}),
        ("openai_responses", RESPONSES, {"input": "something else"}),
        ("openai_responses", RESPONSES, {"instructions": "something else"}),
        ("anthropic_messages", MESSAGES, {"system": "something else"}),
    ],
)
def test_an_extra_body_that_says_otherwise_is_refused(name: str, body: dict[str, Any], inner: dict[str, Any]) -> None:
    with pytest.raises(ShapeError) as refused:
        get(name).from_wire_request({**body, "extra_body": inner})

    assert (refused.value.code, refused.value.path) == ("shape.overridden", "$.extra_body")


@pytest.mark.spec("ADP-18")
@pytest.mark.parametrize(
    "inner",
    [
        None,
        {},
        {"messages": SAID, "model": "m"},
        {"project_id": "7", "guided_regex": "a+"},
        {"google": {"thinking_config": {"include_thoughts": True}}},
        {"extra_body": {"google": {}}},
    ],
)
def test_an_extra_body_that_adds_fields_of_a_service_is_read_and_written_again(inner: Any) -> None:
    body = {**CHAT, "extra_body": inner}

    request = get("openai_chat").from_wire_request(body)

    assert get("openai_chat").to_wire(request) == body
