"""Whether a stream folds to what it said, and a cut one to nothing complete. Spec: docs/spec/streaming.md."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from cmf.adapters.wire.base import Adapter, WireEvent
from cmf.adapters.wire.stream import MessageComplete, StreamError, StreamEvent, TextDelta
from cmf.enums import MessageStatus
from cmf.errors import CmfError
from cmf.json.frozen import same_spelling
from cmf.message.message import Message, TextPart
from cmf.message.request import Request, Response
from tests.cmf.adapters.tally import Tally, cases
from tests.cmf.adapters.wiredata import (
    Record,
    first_difference,
)


def check_folded(format_name: str, chosen: Iterable[Record]) -> Tally:
    """The fold decodes to what the stream said, is lossless, and what is streamed from it folds to the same again."""
    tally = Tally("folded")
    for adapter, where, _, events, context in cases(format_name, chosen, "stream"):
        try:
            body = adapter.fold_events(events)
            response = adapter.from_wire_response(body, context)
            tally.count("+".join(sorted({choice.message.status for choice in response.choices})) or "no choice")
            problem = _fold_problem(adapter, events, body, response, context)
        except CmfError as error:
            problem = f"refused: {error}"
        tally.case(where, problem)
    return tally


def _fold_problem(
    adapter: Adapter, events: list[WireEvent], body: Any, response: Response, context: Request | None
) -> str:
    whole = adapter.to_wire_response(response)
    if not same_spelling(whole, unmarked(body)):
        return f"the fold is not lossless: {first_difference(whole, unmarked(body))}"
    again = unmarked(adapter.fold_events(adapter.to_wire_events(response)))
    if not same_spelling(again, whole):
        return f"streamed again it folds otherwise: {first_difference(again, whole)}"
    said = STREAMED_TEXT.get(adapter.name)
    if said is not None and said(events) != _text(response):
        return f"the stream said {len(said(events))} characters, the message has {len(_text(response))}"
    return _live_problem(adapter, events, response, context)


def _live_problem(adapter: Adapter, events: list[WireEvent], response: Response, context: Request | None) -> str:
    streamed = asyncio.run(_collect(adapter.stream_response(_arriving(events), context)))
    if not streamed:
        return "no canonical event"
    last = streamed[-1]
    cut = response.error is not None or any(not _complete(choice.message) for choice in response.choices)
    if cut:
        return "" if isinstance(last, StreamError) else f"a cut stream ends in {last.type}"
    if not isinstance(last, MessageComplete):
        return f"a whole stream ends in {last.type}"
    if last.response != response:
        return "message_complete differs from the decoded fold"
    text = "".join(event.text for event in streamed if isinstance(event, TextDelta) and event.choice == 0)
    return (
        "" if text == _text(response) else f"text deltas add up to {len(text)} characters, not {len(_text(response))}"
    )


async def _arriving(events: Sequence[WireEvent]) -> AsyncIterator[WireEvent]:
    for event in events:
        yield event


async def _collect(stream: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    return [event async for event in stream]


def unmarked(body: Any) -> Any:
    """A folded body without the folder's own marks (`cmf_partial` and the like): what a client may be sent."""
    if not isinstance(body, dict):
        return body
    return {key: item for key, item in body.items() if not key.startswith("cmf_")}


def _complete(message: Message) -> bool:
    return message.status is MessageStatus.COMPLETE


def _text(response: Response) -> str:
    if not response.choices:
        return ""
    return "".join(part.text for part in response.choices[0].message.content if isinstance(part, TextPart))


def check_truncation(format_name: str, chosen: Iterable[Record], *, at_most: int | None = None, seed: int = 0) -> Tally:
    """No beginning of a stream decodes to a complete message, and none ends in `message_complete`."""
    tally = Tally("truncated")
    for adapter, where, _, events, context in cases(format_name, chosen, "stream"):
        lengths = list(range(_telling(format_name, events)))
        if at_most is not None and len(lengths) > at_most:
            lengths = sorted({*random.Random(seed).sample(lengths, at_most), lengths[-1]})
        for length in lengths:
            tally.case(f"{where} cut at {length} of {len(events)}", _cut_problem(adapter, events[:length], context))
    return tally


