"""The whole answer that a stream of the Responses format adds up to.

Spec: docs/spec/adapters/openai_responses.md [RSP-13] to [RSP-15]; docs/spec/streaming.md.

The events say most things three times: in pieces, whole, and in the final response. The fold takes the final word where
there is one, and keeps whatever was streamed and is not in it under `cmf_stream`: a client heard it, so it is judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from cmf.adapters.openai_responses.items import CALLS, STREAM
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import PARTIAL
from cmf.adapters.wire.stream import contradiction
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import freeze, same_json, thaw

Path: TypeAlias = tuple[str | int, ...]

PIECES: Final[dict[str, tuple[str, ...]]] = {
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

_CALL_PIECES: Final = frozenset(base for base, path in PIECES.items() if path[0] not in ("content", "summary"))
_CALLED: Final = frozenset(
    {"type", "name", "call_id", "namespace", "server_label"}
    | {key for call in CALLS.values() for key in (call.text, call.whole, *call.keys) if key is not None}
)
"""The fields of an item that say which call it is."""

OPENING: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
CLOSING: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
ANNOTATION: Final = "response.output_text.annotation.added"
PROGRESS: Final = frozenset(
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
        elif not isinstance(kind, str) or kind == "error":
            self._take_error(data)
        elif kind in OPENING or kind in CLOSING:
            self._take_response(kind, data)
        elif not self._take_of_item(kind, data):
            self.strays.append(data)

    def _take_response(self, kind: str, data: dict[str, Any]) -> None:
        response = data.get("response")
        if not isinstance(response, dict):
            self.strays.append(data)
            return
        if kind in CLOSING:
            self.closing = response
        else:
            self.opening = response
        self.lives.append(data)

    def _take_error(self, data: dict[str, Any]) -> None:
        if self.error is not None:
            self.strays.append(data)
        else:
            self.error = data

    def _take_of_item(self, kind: str, data: dict[str, Any]) -> bool:
        at = self._index(data)
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = data.get("item")
            if not isinstance(item, dict):
                return False
            (self.added if kind.endswith("added") else self.done)[at] = item
            if isinstance(name := item.get("id"), str):
                self.by_id.setdefault(name, at)
        elif kind in _PARTS:
            part = data.get("part")
            if not isinstance(part, dict):
                return False
            self.parts.setdefault(at, {})[path_of(_PARTS[kind], data)] = part
        elif kind == ANNOTATION or kind in PROGRESS:
            pass
        elif not self._take_piece(kind, data, at):
            return False
        self.item_events.append((data, at))
        return True

    def _take_piece(self, kind: str, data: dict[str, Any], at: int) -> bool:
        base, _, step = kind.rpartition(".")
        where = PIECES.get(base)
        text = data.get(piece_key(base, step)) if where is not None else None
        if where is None or not isinstance(text, str) or step not in ("delta", "done", "added"):
            return False
        path = path_of(where, data)
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
        at = data.get("output_index")
        if type(at) is int:
            return at
        name = data.get("item_id")
        return self.by_id.get(name, 0) if isinstance(name, str) else 0

    # -- the body ------------------------------------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """The folded body."""
        if self.opening is None and self.closing is None and not self.item_events:
            if self.error is not None:
                return self._error_body()
            if len(self.strays) == 1 and isinstance(self.strays[0], dict) and "type" not in self.strays[0]:
                return _single_event(self.strays[0])
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
            body = {key: value for key, value in data.items() if not (key == "type" and value == "error")}
            if type(body.get("sequence_number")) is int:
                del body["sequence_number"]
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
        item: dict[str, Any] = thaw(started) if started is not None else _skeleton(paths, types)
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
            output = data["response"].get("output")
            for at, said in enumerate(
                output if isinstance(output, list) and data["response"] is not self.closing else ()
            ):
                if isinstance(said, dict):
                    _refuse_other_call(said, finals.item(at, said), f"$.output[{at}]", begins=data["type"] in OPENING)
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
        leftovers = _Leftovers()
        for data in self.lives:
            rest = unexplained(data["response"], body)
            leftovers.add(data, {} if rest is _NOTHING else {"response": rest}, self._others(data, "response"))
        for data, at in self.item_events:
            rest = self._rest_of(data, items.get(at))
            index = {"output_index": at} if "item" in rest else {}  # where to say it again
            leftovers.add(data, rest, index, self._others(data, *_PAYLOADS))
        for at, by_path in self.pieces.items():
            for path, pieces in by_path.items():
                text = "".join(pieces)
                if text and _get(items.get(at), path) != text:
                    leftovers.keep({"output_index": at, "at": _pointer(path), "delta": text})
        for at, tokens_by_path in self.probabilities.items():
            for path, tokens in tokens_by_path.items():
                rest = unexplained(tokens, _get(items.get(at), (*path[:-1], "logprobs")))
                if rest is not _NOTHING:
                    leftovers.keep({"output_index": at, "at": _pointer(path), "logprobs": rest})
        return [*leftovers.listed, *self.strays]

    def _others(self, data: dict[str, Any], *known: str) -> dict[str, Any]:
        """Of an event: fields that are neither its payload nor its place."""
        rest = {}
        for key, value in data.items():
            if key in known or key == "type" or (key in _INDEXES and type(value) is int):
                continue
            if key == "obfuscation" and isinstance(value, str):
                self.padding.append(value)
            elif key != "item_id":
                rest[key] = value
        return rest

    def _rest_of(self, data: dict[str, Any], item: Any) -> dict[str, Any]:
        """Of an event about an item: what the item does not say."""
        kind = data["type"]
        rest: dict[str, Any] = {}
        name = data.get("item_id", _NOTHING)
        if name is not _NOTHING and not (isinstance(item, dict) and item.get("id") == name):
            rest["item_id"] = name
        for key in _PAYLOADS:
            if key not in data or key == "item_id":
                continue
            seen, final = data[key], self._final(kind, key, data, item)
            if final is _HELD:
                continue
            left = unexplained(seen, final)
            if left is not _NOTHING:
                rest[key] = left
        return rest

    def _final(self, kind: str, key: str, data: dict[str, Any], item: Any) -> Any:
        """What the final item has where an event's payload belongs; `_HELD` if pieces are compared together."""
        if key == "item":
            return item
        if key == "part":
            return _get(item, path_of(_PARTS[kind], data)) if kind in _PARTS else None
        if key == "annotation":
            path_there = (*path_of(("content", "content_index", "annotations"), data), data.get("annotation_index"))
            return _get(item, path_there) if kind == ANNOTATION else None  # type: ignore[arg-type]  # any JSON
        base, _, step = kind.rpartition(".")
        where = PIECES.get(base)
        if where is None:
            return None
        path = path_of(where, data)
        if key == "logprobs":
            return _HELD if step == "delta" and isinstance(data[key], list) else _get(item, (*path[:-1], "logprobs"))
        if key == "name":
            return item.get("name") if isinstance(item, dict) else None
        if key != piece_key(base, step):
            return None
        return _HELD if step in ("delta", "added") else _get(item, path)


