"""Event streams of the Messages format. Spec: docs/spec/adapters/anthropic_messages.md [ANT-20] to [ANT-26].

A stream builds a message block by block: `content_block_start` gives the block as it begins, deltas add to it. What a
stream says that has no place in the message is kept under `cmf_events` in the fold, judged, and not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cmf.adapters.anthropic_messages.bodies import OTHER_EVENTS, write_response
from cmf.adapters.anthropic_messages.parts import CALLS
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.call_ids import from_plain_form
from cmf.adapters.wire.fields import PARTIAL, as_text, object_in
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta, is_whole
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object
from cmf.json.value import trusted
from cmf.message.request import Response

_DELTAS: Final[dict[str, tuple[str | None, *tuple[str, ...]]]] = {
    "text_delta": ("text", "text"),
    "citations_delta": ("text", "citation"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "compaction_delta": ("compaction", "content", "encrypted_content"),
    "input_json_delta": (None, "partial_json"),
}
"""By type of a delta: the type of the blocks that it adds to (None: any that has an `input`), and its fields."""
_UNANNOUNCED: Final = {"text_delta": "text", "thinking_delta": "thinking"}
"""Deltas that may begin a block, and the type of it, which is its field as well."""
_FIXED: Final = frozenset({"content", "role", "type"})
_MESSAGE: Final = "message"


class _Block:
    """A content block as it grows. Pieces of text are joined once, at the end."""

    __slots__ = ("citations", "fields", "kind", "pieces", "replaced")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.kind = fields.get("type")
        if self.kind in CALLS and not fields.get("input"):
            fields["input"] = {}  # some gateways leave it out, or begin with null or ""
        self.pieces: dict[str, list[str]] = {}
        self.citations: list[Any] = []
        self.replaced: list[Any] = []

    def add(self, delta: Mapping[str, Any]) -> bool:
        """Whether the block could take the delta; if not, nothing of it was taken."""
        kind = delta.get("type")
        if not isinstance(kind, str) or kind not in _DELTAS or _DELTAS[kind][0] not in (None, self.kind):
            return False
        if kind == "citations_delta":
            if fits := "citation" in delta and isinstance(self.fields.get("citations"), list | None):
                self.citations.append(delta["citation"])
        elif kind == "signature_delta":
            if fits := isinstance(delta.get("signature"), str):
                # It comes in one piece. If there is another, it counts, and the first is kept to be judged.
                if before := self.fields.get("signature"):
                    self.replaced.append({"signature": before})
                self.fields["signature"] = delta["signature"]
        elif kind == "input_json_delta":
            if fits := isinstance(delta.get("partial_json"), str) and isinstance(self.fields.get("input"), dict):
                self.pieces.setdefault("input", []).append(delta["partial_json"])
        else:
            new = {key: delta[key] for key in _DELTAS[kind][1:] if delta.get(key) is not None}
            fits = all(isinstance(new[key], str) and isinstance(self.fields.get(key), str | None) for key in new)
            for key in new if fits else ():
                self.pieces.setdefault(key, []).append(new[key])
        return fits

    def whole(self) -> dict[str, Any]:
        """The block with everything that was added to it."""
        block = dict(self.fields)
        for key, pieces in self.pieces.items():
            added = "".join(pieces)
            block[key] = self._input(added) if key == "input" else (block.get(key) or "") + added
        if self.citations:
            block["citations"] = [*(block.get("citations") or ()), *self.citations]
        return block

    def _input(self, text: str) -> Any:
        """The arguments that the pieces spell; the text itself where that is not strict JSON of an object."""
        begun = self.fields["input"]
        if not text:
            return begun
        spelled = loads_object(text)
        if begun and begun != spelled:
            self.replaced.append({"input": begun})  # what came last counts, as everywhere
        return text if spelled is None else spelled


def fold_events(events: Iterable[WireEvent]) -> dict[str, Any]:
    """The whole body that the events add up to; `cmf_partial` is true in it where the stream was cut."""
    fold = _Fold()
    for event in events:
        fold.feed(event)
    return fold.body()


class _Fold:
    """The message that the events of a stream add up to; fed one event at a time."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._at: dict[Any, _Block] = {}
        self._other: list[Any] = []
        self._begun = False
        self._ending = False
        self._stopped = False
        self._error: dict[str, Any] | None = None

    def feed(self, event: WireEvent) -> None:
        """Take the next event in. Pings, comments and the framing leave nothing behind."""
        if not isinstance(event, dict):
            raise ShapeError("an event is no object", path="$", hint="give `event` and `data`")
        data = event.get("data")
        if data is None or data in _NO_CONTENT:
            return
        kind = data.get("type") if isinstance(data, dict) else None
        take = _TAKERS.get(kind) if isinstance(kind, str) else None
        if take is None or not take(self, data):
            self._other.append(data)

    def body(self) -> dict[str, Any]:
        if self._error is not None and not self._begun:
            return {**self._error, OTHER_EVENTS: self._other} if self._other else self._error
        body = {"type": _MESSAGE, "role": "assistant", **self._head}
        body["content"] = [block.whole() for block in self._blocks]
        if self._error is not None:
            body["error"] = self._error["error"]
        if not self._stopped or self._error is not None:
            body[PARTIAL] = True
        if other := [*self._other, *(each for block in self._blocks for each in block.replaced)]:
            body[OTHER_EVENTS] = other
        return body

    def _message_start(self, data: dict[str, Any]) -> bool:
        """A second start (streams are spliced by some gateways) goes on with the message under its new head."""
        message = data.get(_MESSAGE)
        if not isinstance(message, dict):
            return False
        self._beside(data, _MESSAGE)
        content = message.get("content")
        for key, item in message.items():
            if key != "content":
                self._put(self._head, key, item)
        if not isinstance(content, list | None) or not all(isinstance(block, dict) for block in content or ()):
            raise ShapeError("`content` is no list of blocks", path="$.message.content", hint="see the Messages API")
        self._blocks += [_Block(dict(block)) for block in content or ()]
        self._at = {}
        self._begun, self._stopped = True, False
        self._ending = message.get("stop_reason") is not None
        return True

    def _content_block_start(self, data: dict[str, Any]) -> bool:
        """A block under a number that another one has takes its place: deltas go to the one that began last."""
        block = data.get("content_block")
        if not isinstance(block, dict):
            return False
        self._beside(data, *_known_place(data), "content_block")
        self._begin(_place(data), dict(block))
        asked, answers = (as_text(object_in(block, key).get("model")) for key in ("from", "to"))
        if block.get("type") == "fallback" and answers is not None:
            # From here on another model answers: in a whole response it is the message's.
            if asked is not None and self._head.get("model") == asked:
                del self._head["model"]  # the block names it
            self._put(self._head, "model", answers)
        return True

    def _begin(self, index: int | None, fields: dict[str, Any]) -> _Block:
        block = self._at[index] = _Block(fields)
        self._blocks.append(block)
        return block

    def _content_block_delta(self, data: dict[str, Any]) -> bool:
        delta = data.get("delta")
        if not isinstance(delta, dict):
            return False
        block = self._at.get(_place(data))
        if block is None and (kind := _begun_by(delta)) is not None:  # some hosts leave out the start of text
            block = self._begin(_place(data), {"type": kind, kind: ""})
        if block is None or not block.add(delta):
            return False
        self._beside(data, *_known_place(data), "delta")
        self._beside(delta, *_DELTAS[delta["type"]][1:])
        return True

    def _content_block_stop(self, data: dict[str, Any]) -> bool:
        return set(data) == {"type", "index"} and type(data["index"]) is int

    def _message_delta(self, data: dict[str, Any]) -> bool:
        delta, usage = data.get("delta"), data.get("usage")
        if not isinstance(delta, dict | None) or not isinstance(usage, dict | None):
            return False
        beside = {key: item for key, item in data.items() if key not in ("type", "delta", "usage")}
        news = {**beside, **(delta or {})}
        if len(news) != len(beside) + len(delta or {}) or (_FIXED | {"usage", PARTIAL, OTHER_EVENTS}) & news.keys():
            return False
        for key, item in news.items():
            self._put(self._head, key, item)
        if usage is not None:
            counted = self._head.get("usage")
            if isinstance(counted, dict):
                self._head["usage"] = counted = dict(counted)
            else:
                self._put(self._head, "usage", counted := {})
            for key, item in usage.items():
                self._put(counted, key, item)
        self._ending = True
        return True

    def _message_stop(self, data: dict[str, Any]) -> bool:
        """A message ends after its stop reason: a stop that comes before (of another stream, spliced in) is no end."""
        self._stopped = self._begun and self._ending
        if self._stopped:
            self._beside(data)
        return self._stopped

    def _broken(self, data: dict[str, Any]) -> bool:
        if self._error is not None or not isinstance(data.get("error"), dict):
            return False
        self._error = data
        return not self._begun or set(data) == {"type", "error"}  # its other fields have no place in a message

    def _beside(self, event: dict[str, Any], *known: str) -> None:
        """Keep fields of an event or delta that are not the format's: hosts and gateways add theirs (counts, times)."""
        if len(event) > 1 + len(known) or any(key not in known and key != "type" for key in event):
            self._other.append({key: item for key, item in event.items() if key not in known})

    def _put(self, holder: dict[str, Any], key: str, item: Any) -> None:
        """Set a field; text that it replaces was sent, so it is kept to be judged."""
        before = holder.get(key)
        if isinstance(before, str | list | dict) and before and before != item:
            self._other.append({key: before})
        holder[key] = item


