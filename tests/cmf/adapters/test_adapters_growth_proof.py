"""The work of reading and writing a body grows no faster than the body. Spec: docs/spec/adapters.md [ADP-20]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cmf import adapters
from cmf.adapters.wire.base import WireEvent
from cmf.message.request import Request, Response
from tests.pipeline.growth import calls_of, exponent, seconds_of

pytestmark = [pytest.mark.proof, pytest.mark.no_cover]

MOST = 1.1  # the exponent allowed; that of CPU time, which depends on caches too, may be a little more
MOST_OF_TIME = 1.35
TIMES = 4
CHAT = adapters.get("openai_chat")
MESSAGES = adapters.get("anthropic_messages")
USER = {"role": "user", "content": "look"}


def asked(messages: list[dict[str, Any]], **fields: Any) -> Request:
    return CHAT.from_wire_request({"model": "m", "messages": messages, **fields})


def call(number: int, arguments: str = "{}") -> dict[str, Any]:
    return {"id": f"a{number}", "type": "function", "function": {"name": f"f{number}", "arguments": arguments}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [*calls]}


def returned(number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"a{number}", "content": f"row {number}"}


def tool(number: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"type": "function", "function": {"name": f"f{number}", "description": "Reads.", "parameters": schema}}


def answered(*choices: dict[str, Any]) -> Response:
    listed = [{"index": at, "finish_reason": "stop", "message": message} for at, message in enumerate(choices)]
    return CHAT.from_wire_response(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": listed}
    )


def blocks(pairs: int) -> Response:
    each = [{"type": "text", "text": "hello"}, {"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return MESSAGES.from_wire_response({**head, "content": each * pairs})


def said(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


REQUESTS: dict[str, Callable[[int], Request]] = {
    "a long text": lambda n: asked([{"role": "user", "content": "the quick brown fox " * n}]),
    "parts": lambda n: asked([{"role": "user", "content": [{"type": "text", "text": "hello"}] * n}]),
    "messages": lambda n: asked([USER, said("hello")] * n),
    "turns with calls": lambda n: asked([USER, *(m for i in range(n) for m in (calling(call(i)), returned(i)))]),
    "calls at once": lambda n: asked([USER, calling(*map(call, range(n))), *map(returned, range(n))]),
    "results the other way": lambda n: asked([USER, calling(*map(call, range(n))), *map(returned, range(n)[::-1])]),
    "calls with one id": lambda n: asked([USER, *[calling(call(1)), returned(1)] * n]),
    "results with one id": lambda n: asked([USER, calling(call(1)), *[returned(1)] * n]),
    "tools": lambda n: asked([USER], tools=[*map(tool, range(4 * n))]),  # fewer may be known from before
}  # fmt: skip
RESPONSES: dict[str, Callable[[int], Response]] = {
    "a long text": lambda n: answered(said("the quick brown fox " * n)),
    "calls": lambda n: answered(calling(*map(call, range(n)))),
    "choices": lambda n: answered(*[said("hello")] * n),
    "blocks": blocks,
}
STEP = ({"type": "start-step"}, {"type": "text-delta", "id": "t", "delta": "a"}, {"type": "reset-step"})


def used(number: int) -> list[dict[str, Any]]:
    """A call of the AI SDK that the user lets run."""
    known = {"toolCallId": f"c{number}", "toolName": "look"}
    return [
        {"type": "tool-input-start", **known},
        {"type": "tool-input-delta", **known, "inputTextDelta": "{}"},
        {"type": "tool-input-available", **known, "input": {}},
        {"type": "tool-approval-request", **known, "approvalId": f"p{number}"},
    ]


def allowed(number: int) -> list[dict[str, Any]]:
    return [{"type": "tool-approval-response", "approvalId": f"p{number}", "approved": True}]


def answering(number: int) -> list[dict[str, Any]]:
    """A step of the AI SDK with a call and its result."""
    return [
        {"type": "start-step"},
        *used(number),
        {"type": "tool-output-available", "toolCallId": f"c{number}", "output": 1},
    ]


def open_texts(n: int) -> list[dict[str, Any]]:
    return [{"type": "text-start", "id": f"t{i}"} for i in range(n)]


CHUNKS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "steps, then as many taken back": lambda n: [{"type": "start-step"}] * n + [{"type": "reset-step"}] * n,
    "steps taken back one by one": lambda n: [*STEP] * n,
    "steps with calls": lambda n: [chunk for i in range(n) for chunk in answering(i)],
    "calls, and a step taken back each": lambda n: [
        chunk for i in range(n) for chunk in (*answering(i), {"type": "start-step"}, {"type": "reset-step"})
    ],
    "data with ids": lambda n: [{"type": "data-a", "id": f"d{i}", "data": i} for i in range(n)],
    "data with one id": lambda n: [{"type": "data-a", "id": "d", "data": i} for i in range(n)],
    "pieces of unknown ids": lambda n: [{"type": "text-delta", "id": f"t{i}", "delta": "a"} for i in range(n)],
    "pieces of one unknown id": lambda n: [
        *open_texts(n), *[{"type": "text-delta", "id": "t", "delta": "a"}, {"type": "text-end", "id": "u"}] * n,
    ],
    "texts, ended at last": lambda n: open_texts(n) + [{"type": "text-end", "id": f"t{i}"} for i in range(n)],
    "approvals": lambda n: [c for i in range(n) for c in used(i)] + [c for i in range(n) for c in allowed(i)],
    "answers to no question": lambda n: [c for i in range(n) for c in (*used(i), *allowed(-1 - i))],
    "metadata": lambda n: [{"type": "message-metadata", "messageMetadata": {f"k{i}": {"a": i}}} for i in range(n)],
    "outputs of one call": lambda n: [
        *used(0), *({"type": "tool-output-available", "toolCallId": "c0", "output": i} for i in range(n)),
    ],
}  # fmt: skip
LACKS = {
    ("aisdk", "tools"), ("aisdk", "choices"), ("anthropic_messages", "choices"), ("mcp", "choices"), ("mcp", "tools"),
    ("ollama", "choices"), ("openai_responses", "choices"), ("mcp", "blocks"),
}  # fmt: skip


async def streamed(adapter: Any, events: list[WireEvent]) -> None:
    async for _ in adapter.stream_response(events):
        pass


def ways_of_a_request(name: str, request: Request) -> dict[str, Callable[[], object]]:
    adapter = adapters.get(name)
    body = adapter.to_wire(request)
    return {
        "written": partial(adapter.to_wire, request),
        "read": partial(adapter.from_wire_request, body, model="m"),
        "written again": partial(adapter.to_wire, adapter.from_wire_request(body, model="m")),
    }


def ways_of_a_response(name: str, response: Response) -> dict[str, Callable[[], object]]:
    adapter = adapters.get(name)
    body = adapter.to_wire_response(response)
    ways: dict[str, Callable[[], object]] = {
        "written": partial(adapter.to_wire_response, response),
        "read": partial(adapter.from_wire_response, body),
        "in one text": partial(adapter.in_one_text, response, streamed=True),
    }
    if name != "mcp":
        events = adapter.to_wire_events(response)
        ways |= {
            "written as a stream": partial(adapter.to_wire_events, response),
            "folded": partial(adapter.fold_events, events),
            "followed": lambda: asyncio.run(streamed(adapter, events)),
        }
    return ways


def ways_of_a_stream(chunks: list[dict[str, Any]]) -> dict[str, Callable[[], object]]:
    adapter = adapters.get("aisdk")
    events: list[WireEvent] = [{"data": {"type": "start"}}, *({"data": chunk} for chunk in chunks)]
    body = adapter.fold_events(events)
    response = adapter.from_wire_response(body)
    return {
        "folded": partial(adapter.fold_events, events),
        "read": partial(adapter.from_wire_response, body),
        "written as a stream": partial(adapter.to_wire_events, response),
        "followed": lambda: asyncio.run(streamed(adapter, events)),
    }


Ways = Callable[[int], dict[str, Callable[[], object]]]
CASES: dict[str, Ways] = {
    **{
        f"{name}, request, {kind}": lambda n, name=name, make=make: ways_of_a_request(name, make(n))  # type: ignore[misc]
        for name in adapters.FORMATS
        for kind, make in REQUESTS.items()
        if (name, kind) not in LACKS
    },
    **{
        f"{name}, response, {kind}": lambda n, name=name, make=make: ways_of_a_response(name, make(n))  # type: ignore[misc]
        for name in adapters.FORMATS
        for kind, make in RESPONSES.items()
        if (name, kind) not in LACKS
    },
    **{f"aisdk, stream, {kind}": lambda n, make=make: ways_of_a_stream(make(n)) for kind, make in CHUNKS.items()},  # type: ignore[misc]
}


@pytest.mark.spec("ADP-20")
@pytest.mark.parametrize("case", CASES)
def test_the_work_of_reading_and_writing_grows_no_faster_than_the_body(
    case: str, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    measured, most, size = (seconds_of, MOST_OF_TIME, 3_000) if proof_scale >= 1 else (calls_of, MOST, 150)
    small, large = CASES[case](size), CASES[case](TIMES * size)
    for work in (*small.values(), *large.values()):  # so that neither finds the caches empty
        work()
    grown = {way: exponent(measured(work), measured(large[way]), times=TIMES) for way, work in small.items()}

    proof_row(f"adapters: {case}", exponent=f"{max(grown.values()):.2f}")
    assert {way: f"{found:.2f}" for way, found in grown.items() if found > most} == {}
