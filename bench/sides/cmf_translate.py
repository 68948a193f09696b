"""This project: OpenAI chat request to Anthropic request; folding of streams. And a translation written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from bench import documents
from cmf.adapters import get
from cmf.json.value import to_bytes
from cmf.message.request import Request


def by_hand(body: dict[str, Any]) -> dict[str, Any]:
    """The Anthropic request, for the fields of this request alone: what any translation costs at least."""
    system, messages = [], []
    answers = None  # the blocks of the turn that results of parallel calls share
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
            if answers is None:
                answers = [block]
                messages.append({"role": "user", "content": answers})
            else:
                answers.append(block)
            continue
        answers = None
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
        if role == "system":
            system += blocks
            continue
        for call in message.get("tool_calls", ()):
            function = call["function"]
            given = orjson.loads(function["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
        messages.append({"role": role, "content": blocks})
    tools = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in body["tools"]
    ]
    translated = {"model": body["model"], "messages": messages, "system": system, "tools": tools}
    return {**translated, "max_tokens": body["max_completion_tokens"], "temperature": body["temperature"]}


def operations() -> dict[str, Callable[..., Any]]:
    """`translate` (and each half of it), `by_hand`, `fold_<chunks>`."""
    body = documents.openai_request()
    source, target = get("openai_chat"), get("anthropic_messages")
    decoded = source.from_wire_request(body)
    streams = {count: [{"data": chunk} for chunk in documents.openai_chunks(count)] for count in (250, 1000, 4000)}

    history = to_bytes(decoded)

    def fold(count: int) -> Callable[[], Any]:
        return lambda: source.from_wire_response(source.fold_events(streams[count]))

    return {
        "read_history": lambda: Request.model_validate_json(history),
        "write_history": lambda: to_bytes(decoded),
        "history_size": lambda: len(history),
        "translate": lambda: target.to_wire(source.from_wire_request(body)),
        "decode": lambda: source.from_wire_request(body),
        "encode": lambda: target.to_wire(decoded),
        "by_hand": lambda: by_hand(body),
        "by_hand_is_alike": lambda: by_hand(body) == target.to_wire(decoded),
        "blocks": lambda: _blocks(target.to_wire(decoded)),
        "size": lambda: len(json.dumps(body)),
        **{f"fold_{count}": fold(count) for count in streams},
    }


def _blocks(body: dict[str, Any]) -> list[str]:
    contents = [message["content"] for message in body["messages"]]
    return sorted(
        block["type"] for content in contents for block in ([{"type": "text"}] if isinstance(content, str) else content)
    )