def _telling(format_name: str, events: Sequence[WireEvent]) -> int:
    """How many events there are, up to the one that ends the answer: in some formats nothing after it counts."""
    count = len(events)
    while count and format_name in SELF_ENDING and not isinstance(events[count - 1].get("data"), dict):
        count -= 1
    return count


SELF_ENDING = frozenset({"aisdk", "openai_responses"})  # a `[DONE]` after the terminal event is a gateway's habit


def _cut_problem(adapter: Adapter, events: list[WireEvent], context: Request | None) -> str:
    try:
        response = adapter.from_wire_response(adapter.fold_events(events), context)
        last = asyncio.run(_collect(adapter.stream_response(_arriving(events), context)))[-1]
    except CmfError:
        return ""
    if any(_complete(choice.message) for choice in response.choices) and response.error is None:
        return "decodes to a complete message"
    return "" if isinstance(last, StreamError) else f"ends in {last.type}"


def _openai_text(events: list[WireEvent]) -> str:
    chunks = [event["data"] for event in events if isinstance(event.get("data"), dict)]
    choices = [choice for chunk in chunks for choice in chunk.get("choices") or [] if choice.get("index", 0) == 0]
    deltas = [choice.get("delta") or {} for choice in choices]
    blocks = [block for delta in deltas if isinstance(delta.get("content"), list) for block in delta["content"]]
    content = "".join(delta["content"] for delta in deltas if isinstance(delta.get("content"), str))
    refusal = "".join(delta.get("refusal") or "" for delta in deltas)
    return "".join(block.get("text") or "" for block in blocks) + content + refusal


def _anthropic_text(events: list[WireEvent]) -> str:
    deltas = [event["data"].get("delta") or {} for event in events if isinstance(event.get("data"), dict)]
    starts = (event["data"].get("content_block") or {} for event in events if isinstance(event.get("data"), dict))
    first = "".join(start.get("text") or "" for start in starts if start.get("type") == "text")
    said = {"text_delta": "text", "compaction_delta": "content"}  # a summary is text, unless some of it is sealed
    open_deltas = (delta for delta in deltas if delta.get("type") in said and not delta.get("encrypted_content"))
    return first + "".join(delta[said[delta["type"]]] or "" for delta in open_deltas)


def _responses_text(events: list[WireEvent]) -> str:
    bodies = (event["data"] for event in events if isinstance(event.get("data"), dict))
    spoken = ("response.output_text.delta", "response.refusal.delta")
    return "".join(body["delta"] for body in bodies if body.get("type") in spoken)


def _gemini_text(events: list[WireEvent]) -> str:
    bodies = (event["data"] for event in events if isinstance(event.get("data"), dict))
    firsts = ((body.get("candidates") or [{}])[0] for body in bodies)
    parts = (part for first in firsts for part in (first.get("content") or {}).get("parts") or [])
    return "".join(part["text"] for part in parts if "text" in part and part.get("thought") is not True)


def _ollama_text(events: list[WireEvent]) -> str:
    bodies = (event["data"] for event in events if isinstance(event.get("data"), dict))
    return "".join((body.get("message") or {}).get("content") or body.get("response") or "" for body in bodies)


def _aisdk_text(events: list[WireEvent]) -> str:
    bodies = (event["data"] for event in events if isinstance(event.get("data"), dict))
    return "".join(body["delta"] for body in bodies if body.get("type") == "text-delta")


# What a naive reader hears in a stream, written apart from the adapters. An owner of a format may refine its own.
STREAMED_TEXT: dict[str, Callable[[list[WireEvent]], str]] = {
    "aisdk": _aisdk_text,
    "anthropic_messages": _anthropic_text,
    "gemini": _gemini_text,
    "ollama": _ollama_text,
    "openai_chat": _openai_text,
    "openai_responses": _responses_text,
    "openrouter": _openai_text,
}
