"""Streams of the Responses format: the whole answer that one adds up to; streaming one again; decoding it live.

The events say most things three times: in pieces, whole, and in the final response. The fold takes the final word where
there is one, and keeps whatever was streamed and is not in it under `cmf_stream`: a client heard it, so it is judged.
Spec: docs/spec/adapters/openai_responses.md [RSP-13] to [RSP-17]; docs/spec/streaming.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from cmf.adapters.openai_responses.bodies import write_response
from cmf.adapters.openai_responses.parts import CALLS, STREAM
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import PARTIAL
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta, contradiction
from cmf.enums import MessageStatus, StopReason
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import freeze, same_json, thaw
from cmf.message.request import Response

Path: TypeAlias = tuple[str | int, ...]

_PIECES: Final[dict[str, tuple[str, ...]]] = {
    "response.output_text": ("content", "content_index", "text"),
    "response.refusal": ("content", "content_index", "refusal"),
    "response.reasoning_text": ("content", "content_index", "text"),
    "response.reasoning_summary_text": ("summary", "summary_index", "text"),
    "response.function_call_arguments": ("arguments",),
    "response.mcp_call_arguments": ("arguments",),
    "response.custom_tool_call_input": ("input",),
    "response.code_interpreter_call_code": ("code",),
    "response.apply_patch_call_operation_diff": ("operation", "diff"),
    "response.shell_call_command": ("action", "commands", "command_index"),
}
"""Events `.delta` and `.done` (and `.added`, for a command): where in the item their text goes."""

_PARTS: Final = {
    "response.content_part.added": ("content", "content_index"),
    "response.content_part.done": ("content", "content_index"),
    "response.reasoning_summary_part.added": ("summary", "summary_index"),
    "response.reasoning_summary_part.done": ("summary", "summary_index"),
}
_PART_TYPES: Final = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
}
_SKELETONS: Final = {
    "content": "message", "summary": "reasoning", "arguments": "function_call", "input": "custom_tool_call",
    "code": "code_interpreter_call", "operation": "apply_patch_call", "action": "shell_call",
}  # fmt: skip

_CALL_PIECES: Final = frozenset(base for base, path in _PIECES.items() if path[0] not in ("content", "summary"))
_CALLED: Final = frozenset(
    {"type", "name", "call_id", "namespace", "server_label"}
    | {key for call in CALLS.values() for key in (call.text, call.whole, *call.keys) if key is not None}
)
"""The fields of an item that say which call it is."""

_OPENING: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_CLOSING: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_ANNOTATION: Final = "response.output_text.annotation.added"
_PROGRESS: Final = frozenset(
    f"response.{call}.{state}"
    for call in (
        "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call",
        "mcp_list_tools", "compaction",
    )
    for state in ("in_progress", "searching", "interpreting", "generating", "completed", "failed", "compacting")
)  # fmt: skip
"""Events that only say how far a call is."""

_INDEXES: Final = frozenset(
    {"sequence_number", "output_index", "content_index", "summary_index", "annotation_index", "command_index"}
)
_UNFINISHED: Final = frozenset({"in_progress", "queued", "searching", "generating", "interpreting", "calling"})
_NOTHING: Final = object()


def fold_events(events: Iterable[WireEvent]) -> dict[str, Any]:
    """The response body that the events add up to; with the mark `cmf_partial` where no terminal event is among them.

    What was streamed but is not in the body stands in `cmf_stream`: `unfolded` (what is left of such events) and
    `padding` (the texts that only hide the length of a piece).
    """
    folding = _Fold()
    for event in events:
        folding.take(event)
    return folding.body()


class _Fold:
    """The events so far. Everything is linear in their size."""

    def __init__(self) -> None:
        self.item_events: list[tuple[dict[str, Any], int]] = []  # events about an item, with the item's index
        self.lives: list[dict[str, Any]] = []  # events about the response
        self.strays: list[Any] = []
        self.padding: list[str] = []
        self.opening: dict[str, Any] | None = None
        self.closing: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self.added: dict[int, dict[str, Any]] = {}
        self.done: dict[int, dict[str, Any]] = {}
        self.parts: dict[int, dict[Path, dict[str, Any]]] = {}
        self.pieces: dict[int, dict[Path, list[str]]] = {}
        self.wholes: dict[int, dict[Path, str]] = {}
        self.types: dict[int, dict[Path, str]] = {}  # of content parts of which only pieces were received
        self.probabilities: dict[int, dict[Path, list[Any]]] = {}
        self.by_id: dict[str, int] = {}

    def take(self, event: WireEvent) -> None:
        """One more event."""
        if not isinstance(event, dict):
            raise ShapeError("an event must be an object", path="$", hint="see cmf.adapters.wire.base.WireEvent")
        data = freeze(event.get("data"))
        if data is None or data == "[DONE]":
            return
        kind = data.get("type") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not (isinstance(kind, str) or "error" in data):
            self.strays.append(data)
        elif (not isinstance(kind, str) or kind == "error") and self.error is None:
            self.error = data
        elif kind in _OPENING | _CLOSING and isinstance(response := data.get("response"), dict):
            if kind in _CLOSING:
                self.closing = response
            else:
                self.opening = response
            self.lives.append(data)
        elif not isinstance(kind, str) or not self._take_of_item(kind, data):
            self.strays.append(data)

    def _take_of_item(self, kind: str, data: dict[str, Any]) -> bool:
        at = self._index(data)
        item, part = data.get("item"), data.get("part")
        if kind in ("response.output_item.added", "response.output_item.done") and isinstance(item, dict):
            (self.added if kind.endswith("added") else self.done)[at] = item
            if isinstance(name := item.get("id"), str):
                self.by_id.setdefault(name, at)
        elif kind in _PARTS and isinstance(part, dict):
            self.parts.setdefault(at, {})[_path_of(_PARTS[kind], data)] = part
        elif not (kind == _ANNOTATION or kind in _PROGRESS or self._take_piece(kind, data, at)):
            return False
        self.item_events.append((data, at))
        return True

    def _take_piece(self, kind: str, data: dict[str, Any], at: int) -> bool:
        base, _, step = kind.rpartition(".")
        where = _PIECES.get(base)
        text = data.get(_piece_key(base, step)) if where is not None else None
        if where is None or not isinstance(text, str) or step not in ("delta", "done", "added"):
            return False
        path = _path_of(where, data)
        if base in _PART_TYPES:
            self.types.setdefault(at, {})[path[:-1]] = _PART_TYPES[base]
        if step == "done":
            self.wholes.setdefault(at, {})[path] = text
        else:
            self.pieces.setdefault(at, {}).setdefault(path, []).append(text)
        tokens = data.get("logprobs")
        if step == "delta" and isinstance(tokens, list) and tokens:
            self.probabilities.setdefault(at, {}).setdefault(path, []).extend(tokens)
        return True

    def _index(self, data: dict[str, Any]) -> int:
        at, name = data.get("output_index"), data.get("item_id")
        return at if type(at) is int else self.by_id.get(name, 0) if isinstance(name, str) else 0

    # -- the body ------------------------------------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """The folded body."""
        if self.opening is None and self.closing is None and not self.item_events:
            if self.error is not None:
                return self._error_body()
            if len(self.strays) == 1 and isinstance(self.strays[0], dict) and "type" not in self.strays[0]:
                # The only event is a body: an error, or else an answer that never ended as a stream does.
                only = {key: value for key, value in self.strays[0].items() if key != PARTIAL}
                return only if only.keys().isdisjoint(("output", "status", "object")) else {**only, PARTIAL: True}
        last = self.closing if self.closing is not None else self.opening
        body: dict[str, Any] = dict(last) if last is not None else {}
        indexes = {*self.added, *self.done, *self.parts, *self.pieces, *self.wholes}
        items = {at: self._item(at) for at in sorted(indexes)}
        final = body.get("output")
        if self.closing is not None and isinstance(final, list) and final:
            shown = dict(enumerate(final))
        else:
            shown = items
            if items or not ("output" in body or "status" in body or body.get("object") == "response"):
                body["output"] = list(items.values())
        if self.error is not None:
            body["error"] = _flat_error(self.error, self.strays)
        if self.closing is None:
            body[PARTIAL] = True
        self._refuse_contradictions(shown)
        left = self._unfolded(body, shown)
        if left or self.padding:
            body[STREAM] = {"unfolded": left, "padding": " ".join(self.padding)}
        return body

    def _error_body(self) -> dict[str, Any]:
        """The response that the provider would have sent without streaming."""
        data = self.error or {}
        if isinstance(data.get("error"), dict | str):
            numbered = type(data.get("sequence_number")) is int
            framing = {"type": data.get("type") == "error", "sequence_number": numbered}
            body = {key: value for key, value in data.items() if not framing.get(key)}
        else:
            body = {"error": _flat_error(data, self.strays)}
        if self.strays:
            body[STREAM] = {"unfolded": self.strays, "padding": ""}
        return body

    def _item(self, at: int) -> Any:
        """The item in its last form: the complete one, with what it lacks taken from its pieces."""
        done = self.done.get(at)
        parts, pieces, wholes = (item_events.get(at, {}) for item_events in (self.parts, self.pieces, self.wholes))
        paths = [path for path in (*parts, *pieces, *wholes) if _get(done, path) is None]
        if done is not None and not paths:
            return done
        started = done if done is not None else self.added.get(at)
        types = self.types.get(at, {})
        item: dict[str, Any] = thaw(started) if started is not None else {}
        if started is None:  # only pieces were received
            kind = "reasoning" if "reasoning_text" in types.values() else _SKELETONS.get(str(paths[0][0]), "message")
            item = {"type": kind, "role": "assistant"} if kind == "message" else {"type": kind}
        for path in paths:
            if path in parts:
                _put(item, path, thaw(parts[path]))
            else:
                _put(item, path, wholes.get(path, "".join(pieces.get(path, ()))), types.get(path[:-1]))
        return item

    # -- what contradicts the body -------------------------------------------------------------------------------------

    def _refuse_contradictions(self, items: dict[int, Any]) -> None:
        """Refuse events that tell of another call than the body does: clients act on events, and the body is judged."""
        finals = _Finals(items)
        for data in self.lives:
            output = data["response"].get("output") if data["response"] is not self.closing else None
            for at, said in enumerate(output if isinstance(output, list) else ()):
                if isinstance(said, dict):
                    _refuse_other_call(said, finals.item(at, said), f"$.output[{at}]", begins=data["type"] in _OPENING)
        for data, at in self.item_events:
            if isinstance(said := data.get("item"), dict):
                begins = data["type"] == "response.output_item.added"
                _refuse_other_call(said, finals.item(at, said), f"$.output[{at}]", begins=begins)
            elif data["type"].rpartition(".")[0] in _CALL_PIECES and "name" in data:
                _refuse_other(data["name"], _get(self._final_of(at, finals), ("name",)), f"$.output[{at}].name")
        for pieces, begins in ((self.pieces, True), (self.wholes, False)):
            for at, by_path in pieces.items():
                final = self._final_of(at, finals)
                for path, texts in by_path.items():
                    seen, said = "".join(texts), _get(final, path)
                    resumed = begins and at not in self.added and isinstance(said, str) and said.endswith(seen)
                    if path[0] not in ("content", "summary") and not resumed:  # those are words
                        _refuse_other(seen, said, f"$.output[{at}]{_pointer(path).replace('/', '.')}")

    def _final_of(self, at: int, finals: _Finals) -> Any:
        """The item of the body that the events of index `at` tell of."""
        return finals.item(at, self.done.get(at, self.added.get(at)))

    # -- what the body does not say ------------------------------------------------------------------------------------

    def _unfolded(self, body: dict[str, Any], items: dict[int, Any]) -> list[Any]:
        """What the events have beyond the body."""
        kept: dict[bytes, dict[str, Any]] = {}  # each thing once

        def keep(rest: dict[str, Any]) -> None:
            kept.setdefault(dumps(rest), rest)

        for data in self.lives:
            rest = _unexplained(data["response"], body)
            said = ({} if rest is _NOTHING else {"response": rest}) | self._others(data, "response")
            if said:
                keep({"type": data["type"], **said})
        for data, at in self.item_events:
            rest = self._rest_of(data, items.get(at))
            index = {"output_index": at} if "item" in rest else {}  # where to say it again
            if said := rest | index | self._others(data, *_PAYLOADS):
                keep({"type": data["type"], **said})
        for at, by_path in self.pieces.items():
            for path, pieces in by_path.items():
                text = "".join(pieces)
                if text and _get(items.get(at), path) != text:
                    keep({"output_index": at, "at": _pointer(path), "delta": text})
        for at, tokens_by_path in self.probabilities.items():
            for path, tokens in tokens_by_path.items():
                rest = _unexplained(tokens, _get(items.get(at), (*path[:-1], "logprobs")))
                if rest is not _NOTHING:
                    keep({"output_index": at, "at": _pointer(path), "logprobs": rest})
        return [*kept.values(), *self.strays]

    def _others(self, data: dict[str, Any], *known: str) -> dict[str, Any]:
        """Of an event: fields that are neither its payload nor its place."""
        fields = {key: value for key, value in data.items() if key not in known and key not in ("type", "item_id")}
        rest = {key: value for key, value in fields.items() if not (key in _INDEXES and type(value) is int)}
        if isinstance(rest.get("obfuscation"), str):
            self.padding.append(rest.pop("obfuscation"))
        return rest

    def _rest_of(self, data: dict[str, Any], item: Any) -> dict[str, Any]:
        """Of an event about an item: what the item does not say."""
        kind, rest = data["type"], dict[str, Any]()
        if "item_id" in data and not (isinstance(item, dict) and item.get("id") == data["item_id"]):
            rest["item_id"] = data["item_id"]
        for key in (name for name in _PAYLOADS if name in data and name != "item_id"):
            final = self._final(kind, key, data, item)
            if final is not _HELD and (left := _unexplained(data[key], final)) is not _NOTHING:
                rest[key] = left
        return rest

    def _final(self, kind: str, key: str, data: dict[str, Any], item: Any) -> Any:
        """What the final item has where an event's payload belongs; `_HELD` if pieces are compared together."""
        if key == "item":
            return item
        if key == "part":
            return _get(item, _path_of(_PARTS[kind], data)) if kind in _PARTS else None
        if key == "annotation":
            path_there = (*_path_of(("content", "content_index", "annotations"), data), data.get("annotation_index"))
            return _get(item, path_there) if kind == _ANNOTATION else None  # type: ignore[arg-type]  # any JSON
        base, _, step = kind.rpartition(".")
        where = _PIECES.get(base)
        if where is None:
            return None
        path = _path_of(where, data)
        if key == "logprobs":
            return _HELD if step == "delta" and isinstance(data[key], list) else _get(item, (*path[:-1], "logprobs"))
        if key == "name":
            return item.get("name") if isinstance(item, dict) else None
        if key != _piece_key(base, step):
            return None
        return _HELD if step in ("delta", "added") else _get(item, path)


