"""Reads and writes the results of MCP's calls, which are distinguished by their keys.

Spec: docs/spec/adapters/mcp.md [MCP-6], [MCP-7].

The keys decide, not the method alone: an answer is read the same with its request at hand and without. The request adds
the names that an answer does not repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.adapters.mcp.calls import RpcContent, read_message, read_tools, write_message, write_messages, write_tools
from cmf.adapters.mcp.parts_in import FORMAT, read_resource, read_result
from cmf.adapters.mcp.parts_out import write_resource, write_result
from cmf.adapters.wire.fields import Fields, extra_of
from cmf.adapters.wire.loss import drop
from cmf.enums import Role, StopReason
from cmf.errors import UnsupportedError
from cmf.json.value import trusted
from cmf.message.message import (
    Message,
    OpaquePart,
    PromptRequestPart,
    PromptResultPart,
    ResourcePart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.pairing import has_client_call
from cmf.message.request import Choice, Request

STOP_REASONS: Final = {
    "endTurn": StopReason.END,
    "stopSequence": StopReason.STOP_SEQUENCE,
    "maxTokens": StopReason.MAX_TOKENS,
    "toolUse": StopReason.CALL,
}
_STOP_WORDS: Final = {reason: word for word, reason in STOP_REASONS.items()}

_LISTS: Final = {"contents": "uri", "resources": "uri", "resourceTemplates": "uriTemplate"}
"""Keys that list resources, and the key of an item's address."""

STATUS: Final = "statusMessage"
"""What a task says about its state, to people or to a model."""
_TEXTS: Final = ("instructions", STATUS)
"""Keys of texts."""

_PLAIN: Final = frozenset(
    {
        "_meta", "action", "capabilities", "completion", "inputRequests", "prompts", "protocolVersion", "requestState",
        "resultType", "roots", "supportedVersions", "task", "taskId", "tasks",
    }
)  # fmt: skip
"""Keys of results that have no canonical value: shown in the response's view [MCP-7]."""


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """The request that an answer belongs to: its method, and the tool or prompt that it names."""

    method: str | None = None
    name: str | None = None


UNKNOWN_CALL: Final = AnsweredCall()


def answered_call(request: Request | None) -> AnsweredCall:
    """What `request` tells about its answer."""
    if request is None:
        return UNKNOWN_CALL
    envelope = extra_of(request, FORMAT).get("envelope")
    method = envelope.get("method") if isinstance(envelope, dict) else None
    return AnsweredCall(method=method if isinstance(method, str) else None, name=name_in(request.messages))


def name_in(messages: Sequence[Message]) -> str | None:
    """The name of the tool or prompt that the first part is about."""
    for message in messages[:1]:
        for part in message.content[:1]:
            if isinstance(part, ToolCallPart | PromptRequestPart):
                return part.name
            if isinstance(part, ToolResultPart):
                return part.tool_name
            if isinstance(part, PromptResultPart):
                return part.prompt_name
    return None


def read_answer(result: Fields, raw: Any, answer_id: str | None, call: AnsweredCall, content: RpcContent) -> bool:
    """Read what has a canonical value; False if no key is known, so that the result must be judged as a whole."""
    is_read = False
    if not _only_names(result.peek("tools")) and (tools := result.take("tools", list)) is not None:
        content.tools = read_tools(tools, f"{result.path}.tools")
        is_read = True
    for key, address in _LISTS.items():
        if (items := result.take(key, list)) is not None:
            parts = [read_resource(item, f"{result.path}.{key}[{at}]", address) for at, item in enumerate(items)]
            content.add(Role.TOOL, *parts, key=key)
            is_read = True
    if (turns := result.take("messages", list)) is not None:
        _read_prompt_result(turns, result.path, answer_id, call, content)
        is_read = True
    if "role" in result and call.method != "tools/call":
        turn = {key: result.peek(key) for key in ("role", "content") if key in result}
        content.messages += read_message(turn, result.path, content.names, key="message")
        for key, item in turn.items():
            result.drop(key, item)
        is_read = True
    elif isinstance(result.peek("content"), list) or "structuredContent" in result:
        own = Fields({key: result.peek(key) for key in _RESULT_KEYS if key in result}, result.path)
        for key in _RESULT_KEYS:
            result.drop(key, result.peek(key))
        content.add(Role.TOOL, read_result(own, answer_id, call.name, content.names))
        is_read = True
    if (text := result.take("instructions", str)) is not None:
        content.add(Role.TOOL, trusted(TextPart, text=text), key="instructions")
        is_read = True
    return read_status(result, content) or is_read or not raw or not _PLAIN.isdisjoint(raw)


