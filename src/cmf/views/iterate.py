"""Cutting messages, requests and responses into views. Spec: docs/spec/views.md [VIEW-1] to [VIEW-7].

Every message gives at least one view, and every part its own, also a part inside a result: what has no view is not
judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from cmf.enums import Capability, Hook, Role, ViewKind
from cmf.errors import ShapeError, UnmappedPartError
from cmf.json.frozen import FrozenDict
from cmf.json.value import present, replace
from cmf.message.message import (
    Message,
    OpaquePart,
    Part,
    PromptRequestPart,
    PromptResultPart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    derived,
)
from cmf.message.model_ids import provider_and_name, provider_of
from cmf.message.request import Request, Response, other_models
from cmf.message.tools import ToolDefinition, schema_findings
from cmf.views.access import Scope
from cmf.views.render import KINDS, NO_KEYS, JoinedText, JoinedThinking, Keys, Piece, addressed, exact_json
from cmf.views.tiers import Grants
from cmf.views.view import MessageView, view_of

MAX_NESTING: Final = 8  # parts inside results inside results; deeper is refused, not truncated [B2]


@derived
def iter_views(
    value: Message | Request | Response,
    *,
    hook: Hook | str | None = None,
    capabilities: Iterable[Capability | str] | None = None,
) -> Iterator[MessageView]:
    """The views of a message; of a request (its own, its tools, its messages); of a response (own, tools, choices).

    Args:
        value: what to cut.
        hook: where in the traffic this is judged; by default derived.
        capabilities: what the reader may see; None is the host itself, ungated.

    Raises:
        UnmappedPartError: something that no table maps to a view. ShapeError: nested deeper than `MAX_NESTING`.
    """
    grants = None if capabilities is None else _granted(frozenset(capabilities))
    at = Hook(hook) if hook is not None else None
    if isinstance(value, Message):
        return _message_views(value, grants, at, "")
    if isinstance(value, Request):
        return _request_views(value, grants, at)
    if isinstance(value, Response):
        return _response_views(value, grants, at)
    raise UnmappedPartError(f"{type(value).__name__} has no views", hint="pass a Message, a Request or a Response")


@lru_cache(maxsize=64)  # a reader asks for the same ones each time
def _granted(names: frozenset[Capability | str]) -> Grants:
    return frozenset(Capability(name) for name in names)


def _request_views(request: Request, grants: Grants, hook: Hook | None) -> Iterator[MessageView]:
    yield from envelope_views(request, range(len(request.tools)), capabilities=grants, hook=hook)
    for index, message in enumerate(request.messages):
        yield from _message_views(message, grants, hook or _hook_in(request, message), f"messages[{index}].")


def envelope_views(
    request: Request, tools: Iterable[int], *, capabilities: Grants, hook: Hook | None = None
) -> Iterator[MessageView]:
    """Those views of `iter_views(request)` that are of the request itself, and of its tools at these indices."""
    envelope = _envelope(request.messages, capabilities, hook or Hook.LLM_REQUEST)
    yield view_of(envelope.veil.request(request), envelope, "request", Role.USER)
    for index in tools:
        yield view_of(request.tools[index], envelope, f"tools[{index}]", Role.USER)


def views_at(request: Request, index: int, *, capabilities: frozenset[Capability]) -> Iterator[MessageView]:
    """Those views of `iter_views(request)` that are of the message at this index.

    Raises:
        UnmappedPartError, ShapeError: as `iter_views`.
    """
    message = request.messages[index]
    return _message_views(message, capabilities, _hook_in(request, message), f"messages[{index}].")


def makes_calls(request: Request) -> bool:
    """Whether a request of MCP makes calls itself; any other one tells a model of those that were made."""
    own = request.extra.get("mcp") if request.extra else None
    if not isinstance(own, Mapping):
        return False
    entries = own.get("batch", (own,))
    entries = entries if isinstance(entries, Sequence) else ()
    held = (entry.get("envelope") if isinstance(entry, Mapping) else None for entry in entries)
    methods = {envelope.get("method") if isinstance(envelope, Mapping) else None for envelope in held}
    return methods != {_SAMPLING}


_SAMPLING: Final = "sampling/createMessage"  # a server's request to a model, with the conversation so far
_MADE: Final = frozenset({ToolCallPart, PromptRequestPart, ResourceRefPart})


def _hook_in(request: Request, message: Message) -> Hook | None:
    """Where a message of a request is judged; None for a call that is yet to run, whose hook is that of its kind."""
    if request.extra and _MADE.issuperset(map(type, message.content)) and message.content and makes_calls(request):
        return None
    return Hook.LLM_REQUEST


def _response_views(response: Response, grants: Grants, hook: Hook | None) -> Iterator[MessageView]:
    at = hook or Hook.LLM_RESPONSE
    envelope = _envelope([choice.message for choice in response.choices[:1]], grants, at)
    yield view_of(response, envelope, "response", Role.ASSISTANT)
    for index, tool in enumerate(response.tools):
        yield view_of(tool, envelope, f"tools[{index}]", Role.ASSISTANT)
    for index, choice in enumerate(response.choices):
        yield from _message_views(choice.message, grants, at, f"choices[{index}].message.")


def _envelope(messages: Sequence[Message], grants: Grants, hook: Hook) -> Scope:
    """The context of a request's or response's own view: the extensions of its first message."""
    return Scope(None, messages[0].extensions if messages else None, grants, hook)


def _message_views(message: Message, grants: Grants, hook: Hook | None, prefix: str) -> Iterator[MessageView]:
    scope = Scope(message, message.extensions, grants, hook)
    role = message.role
    if not message.content:
        # A message without parts still has fields, and they are judged as well.
        rest = OpaquePart(provider="canonical", type="message", value=FrozenDict())
        yield view_of(rest, scope, prefix.removesuffix(".") or "message", role, None, True)
        return
    for index, part in enumerate(message.content):
        step = _PLACES[index] if index < _USUAL else f"content[{index}]"
        view = view_of(part, scope, prefix + step, role, None, not index)
        yield view
        if type(part) in _NESTING:
            yield from _inner_views(view, part)
    yield from _joined_views(message.content, f"{prefix}content", role, scope)


_USUAL: Final = 64
_PLACES: Final = tuple(f"content[{index}]" for index in range(_USUAL))
_NESTING: Final = frozenset({ToolResultPart, PromptResultPart})


def _inner_views(view: MessageView, part: Part, depth: int = 0) -> Iterator[MessageView]:
    """The views of what is inside `part`, whose own view is `view`."""
    lists: list[tuple[str, Role, Sequence[Part]]] = []  # of parts, each with its step and its role
    nested: list[tuple[str, Role, Part]] = []
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        lists = [("content", view.role, part.content)]
        nested = [(f"content[{index}]", view.role, inner) for index, inner in enumerate(part.content)]
    elif isinstance(part, PromptResultPart):
        for at, message in enumerate(part.messages):
            lists.append((f"messages[{at}].content", message.role, message.content))
            for index, inner in enumerate(_parts_of(message, view.scope)):
                step = f"messages[{at}].content[{index}]" if message.content else f"messages[{at}]"
                nested.append((step, message.role, inner))
    if nested and depth == MAX_NESTING:
        raise ShapeError(
            f"parts nested deeper than {MAX_NESTING}", path=view.path, code="view.too-deep", hint="flatten it"
        )
    for step, role, inner in nested:
        inner_view = view_of(inner, view.scope, f"{view.path}.{step}", role, view.uri)
        yield inner_view
        yield from _inner_views(inner_view, inner, depth + 1)
    for step, role, parts in lists:
        yield from _joined_views(parts, f"{view.path}.{step}", role, view.scope, view.uri)


def _joined_views(
    parts: Sequence[Part], path: str, role: Role, scope: Scope, container: str | None = None
) -> Iterator[MessageView]:
    """Views of the texts of `parts` as one text, and of their thoughts as one, where there are several of a kind."""
    if len(parts) < 2:
        return
    for part_type, name, joined in _JOINED:
        texts = [(at, part.text) for at, part in enumerate(parts) if type(part) is part_type and part.text]
        if len(texts) < 2:
            continue
        ends = list(accumulate(len(text) for _, text in texts))
        pieces = (Piece(f"{path}[{at}]", end - len(text), end) for (at, text), end in zip(texts, ends, strict=True))
        whole = joined("".join(text for _, text in texts), tuple(pieces))
        yield view_of(whole, scope, f"{path}.{name}", role, container)


_JOINED: Final = ((TextPart, "text", JoinedText), (ThinkingPart, "thinking", JoinedThinking))


def _parts_of(message: Message, scope: Scope) -> list[Part]:
    """The parts of a message inside a prompt result, and one for whatever else it carries, as far as granted."""
    parts: list[Part] = list(message.content)
    shown = scope.veil.message(replace(message, content=()), scope.veil.extensions(message.extensions))
    rest = {name: item for name, item in shown.model_dump().items() if name not in _STRUCTURE}
    if rest or not parts:
        parts.append(OpaquePart(provider="canonical", type="message", value=FrozenDict(rest)))
    return parts


_STRUCTURE: Final = frozenset({"role", "content", "schema_version", "status", "channel", "created_at"})


# -- the kinds that are no content parts -------------------------------------------------------------------------------


def _model_uri(model: str | None, provider: str | None = None) -> str:
    own, name = provider_and_name(model or "")
    return addressed("llm", (own or provider, name))[0]


def _show_request(request: Request, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    properties: dict[str, Any] = {}
    for name in ("tool_choice", "response_schema", "response_schema_name", "reasoning_effort", "stream"):
        item = getattr(request, name)
        if item is not None:
            properties[name] = item.model_dump() if hasattr(item, "model_dump") else item
    if sampling := request.sampling.model_dump():
        properties["sampling"] = exact_json(sampling, "/properties/sampling", properties)
    if request.session_id is not None:
        properties["session_id"] = request.session_id
    properties |= {"message_count": len(request.messages), "tool_count": len(request.tools)}
    if others := other_models(request):
        whose = provider_of(request.model or "")  # a model name without a provider is one of the request's provider
        properties["other_models"] = [_model_uri(name, whose) for name in others]
    shown |= present(uri=_model_uri(request.model), name=request.model)
    return properties, NO_KEYS


def _show_response(response: Response, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    usage, error = response.usage, response.error
    properties: dict[str, Any] = {"choice_count": len(response.choices), "tool_count": len(response.tools)}
    if usage is not None:
        properties["usage"] = usage.model_dump()
    if error is not None:
        properties["error"] = error.model_dump()
    choices = [
        present(stop_reason=choice.stop_reason, raw_stop_reason=choice.raw_stop_reason, extra=choice.extra)
        for choice in response.choices
    ]
    if any(choices):
        properties["choices"] = exact_json(choices, "/properties/choices", properties)
    content = error.message if error is not None else None
    shown |= present(uri=_model_uri(response.model), name=response.model, content=content)
    return properties, NO_KEYS


def _show_tool(tool: ToolDefinition, shown: dict[str, Any]) -> tuple[dict[str, Any], Keys]:
    uri, keys = addressed("tool", (tool.namespace, tool.name))
    properties: dict[str, Any] = {"executed_by": tool.executed_by}
    for name in ("namespace", "type", "side_effects"):
        if (item := getattr(tool, name)) is not None:
            properties[name] = str(item)
    if tool.input_schema is not None:
        properties["input_schema"] = exact_json(tool.input_schema, "/properties/input_schema", properties)
        if findings := [finding._asdict() for finding in schema_findings(tool.input_schema)]:
            properties["schema_findings"] = findings
    shown |= present(uri=uri, name=tool.name, content=tool.description)
    return properties, keys


KINDS[Request] = ViewKind.REQUEST, _show_request
KINDS[Response] = ViewKind.RESPONSE, _show_response
KINDS[ToolDefinition] = ViewKind.TOOL_DEFINITION, _show_tool
