"""The chunks as which a chat completion is streamed, and what each chunk adds at once. Spec: docs/spec/streaming.md."""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.chat_completions.dialect import STREAM, THOUGHTS, Dialect
from cmf.adapters.chat_completions.fold import CHUNK, DONE, WHOLE
from cmf.adapters.chat_completions.response import write_response
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import as_text, object_in
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta, is_whole
from cmf.json.codec import dumps
from cmf.message.request import Response

_IN_EVERY_CHUNK: Final = ("id", "object", "created", "model", "system_fingerprint", "provider", "service_tier")
_ORDER: Final = ("role", *THOUGHTS, "content", "refusal", "audio", "function_call")


def error_event(text: str, reply: Any) -> WireEvent:
    """The event for a reply that is in no format: itself."""
    return {"data": reply}


def write_events(dialect: Dialect, response: Response) -> list[WireEvent]:
    """The chunks that stream the response, its sound in the pieces that it came in; `[DONE]` at the end of a whole one.

    What may arrive behind the text (annotations, signatures, citations) stands behind it, so that the whole begins with
    the chunks of its beginning [OAC-26].
    """
    body = write_response(dialect, response)
    if not isinstance(body.get("choices"), list):
        return [{"data": body}]
    top: dict[str, Any] = {key: item for key, item in body.items() if key not in ("choices", "usage", "error")}
    if top.get("object") == WHOLE:
        top["object"] = CHUNK
    base: dict[str, Any] = {key: top[key] for key in _IN_EVERY_CHUNK if key in top}
    choices = [chunk for at, choice in enumerate(body["choices"]) for chunk in _chunks_of(choice, at)]
    chunks: list[dict[str, Any]] = [{**base, "choices": [choice]} for choice in choices] or [{"choices": []}]
    chunks[-1] = {**top, **chunks[-1]}
    _cut_sound(object_in(dialect.own(response), STREAM).get("audio"), chunks)
    if "usage" in body:
        chunks.append({**base, "choices": [], "usage": body["usage"]})
    if "error" in body:
        chunks.append({"error": body["error"]})
    events: list[WireEvent] = [{"data": chunk} for chunk in chunks]
    return [*events, {"data": DONE}] if response.error is None and is_whole(response) else events


def _cut_sound(pieces: Any, chunks: list[dict[str, Any]]) -> None:
    """Cut a sound as the folded stream had it [OAC-22]."""
    for at, chunk in enumerate(chunks):
        choices = chunk["choices"]
        sound = choices[0]["delta"].get("audio") if choices else None
        texts = [piece for piece in pieces if isinstance(piece, str)] if isinstance(pieces, list) else []
        if isinstance(sound, dict) and texts and texts == pieces and "".join(texts) == sound.get("data"):
            sounds = [{**sound, "data": pieces[0]}, *({"data": piece} for piece in pieces[1:])]
            deltas = [{**choices[0], "delta": {"audio": sound}} for sound in sounds]
            chunks[at : at + 1] = [{**chunk, "choices": [delta]} for delta in deltas]
            break


def _chunks_of(choice: dict[str, Any], at: int) -> list[dict[str, Any]]:
    """The deltas of one choice: its role, reasoning, text, each call, all else of the message; then how it ended."""
    index = choice.get("index", at)
    message = object_in(choice, "message")
    deltas: list[dict[str, Any]] = [{key: message[key]} for key in _ORDER if key in message]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls)]
    elif "tool_calls" in message:
        deltas.append({"tool_calls": calls})
    if rest := {key: item for key, item in message.items() if key not in (*_ORDER, "tool_calls")}:
        deltas.append(rest)
    chunks: list[dict[str, Any]] = [{"index": index, "delta": delta, "finish_reason": None} for delta in deltas]
    ending = {key: item for key, item in choice.items() if key not in ("index", "message", "delta")}
    if "finish_reason" not in ending:
        for chunk in chunks:
            del chunk["finish_reason"]
    return [*chunks, {"index": index, "delta": {}, **ending}]


class LiveDecoder:
    """What each chunk adds at once. Shapes that do not fit add nothing here: the fold decides what they are."""

    __slots__ = ("_calls", "_ids")

    def __init__(self) -> None:
        self._calls = LiveCalls()  # by choice and the chunk's number of the call
        self._ids: dict[tuple[int, int], str | None] = {}

    def __call__(self, event: WireEvent) -> list[StreamEvent]:
        """The canonical events of one wire event."""
        chunk = event.get("data")
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        added: list[StreamEvent] = []
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict):
                index = choice.get("index")
                self._delta(delta, index if type(index) is int else position, added)
        return added

    def _delta(self, delta: dict[str, Any], choice: int, added: list[StreamEvent]) -> None:
        thoughts = [delta[key] for key in THOUGHTS if isinstance(delta.get(key), str)]
        details = delta.get("reasoning_details")
        if not any(thoughts) and isinstance(details, list):
            thoughts = [detail.get("text") or detail.get("summary") for detail in details if isinstance(detail, dict)]
        added += [ThinkingDelta(text=text, choice=choice) for text in thoughts if text and isinstance(text, str)]
        content = delta.get("content")
        if content is not None and not isinstance(content, str | list):
            content = dumps(content).decode()
        for block in content if isinstance(content, list) else ({"type": "text", "text": content},):
            self._block(block, choice, added)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            added.append(TextDelta(text=refusal, choice=choice))
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                self._call(call, position, choice, added)

    def _block(self, block: Any, choice: int, added: list[StreamEvent]) -> None:
        if not isinstance(block, dict):
            return
        kind = block.get("type")
        text = block.get(kind) if kind in ("text", "refusal") else None
        if text and isinstance(text, str):
            added.append(TextDelta(text=text, choice=choice))
        inner = block.get("thinking") if kind == "thinking" else None
        for item in inner if isinstance(inner, list) else ({"text": inner},):
            thought = item.get("text") if isinstance(item, dict) else None
            if thought and isinstance(thought, str):
                added.append(ThinkingDelta(text=thought, choice=choice))

    def _call(self, call: dict[str, Any], position: int, choice: int, added: list[StreamEvent]) -> None:
        number, call_id = call.get("index", position), as_text(call.get("id")) or None
        key = (choice, number if type(number) is int else position)
        bodies = (call[name] for name in ("function", "custom") if isinstance(call.get(name), dict))
        body: dict[str, Any] = next(bodies, {})
        if key not in self._calls or (call_id is not None and self._ids[key] not in (None, call_id)):
            self._ids[key] = call_id
            added.append(self._calls.begin(key, call_id, body.get("name"), choice))
        more = body.get("arguments", body.get("input"))
        if more and isinstance(more, str):
            added.append(self._calls.grow(key, len(more)))