def _place(data: dict[str, Any]) -> int | None:
    """The number of the block that an event is about; None where it has none: then it is about the last such block."""
    index = data.get("index")
    return index if type(index) is int else None


def _begun_by(delta: dict[str, Any]) -> str | None:
    """The type of the block that a delta begins if none was announced; None if it begins none."""
    delta_type = delta.get("type")
    kind = _UNANNOUNCED.get(delta_type) if isinstance(delta_type, str) else None
    return kind if kind is not None and isinstance(delta.get(kind), str) else None


def _known_place(data: dict[str, Any]) -> tuple[str, ...]:
    """`index` if it is a plain number."""
    return ("index",) if type(data.get("index")) is int else ()


_TAKERS: Final[dict[str, Callable[[_Fold, dict[str, Any]], bool]]] = {
    "message_start": _Fold._message_start,
    "content_block_start": _Fold._content_block_start,
    "content_block_delta": _Fold._content_block_delta,
    "content_block_stop": _Fold._content_block_stop,
    "message_delta": _Fold._message_delta,
    "message_stop": _Fold._message_stop,
    "error": _Fold._broken,
}
_NO_CONTENT: Final = ({"type": "ping"}, "[DONE]")


_HEAD: Final = "head"  # where the blocks are that no delta can name


class LiveDecoder:
    """What the events of one stream say as they arrive. Called with each; never raises: the fold judges the form."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Any] = {}
        self._calls = LiveCalls()

    def __call__(self, event: Any) -> Iterable[StreamEvent]:
        """The canonical events of one wire event."""
        data = event.get("data") if isinstance(event, dict) else None
        kind = data.get("type") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(kind, str):
            return ()
        if kind == "message_start":
            self._kinds = {}
            self._calls.forget()
            message = data.get(_MESSAGE)
            begun = message.get("content") if isinstance(message, dict) else None
            return [each for block in begun for each in self._begins(_HEAD, block)] if isinstance(begun, list) else ()
        index = _place(data)
        if kind == "content_block_start":
            return self._begins(index, data.get("content_block"))
        if kind == "content_block_delta" and isinstance(delta := data.get("delta"), dict):
            return self._grows(index, delta)
        return ()

    def _begins(self, index: Any, block: Any) -> Iterable[StreamEvent]:
        """A block that begins, or one of the message's head: no delta can name the latter."""
        if not isinstance(block, dict):
            return ()
        kind = self._kinds[index] = block.get("type")
        if kind in CALLS:
            call_id = block.get("id")
            if isinstance(call_id, str) and kind == "tool_use":
                call_id = from_plain_form(call_id)
            return (self._calls.begin(index, call_id, block.get("name")),)
        return self._text(kind, block)

    def _grows(self, index: int | None, delta: dict[str, Any]) -> Iterable[StreamEvent]:
        delta_type = delta.get("type")
        if index not in self._kinds and (begun := _begun_by(delta)) is not None:
            self._kinds[index] = begun
        kind = self._kinds.get(index)
        if delta_type == "input_json_delta" and index in self._calls and isinstance(delta.get("partial_json"), str):
            return (self._calls.grow(index, len(delta["partial_json"])),)
        return self._text(kind, delta) if delta_type == f"{kind}_delta" else ()

    def _text(self, kind: Any, holder: dict[str, Any]) -> Iterable[StreamEvent]:
        """What a block or delta adds at once. A summary is text too, unless some of it is sealed [ANT-29]."""
        field = _SPOKEN.get(kind) if isinstance(kind, str) and holder.get("encrypted_content") is None else None
        text = None if field is None else as_text(holder.get(field))
        if not text:
            return ()
        return (trusted(ThinkingDelta, text=text),) if kind == "thinking" else (trusted(TextDelta, text=text),)


