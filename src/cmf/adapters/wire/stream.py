"""The canonical events of a streamed answer. Spec: docs/spec/streaming.md; seed 000 §7.4, seed 004.

Text and thinking come as they arrive; a tool call's arguments are held until they parse; the last event carries the
accumulated response, or the error. A stream that is cut ends in an error, never in `message_complete`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from cmf.errors import ShapeError
from cmf.json.value import Str, Value, value
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


CONTRADICTION: Final = "stream.contradiction"


def contradiction(path: str) -> ShapeError:
    """The refusal of a stream of which an event tells of another call than its answer does at `path` [STR-10]."""
    return ShapeError(
        "an event of the stream and its answer tell of different calls",
        path=path,
        hint="clients act on each event: have the provider's stream say the same everywhere",
        code=CONTRADICTION,
    )