_HELD: Final = object()
_PAYLOADS: Final = (
    "item_id", "item", "part", "annotation", "logprobs", "delta", "text", "refusal", "arguments", "input", "code",
    "diff", "command", "name",
)  # fmt: skip


def _unexplained(seen: Any, final: Any, key: str = "") -> Any:
    """What of `seen` has text (keys included) that `final` has not in the same place; `_NOTHING` if it has all."""
    if seen is final or seen is None:
        return _NOTHING
    if isinstance(seen, str):
        unfinished = key == "status" and seen in _UNFINISHED
        return _NOTHING if not seen or seen == final or unfinished else seen
    if isinstance(seen, dict):
        held = final if isinstance(final, dict) else {}
        left = {}
        for name, item in seen.items():
            rest = _unexplained(item, held.get(name), name)
            if rest is not _NOTHING:
                left[name] = rest
            elif name not in held:
                left[name] = item
        return left or _NOTHING
    if isinstance(seen, list):
        known_items = final if isinstance(final, list) else []
        rests = [_unexplained(item, known_items[at] if at < len(known_items) else None) for at, item in enumerate(seen)]
        return [rest for rest in rests if rest is not _NOTHING] or _NOTHING
    return _NOTHING


def _flat_error(data: dict[str, Any], strays: list[Any]) -> Any:
    """The error that an event tells of: nested, or flat in the event itself."""
    rest = {key: value for key, value in data.items() if not (key in _INDEXES and type(value) is int)}
    if data.get("type") == "error":
        del rest["type"]
    if data.get("error") is None:
        return rest
    error = rest.pop("error")
    if rest:
        strays.append({**rest, "type": "error"})
    return error


