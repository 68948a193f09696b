"""The events of a streamed answer that were sent to the client, and those still to be sent.

The events of the answer so far and those of the whole answer come from the same writer, so they are equal up to the
text that is still growing. What is new in that text is sent as a further event; all other events follow in order.
Spec: docs/spec/gateway.md [GW-70] ff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from cmf.adapters.base import WireEvent
from pipeline.gateway.dialects import Dialect
from pipeline.gateway.refusal import Refusal


class Diverged(Exception):
    """The events that were sent are not how the events of this answer begin."""


class _TextEvents(Protocol):
    """How a dialect's events hold text that a further event can continue."""

    def read(self, data: Any, /) -> str | None:
        """The text in the event; None if it has none."""
        ...

    def write(self, data: Any, text: str, /) -> Any:
        """The event with `text` instead of its own."""
        ...

    def unended(self, data: Any, /) -> Any:
        """The event without anything that ends the answer."""
        ...

    def late(self, data: Any, first: Any, /) -> Any:
        """The event with what changed in `first`, the stream's first event, after that was sent."""
        ...


class Sent:
    """The events that were sent to one client; `number` of them."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._text_events = _TEXT_EVENTS[dialect.name]
        self._texts: list[str | None] = []  # by event: its text as it would be in the whole stream
        self._last: Any = None
        self.number = 0

    def partly(self, events: Sequence[WireEvent], hidden: str) -> list[WireEvent]:
        """What is new in the events of an unfinished answer, up to its last text without `hidden`, the end of that.

        Nothing, if the last text does not end with `hidden`.

        Raises:
            Diverged: what was sent is not how it begins.
        """
        last = max((at for at, event in enumerate(events) if self._read(event) is not None), default=-1)
        text = None if last < 0 else self._read(events[last])
        if text is None or not text.endswith(hidden):
            return []
        shown = text[: len(text) - len(hidden)]
        if not shown:
            return self._grown(events[:last])
        going_on = self._text_events.write(self._text_events.unended(events[last].get("data")), shown)
        return self._grown([*events[:last], _with(events[last], going_on)])

    def rest(self, events: Sequence[WireEvent]) -> list[WireEvent]:
        """The events of the whole answer that are still to be sent; Diverged as for `partly`."""
        if not self._texts:
            return self._grown(events)
        first = events[0].get("data")
        later = (_with(event, self._text_events.late(event.get("data"), first)) for event in events[1:])
        return self._grown([*events[:1], *later])

    def error(self, refusal: Refusal, request_id: str) -> WireEvent:
        """The event that ends the stream in place of the rest of the answer."""
        fields = self._dialect.error(refusal, request_id)
        if self._dialect.name == "openai_responses":
            defaults = {"type": "error", "code": refusal.code, "message": refusal.message, "param": None}
            return {"event": "error", "data": {**defaults, **fields, "sequence_number": self.number}}
        if self._dialect.name == "anthropic_messages":
            return {"event": "error", "data": fields}
        return {"data": fields}

    def _grown(self, events: Sequence[WireEvent]) -> list[WireEvent]:
        out = len(self._texts)
        texts = [self._read(event) for event in events]
        if len(events) < out or texts[:out][:-1] != self._texts[:-1]:
            raise Diverged
        new = list(events[out:])
        if out:
            new = [*self._continued(events[out - 1], texts[out - 1]), *new]
        self._texts = texts
        if events:
            self._last = events[-1].get("data")
        return [self._numbered(event) for event in new]

    def _continued(self, event: WireEvent, text: str | None) -> list[WireEvent]:
        """Events for what the newest response has beyond what was sent: more text, and fields that were left out."""
        before = self._texts[-1]
        if before is None or text is None:
            if before is not text:
                raise Diverged
            return []
        if not text.startswith(before):
            raise Diverged
        more, data = text[len(before) :], event.get("data")
        if not more and self._text_events.write(data, "") == self._text_events.write(self._last, ""):
            return []
        return [_with(event, self._text_events.write(data, more))]

    def _read(self, event: WireEvent) -> str | None:
        return self._text_events.read(event.get("data"))

    def _numbered(self, event: WireEvent) -> WireEvent:
        number, self.number = self.number, self.number + 1
        data = event.get("data")
        if not isinstance(data, dict) or "sequence_number" not in data:
            return event
        return _with(event, {**data, "sequence_number": number})


def _with(event: WireEvent, data: Any) -> WireEvent:
    changed = event.copy()
    changed["data"] = data
    return changed


# -- where each dialect holds text -------------------------------------------------------------------------------------


class _Plain:
    def unended(self, data: Any) -> Any:
        return data

    def late(self, data: Any, _first: Any) -> Any:
        return data


class _Chat(_Plain):
    _KEYS: Final = ("content", "reasoning_content", "reasoning", "reasoning_text", "refusal")

    def read(self, data: Any) -> str | None:
        key = self._key(data)
        return None if key is None else str(data["choices"][0]["delta"][key])

    def write(self, data: Any, text: str) -> Any:
        (choice,) = data["choices"]
        delta = {**choice["delta"], self._key(data): text}
        return {**data, "choices": [{**choice, "delta": delta}]}

    @staticmethod
    def _key(data: Any) -> str | None:
        choices = data.get("choices") if isinstance(data, dict) else None
        delta = choices[0]["delta"] if choices else {}
        return next((key for key in _Chat._KEYS if _is_text(delta, key)), None)


class _Responses(_Plain):
    _DELTAS: Final = frozenset(
        {"response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta"}
    )

    def read(self, data: Any) -> str | None:
        return str(data["delta"]) if data["type"] in self._DELTAS else None

    def write(self, data: Any, text: str) -> Any:
        return {**data, "delta": text}


class _Messages(_Plain):
    _KEYS: Final = {"text_delta": "text", "thinking_delta": "thinking"}

    def read(self, data: Any) -> str | None:
        delta = data["delta"] if data["type"] == "content_block_delta" else {}
        key = self._KEYS.get(str(delta.get("type")))
        return None if key is None else str(delta[key])

    def write(self, data: Any, text: str) -> Any:
        delta = data["delta"]
        return {**data, "delta": {**delta, self._KEYS[delta["type"]]: text}}

    def late(self, data: Any, first: Any) -> Any:
        """The event with the usage in `first`, which some upstreams send only at the end."""
        if data["type"] != "message_delta":
            return data
        return {**data, "usage": {**first["message"].get("usage", {}), **data.get("usage", {})}}


class _Gemini(_Plain):
    def read(self, data: Any) -> str | None:
        parts = self._parts(data)
        texts = [part["text"] for part in parts if _is_text(part, "text")]
        return "".join(texts) if texts and len(texts) == len(parts) else None

    def write(self, data: Any, text: str) -> Any:
        (candidate,) = data["candidates"]
        content = candidate["content"]
        (*_, last) = content["parts"]
        return {**data, "candidates": [{**candidate, "content": {**content, "parts": [{**last, "text": text}]}}]}

    def unended(self, data: Any) -> Any:
        (candidate,) = data["candidates"]
        kept = {key: candidate[key] for key in ("content", "index") if key in candidate}
        return {**{key: data[key] for key in ("modelVersion", "responseId") if key in data}, "candidates": [kept]}

    @staticmethod
    def _parts(data: Any) -> list[Any]:
        candidates = data.get("candidates") or [{}]
        parts = candidates[0].get("content", {}).get("parts") if len(candidates) == 1 else None
        return parts if isinstance(parts, list) else []


class _Ollama(_Plain):
    def read(self, data: Any) -> str | None:
        message = data.get("message", {})
        key = self._key(message)
        return None if key is None else str(message[key])

    def write(self, data: Any, text: str) -> Any:
        message = data["message"]
        return {**data, "message": {**message, self._key(message): text}}

    @staticmethod
    def _key(message: Any) -> str | None:
        return next((key for key in ("thinking", "content") if _is_text(message, key)), None)


def _is_text(holder: Any, key: str) -> bool:
    return isinstance(holder.get(key), str) and bool(holder[key])


_TEXT_EVENTS: Final[dict[str, _TextEvents]] = {
    "openai_chat": _Chat(),
    "openai_responses": _Responses(),
    "anthropic_messages": _Messages(),
    "gemini": _Gemini(),
    "ollama": _Ollama(),
}

__all__ = ["Diverged", "Sent"]
