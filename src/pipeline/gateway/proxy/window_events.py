"""The events of a streamed answer that were sent to the client, and those still to be sent.

The events of the answer so far and those of the whole answer come from the same writer, so they are equal up to the
texts that are still growing. What is new in these is sent as further events; all other events follow in order. Where a
text may still go on, what would close it waits for the end.
Spec: docs/spec/gateway.md [GW-70] ff.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cmf.adapters.wire.base import WireEvent
from pipeline.gateway.http.dialects import Dialect
from pipeline.gateway.http.refusal import Refusal


class Diverged(Exception):
    """The events that were sent are not how the events of this answer begin."""


class _TextEvents(Protocol):
    """How a dialect's events hold text that a further event can continue. Most have no blocks, and nothing to add."""

    def place(self, at: int, data: Any, /) -> Hashable:
        """What tells the event, the one at `at`, from the others of the answer, also from those yet to come."""
        ...

    def block(self, data: Any, /) -> Hashable:  # noqa: ARG002 - for the dialects with blocks
        """The block in which the event's text stands, and which a later event closes; None if there are no blocks."""
        return None

    def is_thinking(self, data: Any, /) -> bool:
        """Whether the text in the event is thinking."""
        ...

    def read(self, data: Any, /) -> str | None:
        """The text in the event; None if it has none."""
        ...

    def write(self, data: Any, text: str, /) -> Any:
        """The event with `text` instead of its own."""
        ...

    def unended(self, data: Any, /) -> Any:
        """The event without anything that ends the answer."""
        return data

    def late(self, data: Any, first: Any, /) -> Any:  # noqa: ARG002 - as above
        """The event with what changed in `first`, the stream's first event, after that was sent."""
        return data


@dataclass(frozen=True, slots=True)
class _Out:
    """What was sent of an event: its text, if it has one, and the event without that."""

    text: str | None
    frame: Any


