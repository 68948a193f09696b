"""Reads and writes the params of MCP's requests and notifications, and the results of its calls.

Spec: docs/spec/adapters/mcp.md [MCP-2], [MCP-6], [MCP-7]. Each row of the table of methods reads the params that it
understands and writes them again; all other params stay in the request's `extra`, which its view shows. Results are
distinguished by their keys, not by the method alone: an answer is read the same with its request at hand and without.
The request adds the names that an answer does not repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cmf.adapters.mcp.parts import (
    FORMAT,
    Names,
    read_arguments,
    read_blocks,
    read_resource,
    read_result,
    write_arguments,
    write_blocks,
    write_resource,
    write_result,
)
from cmf.adapters.wire.call_ids import with_ids
from cmf.adapters.wire.fields import MARK, Fields, extra_of, object_in, read_sampling, write_definition, write_sampling
from cmf.adapters.wire.layout import grouped, grouped_as, joined, shape_of, user_runs
from cmf.adapters.wire.loss import drop, narrowed
from cmf.enums import Role, StopReason
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import present, trusted
from cmf.message.message import (
    Message,
    OpaquePart,
    Part,
    PromptRequestPart,
    PromptResultPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import NO_SAMPLING, SAMPLING_FIELDS, Choice, Request, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition
from cmf.message.transform import has_client_call

ENTRY: Final = f"{MARK}entry"  # which message of a batch a tool definition belongs to; never on the wire
DEFAULT_MAX_TOKENS: Final = 4096  # MCP requires a limit; requests of other formats may have none
_LIST: Final = FrozenDict(list=True)
_SAMPLING: Final = {"maxTokens": "max_output_tokens", "temperature": "temperature", "stopSequences": "stop"}


@dataclass(slots=True)
class RpcContent:
    """The content of one JSON-RPC message, in canonical values.

    Attributes:
        call_id: its id as text.
        alone: whether it is a request by itself; entries of a batch and answers have no place for sampling options.
        names: the names of the tools that were called, by the id of the call.
    """

    call_id: str | None = None
    alone: bool = False
    messages: list[Message] = field(default_factory=list)
    tools: list[ToolDefinition] = field(default_factory=list)
    sampling: Sampling = NO_SAMPLING
    tool_choice: ToolChoice | None = None
    names: Names = field(default_factory=dict)

    def add(self, role: Role, *parts: Part, key: str | None = None) -> None:
        """Add a message; `key` is the key of its content on the wire."""
        own = frozen_mapping({FORMAT: frozen_mapping({"key": key})}) if key is not None else None
        self.messages.append(trusted(Message, role=role, content=parts, extra=own))

    def single(self, kind: type[Any]) -> Any:
        """The one part of a kind; UnsupportedError if it was removed."""
        for message in self.messages:
            for part in message.content:
                if isinstance(part, kind):
                    return part
        raise UnsupportedError(f"the method needs a {kind.__name__}, and there is none", hint="do not send it")

    def text(self) -> str:
        """All text, joined."""
        return "".join(map(_text_of, self.messages))


def _text_of(message: Message) -> str:
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


Reader = Callable[[Fields, RpcContent], bool]
"""Reads the params that it understands; False if they do not fit the method."""
Row = tuple[Reader, Callable[[RpcContent], dict[str, Any]]]


def _read_tool_call(params: Fields, content: RpcContent) -> bool:
    name = params.take("name", str)
    if name is not None:
        arguments = read_arguments(params, "arguments")
        content.add(Role.ASSISTANT, trusted(ToolCallPart, tool_call_id=content.call_id, name=name, **arguments))
    return name is not None


def _write_tool_call(content: RpcContent) -> dict[str, Any]:
    part: ToolCallPart = content.single(ToolCallPart)
    return {"name": part.name, **present(arguments=write_arguments(part))}


def _read_prompt(params: Fields, content: RpcContent) -> bool:
    name = params.take("name", str)
    if name is None or not isinstance(params.peek("arguments"), dict | None):
        return False
    arguments = params.take("arguments", FrozenDict) or FrozenDict()
    part = trusted(PromptRequestPart, prompt_request_id=content.call_id, name=name, arguments=arguments)
    content.add(Role.USER, part)
    return True


def _write_prompt(content: RpcContent) -> dict[str, Any]:
    part: PromptRequestPart = content.single(PromptRequestPart)
    return {"name": part.name, **present(arguments=part.arguments or None)}


def _read_uri(params: Fields, content: RpcContent) -> bool:
    uri = params.take("uri", str)
    if uri is not None:
        content.add(Role.USER, trusted(ResourceRefPart, resource_request_id=content.call_id, uri=uri))
    return uri is not None


def _text_row(key: str) -> Row:
    """The row for a method whose param `key`, if present, is a text of the server."""

    def read(params: Fields, content: RpcContent) -> bool:
        if (text := params.take(key, str)) is not None:
            content.add(Role.TOOL, trusted(TextPart, text=text))
        return True

    return read, lambda content: {key: content.text()} if content.messages else {}


def _read_completion(params: Fields, content: RpcContent) -> bool:
    """What the user has typed so far, at `argument.value`."""
    argument = params.peek("argument")
    if not isinstance(argument, dict) or not isinstance(argument.get("value"), str):
        return False
    content.add(Role.USER, trusted(TextPart, text=argument["value"]))
    params.drop("argument", argument)
    rest = {key: item for key, item in argument.items() if key != "value"}
    if rest:
        params.put_back("argument", frozen_mapping(rest))
    return True


# -- sampling: the server asks for a completion ------------------------------------------------------------------------


def _read_sampling(params: Fields, content: RpcContent) -> bool:
    listed = params.take("messages", list)
    if listed is None:
        return False
    system = params.take("systemPrompt", str)
    if system is not None:
        content.add(Role.SYSTEM, trusted(TextPart, text=system))
    for index, item in enumerate(listed):
        content.messages += _read_message(item, f"{params.path}.messages[{index}]", content.names, index=index)
    if (tools := params.take("tools", list)) is not None:
        content.tools = _read_tools(tools, f"{params.path}.tools")
    if content.alone:
        content.sampling = read_sampling(params, _SAMPLING)
        choice = params.peek("toolChoice")
        if isinstance(choice, dict) and choice.keys() == {"mode"} and choice["mode"] in ("auto", "none", "required"):
            params.drop("toolChoice", choice)
            content.tool_choice = trusted(ToolChoice, mode=choice["mode"])
    return True


def _write_sampling(content: RpcContent) -> dict[str, Any]:
    asked = narrowed(FORMAT, Request(tools=content.tools, tool_choice=content.tool_choice))
    system = [message for message in content.messages if message.role in (Role.SYSTEM, Role.DEVELOPER)]
    turns = [message for message in content.messages if message.role not in (Role.SYSTEM, Role.DEVELOPER)]
    params: dict[str, Any] = {"messages": _write_messages(turns)}
    for message in system:
        for part in message.content:
            if not isinstance(part, TextPart):
                drop(FORMAT, part.content_type.value, "a system prompt is text", message=message)
    if system:
        texts = (part.text for message in system for part in message.content if isinstance(part, TextPart))
        params["systemPrompt"] = "\n\n".join(texts)
    if asked.tools:
        params["tools"] = list(map(_write_tool, asked.tools))
    if (choice := asked.tool_choice) is not None:
        if choice.mode == "tool":
            raise UnsupportedError("mcp cannot demand one tool", path="tool_choice", hint="use the mode `required`")
        params["toolChoice"] = {"mode": choice.mode}
    for name in SAMPLING_FIELDS:
        if name not in _SAMPLING.values() and getattr(content.sampling, name) is not None:
            drop(FORMAT, name, "no such parameter")
    return params | write_sampling(content.sampling, _SAMPLING)


# -- messages with blocks: sampling, prompts ---------------------------------------------------------------------------


def _read_message(raw: Any, path: str, names: Names, *, index: int = 0, key: str | None = None) -> list[Message]:
    """The messages of one `{role, content}`: results of tools are messages of their own, in their order [MCP-5]."""
    fields = Fields(raw, path)
    role = fields.need("role", str)
    if role not in ("user", "assistant"):
        raise UnknownRoleError("unknown role", path=f"{path}.role", hint="use user or assistant")
    content = fields.peek("content")
    blocks = [content] if isinstance(content, dict) else content
    if not isinstance(blocks, list):
        raise ShapeError("`content` is no block and no list of blocks", path=f"{path}.content", hint="send blocks")
    fields.drop("content", content)
    parts = read_blocks(blocks, f"{path}.content", names)
    runs = user_runs(parts) if role == "user" else [(Role.ASSISTANT, parts)]
    own: dict[str, Any] = {"key": key} if key is not None else {}
    messages = []
    for at, (who, run) in enumerate(runs):
        own_extra = {**(fields.rest("wire") or {}), **own} if at == 0 else own
        extra = frozen_mapping({FORMAT: frozen_mapping(own_extra)}) if own_extra else None
        messages.append(trusted(Message, role=who, content=run, extra=extra))
    # A list of one block is written unlike a lone block, so that is noted; an empty list needs no note. A lone result
    # is noted too, since results of other formats share one object.
    shape = _LIST if isinstance(content, list) and len(content) == 1 else FrozenDict()
    if shape or len(messages) > 1 or messages[0].role is Role.TOOL:
        return list(grouped_as(messages, format_name=FORMAT, index=index, shape=shape))
    return messages


def _write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `{role, content}` objects of these messages; adjacent tool results share one."""
    groups = joined(grouped(messages, FORMAT), lambda group: all(map(_is_loose, group)) or None)
    return [written for group in groups if (written := _write_message(group)) is not None]


