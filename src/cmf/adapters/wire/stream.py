"""The canonical events of a streamed answer. Spec: docs/spec/streaming.md; seed 000 §7.4, seed 004.

Text and thinking come as they arrive; a tool call's arguments are held until they parse; the last event carries the
accumulated response, or the error. A stream that is cut ends in an error, never in `message_complete`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal, TypeAlias

from cmf.adapters.wire.fields import as_text
from cmf.enums import MessageStatus
from cmf.errors import ShapeError
from cmf.json.value import Str, Value, replace, trusted, value
from cmf.message.message import TokenUsage, ToolCallPart
from cmf.message.request import ErrorInfo, Response


@value
class TextDelta(Value):
    """Some text of choice `choice`."""

    type: Literal["text_delta"] = "text_delta"
    text: Str
    choice: int = 0


@value
class ThinkingDelta(Value):
    """Some reasoning of choice `choice`."""

    type: Literal["thinking_delta"] = "thinking_delta"
    text: Str
    choice: int = 0


@value
class ToolUseStart(Value):
    """A tool call begins; `index` numbers the calls of the answer from 0."""

    type: Literal["tool_use_start"] = "tool_use_start"
    index: int
    tool_call_id: Str | None = None
    name: Str | None = None
    choice: int = 0


@value
class ToolUseInputDelta(Value):
    """Progress on a call's arguments: how many characters so far. The text itself is held until it parses."""

    type: Literal["tool_use_input_delta"] = "tool_use_input_delta"
    index: int
    received_chars: int
    choice: int = 0


@value
class ToolUseEnd(Value):
    """A tool call is complete, with its arguments."""

    type: Literal["tool_use_end"] = "tool_use_end"
    index: int
    call: ToolCallPart
    choice: int = 0


@value
class UsageUpdate(Value):
    """What was used so far."""

    type: Literal["usage_update"] = "usage_update"
    usage: TokenUsage


@value
class MessageComplete(Value):
    """The whole answer, as the whole-response decoder reads it."""

    type: Literal["message_complete"] = "message_complete"
    response: Response


@value
class StreamError(Value):
    """The stream ended without an answer; `partial` is what had arrived."""

    type: Literal["error"] = "error"
    error: ErrorInfo
    partial: Response | None = None


StreamEvent: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolUseStart
    | ToolUseInputDelta
    | ToolUseEnd
    | UsageUpdate
    | MessageComplete
    | StreamError
)


class LiveCalls:
    """The tool calls of a stream as they begin and grow, numbered in each choice by the order of their beginning."""

    __slots__ = ("_begun", "_growing")

    def __init__(self) -> None:
        self._growing: dict[Any, ToolUseInputDelta] = {}  # by key of the call: how far it is
        self._begun: Counter[int] = Counter()  # by choice

    def __contains__(self, key: Any) -> bool:
        return key in self._growing

    def begin(self, key: Any, call_id: Any, name: Any, choice: int = 0) -> ToolUseStart:
        """The event that a call begins, which is `key` from now on; what is no text of its id and name is left out."""
        index = self._begun[choice]
        self._begun[choice] += 1
        self._growing[key] = trusted(ToolUseInputDelta, index=index, received_chars=0, choice=choice)
        return ToolUseStart(index=index, tool_call_id=as_text(call_id), name=as_text(name), choice=choice)

    def grow(self, key: Any, chars: int) -> ToolUseInputDelta:
        """The event that so many characters of a call's arguments have come."""
        before = self._growing[key]
        self._growing[key] = grown = replace(before, received_chars=before.received_chars + chars)
        return grown

    def forget(self) -> None:
        """From now on the same keys are other calls."""
        self._growing.clear()


CUT: Final = ErrorInfo(message="the stream ended before its answer did", type="stream.cut")


def ending(response: Response) -> list[StreamEvent]:
    """The last events of a stream whose fold was read as `response`."""
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


CONTRADICTION: Final = "stream.contradiction"


def contradiction(path: str) -> ShapeError:
    """The refusal of a stream of which an event tells of another call than its answer does at `path` [STR-10]."""
    return ShapeError(
        "an event of the stream and its answer tell of different calls",
        path=path,
        hint="clients act on each event: have the provider's stream say the same everywhere",
        code=CONTRADICTION,
    )