_SPOKEN: Final = {"text": "text", "thinking": "thinking", "compaction": "content"}


# -- writing -----------------------------------------------------------------------------------------------------------


def error_event(text: str, reply: Any = None) -> WireEvent:
    """The event for an error with this text."""
    return _event({"type": "error", "error": {"type": "api_error", "message": text}})


def write_events(response: Response) -> list[WireEvent]:
    """The events that fold to the body of the response; without an end where it is not whole."""
    body, whole = write_response(response), response.error is None and is_whole(response)
    if not isinstance(body.get("content"), list):
        is_error = isinstance(body.get("error"), dict)  # some hosts leave the type out
        return [_event({**body, "type": "error"}) if is_error else error_event("the provider's error is not readable")]
    usage = body.get("usage")
    ends = whole or body.get("stop_reason") is not None
    head: dict[str, Any] = {key: item for key, item in body.items() if key not in ("content", "error")}
    if ends:
        head = {key: None if key in _ENDINGS else item for key, item in head.items() if key != "stop_details"}
    events = [_event({"type": "message_start", "message": head | {"content": []}})]
    for index, block in enumerate(body["content"]):
        begun, deltas = _opened(block)
        events.append(_event({"type": "content_block_start", "index": index, "content_block": begun}))
        events += [_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
        events.append(_event({"type": "content_block_stop", "index": index}))
    if ends:
        delta: dict[str, Any] = {"type": "message_delta", "delta": {key: body[key] for key in _ENDINGS if key in body}}
        if isinstance(usage, dict):
            delta["usage"] = {key: usage[key] for key in ("output_tokens",) if key in usage}
        events.append(_event(delta))
    if "error" in body:
        events.append(_event({"type": "error", "error": body["error"]}))
    elif whole:
        events.append(_event({"type": "message_stop"}))
    return events


_ENDINGS: Final = ("stop_reason", "stop_sequence", "stop_details")


def _event(data: dict[str, Any]) -> WireEvent:
    return {"event": as_text(data.get("type")) or "error", "data": data}


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and the deltas that complete it."""
    begun, deltas = dict(block), []
    kind = block.get("type")
    if kind in CALLS:
        given = block.get("input")
        text = given if isinstance(given, str) else dumps(given).decode("utf-8") if given else ""
        begun["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": text})
    for delta_type, field, empty in _GROWING.get(kind, ()) if isinstance(kind, str) else ():
        if isinstance(block.get(field), str) and block[field]:
            begun[field] = empty
            deltas.append({"type": delta_type, field: block[field]})
    if kind == "text" and isinstance(block.get("citations"), list):
        begun["citations"] = []
        deltas += [{"type": "citations_delta", "citation": citation} for citation in block["citations"]]
    return begun, deltas


_GROWING: Final[dict[str, tuple[tuple[str, str, str | None], ...]]] = {
    "text": (("text_delta", "text", ""),),
    "thinking": (("thinking_delta", "thinking", ""), ("signature_delta", "signature", "")),
    "compaction": (("compaction_delta", "content", None),),
}