class Sent:
    """The events that were sent to one client; `number` of them."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._text_events = _TEXT_EVENTS[dialect.name]
        self._out: dict[Hashable, _Out] = {}  # by place
        self.number = 0

    def partly(self, events: Sequence[WireEvent], shown: Mapping[str, str]) -> list[WireEvent]:
        """What is new in the events of an unfinished answer up to its last text.

        Args:
            events: of the answer as if it ended here.
            shown: how each text in them begins, as far as it may be sent.

        Raises:
            Diverged: what was sent is not how it begins, or one of its texts is not in `shown`.
        """
        texts = [self._read(event) for event in events]
        last = max((at for at, text in enumerate(texts) if text is not None), default=-1)
        growing = {self._text_events.is_thinking(events[at].get("data")): at for at in range(last + 1) if texts[at]}
        open_blocks: set[Hashable] = set()
        stopped: set[bool] = set()  # where a text of a kind stops, no later one of that kind may begin
        partial: dict[int, WireEvent] = {}
        for at, event in enumerate(events[: last + 1]):
            data, text = event.get("data"), texts[at]
            block = self._text_events.block(data)
            if text is None:
                if block is None or block not in open_blocks:
                    partial[at] = event
                continue
            if text not in shown:
                raise Diverged
            kind = self._text_events.is_thinking(data)
            begin = "" if kind in stopped else shown[text]
            if begin:
                partial[at] = _with(event, self._text_events.write(self._text_events.unended(data), begin))
            if begin != text:
                stopped.add(kind)
            if at in growing.values() or begin != text:
                open_blocks.add(block)
        return self._grown(events, partial)

    def rest(self, events: Sequence[WireEvent]) -> list[WireEvent]:
        """The events of the whole answer that are still to be sent; Diverged as for `partly`."""
        if self._out:
            first = events[0].get("data")
            later = (_with(event, self._text_events.late(event.get("data"), first)) for event in events[1:])
            events = [*events[:1], *later]
        return self._grown(events, dict(enumerate(events)), whole=True)

    def error(self, refusal: Refusal, request_id: str) -> WireEvent:
        """The event that ends the stream in place of the rest of the answer."""
        fields = self._dialect.error(refusal, request_id)
        if self._dialect.name == "openai_responses":
            defaults = {"type": "error", "code": refusal.code, "message": refusal.message, "param": None}
            return {"event": "error", "data": {**defaults, **fields, "sequence_number": self.number}}
        if self._dialect.name == "anthropic_messages":
            return {"event": "error", "data": fields}
        return {"data": fields}

    def _grown(
        self, events: Sequence[WireEvent], ready: Mapping[int, WireEvent], *, whole: bool = False
    ) -> list[WireEvent]:
        """What is new in the events that are ready; Diverged if one that was sent is not among `events`."""
        places = [self._text_events.place(at, event.get("data")) for at, event in enumerate(events)]
        if not self._out.keys() <= set(places):
            raise Diverged
        new: list[WireEvent] = []
        for at, event in ready.items():
            out = self._out.get(places[at])
            text, data = self._read(event), event.get("data")
            if out is None:
                new.append(event)
            else:
                more = self._more(out, text, whole=whole)
                if more is None:
                    continue
                if text is not None and (more or self._text_events.write(data, "") != out.frame):
                    new.append(_with(event, self._text_events.write(data, more)))
            self._out[places[at]] = _Out(text, None if text is None else self._text_events.write(data, ""))
        return [self._numbered(event) for event in new]

    @staticmethod
    def _more(out: _Out, text: str | None, *, whole: bool) -> str | None:
        """The text beyond what was sent; None where an unfinished answer shows less for now."""
        if out.text is None or text is None:
            if out.text is not text:
                raise Diverged
            return ""
        if text.startswith(out.text):
            return text[len(out.text) :]
        if whole or not out.text.startswith(text):
            raise Diverged
        return None

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


class _Chat(_TextEvents):
    _KEYS: Final = ("content", "reasoning_content", "reasoning", "reasoning_text", "refusal")

    def place(self, at: int, data: Any) -> Hashable:
        """The field: the writer puts them in an order of its own, whichever began first."""
        choices = data.get("choices") if isinstance(data, dict) else None
        if not choices:
            return at
        field = next(iter(choices[0]["delta"]), None)
        return (choices[0]["index"], field) if field in (*self._KEYS, "role") else at

    def is_thinking(self, data: Any) -> bool:
        return self._key(data) not in ("content", "refusal")

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


class _Responses(_TextEvents):
    _DELTAS: Final = frozenset(
        {"response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta"}
    )

    def place(self, at: int, data: Any) -> Hashable:
        return at, data["type"]

    def block(self, data: Any) -> Hashable:
        number: Hashable = data.get("output_index")
        return number

    def is_thinking(self, data: Any) -> bool:
        return str(data["type"]).startswith("response.reasoning")

    def read(self, data: Any) -> str | None:
        return str(data["delta"]) if data["type"] in self._DELTAS else None

    def write(self, data: Any, text: str) -> Any:
        return {**data, "delta": text}


class _Messages(_TextEvents):
    _KEYS: Final = {"text_delta": "text", "thinking_delta": "thinking"}

    def place(self, at: int, data: Any) -> Hashable:
        return at, data["type"], (data.get("content_block") or data.get("delta") or {}).get("type")

    def block(self, data: Any) -> Hashable:
        number: Hashable = data.get("index")
        return number

    def is_thinking(self, data: Any) -> bool:
        return bool(data["delta"]["type"] == "thinking_delta")

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


class _Gemini(_TextEvents):
    def place(self, at: int, data: Any) -> Hashable:
        return at, self.is_thinking(data)

    def is_thinking(self, data: Any) -> bool:
        return any(part.get("thought") for part in self._parts(data))

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
        content = candidate["content"]
        parts = [{key: part[key] for key in ("text", "thought") if key in part} for part in content["parts"]]
        kept = {
            "content": {**content, "parts": parts},
            **{key: candidate[key] for key in ("index",) if key in candidate},
        }
        return {**{key: data[key] for key in ("modelVersion", "responseId") if key in data}, "candidates": [kept]}

    @staticmethod
    def _parts(data: Any) -> list[Any]:
        candidates = data.get("candidates") or [{}]
        parts = candidates[0].get("content", {}).get("parts") if len(candidates) == 1 else None
        return parts if isinstance(parts, list) else []


class _Ollama(_TextEvents):
    def place(self, at: int, data: Any) -> Hashable:
        """The field, as for chat completions; the last line has neither."""
        return self._key(data.get("message", {})) or at

    def is_thinking(self, data: Any) -> bool:
        return self._key(data["message"]) == "thinking"

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
