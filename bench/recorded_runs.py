"""Recorded runs of agents, one JSON object a line, as conversations.

What recorders do differently is read as the same: text as blocks or nothing, ids that are null, the name of a call
under `name`, `function` or OpenAI's `function` object, arguments as an object or as its text.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cmf.errors import CmfError
from cmf.message.message import Message
from cmf.message.tools import ToolDefinition

Definitions: TypeAlias = dict[str, dict[str, ToolDefinition]]


class UnreadableRunError(Exception):
    """A line is no run; the text says which line of which file, and why."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run; `goal_call` is the id of the call that completes the attacker's aim, where there is one.

    `planted` are the texts that the attacker had written into what tools return. `renamed` is the place of a message,
    and the tool that is offered from there on under the name of the goal's call.
    """

    id: str
    suite: str
    attacked: bool
    useful: bool
    goal_call: str | None
    tools: tuple[str, ...]
    messages: tuple[Message, ...]
    planted: tuple[str, ...] = ()
    renamed: tuple[int, str] | None = None


def read_runs(file: Path) -> Iterator[Run]:
    """The runs of a `.jsonl` or `.jsonl.gz` file; blank lines are passed over.

    Raises:
        UnreadableRunError: with file, line and reason.
    """
    opened = gzip.open if file.suffix == ".gz" else open
    number = 0
    try:
        with opened(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield _run(json.loads(line))
    except json.JSONDecodeError as error:
        raise UnreadableRunError(f"{file}:{number}:{error.colno}: not JSON: {error.msg}") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UnreadableRunError(f"{file}:{number + 1}: cannot be read: {type(error).__name__}") from None
    except CmfError as error:
        raise UnreadableRunError(f"{file}:{number}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise UnreadableRunError(f"{file}:{number}: not a recorded run: {why}") from None


def read_definitions(file: Path) -> Definitions:
    """The definitions of a JSON file `{suite: [{name, description, schema}]}`.

    Raises:
        UnreadableRunError: with file and reason.
    """
    try:
        suites = json.loads(file.read_text(encoding="utf-8"))
        return {
            suite: {
                str(tool["name"]): ToolDefinition.model_validate(
                    {"name": tool["name"], "description": tool.get("description"), "input_schema": tool.get("schema")}
                )
                for tool in tools
            }
            for suite, tools in suites.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CmfError) as error:
        raise UnreadableRunError(f"{file}: no definitions: {error}") from None


def tools_of(run: Run, definitions: Definitions | None) -> tuple[ToolDefinition, ...]:
    """The tools that a run was offered: defined, if their definitions are there, or only named."""
    known = (definitions or {}).get(run.suite, {})
    return tuple(known.get(name) or ToolDefinition(name=name) for name in run.tools)


def _run(body: dict[str, Any]) -> Run:
    goal, planted = body.get("goal_call"), body.get("injections")
    return Run(
        id=str(body["id"]),
        suite=str(body["suite"]),
        attacked=body.get("attack") is not None,
        useful=body.get("utility") is True,
        goal_call=None if goal is None else str(goal),
        tools=tuple(_tool_name(tool) for tool in body.get("tools") or ()),
        messages=tuple(_message(message) for message in body["messages"]),
        planted=tuple(map(str, planted.values())) if isinstance(planted, dict) else (),
    )


def _tool_name(tool: Any) -> str:
    return str(_named(tool)) if isinstance(tool, dict) else str(tool)


def _named(body: dict[str, Any]) -> Any:
    """The name of a tool or call, and OpenAI's way to hold it."""
    function = body.get("function")
    return function["name"] if isinstance(function, dict) else body["name"] if "name" in body else body["function"]


def _message(body: dict[str, Any]) -> Message:
    if body["role"] == "tool":
        error = body.get("error")
        content = _blocks(body.get("content"))
        result = {
            "content_type": "tool_result",
            "tool_call_id": _id(body.get("tool_call_id")),
            "content": str(error) if error and not content else "" if content is None else content,
            "is_error": bool(error),
        }
        return Message.model_validate({"role": "tool", "content": [result]})
    text = _blocks(body.get("content"))
    parts = [{"content_type": "text", "text": text}] if text else []
    parts += [_call(call) for call in body.get("tool_calls") or ()]
    return Message.model_validate({"role": body["role"], "content": parts})


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    given = held.get("args", held.get("arguments"))
    part = {"content_type": "tool_call", "tool_call_id": _id(call.get("id")), "name": _named(call)}
    if not isinstance(given, str):
        return part | {"arguments": given or {}}
    try:
        read = json.loads(given or "{}")
    except ValueError:
        read = None
    return part | ({"arguments": read} if isinstance(read, dict) else {"arguments_raw": given})


def _blocks(content: Any) -> Any:
    """The text of a list of text blocks; anything else as it is."""
    if isinstance(content, list) and all(isinstance(block, dict) and block.get("type") == "text" for block in content):
        return "\n".join(str(block.get("text", block.get("content")) or "") for block in content)
    return content


def _id(given: Any) -> str | None:
    return None if given is None or given == "" else str(given)
