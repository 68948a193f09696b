"""What stands in for a provider when its own SDK calls: answers are written by the adapter, calls are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cmf.adapters import Adapter, get
from cmf.adapters.wire.sse import ndjson_bytes, sse_bytes
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import CmfError
from cmf.json.frozen import FrozenDict, same_spelling
from cmf.message.message import ImagePart, Message, TextPart, ThinkingPart, TokenUsage, ToolCallPart
from cmf.message.request import Choice, Request, Response
from tests.cmf.adapters.wiredata import first_difference, records, sampled

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = {
    "name": "get_weather",
    "description": "Weather now",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass(slots=True)
class Upstream:
    """A provider that gives `answer` to every call, and remembers what it was asked."""

    format_name: str
    answer: Response
    status: int = 200
    framing: Callable[[Any], bytes] = sse_bytes
    paths: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    @property
    def adapter(self) -> Adapter:
        return get(self.format_name)

    def handler(self, module: Any) -> Callable[[Any], Any]:
        """A mock transport's handler, of `httpx` or of its successor."""

        def reply(call: Any) -> Any:
            self.paths.append(call.url.path)
            body = json.loads(call.content)
            self.bodies.append(body)
            if body.get("stream", self.framing is ndjson_bytes) or "stream" in call.url.path:
                chunks = b"".join(map(self.framing, self.adapter.to_wire_events(self.answer)))
                kind = "application/x-ndjson" if self.framing is ndjson_bytes else "text/event-stream"
                return module.Response(self.status, content=chunks, headers={"content-type": kind})
            return module.Response(self.status, json=self.adapter.to_wire_response(self.answer))

        return reply

    def client(self, module: Any) -> Any:
        """A client of `httpx`, or of its successor, that reaches nothing else."""
        return module.Client(transport=module.MockTransport(self.handler(module)))

    def read(self, **where: Any) -> Request:
        """The last call as a canonical request; it is written again exactly as the SDK sent it."""
        body = self.bodies[-1]
        request = self.adapter.from_wire_request(body, **where)
        again = self.adapter.to_wire(request)
        assert same_spelling(again, body), first_difference(again, body)
        return request


@dataclass(frozen=True, slots=True)
class Heard:
    """What an SDK made of an answer, or what it should have."""

    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()


def meant(response: Response) -> Heard:
    """The text and the client's tool calls of a response's message."""
    parts = response.message.content
    calls = [part for part in parts if isinstance(part, ToolCallPart) and part.executed_by == "client"]
    return Heard(
        text="".join(part.text for part in parts if isinstance(part, TextPart)),
        calls=tuple((call.name, dict(call.arguments or {})) for call in calls),
    )


def answer(*parts: Any, stop: StopReason = StopReason.END) -> Response:
    """A response that came from no wire."""
    message = Message(role=Role.ASSISTANT, content=parts)
    usage = TokenUsage(input_tokens=3, output_tokens=5, total_tokens=8)
    return Response(choices=(Choice(message=message, stop_reason=stop),), usage=usage, model="some-model")


CALLS = (
    ToolCallPart(name="get_weather", tool_call_id="call_1", arguments=FrozenDict({"city": "Zürich", "days": 2})),
    ToolCallPart(name="get_time", tool_call_id="call_2", arguments=FrozenDict({})),
)
ANSWERS = {
    "text": answer(TextPart(text="héllo\nthere 🙂")),
    "calls": answer(*CALLS, stop=StopReason.CALL),
    "thinking": answer(ThinkingPart(text="let me see"), TextPart(text="2")),
    "all": answer(ThinkingPart(text="hm"), TextPart(text="I will look. "), *CALLS, stop=StopReason.CALL),
    "cut": answer(TextPart(text="once upon"), stop=StopReason.MAX_TOKENS),
}
PICTURE = ImagePart(type="base64", data=PNG, media_type="image/png")


def recorded(own: str, scale: float, seed: int) -> Iterator[tuple[str, Response]]:
    """What other providers really answered, where this format can say it: one complete message with something in it."""
    for format_name in ("anthropic_messages", "gemini", "ollama", "openai_chat", "openai_responses", "openrouter"):
        if format_name == own:
            continue
        adapter = get(format_name)
        for record in sampled(records(format_name), scale, seed):
            body = record.response if record.events is None else adapter.fold_events(record.events)
            if body is None:
                continue
            response = adapter.from_wire_response(body)
            if response.error is None and len(response.choices) == 1 and _tellable(own, response):
                yield f"{format_name} {record.source}", response


def _tellable(own: str, response: Response) -> bool:
    if response.message.status is not MessageStatus.COMPLETE or meant(response) == Heard():
        return False
    parts = response.message.content
    if own == "ollama" and any(isinstance(part, ImagePart) for part in parts):
        return False  # its SDK takes the images of an answer for objects, which its server does not send
    if any(isinstance(part, ToolCallPart) and part.arguments is None for part in parts):
        return False  # what is no JSON object is each format's own business
    try:
        get(own).to_wire_response(response)
    except CmfError:
        return False
    return True
