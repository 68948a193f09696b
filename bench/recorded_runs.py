"""Recorded runs of agents, one JSON object a line, as conversations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmf.message import Message


@dataclass(frozen=True, slots=True)
class Run:
    """One run; `goal_call` is the id of the call that completes the attacker's aim, where there is one."""

    id: str
    suite: str
    attacked: bool
    useful: bool
    goal_call: str | None
    tools: tuple[str, ...]
    injections: tuple[str, ...]
    messages: tuple[Message, ...]


def read_runs(file: Path) -> Iterator[Run]:
    """The runs of a `.jsonl` or `.jsonl.gz` file."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            body = json.loads(line)
            yield Run(
                id=str(body["id"]),
                suite=body["suite"],
                attacked=body.get("attack") is not None,
                useful=body.get("utility") is True,
                goal_call=body.get("goal_call"),
                tools=tuple(body.get("tools") or ()),
                injections=tuple((body.get("injections") or {}).values()),
                messages=tuple(_message(message) for message in body["messages"]),
            )


def _message(body: dict[str, Any]) -> Message:
    if body["role"] == "tool":
        content = [
            {
                "content_type": "tool_result",
                "tool_call_id": body.get("tool_call_id"),
                "content": body["content"],
                "is_error": bool(body.get("error")),
            }
        ]
        return Message.model_validate({"role": "tool", "content": content})
    parts = [{"content_type": "text", "text": body["content"]}] if body.get("content") else []
    for call in body.get("tool_calls") or ():
        parts.append(
            {
                "content_type": "tool_call",
                "tool_call_id": call.get("id"),
                "name": call["name"],
                "arguments": call.get("args") or {},
            }
        )
    return Message.model_validate({"role": body["role"], "content": parts})