def _is_loose(message: Message) -> bool:
    """Whether it is a result that came in no wire object of this format, into which it would be written again."""
    own = message.provider_raw is not None and message.provider_raw.format == FORMAT
    return message.role is Role.TOOL and not own


def _write_message(group: Sequence[Message]) -> dict[str, Any] | None:
    """One `{role, content}`; None if none of it can be written."""
    first = group[0]
    blocks = [block for message in group for block in write_blocks(message.content, message)]
    if not blocks and any(message.content for message in group):
        return None
    listed = len(blocks) != 1 or shape_of(first, FORMAT).get("list") is True
    role = "assistant" if first.role is Role.ASSISTANT else "user"
    left = object_in(extra_of(first, FORMAT), "wire")
    return {**left, "role": role, "content": blocks if listed else blocks[0]}


# -- tool definitions --------------------------------------------------------------------------------------------------


def _read_tools(raw: list[Any], path: str) -> list[ToolDefinition]:
    """Tool definitions; title, annotations, output schema and all else stay in `extra`."""
    tools = []
    for index, item in enumerate(raw):
        fields = Fields(item, f"{path}[{index}]")
        if ENTRY in fields:
            raise ShapeError("a reserved key", path=f"{fields.path}.{ENTRY}", hint="rename it")
        tools.append(
            trusted(
                ToolDefinition,
                name=fields.need("name", str),
                description=fields.take("description", str),
                input_schema=fields.take("inputSchema", FrozenDict),
                extra=fields.rest(FORMAT),
            )
        )
    return tools


