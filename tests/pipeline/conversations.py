"""Small conversations with tools, to ask where values came from."""

from __future__ import annotations

from typing import Any

from cmf.message.message import Message, ToolCallPart
from pipeline.provenance.index import EVERYTHING, Index
from pipeline.provenance.profiles import Profiles

PROFILES = Profiles.load(
    {
        "profiles": {
            "read_mail": {
                "actions": ["read"],
                "result": {
                    "labels": ["mail"],
                    "fields": {"[*].sender": {"trust": "metadata", "labels": ["pii"]}, "[*].id": "metadata"},
                },
            },
            "contacts": {"actions": ["read"], "result": {"trust": "trusted"}},
            "catalogue": {"actions": ["read"], "result": {"fields": {"*~": "trusted"}}},
            "save": {"actions": ["write"], "content": ["text"], "result": {"trust": "trusted"}},
            "send": {
                "actions": ["send"],
                "sink": True,
                "control": ["to", "cc", "amount"],
                "content": ["body"],
                "asked_for": {"verbs": ["send"]},
            },
        }
    }
)


def says(role: str, text: str) -> Message:
    return Message.model_validate({"role": role, "content": [{"content_type": "text", "text": text}]})


def calls(name: str, arguments: Any, tool_id: str | None = None) -> Message:
    part = {"content_type": "tool_call", "name": name, "arguments": arguments, "tool_call_id": tool_id}
    return Message.model_validate({"role": "assistant", "content": [part]})


def returns(content: Any, tool_id: str | None = None, **fields: Any) -> Message:
    part = {"content_type": "tool_result", "tool_call_id": tool_id, "content": content, **fields}
    return Message.model_validate({"role": "tool", "content": [part]})


def used(name: str, arguments: Any, content: Any, tool_id: str | None) -> list[Message]:
    """A call and its result."""
    return [calls(name, arguments, tool_id), returns(content, tool_id)]


def index_of(*messages: Message, known: Any = EVERYTHING, profiles: Profiles = PROFILES) -> Index:
    index = Index(profiles, known)
    for message in messages:
        index.extend(message)
    return index


def sources(index: Index, value: Any) -> list[tuple[str, str, int, str]]:
    """Kind, trust, message and match of the sources of one value."""
    part = ToolCallPart(name="send", arguments={"to": value})
    (entry,) = (entry for entry in index.origins(part) if entry["path"] == "/to")
    return [(one["kind"], one["trust"], one["message"], one["match"]) for one in entry["sources"]]


def trusts(index: Index, value: Any) -> set[str]:
    return {trust for _, trust, _, _ in sources(index, value)}


def values_of(index: Index, call: ToolCallPart) -> list[dict[str, Any]]:
    """The entries of the call's values, without those of the call as a whole."""
    return [entry for entry in index.origins(call) if entry["type"] not in ("call", "before")]
