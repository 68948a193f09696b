"""pydantic-ai: the conversation that is translated elsewhere, as its own messages, from JSON and to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from bench import documents


def operations() -> dict[str, Callable[..., Any]]:
    """`read`: JSON to messages; `write`: messages to JSON; `count`: how many parts there are."""
    messages = list(_messages(documents.openai_request()["messages"]))
    text = ModelMessagesTypeAdapter.dump_json(messages)
    return {
        "read": lambda: ModelMessagesTypeAdapter.validate_json(text),
        "write": lambda: ModelMessagesTypeAdapter.dump_json(messages),
        "count": lambda: sum(len(message.parts) for message in messages),
    }


def _messages(wire: list[dict[str, Any]]) -> Iterator[ModelMessage]:
    names: dict[str, str] = {}
    for message in wire:
        content = message.get("content") or ""
        match message["role"]:
            case "system":
                yield ModelRequest(parts=[SystemPromptPart(content)])
            case "user":
                yield ModelRequest(parts=[UserPromptPart(content)])
            case "tool":
                call_id = message["tool_call_id"]
                yield ModelRequest(parts=[ToolReturnPart(names[call_id], content, tool_call_id=call_id)])
            case _:
                parts: list[Any] = [TextPart(content)] if content else []
                for call in message.get("tool_calls", ()):
                    function = call["function"]
                    names[call["id"]] = function["name"]
                    arguments = json.loads(function["arguments"])
                    parts.append(ToolCallPart(function["name"], arguments, tool_call_id=call["id"]))
                yield ModelResponse(parts=parts)