_HELD: Final = object()
_PAYLOADS: Final = (
    "item_id", "item", "part", "annotation", "logprobs", "delta", "text", "refusal", "arguments", "input", "code",
    "diff", "command", "name",
)  # fmt: skip


class _Leftovers:
    """What is left of events, each thing once."""

    def __init__(self) -> None:
        self.listed: list[Any] = []
        self._known: set[bytes] = set()

    def add(self, data: dict[str, Any], *rests: dict[str, Any]) -> None:
        """What is left of one event, under its type; nothing if nothing is."""
        rest = {key: value for each in rests for key, value in each.items()}
        if rest:
            self.keep({"type": data["type"], **rest})

    def keep(self, what: dict[str, Any]) -> None:
        """Keep it, unless it was kept before."""
        key = dumps(what)
        if key not in self._known:
            self._known.add(key)
            self.listed.append(what)


def unexplained(seen: Any, final: Any, key: str = "") -> Any:
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
            rest = unexplained(item, held.get(name), name)
            if rest is not _NOTHING:
                left[name] = rest
            elif name not in held:
                left[name] = item
        return left or _NOTHING
    if isinstance(seen, list):
        known_items = final if isinstance(final, list) else []
        rests = [unexplained(item, known_items[at] if at < len(known_items) else None) for at, item in enumerate(seen)]
        return [rest for rest in rests if rest is not _NOTHING] or _NOTHING
    return _NOTHING


def _flat_error(data: dict[str, Any], strays: list[Any]) -> Any:
    """The error that an event tells of: nested, or flat in the event itself."""
    error = data.get("error")
    if error is not None:
        rest = {
            key: value
            for key, value in data.items()
            if key not in ("type", "error") and not (key in _INDEXES and type(value) is int)
        }
        if rest:
            strays.append({"type": "error", **rest})
        return error
    return {
        key: value
        for key, value in data.items()
        if not (key == "type" and value == "error") and not (key in _INDEXES and type(value) is int)
    }


def _single_event(body: dict[str, Any]) -> dict[str, Any]:
    """A body that came as the only event of a stream: an error, or else an answer that never ended as a stream does."""
    listed = {key: value for key, value in body.items() if key != PARTIAL}
    return {**listed, PARTIAL: True} if "output" in body or "status" in body or "object" in body else listed


# -- where in an item the events of a stream put what they say [RSP-13] ------------------------------------------------


def path_of(steps: tuple[str, ...], data: dict[str, Any]) -> Path:
    """The steps, with each `…_index` replaced by its number in the event."""
    return tuple(number(data.get(step)) if step.endswith("_index") else step for step in steps)


def number(value: Any) -> int:
    """The index that an event names; 0 where it names none."""
    return value if type(value) is int and value >= 0 else 0


def piece_key(base: str, step: str) -> str:
    """The field of an event that holds the text of a piece, or of the whole."""
    if base == "response.shell_call_command":
        return "delta" if step == "delta" else "command"
    return "delta" if step == "delta" else PIECES.get(base, ("",))[-1]


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


def _skeleton(paths: list[Path], types: dict[Path, str]) -> dict[str, Any]:
    """An item of which only pieces were received."""
    kind = _SKELETONS.get(str(paths[0][0]), "message") if paths else "message"
    if "reasoning_text" in types.values():
        kind = "reasoning"
    return {"type": kind, "role": "assistant"} if kind == "message" else {"type": kind}


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
    if not _is_call(said):
        return
    held = final if isinstance(final, dict) else {}
    are_calls = said.get("type") in CALLS and held.get("type") in CALLS
    for key, item in said.items():
        if key in _CALLED or (not are_calls and key not in ("id", "status")):
            _refuse_other(item, held.get(key), f"{path}.{key}", begins=begins)


def _is_call(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and (kind in CALLS or kind.endswith("_call"))


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