# -- where in an item the events of a stream put what they say [RSP-13] ------------------------------------------------


def _path_of(steps: tuple[str, ...], data: dict[str, Any]) -> Path:
    """The steps, with each `…_index` replaced by its number in the event."""
    return tuple(_number(data.get(step)) if step.endswith("_index") else step for step in steps)


def _number(value: Any) -> int:
    """The index that an event names; 0 where it names none."""
    return value if type(value) is int and value >= 0 else 0


def _piece_key(base: str, step: str) -> str:
    """The field of an event that holds the text of a piece, or of the whole."""
    if base == "response.shell_call_command":
        return "delta" if step == "delta" else "command"
    return "delta" if step == "delta" else _PIECES.get(base, ("",))[-1]


def _pointer(path: Path) -> str:
    """The path as a JSON pointer."""
    return "".join(f"/{step}" for step in path)


def _get(item: Any, path: Path) -> Any:
    """The value at the path; None if there is none."""
    for step in path:
        if isinstance(item, dict) and isinstance(step, str):
            item = item.get(step)
        elif isinstance(item, list) and type(step) is int and 0 <= step < len(item):
            item = item[step]
        else:
            return None
    return item


def _put(item: dict[str, Any], path: Path, value: Any, part_type: str | None = None) -> None:
    """Set the value at the path; lists grow by one at most, so no index can make them large."""
    holder: Any = item
    for step, after in zip(path, (*path[1:], None), strict=True):
        last = after is None
        fresh = value if last else ([] if type(after) is int else {"type": part_type} if part_type else {})
        if isinstance(holder, dict) and isinstance(step, str):
            if last or not isinstance(holder.get(step), dict | list):
                holder[step] = fresh
            holder = holder[step]
        elif isinstance(holder, list) and type(step) is int:
            if step >= len(holder):
                holder.append(fresh)
                step = len(holder) - 1
            elif last:
                holder[step] = value
            holder = holder[step]
        else:
            return


