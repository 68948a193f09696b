"""Keys that only some readers take for a name of the format: refused where names stand, read where keys are free."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from tests.cmf.adapters.wiredata import changed

from cmf.adapters import FORMATS, get
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import StreamError, StreamEvent
from cmf.errors import ShapeError
from cmf.views.iterate import iter_views

SAID: Final = {"role": "user", "content": "hi"}
CALLED: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PNG: Final = "data:image/png;base64,iVBORw0KGgo="
CHAT: Final = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": PNG}}]},
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
}
MESSAGES: Final = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
}
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": CHAT,
    "openrouter": CHAT,
    "openai_responses": {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    },
    "anthropic_messages": MESSAGES,
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"temperature": 1}},
    "ollama": {"model": "m", "messages": [SAID], "options": {"num_predict": 9}},
    "aisdk": {"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]},
    "mcp": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "read", "arguments": {}},
    },
}
SMUGGLED: Final[dict[str, list[tuple[tuple[str | int, ...], str, str]]]] = {  # where, the key, the path that is told
    "openai_chat": [
        ((), "Model", ""),
        ((), "Web_Search_Options", ""),
        (("messages", 0), "Role", "messages[0]"),
        (("messages", 0, "content", 0), "TEXT", "messages[0].content[0]"),
        (("messages", 0, "content", 1, "image_url"), "Url", "messages[0].content[1]"),
        (("messages", 1, "tool_calls", 0, "function"), "Name", "messages[1].content[0]"),
        (("messages", 2, "content", 0), "Text", "messages[2].content[0].content[0]"),
        (("tools", 0), "Function", "tools[0]"),
        (("tools", 0, "function"), "Parameters", "tools[0]"),
        (("tool_choice",), "Type", ""),
    ],
    "openrouter": [((), "Models", "")],
    "openai_responses": [
        ((), "Previous_response_ID", ""),
        ((), "Tools", ""),
        (("input", 0), "Role", "messages[0].content[0]"),
        (("input", 0, "content", 0), "Text", "messages[0].content[0]"),
        (("tools", 0), "Name", "tools[0]"),
    ],
    "anthropic_messages": [
        ((), "System", ""),
        ((), "MCP_servers", ""),
        (("messages", 0), "Content", "messages[0]"),
        (("messages", 0, "content", 0), "Text", "messages[0].content[0]"),
        (("tools", 0), "Name", "tools[0]"),
    ],
    "gemini": [
        ((), "SystemInstruction", ""),
        (("contents", 0), "Parts", "messages[0]"),
        (("contents", 0, "parts", 0), "Text", "messages[0].content[0]"),
        (("generationConfig",), "maxoutputtokens", ""),
    ],
    "ollama": [
        ((), "Tools", ""),
        ((), "Keep_Alive", ""),
        ((), "toolſ", ""),
        (("messages", 0), "Tool_Calls", "messages[0]"),
        (("messages", 0), "role\0", "messages[0]"),
        (("options",), "Num_Predict", ""),
    ],
    "aisdk": [
        (("messages", 0), "Parts", "messages[0]"),
        (("messages", 0, "parts", 0), "Text", "messages[0].content[0]"),
    ],
    "mcp": [
        ((), "Method", ""),
        (("params",), "Name", ""),
        (("params",), "name\0", ""),
    ],
}
CASES: Final = [(name, *case) for name, cases in SMUGGLED.items() for case in cases]


@pytest.mark.spec("ADP-17")
@pytest.mark.parametrize(("name", "where", "key", "path"), CASES)
def test_a_name_in_other_letters_is_refused_beside_the_name_and_without_it(
    name: str, where: tuple[str | int, ...], key: str, path: str
) -> None:
    body = changed(REQUESTS[name], where, lambda held: {**held, key: "smuggled"})

    with pytest.raises(ShapeError) as caught:
        get(name).from_wire_request(body)

    assert (caught.value.code, caught.value.path) == ("shape.ambiguous-key", path)
    assert "smuggled" not in str(caught.value)


@pytest.mark.parametrize("name", FORMATS)
def test_the_bodies_are_read_without_it(name: str) -> None:
    adapter = get(name)

    assert adapter.to_wire(adapter.from_wire_request(REQUESTS[name])) == REQUESTS[name]


REPLIES: Final[dict[str, tuple[dict[str, Any], tuple[str | int, ...]]]] = {
    "openai_chat": (
        {"object": "chat.completion", "id": "1", "created": 1, "model": "m",
         "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]},
        ("choices", 0, "message"),
    ),
    "ollama": ({"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": True}, ("message",)),
    "anthropic_messages": (
        {"id": "1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
         "usage": {"input_tokens": 1, "output_tokens": 1}, "content": [{"type": "text", "text": "hi"}]},
        (),
    ),
    "mcp": ({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hi"}]}}, ("result",)),
}  # fmt: skip


@pytest.mark.spec("ADP-17")
@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_with_a_name_in_other_letters_is_refused(name: str) -> None:
    body, where = REPLIES[name]
    adapter = get(name)

    assert adapter.to_wire_response(adapter.from_wire_response(body)) == body
    with pytest.raises(ShapeError) as caught:
        adapter.from_wire_response(changed(body, where, lambda held: {**held, "Content": "smuggled"}))
    assert caught.value.code == "shape.ambiguous-key"


async def _last(events: list[WireEvent]) -> StreamEvent:
    return [event async for event in get("ollama").stream_response(events)][-1]


@pytest.mark.spec("ADP-17")
def test_a_stream_with_a_name_in_other_letters_ends_in_an_error() -> None:
    line = {"model": "m", "message": {"role": "assistant", "content": "hi", "Content": "smuggled"}, "done": True}

    last = asyncio.run(_last([{"data": line}]))

    assert isinstance(last, StreamError)
    assert last.error.type == "shape.ambiguous-key"


FREE: Final[list[tuple[str, dict[str, Any]]]] = [
    ("openai_chat", {**CHAT, "metadata": {"Model": "x"}, "logit_bias": {"ID": 1}, "providerOptions": {"Name": "x"}}),
    ("openai_chat", changed(CHAT, ("tools", 0, "function", "parameters"), lambda _: {"properties": {"Name": {}}})),
    ("anthropic_messages", {**MESSAGES, "metadata": {"User": "x"}}),
    ("mcp", changed(REQUESTS["mcp"], ("params", "arguments"), lambda _: {"Name": 1, "name": 2})),
    ("mcp", changed(REQUESTS["mcp"], ("params",), lambda held: {**held, "_meta": {"Name": "x"}})),
    ("ollama", {"model": "m", "messages": [{"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "f", "arguments": {"Content": "x", "Name": "y"}}}]}]}),
    ("gemini", {"contents": [{"role": "user", "parts": [
        {"functionResponse": {"name": "f", "response": {"Name": "x", "Text": "y"}}}]}]}),
]  # fmt: skip


@pytest.mark.spec("ADP-17")
@pytest.mark.parametrize(("name", "body"), FREE)
def test_keys_that_the_format_leaves_open_are_spelled_at_will(name: str, body: dict[str, Any]) -> None:
    adapter = get(name)

    assert adapter.to_wire(adapter.from_wire_request(body)) == body


@pytest.mark.spec("ADP-15", "ADP-17")
@pytest.mark.parametrize("body", [{"Message": "not allowed"}, {"Error": {"Code": "x", "Message": "not allowed"}}])
@pytest.mark.parametrize("name", ["openai_chat", "anthropic_messages", "openai_responses", "gemini"])
def test_an_error_of_a_gateway_stays_an_error_whatever_its_letters(name: str, body: dict[str, Any]) -> None:
    adapter = get(name)
    response = adapter.from_wire_response(body)

    assert response.choices == ()
    assert "not allowed" in str([view.to_opa_input() for view in iter_views(response)])
    assert adapter.to_wire_response(response) == body
