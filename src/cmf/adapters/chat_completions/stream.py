"""The chunks of a chat completion: folded into the whole body, streamed again, and what each one adds at once.

The fold loses nothing that policy should see. What chunks say more than once and differently is kept aside under
`cmf_stream`, what is no chunk under `cmf_unrecognized`; both are shown, and no body is written with them. Spec:
docs/spec/adapters/openai_chat.md [OAC-20] to [OAC-26]; docs/spec/streaming.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from cmf.adapters.chat_completions.bodies import write_response
from cmf.adapters.chat_completions.dialect import THOUGHTS, Dialect
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import MARK, PARTIAL, as_text, object_in
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta, is_whole
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import freeze, same_spelling, thaw
from cmf.message.request import Response

_STREAM: Final = f"{MARK}stream"  # what the chunks had beside the body
_DONE: Final = "[DONE]"
_CHUNK: Final = "chat.completion.chunk"
_WHOLE: Final = "chat.completion"
_LAST_CHUNK: Final = "chat.completion.done"  # one service ends with this object instead of [DONE]
_PADDING: Final = ("obfuscation", "p")  # random text against traffic analysis: no part of the answer
_TEXTS: Final = ("content", "refusal", *THOUGHTS)
_DETAIL_TEXTS: Final = ("text", "summary", "data")
_ABSENT: Final = object()
_FEW: Final = 4  # texts of more pieces are not asked whether they are whole: that would take a look at all, each time
_CALL_TEXTS: Final = {"function": ("arguments",), "custom": ("input",)}
_OBJECTS: Final = {"function_call": ("arguments",), "audio": ("data", "transcript")}
_Held = TypeVar("_Held", dict[str, Any], list[Any])

Aside = dict[str, list[Any]]
"""By key, values that were sent and later replaced."""


def fold_events(events: Iterable[WireEvent]) -> Any:
    """The whole body that the events add up to, with `cmf_partial` unless the stream came to its end."""
    folder = _Fold()
    for at, event in enumerate(events):
        if not isinstance(event, dict):
            raise ShapeError("expected an event", path=f"$[{at}]", hint="an event has `data`")
        if "data" in event:
            folder.add(event["data"])
    return folder.body()


class _Fold:
    """The state of one fold. Texts are gathered as pieces and joined once, so that a fold is linear in its bytes."""

    __slots__ = ("_any_chunk", "_aside", "_choices", "_done", "_had_choices", "_top", "_unrecognized")

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self._aside: Aside = {}
        self._unrecognized: list[Any] = []
        self._had_choices = False
        self._any_chunk = False
        self._done = False

    def add(self, data: Any) -> None:
        if isinstance(data, str) and data.strip() == _DONE:
            self._done = True
        elif isinstance(data, dict):
            self._any_chunk = True
            self._chunk(data)
        else:
            self._unrecognized.append(data)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        for key, item in chunk.items():
            if key == "choices" and isinstance(item, list):
                self._had_choices = True
                for position, choice in enumerate(item):
                    if not isinstance(choice, dict):
                        self._unrecognized.append({key: choice})
                        continue
                    index = choice.get("index")
                    at = index if type(index) is int else position
                    if at not in self._choices:
                        self._choices[at] = _Choice(at, self._aside)
                    self._choices[at].add(choice)
            elif key.startswith(MARK) or (key == "choices" and item is not None):
                self._unrecognized.append({key: item})
            elif key in _PADDING:
                self._aside.setdefault(key, []).append(item)
            elif key == "object" and item in (_CHUNK, _LAST_CHUNK):
                self._done = self._done or item == _LAST_CHUNK
                _snapshot(self._top, key, _WHOLE, self._aside)
            else:
                _snapshot(self._top, key, item, self._aside)
        if chunk.get("object") == _WHOLE:
            self._done = self._done or _is_whole(chunk.get("choices"))

    def body(self) -> Any:
        if not self._any_chunk and not self._had_choices and len(self._unrecognized) == 1:
            return self._unrecognized[0]  # not a stream at all, but a body in an event
        body = self._top
        if self._had_choices or not self._any_chunk:  # else it is an error body, which has no choices
            body["choices"] = [self._choices[at].whole() for at in sorted(self._choices)]
        failed = any("error" in choice for choice in body.get("choices") or ())
        nothing = "choices" in body and not body["choices"]
        broken = not self._done or "error" in body or failed or nothing
        if nothing and "error" not in body:
            body["choices"] = [{"index": 0, "message": {"role": "assistant"}}]
        if self._aside:
            texts = {key: self._aside[key] for key in _PADDING if key in self._aside}  # cut anew when streamed again
            padding = {key: " ".join(texts[key]) for key in texts if all(isinstance(text, str) for text in texts[key])}
            body[_STREAM] = {**self._aside, **padding}
        if self._unrecognized:
            body[f"{MARK}unrecognized"] = self._unrecognized
        if broken:
            body[PARTIAL] = True
        return body


class _Choice:
    """One choice as its deltas come in."""

    __slots__ = (
        "_aside", "_blocks", "_calls", "_calls_by", "_details", "_details_by", "_fields", "_message", "_numbered",
        "_objects", "_snapshots", "_texts",
    )  # fmt: skip

    def __init__(self, index: int, aside: Aside) -> None:
        self._fields: dict[str, Any] = {"index": index}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._blocks: list[Any] = []
        self._calls: list[_Pieces] = []
        self._calls_by: dict[int | str, _Pieces] = {}  # by index, and by id
        self._details: list[_Pieces | Any] = []
        self._details_by: dict[tuple[str, str], _Pieces] = {}  # by type and index
        self._numbered: dict[tuple[str, int], dict[str, Any]] = {}
        self._objects: dict[str, _Pieces] = {}  # the function call and the sound
        self._snapshots: list[Any] = []
        self._aside = aside

    def add(self, raw: dict[str, Any]) -> None:
        for key, item in raw.items():
            if key == "delta" and isinstance(item, dict):
                for name, value in item.items():
                    self._delta(name, value)
            elif key == "message" and item is not None:
                self._snapshots.append(item)
            elif key in _PADDING:
                self._aside.setdefault(key, []).append(item)
            elif key == "logprobs" and isinstance(item, dict):
                gathered = _gathering(self._fields, key, dict, self._aside)
                for name, value in item.items():
                    if isinstance(value, list):
                        _gathering(gathered, name, list, self._aside).extend(map(_copied, value))
                    else:
                        _snapshot(gathered, name, value, self._aside)
            elif key == "token_ids" and isinstance(item, list):
                _gathering(self._fields, key, list, self._aside).extend(map(_copied, item))
            elif key == "delta" and item is not None:
                self._aside.setdefault(key, []).append(item)
            elif not (key == "index" and type(item) is int) and not (key == "delta" and item is None):
                _snapshot(self._fields, key, item, self._aside)

    def _delta(self, key: str, item: Any) -> None:
        if key in _TEXTS and isinstance(item, str):
            self._text(key, item)
        elif item is None:
            self._message.setdefault(key, None)
        elif key == "content" and not isinstance(item, list):  # some services parse a piece that is a number, or JSON
            self._text(key, dumps(item).decode())
        elif key == "content":
            if not item:
                self._message[key] = []
            for block in item:
                self._block(block)
        elif key in _OBJECTS and isinstance(item, dict):
            self._objects.setdefault(key, _Pieces(_OBJECTS[key], self._aside)).add(item)
        elif key in ("tool_calls", "reasoning_details") and isinstance(item, list):
            _gathering(self._message, key, list, self._aside)
            for position, raw in enumerate(item):
                if key == "reasoning_details":
                    self._detail(raw)
                elif isinstance(raw, dict):
                    self._call(raw, position, alone=len(item) == 1)
                else:
                    self._aside.setdefault(key, []).append(raw)
        elif isinstance(item, list):
            self._listed(key, item)
        else:
            _snapshot(self._message, key, item, self._aside)

    def _text(self, key: str, text: str) -> None:
        if key == "content" and self._blocks:
            self._block({"type": "text", "text": text})
        else:
            self._texts.setdefault(key, []).append(text)

    def _block(self, block: Any) -> None:
        """A block of a content list; one that goes on where the last one stopped is joined to it."""
        before = self._texts.pop("content", None)
        if before and not self._blocks:
            self._blocks.append({"type": "text", "text": _Run(before)})
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, dict) or not _joined(last, block):
            self._blocks.append(_running(block))

    def _call(self, raw: dict[str, Any], position: int, *, alone: bool) -> None:
        index, call_id = raw.get("index"), raw.get("id")
        if type(index) is int:
            call = self._calls_by.get(index)
            if call is None and not call_id and 0 <= index < len(self._calls):
                call = self._calls[index] if "index" not in self._calls[index].fields else None  # numbered from now on
            if call is not None and call_id and call.fields.get("id") not in (None, "", call_id):
                call = None  # some services give every call the index 0: another id is another call
        elif isinstance(call_id, str) and call_id:
            call = self._calls_by.get(call_id)
        else:
            call = self._unnumbered(raw, position, alone=alone)
        if call is None:
            call = _Pieces((), self._aside)
            self._calls.append(call)
        if type(index) is int:
            self._calls_by[index] = call
        if isinstance(call_id, str):
            self._calls_by[call_id] = call
        call.add(raw)

    def _unnumbered(self, raw: dict[str, Any], position: int, *, alone: bool) -> _Pieces | None:
        """The call that a piece without index and id goes on with: the last one, unless that is whole and this a name.

        Several in one delta go by their places.
        """
        at = len(self._calls) - 1 if alone else position
        call = self._calls[at] if 0 <= at < len(self._calls) else None
        function = raw.get("function")
        named = isinstance(function, dict) and function.get("name")
        return None if call is not None and named and call.is_whole_call() else call

    def _detail(self, raw: Any) -> None:
        if not isinstance(raw, dict):
            self._details.append(raw)
            return
        key = (str(raw.get("type")), str(raw.get("index")))
        detail = self._details_by.get(key)
        if detail is None or not _goes_on(detail.fields, raw):
            detail = self._details_by[key] = _Pieces(_DETAIL_TEXTS, self._aside)
            self._details.append(detail)
        detail.add(raw)

    def _listed(self, key: str, items: list[Any]) -> None:
        """A list of which each delta brings a piece; items that are numbered are merged by number."""
        gathered = _gathering(self._message, key, list, self._aside)
        for item in items:
            number = item.get("index") if isinstance(item, dict) else None
            held = self._numbered.get((key, number)) if type(number) is int else None
            if held is None:
                gathered.append(_copied(item))
                if type(number) is int:
                    self._numbered[key, number] = gathered[-1]
                continue
            for name, value in item.items():
                _snapshot(held, name, value, self._aside)

    def whole(self) -> dict[str, Any]:
        message = self._message
        gathered: dict[str, Any] = {key: "".join(pieces) for key, pieces in self._texts.items()}
        if self._blocks:
            gathered["content"] = [_settled(block) for block in self._blocks]
        if self._calls:
            gathered["tool_calls"] = [call.whole(at) for at, call in enumerate(self._calls)]
        if self._details:
            gathered["reasoning_details"] = [
                detail.whole() if isinstance(detail, _Pieces) else detail for detail in self._details
            ]
        gathered |= {key: pieces.whole() for key, pieces in self._objects.items()}
        for key, item in gathered.items():
            _settle(message, key, item, self._aside)
        data = self._objects["audio"].texts.get("data", []) if "audio" in self._objects else []
        if len(data) > 1:  # policy sees the whole by digest: no piece is in that
            self._aside.setdefault("audio", []).extend(data)
        for message_copy in self._snapshots:
            if not adds_nothing(message_copy, message):
                self._aside.setdefault("message", []).append(message_copy)
        return {**self._fields, "message": message}


def _is_whole(choices: Any) -> bool:
    """Whether a chunk repeats the whole answer with its end: some services do so instead of `[DONE]`."""
    ends = [
        isinstance(choice, dict)
        and "delta" in choice
        and isinstance(choice.get("message"), dict)
        and bool(choice.get("finish_reason"))
        for choice in (choices if isinstance(choices, list) else ())
    ]
    return bool(ends) and all(ends)


def _goes_on(detail: dict[str, Any], raw: dict[str, Any]) -> bool:
    """Whether a reasoning detail continues an earlier one: same type and index, and not another id."""
    if detail.get("type") != raw.get("type") or detail.get("index") != raw.get("index"):
        return False
    own_id, other_id = detail.get("id"), raw.get("id")
    if raw.get("type") == "reasoning.encrypted":
        return own_id is not None and own_id == other_id
    return own_id is None or other_id is None or bool(own_id == other_id)


def _joined(last: dict[str, Any], block: Any) -> bool:
    """Whether `block` only goes on with the text of `last`, which then has it."""
    if not isinstance(block, dict) or last.get("type") != block.get("type"):
        return False
    text = last.get("text")
    if block.keys() == last.keys() == {"type", "text"} and isinstance(text, _Run) and isinstance(block["text"], str):
        text.append(block["text"])
        return True
    inner, more = last.get("thinking"), block.get("thinking")
    if block.keys() == last.keys() == {"type", "thinking"} and isinstance(inner, list) and isinstance(more, list):
        for item in more:
            if not inner or not isinstance(inner[-1], dict) or not _joined(inner[-1], item):
                inner.append(_running(item))
        return True
    return False


class _Run(list[str]):
    """A text that may go on, in pieces."""


def _running(block: Any) -> Any:
    """A copy of a block whose text, if it is nothing but one, may go on."""
    copy = _copied(block)
    if not isinstance(copy, dict):
        return copy
    if copy.keys() == {"type", "text"} and isinstance(copy["text"], str):
        copy["text"] = _Run([copy["text"]])
    elif copy.keys() == {"type", "thinking"} and isinstance(copy["thinking"], list):
        copy["thinking"] = [_running(item) for item in copy["thinking"]]
    return copy


def _settled(block: Any) -> Any:
    """The block with its texts joined."""
    if isinstance(block, _Run):
        return "".join(block)
    if isinstance(block, dict):
        return {key: _settled(item) for key, item in block.items()}
    return [_settled(item) for item in block] if isinstance(block, list) else block


# -- objects that come in pieces, and what holds where they differ [OAC-21], [OAC-22] ----------------------------------


class _Pieces:
    """An object that comes in pieces: some of its texts are concatenated, other fields come once or repeatedly."""

    __slots__ = ("_aside", "_inner", "_textual", "fields", "texts")

    def __init__(self, textual: tuple[str, ...], aside: Aside) -> None:
        self.fields: dict[str, Any] = {}
        self.texts: dict[str, list[str]] = {}
        self._inner: dict[str, _Pieces] = {}
        self._textual = textual
        self._aside = aside

    def add(self, raw: dict[str, Any]) -> None:
        """Take one more piece."""
        for key, item in raw.items():
            if isinstance(item, str) and key in self._textual:
                self.texts.setdefault(key, []).append(item)
            elif isinstance(item, str) and key == "name" and isinstance(self.fields.get(key), str):
                if item != self.fields[key]:  # a name comes once, repeatedly, or in pieces
                    self.fields[key] += item
            elif isinstance(item, dict) and key in _CALL_TEXTS and not self._textual:
                self._inner.setdefault(key, _Pieces(_CALL_TEXTS[key], self._aside)).add(item)
            elif not (item is None and key in self.texts):
                _snapshot(self.fields, key, item, self._aside)

    def whole(self, position: int | None = None) -> dict[str, Any]:
        """All of it, once it is complete; without its number, if that is `position`."""
        if position is not None and self.fields.get("index") == position:
            del self.fields["index"]  # chunks number calls, a whole body need not
        for key, pieces in self._inner.items():
            _settle(self.fields, key, pieces.whole(), self._aside)
        for key, texts in self.texts.items():
            _settle(self.fields, key, "".join(texts), self._aside)
        return self.fields

    def is_whole_call(self) -> bool:
        """Whether it names a function and has its arguments, as an object or as the text of one in few pieces."""
        function = self._inner.get("function")
        if function is None or not function.fields.get("name"):
            return False
        texts = function.texts.get("arguments", [])
        return isinstance(function.fields.get("arguments"), dict) or (
            len(texts) <= _FEW and loads_object("".join(texts)) is not None
        )


def _gathering(holder: dict[str, Any], key: str, kind: type[_Held], aside: Aside) -> _Held:
    """The object or list under `key`, to be continued; a new one if there is none, with any other value put aside."""
    held = holder.get(key)
    if isinstance(held, kind):
        return held
    if held:
        aside.setdefault(key, []).append(held)
    gathered = holder[key] = kind()
    return gathered


def _settle(holder: dict[str, Any], key: str, item: Any, aside: Aside) -> None:
    """Put what was gathered under `key`, and the previous value aside; it stays if nothing was gathered ("", [])."""
    held = holder.get(key)
    if held and not item:
        return
    if held:
        aside.setdefault(key, []).append(held)
    holder[key] = item


def _snapshot(holder: dict[str, Any], key: str, item: Any, aside: Aside) -> None:
    """Take `item` as what holds now. An older value is forgotten if the new one contains it, else it is put aside."""
    held = holder.get(key, _ABSENT)
    if held is _ABSENT or held is None:
        holder[key] = _copied(item)
    elif item is None or item == "" or same_spelling(held, item):
        pass
    elif isinstance(held, dict) and isinstance(item, dict):
        for name, inner in item.items():
            _snapshot(held, name, inner, aside)
    else:
        if not adds_nothing(held, item):
            aside.setdefault(key, []).append(held)
        holder[key] = _copied(item)


def adds_nothing(old: Any, new: Any) -> bool:
    """Whether every text and key of `old` is in `new`, at the same place; numbers and nulls do not count."""
    if isinstance(old, str):
        return not old or (isinstance(new, str) and new.startswith(old))
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and adds_nothing(item, new[key]) for key, item in old.items())
    if isinstance(old, list):
        fits = isinstance(new, list) and len(new) >= len(old)
        return not old or (fits and all(adds_nothing(before, after) for before, after in zip(old, new, strict=False)))
    return True


def _copied(value: Any) -> Any:
    """A copy that the fold may go on with. Raises ShapeError where it is nested deeper than values may be."""
    return thaw(freeze(value)) if isinstance(value, dict | list) else value


# -- streaming an answer again -----------------------------------------------------------------------------------------

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
    if top.get("object") == _WHOLE:
        top["object"] = _CHUNK
    base: dict[str, Any] = {key: top[key] for key in _IN_EVERY_CHUNK if key in top}
    choices = [chunk for at, choice in enumerate(body["choices"]) for chunk in _chunks_of(choice, at)]
    chunks: list[dict[str, Any]] = [{**base, "choices": [choice]} for choice in choices] or [{"choices": []}]
    chunks[-1] = {**top, **chunks[-1]}
    _cut_sound(object_in(dialect.own(response), _STREAM).get("audio"), chunks)
    if "usage" in body:
        chunks.append({**base, "choices": [], "usage": body["usage"]})
    if "error" in body:
        chunks.append({"error": body["error"]})
    events: list[WireEvent] = [{"data": chunk} for chunk in chunks]
    return [*events, {"data": _DONE}] if response.error is None and is_whole(response) else events


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
