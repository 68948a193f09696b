"""What a target format cannot say: dropped with a record, or refused where it is critical [A13, C8].

Spec: docs/spec/adapters.md [ADP-10], [ADP-11]; seed 000 §4.2.2 and §7.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from cmf.adapters.wire.fields import extra_of
from cmf.errors import LossyProjectionError, UnsupportedError
from cmf.json.value import replace, trusted
from cmf.message.message import Message, Part, ResourcePart, TextPart
from cmf.message.request import Request, Response, ToolChoice
from cmf.message.tools import ToolDefinition
from cmf.message.transform import message_paths, messages_of, part_paths

_log: Final = logging.getLogger("cmf.adapters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One dropped block: the fields of the WARN record, and nothing of its content."""

    session_id: str | None
    message_id: str | None
    block_type: str
    adapter: str
    reason: str


_collector: ContextVar[list[Loss] | None] = ContextVar("losses", default=None)
_critical: ContextVar[tuple[str, ...]] = ContextVar("critical", default=())


@contextmanager
def critical(kinds: Sequence[str]) -> Iterator[None]:
    """Inside, blocks of these kinds may not be dropped: the request calls them critical."""
    token = _critical.set(tuple(kinds))
    try:
        yield
    finally:
        _critical.reset(token)


def path_of(about: object, value: Request | Response) -> str:
    """The path of this very part, message or tool in a value; empty if it was made while writing."""
    tools = ((f"tools[{at}]", tool) for at, tool in enumerate(value.tools))
    places = chain(tools, message_paths(value), part_paths(value))
    return next((path for path, item in places if item is about), "")


@contextmanager
def collecting() -> Iterator[list[Loss]]:
    """Collect the losses of the calls inside (they are logged as well)."""
    losses: list[Loss] = []
    token = _collector.set(losses)
    try:
        yield losses
    finally:
        _collector.reset(token)


def drop(adapter: str, block_type: str, reason: str, *, message: Message | None = None) -> None:
    """Record that a block is not carried over.

    Raises:
        LossyProjectionError: the message says in `extensions.meta.properties["critical"]` that it is critical, or the
            request in `critical_kinds` that blocks of the kind are.
    """
    if block_type in _critical.get() or (message is not None and is_critical(message)):
        raise LossyProjectionError(
            f"{adapter} cannot express a critical {block_type} block: {reason}",
            about=message,
            hint="route to a target that can, or lift the mark",
        )
    loss = Loss(
        session_id=message.session_id if message is not None else None,
        message_id=message.id if message is not None else None,
        block_type=block_type,
        adapter=adapter,
        reason=reason,
    )
    losses = _collector.get()
    if losses is not None:
        losses.append(loss)
    _log.warning("%s drops a %s block: %s", adapter, block_type, reason, extra=asdict(loss))


def resource_as_text(adapter: str, part: Part, *, message: Message | None = None) -> Part:
    """The text of a resource, for a format that has no resources; any other part, and one without text, as it is."""
    if not isinstance(part, ResourcePart) or part.content is None:
        return part
    drop(adapter, "resource_address", "only the text of a resource can be said", message=message)
    return trusted(TextPart, text=part.content)


def narrowed(adapter: str, request: Request) -> Request:
    """The request with those tools alone that its choice allows, where it is not said as it came.

    Raises:
        UnsupportedError: a call is demanded, and none of the tools is allowed.
    """
    choice = request.tool_choice
    if choice is None or choice.allowed is None:
        return request
    tools = tuple(tool for tool in request.tools if tool.name in choice.allowed)
    if not tools and choice.mode == "required":
        why = "tool_choice demands a call and allows none of the tools"
        raise UnsupportedError(why, path="tool_choice", hint="allow a tool that is offered")
    if len(tools) < len(request.tools):
        drop(adapter, "tools", "the choice does not allow them: it is said by offering the others alone")
    return replace(request, tools=tools, tool_choice=trusted(ToolChoice, mode=choice.mode) if tools else None)


def refuse_foreign_kind(adapter: str, tool: ToolDefinition) -> None:
    """Nothing for a function, and for a tool that came in this format.

    Raises:
        UnsupportedError: another provider's own kind of tool: the client runs it, but only that provider knows it.
    """
    if tool.type in _EVERYONES or tool.input_schema is not None or adapter in (tool.extra or ()):
        return
    raise UnsupportedError(
        f"{adapter} does not know this provider's own kind of tool",
        about=tool,
        hint="route to its provider, or strip the tool",
    )


_EVERYONES: Final = (None, "function", "custom", "namespace")


def joined(adapter: str, block_type: str, texts: Sequence[str], between: str = "", *, message: Message) -> str:
    """The texts as the one that the format has a place for; where they are several, that their bounds are lost."""
    texts = [text for text in texts if text]  # an empty one only carries a signature
    if len(texts) > 1:
        why = "the format has one text where there are several blocks: they are joined"
        drop(adapter, block_type, why, message=message)
    return between.join(texts)


def drop_foreign_extra(adapter: str, holder: Any, block_type: str, *, message: Message | None = None) -> None:
    """Record that what rode along with a part, message, tool, request … came from other formats, if it did."""
    extra = holder.extra
    if extra and any(extra.values()) and not any(name.partition(".")[0] == adapter for name in extra):
        drop(adapter, block_type, "its further fields are another format's", message=message)


def own_extra(adapter: str, holder: Any, block_type: str, *, message: Message | None = None) -> dict[str, Any]:
    """What rode along with a part, message, request … from this format. What did from others is recorded as dropped."""
    if not holder.extra:
        return {}
    drop_foreign_extra(adapter, holder, block_type, message=message)
    return extra_of(holder, adapter)


def drop_foreign_extras(adapter: str, value: Request | Response) -> None:
    """Record what rode along from other formats anywhere in a request or response, for an adapter that asks once."""
    drop_foreign_extra(adapter, value, "request" if isinstance(value, Request) else "response")
    for choice in value.choices if isinstance(value, Response) else ():
        drop_foreign_extra(adapter, choice, "choice", message=choice.message)
    for tool in value.tools:
        drop_foreign_extra(adapter, tool, "tool_definition")
    for message in messages_of(value):
        drop_foreign_extra(adapter, message, "message", message=message)
        for part in message.content:
            drop_foreign_extra(adapter, part, part.content_type.value, message=message)


def is_critical(message: Message) -> bool:
    """Whether the host marked the message: then nothing of it may be dropped."""
    meta: Any = message.extensions.meta if message.extensions is not None else None
    return meta is not None and meta.properties.get("critical") is True
