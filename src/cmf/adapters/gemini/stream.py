"""Gemini's streams: chunks that each are a small answer, folded to one. Spec: docs/spec/adapters/gemini.md [GEM-21] ff.

There is no closing event: a stream is whole if each candidate came to a `finishReason` after its last part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from cmf.adapters.gemini.names import RESPONSE, normal
from cmf.adapters.gemini.parts_in import CODE, is_text, is_thought
from cmf.adapters.gemini.response import write_response
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import MARK, PARTIAL, strings_in
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta
from cmf.message.request import Response

SUPERSEDED: Final = f"{MARK}superseded"  # values that a later chunk replaced
UNRECOGNIZED: Final = f"{MARK}unrecognized"  # events that are no chunk

_UNSET: Final = (None, 0, "FINISH_REASON_UNSPECIFIED")  # a client's dump has these in every chunk but the last
_PIECES: Final = {  # lists of which each chunk brings its own
    "citationMetadata": ("citations", "citationSources"),
    "logprobsResult": ("chosenCandidates", "topCandidates"),
}
_UNREAD: Final = ("functionCall", "partialArgs")
_MAX_STEPS: Final = 32  # of a path inside streamed arguments

_STEP: Final = re.compile(r"""\.([A-Za-z_]\w*)|\[(\d{1,6})\]|\['([^'\\]*)'\]|\["([^"\\]*)"\]""")
_VALUES: Final[dict[str, tuple[type, ...]]] = {
    "stringValue": (str,),
    "numberValue": (int, float),
    "boolValue": (bool,),
    "nullValue": (type(None), str),
}


def fold_events(events: Iterable[WireEvent | Any]) -> dict[str, Any]:
    """The whole answer that the chunks add up to, in normal form; marked with `cmf_partial` where it was cut."""
    fold = _Fold()
    for event in events:
        if isinstance(event, dict) and "data" in event:
            fold.add(event["data"])
    return fold.body()