def _write_tool(tool: ToolDefinition) -> dict[str, Any]:
    if tool.executed_by == "provider":
        raise UnsupportedError("mcp has no tools that a provider runs", about=tool, hint="strip the tool")
    left = {key: item for key, item in extra_of(tool, FORMAT).items() if key != ENTRY}
    wire = write_definition(tool, "inputSchema")
    wire.setdefault("inputSchema", {"type": "object"})
    return {**left, **wire}


# -- the table ---------------------------------------------------------------------------------------------------------

_URI: Final[Row] = (_read_uri, lambda content: {"uri": content.single(ResourceRefPart).uri})
_STATUS_ROW: Final = _text_row("statusMessage")
_ALL_IN_EXTRA: Final = (
    "initialize", "server/discover", "ping", "logging/setLevel", "tools/list", "prompts/list", "resources/list",
    "resources/templates/list", "roots/list", "subscriptions/listen", "tasks/get", "tasks/list", "tasks/result",
    "tasks/update", "tasks/cancel", "notifications/initialized", "notifications/cancelled",
    "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
    "notifications/resources/updated", "notifications/roots/list_changed", "notifications/elicitation/complete",
    "notifications/subscriptions/acknowledged",
)  # fmt: skip
CALLS: Final[dict[str, Row | None]] = {
    "tools/call": (_read_tool_call, _write_tool_call),
    "prompts/get": (_read_prompt, _write_prompt),
    "resources/read": _URI,
    "resources/subscribe": _URI,
    "resources/unsubscribe": _URI,
    "sampling/createMessage": (_read_sampling, _write_sampling),
    "elicitation/create": _text_row("message"),
    "completion/complete": (_read_completion, lambda content: {"argument": {"value": content.text()}}),
    "notifications/message": _text_row("data"),
    "notifications/progress": _text_row("message"),
    # A task with a result is judged as a whole: the call that the result belongs to is unknown.
    "notifications/tasks": (
        lambda params, content: "result" not in params and _STATUS_ROW[0](params, content),
        _STATUS_ROW[1],
    ),
    "notifications/tasks/status": _STATUS_ROW,
    **dict.fromkeys(_ALL_IN_EXTRA),
}
"""Method → how its params are read and written; None: all of them stay in `extra`, which the request's view shows. A
method that is not here is opaque [MCP-3]."""


