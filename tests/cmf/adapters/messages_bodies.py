"""Bodies of the Messages format, as the provider's reference describes them, for what the recordings do not have."""

from __future__ import annotations

from typing import Any

from cmf.adapters import get
from cmf.enums import Role
from cmf.json.frozen import same_spelling
from cmf.message.message import Message, Part, TextPart
from cmf.message.request import Request

ADAPTER = get("anthropic_messages")
ASK = {"model": "claude-sonnet-4-5", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}
USAGE = {"input_tokens": 1, "output_tokens": 2}

CALLS = [{"type": "tool_use", "id": name, "name": f"do_{name}", "input": {}} for name in "ab"]
RESULTS = [{"type": "tool_result", "tool_use_id": name, "content": f"did {name}"} for name in "ab"]
TEXT = {"type": "text", "text": "and now?"}


def asked(*content: dict[str, Any], role: str = "user", **fields: Any) -> dict[str, Any]:
    """A request of one message with these blocks."""
    return {**ASK, "messages": [{"role": role, "content": list(content)}], **fields}


def answered(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A whole reply with these blocks."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "usage": USAGE}
    return {**head, "content": list(content), "stop_reason": "end_turn", "stop_sequence": None, **fields}


def said(text: str) -> Message:
    """A user's text that came from no wire."""
    return Message(role=Role.USER, content=(TextPart(text=text),))


def only_part(body: dict[str, Any]) -> Any:
    """The only part of the only message of a request, which is checked to be written as it was read."""
    request = ADAPTER.from_wire_request(body)
    assert same_spelling(ADAPTER.to_wire(request), body)
    (message,) = request.messages
    (part,) = message.content
    return part


def written(*parts: Part, role: Role = Role.USER, **fields: Any) -> dict[str, Any]:
    """The body of a foreign request with one message."""
    message = Message(role=role, content=parts)
    return ADAPTER.to_wire(Request(model="claude-sonnet-4-5", messages=(message,), **fields))  # type: ignore[no-any-return]


def block(part: Part, role: Role = Role.USER) -> Any:
    """The block of a foreign part; None if it was dropped."""
    messages = written(part, role=role)["messages"]
    return messages[0]["content"][0] if messages else None
