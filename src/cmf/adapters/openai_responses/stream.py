"""Streaming a Responses answer again, and decoding one while it streams. Spec: openai_responses.md [RSP-15]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cmf.adapters.openai_responses.fold import CLOSING, OPENING, PIECES, number, path_of, piece_key
from cmf.adapters.openai_responses.items import CALLS
from cmf.adapters.openai_responses.response import write_response
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta
from cmf.enums import MessageStatus, StopReason
from cmf.message.request import Response

# -- streaming a response again ----------------------------------------------------------------------------------------


def error_event(text: str, reply: Any) -> WireEvent:
    """The event for an error with this text."""
    return {"event": "error", "data": {"type": "error", "message": text}}


def write_events(response: Response) -> list[WireEvent]:
    """The events that stream the response; without a terminal one unless the answer is whole."""
    body, whole = write_response(response), _is_ended(response)
    if not ("output" in body or "status" in body or body.get("object") == "response"):
        return _numbered([{**body, "type": "error"}]) if "error" in body else [{"data": body}]
    output = body.get("output")
    items = output if isinstance(output, list) else []
    broken = not whole and body.get("error") is not None
    later = ("output", "usage", "output_text") if whole else ("output",)
    start = {key: value for key, value in body.items() if key not in later}
    if "output" in body:
        start["output"] = []
    if whole:
        start["status"] = "in_progress"
    if broken:
        start["error"] = None
    events: list[dict[str, Any]] = [{"type": "response.created", "response": start}]
    if whole:
        events.append({"type": "response.in_progress", "response": start})
    for at, item in enumerate(items):
        events += _item_events(item, at)
    if broken:
        events.append({"type": "error", "error": body["error"]})
    elif whole:
        closing = _CLOSINGS.get(str(body.get("status")), "response.completed")
        events.append({"type": closing, "response": body})
    return _numbered(events)


_CLOSINGS: Final = {"incomplete": "response.incomplete", "failed": "response.failed"}


def _numbered(events: list[dict[str, Any]]) -> list[WireEvent]:
    return [{"event": data["type"], "data": {**data, "sequence_number": at}} for at, data in enumerate(events)]


def _item_events(item: Any, at: int) -> Iterator[dict[str, Any]]:
    kind = item.get("type") if isinstance(item, dict) else None
    about: dict[str, Any] = {"output_index": at}
    if isinstance(item, dict) and isinstance(item.get("id"), str):
        about["item_id"] = item["id"]
    started = dict(item) if isinstance(item, dict) else item
    pieces: list[dict[str, Any]] = []
    if kind == "message" and isinstance(item.get("content"), list):
        started["content"] = []
        pieces = [event for n, part in enumerate(item["content"]) for event in _part_events(part, n, about)]
    elif kind == "reasoning" and isinstance(item.get("summary"), list):
        started["summary"] = []
        pieces = [event for n, part in enumerate(item["summary"]) for event in _summary_events(part, n, about)]
    elif kind in ("function_call", "custom_tool_call"):
        delta, done, key = _PIECES[kind]
        if isinstance(item.get(key), str):
            started[key] = ""
            pieces = [{"type": delta, **about, "delta": item[key]}, {"type": done, **about, key: item[key]}]
    if isinstance(started, dict) and started.get("status") == "completed":
        started["status"] = "in_progress"
    yield {"type": "response.output_item.added", "output_index": at, "item": started}
    yield from pieces
    yield {"type": "response.output_item.done", "output_index": at, "item": item}


_PIECES: Final = {
    "function_call": ("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input"),
    "output_text": ("response.output_text.delta", "response.output_text.done", "text"),
    "refusal": ("response.refusal.delta", "response.refusal.done", "refusal"),
}
"""By type of an item or part: the events that stream its text, and the key that has it."""


def _part_events(part: Any, at: int, about: dict[str, Any]) -> list[dict[str, Any]]:
    where = {**about, "content_index": at}
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _TEXTS or not isinstance(part.get(_TEXTS[kind]), str):
        return [{"type": "response.content_part.done", **where, "part": part}]
    delta, done, key = _PIECES[kind]
    empty = {**part, key: ""}
    empty |= {name: [] for name in ("annotations", "logprobs") if name in part}
    tokens: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    return [
        {"type": "response.content_part.added", **where, "part": empty},
        {"type": delta, **where, "delta": part[key], **tokens},
        {"type": done, **where, key: part[key], **tokens},
        {"type": "response.content_part.done", **where, "part": part},
    ]


_TEXTS: Final = {"output_text": "text", "refusal": "refusal"}


def _summary_events(part: Any, at: int, about: dict[str, Any]) -> list[dict[str, Any]]:
    where = {**about, "summary_index": at}
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        return []
    return [
        {"type": "response.reasoning_summary_part.added", **where, "part": {**part, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **where, "delta": part["text"]},
        {"type": "response.reasoning_summary_text.done", **where, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **where, "part": part},
    ]


def _is_ended(response: Response) -> bool:
    """Whether a stream of this response has a terminal event: it is whole, or it failed as a whole."""
    return all(
        choice.message.status is MessageStatus.COMPLETE
        or (choice.message.status is MessageStatus.ERROR and choice.stop_reason is StopReason.ERROR)
        for choice in response.choices
    )


# -- decoding as it arrives --------------------------------------------------------------------------------------------


class LiveDecoder:
    """What each event adds at once, for `driver.drive`. Text that comes only at the end of a part is added then.

    So is that of an item whose beginning was not heard, in a stream that is resumed: its pieces are the end of a text.
    """

    def __init__(self) -> None:
        self._opened = False
        self._begun: set[int] = set()  # by output index: items whose beginning was received
        self._held: dict[tuple[Any, ...], str] = {}
        self._texts: dict[tuple[Any, ...], str] = {}
        self._calls = LiveCalls()  # by output index
        self._places: dict[str, int] = {}  # by id: output index of the item

    def __call__(self, event: WireEvent) -> Iterator[StreamEvent]:
        """The canonical events of one wire event."""
        received: Any = event  # whatever arrives: what is no event, the fold refuses
        data = received.get("data") if isinstance(received, dict) else None
        kind = data.get("type") if isinstance(data, dict) else None
        if not isinstance(kind, str) or data is None:
            return
        base, _, step = kind.rpartition(".")
        text = data.get(piece_key(base, step)) if base in PIECES else None
        if base in _TEXT_DELTAS and isinstance(text, str):
            yield from self._text(base, step, text, data)
        elif base in PIECES and step == "delta" and isinstance(text, str):
            at = data.get("output_index")
            if type(at) is int and at in self._calls:
                yield self._calls.grow(at, len(text))
        elif kind in OPENING:
            self._opened = True
        elif kind == "response.output_item.added":
            yield from self._started(data)
        elif kind in CLOSING:
            yield from self._closing(data.get("response"))
            for key, tail in self._held.items():  # of no item of the final response
                yield key[0](text=tail)

    def _text(self, base: str, step: str, text: str, data: dict[str, Any]) -> Iterator[StreamEvent]:
        at = self._index(data)
        key = (_TEXT_DELTAS[base], at, *path_of(PIECES[base][:-1], data))
        if step == "delta" and not self._opened and at not in self._begun and key not in self._texts:
            self._held[key] = self._held.get(key, "") + text
            return
        self._held.pop(key, None)
        before = self._texts.get(key, "")
        fresh = text if step == "delta" else (text[len(before) :] if text.startswith(before) else "")
        if fresh:
            self._texts[key] = before + fresh
            yield _TEXT_DELTAS[base](text=fresh)

    def _index(self, data: dict[str, Any]) -> int:
        """The position of an event's item in the output; by the item's id if the event has no number."""
        at, name = data.get("output_index"), data.get("item_id")
        return number(at) if type(at) is int or not isinstance(name, str) else self._places.get(name, 0)

    def _started(self, data: dict[str, Any]) -> Iterator[StreamEvent]:
        item = data.get("item")
        kind = item.get("type") if isinstance(item, dict) else None
        spec = CALLS.get(kind) if isinstance(kind, str) else None
        at = data.get("output_index")
        if isinstance(item, dict) and type(at) is int:
            self._begun.add(at)
            if isinstance(item_id := item.get("id"), str):
                self._places.setdefault(item_id, at)
        if spec is None or not isinstance(item, dict) or type(at) is not int or at in self._calls:
            return
        name = spec.tool if spec.tool is not None else item.get("name")
        yield self._calls.begin(at, item.get(spec.id_key), name)

    def _closing(self, response: Any) -> Iterator[StreamEvent]:
        """Text of the final response that no event had."""
        output = response.get("output") if isinstance(response, dict) else None
        for at, item in enumerate(output if isinstance(output, list) else []):
            if not isinstance(item, dict) or item.get("type") != "message":
                continue
            content, name = item.get("content"), item.get("id")
            output_index = self._places.get(name, at) if isinstance(name, str) else at  # some servers leave items out
            for n, part in enumerate(content if isinstance(content, list) else []):
                kind = part.get("type") if isinstance(part, dict) else None
                text = part.get(_TEXTS[kind]) if isinstance(kind, str) and kind in _TEXTS else None
                if isinstance(text, str):
                    indexes = {"output_index": output_index, "content_index": n}
                    yield from self._text(f"response.{kind}", "done", text, indexes)


_TEXT_DELTAS: Final[dict[str, type[TextDelta] | type[ThinkingDelta]]] = {
    "response.output_text": TextDelta,
    "response.refusal": TextDelta,
    "response.reasoning_text": ThinkingDelta,
    "response.reasoning_summary_text": ThinkingDelta,
}
