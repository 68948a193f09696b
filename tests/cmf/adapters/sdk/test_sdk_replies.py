"""Each field, part and event that an SDK's types know of a reply: shown to policy, written and streamed again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any, Final

import pytest

from cmf import adapters
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import MessageComplete, StreamEvent
from cmf.errors import CmfError
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views
from tests.cmf.adapters.sdk.typed_bodies import choices, marked, variants

pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")
pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")
pytest.importorskip("google.genai", reason="the provider's own SDK is a development dependency")
pytest.importorskip("ollama", reason="the provider's own SDK is a development dependency")
pytest.importorskip("mcp_types", reason="the protocol's own SDK is a development dependency")

import mcp_types
import ollama
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from openai.types.responses import ResponseStreamEvent

REPLIES: Final[dict[str, Any]] = {
    "openai_chat": ChatCompletion,
    "openai_responses": OpenAIResponse,
    "anthropic_messages": BetaMessage,
    "gemini": GenerateContentResponse,
    "ollama": ollama.ChatResponse,
}
EVENTS: Final[dict[str, Any]] = REPLIES | {
    "openai_chat": ChatCompletionChunk,
    "openai_responses": ResponseStreamEvent,
    "anthropic_messages": BetaRawMessageStreamEvent,
}
# What no provider says, though the types allow it: a call without a name, a picture that is no text, a system's reply,
# an event whose call is another one than that of the answer.
REFUSED: Final = {"shape.invalid", "shape.unknown-role", "stream.contradiction"}


def _event(data: Any) -> WireEvent:
    return {"data": data, "event": data["type"]} if isinstance(data.get("type"), str) else {"data": data}


_CHUNK: Final = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_SAID: Final = {"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
_BEGUN: Final = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
_HEAD: Final = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}
_ENDED: Final = {"content": {"parts": [{"text": "x"}], "role": "model"}, "finishReason": "STOP"}
AROUND: Final[dict[str, tuple[list[Any], list[Any]]]] = {  # what stands before and behind an event in a whole stream
    "openai_chat": ([], [{**_CHUNK, "choices": [_SAID]}]),
    "openai_responses": (
        [{"type": "response.created", "response": {**_BEGUN, "status": "in_progress"}}],
        [{"type": "response.completed", "response": {**_BEGUN, "status": "completed"}}],
    ),
    "anthropic_messages": (
        [
            {"type": "message_start", "message": _HEAD},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        ],
        [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
    ),
    "gemini": ([], [{"candidates": [_ENDED]}]),
    "ollama": ([], [{"model": "m", "message": {"role": "assistant", "content": "x"}, "done": True}]),
}


def stream(name: str, event: Any) -> list[WireEvent]:
    before, behind = AROUND[name]
    return [_event(data) for data in (*before, event, *behind)]


def unseen(value: Request | Response, marks: list[str]) -> list[str]:
    shown = json.dumps([view.to_opa_input()["input"] for view in iter_views(value)])
    return [mark for mark in marks if mark not in shown]


def some(name: str, of: Any, scale: float) -> Iterator[tuple[Any, list[str]]]:
    """Every body of the type, or of the thousands of Responses' a share; and its texts."""
    every = round(1 / scale) if name == "openai_responses" else 1
    return map(marked, islice(variants(of, 1), 0, None, every))


def _or_code(read: Callable[..., Any], *given: Any) -> Any:
    try:
        return read(*given)
    except CmfError as error:
        return error.code


async def _last(events: AsyncIterator[StreamEvent]) -> StreamEvent:
    return [event async for event in events][-1]


@pytest.mark.spec("ADP-5", "ADP-2")
@pytest.mark.parametrize("name", REPLIES)
def test_each_field_of_a_reply_that_the_sdk_knows_is_shown_and_written_and_streamed_again(
    name: str, proof_scale: float
) -> None:
    adapter, whole = adapters.get(name), 0
    for body, marks in some(name, REPLIES[name], proof_scale):
        reply = _or_code(adapter.from_wire_response, body)
        if isinstance(reply, str):
            assert reply in REFUSED, body
            continue
        whole += 1
        assert not unseen(reply, marks), body
        assert adapter.to_wire_response(reply) == body, body
        if name != "gemini" or "finishReason" in json.dumps(body):  # without one a stream of Gemini's was cut
            streamed = adapter.from_wire_response(adapter.fold_events(adapter.to_wire_events(reply)))
            said = [[choice.message.content for choice in one.choices] for one in (reply, streamed)]
            assert said[0] == said[1], body

    assert whole >= 25


@pytest.mark.spec("STR-3", "ADP-5")
@pytest.mark.parametrize("name", EVENTS)
def test_each_event_that_the_sdk_knows_is_shown_once_the_stream_is_over(name: str, proof_scale: float) -> None:
    adapter, whole = adapters.get(name), 0
    for event, marks in some(name, EVENTS[name], proof_scale):
        events = stream(name, event)
        reply = _or_code(lambda said: adapter.from_wire_response(adapter.fold_events(said)), events)
        if isinstance(reply, str):
            assert reply in REFUSED, event
            continue
        whole += 1
        assert not unseen(reply, marks), event
        if whole % 7 == 0:
            last = asyncio.run(_last(adapter.stream_response(events)))
            assert not isinstance(last, MessageComplete) or last.response == reply, event

    assert whole >= 25


_ASKED: Final = (mcp_types.ClientRequest, mcp_types.ServerRequest)
_TOLD: Final = (mcp_types.ClientNotification, mcp_types.ServerNotification)
_ANSWERED: Final = (mcp_types.ClientResult, mcp_types.ServerResult, mcp_types.ErrorData)
_CALL: Final = {"jsonrpc": "2.0", "id": 7}


def _messages() -> Iterator[tuple[bool, dict[str, Any]]]:
    for of in _ASKED:
        yield from ((False, {**_CALL, **said}) for one in choices(of) for said in variants(one, 1))
    for of in _TOLD:
        yield from ((False, {"jsonrpc": "2.0", **said}) for one in choices(of) for said in variants(one, 1))
    for of in _ANSWERED:
        key = "error" if of is mcp_types.ErrorData else "result"
        yield from ((True, {**_CALL, key: said}) for one in choices(of) for said in variants(one, 1))


@pytest.mark.spec("MCP-2", "MCP-3", "ADP-5")
def test_each_field_of_each_message_of_mcp_is_shown_and_written_again() -> None:
    adapter, count = adapters.get("mcp"), 0
    for is_answer, said in _messages():
        body, marks = marked(said)
        count += 1
        value: Any = adapter.from_wire_response(body) if is_answer else adapter.from_wire_request(body)
        written = adapter.to_wire_response(value) if is_answer else adapter.to_wire(value)
        assert not unseen(value, marks), body
        assert written == body, body

    assert count >= 900
