"""Reads and writes the params of MCP's requests and notifications: the table from methods to canonical values.

Spec: docs/spec/adapters/mcp.md [MCP-2]. Each row reads the params that it understands and writes them again; all other
params stay in the request's `extra`, which its view shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cmf.adapters.mcp.parts_in import FORMAT, Names, read_arguments, read_blocks
from cmf.adapters.mcp.parts_out import add, write_arguments, write_blocks
from cmf.adapters.wire.fields import MARK, Fields, extra_of, object_in
from cmf.adapters.wire.layout import grouped, grouped_as, joined, shape_of, user_runs
from cmf.adapters.wire.loss import drop, narrowed
from cmf.adapters.wire.options import read_sampling, write_definition, write_sampling
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict, frozen_mapping
from cmf.json.value import trusted
from cmf.message.message import Message, Part, PromptRequestPart, ResourceRefPart, TextPart, ToolCallPart
from cmf.message.request import NO_SAMPLING, SAMPLING_FIELDS, Request, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition

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
        parts = (part for message in self.messages for part in message.content)
        return "".join(part.text for part in parts if isinstance(part, TextPart))


Reader = Callable[[Fields, RpcContent], bool]
"""Reads the params that it understands; False if they do not fit the method."""
Writer = Callable[[RpcContent], dict[str, Any]]
Row = tuple[Reader, Writer]


def _read_tool_call(params: Fields, content: RpcContent) -> bool:
    name = params.take("name", str)
    if name is None:
        return False
    arguments, raw = read_arguments(params, "arguments")
    content.add(
        Role.ASSISTANT,
        trusted(ToolCallPart, tool_call_id=content.call_id, name=name, arguments=arguments, arguments_raw=raw),
    )
    return True


def _write_tool_call(content: RpcContent) -> dict[str, Any]:
    part: ToolCallPart = content.single(ToolCallPart)
    arguments = write_arguments(part)
    return {"name": part.name} if arguments is None else {"name": part.name, "arguments": arguments}


def _read_prompt(params: Fields, content: RpcContent) -> bool:
    name = params.take("name", str)
    if name is None or not isinstance(params.peek("arguments"), dict | None):
        return False
    arguments = params.take("arguments", FrozenDict) or FrozenDict()
    content.add(
        Role.USER, trusted(PromptRequestPart, prompt_request_id=content.call_id, name=name, arguments=arguments)
    )
    return True


def _write_prompt(content: RpcContent) -> dict[str, Any]:
    part: PromptRequestPart = content.single(PromptRequestPart)
    return {"name": part.name, "arguments": part.arguments} if part.arguments else {"name": part.name}


def _read_uri(params: Fields, content: RpcContent) -> bool:
    uri = params.take("uri", str)
    if uri is None:
        return False
    content.add(Role.USER, trusted(ResourceRefPart, resource_request_id=content.call_id, uri=uri))
    return True


def _write_uri(content: RpcContent) -> dict[str, Any]:
    return {"uri": content.single(ResourceRefPart).uri}


def _text_row(key: str) -> Row:
    """The row for a method whose param `key`, if present, is a text of the server."""

    def read(params: Fields, content: RpcContent) -> bool:
        text = params.take(key, str)
        if text is not None:
            content.add(Role.TOOL, trusted(TextPart, text=text))
        return True

    def write(content: RpcContent) -> dict[str, Any]:
        return {key: content.text()} if content.messages else {}

    return read, write


_read_status, _write_status = _text_row("statusMessage")


def _read_task(params: Fields, content: RpcContent) -> bool:
    """The state of a task. One with a result is judged as a whole: the call that the result belongs to is unknown."""
    return "result" not in params and _read_status(params, content)


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


def _write_completion(content: RpcContent) -> dict[str, Any]:
    return {"argument": {"value": content.text()}}


# -- sampling: the server asks for a completion ------------------------------------------------------------------------


def _read_sampling(params: Fields, content: RpcContent) -> bool:
    listed = params.take("messages", list)
    if listed is None:
        return False
    system = params.take("systemPrompt", str)
    if system is not None:
        content.add(Role.SYSTEM, trusted(TextPart, text=system))
    for index, item in enumerate(listed):
        content.messages += read_message(item, f"{params.path}.messages[{index}]", content.names, index=index)
    if (tools := params.take("tools", list)) is not None:
        content.tools = read_tools(tools, f"{params.path}.tools")
    if content.alone:
        content.sampling = read_sampling(params, _SAMPLING)
        choice = params.peek("toolChoice")
        if isinstance(choice, dict) and choice.keys() == {"mode"} and choice["mode"] in ("auto", "none", "required"):
            params.drop("toolChoice", choice)
            content.tool_choice = trusted(ToolChoice, mode=choice["mode"])
    return True


def _write_sampling(content: RpcContent) -> dict[str, Any]:
    asked = narrowed(FORMAT, Request(tools=content.tools, tool_choice=content.tool_choice))
    tools, choice = asked.tools, asked.tool_choice
    system = [message for message in content.messages if message.role in (Role.SYSTEM, Role.DEVELOPER)]
    turns = [message for message in content.messages if message.role not in (Role.SYSTEM, Role.DEVELOPER)]
    params: dict[str, Any] = {"messages": write_messages(turns)}
    for message in system:
        for part in message.content:
            if not isinstance(part, TextPart):
                drop(FORMAT, part.content_type.value, "a system prompt is text", message=message)
    if system:
        texts = (part.text for message in system for part in message.content if isinstance(part, TextPart))
        params["systemPrompt"] = "\n\n".join(texts)
    if tools:
        params["tools"] = write_tools(tools)
    if choice is not None:
        if choice.mode == "tool":
            raise UnsupportedError("mcp cannot demand one tool", path="tool_choice", hint="use the mode `required`")
        params["toolChoice"] = {"mode": choice.mode}
    return params | _written_sampling_options(content.sampling)


def _written_sampling_options(sampling: Sampling) -> dict[str, Any]:
    for name in SAMPLING_FIELDS:
        if name not in _SAMPLING.values() and getattr(sampling, name) is not None:
            drop(FORMAT, name, "no such parameter")
    return write_sampling(sampling, _SAMPLING)


def drop_options(content: RpcContent, method: str) -> None:
    """Record as lost what a request has besides its messages: only a completion has a place for it."""
    options = {name: getattr(content.sampling, name) for name in SAMPLING_FIELDS}
    options |= {"tools": content.tools or None, "tool_choice": content.tool_choice}
    for name, item in options.items():
        if item is not None:
            drop(FORMAT, name, f"`{method}` has no place for it")


# -- messages with blocks: sampling, prompts ---------------------------------------------------------------------------


def read_message(raw: Any, path: str, names: Names, *, index: int = 0, key: str | None = None) -> list[Message]:
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
    left: dict[str, Any] = fields.rest("wire") or {}
    messages = []
    for at, (who, run) in enumerate(runs):
        own_extra = {**left, **own} if at == 0 else own
        extra = frozen_mapping({FORMAT: frozen_mapping(own_extra)}) if own_extra else None
        messages.append(trusted(Message, role=who, content=run, extra=extra))
    # A list of one block is written unlike a lone block, so that is noted; an empty list needs no note. A lone result
    # is noted too, since results of other formats share one object.
    shape = _LIST if isinstance(content, list) and len(content) == 1 else FrozenDict()
    if shape or len(messages) > 1 or messages[0].role is Role.TOOL:
        return list(grouped_as(messages, format_name=FORMAT, index=index, shape=shape))
    return messages


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `{role, content}` objects of these messages; adjacent tool results share one."""
    groups = joined(grouped(messages, FORMAT), lambda group: all(map(_is_loose, group)) or None)
    return [written for group in groups if (written := write_message(group)) is not None]