# -- events that tell of another call than the final response: refused, because clients act on each event [RSP-17] -----


class _Finals:
    """The items of the final response, by place and, for servers that leave items out of it, by their ids."""

    def __init__(self, items: dict[int, Any]) -> None:
        self._items = items
        self._named = {(key, item[key]): item for item in items.values() for key in _ids(item)}

    def item(self, at: int, said: Any) -> Any:
        """The item that an event at index `at` tells of as `said`; None if there is none."""
        final = self._items.get(at)
        held = final if isinstance(final, dict) else {}
        if not isinstance(said, dict) or any(held.get(key) == said[key] for key in _ids(said)):
            return final
        return next((self._named[key, said[key]] for key in _ids(said) if (key, said[key]) in self._named), final)


def _ids(item: Any) -> tuple[str, ...]:
    return tuple(key for key in ("call_id", "id") if isinstance(item, dict) and isinstance(item.get(key), str))


def _refuse_other_call(said: dict[str, Any], final: Any, path: str, *, begins: bool) -> None:
    """Refuse an item of a call that is another one in the final response, or missing there."""
    kind = said.get("type")
    if not isinstance(kind, str) or not (kind in CALLS or kind.endswith("_call")):
        return
    held = final if isinstance(final, dict) else {}
    are_calls = kind in CALLS and held.get("type") in CALLS
    for key, item in said.items():
        if key in _CALLED or (not are_calls and key not in ("id", "status")):
            _refuse_other(item, held.get(key), f"{path}.{key}", begins=begins)


