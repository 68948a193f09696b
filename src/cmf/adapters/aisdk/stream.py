"""The UI message stream of the AI SDK: chunks to one UI message, and back. Spec: aisdk.md [AISDK-7], [AISDK-9].

The fold builds what the SDK's own client would hold at the end. What such a client forgets or never keeps (an error, a
superseded input, a transient chunk, a delta without its start) is listed under `cmf_stream`, which ends in the
response's `extra`: policy sees all that a stream said. A part that holds less than its chunks did is listed with them.
Chunks that tell of different calls under one id are refused, because a client acts on each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from cmf.adapters.aisdk.message import (
    FORMAT,
    STREAM,
    current_body,
    http_call,
    read_request,
    read_response,
    stop_word,
    write_request,
    write_response,
)
from cmf.adapters.aisdk.version4 import hashable
from cmf.adapters.wire.base import Adapter, WireEvent
from cmf.adapters.wire.fields import PARTIAL, extra_of, strings_in
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta, contradiction
from cmf.enums import MessageStatus
from cmf.errors import ShapeError
from cmf.json.codec import loads_object
from cmf.json.frozen import same_json
from cmf.json.value import present
from cmf.message.request import Response

_DONE: Final = "[DONE]"
_COPIED: Final = ("source-url", "source-document", "file", "reasoning-file", "custom", "steering-message")
_OWN_KEYS: Final = frozenset(
    {
        "type", "id", "delta", "toolCallId", "toolName", "inputTextDelta", "input", "output", "errorText", "dynamic",
        "providerExecuted", "providerMetadata", "messageId", "messageMetadata", "finishReason", "approvalId",
        "approved", "reason", "title", "toolMetadata", "preliminary",
    }
)  # fmt: skip
_Target: TypeAlias = dict[str, Any] | None  # what a chunk went into: a part, the message, or nothing
_DELTAS: Final = {"text-delta": "delta", "reasoning-delta": "delta", "tool-input-delta": "inputTextDelta"}
_MARKS: Final = ("text-start", "text-end", "reasoning-end")
_Part = TypeVar("_Part")
# What a chunk says of a call that waits for approval, and the names under which the message holds it.
_ASKED_AS: Final = {"approvalDescriptor": "descriptor", "reason": "requestReason"}
_ASKED_IN: Final = {name: key for key, name in _ASKED_AS.items()}


class _Fold:
    """A UI message as it grows."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {"role": "assistant", "parts": []}
        self.notes: dict[str, Any] = {}
        self._open: _OpenParts[dict[str, Any]] = _OpenParts()
        self._unused: dict[int, dict[str, Any]] = {}  # by identity: parts that no chunk has gone on with
        self._tools: dict[Any, dict[str, Any]] = {}  # by id of the call: its newest part
        self._begun: dict[Any, _Target] = {}  # this step's calls by id, with an earlier step's part of the same id
        self._step_at = 0  # where the parts of this step begin
        self._data: dict[tuple[str, Any], int] = {}  # by type and id: where the part is
        self._asked: dict[Any, dict[str, Any]] = {}  # by id of the approval: the part that waits for it
        self._texts: dict[int, list[str]] = {}  # by identity of the part: the deltas of its text
        self._inputs: dict[Any, list[str]] = {}
        self._given: dict[Any, Any] = {}  # this step's whole inputs, by id of the call
        self._chunks: dict[int, list[dict[str, Any]]] = {}  # by identity of the part: the chunks that made it
        self._divergent: set[int] = set()  # the parts that hold less than their chunks did
        self._finished = self._started = False

    # -- chunk by chunk ------------------------------------------------------------------------------------------------

    def add(self, data: Any) -> None:
        """One chunk, or `[DONE]`."""
        if data == _DONE or data is None or data == "":
            return  # the end of the transport, a comment, a keep-alive: `finish` is what ends an answer
        if not isinstance(data, dict):
            raise ShapeError("an event that is no chunk", path="$", hint="see the UI message stream protocol")
        kind = data.get("type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if isinstance(kind, str) and (kind.startswith("data-") or kind in _COPIED):
            self._complete_part(data, kind)
        elif handler is None:
            self._note("chunks", data)
        elif (part := handler(self, data)) is None:
            self._note("dropped", data)
        else:
            self._chunks.setdefault(id(part), []).append(data)

    def _note(self, name: str, chunk: Any) -> None:
        self.notes.setdefault(name, []).append(chunk)

    def _complete_part(self, chunk: dict[str, Any], kind: str) -> None:
        """A chunk that is a complete part; a later one of the same id replaces it."""
        if chunk.get("transient") is True:
            self._note("chunks", chunk)
            return
        parts = self.body["parts"]
        key = (kind, hashable(chunk["id"])) if kind.startswith("data-") and "id" in chunk else None
        if key is None or (at := self._data.get(key)) is None:
            if key is not None:
                self._data[key] = len(parts)
            parts.append(chunk)
            return
        old, parts[at] = parts[at], chunk
        history = self._chunks.pop(id(old), None) or [old]
        history.append(chunk)
        self._chunks[id(chunk)] = history
        self._divergent.add(id(chunk))

    def _message_chunk(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """A chunk that is about the message, and no part of it."""
        kind = chunk["type"]
        if kind == "start":
            self._started = True
            if "messageId" in chunk:
                self.body["id"] = chunk["messageId"]
        elif kind == "finish":
            self._finished = True
            if "finishReason" in chunk:
                self.notes["finishReason"] = chunk["finishReason"]
        if chunk.get("messageMetadata") is not None:
            _merge(self.body, {"metadata": chunk["messageMetadata"]})
        return self.body

    def _note_chunk(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """The server's error or its word that it gave up: shown to the client, but not part of the message."""
        if chunk["type"] == "error":
            self._note("errors", chunk)
        else:
            self.notes["abort"] = chunk
        return self.body

    def _begin_step(self, _: dict[str, Any]) -> dict[str, Any]:
        """Another call of the model begins."""
        self.body["parts"].append({"type": "step-start"})
        self._step_at = len(self.body["parts"])
        self._divergent |= {id(self._tools[name]) for name in self._inputs}
        self._begun, self._inputs, self._given = {}, {}, {}
        return self.body

    def _reset_step(self, _: dict[str, Any]) -> dict[str, Any]:
        """The step's content so far is withdrawn: the client was shown it, but it is not part of the message."""
        parts = self.body["parts"]
        for part in parts[self._step_at :]:
            self._join(part)
            self._unused.pop(id(part), None)
            if "id" in part:
                self._data.pop((part["type"], hashable(part["id"])), None)
            self._note("reset", {"part": part, "history": self._history(part)})
        del parts[self._step_at :]
        self._open = _OpenParts()
        for name, before in self._begun.items():
            if before is None:
                del self._tools[name]
            else:
                self._tools[name] = before
        self._begun, self._inputs, self._given = {}, {}, {}
        return self.body

    def _end_step(self, _: dict[str, Any]) -> dict[str, Any]:
        """What is still open is closed for good."""
        self._open = _OpenParts()
        return self.body

    # -- text and reasoning --------------------------------------------------------------------------------------------

    def _begin_part(self, chunk: dict[str, Any]) -> dict[str, Any]:
        kind = str(chunk["type"]).removesuffix("-start")
        part: dict[str, Any] = {"type": kind}
        if kind == "reasoning" and chunk.get("id", kind) != kind:  # the kind is what a part without an id is sent under
            part["id"] = chunk["id"]
        part |= {"text": "", "state": "streaming"}
        self.body["parts"].append(part)
        self._open.begin(kind, chunk.get("id"), part)
        self._unused[id(part)] = part
        _take(part, "providerMetadata", chunk)
        return part

    def _add_delta(self, chunk: dict[str, Any]) -> _Target:
        if not isinstance(chunk.get("delta"), str):
            return None
        part = self._open_part(chunk, "-delta")
        if part is None:  # nothing began it, as in a stream that is resumed
            part = self._begin_part({**chunk, "type": str(chunk["type"]).removesuffix("-delta") + "-start"})
            del self._unused[id(part)]
            self._divergent.add(id(part))
        self._texts.setdefault(id(part), []).append(chunk["delta"])
        if chunk.keys() - {"type", "id", "delta", "providerMetadata"}:
            self._divergent.add(id(part))
        self._replaced(part, chunk)
        return part

    def _close(self, chunk: dict[str, Any]) -> _Target:
        part = self._open_part(chunk, "-end")
        if part is not None:
            part["state"] = "done"
            _take(part, "citations", chunk)
            self._replaced(part, chunk)
            self._open.end("text" if chunk["type"] == "text-end" else "reasoning", chunk.get("id"))
        return part

    def _open_part(self, chunk: dict[str, Any], suffix: str) -> _Target:
        """The part that the chunk goes on with; if their ids differ, the part is listed with its chunks."""
        entry = self._open.find(str(chunk["type"]).removesuffix(suffix), chunk.get("id"))
        if entry is None:
            return None
        own_id, part = entry
        if own_id == hashable(chunk.get("id")):
            self._unused.pop(id(part), None)
        else:
            self._divergent.add(id(part))
        return part

    def _replaced(self, part: dict[str, Any], chunk: dict[str, Any]) -> None:
        old, new = part.get("providerMetadata"), chunk.get("providerMetadata")
        if old is not None and new is not None and not same_json(old, new):
            self._divergent.add(id(part))
        _take(part, "providerMetadata", chunk)

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _tool_start(self, chunk: dict[str, Any]) -> _Target:
        """A call begins; its input is still to come."""
        return self._tool(chunk, state="input-streaming", input=None)

    def _tool_delta(self, chunk: dict[str, Any]) -> _Target:
        """Some of a call's input, as text of JSON."""
        call_id, text = chunk.get("toolCallId"), chunk.get("inputTextDelta")
        part = self._tools.get(call_id) if isinstance(call_id, str) else None
        if part is None or not isinstance(text, str):
            return None
        if text and call_id in self._given:
            raise self._contradiction()
        self._inputs.setdefault(call_id, []).append(text)
        if chunk.keys() - {"type", "toolCallId", "inputTextDelta"}:
            self._divergent.add(id(part))
        return part

    def _tool_input(self, chunk: dict[str, Any]) -> _Target:
        if "input" not in chunk:
            return None
        self._compare_input(chunk)
        return self._tool(chunk, state="input-available", input=chunk["input"])

    def _tool_input_error(self, chunk: dict[str, Any]) -> _Target:
        """An input that the call's schema refuses."""
        self._compare_input(chunk)
        call_id = hashable(chunk.get("toolCallId"))
        has_begun = call_id in self._begun
        dynamic = self._tools[call_id]["type"] == "dynamic-tool" if has_begun else chunk.get("dynamic") is True
        given = {"input" if dynamic else "rawInput": chunk.get("input")}
        return self._tool(chunk, dynamic=dynamic, state="output-error", errorText=chunk.get("errorText"), **given)

    def _compare_input(self, chunk: dict[str, Any]) -> None:
        """Hold an input to the deltas, which are another spelling of it, and to an earlier one of the same call."""
        call_id, given = hashable(chunk.get("toolCallId")), chunk.get("input")
        text = "".join(self._inputs.pop(call_id, ()))
        if given is None:
            if text:
                self._divergent.add(id(self._tools[call_id]))
            return
        if text and text != given and not same_json(loads_object(text), given):
            raise self._contradiction()
        if call_id in self._given and not same_json(self._given[call_id], given):
            raise self._contradiction()
        self._given[call_id] = given

    def _contradiction(self) -> ShapeError:
        return contradiction(f"$.parts[{len(self.body['parts'])}]")

    def _tool_output(self, chunk: dict[str, Any]) -> _Target:
        """What the tool returned; of several outputs the last is final."""
        part = self._answered(chunk) if "output" in chunk else None
        if part is None:
            return None
        if "output" in part and not same_json(part["output"], chunk["output"]):
            self._divergent.add(id(part))
        given = {"input": part.get("input")}
        return self._tool(
            chunk, state="output-available", output=chunk["output"], preliminary=chunk.get("preliminary"), **given
        )

    def _tool_output_error(self, chunk: dict[str, Any]) -> _Target:
        part = self._answered(chunk)
        if part is None:
            return None
        given = {"input": part.get("input"), "rawInput": part.get("rawInput")}
        return self._tool(chunk, state="output-error", errorText=chunk.get("errorText"), **given)

    def _tool_denied(self, chunk: dict[str, Any]) -> _Target:
        part = self._answered(chunk)
        if part is not None:
            part["state"] = "output-denied"
        return part

    def _approval_asked(self, chunk: dict[str, Any]) -> _Target:
        """The user is asked whether it may run."""
        part = self._tools.get(hashable(chunk.get("toolCallId")))
        if part is None or "approvalId" not in chunk:
            return None
        rest = _renamed(chunk, _ASKED_AS, leave=("type", "toolCallId", "approvalId"))
        part["state"] = "approval-requested"
        part["approval"] = {"id": chunk["approvalId"], **rest}
        self._asked[hashable(chunk["approvalId"])] = part
        return part

    def _approval_given(self, chunk: dict[str, Any]) -> _Target:
        part = self._asked.get(hashable(chunk.get("approvalId")))
        if part is None or self._tools.get(part["toolCallId"]) is not part:
            return None
        approval = part["approval"]
        if not same_json(approval["id"], chunk.get("approvalId")):
            return None
        part["state"] = "approval-responded"
        approval |= {key: item for key, item in chunk.items() if key not in ("type", "approvalId")}
        return part

    def _answered(self, chunk: dict[str, Any]) -> _Target:
        """The part of the call that is answered; one without a name where the call is in an earlier message."""
        call_id = chunk.get("toolCallId")
        if not isinstance(call_id, str):
            return None
        part = self._tools.get(call_id)
        if part is None:
            part = self._begin_call({"type": "dynamic-tool", "toolName": "", "toolCallId": call_id})
        return part

    def _begin_call(self, part: dict[str, Any]) -> dict[str, Any]:
        call_id = part["toolCallId"]
        self._begun.setdefault(call_id, self._tools.get(call_id))
        self._tools[call_id] = part
        self.body["parts"].append(part)
        return part

    def _tool(self, chunk: dict[str, Any], *, dynamic: bool | None = None, state: str, **fields: Any) -> _Target:
        call_id, name = chunk.get("toolCallId"), chunk.get("toolName")
        if not isinstance(call_id, str):
            return None
        begins = dynamic is not None or state.startswith("input-")
        part = self._tools.get(call_id) if call_id in self._begun or not begins else None
        if part is None:
            if not isinstance(name, str):
                return None
            if dynamic if dynamic is not None else chunk.get("dynamic") is True:
                part = {"type": "dynamic-tool", "toolName": name, "toolCallId": call_id}
            else:
                part = {"type": f"tool-{name}", "toolCallId": call_id}
            self._begin_call(part)
        elif begins and name != (part["toolName"] if part["type"] == "dynamic-tool" else part["type"][5:]):
            raise self._contradiction()
        for key in ("input", "rawInput", "output", "errorText", "preliminary"):
            part.pop(key, None)
        part |= {"state": state, **{key: item for key, item in fields.items() if item is not None}}
        if fields.get("input") is None and "input" in chunk and state == "input-available":
            part["input"] = None
        if "output" in fields:
            part["output"] = fields["output"]
        for key in ("providerExecuted", "title", "toolMetadata"):
            _take(part, key, chunk)
        answered = state in ("output-available", "output-error")
        _take(part, "resultProviderMetadata" if answered else "callProviderMetadata", chunk, "providerMetadata")
        return part

    # -- the end -------------------------------------------------------------------------------------------------------

    def _join(self, part: dict[str, Any]) -> None:
        if deltas := self._texts.pop(id(part), None):
            part["text"] += "".join(deltas)

    def whole(self) -> dict[str, Any]:
        """The body: a UI message, or `{"error": …}` for a stream that is nothing but an error."""
        unanswered = (self._tools[name] for name in self._inputs)
        parts: list[dict[str, Any]] = self.body["parts"]
        for part in parts:
            self._join(part)
        tools = (part for part in parts if part["type"].startswith("tool-") or part["type"] == "dynamic-tool")
        failed = (part for part in tools if "errorText" in part and part["state"] != "output-error")
        self._divergent |= {id(part) for part in (*self._unused.values(), *unanswered, *failed)}
        self._find_lost()
        histories = {str(at): self._history(part) for at, part in enumerate(parts) if id(part) in self._divergent}
        if histories:
            self.notes["histories"] = histories
        errors = self.notes.get("errors")
        body = self.body
        if errors and not body["parts"] and not self._started and isinstance(errors[0].get("errorText"), str):
            body = {"error": errors[0]["errorText"]}
        if self.notes:
            body[STREAM] = self.notes
        if not self._finished:
            body[PARTIAL] = True
        return body

    def _find_lost(self) -> None:
        """Find the chunks with text that neither the message nor the notes hold any more."""
        kept = {*strings_in(self.body), *strings_in(self.notes), *_OWN_KEYS}
        kept |= {part["type"].removeprefix("tool-") for part in self.body["parts"]}
        by_part = ((part, self._chunks.get(id(part), ())) for part in (self.body, *self.body["parts"]))
        whole = [(part, chunk) for part, chunks in by_part for chunk in chunks if chunk["type"] not in _DELTAS]
        kept |= {hashable(chunk.get("id")) for _, chunk in whole if chunk["type"] in _MARKS}
        for part, chunk in whole:
            if kept.issuperset(strings_in({**chunk, "type": None})):
                continue
            if part is self.body:
                self._note("superseded", chunk)
            else:
                self._divergent.add(id(part))

    def _history(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        """The chunks that made a part: of a run of deltas one, and of text none that the part itself holds."""
        runs: list[tuple[dict[str, Any], list[str]]] = []
        for chunk in self._chunks.get(id(part), ()):
            key = _DELTAS.get(chunk["type"])
            fields = {name: item for name, item in chunk.items() if name != key}
            if key is None or not runs or runs[-1][0] != fields:
                runs.append((fields, []))
            runs[-1][1].append(chunk.get("inputTextDelta", ""))
        for fields, text in runs:
            if fields["type"] == "tool-input-delta":
                fields["inputTextDelta"] = "".join(text)
        return [fields for fields, _ in runs]


_HANDLERS: Final[dict[str, Callable[[_Fold, dict[str, Any]], _Target]]] = {
    **dict.fromkeys(("start", "message-metadata", "finish"), _Fold._message_chunk),
    "start-step": _Fold._begin_step,
    "finish-step": _Fold._end_step,
    "reset-step": _Fold._reset_step,
    **dict.fromkeys(("error", "abort"), _Fold._note_chunk),
    **dict.fromkeys(("text-start", "reasoning-start"), _Fold._begin_part),
    **dict.fromkeys(("text-delta", "reasoning-delta"), _Fold._add_delta),
    **dict.fromkeys(("text-end", "reasoning-end"), _Fold._close),
    "tool-input-start": _Fold._tool_start,
    "tool-input-delta": _Fold._tool_delta,
    "tool-input-available": _Fold._tool_input,
    "tool-input-error": _Fold._tool_input_error,
    "tool-output-available": _Fold._tool_output,
    "tool-output-error": _Fold._tool_output_error,
    "tool-output-denied": _Fold._tool_denied,
    "tool-approval-request": _Fold._approval_asked,
    "tool-approval-response": _Fold._approval_given,
}


def fold_events(events: Iterable[WireEvent | Any]) -> dict[str, Any]:
    """The UI message of a stream, with what else there was under `cmf_stream`; `cmf_partial` if it was cut."""
    growing = _Fold()
    for event in events:
        growing.add(event.get("data") if isinstance(event, dict) else event)
    return growing.whole()


# -- parts of a UI message as its chunks find and fill them [AISDK-9] --------------------------------------------------


class _OpenParts(Generic[_Part]):
    """The texts that may still go on, by kind and id."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[Any, _Part]] = {}

    def begin(self, kind: str, own_id: Any, part: _Part) -> None:
        """A part of this kind and id begins."""
        self._by_kind.setdefault(kind, {})[hashable(own_id)] = part

    def find(self, kind: str, own_id: Any) -> tuple[Any, _Part] | None:
        """The part that a delta or end belongs to, with its id: by id, else the only one of its kind; None if none."""
        parts, key = self._by_kind.get(kind, {}), hashable(own_id)
        if key in parts:
            return key, parts[key]
        return next(iter(parts.items())) if len(parts) == 1 else None

    def end(self, kind: str, own_id: Any) -> None:
        """That part is whole."""
        if (entry := self.find(kind, own_id)) is not None:
            del self._by_kind[kind][entry[0]]


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str], *, leave: Collection[str]) -> dict[str, Any]:
    """The fields but those to leave, under other names where these are free."""
    items = ((names.get(key, key), key, item) for key, item in fields.items() if key not in leave)
    return {key if name != key and name in fields else name: item for name, key, item in items}


def _take(part: dict[str, Any], key: str, chunk: dict[str, Any], source: str | None = None) -> None:
    """Give the part a field of the chunk, if the chunk has it."""
    item = chunk.get(source or key)
    if item is not None:
        part[key] = item


def _merge(old: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Put the new fields into the old object, object by object. The new one is copied, so that none of it changes."""
    for key, item in new.items():
        held = old.get(key)
        if not isinstance(item, dict):
            old[key] = item
        elif isinstance(held, dict):
            _merge(held, item)
        else:
            old[key] = {}
            _merge(old[key], item)


# -- a UI message as the chunks that stream it; they fold to the same message ------------------------------------------


def error_event(text: str, reply: Any) -> WireEvent:
    """The chunk for an error with this text."""
    return {"data": {"type": "error", "errorText": text}}


def write_events(response: Response) -> list[WireEvent]:
    """The events of the UI message: what it says, and nothing else that a stream may have said.

    `finish` and `[DONE]` are sent only if the answer came to its end.
    """
    choice = response.choices[0] if response.choices else None
    whole = choice is None or choice.message.status in (MessageStatus.COMPLETE, MessageStatus.ERROR)
    whole = whole and extra_of(response, FORMAT).get("partial") is not True
    body = current_body(response)
    failed = response.error.message or "" if response.error is not None and choice is not None else None
    aborted = choice is not None and choice.message.status is MessageStatus.CANCELLED
    chunks = [*_chunks(body, error=failed, aborted=aborted)]
    if whole and not ("error" in body and "parts" not in body):
        word = stop_word(choice)
        chunks.append({"type": "finish"} if word is None else {"type": "finish", "finishReason": word})
    events: list[WireEvent] = [{"data": chunk} for chunk in chunks]
    return [*events, {"data": _DONE}] if whole else events


def _chunks(body: Mapping[str, Any], *, error: str | None, aborted: bool) -> Iterator[dict[str, Any]]:
    parts = body.get("parts")
    if not isinstance(parts, list):
        if isinstance(body.get("error"), str):
            yield {"type": "error", "errorText": body["error"]}
        return
    names = {"id": "messageId", "metadata": "messageMetadata"}
    yield {"type": "start", **{name: body[key] for key, name in names.items() if key in body}}
    in_step = False
    for part in parts:
        kind = part.get("type")
        if kind == "step-start":
            if in_step:
                yield {"type": "finish-step"}
            in_step = True
            yield {"type": "start-step"}
        elif kind in ("text", "reasoning") and isinstance(part.get("text"), str):
            yield from _text_chunks(part, kind)
        elif isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool"):
            yield from _tool_chunks(part, kind)
        else:
            yield dict(part)
    if error is not None:
        yield {"type": "error", "errorText": error}
    if in_step:
        yield {"type": "finish-step"}
    if aborted:
        yield {"type": "abort"}


def _text_chunks(part: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    own = part.get("id", kind)  # one part is open at a time, so that one id serves all
    yield {"type": f"{kind}-start", "id": own, **present(providerMetadata=part.get("providerMetadata"))}
    if part["text"]:
        yield {"type": f"{kind}-delta", "id": own, "delta": part["text"]}
    if part.get("state", "done") == "done":
        yield {"type": f"{kind}-end", "id": own, **present(citations=part.get("citations"))}


def _tool_chunks(part: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    call_id, state = part.get("toolCallId"), part.get("state")
    name = part.get("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    call = {key: part[key] for key in ("providerExecuted", "title", "toolMetadata") if key in part}
    call |= {"toolCallId": call_id, "toolName": name, **present(dynamic=kind == "dynamic-tool" or None)}
    metadata = present(providerMetadata=part.get("callProviderMetadata"))
    if name and "input" in part:
        yield {"type": "tool-input-available", **call, **metadata, "input": part["input"]}
    elif name:
        yield {"type": "tool-input-start", **call, **metadata}
    answers = [*_answers(part, call)]
    is_last = state in ("output-available", "output-error")
    yield from [] if is_last else answers  # what came after them gave the part its state
    approval = part.get("approval")
    if isinstance(approval, dict) and "id" in approval:
        outcome = {key: approval[key] for key in ("approved", "reason") if "approved" in approval and key in approval}
        rest = {key: item for key, item in approval.items() if key != "id" and key not in outcome}
        asked = _renamed(rest, _ASKED_IN, leave=())
        yield {"type": "tool-approval-request", "toolCallId": call_id, "approvalId": approval["id"], **asked}
        if outcome:
            yield {"type": "tool-approval-response", "approvalId": approval["id"], **outcome}
    yield from answers if is_last else []
    if state == "output-denied":
        yield {"type": "tool-output-denied", "toolCallId": call_id}


def _answers(part: Mapping[str, Any], call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunk of a call's output or error, if there is one."""
    metadata = present(providerMetadata=part.get("resultProviderMetadata"))
    ran = present(providerExecuted=part.get("providerExecuted"))
    answer = {"toolCallId": call["toolCallId"], **ran, **metadata}
    error = {"errorText": part["errorText"]} if "errorText" in part else {}
    failed = bool(error) or part.get("state") == "output-error"
    if "output" in part and part.get("state") != "output-error":
        preliminary = present(preliminary=part.get("preliminary"))
        yield {"type": "tool-output-available", **answer, **preliminary, "output": part["output"]}
    elif failed and "rawInput" in part and part.get("input") is None:
        yield {"type": "tool-input-error", **call, **answer, "input": part["rawInput"], **error}
    elif failed:
        yield {"type": "tool-output-error", **answer, **error}


class LiveDecoder:
    """What each event adds at once: the live preview of a stream. Deltas that fold to nothing add nothing."""

    __slots__ = ("_calls", "_open")

    def __init__(self) -> None:
        self._open: _OpenParts[None] = _OpenParts()
        self._calls = LiveCalls()  # this step's, by id

    def __call__(self, event: WireEvent) -> Iterator[StreamEvent]:
        """The canonical events of one wire event."""
        chunk = event.get("data")
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        if not isinstance(chunk, dict) or not isinstance(kind, str):
            return
        own_id, call_id, name = chunk.get("id"), chunk.get("toolCallId"), chunk.get("toolName")
        what, _, step = kind.partition("-")
        if kind in ("finish-step", "reset-step"):
            self._open = _OpenParts()
        elif kind == "start-step":
            self._calls.forget()
        elif what in ("text", "reasoning") and step == "start":
            self._open.begin(what, own_id, None)
        elif what in ("text", "reasoning") and step == "end":
            self._open.end(what, own_id)
        elif what in ("text", "reasoning") and step == "delta" and isinstance(text := chunk.get("delta"), str):
            if self._open.find(what, own_id) is None:
                self._open.begin(what, own_id, None)
            yield TextDelta(text=text) if what == "text" else ThinkingDelta(text=text)
        elif kind.startswith("tool-input-") and isinstance(call_id, str):
            if call_id not in self._calls and isinstance(name, str):
                yield self._calls.begin(call_id, call_id, name)
            text = chunk.get("inputTextDelta")
            if kind == "tool-input-delta" and call_id in self._calls and isinstance(text, str):
                yield self._calls.grow(call_id, len(text))


ADAPTER: Final = Adapter(
    name=FORMAT,
    read_request=read_request,
    write_request=write_request,
    to_http=http_call,
    read_response=read_response,
    write_response=write_response,
    fold=fold_events,
    write_events=write_events,
    error_event=error_event,
    live_decoder=LiveDecoder,
)