class _Fold:
    """The answer so far. Nothing is lost: values that a later chunk replaces are kept beside it."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._candidates: dict[Any, _Candidate] = {}
        self._any_candidates = False
        self._superseded: list[Any] = []
        self._unrecognized: list[Any] = []

    def add(self, data: Any) -> None:
        if isinstance(data, list):
            for each in data:
                self.add(each)
            return
        if not isinstance(data, dict):
            if data != "[DONE]":
                self._unrecognized.append(data)
            return
        for key, value in normal(data, RESPONSE)[0].items():
            if key == "candidates" and isinstance(value, list):
                self._any_candidates = True
                self._add_candidates(value)
            else:
                _set(self._top, key, value, self._superseded)

    def _add_candidates(self, candidates: list[Any]) -> None:
        seen: set[Any] = set()
        for position, raw in enumerate(candidates):
            if not isinstance(raw, dict):
                self._unrecognized.append(raw)
                continue
            key: Any = _key(raw, position)
            if key in seen:
                key = ("again", position)
            seen.add(key)
            self._candidates.setdefault(key, _Candidate(self._superseded)).add(raw)

    def body(self) -> dict[str, Any]:
        body = dict(self._top)
        candidates = list(self._candidates.values())
        if self._any_candidates:
            _settle(body, "candidates", [candidate.body() for candidate in candidates], self._superseded)
        if self._superseded:
            body[SUPERSEDED] = self._superseded
        if self._unrecognized:
            body[UNRECOGNIZED] = self._unrecognized
        if not self._ended(candidates):
            body[PARTIAL] = True
        return body

    def _ended(self, candidates: list[_Candidate]) -> bool:
        if candidates:
            return all(candidate.ended for candidate in candidates)
        feedback = self._top.get("promptFeedback")
        blocked = isinstance(feedback, dict) and feedback.get("blockReason") is not None
        return blocked or "error" in self._top


def _key(raw: dict[str, Any], position: int) -> int:
    index = raw.get("index")
    return index if type(index) is int else position


class _Candidate:
    """One candidate so far."""

    def __init__(self, superseded: list[Any]) -> None:
        self._fields: dict[str, Any] = {}
        self._content: dict[str, Any] | None = None
        self._parts: list[Any] | None = None
        self._superseded = superseded
        self._text: list[str] = []  # the pieces of the last part, if it is a text that went on
        self._arguments = _Arguments()  # of the last part, if it is a call
        self._own: dict[tuple[str, str], list[Any]] = {}  # lists of pieces that no chunk holds

    def add(self, raw: dict[str, Any]) -> None:
        for key, value in raw.items():
            if key == "content" and isinstance(value, dict):
                self._add_content(value, ends=raw.get("finishReason") not in _UNSET)
            elif key in _PIECES and isinstance(value, dict):
                self._add_pieces(key, value)
            else:
                _set(self._fields, key, value, self._superseded)

    def _add_pieces(self, key: str, value: dict[str, Any]) -> None:
        """Set `key`, with the lists that come in pieces after those before, unless it repeats them itself."""
        before = self._fields.get(key)
        if not isinstance(before, dict):
            _set(self._fields, key, dict(value), self._superseded)
            return
        lists = {name: (before.get(name), value.get(name)) for name in _PIECES[key]}
        more = {
            name: new
            for name, (old, new) in lists.items()
            if isinstance(old, list) and isinstance(new, list) and new[: len(old)] != old  # it does not repeat them
        }
        kept = len(self._superseded)
        if more.keys() < value.keys():
            rest = {name: item for name, item in value.items() if name not in more}
            _set(self._fields, key, rest, self._superseded)
        if len(self._superseded) > kept:
            self._own = {}  # what is kept there goes on no more
        for name, new in more.items():
            self._extend(self._fields[key], (key, name), new)

    def _extend(self, holder: dict[str, Any], name: tuple[str, str], items: list[Any]) -> None:
        """Put items behind those under the name's key, in a list that no chunk holds: copied once, not each time."""
        if self._own.get(name) is not holder[name[1]]:
            holder[name[1]] = self._own[name] = list(holder[name[1]])
        holder[name[1]] += items

    def _add_content(self, raw: dict[str, Any], *, ends: bool) -> None:
        if self._content is None:
            self._content = {}
        for key, value in raw.items():
            if key != "parts" or not isinstance(value, list):
                _set(self._content, key, value, self._superseded)
                continue
            if self._parts is None:
                self._parts = []
            if value and not ends and "finishReason" in self._fields:
                # It went on: that was the end of a step, such as a run of code, and not of the answer.
                self._superseded.append({"finishReason": self._fields.pop("finishReason")})
            for index, part in enumerate(value):
                self._add_part(part, first=index == 0)

    def _add_part(self, part: Any, *, first: bool) -> None:
        parts = self._parts if self._parts is not None else []
        last: Any = parts[-1] if parts else None
        if first and _is_joined(last, part):
            self._text = self._text or [last["text"]]
            self._text.append(part["text"])
            return
        if self._goes_on(last, part):
            parts[-1] = self._continued(last, part)
            return
        self._settle()
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            self._arguments = _Arguments()
            parts.append(self._continued({"functionCall": {}}, part))
        else:
            parts.append(part)

    def _settle(self) -> None:
        """Join what came in pieces of the last part: once, so that a fold is linear in its bytes."""
        last: Any = self._parts[-1] if self._parts else None
        if self._parts and self._text:
            self._parts[-1] = {**last, "text": "".join(self._text)}
        elif isinstance(last, dict) and isinstance(call := last.get("functionCall"), dict):
            self._arguments.settle(call)
        self._text = []

    @staticmethod
    def _goes_on(last: Any, part: Any) -> bool:
        """Whether `part` continues the call that `last` began."""
        if not isinstance(last, dict) or not isinstance(part, dict):
            return False
        before, now = last.get("functionCall"), part.get("functionCall")
        if not isinstance(before, dict) or not isinstance(now, dict):
            return False
        return before.get("willContinue") is True and "name" not in now

    def _continued(self, last: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
        continued = dict(last)
        call = dict(last["functionCall"])
        begins = not call
        call.pop("willContinue", None)
        for key, value in part.items():
            if key != "functionCall":
                _set(continued, key, value, self._superseded)
        new_call = part["functionCall"]
        if "args" in new_call:
            self._arguments.settle(call)
        is_whole = begins and bool(new_call.get("args")) and new_call.get("willContinue") is not True
        grows = isinstance(new_call.get("partialArgs"), list) and not is_whole
        for key, value in new_call.items():
            # A call that is whole as it begins stays as it is, with the pieces that had no place in it once.
            if not (key == "partialArgs" and grows) and (key != "willContinue" or value is not False or begins):
                _set(call, key, value, self._superseded)
        if grows:
            self._grow(call, new_call["partialArgs"])
        continued["functionCall"] = call
        return continued

    def _grow(self, call: dict[str, Any], pieces: list[Any]) -> None:
        unread = [piece for piece in pieces if not self._arguments.grow(call, piece)]
        if unread:
            if isinstance(call.get("partialArgs"), list):
                self._extend(call, _UNREAD, unread)
            else:
                _set(call, "partialArgs", unread, self._superseded)

    @property
    def ended(self) -> bool:
        """Whether it came to its end: code that was to run, or a call that was to go on, leaves it open."""
        last = self._parts[-1] if self._parts else None
        waiting = isinstance(last, dict) and (CODE in last or self._goes_on(last, {"functionCall": {}}))
        return self._fields.get("finishReason") not in _UNSET and not waiting

    def body(self) -> dict[str, Any]:
        body = dict(self._fields)
        if self._content is not None:
            content = dict(self._content)
            if self._parts is not None:
                self._settle()
                content["parts"] = self._parts
            _settle(body, "content", content, self._superseded)
        return body


def _is_joined(last: Any, part: Any) -> bool:
    """Whether two neighbours are pieces of one text: unsigned, and both thoughts or neither."""
    if not (is_text(last) and is_text(part)) and not (is_thought(last) and is_thought(part)):
        return False
    same = last.keys() == part.keys() and last.get("thought") is part.get("thought")
    return same and last.keys() <= {"text", "thought"}


def _set(holder: dict[str, Any], key: str, value: Any, superseded: list[Any]) -> None:
    """Set `key`; objects are united. Text that is thereby lost is kept in `superseded`.

    Null takes nothing back: a client's dump says so of all that a chunk does not have.
    """
    if key not in holder:
        holder[key] = value
        return
    old = holder[key]
    if value is None or old == value:
        return
    replaced = old
    if isinstance(old, dict) and isinstance(value, dict):
        holder[key] = {**old, **value}
        replaced = {name: old[name] for name in value if name in old and old[name] != value[name]}
    else:
        holder[key] = value
    lost = set(strings_in(replaced)).difference(strings_in(value))
    if lost and not lost <= set(strings_in(holder[key])):
        superseded.append({key: old})


def _settle(holder: dict[str, Any], key: str, gathered: Any, superseded: list[Any]) -> None:
    """Set `key` to what was gathered; what some chunk had there in another shape is kept in `superseded`."""
    if holder.get(key):
        superseded.append({key: holder[key]})
    holder[key] = gathered


# -- arguments that come in pieces, each with the path where it belongs [GEM-23] ---------------------------------------


class _Arguments:
    """The arguments of one call so far, in a tree of our own. Texts are kept in pieces until they are settled."""

    def __init__(self) -> None:
        self._growing: set[str] = set()  # paths of texts that go on
        self._tree: Any = None

    def grow(self, call: dict[str, Any], piece: Any) -> bool:
        """Put one piece in its place in the arguments of `call`, if it has one: whether it has."""
        placed = _piece(piece)
        arguments = call.get("args", {})
        if placed is None or not isinstance(arguments, dict):
            return False
        path, steps, value = placed
        if arguments is not self._tree:
            self._tree = _copied(arguments, _same)
        if not self._put(path, steps, value):
            return False
        call["args"] = self._tree
        if isinstance(value, str) and piece.get("willContinue") is True:
            self._growing.add(path)
        else:
            self._growing.discard(path)
        return True

    def _put(self, path: str, steps: list[str | int], value: Any) -> bool:
        before = _at(self._tree, steps) if isinstance(value, str) and path in self._growing else None
        if isinstance(before, _Run):
            before.pieces.append(value)
            return True
        return _placed(self._tree, steps, _Run(before, value) if isinstance(before, str) else value)

    def settle(self, call: dict[str, Any]) -> None:
        """Join what came in pieces of the arguments of `call`."""
        if self._tree is not None and call.get("args") is self._tree:
            call["args"] = self._tree = _copied(self._tree, _joined)


class _Run:
    """A text in pieces."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)


def _same(leaf: Any) -> Any:
    return leaf


def _joined(leaf: Any) -> Any:
    return "".join(leaf.pieces) if isinstance(leaf, _Run) else leaf


def _copied(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item, leaf) for key, item in value.items()}
    return [_copied(item, leaf) for item in value] if isinstance(value, list) else leaf(value)


# -- places ------------------------------------------------------------------------------------------------------------


def _piece(piece: Any) -> tuple[str, list[str | int], Any] | None:
    """Path, its steps, and the value of one piece; None if it has anything else."""
    if not isinstance(piece, dict) or not isinstance(path := piece.get("jsonPath"), str):
        return None
    kinds = [key for key in piece if key in _VALUES]
    if len(kinds) != 1 or not piece.keys() <= {"jsonPath", "willContinue", kinds[0]}:
        return None
    value = piece[kinds[0]]
    if not isinstance(value, _VALUES[kinds[0]]) or (kinds[0] == "numberValue" and isinstance(value, bool)):
        return None
    if kinds[0] == "nullValue":
        if value not in (None, "NULL_VALUE"):
            return None
        value = None
    steps = _steps(path)
    return None if steps is None else (path, steps, value)


def _steps(path: str) -> list[str | int] | None:
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) <= _MAX_STEPS:
        step = _STEP.match(path, at)
        if step is None:
            return None
        name, index, quoted, double = step.groups()
        steps.append(int(index) if index is not None else name or quoted or double or "")
        at = step.end()
    return steps if steps and len(steps) <= _MAX_STEPS and isinstance(steps[0], str) else None


def _at(value: Any, steps: list[str | int]) -> Any:
    """The value at the end of the steps; None if there is none."""
    for step in steps:
        if not _leads(value, step):
            return None
        value = value[step]
    return value


def _leads(holder: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(holder, dict) and step in holder
    return isinstance(holder, list) and step < len(holder)


def _placed(holder: Any, steps: list[str | int], new: Any) -> bool:
    """Put `new` at the end of the steps, and make what leads there; whether nothing is in the way."""
    depth = 0
    while depth < len(steps) - 1 and _leads(holder, steps[depth]):
        holder, depth = holder[steps[depth]], depth + 1
    step, *rest = steps[depth:]
    for inner in reversed(rest):
        if isinstance(inner, int) and inner > 0:
            return False
        new = {inner: new} if isinstance(inner, str) else [new]
    if isinstance(step, str) and isinstance(holder, dict):
        holder[step] = new
    elif isinstance(step, int) and isinstance(holder, list) and step <= len(holder):
        holder[step : step + 1] = [new]
    else:
        return False
    return True


# -- writing -----------------------------------------------------------------------------------------------------------


def error_event(text: str, reply: Any) -> WireEvent:
    """The chunk for an error with this text."""
    return {"data": {"error": {"message": text}}}


def write_events(response: Response) -> list[WireEvent]:
    """The chunks that fold to the body of the response: a part each, the rest with the last one."""
    body = write_response(response)
    if isinstance(body, list):
        return [{"data": each} for each in body]
    candidates = body.get("candidates")
    if not isinstance(candidates, list) or len(candidates) != 1:
        return [{"data": body}]
    candidate = candidates[0]
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    pieces = _pieces(parts) if isinstance(parts, list) else []
    if len(pieces) < 2:
        return [{"data": body}]
    about = {key: body[key] for key in ("modelVersion", "responseId") if key in body}
    who = {key: content[key] for key in ("role",) if key in content}
    where = {key: candidate[key] for key in ("index",) if key in candidate}
    events: list[WireEvent] = [
        {"data": {"candidates": [{"content": {"parts": piece, **who}, **where}], **about}} for piece in pieces[:-1]
    ]
    last = {**body, "candidates": [{**candidate, "content": {**content, "parts": pieces[-1]}}]}
    return [*events, {"data": last}]


def _pieces(parts: list[Any]) -> list[list[Any]]:
    """Parts in chunks, such that none of them joins with the chunk before."""
    pieces: list[list[Any]] = []
    for part in parts:
        if pieces and _is_joined(pieces[-1][-1], part):
            pieces[-1].append(part)
        else:
            pieces.append([part])
    return pieces


# -- live --------------------------------------------------------------------------------------------------------------


class LiveDecoder:
    """What each chunk adds at once. Never raises: what it cannot read, the decoder of the fold will refuse or show."""

    def __init__(self) -> None:
        self._choices: dict[int, int] = {}  # by the key of the candidate
        self._calls = LiveCalls()  # by choice: one goes on at a time

    def __call__(self, event: WireEvent) -> list[StreamEvent]:
        """The canonical events of one wire event."""
        data = event.get("data")
        chunks = data if isinstance(data, list) else [data]
        return [live for chunk in chunks for live in self._chunk(chunk)]

    def _chunk(self, chunk: Any) -> Iterator[StreamEvent]:
        candidates = normal(chunk, RESPONSE)[0].get("candidates") if isinstance(chunk, dict) else None
        for position, raw in enumerate(candidates if isinstance(candidates, list) else ()):
            if not isinstance(raw, dict):
                continue
            key = _key(raw, position)
            choice = self._choices.setdefault(key, len(self._choices))
            content = raw.get("content")
            parts = content.get("parts") if isinstance(content, dict) else None
            for part in parts if isinstance(parts, list) else ():
                yield from self._part(part, choice)

    def _part(self, part: Any, choice: int) -> Iterator[StreamEvent]:
        if is_text(part):
            yield TextDelta(text=part["text"], choice=choice)
        elif is_thought(part):
            yield ThinkingDelta(text=part["text"], choice=choice)
        elif isinstance(part, dict) and isinstance(call := part.get("functionCall"), dict):
            yield from self._call(call, choice)

    def _call(self, call: dict[str, Any], choice: int) -> Iterator[StreamEvent]:
        if isinstance(name := call.get("name"), str):
            yield self._calls.begin(choice, call.get("id"), name, choice)
        pieces = call.get("partialArgs")
        if choice in self._calls and isinstance(pieces, list):
            yield self._calls.grow(choice, sum(map(len, strings_in(pieces))))