def _is_loose(message: Message) -> bool:
    """Whether it is a result that came in no wire object of this format, into which it would be written again."""
    own = message.provider_raw is not None and message.provider_raw.format == FORMAT
    return message.role is Role.TOOL and not own


def write_message(group: Sequence[Message]) -> dict[str, Any] | None:
    """One `{role, content}`; None if none of it can be written."""
    first = group[0]
    blocks = [block for message in group for block in write_blocks(message.content, message)]
    if not blocks and any(message.content for message in group):
        return None
    listed = len(blocks) != 1 or shape_of(first, FORMAT).get("list") is True
    role = "assistant" if first.role is Role.ASSISTANT else "user"
    return add(
        {"role": role, "content": blocks if listed else blocks[0]},
        object_in(extra_of(first, FORMAT), "wire"),
    )


# -- tool definitions --------------------------------------------------------------------------------------------------


def read_tools(raw: list[Any], path: str) -> list[ToolDefinition]:
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


def write_tools(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """The wire's definitions of these tools."""
    return [_write_tool(tool) for tool in tools]


def _write_tool(tool: ToolDefinition) -> dict[str, Any]:
    if tool.executed_by == "provider":
        raise UnsupportedError("mcp has no tools that a provider runs", about=tool, hint="strip the tool")
    left = {key: item for key, item in extra_of(tool, FORMAT).items() if key != ENTRY}
    wire = write_definition(tool, "inputSchema")
    wire.setdefault("inputSchema", {"type": "object"})
    return add(wire, left)


# -- the table ---------------------------------------------------------------------------------------------------------

CALLS: Final[dict[str, Row | None]] = {
    "tools/call": (_read_tool_call, _write_tool_call),
    "prompts/get": (_read_prompt, _write_prompt),
    "resources/read": (_read_uri, _write_uri),
    "resources/subscribe": (_read_uri, _write_uri),
    "resources/unsubscribe": (_read_uri, _write_uri),
    "sampling/createMessage": (_read_sampling, _write_sampling),
    "elicitation/create": _text_row("message"),
    "completion/complete": (_read_completion, _write_completion),
    "notifications/message": _text_row("data"),
    "notifications/progress": _text_row("message"),
    "notifications/tasks": (_read_task, _write_status),
    "notifications/tasks/status": (_read_status, _write_status),
    "initialize": None,
    "server/discover": None,
    "ping": None,
    "logging/setLevel": None,
    "tools/list": None,
    "prompts/list": None,
    "resources/list": None,
    "resources/templates/list": None,
    "roots/list": None,
    "subscriptions/listen": None,
    "tasks/get": None,
    "tasks/list": None,
    "tasks/result": None,
    "tasks/update": None,
    "tasks/cancel": None,
    "notifications/initialized": None,
    "notifications/cancelled": None,
    "notifications/tools/list_changed": None,
    "notifications/prompts/list_changed": None,
    "notifications/resources/list_changed": None,
    "notifications/resources/updated": None,
    "notifications/roots/list_changed": None,
    "notifications/elicitation/complete": None,
    "notifications/subscriptions/acknowledged": None,
}
"""Method → how its params are read and written; None: all of them stay in `extra`, which the request's view shows. A
method that is not here is opaque [MCP-3]."""


def params_of(method: str, content: RpcContent) -> dict[str, Any]:
    """The params of a call with this content."""
    row = CALLS[method]
    return {} if row is None else row[1](content)


def method_of(messages: Sequence[Message]) -> str:
    """The method for a request of another format: a lone call, reference or prompt, else a completion."""
    if len(messages) == 1 and len(messages[0].content) == 1:
        for kind, method in _SINGLE_PART.items():
            if isinstance(messages[0].content[0], kind):
                return method
    return "sampling/createMessage"


_SINGLE_PART: Final[dict[type, str]] = {
    ToolCallPart: "tools/call",
    ResourceRefPart: "resources/read",
    PromptRequestPart: "prompts/get",
}
