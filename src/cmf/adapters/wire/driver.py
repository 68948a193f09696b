"""Decoding a stream as it arrives; each format decodes its own events. Spec: docs/spec/streaming.md.

The live events are a preview: text, thinking and the progress of tool calls. What the answer *is* comes from the fold
of all events, read by the whole-response decoder, so that a streamed and a whole answer cannot differ.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from cmf.adapters.wire.base import Adapter, Arriving, WireEvent
from cmf.adapters.wire.stream import MessageComplete, StreamError, StreamEvent, ToolUseEnd, UsageUpdate
from cmf.enums import MessageStatus
from cmf.errors import CmfError
from cmf.message.message import ToolCallPart
from cmf.message.request import ErrorInfo, Request, Response

EventDecoder = Callable[[WireEvent], Iterable[StreamEvent]]
"""What one wire event adds at once: `TextDelta`, `ThinkingDelta`, `ToolUseStart`, `ToolUseInputDelta`."""

CUT = ErrorInfo(message="the stream ended before its answer did", type="stream.cut")


async def drive(
    adapter: Adapter, events: Arriving, context: Request | None, decode: EventDecoder
) -> AsyncIterator[StreamEvent]:
    """The canonical events of a stream: what `decode` adds for each event, then the end.

    The end is, for a whole answer: each tool call with its arguments, the usage, `MessageComplete`. For one that was
    cut, broke off with an error, or cannot be read: `StreamError`, with what had arrived. [STR-1] to [STR-5]
    """
    received: list[WireEvent] = []
    async for event in arriving(events):
        received.append(event)
        item: Any = event
        if not isinstance(item, dict):
            continue  # it is no event; the fold refuses it, too
        try:
            added = list(decode(event))
        except CmfError:
            continue  # text that is no text; the fold refuses it in a moment
        for one in added:
            yield one
    try:
        response = adapter.from_wire_response(adapter.fold_events(received), context)
    except CmfError as error:
        yield StreamError(error=ErrorInfo(message=error.message, type=error.code))
        return
    for end in ending(response):
        yield end


def arriving(events: Arriving) -> AsyncIterable[WireEvent]:
    """The events one after the other: as they come, or of what is there already, a list or what `fold_events` takes."""
    return events if isinstance(events, AsyncIterable) else _each(events)


async def _each(events: Iterable[WireEvent]) -> AsyncIterator[WireEvent]:
    for event in events:
        yield event


def ending(response: Response) -> list[StreamEvent]:
    """The last events of a stream whose fold decoded to `response`."""
    if response.error is not None:
        return [StreamError(error=response.error, partial=response)]
    if not is_whole(response):
        return [StreamError(error=CUT, partial=response)]
    ends: list[StreamEvent] = []
    for at, choice in enumerate(response.choices):
        calls = (part for part in choice.message.content if isinstance(part, ToolCallPart))
        ends += [ToolUseEnd(index=index, call=call, choice=at) for index, call in enumerate(calls)]
    if response.usage is not None:
        ends.append(UsageUpdate(usage=response.usage))
    return [*ends, MessageComplete(response=response)]


def is_whole(response: Response) -> bool:
    """Whether there is a choice, and every one came to its end."""
    statuses = [choice.message.status for choice in response.choices]
    return bool(statuses) and all(status is MessageStatus.COMPLETE for status in statuses)