def params_of(method: str, content: RpcContent) -> dict[str, Any]:
    """The params of a call with this content."""
    row = CALLS[method]
    return {} if row is None else row[1](content)


def foreign_call(content: RpcContent) -> dict[str, Any]:
    """The call for a request of another format: of a lone call, reference or prompt, else of a completion."""
    single = {ToolCallPart: "tools/call", ResourceRefPart: "resources/read", PromptRequestPart: "prompts/get"}
    parts = content.messages[0].content if len(content.messages) == 1 else ()
    method = single.get(type(parts[0])) if len(parts) == 1 else None
    call_id: str | None = None
    if method is None:
        method = "sampling/createMessage"
        content.messages = with_ids(content.messages)
        params = params_of(method, content)
        params.setdefault("maxTokens", DEFAULT_MAX_TOKENS)
    else:
        options = {name: getattr(content.sampling, name) for name in SAMPLING_FIELDS}
        for name in present(**options, tools=content.tools or None, tool_choice=content.tool_choice):
            drop(FORMAT, name, f"`{method}` has no place for it")
        params = params_of(method, content)
        call_id = getattr(parts[0], "tool_call_id", None)
    return {"jsonrpc": "2.0", "id": "call_0" if call_id is None else call_id, "method": method, "params": params}


# -- results -----------------------------------------------------------------------------------------------------------

_STOP_REASONS: Final = {
    "endTurn": StopReason.END,
    "stopSequence": StopReason.STOP_SEQUENCE,
    "maxTokens": StopReason.MAX_TOKENS,
    "toolUse": StopReason.CALL,
}
_STOP_WORDS: Final = {reason: word for word, reason in _STOP_REASONS.items()}
_LISTS: Final = {"contents": "uri", "resources": "uri", "resourceTemplates": "uriTemplate"}
"""Keys that list resources, and the key of an item's address."""
STATUS: Final = "statusMessage"
"""What a task says about its state, to people or to a model."""
_TEXTS: Final = ("instructions", STATUS)
_RESULT_KEYS: Final = ("content", "isError", "structuredContent")
_PLAIN: Final = frozenset(
    {
        "_meta", "action", "capabilities", "completion", "inputRequests", "prompts", "protocolVersion", "requestState",
        "resultType", "roots", "supportedVersions", "task", "taskId", "tasks",
    }
)  # fmt: skip
"""Keys of results that have no canonical value: shown in the response's view [MCP-7]."""


class AnsweredCall(NamedTuple):
    """The request that an answer belongs to: its method, and the tool or prompt that it names."""

    method: str | None = None
    name: str | None = None


UNKNOWN_CALL: Final = AnsweredCall()


