"""Ollama's streams: lines that each hold a piece of the message, the last one `done`. Spec: ollama.md [OLL-12] ff."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from cmf.adapters.ollama.response import write_response
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import MARK, PARTIAL
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta
from cmf.message.request import Response

SUPERSEDED: Final = f"{MARK}superseded"  # values that a later line replaced
UNRECOGNIZED: Final = f"{MARK}unrecognized"  # lines that are no object

_NOTHING: Final = object()
_TEXTS: Final = ("content", "thinking")
_GENERATED: Final = ("response", "thinking")  # of a body that is the message itself
_LISTS: Final = ("tool_calls", "images")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


def fold_events(events: Iterable[WireEvent | Any]) -> dict[str, Any]:
    """The whole answer that the lines add up to; marked with `cmf_partial` where it was cut."""
    superseded: list[Any] = []
    unrecognized: list[Any] = []
    whole, message_so_far = _Gathered(superseded), _Gathered(superseded)
    body, message = whole.fields, message_so_far.fields
    for event in events:
        line = event.get("data", _NOTHING) if isinstance(event, dict) else _NOTHING
        if not isinstance(line, dict):
            if line is not _NOTHING:
                unrecognized.append(line)
            continue
        for key, value in line.items():
            if key == "message" and isinstance(value, dict):
                if isinstance(body.get("message", message), dict):
                    body["message"] = message
                    _add(message_so_far, value)
                else:
                    unrecognized.append({key: value})
            elif key == "logprobs" and isinstance(value, list) and isinstance(body.get(key, value), list):
                whole.add_items(key, value)
            elif key in _GENERATED and isinstance(value, str) and isinstance(body.get(key), str):
                whole.add_text(key, value)
            else:
                whole.put(key, value)
    message_so_far.settle()
    whole.settle()
    if superseded:
        body[SUPERSEDED] = superseded
    if unrecognized:
        body[UNRECOGNIZED] = unrecognized
    if body.get("done") is not True and "error" not in body:
        body[PARTIAL] = True
    return body


def _add(message: _Gathered, piece: dict[str, Any]) -> None:
    for key, value in piece.items():
        old = message.fields.get(key)
        if key in _TEXTS and isinstance(value, str) and isinstance(old, str):
            message.add_text(key, value)
        elif key in _LISTS and isinstance(value, list) and isinstance(old, list):
            message.add_items(key, value)
        else:
            message.put(key, value)


class _Gathered:
    """An object whose texts and lists come in pieces. They are joined once, so that a fold is linear in its bytes."""

    def __init__(self, superseded: list[Any]) -> None:
        self.fields: dict[str, Any] = {}  # of a text that goes on, its first piece until it is settled
        self._texts: dict[str, list[str]] = {}
        self._own: set[str] = set()  # the lists that no line holds
        self._superseded = superseded

    def add_text(self, key: str, text: str) -> None:
        """Go on with the text under `key`."""
        self._texts.setdefault(key, [self.fields[key]]).append(text)

    def add_items(self, key: str, items: list[Any]) -> None:
        """Go on with the list under `key`, or begin it."""
        if key not in self._own:
            self.fields[key] = list(self.fields.get(key, ()))
            self._own.add(key)
        self.fields[key] += items

    def put(self, key: str, value: Any) -> None:
        """Set `key`. What it held, if it is more than a number or a moment, is superseded.

        Null takes nothing back: a client's dump says so of all that a line does not have.
        """
        if value is None and self.fields.get(key) is not None and key != "done":
            return
        self._join(key)
        self._own.discard(key)
        old = self.fields.get(key)
        self.fields[key] = value
        is_moment = key == "created_at" and isinstance(old, str) and _MOMENT.fullmatch(old) is not None
        has_text = isinstance(old, str | list | dict) and old and not is_moment
        if has_text and old != value:
            self._superseded.append({key: old})

    def settle(self) -> None:
        """Join what came in pieces."""
        for key in list(self._texts):
            self._join(key)

    def _join(self, key: str) -> None:
        if (pieces := self._texts.pop(key, None)) is not None:
            self.fields[key] = "".join(pieces)


def error_event(text: str, reply: Any) -> WireEvent:
    """The line for an error with this text."""
    return {"data": {"error": text}}


def write_events(response: Response) -> list[WireEvent]:
    """The lines that fold to the body of the response: thinking, text, and the rest with the last one."""
    body = write_response(response)
    message = body.get("message")
    if message is None and isinstance(body.get("response"), str) and "done" in body and "error" not in body:
        return _generated(body)
    if not isinstance(message, dict) or "done" not in body or "error" in body:
        return [{"data": body}]
    about = {key: body[key] for key in ("model", "created_at") if key in body}
    who = {key: message[key] for key in ("role",) if key in message}
    events: list[WireEvent] = []
    last = dict(message)
    for key in ("thinking", "content"):
        if isinstance(message.get(key), str) and message[key]:
            no_text = {"content": ""} if key == "thinking" and isinstance(message.get("content"), str) else {}
            events.append({"data": {**about, "message": {**who, **no_text, key: message[key]}, "done": False}})
            last[key] = ""
    return [*events, {"data": {**body, "message": last}}]


def _generated(body: dict[str, Any]) -> list[WireEvent]:
    about = {key: body[key] for key in ("model", "created_at") if key in body}
    message_so_far = {
        key: body[key] for key in ("thinking", "response") if isinstance(body.get(key), str) and body[key]
    }
    events: list[WireEvent] = [
        {"data": {**about, "response": "", key: text, "done": False}} for key, text in message_so_far.items()
    ]
    return [*events, {"data": {**body, **dict.fromkeys(message_so_far, "")}}]


class LiveDecoder:
    """What each line adds at once. Never raises."""

    def __init__(self) -> None:
        self._calls = LiveCalls()

    def __call__(self, event: WireEvent) -> Iterator[StreamEvent]:
        """The canonical events of one line."""
        line = event.get("data")
        message = line.get("message") if isinstance(line, dict) else None
        if isinstance(line, dict) and message is None and "response" in line:
            message = {"thinking": line.get("thinking"), "content": line["response"]}
        if not isinstance(message, dict):
            return
        if (thinking := message.get("thinking")) and isinstance(thinking, str):
            yield ThinkingDelta(text=thinking)
        if (text := message.get("content")) and isinstance(text, str):
            yield TextDelta(text=text)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if isinstance(name, str):
                yield self._calls.begin(None, call.get("id"), name)  # it does not grow, so no key is needed