def _refuse_other(said: Any, final: Any, path: str, *, begins: bool = False) -> None:
    """Refuse what is not what the final response has in its place; what `begins` may still grow."""
    if not _agrees(said, final, begins=begins):
        raise contradiction(path)


def _agrees(said: Any, final: Any, *, begins: bool) -> bool:
    if said is None or said == "" or said == [] or said == {}:
        return True  # nothing yet
    if isinstance(said, str) and isinstance(final, str):
        if said == final or (begins and (said == "{}" or final.startswith(said))):
            return True
        if len(final) > 10 * len(said):  # no other spelling is as much longer, and each would be read again
            return False
        spelt = loads_object(said)
        return spelt is not None and same_json(spelt, loads_object(final))
    if isinstance(said, dict) and isinstance(final, dict):
        return all(_agrees(item, final.get(key), begins=begins) for key, item in said.items())
    if isinstance(said, list) and isinstance(final, list):
        fits = len(said) <= len(final) if begins else len(said) == len(final)
        return fits and all(_agrees(item, other, begins=begins) for item, other in zip(said, final, strict=False))
    return same_json(said, final)


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
        status = body.get("status")
        closing = status if status in ("incomplete", "failed") else "completed"
        events.append({"type": f"response.{closing}", "response": body})
    return _numbered(events)


def _numbered(events: list[dict[str, Any]]) -> list[WireEvent]:
    return [{"event": data["type"], "data": {**data, "sequence_number": at}} for at, data in enumerate(events)]