def name_in(messages: Sequence[Message]) -> str | None:
    """The name of the tool or prompt that the first part is about."""
    part = messages[0].content[0] if messages and messages[0].content else None
    if isinstance(part, ToolCallPart | PromptRequestPart):
        return part.name
    if isinstance(part, ToolResultPart):
        return part.tool_name
    return part.prompt_name if isinstance(part, PromptResultPart) else None


def read_answer(result: Fields, raw: Any, answer_id: str | None, call: AnsweredCall, content: RpcContent) -> bool:
    """Read what has a canonical value; False if no key is known, so that the result must be judged as a whole."""
    is_read = False
    tools = result.peek("tools")
    # A list of names alone is one of references to tools, which defines none.
    if isinstance(tools, list) and not (tools and all(isinstance(name, str) for name in tools)):
        result.drop("tools", tools)
        content.tools = _read_tools(tools, f"{result.path}.tools")
        is_read = True
    for key, address in _LISTS.items():
        if (items := result.take(key, list)) is not None:
            parts = [read_resource(item, f"{result.path}.{key}[{at}]", address) for at, item in enumerate(items)]
            content.add(Role.TOOL, *parts, key=key)
            is_read = True
    if (turns := result.take("messages", list)) is not None:
        messages: list[Message] = []
        for index, turn in enumerate(turns):
            messages += _read_message(turn, f"{result.path}.messages[{index}]", content.names, index=index)
        name = call.name if call.name is not None else ""
        prompt = trusted(PromptResultPart, prompt_request_id=answer_id, prompt_name=name, messages=tuple(messages))
        content.add(Role.TOOL, prompt)
        is_read = True
    if "role" in result and call.method != "tools/call":
        turn = {key: result.peek(key) for key in ("role", "content") if key in result}
        content.messages += _read_message(turn, result.path, content.names, key="message")
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


def write_answer(content: RpcContent) -> dict[str, Any]:
    """The result with these messages and tools."""
    result: dict[str, Any] = {"tools": list(map(_write_tool, content.tools))} if content.tools else {}
    turns: list[Message] = []
    for message in content.messages:
        key = key_of(message)
        if key == "message":
            turns.append(message)
        elif key in ("result", "messages"):
            result |= _write_one_result(message)
        elif key in _TEXTS:
            result[key] = _text_of(message)
        else:
            result[key] = [write_resource(part, address=_LISTS[key]) for part in message.content]
    if turns:
        turn = _write_message(turns)
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


def _write_one_result(message: Message) -> dict[str, Any]:
    part, *others = message.content
    if isinstance(part, ToolResultPart):
        if others:
            raise UnsupportedError("an mcp answer carries one tool result", hint="send one answer a call")
        return write_result(part, message)
    if others or not isinstance(part, PromptResultPart):
        raise UnsupportedError("an mcp answer carries one prompt result", hint="send one answer a request")
    if part.content is not None and not part.messages:
        return {"messages": [{"role": "user", "content": {"type": "text", "text": part.content}}]}
    return {"messages": _write_messages(part.messages)}


def stop_reason(word: str, *, calls: bool) -> StopReason:
    """The stop reason of a word; a call is one only where there is a call."""
    reason = _STOP_REASONS.get(word, StopReason.OTHER)
    return StopReason.OTHER if reason is StopReason.CALL and not calls else reason


def stop_word(choice: Choice) -> str | None:
    """The wire's word for why it stopped: the one it came with, if it still means the same."""
    raw, reason = choice.raw_stop_reason, choice.stop_reason
    calls = has_client_call(choice.message.content)
    if reason is None:
        return None
    if raw is not None and stop_reason(raw, calls=calls) is reason:
        return raw
    if reason in (StopReason.END, StopReason.CALL):
        return "toolUse" if calls else "endTurn"
    if reason not in _STOP_WORDS:
        drop(FORMAT, "stop_reason", "no such word", message=choice.message)
    return _STOP_WORDS.get(reason, "endTurn")


def opaque(kind: str, raw: Any, role: Role, content: RpcContent) -> None:
    """Add `raw` as one opaque part, to be judged as a whole: nothing in it is known."""
    content.add(role, trusted(OpaquePart, provider=FORMAT, type=kind, value=raw), key="whole")