def read_status(task: Fields, content: RpcContent) -> bool:
    """Read what a task says about its state; False if it says nothing, or is no task."""
    text = task.take(STATUS, str) if "taskId" in task else None
    if text is not None:
        content.add(Role.TOOL, trusted(TextPart, text=text), key=STATUS)
    return text is not None


def _only_names(tools: Any) -> bool:
    """Whether a list holds only names: references to tools, which define none."""
    return isinstance(tools, list) and bool(tools) and all(isinstance(name, str) for name in tools)


_RESULT_KEYS: Final = ("content", "isError", "structuredContent")


def _read_prompt_result(
    turns: list[Any], path: str, answer_id: str | None, call: AnsweredCall, content: RpcContent
) -> None:
    messages: list[Message] = []
    for index, turn in enumerate(turns):
        messages += read_message(turn, f"{path}.messages[{index}]", content.names, index=index)
    content.add(
        Role.TOOL,
        trusted(
            PromptResultPart,
            prompt_request_id=answer_id,
            prompt_name=call.name if call.name is not None else "",
            messages=tuple(messages),
        ),
    )


def write_answer(messages: Sequence[Message], content: RpcContent) -> dict[str, Any]:
    """The result with these messages and tools."""
    result: dict[str, Any] = {}
    if content.tools:
        result["tools"] = write_tools(content.tools)
    turns: list[Message] = []
    for message in messages:
        key = key_of(message)
        if key == "message":
            turns.append(message)
        elif key == "result":
            result |= _write_tool_result(message)
        elif key == "messages":
            result |= _write_prompt_result(message)
        elif key in _TEXTS:
            result[key] = "".join(part.text for part in message.content if isinstance(part, TextPart))
        else:
            result[key] = [write_resource(part, address=_LISTS[key]) for part in message.content]
    if turns:
        turn = write_message(turns)
        result |= turn if turn is not None else {"role": "assistant", "content": []}
    return result


def key_of(message: Message) -> str:
    """The key under which a message goes into a result: the one it came with, else by its content."""
    key = extra_of(message, FORMAT).get("key")
    if isinstance(key, str) and (key in _LISTS or key in _TEXTS or key in ("message", "whole")):
        return key
    first = message.content[0] if message.content else None
    if isinstance(first, ToolResultPart) and message.role is Role.TOOL:
        return "result"
    if isinstance(first, PromptResultPart):
        return "messages"
    return "contents" if isinstance(first, ResourcePart) else "message"


def _write_tool_result(message: Message) -> dict[str, Any]:
    if len(message.content) != 1 or not isinstance(message.content[0], ToolResultPart):
        raise UnsupportedError("an mcp answer carries one tool result", hint="send one answer a call")
    return write_result(message.content[0], message)


def _write_prompt_result(message: Message) -> dict[str, Any]:
    part = message.content[0]
    if len(message.content) != 1 or not isinstance(part, PromptResultPart):
        raise UnsupportedError("an mcp answer carries one prompt result", hint="send one answer a request")
    if part.content is not None and not part.messages:
        return {"messages": [{"role": "user", "content": {"type": "text", "text": part.content}}]}
    return {"messages": write_messages(part.messages)}


def read_stop(result: Fields, messages: Sequence[Message]) -> tuple[StopReason | None, str | None]:
    """Why the client's model stopped, with the wire's own word; a call is the reason only if there is one."""
    raw = result.take("stopReason", str)
    if raw is None:
        return None, None
    return _stop_reason(raw, calls=any(has_client_call(message.content) for message in messages)), raw


def _stop_reason(raw: str, *, calls: bool) -> StopReason:
    reason = STOP_REASONS.get(raw, StopReason.OTHER)
    return StopReason.OTHER if reason is StopReason.CALL and not calls else reason


def write_stop(choice: Choice) -> str | None:
    """The wire's word for why it stopped: the one it came with, if it still means the same."""
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    calls = has_client_call(choice.message.content)
    if raw is not None and _stop_reason(raw, calls=calls) is reason:
        return raw
    if reason is None:
        return None
    if reason is StopReason.END and calls:
        return "toolUse"
    if reason is StopReason.CALL and not calls:
        return "endTurn"
    if reason not in _STOP_WORDS:
        drop(FORMAT, "stop_reason", "no such word", message=choice.message)
    return _STOP_WORDS.get(reason, "endTurn")


def opaque(kind: str, raw: Any, role: Role, content: RpcContent) -> None:
    """Add `raw` as one opaque part, to be judged as a whole: nothing in it is known."""
    content.add(role, trusted(OpaquePart, provider=FORMAT, type=kind, value=raw), key="whole")
