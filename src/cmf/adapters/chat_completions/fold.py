"""The chunks of a chat completion, folded into the whole body.

The fold loses nothing that policy should see. What chunks say more than once and differently is kept aside under
`cmf_stream`, what is no chunk under `cmf_unrecognized`; both are shown, and no body is written with them. Spec:
docs/spec/adapters/openai_chat.md [OAC-20] to [OAC-25].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from cmf.adapters.chat_completions.dialect import STREAM, THOUGHTS
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import MARK, PARTIAL
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import MAX_DEPTH, same_spelling, too_deep

DONE: Final = "[DONE]"
CHUNK: Final = "chat.completion.chunk"
WHOLE: Final = "chat.completion"
_LAST_CHUNK: Final = "chat.completion.done"  # one service ends with this object instead of [DONE]
PADDING: Final = ("obfuscation", "p")  # random text against traffic analysis: no part of the answer
_TEXTS: Final = ("content", "refusal", *THOUGHTS)
_DETAIL_TEXTS: Final = ("text", "summary", "data")
_ABSENT: Final = object()
_FEW: Final = 4  # texts of more pieces are not asked whether they are whole: that would take a look at all, each time
_CALL_TEXTS: Final = {"function": ("arguments",), "custom": ("input",)}
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
        if isinstance(data, str) and data.strip() == DONE:
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
                    self._choice(choice, position)
            elif key.startswith(MARK) or (key == "choices" and item is not None):
                self._unrecognized.append({key: item})
            elif key in PADDING:
                self._aside.setdefault(key, []).append(item)
            elif key == "object" and item in (CHUNK, _LAST_CHUNK):
                self._done = self._done or item == _LAST_CHUNK
                _snapshot(self._top, key, WHOLE, self._aside)
            else:
                _snapshot(self._top, key, item, self._aside)
        if chunk.get("object") == WHOLE:
            self._done = self._done or _is_whole(chunk.get("choices"))

    def _choice(self, raw: Any, position: int) -> None:
        if not isinstance(raw, dict):
            self._unrecognized.append({"choices": raw})
            return
        index = raw.get("index")
        at = index if type(index) is int else position
        choice = self._choices.get(at)
        if choice is None:
            choice = self._choices[at] = _Choice(at, self._aside)
        choice.add(raw)

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
            body[STREAM] = {**self._aside, **_padding(self._aside)}
        if self._unrecognized:
            body[f"{MARK}unrecognized"] = self._unrecognized
        if broken:
            body[PARTIAL] = True
        return body


def _padding(aside: Aside) -> dict[str, str]:
    """Padding as one text, wherever the stream had it: it is cut anew when it is streamed again."""
    padding = {key: aside[key] for key in PADDING if key in aside}
    return {key: " ".join(pieces) for key, pieces in padding.items() if all(isinstance(piece, str) for piece in pieces)}


class _Choice:
    """One choice as its deltas come in."""

    __slots__ = (
        "_aside", "_blocks", "_calls", "_calls_by_id", "_calls_by_index", "_details", "_details_by_key", "_fields",
        "_function", "_message", "_numbered", "_snapshots", "_sound", "_texts",
    )  # fmt: skip

    def __init__(self, index: int, aside: Aside) -> None:
        self._fields: dict[str, Any] = {"index": index}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._blocks: list[Any] = []
        self._calls: list[_Pieces] = []
        self._calls_by_index: dict[int, _Pieces] = {}
        self._calls_by_id: dict[str, _Pieces] = {}
        self._details: list[_Pieces] = []
        self._details_by_key: dict[tuple[str, str], _Pieces] = {}
        self._numbered: dict[tuple[str, int], dict[str, Any]] = {}
        self._function: _Pieces | None = None
        self._sound: _Pieces | None = None
        self._snapshots: list[Any] = []
        self._aside = aside

    def add(self, raw: dict[str, Any]) -> None:
        for key, item in raw.items():
            if key == "delta" and isinstance(item, dict):
                for name, value in item.items():
                    self._delta(name, value)
            elif key == "message" and item is not None:
                self._snapshots.append(item)
            elif key in PADDING:
                self._aside.setdefault(key, []).append(item)
            elif key == "logprobs" and isinstance(item, dict):
                self._logprobs(item)
            elif key == "token_ids" and isinstance(item, list):
                _gathering(self._fields, key, list, self._aside).extend(map(_copied, item))
            elif key == "delta" and item is not None:
                self._aside.setdefault(key, []).append(item)
            elif not (key == "index" and type(item) is int) and not (key == "delta" and item is None):
                _snapshot(self._fields, key, item, self._aside)

    def _logprobs(self, raw: dict[str, Any]) -> None:
        gathered = _gathering(self._fields, "logprobs", dict, self._aside)
        for key, item in raw.items():
            if isinstance(item, list):
                _gathering(gathered, key, list, self._aside).extend(map(_copied, item))
            else:
                _snapshot(gathered, key, item, self._aside)

    def _delta(self, key: str, item: Any) -> None:
        if key in _TEXTS and isinstance(item, str):
            self._text(key, item)
        elif item is None:
            self._message.setdefault(key, None)
        elif key == "content" and not isinstance(item, list):  # some services parse a piece that is a number, or JSON
            self._text(key, dumps(item).decode())
        elif key == "content" and isinstance(item, list):
            if not item:
                self._message[key] = []
            for block in item:
                self._block(block)
        elif key == "tool_calls" and isinstance(item, list):
            _gathering(self._message, key, list, self._aside)
            for position, call in enumerate(item):
                self._call(call, position, alone=len(item) == 1)
        elif key == "function_call" and isinstance(item, dict):
            self._function = self._function or _Pieces(("arguments",), self._aside)
            self._function.add(item)
        elif key == "audio" and isinstance(item, dict):
            self._sound = self._sound or _Pieces(("data", "transcript"), self._aside)
            self._sound.add(item)
        elif key == "reasoning_details" and isinstance(item, list):
            _gathering(self._message, key, list, self._aside)
            for detail in item:
                self._detail(detail)
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

    def _call(self, raw: Any, position: int, *, alone: bool) -> None:
        if not isinstance(raw, dict):
            self._aside.setdefault("tool_calls", []).append(raw)
            return
        index, call_id = raw.get("index"), raw.get("id")
        if type(index) is int:
            call = self._calls_by_index.get(index)
            if call is None and not call_id and 0 <= index < len(self._calls):
                call = self._calls[index] if "index" not in self._calls[index].fields else None  # numbered from now on
            if call is not None and call_id and call.fields.get("id") not in (None, "", call_id):
                call = None  # some services give every call the index 0: another id is another call
        elif isinstance(call_id, str) and call_id:
            call = self._calls_by_id.get(call_id)
        else:
            call = self._unnumbered(raw, position, alone=alone)
        if call is None:
            call = _Pieces((), self._aside)
            self._calls.append(call)
        if type(index) is int:
            self._calls_by_index[index] = call
        if isinstance(call_id, str):
            self._calls_by_id[call_id] = call
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
            self._details.append(_Pieces.of(raw, self._aside))
            return
        key = (str(raw.get("type")), str(raw.get("index")))
        detail = self._details_by_key.get(key)
        if detail is None or not _goes_on(detail.fields, raw):
            detail = self._details_by_key[key] = _Pieces(_DETAIL_TEXTS, self._aside)
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
            gathered["reasoning_details"] = [detail.whole() for detail in self._details]
        if self._function is not None:
            gathered["function_call"] = self._function.whole()
        if self._sound is not None:
            gathered["audio"] = self._sound.whole()
        for key, item in gathered.items():
            _settle(message, key, item, self._aside)
        if self._sound is not None:
            data = self._sound.pieces("data")
            if len(data) > 1:  # policy sees the whole by digest: no piece is in that
                self._aside.setdefault("audio", []).extend(data)
        for message_copy in self._snapshots:
            if not adds_nothing(message_copy, message):
                self._aside.setdefault("message", []).append(message_copy)
        return {**self._fields, "message": message}


def _is_whole(choices: Any) -> bool:
    """Whether a chunk repeats the whole answer with its end: some services do so instead of `[DONE]`."""
    return (
        isinstance(choices, list)
        and bool(choices)
        and all(
            isinstance(choice, dict)
            and "delta" in choice
            and isinstance(choice.get("message"), dict)
            and choice.get("finish_reason")
            for choice in choices
        )
    )


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

    __slots__ = ("_aside", "_inner", "_texts", "_textual", "_value", "fields")

    def __init__(self, textual: tuple[str, ...], aside: Aside) -> None:
        self.fields: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._inner: dict[str, _Pieces] = {}
        self._textual = textual
        self._aside = aside
        self._value: Any = _ABSENT

    @classmethod
    def of(cls, value: Any, aside: Aside) -> _Pieces:
        """Something that is no object: whole as it is."""
        pieces = cls((), aside)
        pieces._value = value
        return pieces

    def add(self, raw: dict[str, Any]) -> None:
        """Take one more piece."""
        for key, item in raw.items():
            if isinstance(item, str) and key in self._textual:
                self._texts.setdefault(key, []).append(item)
            elif isinstance(item, str) and key == "name" and isinstance(self.fields.get(key), str):
                self._name(item)
            elif isinstance(item, dict) and key in _CALL_TEXTS and not self._textual:
                inner = self._inner.get(key)
                if inner is None:
                    inner = self._inner[key] = _Pieces(_CALL_TEXTS[key], self._aside)
                inner.add(item)
            elif not (item is None and key in self._texts):
                _snapshot(self.fields, key, item, self._aside)

    def _name(self, more: str) -> None:
        """A name comes once, repeatedly, or in pieces."""
        name = self.fields["name"]
        if more != name:
            self.fields["name"] = name + more

    def pieces(self, key: str) -> list[str]:
        """The pieces that the text under `key` came in."""
        return self._texts.get(key, [])

    def whole(self, position: int | None = None) -> Any:
        """All of it, once it is complete; without its number, if that is `position`."""
        if self._value is not _ABSENT:
            return self._value
        if position is not None and self.fields.get("index") == position:
            del self.fields["index"]  # chunks number calls, a whole body need not
        fields = self.fields
        for key, pieces in self._inner.items():
            _settle(fields, key, pieces.whole(), self._aside)
        for key, texts in self._texts.items():
            _settle(fields, key, "".join(texts), self._aside)
        return fields

    def is_whole_call(self) -> bool:
        """Whether it names a function and has its arguments, as an object or as the text of one in few pieces."""
        function = self._inner.get("function")
        if function is None or not function.fields.get("name"):
            return False
        texts = function.pieces("arguments")
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


def _copied(value: Any, _levels: int = MAX_DEPTH) -> Any:
    """A copy that the fold may go on with. Raises ShapeError where it is nested deeper than values may be."""
    if not isinstance(value, dict | list):
        return value
    if not _levels:
        raise too_deep()
    if isinstance(value, dict):
        return {key: _copied(item, _levels - 1) for key, item in value.items()}
    return [_copied(item, _levels - 1) for item in value]
