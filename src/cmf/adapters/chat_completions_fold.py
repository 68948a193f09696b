"""The chunks of a chat completion, folded into the whole body.

The fold loses nothing that policy should see. What chunks say more than once and differently is kept aside under
`cmf_stream`, what is no chunk under `cmf_unheard`; both are shown and never emitted. Spec: docs/spec/adapters/
openai_chat.md [OAC-20] to [OAC-27].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cmf.adapters.base import WireEvent
from cmf.adapters.chat_completions_dialect import PARTIAL, RESERVED
from cmf.errors import ShapeError
from cmf.frozen import same_spelling

DONE: Final = "[DONE]"
CHUNK: Final = "chat.completion.chunk"
WHOLE: Final = "chat.completion"
_LAST_CHUNK: Final = "chat.completion.done"  # one service ends with this object instead of [DONE]
_PADDING: Final = frozenset({"obfuscation", "p"})  # random text against traffic analysis: no part of the answer
_TEXTS: Final = ("content", "refusal", "reasoning", "reasoning_content")
_DETAIL_TEXTS: Final = ("text", "summary", "data")
_ABSENT: Final = object()

Aside = dict[str, list[Any]]


def fold(events: Iterable[WireEvent]) -> Any:
    """The whole body that the events add up to, with `cmf_partial` unless the stream came to its end."""
    folder = _Fold()
    for at, event in enumerate(events):
        if not isinstance(event, dict):
            raise ShapeError("expected an event", path=f"$[{at}]", hint="an event has `data`")
        if "data" in event:
            folder.hear(event["data"])
    return folder.body()


class _Fold:
    """The state of one fold. Texts are gathered as pieces and joined once, so that a fold is linear in its bytes."""

    __slots__ = ("_aside", "_choices", "_done", "_had_choices", "_heard", "_top", "_unheard")

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self._aside: Aside = {}
        self._unheard: list[Any] = []
        self._had_choices = False
        self._heard = False
        self._done = False

    def hear(self, data: Any) -> None:
        if isinstance(data, str) and data.strip() == DONE:
            self._done = True
        elif isinstance(data, dict):
            self._heard = True
            self._chunk(data)
        else:
            self._unheard.append(data)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        for key, item in chunk.items():
            if key == "choices" and isinstance(item, list):
                self._had_choices = True
                for position, choice in enumerate(item):
                    self._choice(choice, position)
            elif key.startswith(RESERVED):
                self._unheard.append({key: item})
            elif key in _PADDING:
                self._aside.setdefault(key, []).append(item)
            elif key == "object" and item in (CHUNK, _LAST_CHUNK):
                self._done = self._done or item == _LAST_CHUNK
                _snapshot(self._top, key, WHOLE, self._aside)
            else:
                _snapshot(self._top, key, item, self._aside)

    def _choice(self, raw: Any, position: int) -> None:
        if not isinstance(raw, dict):
            self._unheard.append({"choices": raw})
            return
        index = raw.get("index")
        at = index if type(index) is int else position
        choice = self._choices.get(at)
        if choice is None:
            choice = self._choices[at] = _Choice(at, self._aside)
        choice.hear(raw)

    def body(self) -> Any:
        if not self._heard and not self._had_choices and len(self._unheard) == 1:
            return self._unheard[0]  # not a stream at all, but a body in an event
        body = self._top
        if self._had_choices or not self._heard:  # else it is an error body, which has no choices
            body["choices"] = [self._choices[at].whole() for at in sorted(self._choices)]
        failed = any("error" in choice for choice in body.get("choices") or ())
        nothing = "choices" in body and not body["choices"]
        broken = not self._done or "error" in body or failed or nothing
        if nothing and "error" not in body:
            body["choices"] = [{"index": 0, "message": {"role": "assistant"}}]
        if self._aside:
            body[RESERVED + "stream"] = self._aside
        if self._unheard:
            body[RESERVED + "unheard"] = self._unheard
        if broken:
            body[PARTIAL] = True
        return body


class _Choice:
    """One choice as its deltas come in."""

    __slots__ = (
        "_aside", "_blocks", "_calls", "_calls_by_index", "_details", "_details_by_key", "_fields", "_function",
        "_message", "_numbered", "_snapshots", "_sound", "_texts",
    )  # fmt: skip

    def __init__(self, index: int, aside: Aside) -> None:
        self._fields: dict[str, Any] = {"index": index}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._blocks: list[Any] = []
        self._calls: list[_Pieces] = []
        self._calls_by_index: dict[int, _Pieces] = {}
        self._details: list[_Pieces] = []
        self._details_by_key: dict[tuple[str, str], _Pieces] = {}
        self._numbered: dict[tuple[str, int], dict[str, Any]] = {}
        self._function: _Pieces | None = None
        self._sound: _Pieces | None = None
        self._snapshots: list[Any] = []
        self._aside = aside

    def hear(self, raw: dict[str, Any]) -> None:
        for key, item in raw.items():
            if key == "delta" and isinstance(item, dict):
                for name, said in item.items():
                    self._delta(name, said)
            elif key == "message" and item is not None:
                self._snapshots.append(item)
            elif key in _PADDING:
                self._aside.setdefault(key, []).append(item)
            elif key == "logprobs" and isinstance(item, dict):
                self._logprobs(item)
            elif key == "token_ids" and isinstance(item, list):
                _append(self._fields, key, item)
            elif not (key == "index" and type(item) is int) and not (key == "delta" and item is None):
                _snapshot(self._fields, key, item, self._aside)

    def _logprobs(self, raw: dict[str, Any]) -> None:
        known = self._fields.get("logprobs")
        mine = known if isinstance(known, dict) else {}
        self._fields["logprobs"] = mine
        for key, item in raw.items():
            if isinstance(item, list):
                _append(mine, key, item)
            else:
                _snapshot(mine, key, item, self._aside)

    def _delta(self, key: str, item: Any) -> None:
        if key in _TEXTS and isinstance(item, str):
            self._text(key, item)
        elif item is None:
            self._message.setdefault(key, None)
        elif key == "content" and isinstance(item, list):
            for block in item:
                self._block(block)
        elif key == "tool_calls" and isinstance(item, list):
            self._message[key] = []
            for position, call in enumerate(item):
                self._call(call, position)
        elif key == "function_call" and isinstance(item, dict):
            self._function = self._function or _Pieces(("arguments",), self._aside)
            self._function.hear(item)
        elif key == "audio" and isinstance(item, dict):
            self._sound = self._sound or _Pieces(("data", "transcript"), self._aside)
            self._sound.hear(item)
        elif key == "reasoning_details" and isinstance(item, list):
            self._message[key] = []
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

    def _call(self, raw: Any, position: int) -> None:
        if not isinstance(raw, dict):
            self._aside.setdefault("tool_calls", []).append(raw)
            return
        index, call_id = raw.get("index"), raw.get("id")
        known: _Pieces | None = None
        if type(index) is int:
            known = self._calls_by_index.get(index)
        elif not call_id or (position < len(self._calls) and self._calls[position].fields.get("id") == call_id):
            known = self._calls[position] if position < len(self._calls) else None
        if known is not None and call_id and known.fields.get("id") not in (None, "", call_id):
            known = None  # some services give every call the index 0: another id is another call
        if known is None:
            known = _Pieces((), self._aside)
            self._calls.append(known)
        if type(index) is int:
            self._calls_by_index[index] = known
        known.hear(raw)

    def _detail(self, raw: Any) -> None:
        if not isinstance(raw, dict):
            self._details.append(_Pieces.of(raw, self._aside))
            return
        key = (str(raw.get("type")), str(raw.get("index")))
        known = self._details_by_key.get(key)
        if known is None or not _goes_on(known.fields, raw):
            known = self._details_by_key[key] = _Pieces(_DETAIL_TEXTS, self._aside)
            self._details.append(known)
        known.hear(raw)

    def _listed(self, key: str, items: list[Any]) -> None:
        """A list of which each delta brings a piece; items that are numbered are merged by number."""
        held = self._message.get(key)
        mine: list[Any] = held if isinstance(held, list) else []
        self._message[key] = mine
        for item in items:
            number = item.get("index") if isinstance(item, dict) else None
            known = self._numbered.get((key, number)) if type(number) is int else None
            if known is None:
                mine.append(_copy(item))
                if type(number) is int:
                    self._numbered[key, number] = mine[-1]
                continue
            for name, said in item.items():
                _snapshot(known, name, said, self._aside)

    def whole(self) -> dict[str, Any]:
        message = self._message
        for key, pieces in self._texts.items():
            message[key] = "".join(pieces)
        if self._blocks:
            message["content"] = [_settled(block) for block in self._blocks]
        if self._calls:
            message["tool_calls"] = [call.whole(at) for at, call in enumerate(self._calls)]
        if self._details:
            message["reasoning_details"] = [detail.whole() for detail in self._details]
        if self._function is not None:
            message["function_call"] = self._function.whole()
        if self._sound is not None:
            message["audio"] = self._sound.whole()
            if len(data := self._sound.pieces("data")) > 1:  # policy sees the whole by digest: no piece is in that
                self._aside.setdefault("audio", []).extend(data)
        for snapshot in self._snapshots:
            if not adds_nothing(snapshot, message):
                self._aside.setdefault("message", []).append(snapshot)
        return {**self._fields, "message": message}


class _Pieces:
    """An object that comes in pieces: some of its texts add up, the rest is said once (or again)."""

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
        made = cls((), aside)
        made._value = value
        return made

    def hear(self, raw: dict[str, Any]) -> None:
        for key, item in raw.items():
            if isinstance(item, str) and key in self._textual:
                self._texts.setdefault(key, []).append(item)
            elif isinstance(item, str) and key == "name" and isinstance(self.fields.get(key), str):
                self._name(item)
            elif isinstance(item, dict) and key in _CALL_TEXTS and not self._textual:
                inner = self._inner.get(key)
                if inner is None:
                    inner = self._inner[key] = _Pieces(_CALL_TEXTS[key], self._aside)
                inner.hear(item)
            elif not (item is None and key in self._texts):
                _snapshot(self.fields, key, item, self._aside)

    def _name(self, more: str) -> None:
        """A name is said once, again and again, or in pieces."""
        known = self.fields["name"]
        if more != known:
            self.fields["name"] = known + more

    def pieces(self, key: str) -> list[str]:
        """The pieces that the text under `key` came in."""
        return self._texts.get(key, [])

    def whole(self, position: int | None = None) -> Any:
        if self._value is not _ABSENT:
            return self._value
        if position is not None and self.fields.get("index") == position:
            del self.fields["index"]  # chunks number calls, a whole body need not
        inner = {key: pieces.whole() for key, pieces in self._inner.items()}
        return {**self.fields, **inner, **{key: "".join(pieces) for key, pieces in self._texts.items()}}


_CALL_TEXTS: Final = {"function": ("arguments",), "custom": ("input",)}


def _goes_on(known: dict[str, Any], raw: dict[str, Any]) -> bool:
    """Whether a reasoning detail continues an earlier one: same type and index, and not another id."""
    if known.get("type") != raw.get("type") or known.get("index") != raw.get("index"):
        return False
    mine, theirs = known.get("id"), raw.get("id")
    if raw.get("type") == "reasoning.encrypted":
        return mine is not None and mine == theirs
    return mine is None or theirs is None or bool(mine == theirs)


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
    copy = _copy(block)
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


def _append(holder: dict[str, Any], key: str, items: list[Any]) -> None:
    known = holder.get(key)
    if not isinstance(known, list):
        known = holder[key] = []
    known.extend(map(_copy, items))


def _snapshot(holder: dict[str, Any], key: str, item: Any, aside: Aside) -> None:
    """Take `item` as what holds now. An older value is forgotten if the new one contains it, else it is put aside."""
    known = holder.get(key, _ABSENT)
    if known is _ABSENT or known is None:
        holder[key] = _copy(item)
    elif item is None or item == "" or same_spelling(known, item):
        pass
    elif isinstance(known, dict) and isinstance(item, dict):
        for name, inner in item.items():
            _snapshot(known, name, inner, aside)
    else:
        if not adds_nothing(known, item):
            aside.setdefault(key, []).append(known)
        holder[key] = _copy(item)


def adds_nothing(old: Any, new: Any) -> bool:
    """Whether every text and key of `old` is in `new`, at the same place; numbers and nulls do not count."""
    if isinstance(old, str):
        return not old or (isinstance(new, str) and new.startswith(old))
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and adds_nothing(item, new[key]) for key, item in old.items())
    if isinstance(old, list):
        fits = isinstance(new, list) and len(new) >= len(old)
        return not old or (fits and all(adds_nothing(mine, theirs) for mine, theirs in zip(old, new, strict=False)))
    return True


def _copy(value: Any) -> Any:
    """A copy that the fold may go on with."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