def _item_events(item: Any, at: int) -> Iterator[dict[str, Any]]:
    fields = item if isinstance(item, dict) else {}
    kind, about = fields.get("type"), {"output_index": at}
    if isinstance(fields.get("id"), str):
        about["item_id"] = fields["id"]
    started, pieces = dict(fields), list[dict[str, Any]]()
    for holder, key in (("message", "content"), ("reasoning", "summary")):
        if kind == holder and isinstance(fields.get(key), list):
            started[key] = []
            pieces = [event for n, part in enumerate(fields[key]) for event in _part_events(part, key, n, about)]
    if kind in ("function_call", "custom_tool_call") and isinstance(fields.get(key := _STREAMED[kind][-1]), str):
        started[key] = ""
        pieces = _text_events(kind, fields, about)
    if started.get("status") == "completed":
        started["status"] = "in_progress"
    begun = started if isinstance(item, dict) else item
    yield {"type": "response.output_item.added", "output_index": at, "item": begun}
    yield from pieces
    yield {"type": "response.output_item.done", "output_index": at, "item": item}


_STREAMED: Final = {
    "function_call": ("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input"),
    "output_text": ("response.output_text.delta", "response.output_text.done", "text"),
    "refusal": ("response.refusal.delta", "response.refusal.done", "refusal"),
    "summary_text": ("response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", "text"),
}
"""By type of an item or part: the events that stream its text, and the key that has it."""
_TEXTS: Final = ("output_text", "refusal")


def _text_events(kind: str, holder: dict[str, Any], where: dict[str, Any]) -> list[dict[str, Any]]:
    delta, done, key = _STREAMED[kind]
    tokens: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    begun = {"type": delta, **where, "delta": holder[key], **tokens}
    return [begun, {"type": done, **where, key: holder[key], **tokens}]


def _part_events(part: Any, holder: str, at: int, about: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a part of a message's content, or of a summary."""
    of_summary, fields = holder == "summary", part if isinstance(part, dict) else {}
    kind: Any = "summary_text" if of_summary else fields.get("type")
    base = "response.reasoning_summary_part" if of_summary else "response.content_part"
    where = {**about, f"{holder}_index": at}
    if not (of_summary or kind in _TEXTS) or not isinstance(fields.get(key := _STREAMED[kind][-1]), str):
        return [] if of_summary else [{"type": f"{base}.done", **where, "part": part}]
    empty = {**fields, key: ""} | {name: [] for name in ("annotations", "logprobs") if name in fields}
    events = _text_events(kind, fields, where)
    return [{"type": f"{base}.added", **where, "part": empty}, *events, {"type": f"{base}.done", **where, "part": part}]


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
        data = event.get("data")
        kind = data.get("type") if isinstance(data, dict) else None
        if not isinstance(kind, str) or data is None:
            return
        base, _, step = kind.rpartition(".")
        text = data.get(_piece_key(base, step)) if base in _PIECES else None
        if base in _PART_TYPES and isinstance(text, str):
            yield from self._text(base, step, text, data)
        elif base in _PIECES and step == "delta" and isinstance(text, str):
            at = data.get("output_index")
            if type(at) is int and at in self._calls:
                yield self._calls.grow(at, len(text))
        elif kind in _OPENING:
            self._opened = True
        elif kind == "response.output_item.added":
            yield from self._started(data)
        elif kind in _CLOSING:
            yield from self._closing(data.get("response"))
            for key, tail in self._held.items():  # of no item of the final response
                yield key[0](text=tail)

    def _text(self, base: str, step: str, text: str, data: dict[str, Any]) -> Iterator[StreamEvent]:
        at = self._index(data)
        delta_type = TextDelta if _PART_TYPES[base] in _TEXTS else ThinkingDelta
        key = (delta_type, at, *_path_of(_PIECES[base][:-1], data))
        if step == "delta" and not self._opened and at not in self._begun and key not in self._texts:
            self._held[key] = self._held.get(key, "") + text
            return
        self._held.pop(key, None)
        before = self._texts.get(key, "")
        fresh = text if step == "delta" else (text[len(before) :] if text.startswith(before) else "")
        if fresh:
            self._texts[key] = before + fresh
            yield delta_type(text=fresh)

    def _index(self, data: dict[str, Any]) -> int:
        """The position of an event's item in the output; by the item's id if the event has no number."""
        at, name = data.get("output_index"), data.get("item_id")
        return _number(at) if type(at) is int or not isinstance(name, str) else self._places.get(name, 0)

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
                text = part.get(_STREAMED[kind][-1]) if kind in _TEXTS else None
                if isinstance(text, str):
                    indexes = {"output_index": output_index, "content_index": n}
                    yield from self._text(f"response.{kind}", "done", text, indexes)
